//! One step of a controller: everything that it decided, in one transaction, guarded by its lease.

use super::super::clean;
use std::collections::{BTreeMap, HashMap};
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::job::StatusCode;
use tidemill_core::limits::TAIL_LINES;
use tidemill_core::project::Flag;
use tidemill_core::run::{EndCause, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_store::{
    Change, EndTask, Ending, Error, Holder, JobWrite, Lease, NewTask, RefusalCode, Store, Tx,
};

/// Jobs that are named at the end of a run.
const NAMED_MAX: usize = 20;
/// Failures whose output is shown, in one step.
const SHOWN_MAX: usize = 50;
/// Bytes of a line that is shown.
const LINE_BYTES_MAX: usize = 1_000;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It was written.
    Done,
    /// Something was switched on or off meanwhile: nothing was written.
    Moved,
    /// Another process controls: nothing was written.
    Stale,
}

/// What a controller decided, and has not written yet.
#[derive(Debug)]
pub struct Draft {
    pub(super) now: Timestamp,
    /// What was switched on when it was decided.
    flags: Vec<Flag>,
    pub(super) full: bool,
    pub(super) more: bool,
    /// Whether a job begins.
    pub(super) begins: bool,
    pub(super) changes: Vec<Change>,
    pub(super) jobs: Vec<JobWrite>,
    pub(super) tasks: Vec<NewTask>,
    pub(super) ends: Vec<EndTask>,
    pub(super) starts: Vec<RunId>,
    pub(super) run_ends: Vec<RunId>,
    pub(super) failures: Vec<Failure>,
    pub(super) notes: Vec<Note>,
}

/// Something that people should know of a run, also where it has ended.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) run_id: RunId,
    pub(super) text: String,
}

/// A job that failed by itself, as it is told in the record of its run.
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
            notes: Vec::new(),
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.changes.is_empty() && self.run_ends.is_empty()
    }

    /// Jobs that it changes.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }
}

pub(super) async fn write(store: &Store, lease: Lease, name: &str, draft: Draft) -> Result<Written, Error> {
    let name = name.to_owned();
    store.write(move |mut tx| Box::pin(async move { step(&mut tx, lease, &name, draft).await })).await
}

async fn step(tx: &mut Tx<'_>, lease: Lease, name: &str, draft: Draft) -> Result<Written, Error> {
    let now = draft.now;
    let Some(version) = tx.raise_version(lease, draft.jobs.len()).await? else { return Ok(Written::Stale) };
    if draft.begins {
        // The version's row is locked: what is switched on from now on waits until this step is there.
        let on: Vec<Flag> = tx.flags().await?.into_iter().filter(|flag| flag.is_on(now)).collect();
        if on != draft.flags {
            return Ok(Written::Moved);
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
    tell_failures(tx, &draft.failures, now).await?;
    for run in &draft.run_ends {
        end_run(tx, run, name, now).await?;
    }
    for note in &draft.notes {
        tx.note_request(&note.run_id, Level::Error, &note.text, Some(now)).await?;
    }
    tx.seen_changes(&draft.changes).await?;
    Ok(Written::Done)
}

/// What the controller believed is not so any more: it takes the step back, and reads everything.
fn moved() -> Error {
    Error::refused(RefusalCode::Stale, "jobs or tasks have moved on since the controller looked")
}

/// Puts jobs that failed on the record of their runs, with the last lines of their output.
async fn tell_failures(tx: &mut Tx<'_>, failures: &[Failure], now: Timestamp) -> Result<(), Error> {
    let mut events: BTreeMap<&RunId, Vec<NewEvent>> = BTreeMap::new();
    for (place, failure) in failures.iter().enumerate() {
        let tail = match &failure.task_id {
            Some(task) if place < SHOWN_MAX => tx.log_tail(task, TAIL_LINES).await?,
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
        tx.append_events(run, &events, &Holder::default(), Some(now)).await?;
    }
    Ok(())
}

/// Ends a run whose last job has ended.
async fn end_run(tx: &mut Tx<'_>, run: &RunId, name: &str, now: Timestamp) -> Result<(), Error> {
    let Some(graph) = tx.graph(run).await? else { return Ok(()) };
    let endings = tx.graph_endings(run, NAMED_MAX).await?;
    let (status, cause) = outcome(&endings);
    if status != RunState::Cancelled {
        // It may end without a job that began; a run that was not running does not end otherwise.
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

/// How a run ends: the jobs that failed by themselves stand first, then those that people stopped.
fn outcome(endings: &[Ending]) -> (RunState, EndCause) {
    match endings.first().map(|job| job.code) {
        None => (RunState::Success, EndCause::Reported),
        Some(StatusCode::CancelledByUser) => (RunState::Cancelled, EndCause::Cancelled),
        Some(_) => (RunState::Failed, EndCause::Reported),
    }
}

fn sentence(endings: &[Ending], failed: i64, total: i64) -> String {
    let named: Vec<String> =
        endings.iter().take(3).map(|job| format!("{} ({})", job.name, job.code)).collect();
    let more = if failed > 3 { " and others" } else { "" };
    format!("{failed} of {total} jobs did not succeed: {}{more}", named.join(", "))
}
