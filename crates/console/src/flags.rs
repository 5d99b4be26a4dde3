//! The flags page: pauses and other flags, each with a note and an optional end.

mod site_flags;

use crate::Console;
use crate::error_page::ErrorPage;
use crate::form_return::previous_value;
use crate::forms::{self, Form, FormOutcome};
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{line, safe};
use crate::time::{ago, ago_or_none};
use crate::widgets::{first_rows, omitted_rows};
use axum::extract::State;
use axum::response::Response;
use chrono::TimeDelta;
use maud::{Markup, html};
use tidemill_core::project::{Flag, FlagName};
use tidemill_core::run::Lane;
use tidemill_core::shell::command;
use tidemill_engine::clock::host_now;
use tidemill_wire::projects::{ClearFlag, SetFlag};

/// Durations of a flag: form value, label and hours.
const DURATIONS: [(&str, &str, i64); 5] = [
    ("", "until it is cleared", 0),
    ("1h", "an hour", 1),
    ("8h", "8 hours", 8),
    ("24h", "a day", 24),
    ("7d", "a week", 168),
];

pub(crate) fn routes() -> Routes {
    Routes::new().get("/flags", page).post("/flags", set).post("/flags/clear", clear)
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let client = &context.client;
    let (flags, projects, feeds) = tokio::try_join!(client.flags(), client.projects(), client.feeds())?;
    let acts = context.may(http::Method::PUT, "/v1/flags");
    let scopes = projects.items.iter().map(|project| format!("project:{}", project.project_id));
    let scopes = scopes.chain(feeds.items.iter().map(|line| format!("feed:{}", line.feed.feed.feed)));
    // Lanes are shared: a caller of one project may not pause them.
    let lanes =
        Lane::ALL.iter().filter(|_| context.caller.sees_all_projects()).map(|lane| format!("lane:{lane}"));
    let scopes: Vec<String> = lanes.chain(scopes).collect();
    let body = html! {
        div.head { h1 { "Flags" }
            p.sub { "A paused object starts no new work: its runs are not claimed, its pages not fetched. \
                Work in progress is completed." } }
        div.panel #flags data-live { (list(&context, &flags.items, acts)) }
        @if acts { (form(&context, &scopes)) }
        @if acts && context.caller.sees_all_projects() { (site_flags::form(&context)) }
    };
    Ok(Page::new(&context, Section::Flags, "Flags").live().show(&body))
}

fn list(context: &PageContext, flags: &[Flag], acts: bool) -> Markup {
    if flags.is_empty() {
        return html! { p.empty { "No flags are set." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Flag" } th { "Scope" } th { "Note" } th { "Since" } th { "Until" } th { "By" }
                @if acts { th {} } } }
            tbody { @for flag in flags {
                tr data-key={ (flag.flag) " " (flag.scope) } {
                    td { span.state.s-paused { (flag.flag) } }
                    td.nowrap { (safe(&flag.scope)) @if !flag.is_on(context.now) { " " span.dim { "(expired)" } } }
                    td { @if let Some(note) = &flag.note { (line(note)) } @else { span.dim { "–" } } }
                    td.nowrap { (ago(flag.since, context.now)) }
                    td.nowrap { (ago_or_none(flag.until_at, context.now)) }
                    td { @if let Some(by) = &flag.set_by { (safe(by)) } @else { span.dim { "–" } } }
                    @if acts { td.acts {
                        (forms::button(context, "/flags/clear", &[("flag", flag.flag.as_str()),
                            ("scope", &flag.scope)], "Clear", ""))
                        (forms::commands(&[command(["flag", "clear", flag.flag.as_str(), "--scope", &flag.scope])]))
                    } }
                }
            } }
        } }
    }
}

fn form(context: &PageContext, scopes: &[String]) -> Markup {
    html! {
        section.panel {
            header { h2 { "Pause" } }
            form.filters method="post" action="/flags" {
                (forms::hidden(context))
                label.field { "Scope" select name="scope" required { @for scope in first_rows(scopes) { option
                    value=(scope) selected[previous_value(context, "scope").as_ref() == Some(scope)] { (scope) } } } }
                (note_and_duration(context))
                button.main type="submit" { "Pause" }
            }
            (omitted_rows(scopes.len(), "tidemill flag set paused --scope SCOPE"))
            div.in { (forms::commands(&[
                command(["flag", "set", "paused", "--scope", "SCOPE", "--note", "WHY", "--until", "8h"])])) }
        }
    }
}

/// Inputs that every flag has: a note and a duration.
fn note_and_duration(context: &PageContext) -> Markup {
    let lasts = previous_value(context, "lasts");
    html! {
        label.field { "Reason" input.long type="text" name="note" maxlength="1024"
            value=[previous_value(context, "note")]; }
        label.field { "Duration" select name="lasts" { @for (value, label, _) in DURATIONS { option
            value=(value) selected[lasts.as_deref() == Some(value)] { (label) } } } }
    }
}

async fn set(State(console): State<Console>, form: Form) -> Result<Response, ErrorPage> {
    let scope =
        form.field("scope").ok_or_else(|| ErrorPage::bad_form("form field `scope` is missing"))?.to_owned();
    let flag = match form.field("flag").map(str::parse) {
        None => FlagName::Paused,
        Some(Ok(flag)) => flag,
        Some(Err(_)) => return Err(ErrorPage::bad_form("unknown flag")),
    };
    let hours =
        DURATIONS.iter().find(|(value, ..)| Some(*value) == form.field("lasts")).map(|(.., hours)| *hours);
    let now = console.inner.app.engine().clock().now().unwrap_or_else(host_now);
    let set = SetFlag {
        flag,
        scope,
        note: form.field("note").map(str::to_owned),
        until_at: hours.filter(|hours| *hours > 0).map(|hours| now + TimeDelta::hours(hours)),
    };
    form.client.set_flag(&set).await?;
    Ok(form.back(FormOutcome::Message(if flag == FlagName::Paused { "paused" } else { "flag-set" })))
}

async fn clear(form: Form) -> Result<Response, ErrorPage> {
    let flag = form.field("flag").and_then(|flag| flag.parse().ok());
    let (Some(flag), Some(scope)) = (flag, form.field("scope")) else {
        return Err(ErrorPage::bad_form("form field `flag` or `scope` is missing"));
    };
    let resumed = form.client.clear_flag(&ClearFlag { flag, scope: scope.to_owned() }).await?.resumed;
    Ok(form.back(FormOutcome::Message(if resumed { "resumed" } else { "not-paused" })))
}
