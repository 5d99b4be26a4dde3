//! Settings of an agent.

use crate::task_users::UserRange;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the agent, which one process at a time uses. Its content outlives the process.
    pub dir: PathBuf,
    pub name: String,
    /// Name of the machine.
    pub host: String,
    /// Labels that jobs can require.
    pub labels: Vec<String>,
    /// Maximum sum of the weights of concurrent jobs.
    pub capacity: i32,
    /// File of `NAME=value` lines with the secrets that jobs can request by name.
    pub secrets: Option<PathBuf>,
    /// URL of the store for outputs: `file:///…`, `s3://bucket/…` or `az://container/…`.
    pub store: Option<String>,
    pub retention: RetentionPolicy,
    pub probe: Option<Probe>,
    pub exit_policy: ExitPolicy,
    pub commands_on_exit: CommandsOnExit,
    /// Time between SIGTERM and SIGKILL of a stopped command.
    pub grace: Duration,
    pub isolation: IsolationMode,
    /// User ids of tasks, if the agent is root.
    pub task_users: UserRange,
    /// Files that tasks must not see, besides those of the agent itself: its token, a database, private keys.
    pub hidden: Vec<PathBuf>,
    /// Program that supervises commands: the running program, or a test program.
    pub supervisor: PathBuf,
    /// Arguments with which it calls [`tidemill_supervisor::supervise_detached`].
    pub supervisor_args: Vec<String>,
}

/// Policy for the isolation of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationMode {
    /// Uses the mechanisms that this machine allows.
    Auto,
    /// The agent does not start unless each task has a user id, a PID namespace and a mount namespace of its own.
    Required,
    /// Commands have the rights of the agent.
    Off,
}

/// A command that checks for maintenance of the database: exit code 3 means maintenance, 0 means none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Command line for `sh -c`.
    pub command: String,
    /// Interval between two runs, and the time limit of each run.
    pub every: Duration,
}

/// Limits for retained outputs that no active run needs. Outputs without a known run are always removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Time to retain them after the end of the last run that needed them.
    pub time: Option<Duration>,
    /// Maximum total size, including needed outputs; the longest unused outputs are removed first.
    pub bytes: Option<u64>,
    /// Interval of the check.
    pub every: Duration,
}

impl Default for RetentionPolicy {
    fn default() -> Self {
        Self { time: None, bytes: None, every: Duration::from_mins(10) }
    }
}

/// Condition under which an agent exits by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitPolicy {
    Never,
    /// It accepts no new tasks, and exits when it holds none.
    Drained,
}

/// Handling of running commands when the agent exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandsOnExit {
    /// They continue; the next process of the agent resumes them.
    Continue,
    /// They are stopped and reported as failed.
    Stop,
}
