//! Workers: who lives, with what they are busy, and when they were last heard of.

use crate::layout::{Page, Place};
use crate::oops::Oops;
use crate::overview::lives;
use crate::text::says;
use crate::time::{ago, took};
use crate::visitor::Visitor;
use crate::words::{run_link, subject};
use axum::response::Response;
use maud::{Markup, html};
use tidemill_core::run::{Run, RunState};
use tidemill_core::worker::Worker;
use tidemill_wire::runs::ListRuns;

/// Held runs that are looked at to say who is busy with what.
const HELD: u16 = 500;
/// Runs that are shown of one worker.
const RUNS: usize = 4;
/// Seconds after which the page is looked at again: a beat is no event.
const EVERY: u16 = 5;

pub(crate) async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let client = &visitor.client;
    let held = |status| ListRuns { status: Some(status), limit: Some(HELD), ..ListRuns::default() };
    let (asked_running, asked_claimed) = (held(RunState::Running), held(RunState::Claimed));
    let (workers, running, claimed) =
        tokio::try_join!(client.workers(), client.runs(&asked_running), client.runs(&asked_claimed))?;
    let mut runs = running.items;
    runs.extend(claimed.items);
    let (alive, ended): (Vec<&Worker>, Vec<&Worker>) =
        workers.items.iter().partition(|worker| lives(worker, &visitor));
    let body = html! {
        div.head { h1 { "Workers" }
            p.sub { "A worker that gets SIGTERM claims nothing more, lets its runs end, and says goodbye." } }
        div #workers data-live {
            section.panel {
                header { h2 { "Alive" } }
                @if alive.is_empty() {
                    p.empty { "No worker is alive. Start one: " code { "tidemill work -- COMMAND" }
                        " for runs, " code { "tidemill up" } " for syncs." }
                } @else { (table(&visitor, &alive, &runs)) }
            }
            @if !ended.is_empty() {
                section.panel { header { h2 { "Ended lately, or silent" } } (table(&visitor, &ended, &runs)) }
            }
        }
    };
    Ok(Page::new(&visitor, Place::Workers, "Workers").live().every(EVERY).show(&body))
}

fn table(visitor: &Visitor, workers: &[&Worker], runs: &[Run]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { "Worker" } th { "Busy with" } th { "Last heard of" } th { "Up" }
                th.wide { "Host" } th.wide { "Offers" } th.wide { "Version" } } }
            tbody { @for worker in workers {
                tr data-key=(worker.worker_id) {
                    td { (says(&worker.name)) }
                    td { (busy(worker, runs)) }
                    td.nowrap { @if let Some(ended) = worker.ended_at { "ended " (ago(ended, visitor.now)) }
                        @else { (ago(worker.beat_at, visitor.now)) } }
                    td.nowrap { (took(Some(worker.started_at), worker.ended_at,
                        visitor.now).unwrap_or_default()) }
                    td.wide { (says(&worker.host)) " " span.dim { "pid " (worker.pid) } }
                    td.wide { @for label in &worker.labels { span.chip { (says(label)) } " " } @if
                        worker.labels.is_empty() { span.dim { "–" } } }
                    td.wide { (says(&worker.version)) }
                }
            } }
        } }
    }
}

fn busy(worker: &Worker, runs: &[Run]) -> Markup {
    let own: Vec<&Run> = runs.iter().filter(|run| run.worker_id == Some(worker.worker_id)).collect();
    html! {
        @if own.is_empty() { span.dim { "nothing" } }
        @for run in own.iter().take(RUNS) { div { (run_link(&run.run_id)) " " (subject(run)) } }
        @if own.len() > RUNS { span.dim { "and " (own.len() - RUNS) " more" } }
    }
}
