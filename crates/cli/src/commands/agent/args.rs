//! Command-line arguments of `tidemill agent`.

use crate::commands::metrics::MetricsArgs;
use crate::times;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use tidemill_agent::{IsolationMode, UserRange};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Run an agent, which executes the jobs of graphs, until SIGTERM
    ///
    /// Commands outlive the agent: the next start with the same directory finds them.
    #[command(after_help = "Example:\n  tidemill agent run --server http://127.0.0.1:7171 --label gpu")]
    Run(Box<AgentRunArgs>),
    /// List agents and their states
    #[command(after_help = "Example:\n  tidemill agent list")]
    List,
    /// Stop giving new tasks to an agent; its current tasks continue
    #[command(
        after_help = "Examples:\n  tidemill agent drain builder-1\n  tidemill agent drain builder-1 --undo"
    )]
    Drain {
        /// Name or id of the agent
        agent: String,
        /// Give tasks to the agent again
        #[arg(long)]
        undo: bool,
    },
    /// Declare an agent dead, so that its jobs go to other agents at once
    ///
    /// Use it only if the commands of the agent no longer run and the agent will not return.
    #[command(after_help = "Example:\n  tidemill agent forget builder-1")]
    Forget {
        /// Name or id of the agent
        agent: String,
        /// Forget the agent even if it sent a heartbeat recently; a command that still runs would run twice
        #[arg(long)]
        force: bool,
    },
}

/// Policy for the isolation of an agent's tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    /// Use the mechanisms that the machine allows
    Auto,
    /// Refuse to start without user ids, PID namespaces and hidden files
    Required,
    /// Run tasks with the rights of the agent
    Off,
}

impl From<Isolation> for IsolationMode {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Auto => Self::Auto,
            Isolation::Required => Self::Required,
            Isolation::Off => Self::Off,
        }
    }
}

/// An agent, which needs a server and a directory of its own
#[derive(Debug, Args)]
pub(crate) struct AgentRunArgs {
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// Directory of the agent: its identity, its tasks and the outputs of jobs
    #[arg(long, value_name = "DIR", default_value = "tidemill-agent")]
    pub(crate) dir: PathBuf,
    /// Name of the agent; the default is the host name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Label that the agent offers to jobs; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Maximum total weight of the jobs that run at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=1000))]
    pub(crate) capacity: i32,
    /// File of NAME=value lines with secrets for jobs; only its owner may have access to it
    #[arg(long, value_name = "FILE")]
    pub(crate) secrets: Option<PathBuf>,
    /// Store for outputs that other agents need: file:///path, s3://bucket/prefix or az://container/prefix
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Retention of outputs on this machine after the last run that needs them ended; the default is until the
    /// server deletes that run
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    pub(crate) keep: Option<Duration>,
    /// Maximum size of the retained outputs, such as 50GiB; outputs that live runs need are always retained
    #[arg(long, value_name = "SIZE", value_parser = tidemill_core::graph::units::bytes)]
    pub(crate) keep_size: Option<u64>,
    /// Command that checks whether the database is under maintenance: exit code 0 means no, 3 means yes
    #[arg(long, value_name = "CMD")]
    pub(crate) probe: Option<String>,
    /// Interval of the probe, which is also its time limit
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration, default_value = "1m", requires = "probe")]
    pub(crate) probe_every: Duration,
    /// Take no new tasks, and exit when the agent has no tasks
    #[arg(long)]
    pub(crate) drain: bool,
    /// Stop the running commands, too, when the agent stops
    #[arg(long)]
    pub(crate) stop_commands: bool,
    /// Time between SIGTERM and SIGKILL when a command is stopped
    #[arg(long, value_name = "TIME", value_parser = times::parse_duration)]
    pub(crate) grace: Option<Duration>,
    /// Isolation of tasks from the agent and from each other: `auto` uses what the machine allows, `required` refuses
    /// to start without user ids, PID namespaces and hidden files
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Isolation::Auto)]
    pub(crate) isolation: Isolation,
    /// User ids for tasks if the agent runs as root; each running task has one of its own
    #[arg(long, value_name = "FIRST-LAST", default_value = "2000000000-2000009999")]
    pub(crate) task_users: UserRange,
}
