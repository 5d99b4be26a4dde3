//! A graph definition that has passed all checks.

use crate::graph::pattern::Pattern;
use crate::graph::units;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A graph: its jobs, sorted so that each follows the jobs that it needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Graph {
    pub name: Option<String>,
    /// Workspace, whose graphs share outputs; null for the default workspace.
    pub workspace: Option<String>,
    /// Jobs, in an order in which they could run.
    pub jobs: Vec<JobSpec>,
}

/// The command of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Command {
    /// A command line for the shell.
    Shell(String),
    /// A program and its arguments, without a shell.
    Words(Vec<String>),
}

/// Policy for a job whose agent stops sending heartbeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnAgentLost {
    /// The job waits for the agent to return: its command may still run.
    #[default]
    Wait,
    /// After this many seconds without contact, its supervisor stops the command and another agent runs the job again.
    RerunAfter(u32),
}

/// Resource limits of a command.
///
/// An order names `processes` and `cpu_percent` only if they are set: an agent of an earlier release, which does not
/// know them, runs the job without them and reports the fields that it ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// CPU time of each process in seconds.
    pub cpu_secs: Option<u32>,
    /// Memory in bytes: of all processes together where the agent's control group has a memory controller, otherwise
    /// of each process.
    pub memory_bytes: Option<u64>,
    /// Size of each file that it writes, in bytes.
    pub output_bytes: Option<u64>,
    /// Number of processes and threads at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// CPU share in percent of one processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<u32>,
}

impl Limits {
    /// Describes the limits that are set, in the units of a graph file, such as `memory 512MiB`.
    pub fn describe(&self) -> Vec<String> {
        let parts = [
            self.memory_bytes.map(|bytes| format!("memory {}", units::show_bytes(bytes))),
            self.processes.map(|count| format!("processes {count}")),
            self.cpu_percent.map(|percent| format!("cpu {percent}%")),
            self.cpu_secs.map(|secs| format!("cpu-time {}", units::show_secs(secs))),
            self.output_bytes.map(|bytes| format!("file-size {}", units::show_bytes(bytes))),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// The definition of a job, as the author wrote it. It has no id and no state; those are in the records of the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSpec {
    /// Name of the job.
    pub name: String,
    pub run: Command,
    /// Names of the jobs that must succeed first; their outputs become its inputs.
    pub needs: Vec<String>,
    /// Outputs: a name and a path pattern for each.
    pub outputs: BTreeMap<String, Pattern>,
    pub env: BTreeMap<String, String>,
    /// Names of secrets that the agent adds to the environment.
    pub secrets: Vec<String>,
    /// Time limit in seconds.
    pub timeout_secs: Option<u32>,
    /// Number of retries after the command failed.
    pub retries: i32,
    /// Share of the agent's capacity and of the pool that the job takes.
    pub weight: i32,
    /// Pool that limits how many such jobs run at the same time.
    pub pool: Option<String>,
    /// Working directory, relative to the job's directory.
    pub workdir: Option<String>,
    /// Labels that an agent must have.
    pub labels: Vec<String>,
    /// Policy for the case that its agent stops sending heartbeats.
    pub on_agent_lost: OnAgentLost,
    /// Resource limits of the command.
    pub limits: Limits,
}

/// The pool whose jobs use the database and therefore wait during maintenance.
pub const DATABASE_POOL: &str = "database";

impl JobSpec {
    /// Returns whether the job is in the database pool.
    pub fn uses_database(&self) -> bool {
        self.pool.as_deref() == Some(DATABASE_POOL)
    }
}
