//! Workers: who lives, with what they are busy, when they were last heard of, and letting them drain.

use crate::Console;
use crate::act::{self, Done, Form};
use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::overview::lives;
use crate::text::says;
use crate::time::{ago, took};
use crate::visitor::Visitor;
use crate::words::{run_link, run_page, subject};
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use http::Method;
use maud::{Markup, html};
use tidemill_core::WorkerId;
use tidemill_core::message::Message as Order;
use tidemill_core::queue::Message;
use tidemill_core::run::{Run, RunState};
use tidemill_core::shell::command;
use tidemill_core::worker::Worker;
use tidemill_wire::runs::ListRuns;

/// Held runs that are looked at to say who is busy with what.
const HELD: u16 = 500;
/// Runs, and messages, that are shown of one worker.
const SHOWN: usize = 4;
/// Seconds after which the page is looked at again: a beat is no event.
const EVERY: u16 = 5;

/// What workers have in hand: runs, and messages of syncs.
struct Hands {
    runs: Vec<Run>,
    messages: Vec<Message>,
}

const DRAIN: &str = "/v1/workers/{worker}/drain";

pub(crate) fn routes() -> Router<Console> {
    Router::new().route("/workers", get(page)).route("/workers/{worker}/drain", post(drain))
}

async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let client = &visitor.client;
    let held = |status| ListRuns { status: Some(status), limit: Some(HELD), ..ListRuns::default() };
    let (asked_running, asked_claimed) = (held(RunState::Running), held(RunState::Claimed));
    let (workers, running, claimed, messages) = tokio::try_join!(
        client.workers(),
        client.runs(&asked_running),
        client.runs(&asked_claimed),
        client.held_messages()
    )?;
    let mut runs = running.items;
    runs.extend(claimed.items);
    let hands = Hands { runs, messages: messages.items };
    let (alive, ended): (Vec<&Worker>, Vec<&Worker>) =
        workers.items.iter().partition(|worker| lives(worker, &visitor));
    let body = html! {
        div.head { h1 { "Workers" }
            p.sub { "A worker that is drained takes nothing new, and ends once what it has in hand has ended. SIGTERM \
                does the same, within the worker's grace period." } }
        div #workers data-live {
            section.panel {
                header { h2 { "Alive" } }
                @if alive.is_empty() {
                    p.empty { "No worker is alive. Start one: " code { "tidemill work -- COMMAND" }
                        " for runs, " code { "tidemill up" } " for syncs." }
                } @else { (table(&visitor, &alive, &hands)) }
            }
            @if !ended.is_empty() {
                section.panel { header { h2 { "Ended lately, or silent" } } (table(&visitor, &ended, &hands)) }
            }
        }
    };
    Ok(Page::new(&visitor, Place::Workers, "Workers").live().every(EVERY).show(&body))
}

fn table(visitor: &Visitor, workers: &[&Worker], hands: &Hands) -> Markup {
    // A process works for every project: whoever sees one alone is refused.
    let acts = visitor.may(Method::POST, DRAIN) && visitor.caller.project.is_none();
    html! {
        div.scroll { table {
            thead { tr { th { "Worker" } th { "Busy with" } th { "Last heard of" } th { "Up" }
                th.wide { "Host" } th.wide { "Offers" } th.wide { "Version" } @if acts { th {} } } }
            tbody { @for worker in workers {
                tr data-key=(worker.worker_id) {
                    td { (says(&worker.name)) @if worker.draining { " " span.chip { "draining" } } }
                    td { (busy(worker, hands)) }
                    td.nowrap { @if let Some(ended) = worker.ended_at { "ended " (ago(ended, visitor.now)) }
                        @else { (ago(worker.beat_at, visitor.now)) } }
                    td.nowrap { (took(Some(worker.started_at), worker.ended_at,
                        visitor.now).unwrap_or_default()) }
                    td.wide { (says(&worker.host)) " " span.dim { "pid " (worker.pid) } }
                    td.wide { @for label in &worker.labels { span.chip { (says(label)) } " " } @if
                        worker.labels.is_empty() { span.dim { "–" } } }
                    td.wide { (says(&worker.version)) }
                    @if acts { td.acts { @if worker.ended_at.is_none() { (worker_acts(visitor, worker)) } } }
                }
            } }
        } }
    }
}

fn worker_acts(visitor: &Visitor, worker: &Worker) -> Markup {
    let (id, undo) = (worker.worker_id.to_string(), worker.draining.then_some("--undo"));
    let (draining, label) = if worker.draining { ("no", "Let it work again") } else { ("yes", "Drain") };
    html! {
        (act::button(visitor, &format!("/workers/{id}/drain"), &[("draining", draining)], label, ""))
        (act::commands(&[command(["worker", "drain", &id].into_iter().chain(undo))]))
    }
}

async fn drain(Path(worker): Path<String>, form: Form) -> Result<Response, Oops> {
    let worker = worker.parse().map_err(|_| Oops::nothing("this is not the id of a worker"))?;
    let draining = form.is_yes("draining")?;
    form.client.drain_worker(WorkerId(worker), draining).await?;
    Ok(form.back(Done::Plain(if draining { "worker-draining" } else { "worker-not-draining" })))
}

fn busy(worker: &Worker, hands: &Hands) -> Markup {
    let own: Vec<&Run> = hands.runs.iter().filter(|run| run.worker_id == Some(worker.worker_id)).collect();
    let held = |message: &&Message| message.locked_by == Some(worker.worker_id);
    let held: Vec<&Message> = hands.messages.iter().filter(held).collect();
    let more = own.len().saturating_sub(SHOWN) + held.len().saturating_sub(SHOWN);
    html! {
        @if own.is_empty() && held.is_empty() { span.dim { "nothing" } }
        @for run in own.iter().take(SHOWN) { div { (run_link(&run.run_id)) " " (subject(run)) } }
        @for message in held.iter().take(SHOWN) { div { (doing(message)) } }
        @if more > 0 { span.dim { "and " (more) " more" } }
    }
}

/// What a message has its worker do, with the way to the sync and its partition.
fn doing(message: &Message) -> Markup {
    let sync = |part: &str, words: &str| {
        let page = message.run_id.as_deref().map(|run| format!("{}{part}", run_page(run)));
        html! { @if let Some(page) = &page { a href=(page) { (says(words)) } } @else { (says(words)) } }
    };
    let feed = html! { a href={ "/feeds/" (message.group) } { (says(&message.group)) } };
    match serde_json::from_value::<Order>(message.body.clone()) {
        Ok(Order::WorkItem(item)) => {
            let part = format!("#partition-{}", item.partition_id);
            html! { "reads " (sync(&part, &format!("partition {}", item.partition_id))) " of " (feed) }
        }
        Ok(Order::WorkDone(done)) => {
            let part = format!("#partition-{}", done.partition_id);
            html! { "closes " (sync(&part, &format!("partition {}", done.partition_id))) " of " (feed) }
        }
        Ok(Order::Consolidate(_)) => html! { "consolidates " (sync("", "the sync")) " of " (feed) },
        Err(_) => html! { "a message of " a href={ "/queues/" (message.queue) } { (says(&message.queue)) } },
    }
}
