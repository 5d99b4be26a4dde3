//! The workers page: workers with their current work and last heartbeat, and draining.

use crate::error_page::ErrorPage;
use crate::forms::{self, Form, FormOutcome};
use crate::layout::{Page, Section};
use crate::overview::is_alive;
use crate::page_context::PageContext;
use crate::routes::Routes;
use crate::text::safe;
use crate::time::{ago, took};
use crate::widgets::{run_link, run_page, subject};
use axum::extract::Path;
use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use tidemill_core::WorkerId;
use tidemill_core::message::Message as Order;
use tidemill_core::queue::Message;
use tidemill_core::run::{Run, RunState};
use tidemill_core::shell::command;
use tidemill_core::worker::Worker;
use tidemill_wire::runs::ListRuns;

/// Number of held runs that are read to show the work of each worker.
const HELD_RUNS_MAX: u16 = 500;
/// Maximum number of runs, and of messages, shown per worker.
const SHOWN_MAX: usize = 4;
/// Refresh interval in seconds, because heartbeats create no events.
const REFRESH_SECS: u16 = 5;

/// Runs and messages that workers hold.
struct HeldWork {
    runs: Vec<Run>,
    messages: Vec<Message>,
}

const DRAIN: &str = "/v1/workers/{worker}/drain";

pub(crate) fn routes() -> Routes {
    Routes::new().get("/workers", page).post("/workers/{worker}/drain", drain)
}

async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let client = &context.client;
    let held = |status| ListRuns { status: Some(status), limit: Some(HELD_RUNS_MAX), ..ListRuns::default() };
    let (running_params, claimed_params) = (held(RunState::Running), held(RunState::Claimed));
    let (workers, running, claimed, messages) = tokio::try_join!(
        client.workers(),
        client.runs(&running_params),
        client.runs(&claimed_params),
        client.held_messages()
    )?;
    let mut runs = running.items;
    runs.extend(claimed.items);
    let held_work = HeldWork { runs, messages: messages.items };
    let (alive, ended): (Vec<&Worker>, Vec<&Worker>) =
        workers.items.iter().partition(|worker| is_alive(worker, &context));
    let body = html! {
        div.head { h1 { "Workers" }
            p.sub { "A draining worker gets no new work and exits when its current work is done. SIGTERM has the same \
                effect, within the worker's grace period." } }
        div #workers data-live {
            section.panel {
                header { h2 { "Alive" } }
                @if alive.is_empty() {
                    p.empty { "No worker is alive. Start one: " code { "tidemill work -- COMMAND" }
                        " for runs, " code { "tidemill up" } " for syncs." }
                } @else { (table(&context, &alive, &held_work)) }
            }
            @if !ended.is_empty() {
                section.panel { header { h2 { "Ended or silent" } } (table(&context, &ended, &held_work)) }
            }
        }
    };
    Ok(Page::new(&context, Section::Workers, "Workers").live().refresh_every(REFRESH_SECS).show(&body))
}

fn table(context: &PageContext, workers: &[&Worker], held_work: &HeldWork) -> Markup {
    // Workers serve all projects: callers of one project may not drain them.
    let acts = context.may(Method::POST, DRAIN) && context.caller.sees_all_projects();
    html! {
        div.scroll { table {
            thead { tr { th { "Worker" } th { "Work" } th { "Last heartbeat" } th { "Uptime" }
                th.wide { "Host" } th.wide { "Labels" } th.wide { "Version" } @if acts { th {} } } }
            tbody { @for worker in workers {
                tr data-key=(worker.worker_id) {
                    td { (safe(&worker.name)) @if worker.draining { " " span.chip { "draining" } } }
                    td { (work_cell(worker, held_work)) }
                    td.nowrap { @if let Some(ended) = worker.ended_at { "ended " (ago(ended, context.now)) }
                        @else { (ago(worker.beat_at, context.now)) } }
                    td.nowrap { (took(Some(worker.started_at), worker.ended_at,
                        context.now).unwrap_or_default()) }
                    td.wide { (safe(&worker.host)) " " span.dim { "pid " (worker.pid) } }
                    td.wide { @for label in &worker.labels { span.chip { (safe(label)) } " " } @if
                        worker.labels.is_empty() { span.dim { "–" } } }
                    td.wide { (safe(&worker.version)) }
                    @if acts { td.acts { @if worker.ended_at.is_none() { (worker_buttons(context, worker)) } } }
                }
            } }
        } }
    }
}

fn worker_buttons(context: &PageContext, worker: &Worker) -> Markup {
    let (id, undo) = (worker.worker_id.to_string(), worker.draining.then_some("--undo"));
    let (draining, label) = if worker.draining { ("no", "Stop draining") } else { ("yes", "Drain") };
    html! {
        (forms::button(context, &format!("/workers/{id}/drain"), &[("draining", draining)], label, ""))
        (forms::commands(&[command(["worker", "drain", &id].into_iter().chain(undo))]))
    }
}

async fn drain(Path(worker): Path<String>, form: Form) -> Result<Response, ErrorPage> {
    let worker =
        worker.parse().map_err(|_| ErrorPage::not_found(format!("`{worker}` is not a worker id")))?;
    let draining = form.is_yes("draining")?;
    form.client.drain_worker(WorkerId(worker), draining).await?;
    Ok(form.back(FormOutcome::Message(if draining { "worker-draining" } else { "worker-not-draining" })))
}

fn work_cell(worker: &Worker, held_work: &HeldWork) -> Markup {
    let own: Vec<&Run> =
        held_work.runs.iter().filter(|run| run.worker_id == Some(worker.worker_id)).collect();
    let held = |message: &&Message| message.locked_by == Some(worker.worker_id);
    let held: Vec<&Message> = held_work.messages.iter().filter(held).collect();
    let more = own.len().saturating_sub(SHOWN_MAX) + held.len().saturating_sub(SHOWN_MAX);
    html! {
        @if own.is_empty() && held.is_empty() { span.dim { "idle" } }
        @for run in own.iter().take(SHOWN_MAX) { div { (run_link(&run.run_id)) " " (subject(run)) } }
        @for message in held.iter().take(SHOWN_MAX) { div { (describe_message(message)) } }
        @if more > 0 { span.dim { "and " (more) " more" } }
    }
}

/// Describes the work of a message, with links to its sync and partition.
fn describe_message(message: &Message) -> Markup {
    let sync = |part: &str, label: &str| {
        let page = message.run_id.as_deref().map(|run| format!("{}{part}", run_page(run)));
        html! { @if let Some(page) = &page { a href=(page) { (safe(label)) } } @else { (safe(label)) } }
    };
    let feed = html! { a href={ "/feeds/" (message.group) } { (safe(&message.group)) } };
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
        Err(_) => html! { "a message of " a href={ "/queues/" (message.queue) } { (safe(&message.queue)) } },
    }
}
