//! The protocol between agents and the server. Agents only send requests, so they need only outbound HTTP.
//!
//! Agents and servers are deployed independently, so each must understand the previous and the next release of the
//! other. Requests and responses may gain fields, and both sides ignore unknown fields. Values that may be extended
//! (kinds of tasks, stages) are plain strings; an unknown value does not invalidate the rest.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tidemill_core::graph::definition::{Command, Limits, OnAgentLost};
use tidemill_core::graph::pattern::Pattern;
use tidemill_core::isolation::IsolationReport;
use tidemill_core::task::{Output, TaskResult};
use tidemill_core::{RunId, Timestamp};
use uuid::Uuid;

/// Version of this protocol. A server accepts agents of the previous and of the next version.
pub const PROTOCOL: u32 = 1;

/// A secret of the agent's directory. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct AgentSecret(#[cfg_attr(feature = "schema", schemars(length(min = 32, max = 256)))] pub String);

impl fmt::Debug for AgentSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AgentSecret(•••)")
    }
}

/// The registration of an agent at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterAgent {
    /// Random id of the agent process, made at its start and known to no one else: every later call must name it. Calls
    /// of earlier processes are rejected from now on.
    pub boot: Uuid,
    pub name: String,
    /// Host name of the machine.
    #[serde(default)]
    pub host: String,
    /// Labels that jobs can require.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Total weight of the jobs that it executes at the same time.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub capacity: i32,
    /// Version of its binary.
    #[serde(default)]
    pub version: String,
    /// Version of the protocol that it uses.
    #[serde(default)]
    pub protocol: u32,
    /// Whether it wants no new tasks and exits when it holds none.
    #[serde(default)]
    pub draining: bool,
    /// Current secret of the agent's directory, at least 32 characters. The first registration sets it.
    pub secret: AgentSecret,
    /// New secret, which replaces the current one. The agent stores both before it sends them, so that it can repeat
    /// the registration after a lost response.
    pub next_secret: AgentSecret,
    /// Identifies the lock file of the agent's directory on its machine. A process with another lock is rejected while
    /// the agent sends heartbeats.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub dir_lock: Option<String>,
    /// Mechanisms that isolate its tasks on its machine; absent if the agent does not report them.
    #[serde(default)]
    pub isolation: Option<IsolationReport>,
}

/// The response to the registration of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterAgentResponse {
    /// Version of the protocol that the server uses.
    pub protocol: u32,
    /// Interval between heartbeats in seconds.
    pub beat_secs: u64,
    /// Silence in seconds after which tasks that it has not started go to other agents.
    pub silent_secs: u64,
    /// Time in seconds after which the agent registers again to replace its secret.
    #[serde(default)]
    pub secret_secs: u64,
}

/// The progress of a task that an agent holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskProgress {
    /// Id of the task.
    pub task_id: String,
    /// Stage of the task, such as `preparing` or `executing`.
    #[serde(default)]
    pub stage: Option<String>,
}

/// A heartbeat of an agent, with all tasks that it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentHeartbeat {
    /// Id of the agent process.
    pub boot: Uuid,
    /// Tasks that it holds, including ended ones that are still on its disk.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub holding: Vec<TaskProgress>,
    /// Whether it wants no new tasks and exits when it holds none.
    #[serde(default)]
    pub draining: bool,
}

/// The response to an agent's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentHeartbeatResponse {
    /// Held tasks that have ended for the server, because it has their result or does not need it. The agent stops
    /// their commands and may delete their files.
    #[serde(default)]
    pub over: Vec<String>,
    /// Whether it receives no new tasks.
    #[serde(default)]
    pub draining: bool,
    /// Time of the server, so that the agent can detect a wrong clock.
    pub now: Timestamp,
}

/// An agent's query whether its retained outputs are still needed, with the outputs that it wants to delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetentionRequest {
    /// Id of the agent process.
    pub boot: Uuid,
    /// Jobs whose outputs it retains.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 500)))]
    pub keeps: Vec<String>,
    /// Jobs whose outputs it wants to delete.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 500)))]
    pub removes: Vec<String>,
}

/// The response to a retention query. The agent retains all outputs that are not listed here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetentionResponse {
    /// Retained outputs that no active run needs.
    #[serde(default)]
    pub unused: Vec<UnusedOutputs>,
    /// The subset of `removes` that the agent may delete. The server no longer assigns jobs to it because of them.
    #[serde(default)]
    pub gone: Vec<String>,
}

