//! Stored graphs, jobs and tasks, as the HTTP API returns them.

use super::definition::JobSpec;
use crate::job::{JobState, StatusCode};
use crate::label::labelled;
use crate::run::RunState;
use crate::task::{Output, Stage, TaskKind, TaskResult};
use crate::{RunId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A submitted graph and its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphRecord {
    /// Id of the run.
    pub run_id: RunId,
    /// Project of the run.
    pub project_id: String,
    /// State of the run.
    pub status: RunState,
    pub name: Option<String>,
    /// Workspace, whose graphs share outputs.
    pub workspace: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// Requested jobs; empty for all.
    pub only: Vec<String>,
    /// Whether needed jobs run again although they succeeded before.
    pub rerun_needed: bool,
    /// Name of the caller who submitted it.
    pub submitted_by: String,
    /// Name of the caller who cancelled it.
    pub cancelled_by: Option<String>,
    /// Run of which this one is a retry.
    pub retry_of: Option<RunId>,
    pub created_at: Timestamp,
    /// Time at which the first job started.
    pub started_at: Option<Timestamp>,
    /// Time at which the last job ended.
    pub finished_at: Option<Timestamp>,
    /// Numbers of jobs by state.
    pub counts: JobCounts,
    /// Highest version of its jobs; pass it as `changed_after` to read later changes.
    pub version: i64,
}

/// Numbers of jobs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobCounts {
    pub total: i64,
    pub pending: i64,
    /// Jobs that are assigned to agents.
    pub running: i64,
    /// Jobs that succeeded in this run.
    pub succeeded: i64,
    /// Jobs that succeeded in an earlier run and were reused.
    pub reused: i64,
    /// Jobs that failed or were cancelled.
    pub failed: i64,
}

/// A stored job, as the HTTP API returns it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRecord {
    /// Id of the job.
    pub job_id: String,
    /// Run of the job.
    pub run_id: RunId,
    /// Project of the run.
    pub project_id: String,
    /// Workspace of the run.
    pub workspace: String,
    /// Name of the job.
    pub name: String,
    /// Position in the graph, counted from 0; each job follows the jobs that it needs.
    pub position: i32,
    /// State of the job.
    pub state: JobState,
    /// Status code: the detailed state.
    pub code: StatusCode,
    /// Explanation of the status code.
    pub message: Option<String>,
    /// Whether the job was requested; otherwise it is only needed by others.
    pub requested: bool,
    /// Job of an earlier run whose result is reused.
    pub reused_from: Option<String>,
    /// Share of the agent's capacity and of the pool that the job takes.
    pub weight: i32,
    /// Pool that limits how many such jobs run at the same time.
    pub pool: Option<String>,
    /// Id of the last task.
    pub task_id: Option<String>,
    /// Number of tasks so far.
    pub tasks: i32,
    /// Agent of the last task.
    pub agent_id: Option<Uuid>,
    /// Exit code of the last task's command.
    pub exit_code: Option<i32>,
    /// Failed tasks, not counting failures of the command itself.
    pub errors: i32,
    /// Failures of the command.
    pub failures: i32,
    /// No new task starts before this time.
    pub not_before: Option<Timestamp>,
    /// Whether the order to stop the last task is unconfirmed.
    pub stopping: bool,
    /// Time of the request to cancel.
    pub cancelled_at: Option<Timestamp>,
    /// Name of the caller who cancelled it.
    pub cancelled_by: Option<String>,
    /// Version, which increases with every change of any job; pass it as `changed_after` to read later changes.
    pub version: i64,
    pub created_at: Timestamp,
    /// Time at which the current task was created.
    pub started_at: Option<Timestamp>,
    /// Time at which the job ended.
    pub ended_at: Option<Timestamp>,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Dependencies of a job, as positions in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobNeeds {
    /// Position of the job.
    pub position: i32,
    /// Positions of the jobs that it needs.
    pub needs: Vec<i32>,
}

