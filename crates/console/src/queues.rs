//! Queues: what is in them, who is served, and dead letters, which can be sent again.

use crate::Console;
use crate::act::{self, Done, Form};
use crate::confirm::{Ask, SURE};
use crate::fold;
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::text::{line, line_of, says};
use crate::time::{ago, ago_or_none, rough_secs};
use crate::visitor::Visitor;
use crate::words::{count, counted, first, label, run_page};
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use maud::{Markup, html};
use tidemill_core::queue::{DeadLetter, Message};
use tidemill_core::shell::command;
use tidemill_wire::Page as Slice;
use tidemill_wire::queues::{ListDead, Peek, QueueLine, ReplayDead};

/// Messages and dead letters that a page shows.
const MESSAGES: u16 = 25;
const LETTERS: u16 = 50;
/// Characters of a body that a page holds: of a message, and of a dead letter, which somebody wants to read whole.
const BODY_CHARS_MAX: usize = 1_500;
const LETTER_CHARS_MAX: usize = 8_000;
const REPLAY: &str = "/v1/queues/{queue}/replay";
/// Seconds after which the page is looked at again: messages come and go without an event.
const EVERY: u16 = 2;

pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route("/queues", get(page))
        .route("/queues/{queue}", get(one))
        .route("/queues/{queue}/replay", post(replay))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let queues = visitor.client.queues().await?.items;
    let body = html! {
        div.head { h1 { "Queues" } }
        div.panel #list data-live {
            div.scroll { table {
                thead { tr { th { "Queue" } th.num { "Waiting" } th.num { "Delayed" } th.num { "In flight" }
                    th.num { "Dead" } th.num { "Oldest" }
                    th.num.wide { "Lock" } th.num.wide { "Deliveries" } th.num.wide { "Expiry" } } }
                tbody {
                    @for QueueLine { settings, depth } in &queues {
                        tr data-key=(settings.queue) {
                            td { a href={ "/queues/" (settings.queue) } { (says(&settings.queue)) } }
                            td.num { (count(depth.waiting)) }
                            td.num { (count(depth.delayed)) }
                            td.num { (count(depth.in_flight)) }
                            td.num.bad[depth.dead > 0] { (count(depth.dead)) }
                            td.num { (ago_or_none(depth.oldest_at, visitor.now)) }
                            td.num.wide { (rough_secs(f64::from(settings.lock_secs))) }
                            td.num.wide { "at most " (settings.deliveries_max) }
                            td.num.wide { (rough_secs(f64::from(settings.expiry_secs))) }
                        }
                    }
                }
            } }
        }
    };
    Ok(Page::new(&visitor, Place::Queues, "Queues").live().every(EVERY).show(&body))
}

async fn one(visitor: Visitor, Path(queue): Path<String>) -> Result<Response, Oops> {
    let client = &visitor.client;
    let line = client.queue(&queue).await?;
    let after = form_urlencoded::parse(visitor.uri.query().unwrap_or_default().as_bytes())
        .find(|(name, _)| name == "after")
        .map(|(_, value)| value.into_owned());
    let wanted = ListDead { after, limit: Some(LETTERS) };
    let (messages, dead) = tokio::try_join!(
        client.peek(&queue, Peek { limit: Some(MESSAGES) }),
        client.dead_letters(&queue, &wanted)
    )?;
    let body = html! {
        div.head { h1 { (says(&queue)) }
            p.sub { "A message is locked for " (rough_secs(f64::from(line.settings.lock_secs)))
                ", delivered at most "
                (line.settings.deliveries_max) " times, and given up after "
                    (rough_secs(f64::from(line.settings.expiry_secs))) "." } }
        div #depth.tiles data-live { (depth(&visitor, &line)) }
        div #dead data-live { (letters(&visitor, &queue, &dead)) }
        div #next data-live { (groups(&visitor, &line)) (next(&visitor, &messages.items)) }
        (act::commands(&commands(&visitor, &queue, &line)))
    };
    Ok(Page::new(&visitor, Place::Queues, queue).live().every(EVERY).show(&body))
}

