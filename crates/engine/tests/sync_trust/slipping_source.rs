//! A source whose list changes while it is read, so that one record slips between two pages.

use super::fixture::record;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_testkit::list_api::{ListAnswer, ListApi, ListCall, text_response};

/// Number of records on a page.
pub(crate) const PAGE: usize = 10;
/// Number of records that the source always has.
pub(crate) const RECORDS: usize = 40;

/// How the source lists its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paging {
    SinglePage,
    PageNumber,
    Offset,
    Cursor,
    JsonLink,
    HeaderCursor,
    HeaderUrl,
    HeaderLink,
    Keyset,
    GraphqlOffset,
    GraphqlConnection,
    Auto,
}

/// How the list changes while it is read. The changes are undone after the last page, unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slip {
    /// The first record leaves after the first page.
    HeadLeaves,
    /// The first record leaves after the first page, and a record with a later time of change joins the end. Both last
    /// until the next sync.
    HeadLeavesAndTailJoins,
    /// As before, but only until the last page. No count shows it.
    HeadLeavesAndTailJoinsBriefly,
    /// The first record leaves after the first page, and a later record moves to its position.
    RecordMovesAsHeadLeaves,
    /// The last record of the first page moves behind the next one, which is the key of the second page.
    KeyMoves,
}

impl Paging {
    pub(crate) const ALL: [Self; 12] = [
        Self::SinglePage,
        Self::PageNumber,
        Self::Offset,
        Self::Cursor,
        Self::JsonLink,
        Self::HeaderCursor,
        Self::HeaderUrl,
        Self::HeaderLink,
        Self::Keyset,
        Self::GraphqlOffset,
        Self::GraphqlConnection,
        Self::Auto,
    ];

    pub(crate) const fn is_graphql(self) -> bool {
        matches!(self, Self::GraphqlOffset | Self::GraphqlConnection)
    }

    /// Whether the answer names the next page. Other lists end with an empty page.
    const fn names_next_page(self) -> bool {
        match self {
            Self::Cursor
            | Self::JsonLink
            | Self::HeaderCursor
            | Self::HeaderUrl
            | Self::HeaderLink
            | Self::GraphqlConnection
            | Self::Auto => true,
            Self::SinglePage | Self::PageNumber | Self::Offset | Self::Keyset | Self::GraphqlOffset => false,
        }
    }

    /// Whether a client that reads this list can lose a record by these changes.
    pub(crate) const fn may_skip(self) -> bool {
        !matches!(self, Self::SinglePage | Self::Offset | Self::GraphqlOffset)
    }

    pub(crate) const fn paginator(self) -> &'static str {
        match self {
            Self::SinglePage => "single_page",
            Self::PageNumber => {
                "{type: page_number, page_param: page, base_page: 1, limit: 10, limit_param: limit}"
            }
            Self::Offset => "{type: offset, offset_param: offset, limit: 10, limit_param: limit}",
            Self::Cursor => {
                "{type: cursor, cursor_path: next_cursor, cursor_param: position, limit: 10, limit_param: limit}"
            }
            Self::JsonLink => "{type: json_link, next_url_path: next, limit: 10, limit_param: limit}",
            Self::HeaderCursor => {
                "{type: header_cursor, cursor_key: x-next, cursor_param: position, limit: 10, limit_param: limit}"
            }
            Self::HeaderUrl => "{type: header_url, header: x-next-url, limit: 10, limit_param: limit}",
            Self::HeaderLink => "{type: header_link, links_next_key: next, limit: 10, limit_param: limit}",
            Self::Keyset => {
                "{type: keyset, key_path: id, cursor_param: after, limit: 10, limit_param: limit}"
            }
            Self::GraphqlOffset => "{type: graphql_offset, limit: 10}",
            Self::GraphqlConnection => "{type: graphql_connection, connection_path: data.items, limit: 10}",
            Self::Auto => "auto",
        }
    }

    /// Returns the position of the first record of a page in the list.
    fn position(self, call: &ListCall, list: &[Value]) -> usize {
        let number = |name: &str| call.query.get(name).and_then(|text| text.parse::<usize>().ok());
        match self {
            Self::SinglePage => 0,
            Self::PageNumber => (number("page").unwrap_or(1) - 1) * PAGE,
            Self::Offset | Self::GraphqlOffset => number("offset").unwrap_or(0),
            Self::GraphqlConnection => number("after").unwrap_or(0),
            Self::Keyset => {
                let key = call.query.get("after");
                let found = key.and_then(|key| list.iter().position(|one| one["id"] == **key));
                found.map_or(0, |index| index + 1)
            }
            Self::Cursor
            | Self::JsonLink
            | Self::HeaderCursor
            | Self::HeaderUrl
            | Self::HeaderLink
            | Self::Auto => number("position").unwrap_or(0),
        }
    }
}

struct State {
    /// The list as it is without changes.
    original: Vec<Value>,
    list: Vec<Value>,
    is_armed: bool,
    is_changed: bool,
    /// Ids of the records on the pages since the source was armed.
    served: BTreeSet<String>,
}

impl State {
    /// Undoes all changes of the list.
    fn restore(&mut self) {
        self.list.clone_from(&self.original);
        self.is_changed = false;
    }
}

