//! What people do to graphs that exist: cancel, retry.

use super::Graphs;
use super::reuse::Reach;
use super::submit::{check_room, keep, new_job, quoted};
use std::collections::{BTreeSet, HashSet};
use tidemill_core::event::Level;
use tidemill_core::job::StatusCode;
use tidemill_core::run::{Cancelled, Lane, QueueRun, Retried, Run, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{Error, NewGraph, NewJob, OldJob, RefusalCode, Tx};

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelledGraph {
    /// Jobs that were asked to stop, and had not been asked before.
    pub jobs: u64,
    /// What it means for the run.
    pub outcome: Cancelled,
}

impl Graphs {
    /// Stops a graph, or some of its jobs by their names. The controller does it; asked twice, it is one wish.
    pub async fn cancel(
        &self,
        run: &RunId,
        jobs: &[String],
        by: &str,
        reason: Option<&str>,
    ) -> Result<CancelledGraph, Error> {
        tidemill_core::request::check_request_by(by, reason)?;
        let cancelled = self
            .engine
            .patience
            .settle("cancel a graph", || {
                let (run, jobs, by, now) = (run.clone(), jobs.to_vec(), by.to_owned(), self.now());
                let reason = reason.map(str::to_owned);
                self.engine.store().write(move |mut tx| {
                    Box::pin(async move { cancel(&mut tx, &run, &jobs, &by, reason.as_deref(), now).await })
                })
            })
            .await?;
        self.bells().ring_controller();
        Ok(cancelled)
    }

    /// Queues a successor of a graph that has ended. What succeeded is reused; what did not runs again, or the
    /// named jobs and everything after them.
    pub async fn retry(&self, run: &RunId, jobs: &[String], by: &str) -> Result<Retried, Error> {
        tidemill_core::request::check_request_by(by, None)?;
        let next = self.engine.clock().run_id();
        let retried = self
            .engine
            .patience
            .settle("retry a graph", || {
                let (run, jobs, by, now) = (run.clone(), jobs.to_vec(), by.to_owned(), self.now());
                let next = next.clone();
                self.engine.store().write(move |mut tx| {
                    Box::pin(async move { retry(&mut tx, &run, &jobs, &by, &next, now).await })
                })
            })
            .await?;
        self.bells().ring_controller();
        Ok(retried)
    }
}

/// The run of a graph, which must exist.
async fn graph_run(tx: &mut Tx<'_>, run: &RunId) -> Result<Run, Error> {
    let found = tx.run(run).await?.filter(|found| found.lane == Lane::Graph);
    found.ok_or_else(|| unknown(run))
}

pub(super) fn unknown(run: &RunId) -> Error {
    Error::refused(RefusalCode::UnknownRun, format!("there is no graph `{run}`"))
}

async fn cancel(
    tx: &mut Tx<'_>,
    run: &RunId,
    names: &[String],
    by: &str,
    reason: Option<&str>,
    now: Option<Timestamp>,
) -> Result<CancelledGraph, Error> {
    let found = graph_run(tx, run).await?;
    check_names(tx, run, names).await?;
    if found.status.is_terminal() {
        tx.unchanged();
        return Ok(CancelledGraph { jobs: 0, outcome: Cancelled::Ended });
    }
    let jobs = tx.cancel_jobs(run, names, by, now).await?;
    if jobs > 0 {
        if names.is_empty() {
            tx.cancel_graph(run, by, reason, now).await?;
        }
        let what = if names.is_empty() { "the graph".to_owned() } else { names_of(names) };
        let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        let told = format!("{by} asked {what} to stop{why}");
        tx.note_request(run, Level::Warn, &told, now).await?;
        // Last, as in a step of the controller: jobs, runs, changes.
        tx.note_change(run.as_str()).await?;
    }
    Ok(CancelledGraph { jobs, outcome: Cancelled::Requested })
}

fn names_of(names: &[String]) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("job {}", quoted(&names))
}

/// Refuses names that no job of the run has.
async fn check_names(tx: &mut Tx<'_>, run: &RunId, names: &[String]) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    let known = tx.job_names(run, names.to_vec()).await?;
    let strange: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !known.iter().any(|known| known == name)).collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(Error::refused(RefusalCode::UnknownJob, format!("graph {run} has no job {}", quoted(&strange))))
}

async fn retry(
    tx: &mut Tx<'_>,
    run: &RunId,
    names: &[String],
    by: &str,
    next: &RunId,
    now: Option<Timestamp>,
) -> Result<Retried, Error> {
    let found = graph_run(tx, run).await?;
    check_names(tx, run, names).await?;
    if let Some(run_id) = tx.successor(run).await? {
        return Ok(Retried { created: run_id == *next, run_id });
    }
    if !found.status.is_terminal() {
        let message = format!("graph {run} is {}: only what has ended is tried again", found.status);
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
    let told = format!("{by} tries graph {run} again; {reused} of {} jobs are reused", jobs.len());
    tx.note_request(&run_id, Level::Info, &told, now).await?;
    Ok(Retried { run_id, created: true })
}

/// A successor of a run that succeeded, of which somebody wants jobs again.
async fn follow(tx: &mut Tx<'_>, found: &Run, next: &RunId, now: Option<Timestamp>) -> Result<RunId, Error> {
    let mut request = QueueRun::new(&found.project_id, found.env_id.name());
    request.metadata = serde_json::json!({"graph": found.metadata.get("graph")});
    request.git_sha.clone_from(&found.git_sha);
    request.git_ref.clone_from(&found.git_ref);
    request.priority = found.priority;
    tx.queue_run(&request, next, now).await?;
    tx.follow_graph_run(next, &found.run_id, found.attempt + 1).await?;
    Ok(next.clone())
}

/// The jobs of a successor.
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
    // From the beginning: what is needed stands before what needs it.
    for job in &old {
        let asked = if names.is_empty() { !succeeded(job) } else { names.contains(job.spec.name.as_str()) };
        if asked || job.spec.needs.iter().any(|need| again.contains(need.as_str())) {
            again.insert(&job.spec.name);
        }
    }
    let reach = Reach::read(tx, old.iter().filter(|job| succeeded(job)).map(|job| &job.last)).await?;
    let mut good = good;
    // From the end: what did not succeed and is needed after all runs too, and so does what succeeded and whose files
    // nobody can bring any more; what is not needed is left out.
    let mut wanted = again.clone();
    if names.is_empty() {
        wanted.extend(old.iter().map(|job| job.spec.name.as_str()));
    }
    for job in old.iter().rev() {
        if again.contains(job.spec.name.as_str()) {
            let reused = job.spec.needs.iter().filter(|need| !again.contains(need.as_str()));
            for need in reach.lacking(reused) {
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
        let message = format!("every job of graph {run} succeeded: name the ones to run again");
        return Err(Error::refused(RefusalCode::NotRetryable, message));
    }
    let chosen = old.iter().filter(|job| wanted.contains(job.spec.name.as_str()) || succeeded(job));
    let jobs = chosen.zip(0_i32..).map(|(job, position)| {
        let reused = (!again.contains(job.spec.name.as_str())).then(|| job.last.clone());
        new_job(next, &job.spec, position, job.requested, reused)
    });
    Ok(jobs.collect())
}
