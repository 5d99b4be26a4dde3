//! Changes that a controller writes: jobs, new tasks and ended tasks.

use super::Change;
use crate::codec::{SqlJson, SqlTime};
use crate::tx::on;
use crate::{Error, Tx, catalog};
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::StatusCode;
use tidemill_core::task::TaskKind;
use tidemill_core::{Json, RunId, Timestamp};
use uuid::Uuid;

/// An update of a job: only the columns that a controller may change, with the status that it expects to find.
#[derive(Debug, Clone, PartialEq)]
pub struct JobWrite {
    pub job_id: String,
    /// Status that the controller expects to find.
    pub from: StatusCode,
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
    /// Creation time of the last task.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// The content of a task to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    pub task_id: String,
    pub job_id: String,
    pub run_id: RunId,
    pub kind: TaskKind,
    /// Attempt of the job.
    pub number: i32,
    pub agent_id: Uuid,
    /// Task that this task cancels.
    pub cancels: Option<String>,
}

/// An open task to end, with the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndTask {
    pub task_id: String,
    pub end: TaskEnd,
}

impl EndTask {
    /// Returns the state that the task must be in, because a report of its agent may have arrived meanwhile.
    const fn believes(&self) -> &'static str {
        match self.end {
            TaskEnd::Withdrawn => "untouched",
            TaskEnd::Lost | TaskEnd::Forgotten => "unanswered",
            TaskEnd::Taken | TaskEnd::Stopped => "anything",
        }
    }
}

impl Tx<'_> {
    /// Writes jobs with the versions up to `last`; returns how many were in the expected status.
    pub async fn write_jobs(&mut self, jobs: &[JobWrite], last: i64, now: Timestamp) -> Result<u64, Error> {
        if jobs.is_empty() {
            return Ok(0);
        }
        let first = last - i64::try_from(jobs.len()).unwrap_or(i64::MAX);
        let rows: Vec<Json> =
            jobs.iter().zip(first + 1..).map(|(job, version)| self.write_row(job, version)).collect();
        let written = on!(
            self,
            catalog::JOB_WRITE,
            [SqlJson(Json::from(rows.clone())), SqlTime(now)],
            execute,
            "write jobs"
        )?;
        Ok(written.count())
    }

    fn write_row(&self, job: &JobWrite, version: i64) -> Json {
        serde_json::json!({
            "job_id": job.job_id,
            "from_code": job.from,
            "code": job.code,
            "message": job.message,
            "errors": job.errors,
            "failures": job.failures,
            "not_before": self.stamp(job.not_before),
            "task_number": job.task_number,
            "task_id": job.task_id,
            "agent_id": job.agent_id,
            "exit_code": job.exit_code,
            "stopping": job.stopping,
            "started_at": self.stamp(job.started_at),
            "ended_at": self.stamp(job.ended_at),
            "version": version,
        })
    }

    /// Creates tasks for agents.
    pub async fn add_tasks(&mut self, tasks: &[NewTask], now: Timestamp) -> Result<(), Error> {
        if tasks.is_empty() {
            return Ok(());
        }
        let created_at = self.stamp(Some(now));
        let rows: Vec<Json> = tasks
            .iter()
            .map(|task| {
                serde_json::json!({
                    "task_id": task.task_id,
                    "job_id": task.job_id,
                    "run_id": task.run_id,
                    "kind": task.kind,
                    "number": task.number,
                    "agent_id": task.agent_id,
                    "cancels": task.cancels,
                    "created_at": created_at,
                })
            })
            .collect();
        on!(self, catalog::TASK_ADD, [SqlJson(Json::from(rows.clone()))], execute, "write tasks")?;
        Ok(())
    }

    /// Ends tasks; returns how many were in the expected state.
    pub async fn end_tasks(&mut self, tasks: &[EndTask], now: Timestamp) -> Result<u64, Error> {
        if tasks.is_empty() {
            return Ok(0);
        }
        let row = |task: &EndTask| {
            let (end, believes) = (task.end, task.believes());
            serde_json::json!({"task_id": task.task_id, "end_cause": end, "believes": believes})
        };
        let rows: Vec<Json> = tasks.iter().map(row).collect();
        let ended = on!(
            self,
            catalog::TASK_END,
            [SqlJson(Json::from(rows.clone())), SqlTime(now)],
            execute,
            "end tasks"
        )?;
        Ok(ended.count())
    }

    /// Deletes processed changes, unless a newer change of the same subject arrived.
    pub async fn remove_changes(&mut self, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let row = |change: &Change| serde_json::json!({"subject": change.subject, "version": change.version});
        let rows: Vec<Json> = changes.iter().map(row).collect();
        on!(self, catalog::CHANGE_SEEN, [SqlJson(Json::from(rows.clone()))], execute, "delete changes")?;
        Ok(())
    }
}