/// The source. Its records are `r0000`, which leaves and returns, and [`RECORDS`] that it always has.
#[derive(Clone)]
pub(crate) struct SlippingSource {
    paging: Paging,
    slip: Slip,
    base_url: String,
    state: Arc<Mutex<State>>,
}

/// A record with the fields by which lists are divided.
fn timed(number: usize) -> Value {
    let mut record = record(number);
    record["at"] = json!(1_000_000 + number * 1_000);
    record["updated_at"] = json!("2020-01-01T00:00:00Z");
    record
}

impl SlippingSource {
    /// Serves the records through an API, instead of its own.
    pub(crate) fn serve(api: &ListApi, paging: Paging, slip: Slip) -> Self {
        let mut list: Vec<Value> = (0..=RECORDS).map(timed).collect();
        if slip == Slip::KeyMoves {
            // The keys do not rise: the list is sorted by another field.
            list[1..].reverse();
        }
        let state = State {
            original: list.clone(),
            list,
            is_armed: false,
            is_changed: false,
            served: BTreeSet::new(),
        };
        let (base_url, state) = (api.base_url.clone(), Arc::new(Mutex::new(state)));
        let source = Self { paging, slip, base_url, state };
        api.answer_with({
            let source = source.clone();
            move |call| Some(source.answer(call))
        });
        source
    }

    /// From now on the list changes while it is read.
    pub(crate) fn arm(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_armed = true;
        state.restore();
        state.served.clear();
    }

    /// Returns the records that the source always has and that no page contained since it was armed.
    pub(crate) fn skipped(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let always = (1..=RECORDS).map(|number| format!("r{number:04}"));
        always.filter(|id| !state.served.contains(id)).collect()
    }

    fn answer(&self, call: &ListCall) -> ListAnswer {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_count = call.query.get("limit").or(call.query.get("first")).is_some_and(|limit| limit == "1");
        let is_page = !(is_count || call.query.contains_key("id_is"));
        let (mut list, mut position) = self.selected(&state, call);
        // Counts ask for the first page, so the list changes when the second one is requested.
        let is_second = position > 0 && list.first().is_some_and(|one| one["id"] == "r0000");
        if is_page && is_second && state.is_armed && !state.is_changed {
            self.change(&mut state);
            (list, position) = self.selected(&state, call);
        }
        let limit = call.query.get("limit").and_then(|limit| limit.parse().ok());
        let size = if self.paging == Paging::SinglePage { usize::MAX } else { limit.unwrap_or(PAGE) };
        let page: Vec<Value> = list.iter().skip(position).take(size).cloned().collect();
        let next = Some(position + page.len()).filter(|next| *next < list.len());
        if is_page {
            state.served.extend(page.iter().filter_map(|one| one["id"].as_str().map(str::to_owned)));
            let is_end = if self.paging.names_next_page() { next.is_none() } else { page.is_empty() };
            if state.is_changed && is_end && self.slip != Slip::HeadLeavesAndTailJoins {
                state.restore();
            }
        }
        drop(state);
        self.response(&page, list.len(), next)
    }

    /// Returns the records that a request selects, and the position of its page among them.
    fn selected(&self, state: &State, call: &ListCall) -> (Vec<Value>, usize) {
        let list: Vec<Value> = state.list.iter().filter(|record| call.selects(record)).cloned().collect();
        let position = self.paging.position(call, &list);
        (list, position)
    }

    /// Changes the list after its first page.
    fn change(&self, state: &mut State) {
        state.is_changed = true;
        match self.slip {
            Slip::HeadLeaves => drop(state.list.remove(0)),
            Slip::HeadLeavesAndTailJoins | Slip::HeadLeavesAndTailJoinsBriefly => {
                state.list.remove(0);
                let mut joined = timed(RECORDS + 1);
                // As the first record, it is even: in the same partition by value.
                joined["region"] = json!("east");
                joined["updated_at"] = json!("2100-01-01T00:00:00Z");
                state.list.push(joined);
            }
            Slip::RecordMovesAsHeadLeaves => {
                let moved = state.list.remove(PAGE + 5);
                state.list[0] = moved;
            }
            Slip::KeyMoves => state.list.swap(PAGE - 1, PAGE),
        }
    }

    fn response(&self, page: &[Value], total: usize, next: Option<usize>) -> ListAnswer {
        if self.paging.is_graphql() {
            let info = json!({"hasNextPage": next.is_some(), "endCursor": next.map(|next| next.to_string())});
            let items = json!({"nodes": page, "totalCount": total, "pageInfo": info});
            return text_response(&json!({"data": {"items": items}}).to_string());
        }
        let url = next.map(|next| format!("{}/items?position={next}", self.base_url));
        let mut body = json!({"data": page, "total": total});
        if self.paging == Paging::Cursor {
            body["next_cursor"] = json!(next.map(|next| next.to_string()));
        } else if matches!(self.paging, Paging::JsonLink | Paging::Auto) {
            body["next"] = json!(url);
        }
        let mut response = text_response(&body.to_string());
        let header = if self.paging == Paging::HeaderCursor {
            next.map(|next| ("x-next", next.to_string()))
        } else if self.paging == Paging::HeaderUrl {
            url.map(|url| ("x-next-url", url))
        } else if self.paging == Paging::HeaderLink {
            url.map(|url| ("link", format!("<{url}>; rel=\"next\"")))
        } else {
            None
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value.parse().expect("a header"));
        }
        response
    }
}
