//! What is going on, in one screen: what runs, what failed and why and what to press, what waits and why.

mod agents;
mod feeds;
mod tiles;

pub(crate) use feeds::is_old;
pub(crate) use tiles::lives;

use crate::act;
use crate::graph;
use crate::layout::{Page, Place};
use crate::oops::{Oops, sentence};
use crate::text::{line, line_of, says};
use crate::time::{ago, took};
use crate::visitor::Visitor;
use crate::words::{bar, run_link, state, subject, sync_progress};
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

/// Rows of each list.
const ROWS: usize = 8;
/// Alerts that are looked at to find those that say more than the list of failed runs.
const ALERTS: u16 = 24;
/// Runs that wait among which the oldest are looked for.
const OLDEST_AMONG: i64 = 2_000;
/// How far back a failure is still news.
const NEWS_DAYS: i64 = 7;
/// Seconds after which the page is looked at again: ages grow without an event.
const EVERY: u16 = 5;

/// A run, and why it is where it is.
struct Told {
    run: Run,
    why: Why,
    /// Its sync, where it is the run of one that was planned, and what its partitions say.
    sync: Option<SyncStatus>,
}

/// Failures that nothing made good.
struct Failures {
    items: Vec<Told>,
    /// Whether older ones are not shown.
    more: bool,
}

pub(crate) async fn page(visitor: Visitor) -> Result<Response, Oops> {
    let client = &visitor.client;
    let rows = u16::try_from(ROWS).unwrap_or(u16::MAX);
    let in_state = |status| {
        let asked = ListRuns { status: Some(status), limit: Some(rows), ..ListRuns::default() };
        async move { Ok::<_, Error>(client.runs(&asked).await?.items) }
    };
    let since = Some(visitor.now - TimeDelta::days(NEWS_DAYS));
    let asked_failures = ListFailures { since, limit: Some(rows), ..ListFailures::default() };
    let (asked_alerts, asked_syncs) = (
        ListAlerts { limit: Some(ALERTS), ..ListAlerts::default() },
        ListSyncs { limit: Some(rows), ..ListSyncs::default() },
    );
    let (stats, failed, running, claimed) = tokio::try_join!(
        visitor.console().inner.figures.of(&visitor),
        client.failures(&asked_failures),
        in_state(RunState::Running),
        in_state(RunState::Claimed),
    )?;
    let (feeds, queues, workers, messages, alerts, syncs) = tokio::try_join!(
        client.feeds(),
        client.queues(),
        client.workers(),
        client.held_messages(),
        client.alerts(&asked_alerts),
        client.syncs(&asked_syncs)
    )?;
    // Where very many wait, to find the oldest of them takes longer than a page may.
    let (which, waiting) = if stats.queued_count <= OLDEST_AMONG {
        let asked = ListWaiting { limit: Some(rows), ..ListWaiting::default() };
        ("the oldest", client.waiting_runs(&asked).await?.items)
    } else {
        ("the newest", in_state(RunState::Queued).await?)
    };
    let mut failed = Failures { more: failed.next.is_some(), items: explained(client, failed.items).await? };
    for told in failed.items.iter_mut().filter(|told| told.run.lane == Lane::Sync) {
        told.sync = sync_of(client, &told.run).await?;
    }
    let alerts: Vec<Alert> = alerts.items.into_iter().filter(is_besides).collect();
    let waiting = explained(client, waiting).await?;
    let mut held = running;
    held.extend(claimed);
    held.truncate(ROWS);
    let far = graph::far(client, &held).await?;
    let (agents, jobs) = tokio::try_join!(client.agents(), client.held_jobs())?;
    let page = html! {
        div.head { h1 { "Overview" } }
        div #tiles.tiles data-live { (tiles::tiles(&visitor, &stats, &workers.items)) }
        div.split {
            div #work data-live {
                (attention(&visitor, &failed, &alerts))
                (now(&visitor, &held, &syncs.items, &far))
                (queue(&visitor, &waiting, which, stats.queued_count))
            }
            div #around data-live {
                (feeds::feeds(&visitor, &feeds.items))
                (feeds::queues(&visitor, &queues.items))
                (tiles::workers(&visitor, &workers.items, &stats, &messages.items))
                (agents::agents(&visitor, &agents.items, &jobs.items))
            }
        }
    };
    Ok(Page::new(&visitor, Place::Overview, "Overview").live().every(EVERY).show(&page))
}

