//! Graphs: one row next to the run, and the changes of the run that follow from its jobs.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::event::Level;
use tidemill_core::graph::record::{GraphRecord, JobCounts};
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::run::{EndCause, RunState};
use tidemill_core::{Json, RunId, Timestamp};

/// The content of a graph to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGraph {
    pub run_id: RunId,
    pub project_id: String,
    pub name: Option<String>,
    /// Scope in which outputs are reused.
    pub workspace: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// Requested jobs; all if empty.
    pub only: Vec<String>,
    /// Whether needed jobs that succeeded before run again.
    pub rerun_needed: bool,
    pub submitted_by: String,
}

/// A job that did not succeed, for the report at the end of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnding {
    pub job_id: String,
    pub name: String,
    pub code: StatusCode,
    pub message: Option<String>,
}

impl FromColumns for JobEnding {
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

/// Number of jobs with one status code, by whether they were reused.
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

struct RunStateRow(RunId, RunState);

impl FromColumns for RunStateRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.run_id("run_id")?, row.parsed("status")?))
    }
}

impl Tx<'_> {
    /// Writes the graph of a run that is queued, with its creation time.
    pub async fn add_graph(&mut self, graph: &NewGraph) -> Result<(), Error> {
        on!(
            self,
            catalog::GRAPH_ADD,
            [
                graph.run_id.as_str(),
                graph.project_id.as_str(),
                graph.name.as_deref(),
                graph.workspace.as_str(),
                graph.digest.as_str(),
                SqlTextList(graph.only.clone()),
                graph.rerun_needed,
                graph.submitted_by.as_str(),
            ],
            execute,
            "write a graph"
        )?;
        Ok(())
    }

    /// Adds an event about a user's request to a run, in any state of the run.
    pub async fn record_request(
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

    /// Moves a queued run into the graph lane, where no worker claims it.
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

    /// Starts the run of a graph. Returns false if it was started or has ended.
    pub async fn start_graph_run(&mut self, run: &RunId, by: &str, now: Timestamp) -> Result<bool, Error> {
        let at = SqlTime(now);
        let taken = on!(self, catalog::GRAPH_RUN_TAKE, [run.as_str(), by, at, at], execute, "start a run")?;
        if taken.count() == 0 {
            return Ok(false);
        }
        on!(self, catalog::RUN_GO, [run.as_str(), Some(at)], execute, "start a run")?;
        on!(self, catalog::RUN_UNLEASE, [run.as_str(), Some(at)], execute, "start a run")?;
        Ok(true)
    }

    /// Ends the run of a graph with this metadata. Returns false if it had ended.
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
            [run.as_str(), status.as_str(), cause.as_str(), SqlJson(metadata.clone()), SqlTime(now)],
            execute,
            "end a run"
        )?;
        Ok(ended.count() > 0)
    }

    /// Records a cancel request for a graph. Returns false if there was one.
    pub async fn cancel_graph(
        &mut self,
        run: &RunId,
        by: &str,
        reason: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let updated =
            on!(self, catalog::GRAPH_CANCEL, [run.as_str(), by, reason, now], execute, "cancel a graph")?;
        Ok(updated.count() > 0)
    }

    /// Returns the jobs of a run that did not succeed, in graph order.
    pub async fn graph_endings(&mut self, run: &RunId, limit: usize) -> Result<Vec<JobEnding>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::GRAPH_ENDS, [run.as_str(), limit], fetch_all, "read a graph")?
            .records("read a graph")
    }

    /// Returns a graph with its job counts.
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

    /// Returns open runs whose jobs have all ended.
    pub async fn open_runs(&mut self, limit: usize) -> Result<Vec<RunId>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let runs: Vec<String> =
            on!(self, catalog::GRAPH_RUN_OPEN, [limit], fetch_all, "read runs")?.records("read runs")?;
        Ok(runs.into_iter().map(RunId::from_database).collect())
    }

    /// Returns the states of runs.
    pub async fn run_states(&mut self, runs: Vec<String>) -> Result<Vec<(RunId, RunState)>, Error> {
        let states: Vec<RunStateRow> =
            on!(self, catalog::GRAPH_RUN_STATES, [SqlTextList(runs.clone())], fetch_all, "read runs")?
                .records("read runs")?;
        Ok(states.into_iter().map(|RunStateRow(run, status)| (run, status)).collect())
    }
}

impl Store {
    /// Returns a graph with its job counts.
    pub async fn graph(&self, run: RunId) -> Result<Option<GraphRecord>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.graph(&run).await })).await
    }
}