/// Outputs of a job that no active run needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnusedOutputs {
    /// Id of the job.
    pub job_id: String,
    /// Seconds since the last run that used them ended; null if no such run is stored any more.
    #[serde(default)]
    pub idle_secs: Option<u64>,
}

/// A request for new tasks, with optional long polling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PollTasks {
    /// Id of the agent process.
    pub boot: Uuid,
    /// Tasks that the agent already has; they are not sent again.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub have: Vec<String>,
    /// Time in seconds to wait for a new task.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
}

/// The new tasks of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Orders {
    /// Active tasks that the agent does not have.
    pub tasks: Vec<TaskOrder>,
}

/// A task for an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskOrder {
    /// Id of the task, which identifies the attempt. Reports for an earlier attempt are stale.
    pub task_id: String,
    /// Kind: `RUNJOB` or `CANCELJOB`. An agent reports an unknown kind as a failure.
    pub kind: String,
    /// Id of the job.
    pub job_id: String,
    /// For `CANCELJOB`: task to stop.
    #[serde(default)]
    pub cancels: Option<String>,
    /// For `RUNJOB`: work to execute.
    #[serde(default)]
    pub work: Option<Work>,
}

/// The work of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Work {
    /// Run of the job.
    pub run_id: RunId,
    /// Project of the run.
    pub project_id: String,
    /// Workspace of the run.
    pub workspace: String,
    /// Name of the job.
    pub job: String,
    /// Number of the attempt, counted from 1.
    pub attempt: i32,
    pub run: Command,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of secrets that the agent adds to the environment. The server does not know their values.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Outputs: a name and a path pattern for each.
    #[serde(default)]
    pub outputs: BTreeMap<String, Pattern>,
    /// Input files: outputs of the needed jobs.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// Time limit in seconds.
    #[serde(default)]
    pub timeout_secs: Option<u32>,
    /// Working directory, relative to the job's directory.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Resource limits of the command.
    #[serde(default)]
    pub limits: Limits,
    /// Policy for the case that the agent loses contact with the server.
    #[serde(default)]
    pub on_agent_lost: OnAgentLost,
    /// Trace context of the run, in the format of the HTTP header `traceparent`.
    #[serde(default)]
    pub traceparent: Option<String>,
}

/// An output file of a needed job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Input {
    /// Id of the job that produced the file.
    pub job_id: String,
    /// Name of the needed job.
    pub job: String,
    /// Agent that produced the file.
    #[serde(default)]
    pub agent_id: Option<Uuid>,
    #[serde(flatten)]
    pub output: Output,
}

/// A report of a task's stage. The agent must not execute anything before the server has accepted the stage
/// `preparing`: `stale` means that the task belongs to another agent by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportStage {
    /// Id of the agent.
    pub agent: Uuid,
    /// Id of the agent process.
    pub boot: Uuid,
    /// Stage, such as `preparing` or `executing`. The server ignores an unknown stage.
    pub stage: String,
}

/// A report of a task's result. The agent repeats it until the server accepts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportResult {
    /// Id of the agent.
    pub agent: Uuid,
    /// Id of the agent process.
    pub boot: Uuid,
    /// Result of the task.
    pub result: TaskResult,
    /// Output files of the task.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 10000)))]
    pub outputs: Vec<Output>,
    /// Fields of the task that the agent does not support and ignored.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A chunk of a command's output. Sending the same chunk twice has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportLog {
    /// Id of the agent.
    pub agent: Uuid,
    /// Id of the agent process.
    pub boot: Uuid,
    /// Sequence number within the task, counted from 0. An existing chunk is not overwritten.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub seq: i32,
    /// Lines of the chunk.
    pub lines: Vec<LogLine>,
}

/// A line of a command's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    pub stream: String,
    /// Line without its line break.
    pub text: String,
}

/// A report of an agent's maintenance probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportProbe {
    /// Id of the agent process.
    pub boot: Uuid,
    /// Whether the database is under maintenance.
    pub maintenance: bool,
    /// Output of the probe, for people.
    #[serde(default)]
    pub note: Option<String>,
}

/// The outcome of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// The server applied the report.
    Applied,
    /// The server had received the report before.
    Duplicate,
    /// The task has ended or belongs to another agent, so the report was ignored.
    Stale,
}

/// The response to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportResponse {
    /// Outcome of the report.
    pub outcome: ReportOutcome,
}