/// The sync that a run is the last attempt of; none where it was never planned.
async fn sync_of(client: &Client, run: &Run) -> Result<Option<SyncStatus>, Error> {
    match client.sync(run.run_id.as_str()).await {
        Ok(status) => Ok(Some(status)),
        Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs with why they are where they are, in their order.
async fn explained(client: &Client, runs: Vec<Run>) -> Result<Vec<Told>, Error> {
    let mut asked: JoinSet<Result<Option<(RunId, Why)>, Error>> = JoinSet::new();
    for run in &runs {
        let (client, run) = (client.clone(), run.run_id.clone());
        asked.spawn(async move {
            match client.why(&run).await {
                Ok(why) => Ok(Some((run, why))),
                // It was pruned since the list was made.
                Err(Error::Refused { status, .. }) if status.as_u16() == 404 => Ok(None),
                Err(error) => Err(error),
            }
        });
    }
    let mut whys = HashMap::new();
    while let Some(answer) = asked.join_next().await {
        let answer = answer.map_err(|error| Error::Unreadable(error.to_string()))?;
        whys.extend(answer?);
    }
    Ok(runs
        .into_iter()
        .filter_map(|run| whys.remove(&run.run_id).map(|why| Told { run, why, sync: None }))
        .collect())
}

fn attention(visitor: &Visitor, failed: &Failures, alerts: &[Alert]) -> Markup {
    html! {
        section.panel #attention {
            header { h2 { "Needs somebody" } a.more href="/runs?status=failed" { "All failed runs" } }
            @if failed.items.is_empty() && alerts.is_empty() {
                p.empty {
                    @if failed.more { "Every failed run of late was made good; older ones are not looked at here." }
                    @else { "No run of the last " (NEWS_DAYS) " days failed that nothing made good since." } }
            } @else {
                div.scroll { table { tbody {
                    @for alert in alerts {
                        tr data-key={ "alert-" (alert.alert_id) } {
                            td { span.state.s-warn { "alert" } }
                            td { b { (sentence(alert.kind.title())) } " "
                                span.dim { (ago(alert.last_at, visitor.now)) }
                                span.why { (line(&alert.message))
                                    @if let Some(command) = &alert.command { " " code { (says(command)) } } }
                                        }
                            td.acts { (way(alert)) }
                        }
                    }
                    @for told in &failed.items { (failure(visitor, told)) }
                } } }
                @if failed.more {
                    p.empty.small { "There are older ones: " code { "tidemill run list --status failed" } }
                }
            }
        }
    }
}

/// Whether an alert says what the list of failed runs does not.
fn is_besides(alert: &Alert) -> bool {
    match alert.kind {
        AlertKind::RunSkipped
        | AlertKind::ConsolidationFailed
        | AlertKind::DeleteLimit
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

/// Where somebody goes who wants to do something about an alert.
fn way(alert: &Alert) -> Markup {
    html! {
        @if alert.kind == AlertKind::DeadLetter { a.button href="/queues" { "Look" } }
        @else if let Some(run) = &alert.run_id { a.button href={ "/runs/" (run.in_path()) } { "Look" } }
        @else if let Some(feed) = &alert.feed { a.button href={ "/feeds/" (feed) } { "Look" } }
    }
}

fn failure(visitor: &Visitor, told: &Told) -> Markup {
    let run = &told.run;
    html! {
        tr data-key=(run.run_id) {
            td { (state(run.status)) }
            td { (run_link(&run.run_id)) " " (subject(run)) " "
                span.dim { (ago(run.finished_at.unwrap_or(run.updated_at), visitor.now)) }
                span.why { (line(&told.why.sentence)) } }
            td.acts {
                @if let Some(path) = again(told).filter(|_| visitor.may_operate()) {
                    (act::button(visitor, &path, &[], "Retry", ""))
                } @else { a.button href={ "/runs/" (run.run_id.in_path()) } { "Look" } }
            }
        }
    }
}

/// What tries a failed run again, where that needs no closer look: a sync is tried again as a whole, and one that was
/// never planned as any run.
fn again(told: &Told) -> Option<String> {
    let (id, run) = (&told.run.run_id, told.run.run_id.in_path());
    match told.run.lane {
        Lane::Ops => Some(format!("/runs/{run}/retry")),
        Lane::Sync => match &told.sync {
            None => Some(format!("/runs/{run}/retry")),
            Some(status) => {
                let fits = status.sync.ops_run_id == *id && status.sync.failed_workers > 0;
                fits.then(|| format!("/syncs/{}/retry", status.sync.run_id))
            }
        },
        Lane::Graph => Some(format!("/graphs/{run}/retry")),
    }
}

fn now(visitor: &Visitor, held: &[Run], syncs: &[Sync], far: &HashMap<RunId, GraphRecord>) -> Markup {
    let sync_of = |run: &Run| syncs.iter().find(|sync| sync.ops_run_id == run.run_id);
    html! {
        section.panel #now {
            header { h2 { "Running now" } a.more href="/runs?status=running" { "All" } }
            @if held.is_empty() {
                p.empty { "Nothing runs." }
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
                                @if let Some(graph) = far.get(&run.run_id) {
                                    span.why { (graph::progress(&graph.counts)) } } }
                            td.wide { @if let Some(worker) = &run.claimed_by { (line_of(worker, 32)) } }
                            td.num { (took(run.started_at, None, visitor.now).unwrap_or_default()) }
                        }
                    }
                } } }
            }
        }
    }
}

fn queue(visitor: &Visitor, waiting: &[Told], which: &str, queued: i64) -> Markup {
    html! {
        section.panel #waiting {
            header { h2 { "Waiting" }
                @if queued > i64::try_from(waiting.len()).unwrap_or(i64::MAX) {
                    span.dim.small { (which) " " (waiting.len()) " of " (crate::words::count(queued)) }
                }
                a.more href="/runs?status=queued" { "All" } }
            @if waiting.is_empty() {
                p.empty { "Nothing waits." }
            } @else {
                div.scroll { table { tbody {
                    @for told in waiting {
                        tr data-key=(told.run.run_id) {
                            td { (state(told.run.status)) }
                            td { (run_link(&told.run.run_id)) " " (subject(&told.run))
                                span.why { (line(&told.why.sentence))
                                    @if let Some(hint) = &told.why.hint { " " code { (says(hint)) } } } }
                            td.num { (ago(told.run.queued_at, visitor.now)) }
                        }
                    }
                } } }
            }
        }
    }
}
