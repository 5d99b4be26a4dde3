//! Graphs: one row beside the run, and what happens to the run as its jobs do.

use crate::codec::{At, Columns, Doc, Words};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::event::Level;
use tidemill_core::graph::record::{GraphRecord, JobCounts};
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::run::{EndCause, RunState};
use tidemill_core::{Json, RunId, Timestamp};

/// A graph that is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGraph {
    /// The run.
    pub run_id: RunId,
    /// Its project.
    pub project_id: String,
    /// A name for people.
    pub name: Option<String>,
    /// Whose outputs are shared.
    pub workspace: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// The jobs that were asked for; all of them where it is empty.
    pub only: Vec<String>,
    /// Whether jobs that succeeded before are to run again.
    pub rerun_needed: bool,
    /// Who submitted it.
    pub submitted_by: String,
}

/// A job that did not succeed, as it is told at the end of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Its id.
    pub job_id: String,
    /// Its name.
    pub name: String,
    /// How it ended, or where it is.
    pub code: StatusCode,
    /// What was said about it.
    pub message: Option<String>,
}

impl FromColumns for Ending {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            name: row.text("name")?,
            code: row.parsed("code")?,
            message: row.text_or_null("message")?,
        })
    }
}

impl FromColumns for GraphRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.run_id("run_id")?,
            project_id: row.text("project_id")?,
            status: row.parsed("status")?,
            name: row.text_or_null("name")?,
            workspace: row.text("workspace")?,
            digest: row.text("digest")?,
            only: row.words("only_jobs")?,
            rerun_needed: row.truth("rerun_needed")?,
            submitted_by: row.text("submitted_by")?,
            cancelled_by: row.text_or_null("cancelled_by")?,
            retry_of: row.run_id_or_null("retry_of")?,
            created_at: row.time("created_at")?,
            started_at: row.time_or_null("started_at")?,
            finished_at: row.time_or_null("finished_at")?,
            counts: JobCounts::default(),
            version: 0,
        })
    }
}

/// Jobs of one code, taken over or not.
struct Count {
    code: StatusCode,
    reused: bool,
    jobs: i64,
    version: i64,
}

impl FromColumns for Count {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            code: row.parsed("code")?,
            reused: row.truth("reused")?,
            jobs: row.long("jobs")?,
            version: row.long("version")?,
        })
    }
}

struct State(RunId, RunState);

impl FromColumns for State {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.run_id("run_id")?, row.parsed("status")?))
    }
}

