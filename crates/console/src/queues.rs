//! Queues: depth, next messages, and dead letters with their replay.

use crate::confirm::{Confirmation, SURE};
use crate::error_page::ErrorPage;
use crate::forms::{self, Form, FormOutcome};
use crate::json_view;
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::{clip, line, safe};
use crate::time::{ago, ago_or_none, rough_secs};
use crate::widgets::{count, first_rows, label, pluralize, run_page};
use axum::extract::Path;
use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use tidemill_core::queue::{DeadLetter, Message};
use tidemill_core::shell::command;
use tidemill_wire::Page as Slice;
use tidemill_wire::queues::{ListDead, Peek, QueueSummary, ReplayDead};

/// Number of messages and dead letters per page.
const MESSAGES_MAX: u16 = 25;
const LETTERS_MAX: u16 = 50;
/// Maximum size of a shown body: of a message, and of a dead letter, which users want to read completely.
const BODY_CHARS_MAX: usize = 1_500;
const LETTER_CHARS_MAX: usize = 8_000;
const REPLAY: &str = "/v1/queues/{queue}/replay";
/// Refresh interval in seconds, because messages create no events.
const REFRESH_SECS: u16 = 2;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .get("/queues", page)
        .get("/queues/{queue}", queue_page)
        .post("/queues/{queue}/replay", replay)
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let queues = context.client.queues().await?.items;
    let body = html! {
        div.head { h1 { "Queues" } }
        div.panel #list data-live {
            div.scroll { table {
                thead { tr { th { "Queue" } th.num { "Waiting" } th.num { "Delayed" } th.num { "In flight" }
                    th.num { "Dead" } th.num { "Oldest" }
                    th.num.wide { "Lock" } th.num.wide { "Deliveries" } th.num.wide { "Expiry" } } }
                tbody {
                    @for QueueSummary { settings, depth } in &queues {
                        tr data-key=(settings.queue) {
                            td { a href={ "/queues/" (settings.queue) } { (safe(&settings.queue)) } }
                            td.num { (count(depth.waiting)) }
                            td.num { (count(depth.delayed)) }
                            td.num { (count(depth.in_flight)) }
                            td.num.bad[depth.dead > 0] { (count(depth.dead)) }
                            td.num { (ago_or_none(depth.oldest_at, context.now)) }
                            td.num.wide { (rough_secs(f64::from(settings.lock_secs))) }
                            td.num.wide { "at most " (settings.deliveries_max) }
                            td.num.wide { (rough_secs(f64::from(settings.expiry_secs))) }
                        }
                    }
                }
            } }
        }
    };
    Ok(Page::new(&context, Section::Queues, "Queues").live().refresh_every(REFRESH_SECS).show(&body))
}

async fn queue_page(context: PageContext, Path(queue): Path<String>) -> Result<Response, ErrorPage> {
    let client = &context.client;
    let line = client.queue(&queue).await?;
    let after = form_urlencoded::parse(context.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "after")
        .map(|(_, value)| value.into_owned());
    let params = ListDead { after, limit: Some(LETTERS_MAX) };
    let (messages, dead) = tokio::try_join!(
        client.peek(&queue, Peek { limit: Some(MESSAGES_MAX) }),
        client.dead_letters(&queue, &params)
    )?;
    let body = html! {
        div.head { h1 { (safe(&queue)) }
            p.sub { "A message is locked for " (rough_secs(f64::from(line.settings.lock_secs)))
                ", delivered at most "
                (line.settings.deliveries_max) " times, and becomes a dead letter after "
                    (rough_secs(f64::from(line.settings.expiry_secs))) "." } }
        div #depth.tiles data-live { (depth(&context, &line)) }
        div #dead data-live { (letters(&context, &queue, &dead)) }
        div #next data-live { (groups(&context, &line)) (next(&context, &messages.items)) }
        (forms::commands(&commands(&context, &queue, &line)))
    };
    Ok(Page::new(&context, Section::Queues, queue).live().refresh_every(REFRESH_SECS).show(&body))
}

