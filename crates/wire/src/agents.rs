//! What agents and the server say to each other. Agents only ask and report; they need outbound HTTP alone.
//!
//! Both sides are deployed on their own, so each must understand the other one release earlier or later:
//! requests and answers here may grow fields, fields that nobody knows are ignored on both sides, and words
//! that may grow (kinds of tasks, stages) are plain texts that are looked up, never a reason to refuse the
//! rest.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tidemill_core::graph::definition::{Command, Limits, OnAgentLost};
use tidemill_core::graph::pattern::Pattern;
use tidemill_core::task::{Output, TaskResult};
use tidemill_core::{RunId, Timestamp};
use uuid::Uuid;

/// The version of what is said here. A server takes agents of the version before its own and of the one after.
pub const PROTOCOL: u32 = 1;

/// What only the directory of an agent knows. What is shown for debugging does not tell it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct HomeSecret(#[cfg_attr(feature = "schema", schemars(length(min = 32, max = 256)))] pub String);

impl fmt::Debug for HomeSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HomeSecret(•••)")
    }
}

/// What an agent says of itself when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RegisterAgent {
    /// The process that speaks from now on for this agent: made at its start.
    pub boot: Uuid,
    /// A name for people.
    pub name: String,
    /// The machine that it runs on.
    #[serde(default)]
    pub host: String,
    /// What it offers.
    #[serde(default)]
    pub labels: Vec<String>,
    /// How much it carries at once, counted in weights of jobs.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub capacity: i32,
    /// The version of its binary.
    #[serde(default)]
    pub version: String,
    /// The version of the protocol that it speaks.
    #[serde(default)]
    pub protocol: u32,
    /// Whether it wants no new tasks: it ends when it holds nothing.
    #[serde(default)]
    pub draining: bool,
    /// What only its directory knows, at least 32 characters: with it the agent may come with another token when its
    /// own was revoked or has expired.
    #[serde(default)]
    pub secret: Option<HomeSecret>,
}

/// How the server wants to be spoken to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentRegistered {
    /// The version of the protocol that the server speaks.
    pub protocol: u32,
    /// Time between two signs of life.
    pub beat_secs: u64,
    /// How long it may be silent before others get what it has not begun.
    pub silent_secs: u64,
}

/// A task that an agent holds, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holding {
    /// The task.
    pub task_id: String,
    /// How far it is: see [`tidemill_core::task::Stage`].
    #[serde(default)]
    pub stage: Option<String>,
}

/// A sign of life, with everything that the agent holds: it learns what it may forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentBeat {
    /// The process that speaks.
    pub boot: Uuid,
    /// What it holds, ended tasks that are still on its disk included.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub holding: Vec<Holding>,
    /// Whether it wants no new tasks: it ends when it holds nothing.
    #[serde(default)]
    pub draining: bool,
}

/// What an agent learns from a beat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentBeaten {
    /// Of what it holds: tasks that are over for the server, whose result it has or does not want. What is left
    /// of them may be removed; a command that still runs is to be stopped.
    #[serde(default)]
    pub over: Vec<String>,
    /// Whether it gets no new tasks.
    #[serde(default)]
    pub draining: bool,
    /// The server's time, for an agent that wonders about its own.
    pub now: Timestamp,
}

/// An agent asks who needs what it keeps of what jobs left, and says what of it it would remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskKept {
    /// The process that speaks.
    pub boot: Uuid,
    /// Jobs that it keeps something of.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 500)))]
    pub keeps: Vec<String>,
    /// Jobs of which it would remove everything.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 500)))]
    pub removes: Vec<String>,
}

/// What an agent learns about what it keeps. What is not named here is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeptOutputs {
    /// Of what it keeps: what no run that goes on needs.
    #[serde(default)]
    pub unused: Vec<UnusedOutputs>,
    /// Of what it would remove: what it may. Nobody is sent to it for that any more.
    #[serde(default)]
    pub gone: Vec<String>,
}

