//! Operations on existing graphs: cancel and retry.

use super::Graphs;
use super::reuse::OutputLocations;
use super::submit::{check_room, keep, new_job, quoted};
use std::collections::{BTreeSet, HashSet};
use tidemill_core::event::Level;
use tidemill_core::job::StatusCode;
use tidemill_core::run::{CancelOutcome, Lane, QueueRun, RetryOutcome, Run, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{Error, NewGraph, NewJob, OldJob, RefusalCode, Tx};

/// Outcome of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphCancelOutcome {
    /// Number of jobs for which a cancel was newly requested.
    pub jobs: u64,
    pub outcome: CancelOutcome,
}

impl Graphs {
    /// Requests that a graph, or some of its jobs by name, stops. The controller executes the request. Idempotent.
    pub async fn cancel(
        &self,
        run: &RunId,
        jobs: &[String],
        by: &str,
        reason: Option<&str>,
    ) -> Result<GraphCancelOutcome, Error> {
        tidemill_core::request::check_request_by(by, reason)?;
        let cancelled = self
            .engine
            .retry_policy
            .retry("cancel a graph", || {
                let (run, jobs, by, now) = (run.clone(), jobs.to_vec(), by.to_owned(), self.now());
                let reason = reason.map(str::to_owned);
                self.engine.store().write(move |mut tx| {
                    Box::pin(async move { cancel(&mut tx, &run, &jobs, &by, reason.as_deref(), now).await })
                })
            })
            .await?;
        self.notifiers().wake_controller();
        Ok(cancelled)
    }

    /// Queues a successor of an ended graph. Succeeded jobs are reused. All other jobs run again; if `jobs` is not
    /// empty, these jobs and all that depend on them run again instead.
    pub async fn retry(&self, run: &RunId, jobs: &[String], by: &str) -> Result<RetryOutcome, Error> {
        tidemill_core::request::check_request_by(by, None)?;
        let next = self.engine.clock().run_id();
        let retried = self
            .engine
            .retry_policy
            .retry("retry a graph", || {
                let (run, jobs, by, now) = (run.clone(), jobs.to_vec(), by.to_owned(), self.now());
                let next = next.clone();
                self.engine.store().write(move |mut tx| {
                    Box::pin(async move { retry(&mut tx, &run, &jobs, &by, &next, now).await })
                })
            })
            .await?;
        self.notifiers().wake_controller();
        Ok(retried)
    }
}

/// Returns the run of a graph, or an error if it does not exist.
async fn graph_run(tx: &mut Tx<'_>, run: &RunId) -> Result<Run, Error> {
    let found = tx.run(run).await?.filter(|found| found.lane == Lane::Graph);
    found.ok_or_else(|| unknown(run))
}

pub(super) fn unknown(run: &RunId) -> Error {
    Error::refused(RefusalCode::UnknownRun, format!("graph `{run}` does not exist"))
}

async fn cancel(
    tx: &mut Tx<'_>,
    run: &RunId,
    names: &[String],
    by: &str,
    reason: Option<&str>,
    now: Option<Timestamp>,
) -> Result<GraphCancelOutcome, Error> {
    let found = graph_run(tx, run).await?;
    check_names(tx, run, names).await?;
    if found.status.is_terminal() {
        tx.skip_audit();
        return Ok(GraphCancelOutcome { jobs: 0, outcome: CancelOutcome::Ended });
    }
    let jobs = tx.cancel_jobs(run, names, by, now).await?;
    if jobs > 0 {
        if names.is_empty() {
            tx.cancel_graph(run, by, reason, now).await?;
        }
        let what = if names.is_empty() { "the graph".to_owned() } else { names_of(names) };
        let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let text = format!("{by} asked {what} to stop{why}");
        tx.record_request(run, Level::Warn, &text, now).await?;
        // Last, in the same lock order as the controller: jobs, runs, changes.
        tx.mark_changed(run.as_str()).await?;
    } else {
        tx.skip_audit();
    }
    Ok(GraphCancelOutcome { jobs, outcome: CancelOutcome::Requested })
}

fn names_of(names: &[String]) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("job {}", quoted(&names))
}

/// Refuses names of unknown jobs.
async fn check_names(tx: &mut Tx<'_>, run: &RunId, names: &[String]) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    let known = tx.job_names(run, names.to_vec()).await?;
    let unknown_names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !known.iter().any(|known| known == name)).collect();
    if unknown_names.is_empty() {
        return Ok(());
    }
    Err(Error::refused(RefusalCode::UnknownJob, format!("graph {run} has no job {}", quoted(&unknown_names))))
}