/// Commands that do the same as the page's buttons.
fn commands(context: &PageContext, queue: &str, line: &QueueSummary) -> Vec<String> {
    let mut commands = vec![command(["queue", "peek", queue]), command(["queue", "dead", queue])];
    if line.depth.dead > 0 && context.may(Method::POST, REPLAY) {
        commands.push(command(["queue", "replay", queue, "--all"]));
    }
    commands
}

fn depth(context: &PageContext, line: &QueueSummary) -> Markup {
    let depth = &line.depth;
    html! {
        div.tile { span { "Waiting" } b { (count(depth.waiting)) } span { "ready for a worker" } }
        div.tile { span { "In flight" } b { (count(depth.in_flight)) } span { "held by a worker" } }
        div.tile { span { "Delayed" } b { (count(depth.delayed)) } span { "not due yet" } }
        div.tile { span { "Oldest" } b { (ago_or_none(depth.oldest_at, context.now)) }
            span { "waiting message" } }
        div.tile { span { "Dead" } b.bad[depth.dead > 0] { (count(depth.dead)) }
            span { "not delivered any more" } }
    }
}

fn letters(context: &PageContext, queue: &str, dead: &Slice<DeadLetter>) -> Markup {
    let acts = context.may(Method::POST, REPLAY);
    let path = format!("/queues/{queue}/replay");
    html! {
        section.panel {
            header { h2 { "Dead letters" } }
            @if dead.items.is_empty() { p.empty { "There are no dead letters." } }
            @else {
                @if acts {
                    form #replay.filters method="post" action=(path) {
                        (forms::hidden(context))
                        button type="submit" name="which" value="some" { "Replay selected" }
                        button type="submit" name="which" value="all" { "Replay all" }
                    }
                }
                div.scroll { table {
                    thead { tr { @if acts { th.check { input type="checkbox" data-all="id"
                        aria-label="Select all"; } }
                        th { "Message" } th { "Reason" } th { "Feed" } th.num { "Deliveries" } th { "Sent" }
                            th { "Died" } @if acts { th {} } } }
                    tbody { @for letter in &dead.items { (letter_row(context, letter, &path, acts)) } }
                } }
                @if let Some(next) = &dead.next {
                    nav.pages { a.button href={ "/queues/" (queue) "?" (after(next)) } { "Newer" } }
                }
            }
        }
    }
}

fn after(cursor: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("after", cursor).finish()
}

fn letter_row(context: &PageContext, letter: &DeadLetter, path: &str, acts: bool) -> Markup {
    html! {
        tr data-key={ (letter.message_id) "/" (letter.generation) } {
            @if acts { td.check { input type="checkbox" form="replay" name="id" value=(letter.message_id)
                aria-label={ "Select " (letter.message_id) }; } }
            td { code { (clip(&letter.message_id, 60)) }
                @if let Some(run) = &letter.run_id { " " a.small href=(run_page(run)) { "run" } }
                (json_view::truncated_with_command("Body", &letter.body, LETTER_CHARS_MAX,
                    &command(["queue", "dead", &letter.queue, "--limit", "1000", "--json"]))) }
            td { (label(letter.reason.as_str())) @if let Some(error) = &letter.last_error {
                span.why { (line(error)) } } }
            td { (safe(&letter.group)) }
            td.num { (letter.deliveries) }
            td.nowrap { (ago(letter.enqueued_at, context.now)) }
            td.nowrap { (ago(letter.dead_at, context.now)) }
            @if acts { td.acts {
                (forms::button(context, path, &[("which", "some"), ("id", &letter.message_id)], "Replay", ""))
                (forms::commands(&[command(["queue", "replay", &letter.queue, &letter.message_id])]))
            } }
        }
    }
}