/// Commands that do the same as the page.
fn commands(visitor: &Visitor, queue: &str, line: &QueueLine) -> Vec<String> {
    let mut commands = vec![command(["queue", "peek", queue]), command(["queue", "dead", queue])];
    if line.depth.dead > 0 && visitor.may(Method::POST, REPLAY) {
        commands.push(command(["queue", "replay", queue, "--all"]));
    }
    commands
}

fn depth(visitor: &Visitor, line: &QueueLine) -> Markup {
    let depth = &line.depth;
    html! {
        div.tile { span { "Waiting" } b { (count(depth.waiting)) } span { "the next worker may get them" } }
        div.tile { span { "In flight" } b { (count(depth.in_flight)) } span { "held by a worker" } }
        div.tile { span { "Delayed" } b { (count(depth.delayed)) } span { "their time has not come" } }
        div.tile { span { "Oldest" } b { (ago_or_none(depth.oldest_at, visitor.now)) }
            span { "of those that wait" } }
        div.tile { span { "Dead" } b.bad[depth.dead > 0] { (count(depth.dead)) }
            span { "nobody gets them any more" } }
    }
}

fn letters(visitor: &Visitor, queue: &str, dead: &Slice<DeadLetter>) -> Markup {
    let acts = visitor.may(Method::POST, REPLAY);
    let path = format!("/queues/{queue}/replay");
    html! {
        section.panel {
            header { h2 { "Dead letters" } }
            @if dead.items.is_empty() { p.empty { "None: nothing was given up." } }
            @else {
                @if acts {
                    form #replay.filters method="post" action=(path) {
                        (act::hidden(visitor))
                        button type="submit" name="which" value="some" { "Replay the selected" }
                        button type="submit" name="which" value="all" { "Replay all" }
                    }
                }
                div.scroll { table {
                    thead { tr { @if acts { th.check { input type="checkbox" data-all="id"
                        aria-label="Select all"; } }
                        th { "Message" } th { "Why" } th { "Feed" } th.num { "Deliveries" } th { "Sent" }
                            th { "Given up" } @if acts { th {} } } }
                    tbody { @for letter in &dead.items { (letter_row(visitor, letter, &path, acts)) } }
                } }
                @if let Some(next) = &dead.next {
                    nav.pages { a.button href={ "/queues/" (queue) "?" (after(next)) } { "Younger" } }
                }
            }
        }
    }
}

fn after(cursor: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("after", cursor).finish()
}

fn letter_row(visitor: &Visitor, letter: &DeadLetter, path: &str, acts: bool) -> Markup {
    html! {
        tr data-key={ (letter.message_id) "/" (letter.generation) } {
            @if acts { td.check { input type="checkbox" form="replay" name="id" value=(letter.message_id)
                aria-label={ "Select " (letter.message_id) }; } }
            td { code { (line_of(&letter.message_id, 60)) }
                @if let Some(run) = &letter.run_id { " " a.small href=(run_page(run)) { "run" } }
                (fold::bounded("Body", &letter.body, LETTER_CHARS_MAX,
                    &command(["queue", "dead", &letter.queue, "--limit", "1000", "--json"]))) }
            td { (label(letter.reason.as_str())) @if let Some(error) = &letter.last_error {
                span.why { (line(error)) } } }
            td { (says(&letter.group)) }
            td.num { (letter.deliveries) }
            td.nowrap { (ago(letter.enqueued_at, visitor.now)) }
            td.nowrap { (ago(letter.dead_at, visitor.now)) }
            @if acts { td.acts {
                (act::button(visitor, path, &[("which", "some"), ("id", &letter.message_id)], "Replay", ""))
                (act::commands(&[command(["queue", "replay", &letter.queue, &letter.message_id])]))
            } }
        }
    }
}

