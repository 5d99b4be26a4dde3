//! The record of a run from its end: narrowed by level and text, live, and bounded.

use super::id;
use crate::fold;
use crate::oops::Oops;
use crate::text::{cut, visible_lines};
use crate::time::clock;
use crate::visitor::Visitor;
use crate::words::count;
use axum::extract::Path;
use axum::response::{Html, IntoResponse as _, Response};
use http::Uri;
use maud::{Markup, html};
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::event::{Event, Level};
use tidemill_wire::runs::{ListTail, Tail};

/// Events of a page.
const ROWS: u16 = 100;
/// New events that one look brings. Who falls further behind is told how many are left out.
const NEW_ROWS: u16 = 200;
/// Characters of a message, and of a payload, that a row shows; all of it is behind a link.
const MESSAGE_CHARS_MAX: usize = 600;
const PAYLOAD_CHARS_MAX: usize = 800;

/// Which events to show.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    level: Option<Level>,
    find: String,
    before: Option<i32>,
    after: Option<i32>,
}

impl Wanted {
    /// As the address says.
    pub(super) fn of(uri: &Uri) -> Self {
        let mut wanted = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "level" => wanted.level = value.parse().ok(),
                "find" => value.trim().chars().take(256).collect::<String>().clone_into(&mut wanted.find),
                "before" => wanted.before = value.parse().ok().filter(|before| *before > 0),
                "after" => wanted.after = value.parse().ok(),
                _ => {}
            }
        }
        wanted
    }

    fn is_narrow(&self) -> bool {
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

    /// The events.
    pub(super) async fn read(&self, client: &Client, run: &RunId) -> Result<Tail, Error> {
        self.read_rows(client, run, ROWS).await
    }

    async fn read_rows(&self, client: &Client, run: &RunId, rows: u16) -> Result<Tail, Error> {
        let asked = ListTail {
            before: self.before,
            level: self.level,
            contains: Some(self.find.clone()).filter(|find| !find.is_empty()),
            limit: Some(rows),
        };
        client.tail(run, &asked).await
    }
}

/// The record on the page of its run.
pub(super) fn panel(run: &RunId, wanted: &Wanted, tail: &Tail) -> Markup {
    let query = wanted.query();
    let run = run.in_path();
    let is_end = wanted.before.is_none();
    let more = |before: i32| {
        format!("/runs/{run}?{query}{}before={before}#record", if query.is_empty() { "" } else { "&" })
    };
    let end =
        if query.is_empty() { format!("/runs/{run}#record") } else { format!("/runs/{run}?{query}#record") };
    let last = tail.items.last().map_or(0, |event| event.seq);
    let feed = format!("/runs/{run}/tail?{query}{}after=", if query.is_empty() { "" } else { "&" });
    html! {
        section.panel #record {
            header {
                h2 { "Record" }
                form.inline.filters.bare method="get" action={ "/runs/" (run) "#record" } role="search" {
                    select name="level" aria-label="Level" {
                        option value="" { "every level" }
                        @for level in [Level::Info, Level::Warn, Level::Error] {
                            option value=(level) selected[wanted.level == Some(level)] { (level) " and above"
                                }
                        }
                    }
                    input type="search" name="find" value=(wanted.find) placeholder="text in messages"
                        maxlength="256"
                        aria-label="Text in messages";
                    button type="submit" { "Search" }
                }
                @if !is_end { a.more href=(end) { "To the end" } }
            }
            @if let Some(before) = tail.before {
                p.empty.small { a href=(more(before)) { "Earlier events" }
                    @if wanted.is_narrow() { ", before number " (count(i64::from(before))) } }
            }
            div #nothing data-live { @if tail.items.is_empty() { p.empty { (nothing(wanted, tail)) } } }
            ol.events tabindex="0" aria-label="Events" data-tail=[is_end.then_some(&feed)]
                data-after=[is_end.then_some(last)] {
                @for event in &tail.items { (row(event)) }
            }
        }
    }
}

fn nothing(wanted: &Wanted, tail: &Tail) -> &'static str {
    match (wanted.is_narrow(), tail.before) {
        (true, Some(_)) => "No such event in this part of the record. Look at earlier events.",
        (true, None) => "No such event in the record.",
        (false, _) => "Nothing was recorded yet.",
    }
}

/// The events that are new since the page was made: rows alone, for the script.
pub(super) async fn tail(visitor: Visitor, Path(run): Path<String>) -> Result<Response, Oops> {
    let run = id(&run)?;
    let wanted = Wanted::of(&visitor.uri);
    let after = wanted.after.unwrap_or(0);
    let found = wanted.read_rows(&visitor.client, &run, NEW_ROWS).await?;
    let fresh: Vec<&Event> = found.items.iter().filter(|event| event.seq > after).collect();
    let last = fresh.last().map_or(after, |event| event.seq);
    // As many as were asked for, and none of them known: there may be more between.
    let first = fresh.first().map_or(0, |event| event.seq);
    let left_out = if fresh.len() == usize::from(NEW_ROWS) { first - after - 1 } else { 0 };
    let rows = html! {
        ol data-after=(last) {
            @if left_out > 0 {
                li.jump { @if wanted.is_narrow() { "Some events between are not shown" }
                    @else { (count(i64::from(left_out))) " events between are not shown" }
                    ": they came faster than this page" }
            }
            @for event in fresh { (row(event)) }
        }
    };
    Ok(Html(rows.into_string()).into_response())
}

/// One event.
fn row(event: &Event) -> Markup {
    let (message, more) = cut(&event.message, MESSAGE_CHARS_MAX);
    let whole =
        format!("/v1/runs/{}/events?after={}&limit=1", event.run_id.in_path(), event.seq.saturating_sub(1));
    html! {
        li class={ "l-" (event.level) " k-" (event.kind) } data-key=(event.seq) {
            span.seq { (event.seq) }
            (clock(event.created_at))
            span.level { (event.level) }
            span.message { bdi { (visible_lines(message)) } @if more { "… " a href=(whole) { "all of it" } } }
            @if !fold::is_nothing(&event.payload) {
                (fold::within("payload", &event.payload, Some(&whole), PAYLOAD_CHARS_MAX))
            }
        }
    }
}