/// What a job left, and no run that goes on needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnusedOutputs {
    /// The job.
    pub job_id: String,
    /// Seconds since the last run ended that had to do with it; none, where no such run is on record any more.
    #[serde(default)]
    pub idle_secs: Option<u64>,
}

/// An agent asks for tasks, and may wait for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PollTasks {
    /// The process that speaks.
    pub boot: Uuid,
    /// Tasks that it has already: they are not sent again.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub have: Vec<String>,
    /// How long to wait where there is nothing new.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
}

/// The orders for an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Orders {
    /// Tasks that are active, and that the agent does not have.
    pub tasks: Vec<TaskOrder>,
}

/// One order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskOrder {
    /// Its id; it names the attempt, and fences everything that is reported of it.
    pub task_id: String,
    /// `RUNJOB` or `CANCELJOB`; a kind that the agent does not know is reported as such.
    pub kind: String,
    /// The job.
    pub job_id: String,
    /// For `CANCELJOB`: the task that is to be stopped.
    #[serde(default)]
    pub cancels: Option<String>,
    /// For `RUNJOB`: what is to be done.
    #[serde(default)]
    pub work: Option<Work>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Work {
    /// The run that the job belongs to.
    pub run_id: RunId,
    /// The project of the run.
    pub project_id: String,
    /// The workspace of the run.
    pub workspace: String,
    /// The job's name.
    pub job: String,
    /// Which attempt this is: 1 is the first.
    pub attempt: i32,
    /// What is run.
    pub run: Command,
    /// Variables of its environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Names of secrets that the agent adds to its environment. The server does not know their values.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// What it leaves: a name and a pattern for each.
    #[serde(default)]
    pub outputs: BTreeMap<String, Pattern>,
    /// What the jobs left that it needs.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// How long it may run, in seconds.
    #[serde(default)]
    pub timeout_secs: Option<u32>,
    /// The directory, within its own, in which its command starts.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Bounds of its command.
    #[serde(default)]
    pub limits: Limits,
    /// What becomes of it when its agent falls silent.
    #[serde(default)]
    pub on_agent_lost: OnAgentLost,
    /// Ties together what belongs to the run, as in the header of the same name.
    #[serde(default)]
    pub traceparent: Option<String>,
}

/// A file that a needed job left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Input {
    /// The needed job's id: the one that made the file.
    pub job_id: String,
    /// The needed job's name.
    pub job: String,
    /// The agent that made it.
    #[serde(default)]
    pub agent_id: Option<Uuid>,
    /// The file.
    #[serde(flatten)]
    pub output: Output,
}

/// How far an agent is with a task. Nothing is run before the stage `preparing` was taken: an answer `stale`
/// means that the task is another's by now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportStage {
    /// The agent.
    pub agent: Uuid,
    /// The process that speaks.
    pub boot: Uuid,
    /// How far: see [`tidemill_core::task::Stage`]. One that the server does not know changes nothing.
    pub stage: String,
}

/// What came of a task. The agent repeats it until it is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportResult {
    /// The agent.
    pub agent: Uuid,
    /// The process that speaks.
    pub boot: Uuid,
    /// What came of it.
    pub result: TaskResult,
    /// What it left.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 10000)))]
    pub outputs: Vec<Output>,
    /// Fields of the order that the agent does not know: it did without them.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A piece of what a command wrote. The same piece twice is one piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportLog {
    /// The agent.
    pub agent: Uuid,
    /// The process that speaks.
    pub boot: Uuid,
    /// Its place among the pieces of the task, from 0. A piece already there is left as it is.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub seq: i32,
    /// Its lines.
    pub lines: Vec<LogLine>,
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

/// What an agent's probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportProbe {
    /// The process that speaks.
    pub boot: Uuid,
    /// Whether the database is under maintenance.
    pub maintenance: bool,
    /// What the probe said, for people.
    #[serde(default)]
    pub note: Option<String>,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// It changed something.
    Applied,
    /// It was known already.
    Duplicate,
    /// The task is over or another's: what is reported of it does not count any more.
    Stale,
}

/// The answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reported {
    /// What became of it.
    pub outcome: Taken,
}
