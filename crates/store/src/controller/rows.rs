//! Rows that a controller reads: live jobs, their dependencies, open tasks and changes.

use crate::codec::{Columns, SqlTextList};
use crate::tx::{FromColumns, on};
use crate::{Error, Tx, catalog};
use tidemill_core::job::StatusCode;
use tidemill_core::task::{Stage, TaskKind, TaskResult};
use tidemill_core::{RunId, Timestamp};
use uuid::Uuid;

/// A live job, with the columns that a controller needs. Unlike `JobRecord` it has no definition and no history,
/// because a controller holds all live jobs in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveJob {
    pub job_id: String,
    pub run_id: RunId,
    /// Position in the graph.
    pub position: i32,
    pub project_id: String,
    pub workspace: String,
    pub name: String,
    /// Labels that an agent must offer.
    pub labels: Vec<String>,
    /// Capacity that the job uses on its agent.
    pub weight: i32,
    /// Pool that limits it.
    pub pool: Option<String>,
    /// Retries after the command failed.
    pub retries: i32,
    /// Seconds of silence after which the job is lost. Without it, the job waits for its agent.
    pub lost_secs: Option<i32>,
    pub code: StatusCode,
    pub message: Option<String>,
    /// Tasks that failed for reasons outside the command.
    pub errors: i32,
    /// Failed runs of the command.
    pub failures: i32,
    /// Earliest time of the next task.
    pub not_before: Option<Timestamp>,
    /// Number of tasks so far.
    pub task_number: i32,
    pub task_id: Option<String>,
    pub agent_id: Option<Uuid>,
    pub exit_code: Option<i32>,
    /// Whether a cancel task is not confirmed yet.
    pub stopping: bool,
    pub created_at: Timestamp,
    /// Creation time of the last task.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Whether a cancel was requested.
    pub cancelled: bool,
}

impl FromColumns for LiveJob {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            run_id: row.run_id("run_id")?,
            position: row.int("position")?,
            project_id: row.text("project_id")?,
            workspace: row.text("workspace")?,
            name: row.text("name")?,
            labels: row.words("labels")?,
            weight: row.int("weight")?,
            pool: row.text_or_null("pool")?,
            retries: row.int("retries")?,
            lost_secs: row.int_or_null("lost_secs")?,
            code: row.parsed("code")?,
            message: row.text_or_null("message")?,
            errors: row.int("errors")?,
            failures: row.int("failures")?,
            not_before: row.time_or_null("not_before")?,
            task_number: row.int("task_number")?,
            task_id: row.text_or_null("task_id")?,
            agent_id: row.uuid_or_null("agent_id")?,
            exit_code: row.int_or_null("exit_code")?,
            stopping: row.truth("stopping")?,
            created_at: row.time("created_at")?,
            started_at: row.time_or_null("started_at")?,
            ended_at: row.time_or_null("ended_at")?,
            cancelled: row.time_or_null("cancelled_at")?.is_some(),
        })
    }
}

/// A dependency of a live job that has not succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNeed {
    pub job_id: String,
    /// Id of the needed job.
    pub needs: String,
    /// Name of the needed job.
    pub name: String,
    /// Status of the needed job.
    pub code: StatusCode,
}

impl FromColumns for LiveNeed {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            needs: row.text("needs")?,
            name: row.text("name")?,
            code: row.parsed("code")?,
        })
    }
}

/// An open task and the reports of its agent.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveTask {
    pub task_id: String,
    pub job_id: String,
    pub kind: TaskKind,
    pub agent_id: Uuid,
    /// Last stage that the agent reported.
    pub stage: Option<Stage>,
    pub result: Option<TaskResult>,
    /// Whether it left outputs that exist only on its agent.
    pub keeps: bool,
    /// For a cancel task: whether the agent had started the cancelled task.
    pub cancelled_begun: bool,
    /// For a cancel task: whether the cancelled task ended by itself.
    pub cancelled_over: bool,
}

