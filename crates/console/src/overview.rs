//! The overview page: failures with their reasons, running and waiting runs, feeds, queues, workers and agents.

mod agents;
mod feeds;
mod tiles;

pub(crate) use feeds::is_old;
pub(crate) use tiles::is_alive;

use crate::error_page::{ErrorPage, sentence};
use crate::forms;
use crate::graph;
use crate::layout::{Page, Section};
use crate::page_context::PageContext;
use crate::text::{clip, line, safe};
use crate::time::{ago, took};
use crate::widgets::{bar, run_link, state, subject, sync_progress};
use axum::response::Response;
use chrono::TimeDelta;
use maud::{Markup, html};
use std::collections::HashMap;
use tidemill_client::{Client, Error};
use tidemill_core::RunId;
use tidemill_core::alert::{Alert, AlertKind};
use tidemill_core::graph::record::GraphRecord;
use tidemill_core::records::{Sync, SyncStatus};
use tidemill_core::run::{Lane, Run, RunState};
use tidemill_wire::alerts::ListAlerts;
use tidemill_wire::runs::{ListFailures, ListRuns, ListWaiting, Why};
use tidemill_wire::syncs::ListSyncs;
use tokio::task::JoinSet;

const ROWS: usize = 8;
/// Number of alerts that are searched for those not covered by the list of failed runs.
const ALERTS_MAX: u16 = 24;
/// Maximum number of waiting runs for which the oldest are searched.
const OLDEST_SEARCH_MAX: i64 = 2_000;
/// Age after which failures are no longer shown.
const FAILURE_DAYS: i64 = 7;
/// Refresh interval in seconds, because ages change without events.
const REFRESH_SECS: u16 = 5;

/// A run with the reason for its state.
struct ExplainedRun {
    run: Run,
    why: Why,
    /// The sync of the run with its partitions, if it was planned.
    sync: Option<SyncStatus>,
}

/// Failures that were not superseded.
struct Failures {
    items: Vec<ExplainedRun>,
    /// Whether there are older ones.
    more: bool,
}

pub(crate) async fn page(context: PageContext) -> Result<Response, ErrorPage> {
    let client = &context.client;
    let rows = u16::try_from(ROWS).unwrap_or(u16::MAX);
    let in_state = |status| {
        let params = ListRuns { status: Some(status), limit: Some(rows), ..ListRuns::default() };
        async move { Ok::<_, Error>(client.runs(&params).await?.items) }
    };
    let since = Some(context.now - TimeDelta::days(FAILURE_DAYS));
    let failures_params = ListFailures { since, limit: Some(rows), ..ListFailures::default() };
    let (alerts_params, syncs_params) = (
        ListAlerts { limit: Some(ALERTS_MAX), ..ListAlerts::default() },
        ListSyncs { limit: Some(rows), ..ListSyncs::default() },
    );
    let (stats, failed, running, claimed) = tokio::try_join!(
        context.console().inner.stats.get(&context),
        client.failures(&failures_params),
        in_state(RunState::Running),
        in_state(RunState::Claimed),
    )?;
    let (feeds, queues, workers, messages, alerts, syncs) = tokio::try_join!(
        client.feeds(),
        client.queues(),
        client.workers(),
        client.held_messages(),
        client.alerts(&alerts_params),
        client.syncs(&syncs_params)
    )?;
    // With very many waiting runs, finding the oldest ones would take too long for a page.
    let (which, waiting) = if stats.queued_count <= OLDEST_SEARCH_MAX {
        let params = ListWaiting { limit: Some(rows), ..ListWaiting::default() };
        ("the oldest", client.waiting_runs(&params).await?.items)
    } else {
        ("the newest", in_state(RunState::Queued).await?)
    };
    let mut failed =
        Failures { more: failed.next.is_some(), items: explain_all(client, failed.items).await? };
    for item in failed.items.iter_mut().filter(|item| item.run.lane == Lane::Sync) {
        item.sync = sync_of(client, &item.run).await?;
    }
    let alerts: Vec<Alert> = alerts.items.into_iter().filter(is_independent).collect();
    let waiting = explain_all(client, waiting).await?;
    let mut held = running;
    held.extend(claimed);
    held.truncate(ROWS);
    let progress = graph::progress_of(client, &held).await?;
    let (agents, jobs) = tokio::try_join!(client.agents(), client.held_jobs())?;
    let page = html! {
        div.head { h1 { "Overview" } }
        div #tiles.tiles data-live { (tiles::tiles(&context, &stats, &workers.items)) }
        div.split {
            div #work data-live {
                (attention_panel(&context, &failed, &alerts))
                (running_panel(&context, &held, &syncs.items, &progress))
                (waiting_panel(&context, &waiting, which, stats.queued_count))
            }
            div #around data-live {
                (feeds::feeds(&context, &feeds.items))
                (feeds::queues(&context, &queues.items))
                (tiles::workers(&context, &workers.items, &stats, &messages.items))
                (agents::agents(&context, &agents.items, &jobs.items))
            }
        }
    };
    Ok(Page::new(&context, Section::Overview, "Overview").live().refresh_every(REFRESH_SECS).show(&page))
}

