//! A graph as somebody wrote it, read and found to be sound.

use crate::graph::pattern::Pattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A graph: jobs by name, each after everything that it needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Graph {
    /// A name for people.
    pub name: Option<String>,
    /// Whose outputs are shared; the name of the submission where there is none.
    pub workspace: Option<String>,
    /// Its jobs, in an order in which they could run.
    pub jobs: Vec<JobSpec>,
}

/// How a command is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Command {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments, as they are.
    Words(Vec<String>),
}

/// What becomes of a job whose agent falls silent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnAgentLost {
    /// It waits for the agent to come back: its command may still run.
    #[default]
    Wait,
    /// Its supervisor ends the command after so many seconds without contact, and another agent runs it again.
    RerunAfter(u32),
}

/// Bounds of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// Seconds of processor time.
    pub cpu_secs: Option<u32>,
    /// Bytes of memory of one process.
    pub memory_bytes: Option<u64>,
    /// Bytes of a file that it may write.
    pub output_bytes: Option<u64>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSpec {
    /// Its name.
    pub name: String,
    /// What is run.
    pub run: Command,
    /// The jobs whose outputs it needs.
    pub needs: Vec<String>,
    /// What it leaves: a name and a pattern for each.
    pub outputs: BTreeMap<String, Pattern>,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
    /// Names of secrets that the agent adds to its environment.
    pub secrets: Vec<String>,
    /// How long it may run, in seconds.
    pub timeout_secs: Option<u32>,
    /// How often it is tried again after its command ended badly.
    pub retries: i32,
    /// How much room it takes.
    pub weight: i32,
    /// The pool that bounds it.
    pub pool: Option<String>,
    /// The directory, within its own, in which its command starts.
    pub workdir: Option<String>,
    /// What an agent must offer.
    pub labels: Vec<String>,
    /// What becomes of it when its agent falls silent.
    pub on_agent_lost: OnAgentLost,
    /// Bounds of its command.
    pub limits: Limits,
}

/// The pool whose jobs use the database, and wait during its maintenance.
pub const DATABASE_POOL: &str = "database";

impl JobSpec {
    /// Whether it uses the database.
    pub fn uses_database(&self) -> bool {
        self.pool.as_deref() == Some(DATABASE_POOL)
    }
}
