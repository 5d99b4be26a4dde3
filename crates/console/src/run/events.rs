//! Panel with the last events of a run: filtered by level and text, updated live.

use super::id;
use crate::error_page::ErrorPage;
use crate::json_view;
use crate::page_context::PageContext;
use crate::text::{cut, visible_lines};
use crate::time::clock;
use crate::widgets::count;
use axum::extract::Path;
use axum::response::{Html, IntoResponse as _, Response};
use http::Uri;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::event::{Event, Level};
use tidemill_wire::runs::{ListTail, Tail};

const ROWS: u16 = 100;
/// Maximum number of new events per live update. The number of omitted ones is shown.
const NEW_ROWS: u16 = 200;
/// Maximum lengths of a message and of a payload; the full text is behind a link.
const MESSAGE_CHARS_MAX: usize = 600;
const PAYLOAD_CHARS_MAX: usize = 800;

/// Filter and position of the events to show.
#[derive(Debug, Default)]
pub(super) struct EventFilter {
    level: Option<Level>,
    find: String,
    before: Option<i32>,
    after: Option<i32>,
}

impl EventFilter {
    /// Reads the filter from the address.
    pub(super) fn from_uri(uri: &Uri) -> Self {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "level" => filter.level = value.parse().ok(),
                "find" => value.trim().chars().take(256).collect::<String>().clone_into(&mut filter.find),
                "before" => filter.before = value.parse().ok().filter(|before| *before > 0),
                "after" => filter.after = value.parse().ok(),
                _ => {}
            }
        }
        filter
    }

    fn is_filtered(&self) -> bool {
        self.level.is_some() || !self.find.is_empty()
    }

    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(level) = self.level {
            query.append_pair("level", level.as_str());
        }
        if !self.find.is_empty() {
            query.append_pair("find", &self.find);
        }
        query.finish()
    }

    pub(super) async fn read(&self, client: &Client, run: &RunId) -> Result<Tail, Error> {
        self.read_rows(client, run, ROWS).await
    }

    async fn read_rows(&self, client: &Client, run: &RunId, rows: u16) -> Result<Tail, Error> {
        let params = ListTail {
            before: self.before,
            level: self.level,
            contains: Some(self.find.clone()).filter(|find| !find.is_empty()),
            limit: Some(rows),
        };
        client.tail(run, &params).await
    }
}

pub(super) fn panel(run: &RunId, filter: &EventFilter, tail: &Tail) -> Markup {
    let query = filter.query();
    let run = run.in_path();
    let is_end = filter.before.is_none();
    let more = |before: i32| {
        format!("/runs/{run}?{query}{}before={before}#record", if query.is_empty() { "" } else { "&" })
    };
    let end =
        if query.is_empty() { format!("/runs/{run}#record") } else { format!("/runs/{run}?{query}#record") };
    let last = tail.items.last().map_or(0, |event| event.seq);
    let tail_url = format!("/runs/{run}/tail?{query}{}after=", if query.is_empty() { "" } else { "&" });
    html! {
        section.panel #record {
            header {
                h2 { "Events" }
                form.inline.filters.bare method="get" action={ "/runs/" (run) "#record" } role="search" {
                    select name="level" aria-label="Level" {
                        option value="" { "all levels" }
                        @for level in [Level::Info, Level::Warn, Level::Error] {
                            option value=(level) selected[filter.level == Some(level)] { (level) " and above"
                                }
                        }
                    }
                    input type="search" name="find" value=(filter.find) placeholder="text in messages"
                        maxlength="256"
                        aria-label="Text in messages";
                    button type="submit" { "Search" }
                }
                @if !is_end { a.more href=(end) { "Latest events" } }
            }
            @if let Some(before) = tail.before {
                p.empty.small { a href=(more(before)) { "Earlier events" }
                    @if filter.is_filtered() { ", before number " (count(i64::from(before))) } }
            }
            div #nothing data-live { @if tail.items.is_empty() { p.empty { (empty_text(filter, tail)) } } }
            ol.events tabindex="0" aria-label="Events" data-tail=[is_end.then_some(&tail_url)]
                data-after=[is_end.then_some(last)] {
                @for event in &tail.items { (row(event)) }
            }
        }
    }
}

fn empty_text(filter: &EventFilter, tail: &Tail) -> &'static str {
    match (filter.is_filtered(), tail.before) {
        (true, Some(_)) => "No matching event in this part. Look at earlier events.",
        (true, None) => "No matching event.",
        (false, _) => "There are no events yet.",
    }
}

/// New events since the page was rendered: only list items, for the script.
pub(super) async fn tail(context: PageContext, Path(run): Path<String>) -> Result<Response, ErrorPage> {
    let run = id(&run)?;
    let filter = EventFilter::from_uri(&context.uri);
    let after = filter.after.unwrap_or(0);
    let found = filter.read_rows(&context.client, &run, NEW_ROWS).await?;
    let fresh: Vec<&Event> = found.items.iter().filter(|event| event.seq > after).collect();
    let last = fresh.last().map_or(after, |event| event.seq);
    // The read was full and contained no known event, so there may be more in between.
    let first = fresh.first().map_or(0, |event| event.seq);
    let omitted = if fresh.len() == usize::from(NEW_ROWS) { first - after - 1 } else { 0 };
    let rows = html! {
        ol data-after=(last) {
            @if omitted > 0 {
                li.jump { @if filter.is_filtered() { "Some events are omitted" }
                    @else { (count(i64::from(omitted))) " events are omitted" }
                    ": they arrive faster than this page" }
            }
            @for event in fresh { (row(event)) }
        }
    };
    Ok(Html(rows.into_string()).into_response())
}

fn row(event: &Event) -> Markup {
    let (message, more) = cut(&event.message, MESSAGE_CHARS_MAX);
    let full_url =
        format!("/v1/runs/{}/events?after={}&limit=1", event.run_id.in_path(), event.seq.saturating_sub(1));
    html! {
        li class={ "l-" (event.level) " k-" (event.kind) } data-key=(event.seq) {
            span.seq { (event.seq) }
            (clock(event.created_at))
            span.level { (event.level) }
            span.message { bdi { (visible_lines(message)) } @if more { "… " a href=(full_url) { "full text" } } }
            @if !json_view::is_empty(&event.payload) {
                (json_view::truncated("payload", &event.payload, Some(&full_url), PAYLOAD_CHARS_MAX))
            }
        }
    }
}
