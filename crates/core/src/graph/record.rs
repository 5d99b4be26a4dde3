//! Graphs, jobs and tasks as they are kept, and as people and agents get to see them.

use super::definition::JobSpec;
use crate::job::{JobState, StatusCode};
use crate::label::labelled;
use crate::run::RunState;
use crate::task::{Output, Stage, TaskKind, TaskResult};
use crate::{RunId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A graph that was submitted: a run, and what is known of it besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphRecord {
    /// The run.
    pub run_id: RunId,
    /// Its project.
    pub project_id: String,
    /// Where the run is in its life.
    pub status: RunState,
    /// A name for people.
    pub name: Option<String>,
    /// Whose outputs are shared.
    pub workspace: String,
    /// SHA-256 of the definition.
    pub digest: String,
    /// The jobs that were asked for; all of them where it is empty.
    pub only: Vec<String>,
    /// Whether jobs that succeeded before were to run again.
    pub rerun_needed: bool,
    /// Who submitted it.
    pub submitted_by: String,
    /// Who asked for it to stop.
    pub cancelled_by: Option<String>,
    /// The run that this one follows.
    pub retry_of: Option<RunId>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its first job began.
    pub started_at: Option<Timestamp>,
    /// When its last job ended.
    pub finished_at: Option<Timestamp>,
    /// How many of its jobs are where.
    pub counts: JobCounts,
    /// The highest version among its jobs: what to ask for changes after.
    pub version: i64,
}

/// How many jobs are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobCounts {
    /// All of them.
    pub total: i64,
    /// That wait.
    pub pending: i64,
    /// That agents have.
    pub running: i64,
    /// That ended well.
    pub succeeded: i64,
    /// That ended well in an earlier run, and were taken over.
    pub reused: i64,
    /// That ended badly, or were stopped.
    pub failed: i64,
}

/// A job as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRecord {
    /// Its id.
    pub job_id: String,
    /// The run that it belongs to.
    pub run_id: RunId,
    /// Its project.
    pub project_id: String,
    /// Its workspace.
    pub workspace: String,
    /// Its name.
    pub name: String,
    /// Its place in the graph, from 0: after everything that it needs.
    pub position: i32,
    /// What drives the logic.
    pub state: JobState,
    /// Where it is, and why.
    pub code: StatusCode,
    /// A sentence about that, where there is one.
    pub message: Option<String>,
    /// Whether it was asked for, and not only needed.
    pub requested: bool,
    /// The job of an earlier run whose result it took over.
    pub reused_from: Option<String>,
    /// How much room it takes.
    pub weight: i32,
    /// The pool that bounds it.
    pub pool: Option<String>,
    /// Its last task.
    pub task_id: Option<String>,
    /// How many tasks it had.
    pub tasks: i32,
    /// The agent of its last task.
    pub agent_id: Option<Uuid>,
    /// What its command ended with, the last time.
    pub exit_code: Option<i32>,
    /// Tasks that came to nothing by no fault of its own.
    pub errors: i32,
    /// Times its command ended badly.
    pub failures: i32,
    /// No new task before this time.
    pub not_before: Option<Timestamp>,
    /// Whether an order to stop its last task is not confirmed yet.
    pub stopping: bool,
    /// When somebody asked for it to stop.
    pub cancelled_at: Option<Timestamp>,
    /// Who did.
    pub cancelled_by: Option<String>,
    /// Raised with every change, over all jobs of the site: what to ask for changes after.
    pub version: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its task was made, if it has one.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What a job needs, by places in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobNeeds {
    /// The job's place.
    pub position: i32,
    /// The places of the jobs that it needs.
    pub needs: Vec<i32>,
}

labelled! {
    /// Why a task is over.
    "end of a task" TaskEnd {
        /// Its result was taken.
        Taken = "taken",
        /// Its job was stopped: by a person, a maintenance or a restart.
        Stopped = "stopped",
        /// Its agent had not begun it, and went away.
        Withdrawn = "withdrawn",
        /// Its agent was silent for longer than the job lets it be.
        Lost = "lost",
        /// A person said that its agent does not come back.
        Forgotten = "forgotten",
    }
}

/// A task as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskRecord {
    /// Its id.
    pub task_id: String,
    /// The job.
    pub job_id: String,
    /// What the agent is asked to do.
    pub kind: TaskKind,
    /// Which try of the job it is, from 1; that of the task it stops.
    pub number: i32,
    /// The agent.
    pub agent_id: Uuid,
    /// The task that it stops.
    pub cancels: Option<String>,
    /// Whether the order stands.
    pub active: bool,
    /// How far the agent is.
    pub stage: Option<Stage>,
    /// When it said so.
    pub stage_at: Option<Timestamp>,
    /// What came of it.
    pub result: Option<TaskResult>,
    /// Why it is over.
    pub end: Option<TaskEnd>,
    /// Fields of the order that the agent did not know.
    pub unknown: Vec<String>,
    /// Bytes of output that are kept.
    pub log_bytes: i64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
}

/// One change of a job's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobChange {
    /// Its place among the changes of the job, from 1.
    pub seq: i32,
    /// Where the job was.
    pub from_code: StatusCode,
    /// Where it went.
    pub to_code: StatusCode,
    /// What was said about it.
    pub message: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A file that a job left, and who has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobOutput {
    /// The job that made it: an earlier one where the result was taken over.
    pub job_id: String,
    /// The name of the job.
    pub job: String,
    /// The agent that made it.
    pub agent_id: Option<Uuid>,
    /// The file.
    #[serde(flatten)]
    pub output: Output,
}

/// A job with everything that belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobDetail {
    /// The job.
    pub job: JobRecord,
    /// What was asked for.
    pub spec: JobSpec,
    /// Its tasks, the oldest first.
    pub tasks: Vec<TaskRecord>,
    /// How its code changed.
    pub changes: Vec<JobChange>,
    /// What it left.
    pub outputs: Vec<JobOutput>,
}

/// A line that a command wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The line, without its end.
    pub text: String,
}

/// A piece of what a command wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogPiece {
    /// Its place among the pieces of the task, from 0: what to ask for more after.
    pub seq: i32,
    /// Its lines.
    pub lines: Vec<LogLine>,
}

/// What an agent is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The task.
    pub task_id: String,
    /// What kind.
    pub kind: TaskKind,
    /// The job.
    pub job_id: String,
    /// The task that is to be stopped.
    pub cancels: Option<String>,
    /// What is to be done, where a job is to be carried out.
    pub work: Option<OrderWork>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderWork {
    /// The run that the job belongs to.
    pub run_id: RunId,
    /// Its project.
    pub project_id: String,
    /// Its workspace.
    pub workspace: String,
    /// Which try of the job it is, from 1.
    pub attempt: i32,
    /// The job.
    pub spec: JobSpec,
    /// What the jobs left that it needs.
    pub inputs: Vec<JobOutput>,
}

/// A pool: how much of its jobs may run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// How much may run at once, counted in weights of jobs.
    pub size: i32,
    /// How much does.
    pub used: i64,
}

/// Whether the site can be restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RebootStatus {
    /// Whether the flag is on: nothing begins.
    pub preparing: bool,
    /// Tasks that still run.
    pub running: i64,
    /// Orders to stop that are not confirmed.
    pub stopping: i64,
    /// Whether nothing runs any more.
    pub safe: bool,
}
