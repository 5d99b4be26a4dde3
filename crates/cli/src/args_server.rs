//! The command line of the server.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the server listens, and who may come in.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// Where it listens; 127.0.0.1:7171 unless configured otherwise.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// A certificate in PEM form, with those that vouch for it: speak TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM form.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Ask for tokens on this machine's own addresses too.
    #[arg(long)]
    pub(crate) auth: bool,
}

/// Where a process says what it counts. A server says it at its own address.
#[derive(Debug, Clone, Args)]
pub(crate) struct Watched {
    /// Say what this process counts at http://ADDR/metrics, for Prometheus, to whoever asks.
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<SocketAddr>,
}

/// Everything in one process.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) watched: Watched,
    #[command(flatten)]
    pub(crate) worker: crate::args_sync::Worker,
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// Leave the server out.
    #[arg(long, conflicts_with_all = ["listen", "tls_cert", "auth"])]
    pub(crate) no_server: bool,
    /// Leave the agent out. There is none either where the server listens on other addresses than this machine's own.
    #[arg(long)]
    pub(crate) no_agent: bool,
    /// The directory of the agent; one beside the database unless named.
    #[arg(long, value_name = "DIR", conflicts_with = "no_agent")]
    pub(crate) agent_dir: Option<PathBuf>,
    /// How much the agent carries at once, counted in weights of jobs.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        conflicts_with = "no_agent",
        value_parser = clap::value_parser!(i32).range(1..=1000)
    )]
    pub(crate) agent_capacity: i32,
    /// A file of NAME=value lines that jobs may ask for by name. Nobody else may be able to read it.
    #[arg(long, value_name = "FILE", conflicts_with = "no_agent")]
    pub(crate) agent_secrets: Option<PathBuf>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}