async fn retry(
    tx: &mut Tx<'_>,
    run: &RunId,
    names: &[String],
    by: &str,
    next: &RunId,
    now: Option<Timestamp>,
) -> Result<RetryOutcome, Error> {
    let found = graph_run(tx, run).await?;
    check_names(tx, run, names).await?;
    if let Some(run_id) = tx.successor(run).await? {
        // If the successor has our id, an earlier attempt of this call was committed with the entry.
        tx.skip_audit();
        return Ok(RetryOutcome { created: run_id == *next, run_id });
    }
    if !found.status.is_terminal() {
        let message = format!("graph {run} is {}; only an ended graph can be retried", found.status);
        return Err(Error::refused(RefusalCode::NotRetryable, message));
    }
    let moment = tx.database_now(now).await?;
    let run_id = if found.status == RunState::Success && !names.is_empty() {
        follow(tx, &found, next, now).await?
    } else {
        tx.retry_graph_run(run, by, now).await?.run_id
    };
    tx.mark_graph_run(&run_id).await?;
    let Some(graph) = tx.graph(run).await? else { return Err(unknown(run)) };
    let jobs = choose_again(tx, run, &run_id, names).await?;
    check_room(tx, &jobs, &found.project_id, moment).await?;
    let new = NewGraph {
        run_id: run_id.clone(),
        project_id: graph.project_id,
        name: graph.name,
        workspace: graph.workspace,
        digest: graph.digest,
        only: names.to_vec(),
        rerun_needed: false,
        submitted_by: by.to_owned(),
    };
    keep(tx, &new, &jobs, moment).await?;
    let reused = jobs.iter().filter(|job| job.reused.is_some()).count();
    let text = format!("{by} tries graph {run} again; {reused} of {} jobs are reused", jobs.len());
    tx.record_request(&run_id, Level::Info, &text, now).await?;
    Ok(RetryOutcome { run_id, created: true })
}

/// Creates a successor of a succeeded run whose jobs are to run again.
async fn follow(tx: &mut Tx<'_>, found: &Run, next: &RunId, now: Option<Timestamp>) -> Result<RunId, Error> {
    let mut request = QueueRun::new(&found.project_id, found.env_id.name());
    request.metadata = serde_json::json!({"graph": found.metadata.get("graph")});
    request.git_sha.clone_from(&found.git_sha);
    request.git_ref.clone_from(&found.git_ref);
    request.priority = found.priority;
    request.kind.clone_from(&found.kind);
    tx.queue_run(&request, next, now).await?;
    tx.follow_graph_run(next, &found.run_id, found.attempt + 1).await?;
    Ok(next.clone())
}

/// Selects the jobs of a successor.
async fn choose_again(
    tx: &mut Tx<'_>,
    run: &RunId,
    next: &RunId,
    names: &[String],
) -> Result<Vec<NewJob>, Error> {
    let old = tx.old_jobs(run).await?;
    let succeeded = |job: &OldJob| job.last.code == StatusCode::Succeeded;
    let good: HashSet<&str> =
        old.iter().filter(|job| succeeded(job)).map(|job| job.spec.name.as_str()).collect();
    let names: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut again: BTreeSet<&str> = BTreeSet::new();
    // Forwards: needed jobs come before the jobs that need them.
    for job in &old {
        let is_requested =
            if names.is_empty() { !succeeded(job) } else { names.contains(job.spec.name.as_str()) };
        if is_requested || job.spec.needs.iter().any(|need| again.contains(need.as_str())) {
            again.insert(&job.spec.name);
        }
    }
    let locations =
        OutputLocations::read(tx, old.iter().filter(|job| succeeded(job)).map(|job| &job.last)).await?;
    let mut good = good;
    // Backwards: a needed job also runs again if it did not succeed or if its outputs can no longer be brought. Jobs
    // that are not needed are left out.
    let mut wanted = again.clone();
    if names.is_empty() {
        wanted.extend(old.iter().map(|job| job.spec.name.as_str()));
    }
    for job in old.iter().rev() {
        if again.contains(job.spec.name.as_str()) {
            let reused = job.spec.needs.iter().filter(|need| !again.contains(need.as_str()));
            for need in locations.unreachable_needs(reused) {
                good.remove(need.as_str());
            }
            for need in &job.spec.needs {
                wanted.insert(need);
                if !good.contains(need.as_str()) {
                    again.insert(need);
                }
            }
        }
    }
    if again.is_empty() {
        let message = format!("every job of graph {run} succeeded; name the jobs to run again");
        return Err(Error::refused(RefusalCode::NotRetryable, message));
    }
    let chosen = old.iter().filter(|job| wanted.contains(job.spec.name.as_str()) || succeeded(job));
    let jobs = chosen.zip(0_i32..).map(|(job, position)| {
        let reused = (!again.contains(job.spec.name.as_str())).then(|| job.last.clone());
        new_job(next, &job.spec, position, job.requested, reused)
    });
    Ok(jobs.collect())
}
