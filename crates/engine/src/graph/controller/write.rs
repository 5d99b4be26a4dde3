//! Writes the decisions of a controller in one transaction, fenced by its lease.

use super::super::clean;
use std::collections::{BTreeMap, HashMap};
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::job::StatusCode;
use tidemill_core::limits::TAIL_LINES;
use tidemill_core::project::Flag;
use tidemill_core::run::{EndCause, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_store::{
    Change, EndTask, Error, Holder, JobEnding, JobWrite, Lease, NewTask, RefusalCode, Store, Tx,
};

/// Most jobs that the end of a run names.
const NAMED_MAX: usize = 20;
/// Most failures whose output is recorded in one transaction.
const SHOWN_MAX: usize = 50;
/// Longest recorded line of output in bytes.
const LINE_BYTES_MAX: usize = 1_000;

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    Done,
    /// A flag changed meanwhile, so nothing was written.
    Moved,
    /// Another process controls, so nothing was written.
    Stale,
}

/// Decisions of a controller that are not written yet.
#[derive(Debug)]
pub struct Draft {
    pub(super) now: Timestamp,
    /// The flags on which the decisions are based.
    flags: Vec<Flag>,
    pub(super) full: bool,
    pub(super) more: bool,
    pub(super) begins: bool,
    pub(super) changes: Vec<Change>,
    pub(super) jobs: Vec<JobWrite>,
    pub(super) tasks: Vec<NewTask>,
    pub(super) ends: Vec<EndTask>,
    pub(super) starts: Vec<RunId>,
    pub(super) run_ends: Vec<RunId>,
    pub(super) failures: Vec<Failure>,
    pub(super) run_messages: Vec<RunMessage>,
}

/// An error message for the record of a run, which may have ended.
#[derive(Debug)]
pub(super) struct RunMessage {
    pub(super) run_id: RunId,
    pub(super) text: String,
}

/// A failed job, for the events of its run.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) run_id: RunId,
    pub(super) job_id: String,
    pub(super) name: String,
    pub(super) code: StatusCode,
    pub(super) message: Option<String>,
    pub(super) task_id: Option<String>,
}

