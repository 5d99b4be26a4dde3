//! Command-line arguments of `tidemill graph`.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use tidemill_core::RunId;

#[derive(Debug, Subcommand)]
pub(crate) enum GraphCommand {
    /// Check a graph file without submitting it, and report every error with line and column
    #[command(after_help = "Example:\n  tidemill graph check tidemill.graph.yaml")]
    Check {
        /// Graph file, or - for standard input
        #[arg(default_value = "tidemill.graph.yaml")]
        file: PathBuf,
    },
    /// Submit a graph, and print the id of its run
    #[command(after_help = "Examples:\n  tidemill graph submit tidemill.graph.yaml --watch\n  \
                            tidemill graph submit --only deploy")]
    Submit(GraphSubmitArgs),
    /// Show a graph: its jobs as a tree, with states, durations and agents
    #[command(after_help = "Example:\n  tidemill graph show run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Show {
        /// Run of the graph
        run: RunId,
    },
    /// Follow a graph until it ends; the exit code is 0 if it succeeded, and 3 otherwise
    #[command(after_help = "Example:\n  tidemill graph watch run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Watch {
        /// Run of the graph
        run: RunId,
    },
    /// Cancel a graph, or some of its jobs
    #[command(
        after_help = "Example:\n  tidemill graph cancel run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --job deploy"
    )]
    Cancel {
        /// Run of the graph
        run: RunId,
        /// Cancel only the job of this name; may be repeated
        #[arg(long = "job", value_name = "JOB")]
        jobs: Vec<String>,
        /// Reason to record with the graph
        #[arg(long)]
        reason: Option<String>,
    },
    /// Retry a graph that has ended, reuse its succeeded jobs, and print the id of the new run
    #[command(
        after_help = "Example:\n  tidemill graph retry run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --watch"
    )]
    Retry {
        /// Run of the graph
        run: RunId,
        /// Run this job again, and all jobs that depend on it; may be repeated
        #[arg(long = "job", value_name = "JOB")]
        jobs: Vec<String>,
        /// Follow the new run until it ends
        #[arg(long)]
        watch: bool,
    },
    /// Print the output of jobs: with visible escapes on a terminal, unchanged for another program
    #[command(
        after_help = "Example:\n  tidemill graph logs run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e build --follow"
    )]
    Logs {
        /// Run of the graph
        run: RunId,
        /// Print only the output of the job of this name
        job: Option<String>,
        /// Continue until the job, or the graph, has ended
        #[arg(short, long)]
        follow: bool,
        /// Number of the attempt, from 1; the default is the last attempt
        #[arg(long, value_name = "N", requires = "job", value_parser = clap::value_parser!(i32).range(1..))]
        attempt: Option<i32>,
    },
    /// Print the JSON Schema of graph files, for editors
    #[command(after_help = "Example:\n  tidemill graph schema > tidemill.graph.schema.json")]
    Schema,
}

/// The graph to submit
#[derive(Debug, Args)]
pub(crate) struct GraphSubmitArgs {
    /// Graph file, or - for standard input
    #[arg(default_value = "tidemill.graph.yaml")]
    pub(crate) file: PathBuf,
    /// Run only this job and its dependencies; dependencies that succeeded before are reused; may be repeated
    #[arg(long = "only", value_name = "JOB")]
    pub(crate) only: Vec<String>,
    /// Workspace whose outputs are shared, instead of the one in the file
    #[arg(long, value_name = "NAME")]
    pub(crate) workspace: Option<String>,
    /// Run dependencies again even if they succeeded before
    #[arg(long)]
    pub(crate) rerun_needed: bool,
    /// Project that the run belongs to
    #[arg(long, value_name = "PROJECT", default_value = "default")]
    pub(crate) project: String,
    /// Environment of the project
    #[arg(long, value_name = "ENV", default_value = "default")]
    pub(crate) env: String,
    /// Idempotency key: a repeated request with the same key returns the first run
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Git commit to record with the run
    #[arg(long, value_name = "SHA")]
    pub(crate) git_sha: Option<String>,
    /// Git branch or tag to record with the run
    #[arg(long, value_name = "REF")]
    pub(crate) git_ref: Option<String>,
    /// Follow the graph until it ends
    #[arg(long)]
    pub(crate) watch: bool,
}