fn groups(context: &PageContext, line: &QueueSummary) -> Markup {
    html! {
        @if line.depth.groups.len() > 1 {
            section.panel {
                header { h2 { "By feed" } }
                div.scroll { table {
                    thead { tr { th { "Feed" } th.num { "Waiting" } th.num { "Delayed" } th.num { "In flight"
                        } th.num { "Dead" } th.num { "Oldest" } } }
                    tbody { @for group in &line.depth.groups {
                        tr data-key=(group.group) {
                            td { (safe(&group.group)) } td.num { (count(group.waiting)) }
                                td.num { (count(group.delayed)) }
                            td.num { (count(group.in_flight)) } td.num { (count(group.dead)) }
                                td.num { (ago_or_none(group.oldest_at, context.now)) }
                        }
                    } }
                } }
            }
        }
    }
}

fn next(context: &PageContext, messages: &[Message]) -> Markup {
    html! {
        section.panel {
            header { h2 { "Next messages" } span.dim.small { "preview; messages stay in the queue" } }
            @if messages.is_empty() { p.empty { "The queue is empty." } }
            @else {
                div.scroll { table {
                    thead { tr { th { "Message" } th { "State" } th { "Feed" } th.num { "Deliveries" }
                        th { "Sent" } th { "Due" } } }
                    tbody { @for message in messages {
                        tr data-key={ (message.message_id) "/" (message.generation) } {
                            td { code { (clip(&message.message_id, 60)) }
                                (json_view::truncated_with_command("Body", &message.body, BODY_CHARS_MAX,
                                    &command(["queue", "peek", &message.queue, "--json"]))) }
                            td { (label(message.state.as_str())) @if let Some(error) = &message.last_error {
                                span.why { (line(error)) } } }
                            td { (safe(&message.group)) } td.num { (message.deliveries) }
                            td.nowrap { (ago(message.enqueued_at, context.now)) }
                                td.nowrap { (ago(message.visible_at, context.now)) }
                        }
                    } }
                } }
            }
        }
    }
}

/// Confirmation for the replay of all dead letters.
fn confirmation(line: &QueueSummary) -> Confirmation<'static> {
    let (queue, dead) = (&line.settings.queue, line.depth.dead);
    let consequences = html! {
        p { (pluralize(dead, "dead letter", "dead letters")) " of " b { (safe(queue)) } " "
            @if dead == 1 { "is replayed:" } @else { "are replayed:" } }
        ul {
            @for group in first_rows(&line.depth.groups).iter().filter(|group| group.dead > 0) {
                li { b { (count(group.dead)) } " of " (safe(&group.group)) }
            }
            li { "Each is delivered again, at most " (line.settings.deliveries_max) " times." }
            li { "Messages that became dead letters in the meantime are included. A message of a failed sync has no \
                effect: retry the sync instead." }
        }
    };
    let question = format!("Replay {}?", pluralize(dead, "dead letter", "dead letters"));
    let commands = vec![command(["queue", "replay", queue, "--all"])];
    Confirmation { section: Section::Queues, question, consequences, button: "Replay them", commands }
}

async fn replay(context: PageContext, Path(queue): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let which = match form.field("which") {
        Some("all") => ReplayDead { ids: Vec::new(), all: true },
        Some(_) | None => ReplayDead { ids: form.values("id").map(str::to_owned).collect(), all: false },
    };
    if !which.all && which.ids.is_empty() {
        return Err(ErrorPage::bad_form("no dead letter is selected"));
    }
    // A user without the permission gets the API's refusal instead of a confirmation page.
    if which.all && !form.is_checked(SURE) && context.may(Method::POST, REPLAY) {
        let line = form.client.queue(&queue).await?;
        if line.depth.dead > 1 {
            return Ok(confirmation(&line).show(&context, &form));
        }
    }
    let selected = which.ids.len();
    let replayed = form.client.replay(&queue, &which).await?.replayed;
    let replayed = usize::try_from(replayed).unwrap_or(usize::MAX);
    Ok(form.back(FormOutcome::Bulk {
        code: "bulk-replay",
        count: replayed,
        of: if which.all { replayed } else { selected },
    }))
}