impl FromColumns for LiveTask {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let result = row.json_or_null("result")?;
        Ok(Self {
            task_id: row.text("task_id")?,
            job_id: row.text("job_id")?,
            kind: row.parsed("kind")?,
            agent_id: row.uuid("agent_id")?,
            stage: row.parsed_or_null("stage")?,
            result: result.map(crate::tasks::task_result),
            keeps: row.truth("keeps")?,
            cancelled_begun: row.text_or_null("cancelled_stage")?.is_some(),
            cancelled_over: row.truth("cancelled_over")?,
        })
    }
}

/// A job or run that changed since the controller last read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Id of a job or a run.
    pub subject: String,
    /// Number of the change.
    pub version: i64,
}

impl FromColumns for Change {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { subject: row.text("subject")?, version: row.long("version")? })
    }
}

/// A job named by a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedJob {
    pub job_id: String,
    pub run_id: RunId,
    /// Whether a cancel was requested.
    pub cancelled: bool,
    pub code: StatusCode,
}

impl FromColumns for NamedJob {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            job_id: row.text("job_id")?,
            run_id: row.run_id("run_id")?,
            cancelled: row.truth("cancelled")?,
            code: row.parsed("code")?,
        })
    }
}

impl Tx<'_> {
    /// Returns jobs and runs that changed.
    pub async fn changes(&mut self, limit: usize) -> Result<Vec<Change>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::CHANGE_LIST, [limit], fetch_all, "list changes")?.records("list changes")
    }

    /// Returns every live job, or those of some runs.
    pub async fn live_jobs(&mut self, runs: Option<Vec<String>>) -> Result<Vec<LiveJob>, Error> {
        match runs {
            None => on!(self, catalog::JOB_LIVE, [], fetch_all, "read live jobs")?,
            Some(runs) => {
                on!(self, catalog::JOB_LIVE_OF_RUNS, [SqlTextList(runs)], fetch_all, "read live jobs")?
            }
        }
        .readable_groups("jobs", "job_id", "run_id")
        .map_err(|source| Error::database("read live jobs", source))
    }

    /// Returns jobs that have ended while one of their tasks is still open.
    pub async fn orphaned_jobs(&mut self) -> Result<Vec<LiveJob>, Error> {
        on!(self, catalog::JOB_ASTRAY, [], fetch_all, "read live jobs")?
            .readable_groups("jobs", "job_id", "run_id")
            .map_err(|source| Error::database("read live jobs", source))
    }

    /// Returns unmet dependencies of live jobs, of every run or of some.
    pub async fn live_needs(&mut self, runs: Option<Vec<String>>) -> Result<Vec<LiveNeed>, Error> {
        match runs {
            None => on!(self, catalog::NEED_LIVE, [], fetch_all, "read needs")?,
            Some(runs) => {
                on!(self, catalog::NEED_LIVE_OF_RUNS, [SqlTextList(runs)], fetch_all, "read needs")?
            }
        }
        .records("read needs")
    }

    /// Returns every open task, or those of some jobs.
    pub async fn live_tasks(&mut self, jobs: Option<Vec<String>>) -> Result<Vec<LiveTask>, Error> {
        match jobs {
            None => on!(self, catalog::TASK_ACTIVE, [], fetch_all, "read tasks")?,
            Some(jobs) => {
                on!(self, catalog::TASK_ACTIVE_OF_JOBS, [SqlTextList(jobs)], fetch_all, "read tasks")?
            }
        }
        .records("read tasks")
    }

    /// Returns the current state of these jobs.
    pub async fn named_jobs(&mut self, jobs: Vec<String>) -> Result<Vec<NamedJob>, Error> {
        on!(self, catalog::JOB_WISHES, [SqlTextList(jobs)], fetch_all, "read cancel requests")?
            .records("read cancel requests")
    }
}
