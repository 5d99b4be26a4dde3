//! The command line of agents.

use crate::times;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Take tasks of graphs and carry them out. Runs until SIGTERM; commands go on, and the next start finds them.
    Run(Box<AgentRun>),
    /// List agents, and whether they are there.
    List,
    /// Let an agent get no new tasks; what it has goes on.
    Drain {
        /// The agent: its name, or its id.
        agent: String,
        /// Let it get tasks again.
        #[arg(long)]
        undo: bool,
    },
    /// Say that nothing of an agent runs any more, and that it does not come back: its jobs go to others at once.
    Forget {
        /// The agent: its name, or its id.
        agent: String,
        /// Also if it was heard just now: a command of it that still runs would run twice.
        #[arg(long)]
        force: bool,
    },
}

/// An agent. It needs a server to ask, and a directory of its own.
#[derive(Debug, Args)]
pub(crate) struct AgentRun {
    #[command(flatten)]
    pub(crate) watched: crate::args_server::Watched,
    /// Its directory: who it is, what it holds, and what jobs left.
    #[arg(long, value_name = "DIR", default_value = "tidemill-agent")]
    pub(crate) dir: PathBuf,
    /// A name for people; this machine's name where there is none.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Something that this agent offers.
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// How much it carries at once, counted in weights of jobs.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(i32).range(1..=1000))]
    pub(crate) capacity: i32,
    /// A file of NAME=value lines that jobs may ask for by name. Nobody else may be able to read it.
    #[arg(long, value_name = "FILE")]
    pub(crate) secrets: Option<PathBuf>,
    /// Where outputs go for agents elsewhere: file:///path, s3://bucket/prefix or az://container/prefix.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// How long what jobs left is kept on this machine after the last run ended that needed it; until that run is
    /// removed from the server where no time is given.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    pub(crate) keep: Option<Duration>,
    /// How much of it is kept at most, such as 50GiB. What runs that go on need is kept at any rate.
    #[arg(long, value_name = "SIZE", value_parser = tidemill_core::graph::units::bytes)]
    pub(crate) keep_size: Option<u64>,
    /// A command that tells whether the database is under maintenance: exit code 0 says no, 3 says yes.
    #[arg(long, value_name = "CMD")]
    pub(crate) probe: Option<String>,
    /// Time between two probes; one may take as long.
    #[arg(long, value_name = "TIME", value_parser = times::duration, default_value = "1m", requires = "probe")]
    pub(crate) probe_every: Duration,
    /// Take no new tasks, and end when nothing is held.
    #[arg(long)]
    pub(crate) drain: bool,
    /// End commands too when told to end.
    #[arg(long)]
    pub(crate) stop_commands: bool,
    /// How long a command may take to end when it is told to.
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    pub(crate) grace: Option<Duration>,
}