impl Tx<'_> {
    /// Writes a graph.
    pub async fn add_graph(&mut self, graph: &NewGraph, now: Option<Timestamp>) -> Result<(), Error> {
        let now = self.time(now);
        on!(
            self,
            catalog::GRAPH_ADD,
            [
                graph.run_id.as_str(),
                graph.project_id.as_str(),
                graph.name.as_deref(),
                graph.workspace.as_str(),
                graph.digest.as_str(),
                Words(graph.only.clone()),
                graph.rerun_needed,
                graph.submitted_by.as_str(),
                now,
            ],
            execute,
            "write a graph"
        )?;
        Ok(())
    }

    /// Puts on the record of a run what somebody asked for, wherever the run is in its life.
    pub async fn note_request(
        &mut self,
        run: &RunId,
        level: Level,
        message: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        self.lock_run(run).await?;
        let now = self.time(now);
        let binds = (run.as_str(), level.as_str());
        on!(self, catalog::GRAPH_NOTE, [binds.0, binds.1, message, now], execute, "write an event")?;
        Ok(())
    }

    /// Puts a queued run into the lane of graphs, where no worker claims it.
    pub async fn mark_graph_run(&mut self, run: &RunId) -> Result<(), Error> {
        on!(self, catalog::GRAPH_RUN, [run.as_str()], execute, "mark a run")?;
        Ok(())
    }

    /// Makes a run the successor of another.
    pub async fn follow_graph_run(&mut self, run: &RunId, of: &RunId, attempt: i32) -> Result<(), Error> {
        let binds = (run.as_str(), of.as_str());
        on!(self, catalog::GRAPH_RUN_FOLLOW, [binds.0, binds.1, attempt], execute, "mark a run")?;
        Ok(())
    }

    /// Starts the run of a graph. False: it was started, or has ended.
    pub async fn start_graph_run(&mut self, run: &RunId, by: &str, now: Timestamp) -> Result<bool, Error> {
        let at = At(now);
        let taken = on!(self, catalog::GRAPH_RUN_TAKE, [run.as_str(), by, at, at], execute, "start a run")?;
        if taken.count() == 0 {
            return Ok(false);
        }
        on!(self, catalog::RUN_GO, [run.as_str(), Some(at)], execute, "start a run")?;
        on!(self, catalog::RUN_UNLEASE, [run.as_str(), Some(at)], execute, "start a run")?;
        Ok(true)
    }

    /// Ends the run of a graph, with what is to be said in its metadata. False: it had ended.
    pub async fn end_graph_run(
        &mut self,
        run: &RunId,
        status: RunState,
        cause: EndCause,
        metadata: Json,
        now: Timestamp,
    ) -> Result<bool, Error> {
        let ended = on!(
            self,
            catalog::GRAPH_RUN_END,
            [run.as_str(), status.as_str(), cause.as_str(), Doc(metadata.clone()), At(now)],
            execute,
            "end a run"
        )?;
        Ok(ended.count() > 0)
    }

    /// Notes that somebody wants a graph to stop. False: somebody did before.
    pub async fn cancel_graph(
        &mut self,
        run: &RunId,
        by: &str,
        reason: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let noted =
            on!(self, catalog::GRAPH_CANCEL, [run.as_str(), by, reason, now], execute, "cancel a graph")?;
        Ok(noted.count() > 0)
    }

    /// The jobs of a run that did not succeed, in the order of the graph.
    pub async fn graph_endings(&mut self, run: &RunId, limit: usize) -> Result<Vec<Ending>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::GRAPH_ENDS, [run.as_str(), limit], fetch_all, "read a graph")?
            .records("read a graph")
    }

    /// A graph with its counts.
    pub async fn graph(&mut self, run: &RunId) -> Result<Option<GraphRecord>, Error> {
        let found: Option<GraphRecord> =
            on!(self, catalog::GRAPH_GET, [run.as_str()], fetch_optional, "read a graph")?
                .record("read a graph")?;
        let Some(mut graph) = found else { return Ok(None) };
        let counts: Vec<Count> = on!(self, catalog::GRAPH_COUNTS, [run.as_str()], fetch_all, "count jobs")?
            .records("count jobs")?;
        for count in counts {
            graph.counts.total += count.jobs;
            graph.version = graph.version.max(count.version);
            let place = match count.code.state() {
                JobState::Pending => &mut graph.counts.pending,
                JobState::Running => &mut graph.counts.running,
                JobState::Succeeded if count.reused => &mut graph.counts.reused,
                JobState::Succeeded => &mut graph.counts.succeeded,
                JobState::Failed => &mut graph.counts.failed,
            };
            *place += count.jobs;
        }
        Ok(Some(graph))
    }

    /// Runs that go on although every job of them has ended.
    pub async fn open_runs(&mut self, limit: usize) -> Result<Vec<RunId>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let runs: Vec<String> =
            on!(self, catalog::GRAPH_RUN_OPEN, [limit], fetch_all, "read runs")?.records("read runs")?;
        Ok(runs.into_iter().map(RunId::from_database).collect())
    }

    /// Where runs are.
    pub async fn run_states(&mut self, runs: Vec<String>) -> Result<Vec<(RunId, RunState)>, Error> {
        let states: Vec<State> =
            on!(self, catalog::GRAPH_RUN_STATES, [Words(runs.clone())], fetch_all, "read runs")?
                .records("read runs")?;
        Ok(states.into_iter().map(|State(run, status)| (run, status)).collect())
    }
}

impl Store {
    /// A graph with its counts.
    pub async fn graph(&self, run: RunId) -> Result<Option<GraphRecord>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.graph(&run).await })).await
    }
}