labelled! {
    /// The reason for which a task ended.
    "end of a task" TaskEnd {
        /// The server accepted its result.
        Taken = "taken",
        /// The job was stopped by an operator, maintenance or a restart.
        Stopped = "stopped",
        /// The agent went away before it started the task.
        Withdrawn = "withdrawn",
        /// The agent was silent for longer than the job's `on-agent-lost` policy allows.
        Lost = "lost",
        /// An operator declared the agent gone for good.
        Forgotten = "forgotten",
    }
}

/// A task as it is stored in the database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskRecord {
    /// Id of the task.
    pub task_id: String,
    /// Job of the task.
    pub job_id: String,
    /// Kind of the task: execute a job, or stop another task.
    pub kind: TaskKind,
    /// Attempt of the job, counted from 1; for a stop order, the attempt that it stops.
    pub number: i32,
    /// Agent of the task.
    pub agent_id: Uuid,
    /// Task that this order stops.
    pub cancels: Option<String>,
    /// Whether the task has not ended.
    pub active: bool,
    /// Last stage that the agent reported.
    pub stage: Option<Stage>,
    /// Time of that report.
    pub stage_at: Option<Timestamp>,
    /// Result that the agent reported.
    pub result: Option<TaskResult>,
    /// Reason for which the task ended.
    pub end: Option<TaskEnd>,
    /// Fields of the order that the agent does not support.
    pub unknown: Vec<String>,
    /// Size of the stored log in bytes.
    pub log_bytes: i64,
    pub created_at: Timestamp,
    /// Time at which the task ended.
    pub ended_at: Option<Timestamp>,
}

/// One change of a job's status code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobChange {
    /// Sequence number within the job, counted from 1.
    pub seq: i32,
    pub from_code: StatusCode,
    pub to_code: StatusCode,
    /// Explanation of the change.
    pub message: Option<String>,
    /// Time of the change.
    pub at: Timestamp,
}

/// An output file of a job and its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobOutput {
    /// Job that produced it; a job of an earlier run if the result is reused.
    pub job_id: String,
    /// Name of the job.
    pub job: String,
    /// Agent that produced it.
    pub agent_id: Option<Uuid>,
    #[serde(flatten)]
    pub output: Output,
}

/// A job with its definition, tasks, changes and outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobDetail {
    pub job: JobRecord,
    /// Definition of the job.
    pub spec: JobSpec,
    /// Tasks, oldest first.
    pub tasks: Vec<TaskRecord>,
    /// Changes of the status code, oldest first.
    pub changes: Vec<JobChange>,
    pub outputs: Vec<JobOutput>,
}

/// A line of a command's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    pub stream: String,
    /// Line without its line break.
    pub text: String,
}

/// A chunk of a command's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPiece {
    /// Sequence number within the task, counted from 0; pass it as `after` to read the next chunks.
    pub seq: i32,
    /// Lines of the chunk.
    pub lines: Vec<LogLine>,
}

/// A task with the data that an agent needs to execute it.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub task_id: String,
    pub kind: TaskKind,
    pub job_id: String,
    /// The task to stop, if this is a stop order.
    pub cancels: Option<String>,
    /// The work, if a job is to be executed.
    pub work: Option<OrderWork>,
}

/// The work of a task that executes a job.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderWork {
    pub run_id: RunId,
    pub project_id: String,
    pub workspace: String,
    /// Attempt of the job, counted from 1.
    pub attempt: i32,
    pub spec: JobSpec,
    /// Outputs of the needed jobs.
    pub inputs: Vec<JobOutput>,
}

/// A pool, which limits the total weight of its running jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolRecord {
    /// Name of the pool.
    pub name: String,
    /// Total weight of jobs that may run at the same time.
    pub size: i32,
    /// Total weight of the running jobs.
    pub used: i64,
}

/// Readiness of the site for a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RebootStatus {
    /// Whether the reboot flag is set, so that no task starts.
    pub preparing: bool,
    /// Number of running tasks.
    pub running: i64,
    /// Number of unconfirmed stop orders.
    pub stopping: i64,
    /// Whether nothing runs, so that a restart is safe.
    pub safe: bool,
}