impl Draft {
    pub(super) fn new(now: Timestamp, flags: Vec<Flag>) -> Self {
        Self {
            now,
            flags,
            full: false,
            more: false,
            begins: false,
            changes: Vec::new(),
            jobs: Vec::new(),
            tasks: Vec::new(),
            ends: Vec::new(),
            starts: Vec::new(),
            run_ends: Vec::new(),
            failures: Vec::new(),
            run_messages: Vec::new(),
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.changes.is_empty() && self.run_ends.is_empty()
    }

    /// Returns the number of changed jobs.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }
}

pub(super) async fn write(
    store: &Store,
    lease: Lease,
    name: &str,
    draft: Draft,
    given: Option<Timestamp>,
) -> Result<WriteOutcome, Error> {
    let name = name.to_owned();
    store.write(move |mut tx| Box::pin(async move { step(&mut tx, lease, &name, draft, given).await })).await
}

/// Writes a draft. `given` is the time that a test has set: the SQL functions accept no other from the controller.
async fn step(
    tx: &mut Tx<'_>,
    lease: Lease,
    name: &str,
    draft: Draft,
    given: Option<Timestamp>,
) -> Result<WriteOutcome, Error> {
    let now = draft.now;
    let Some(version) = tx.reserve_versions(lease, draft.jobs.len()).await? else {
        return Ok(WriteOutcome::Stale);
    };
    if draft.begins {
        // The version's row is locked: changes of flags wait until this transaction ends.
        let on: Vec<Flag> = tx.flags().await?.into_iter().filter(|flag| flag.is_on(now)).collect();
        if on != draft.flags {
            return Ok(WriteOutcome::Moved);
        }
    }
    if tx.end_tasks(&draft.ends, now).await? != draft.ends.len() as u64 {
        return Err(moved());
    }
    if tx.write_jobs(&draft.jobs, version, now).await? != draft.jobs.len() as u64 {
        return Err(moved());
    }
    tx.add_tasks(&draft.tasks, now).await?;
    for run in &draft.starts {
        tx.start_graph_run(run, name, now).await?;
    }
    record_failures(tx, &draft.failures, given).await?;
    for run in &draft.run_ends {
        end_run(tx, run, name, now).await?;
    }
    for message in &draft.run_messages {
        tx.record_request(&message.run_id, Level::Error, &message.text, Some(now)).await?;
    }
    tx.remove_changes(&draft.changes).await?;
    Ok(WriteOutcome::Done)
}

/// The controller's state is outdated: it rolls back and reads everything again.
fn moved() -> Error {
    Error::refused(RefusalCode::Stale, "jobs or tasks have changed since the controller read them")
}

/// Adds events for failed jobs to their runs, with the last lines of their output.
async fn record_failures(
    tx: &mut Tx<'_>,
    failures: &[Failure],
    given: Option<Timestamp>,
) -> Result<(), Error> {
    let mut events: BTreeMap<&RunId, Vec<NewEvent>> = BTreeMap::new();
    for (position, failure) in failures.iter().enumerate() {
        let tail = match &failure.task_id {
            Some(task) if position < SHOWN_MAX => tx.log_tail(task, TAIL_LINES).await?,
            Some(_) | None => Vec::new(),
        };
        let said = failure.message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
        let mut event = NewEvent::new(Level::Error, format!("job {} failed{said}", failure.name));
        let output: Vec<String> = tail.iter().map(|line| clean(&line.text, LINE_BYTES_MAX)).collect();
        event.payload = serde_json::json!({
            "job": failure.name,
            "job_id": failure.job_id,
            "task_id": failure.task_id,
            "code": failure.code,
            "output": output,
        });
        events.entry(&failure.run_id).or_default().push(event);
    }
    for (run, events) in events {
        tx.append_events(run, &events, &Holder::default(), given).await?;
    }
    Ok(())
}

/// Ends a run whose last job has ended.
async fn end_run(tx: &mut Tx<'_>, run: &RunId, name: &str, now: Timestamp) -> Result<(), Error> {
    let Some(graph) = tx.graph(run).await? else { return Ok(()) };
    let endings = tx.graph_endings(run, NAMED_MAX).await?;
    let (status, cause) = outcome(&endings);
    if status != RunState::Cancelled {
        // No job may have started, and only a running run can end with this status.
        tx.start_graph_run(run, name, now).await?;
    }
    let counts = graph.counts;
    let mut metadata = HashMap::from([("jobs", serde_json::json!(counts))]);
    if !endings.is_empty() {
        let named: Vec<Json> = endings
            .iter()
            .map(|job| serde_json::json!({"name": job.name, "code": job.code, "message": job.message}))
            .collect();
        metadata.insert("not_succeeded", Json::from(named));
        let text = sentence(&endings, counts.failed, counts.total);
        metadata.insert(if status == RunState::Cancelled { "reason" } else { "error" }, Json::from(text));
    }
    if let Some(by) = &graph.cancelled_by {
        metadata.insert("cancelled_by", Json::from(by.as_str()));
    }
    tx.end_graph_run(run, status, cause, serde_json::json!(metadata), now).await?;
    Ok(())
}

/// Returns the status of a run. Failed jobs come first in the list, then cancelled ones.
fn outcome(endings: &[JobEnding]) -> (RunState, EndCause) {
    match endings.first().map(|job| job.code) {
        None => (RunState::Success, EndCause::Reported),
        Some(StatusCode::CancelledByUser) => (RunState::Cancelled, EndCause::Cancelled),
        Some(_) => (RunState::Failed, EndCause::Reported),
    }
}

fn sentence(endings: &[JobEnding], failed: i64, total: i64) -> String {
    let named: Vec<String> =
        endings.iter().take(3).map(|job| format!("{} ({})", job.name, job.code)).collect();
    let more = if failed > 3 { " and others" } else { "" };
    format!("{failed} of {total} jobs did not succeed: {}{more}", named.join(", "))
}