fn groups(visitor: &Visitor, line: &QueueLine) -> Markup {
    html! {
        @if line.depth.groups.len() > 1 {
            section.panel {
                header { h2 { "By feed" } }
                div.scroll { table {
                    thead { tr { th { "Feed" } th.num { "Waiting" } th.num { "Delayed" } th.num { "In flight"
                        } th.num { "Dead" } th.num { "Oldest" } } }
                    tbody { @for group in &line.depth.groups {
                        tr data-key=(group.group) {
                            td { (says(&group.group)) } td.num { (count(group.waiting)) }
                                td.num { (count(group.delayed)) }
                            td.num { (count(group.in_flight)) } td.num { (count(group.dead)) }
                                td.num { (ago_or_none(group.oldest_at, visitor.now)) }
                        }
                    } }
                } }
            }
        }
    }
}

fn next(visitor: &Visitor, messages: &[Message]) -> Markup {
    html! {
        section.panel {
            header { h2 { "Next messages" } span.dim.small { "a look: nothing is taken" } }
            @if messages.is_empty() { p.empty { "It is empty." } }
            @else {
                div.scroll { table {
                    thead { tr { th { "Message" } th { "State" } th { "Feed" } th.num { "Deliveries" }
                        th { "Sent" } th { "Due" } } }
                    tbody { @for message in messages {
                        tr data-key={ (message.message_id) "/" (message.generation) } {
                            td { code { (line_of(&message.message_id, 60)) }
                                (fold::bounded("Body", &message.body, BODY_CHARS_MAX,
                                    &command(["queue", "peek", &message.queue, "--json"]))) }
                            td { (label(message.state.as_str())) @if let Some(error) = &message.last_error {
                                span.why { (line(error)) } } }
                            td { (says(&message.group)) } td.num { (message.deliveries) }
                            td.nowrap { (ago(message.enqueued_at, visitor.now)) }
                                td.nowrap { (ago(message.visible_at, visitor.now)) }
                        }
                    } }
                } }
            }
        }
    }
}

/// What a replay of everything means, feed by feed.
fn question(line: &QueueLine) -> Ask<'static> {
    let (queue, dead) = (&line.settings.queue, line.depth.dead);
    let happens = html! {
        p { (counted(dead, "dead letter", "dead letters")) " of " b { (says(queue)) } " "
            @if dead == 1 { "is sent again:" } @else { "are sent again:" } }
        ul {
            @for group in first(&line.depth.groups).iter().filter(|group| group.dead > 0) {
                li { b { (count(group.dead)) } " of " (says(&group.group)) }
            }
            li { "Each is delivered anew, at most " (line.settings.deliveries_max) " times." }
            li { "What became a dead letter since goes with them. One whose sync has failed leads to nothing: \
                retry the sync instead." }
        }
    };
    let question = format!("Replay {}?", counted(dead, "dead letter", "dead letters"));
    let commands = vec![command(["queue", "replay", queue, "--all"])];
    Ask { place: Place::Queues, question, happens, button: "Replay them", commands }
}

async fn replay(visitor: Visitor, Path(queue): Path<String>, form: Form) -> Result<Response, Oops> {
    let which = match form.field("which") {
        Some("all") => ReplayDead { ids: Vec::new(), all: true },
        Some(_) | None => ReplayDead { ids: form.all("id").map(str::to_owned).collect(), all: false },
    };
    if !which.all && which.ids.is_empty() {
        return Err(Oops::bad_form("no dead letter is selected; tick those that are meant"));
    }
    // Whoever may not do it hears that from the door.
    if which.all && !form.is_ticked(SURE) && visitor.may(Method::POST, REPLAY) {
        let line = form.client.queue(&queue).await?;
        if line.depth.dead > 1 {
            return Ok(question(&line).show(&visitor, &form));
        }
    }
    let asked = which.ids.len();
    let replayed = form.client.replay(&queue, &which).await?.replayed;
    let replayed = usize::try_from(replayed).unwrap_or(usize::MAX);
    Ok(form.back(Done::Bulk {
        code: "bulk-replay",
        count: replayed,
        of: if which.all { replayed } else { asked },
    }))
}
