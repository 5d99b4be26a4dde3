//! Flags: what people hold, with a note and perhaps an end.

mod site;

use crate::Console;
use crate::act::{self, Done, Form};
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::text::{line, says};
use crate::time::{ago, ago_or_none};
use crate::visitor::Visitor;
use crate::way_back::kept;
use crate::words::{first, others};
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use chrono::TimeDelta;
use maud::{Markup, html};
use tidemill_core::project::{Flag, FlagName};
use tidemill_core::run::Lane;
use tidemill_core::shell::command;
use tidemill_engine::clock::host_now;
use tidemill_wire::projects::{ClearFlag, SetFlag};

/// How long a flag may last, by name, in words and in hours.
const LASTS: [(&str, &str, i64); 5] = [
    ("", "until somebody clears it", 0),
    ("1h", "an hour", 1),
    ("8h", "8 hours", 8),
    ("24h", "a day", 24),
    ("7d", "a week", 168),
];

pub(crate) fn routes() -> Router<Console> {
    Router::new().route("/flags", get(page).post(set)).route("/flags/clear", post(clear))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let client = &visitor.client;
    let (flags, projects, feeds) = tokio::try_join!(client.flags(), client.projects(), client.feeds())?;
    let acts = visitor.may(http::Method::PUT, "/v1/flags");
    let scopes = projects.items.iter().map(|project| format!("project:{}", project.project_id));
    let scopes = scopes.chain(feeds.items.iter().map(|line| format!("feed:{}", line.feed.feed.feed)));
    // A lane is everybody's: a caller of one project may not hold it.
    let lanes =
        Lane::ALL.iter().filter(|_| visitor.caller.project.is_none()).map(|lane| format!("lane:{lane}"));
    let scopes: Vec<String> = lanes.chain(scopes).collect();
    let body = html! {
        div.head { h1 { "Flags" }
            p.sub { "What is held: no run of it is claimed, no page of it is fetched. Runs in hand go on." } }
        div.panel #flags data-live { (list(&visitor, &flags.items, acts)) }
        @if acts { (form(&visitor, &scopes)) }
        @if acts && visitor.caller.project.is_none() { (site::form(&visitor)) }
    };
    Ok(Page::new(&visitor, Place::Flags, "Flags").live().show(&body))
}

fn list(visitor: &Visitor, flags: &[Flag], acts: bool) -> Markup {
    if flags.is_empty() {
        return html! { p.empty { "Nothing is held." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Flag" } th { "What" } th { "Note" } th { "Since" } th { "Until" } th { "By" }
                @if acts { th {} } } }
            tbody { @for flag in flags {
                tr data-key={ (flag.flag) " " (flag.scope) } {
                    td { span.state.s-paused { (flag.flag) } }
                    td.nowrap { (says(&flag.scope)) @if !flag.is_on(visitor.now) { " " span.dim { "(over)" } } }
                    td { @if let Some(note) = &flag.note { (line(note)) } @else { span.dim { "–" } } }
                    td.nowrap { (ago(flag.since, visitor.now)) }
                    td.nowrap { (ago_or_none(flag.until_at, visitor.now)) }
                    td { @if let Some(by) = &flag.set_by { (says(by)) } @else { span.dim { "–" } } }
                    @if acts { td.acts {
                        (act::button(visitor, "/flags/clear", &[("flag", flag.flag.as_str()),
                            ("scope", &flag.scope)], "Clear", ""))
                        (act::commands(&[command(["flag", "clear", flag.flag.as_str(), "--scope", &flag.scope])]))
                    } }
                }
            } }
        } }
    }
}

fn form(visitor: &Visitor, scopes: &[String]) -> Markup {
    html! {
        section.panel {
            header { h2 { "Hold something" } }
            form.filters method="post" action="/flags" {
                (act::hidden(visitor))
                label.field { "What" select name="scope" required { @for scope in first(scopes) { option
                    value=(scope) selected[kept(visitor, "scope").as_ref() == Some(scope)] { (scope) } } } }
                (why_and_how_long(visitor))
                button.main type="submit" { "Hold it" }
            }
            (others(scopes.len(), "tidemill flag set paused --scope SCOPE"))
            div.in { (act::commands(&[
                command(["flag", "set", "paused", "--scope", "SCOPE", "--note", "WHY", "--until", "8h"])])) }
        }
    }
}

/// What every flag is given: a note for the others, and perhaps an end.
fn why_and_how_long(visitor: &Visitor) -> Markup {
    let lasts = kept(visitor, "lasts");
    html! {
        label.field { "Why, for the others" input.long type="text" name="note" maxlength="1024"
            value=[kept(visitor, "note")]; }
        label.field { "For" select name="lasts" { @for (value, words, _) in LASTS { option
            value=(value) selected[lasts.as_deref() == Some(value)] { (words) } } } }
    }
}

async fn set(State(console): State<Console>, form: Form) -> Result<Response, Oops> {
    let scope =
        form.field("scope").ok_or_else(|| Oops::bad_form("this form does not say what to hold"))?.to_owned();
    let flag = match form.field("flag").map(str::parse) {
        None => FlagName::Paused,
        Some(Ok(flag)) => flag,
        Some(Err(_)) => return Err(Oops::bad_form("there is no such flag")),
    };
    let hours =
        LASTS.iter().find(|(value, ..)| Some(*value) == form.field("lasts")).map(|(.., hours)| *hours);
    let now = console.inner.app.engine().clock().now().unwrap_or_else(host_now);
    let set = SetFlag {
        flag,
        scope,
        note: form.field("note").map(str::to_owned),
        until_at: hours.filter(|hours| *hours > 0).map(|hours| now + TimeDelta::hours(hours)),
    };
    form.client.set_flag(&set).await?;
    Ok(form.back(Done::Plain(if flag == FlagName::Paused { "paused" } else { "flag-set" })))
}

async fn clear(form: Form) -> Result<Response, Oops> {
    let flag = form.field("flag").and_then(|flag| flag.parse().ok());
    let (Some(flag), Some(scope)) = (flag, form.field("scope")) else {
        return Err(Oops::bad_form("this form does not say what to let go"));
    };
    let resumed = form.client.clear_flag(&ClearFlag { flag, scope: scope.to_owned() }).await?.resumed;
    Ok(form.back(Done::Plain(if resumed { "resumed" } else { "not-paused" })))
}
