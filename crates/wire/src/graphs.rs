//! Requests and responses about graphs, jobs, agents and pools.

use serde::{Deserialize, Serialize};
use tidemill_core::graph::DefinitionError;
use tidemill_core::graph::record::LogPiece;
use tidemill_core::job::JobState;
use tidemill_core::run::CancelOutcome;
use tidemill_core::{Json, RunId};

/// A graph definition to check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckGraph {
    pub text: String,
}

/// The result of checking a graph definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CheckGraphResponse {
    /// Whether the definition is valid.
    pub is_sound: bool,
    /// Name of the graph.
    pub name: Option<String>,
    /// Workspace of the graph.
    pub workspace: Option<String>,
    /// Names of the jobs, in an order in which they could run.
    pub jobs: Vec<String>,
    /// Errors, in the order of the text.
    pub faults: Vec<DefinitionError>,
}

/// Request to submit a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewGraph {
    /// Project of the graph.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"shop"))]
    pub project: String,
    /// Name of the environment within the project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"staging"))]
    pub env: String,
    #[cfg_attr(feature = "schema", schemars(example = &"version: 1\njobs:\n  hello:\n    run: echo hello\n"))]
    pub text: String,
    /// Requested jobs; empty for all. Needed jobs that succeeded before are reused.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 64))))]
    pub only: Vec<String>,
    /// Workspace; overrides that of the definition.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")))]
    pub workspace: Option<String>,
    /// Whether needed jobs run again although they succeeded before.
    #[serde(default)]
    pub rerun_needed: bool,
    /// Priority; higher values come first in lists.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = -1_000_000, max = 1_000_000)))]
    pub priority: i32,
    /// Commit of the graph.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub git_sha: Option<String>,
    /// Branch or tag of the graph.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub git_ref: Option<String>,
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewGraphResponse {
    /// Id of the run.
    pub run_id: RunId,
    /// Whether this call created the run.
    pub created: bool,
    pub jobs: usize,
    /// Number of jobs whose results are reused.
    pub reused: usize,
}

/// Filter of the list of a graph's jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListJobs {
    /// List only jobs that changed after this version, in the order of their changes.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub changed_after: Option<i64>,
    /// Cursor: `next` of the previous page; only without `changed_after`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
    /// State to filter by; only without `changed_after`.
    pub state: Option<JobState>,
    /// Time in seconds to wait for a change if there is none.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Parameters of the list of a graph's dependencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListNeeds {
    /// Cursor: `next` of the previous page.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// A request to cancel a graph or some of its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelGraph {
    /// Names of the jobs; empty for all.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 64))))]
    pub jobs: Vec<String>,
    /// Reason of the cancel.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: Option<String>,
}

/// The outcome of a cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelGraphResponse {
    /// Id of the run.
    pub run_id: RunId,
    /// Number of jobs that this call cancelled.
    pub jobs: u64,
    /// Outcome for the run.
    pub outcome: CancelOutcome,
}

/// A request to retry an ended graph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryGraph {
    /// Names of the jobs that run again, together with the jobs that need them; empty for all jobs that did not
    /// succeed.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 64))))]
    pub jobs: Vec<String>,
}

/// The reason for the current state of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobWhy {
    /// Id of the job.
    pub job_id: String,
    /// Reason as a sentence.
    pub sentence: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Reason for programs: `wait` and its details.
    #[serde(flatten)]
    pub reason: serde_json::Map<String, Json>,
}

/// Filter of the output of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadLogs {
    /// Number of the attempt, counted from 1; by default the last one.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub attempt: Option<i32>,
    /// Return the chunks after this sequence number.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
    /// Return only the last chunks; only without `after`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub last: Option<u16>,
    /// Time in seconds to wait for more output while the attempt has not ended.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
    /// Maximum number of chunks.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub limit: Option<u16>,
}

/// A part of the output of a job's attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobLogs {
    /// Id of the job.
    pub job_id: String,
    /// Number of the attempt; null if there was none yet.
    pub attempt: Option<i32>,
    /// Chunks, in order.
    pub pieces: Vec<LogPiece>,
    /// Whether the attempt has ended and this is the end of its output.
    pub is_last: bool,
    /// Whether the job has ended, so that no attempt follows.
    pub is_over: bool,
}

/// A request to start or stop draining an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainAgent {
    /// Whether the agent gets no new tasks; by default true.
    #[serde(default = "yes")]
    pub draining: bool,
}

const fn yes() -> bool {
    true
}

impl Default for DrainAgent {
    fn default() -> Self {
        Self { draining: yes() }
    }
}

/// A request to forget an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ForgetAgent {
    /// Forget the agent even if it sent a heartbeat recently.
    #[serde(default)]
    pub force: bool,
}

/// The outcome of forgetting an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForgetAgentResponse {
    /// Whether this call removed the agent; false if it was forgotten before.
    pub forgotten: bool,
}

/// An agent's notice that it signs off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Goodbye {
    /// Id of the agent process.
    pub boot: uuid::Uuid,
}

/// A pool to create or change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutPool {
    /// Total weight of jobs that may run at the same time.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub size: i32,
}

/// A request to prepare for a restart of the site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PrepareReboot {
    /// Reason, for other operators.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
}
