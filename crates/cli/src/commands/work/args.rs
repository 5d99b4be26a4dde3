//! Command-line arguments of `tidemill work`.

use crate::commands::metrics::MetricsArgs;
use crate::times;
use clap::Args;
use std::time::Duration;

/// A worker that executes a command for each run
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tidemill work -- ./deploy.sh\n  \
                        tidemill work --slots 4 --label gpu -- make build")]
pub(crate) struct WorkArgs {
    /// Name of the worker; the default is the host name
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// Exit when no run is queued or executing that this worker could claim
    #[arg(long)]
    pub(crate) drain: bool,
    /// Label that the worker offers to runs; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Claim only runs of this project; may be repeated
    #[arg(long = "project", value_name = "PROJECT")]
    pub(crate) projects: Vec<String>,
    /// Maximum number of runs that execute at once
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub(crate) slots: Option<u16>,
    /// Time between SIGTERM and SIGKILL when a command is stopped
    #[arg(long, value_parser = times::parse_duration, value_name = "TIME")]
    pub(crate) grace: Option<Duration>,
    /// Do not run the maintenance loops in this process
    #[arg(long)]
    pub(crate) no_upkeep: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// Command to execute; it receives the run as JSON on standard input, and its id in TIDEMILL_RUN_ID
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}
