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

/// Everything in one process.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) worker: crate::args_sync::Worker,
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// Leave the server out.
    #[arg(long, conflicts_with_all = ["listen", "tls_cert", "auth"])]
    pub(crate) no_server: bool,
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