/// Reads the sync of a run; `None` if it was never planned.
async fn sync_of(client: &Client, run: &Run) -> Result<Option<SyncStatus>, Error> {
    match client.sync(run.run_id.as_str()).await {
        Ok(status) => Ok(Some(status)),
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the reasons for the states of runs.
async fn explain_all(client: &Client, runs: Vec<Run>) -> Result<Vec<ExplainedRun>, Error> {
    let mut tasks: JoinSet<Result<Option<(RunId, Why)>, Error>> = JoinSet::new();
    for run in &runs {
        let (client, run) = (client.clone(), run.run_id.clone());
        tasks.spawn(async move {
            match client.why(&run).await {
                Ok(why) => Ok(Some((run, why))),
                // The run was pruned after the list was read.
                Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
                Err(error) => Err(error),
            }
        });
    }
    let mut whys = HashMap::new();
    while let Some(result) = tasks.join_next().await {
        let result = result.map_err(|error| Error::InvalidResponse(error.to_string()))?;
        whys.extend(result?);
    }
    Ok(runs
        .into_iter()
        .filter_map(|run| whys.remove(&run.run_id).map(|why| ExplainedRun { run, why, sync: None }))
        .collect())
}

fn attention_panel(context: &PageContext, failed: &Failures, alerts: &[Alert]) -> Markup {
    html! {
        section.panel #attention {
            header { h2 { "Needs attention" } a.more href="/runs?status=failed" { "All failed runs" } }
            @if failed.items.is_empty() && alerts.is_empty() {
                p.empty {
                    @if failed.more { "All recent failures have been superseded. There are older failed runs." }
                    @else { "No unresolved failures in the last " (FAILURE_DAYS) " days." } }
            } @else {
                div.scroll { table { tbody {
                    @for alert in alerts {
                        tr data-key={ "alert-" (alert.alert_id) } {
                            td { span.state.s-warn { "alert" } }
                            td { b { (sentence(alert.kind.title())) } " "
                                span.dim { (ago(alert.last_at, context.now)) }
                                span.why { (line(&alert.message))
                                    @if let Some(command) = &alert.command { " " code { (safe(command)) } } }
                                        }
                            td.acts { (alert_link(alert)) }
                        }
                    }
                    @for item in &failed.items { (failure_row(context, item)) }
                } } }
                @if failed.more {
                    p.empty.small { "There are older failures: " code { "tidemill run list --status failed" } }
                }
            }
        }
    }
}

/// Whether an alert is about something else than the list of failed runs.
fn is_independent(alert: &Alert) -> bool {
    match alert.kind {
        AlertKind::RunSkipped
        | AlertKind::ConsolidationFailed
        | AlertKind::DeleteLimit
        | AlertKind::AbsenceUnproven
        | AlertKind::RecordsRejected
        | AlertKind::LedgerDifference
        | AlertKind::WatermarkCopy
        | AlertKind::WatermarkOld
        | AlertKind::PartitionStuck
        | AlertKind::DeadLetter
        | AlertKind::RunStalled
        | AlertKind::QueueDeep => true,
        AlertKind::RunFailed
        | AlertKind::RunLost
        | AlertKind::RunRecovered
        | AlertKind::SyncFailed
        | AlertKind::SyncRecovered
        | AlertKind::Test => false,
    }
}

/// Link to the object of an alert.
fn alert_link(alert: &Alert) -> Markup {
    html! {
        @if alert.kind == AlertKind::DeadLetter { a.button href="/queues" { "Open" } }
        @else if let Some(run) = &alert.run_id { a.button href={ "/runs/" (run.in_path()) } { "Open" } }
        @else if let Some(feed) = &alert.feed { a.button href={ "/feeds/" (feed) } { "Open" } }
    }
}

fn failure_row(context: &PageContext, item: &ExplainedRun) -> Markup {
    let run = &item.run;
    html! {
        tr data-key=(run.run_id) {
            td { (state(run.status)) }
            td { (run_link(&run.run_id)) " " (subject(run)) " "
                span.dim { (ago(run.finished_at.unwrap_or(run.updated_at), context.now)) }
                span.why { (line(&item.why.sentence)) } }
            td.acts {
                @if let Some(path) = retry_path(item).filter(|_| context.may_operate()) {
                    (forms::button(context, &path, &[], "Retry", ""))
                } @else { a.button href={ "/runs/" (run.run_id.in_path()) } { "Open" } }
            }
        }
    }
}

/// Path of the form that retries a failed run, if a retry needs no decision. A sync is retried as a whole, and one
/// that was never planned like any run.
fn retry_path(item: &ExplainedRun) -> Option<String> {
    let (id, run) = (&item.run.run_id, item.run.run_id.in_path());
    match item.run.lane {
        Lane::Ops => Some(format!("/runs/{run}/retry")),
        Lane::Sync => match &item.sync {
            None => Some(format!("/runs/{run}/retry")),
            Some(status) => {
                let fits = status.sync.ops_run_id == *id && status.sync.failed_workers > 0;
                fits.then(|| format!("/syncs/{}/retry", status.sync.run_id))
            }
        },
        Lane::Graph => Some(format!("/graphs/{run}/retry")),
    }
}

fn running_panel(
    context: &PageContext,
    held: &[Run],
    syncs: &[Sync],
    progress: &HashMap<RunId, GraphRecord>,
) -> Markup {
    let sync_of = |run: &Run| syncs.iter().find(|sync| sync.ops_run_id == run.run_id);
    html! {
        section.panel #now {
            header { h2 { "Running now" } a.more href="/runs?status=running" { "All" } }
            @if held.is_empty() {
                p.empty { "No runs are running." }
            } @else {
                div.scroll { table { tbody {
                    @for run in held {
                        tr data-key=(run.run_id) {
                            td { (state(run.status)) }
                            td { (run_link(&run.run_id)) " " (subject(run))
                                @if let Some(sync) = sync_of(run) {
                                    span.why { (sync_progress(sync)) " "
                                        (bar(i64::from(sync.completed_workers),
                                            i64::from(sync.expected_workers), "Partitions read", "")) }
                                }
                                @if let Some(graph) = progress.get(&run.run_id) {
                                    span.why { (graph::progress(&graph.counts)) } } }
                            td.wide { @if let Some(worker) = &run.claimed_by { (clip(worker, 32)) } }
                            td.num { (took(run.started_at, None, context.now).unwrap_or_default()) }
                        }
                    }
                } } }
            }
        }
    }
}

fn waiting_panel(context: &PageContext, waiting: &[ExplainedRun], which: &str, queued: i64) -> Markup {
    html! {
        section.panel #waiting {
            header { h2 { "Waiting" }
                @if queued > i64::try_from(waiting.len()).unwrap_or(i64::MAX) {
                    span.dim.small { (which) " " (waiting.len()) " of " (crate::widgets::count(queued)) }
                }
                a.more href="/runs?status=queued" { "All" } }
            @if waiting.is_empty() {
                p.empty { "No runs are waiting." }
            } @else {
                div.scroll { table { tbody {
                    @for item in waiting {
                        tr data-key=(item.run.run_id) {
                            td { (state(item.run.status)) }
                            td { (run_link(&item.run.run_id)) " " (subject(&item.run))
                                span.why { (line(&item.why.sentence))
                                    @if let Some(hint) = &item.why.hint { " " code { (safe(hint)) } } } }
                            td.num { (ago(item.run.queued_at, context.now)) }
                        }
                    }
                } } }
            }
        }
    }
}
