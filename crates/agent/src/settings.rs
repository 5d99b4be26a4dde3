//! What an agent is told before it starts.

use std::path::PathBuf;
use std::time::Duration;

/// What an agent is told before it starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its directory. One process at a time uses it; what is in it outlives all of them.
    pub dir: PathBuf,
    /// A name for people.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// What it offers.
    pub labels: Vec<String>,
    /// How much it carries at once, counted in weights of jobs.
    pub capacity: i32,
    /// A file of `NAME=value` lines: what jobs may ask for by name.
    pub secrets: Option<PathBuf>,
    /// Where outputs go besides the agent's own workspace: `file:///…`, `s3://bucket/…` or `az://container/…`.
    pub store: Option<String>,
    /// How much it keeps of what jobs left and no run that goes on needs.
    pub keep: Keep,
    /// The command that tells whether the database is under maintenance.
    pub probe: Option<Probe>,
    /// When it ends by itself.
    pub ending: Ending,
    /// What becomes of commands when it is told to end.
    pub commands: Commands,
    /// How long a command may take to end after it was asked to, before it is killed.
    pub grace: Duration,
    /// The program that supervises commands: this very one, unless a test stands in for it.
    pub supervisor: PathBuf,
    /// The arguments with which it calls [`tidemill_supervisor::supervise_detached`].
    pub supervisor_args: Vec<String>,
}

/// A command that tells whether the database is under maintenance: exit code 0 says no, 3 says yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// A line for the shell.
    pub command: String,
    /// Time between two looks; a look may take as long.
    pub every: Duration,
}

/// How much an agent keeps of what jobs left and no run that goes on needs. What no run is on record of is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// For how long after the last run ended that needed it.
    pub time: Option<Duration>,
    /// How much in all, counted with what is needed; what was not needed for longest goes first.
    pub bytes: Option<u64>,
    /// Time between two looks.
    pub every: Duration,
}

impl Default for Keep {
    fn default() -> Self {
        Self { time: None, bytes: None, every: Duration::from_mins(10) }
    }
}

/// When an agent ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Never.
    Never,
    /// When it holds nothing: it asks for no new tasks.
    Drained,
}

/// What becomes of commands when their agent is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commands {
    /// They go on: the next process finds them.
    GoOn,
    /// They are stopped, and reported as such.
    Stop,
}
