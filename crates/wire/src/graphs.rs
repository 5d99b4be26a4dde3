//! Graphs: what people ask and are told about them, their jobs, agents and pools.

use serde::{Deserialize, Serialize};
use tidemill_core::graph::GraphFault;
use tidemill_core::graph::record::LogPiece;
use tidemill_core::job::JobState;
use tidemill_core::run::Cancelled;
use tidemill_core::{Json, RunId};

/// A text that may be a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CheckGraph {
    /// The definition, as YAML.
    pub text: String,
}

/// What was found in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphChecked {
    /// Whether it is a graph that can be submitted.
    pub is_sound: bool,
    /// Its name.
    pub name: Option<String>,
    /// Its workspace.
    pub workspace: Option<String>,
    /// Its jobs, in an order in which they could run.
    pub jobs: Vec<String>,
    /// Everything that is wrong with it, in the order of the text.
    pub faults: Vec<GraphFault>,
}

/// A graph to submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewGraph {
    /// The project that it belongs to.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"shop"))]
    pub project: String,
    /// The environment, by its name within the project.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"staging"))]
    pub env: String,
    /// The definition, as YAML.
    #[cfg_attr(feature = "schema", schemars(example = &"version: 1\njobs:\n  hello:\n    run: echo hello\n"))]
    pub text: String,
    /// The jobs that are asked for; all of them where it is empty. What they need is reused where it succeeded.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 64))))]
    pub only: Vec<String>,
    /// Whose outputs are shared, if not those that the definition names.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")))]
    pub workspace: Option<String>,
    /// Whether jobs that are only needed run again although they have succeeded before.
    #[serde(default)]
    pub rerun_needed: bool,
    /// Larger is first, in lists.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = -1_000_000, max = 1_000_000)))]
    pub priority: i32,
    /// The commit that it is about.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub git_sha: Option<String>,
    /// The branch or tag that it is about.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub git_ref: Option<String>,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphSubmitted {
    /// The run.
    pub run_id: RunId,
    /// Whether this call made it.
    pub created: bool,
    /// Jobs that it has.
    pub jobs: usize,
    /// Jobs whose results were taken over.
    pub reused: usize,
}

/// Which jobs of a graph to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListJobs {
    /// Those that changed after this version, in the order of their changes.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub changed_after: Option<i64>,
    /// The cursor of the page before, where nothing is said about changes.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
    /// Those in this state, where nothing is said about changes.
    pub state: Option<JobState>,
    /// How long to wait for a change, where there is none.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Which part of a graph's shape to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListNeeds {
    /// The cursor of the page before.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// A wish that a graph stops, or some of its jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelGraph {
    /// The jobs by their names; all of them where it is empty.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 64))))]
    pub jobs: Vec<String>,
    /// Why.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: Option<String>,
}

/// What a cancel did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GraphCancelled {
    /// The run.
    pub run_id: RunId,
    /// Jobs that were asked to stop, and had not been asked before.
    pub jobs: u64,
    /// What it means for the run.
    pub outcome: Cancelled,
}

/// Another try of a graph that has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RetryGraph {
    /// The jobs that run again, by their names, with everything after them; what did not succeed where it is empty.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 64))))]
    pub jobs: Vec<String>,
}

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobWhy {
    /// The job.
    pub job_id: String,
    /// The reason as a sentence.
    pub sentence: String,
    /// What to do, where there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The reason as programs read it: `wait` and its details.
    #[serde(flatten)]
    pub reason: serde_json::Map<String, Json>,
}

/// Which part of what a job wrote to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadLogs {
    /// Which attempt, from 1; the last one where it is not said.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub attempt: Option<i32>,
    /// After this piece.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
    /// The last so many pieces, where nothing is said about what they come after.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub last: Option<u16>,
    /// How long to wait for more, where there is none and the attempt is not over.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
    /// At most so many pieces.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub limit: Option<u16>,
}

/// A part of what an attempt of a job wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobLogs {
    /// The job.
    pub job_id: String,
    /// The attempt; nothing where there was none yet.
    pub attempt: Option<i32>,
    /// The pieces, in order.
    pub pieces: Vec<LogPiece>,
    /// Whether the attempt is over and this is the last of it.
    pub is_last: bool,
    /// Whether the job has ended: there is no further attempt.
    pub is_over: bool,
}

/// Whether an agent gets new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainAgent {
    /// Whether it gets none.
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

/// Whether an agent is forgotten that may be alive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ForgetAgent {
    /// Whether it is forgotten although it was heard just now.
    #[serde(default)]
    pub force: bool,
}

/// What forgetting an agent did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentForgotten {
    /// Whether it was forgotten by this call, and not before.
    pub forgotten: bool,
}

/// The process that says goodbye for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Goodbye {
    /// The process.
    pub boot: uuid::Uuid,
}

/// A pool to make, or to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutPool {
    /// How much of its jobs may run at once, counted in their weights.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub size: i32,
}

/// A restart to prepare for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PrepareReboot {
    /// Why, for the others.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
}
