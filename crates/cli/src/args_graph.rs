//! The command line of graphs.

use crate::times::{self, When};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tidemill_core::RunId;
use tidemill_core::project::FlagName;

#[derive(Debug, Subcommand)]
pub(crate) enum GraphCommand {
    /// Look at a file without submitting it: everything that is wrong with it, with line and column.
    Check {
        /// The file, or - for the standard input.
        #[arg(default_value = "tidemill.graph.yaml")]
        file: PathBuf,
    },
    /// Submit a graph, and print the id of its run.
    Submit(Submit),
    /// Show a graph: its jobs as a tree, with states, durations and agents.
    Show {
        /// The run.
        run: RunId,
    },
    /// Follow a graph to its end. Exits with 0 if it succeeded, and with 3 otherwise.
    Watch {
        /// The run.
        run: RunId,
    },
    /// Stop a graph, or some of its jobs.
    Cancel {
        /// The run.
        run: RunId,
        /// Only this job, by its name.
        #[arg(long = "job", value_name = "JOB")]
        jobs: Vec<String>,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Try a graph again that has ended, and print the id of the next run; what succeeded is reused.
    Retry {
        /// The run.
        run: RunId,
        /// Run this job again, with everything after it.
        #[arg(long = "job", value_name = "JOB")]
        jobs: Vec<String>,
        /// Follow it until it ends.
        #[arg(long)]
        watch: bool,
    },
    /// Print what jobs wrote.
    Logs {
        /// The run.
        run: RunId,
        /// Only this job, by its name.
        job: Option<String>,
        /// Go on until the job, or the graph, has ended.
        #[arg(short, long)]
        follow: bool,
        /// Only this attempt, from 1; the last one where it is not said.
        #[arg(long, value_name = "N", requires = "job", value_parser = clap::value_parser!(i32).range(1..))]
        attempt: Option<i32>,
    },
    /// Print the JSON Schema of graph files, for editors.
    Schema,
}

/// A graph to submit.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// The file, or - for the standard input.
    #[arg(default_value = "tidemill.graph.yaml")]
    pub(crate) file: PathBuf,
    /// Only this job, and what it needs; what it needs is reused where it succeeded before.
    #[arg(long = "only", value_name = "JOB")]
    pub(crate) only: Vec<String>,
    /// Whose outputs are shared, if not those that the file names.
    #[arg(long, value_name = "W")]
    pub(crate) workspace: Option<String>,
    /// Run what is only needed again, although it succeeded before.
    #[arg(long)]
    pub(crate) rerun_needed: bool,
    /// The project.
    #[arg(long, value_name = "P", default_value = "default")]
    pub(crate) project: String,
    /// The environment.
    #[arg(long, value_name = "E", default_value = "default")]
    pub(crate) env: String,
    /// Makes asking twice the same as asking once.
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,
    /// The commit that it is about.
    #[arg(long, value_name = "S")]
    pub(crate) git_sha: Option<String>,
    /// The branch or tag that it is about.
    #[arg(long, value_name = "R")]
    pub(crate) git_ref: Option<String>,
    /// Follow it until it ends.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Show a job: its tasks, how it changed, and what it left.
    Show {
        /// The job: its id, or RUN/NAME.
        job: JobName,
    },
    /// Say why a job is where it is.
    Why {
        /// The job: its id, or RUN/NAME.
        job: JobName,
    },
    /// Run a job of an ended graph again, with everything after it.
    Retry {
        /// The job: its id, or RUN/NAME.
        job: JobName,
        /// Follow the run that does it until it ends.
        #[arg(long)]
        watch: bool,
    },
}

/// A job by its id, or by its run and name.
#[derive(Debug, Clone)]
pub(crate) struct JobName {
    /// Its id: it follows from the run and the name.
    pub(crate) id: String,
    /// The run and the name, where they were given.
    pub(crate) named: Option<(RunId, String)>,
}

impl std::str::FromStr for JobName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((run, name)) = text.split_once('/') {
            let run: RunId = run.parse().map_err(|error| format!("{error}"))?;
            let id = tidemill_core::task::job_id(&run, name);
            return Ok(Self { id, named: Some((run, name.to_owned())) });
        }
        let fits = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if fits {
            Ok(Self { id: text.to_owned(), named: None })
        } else {
            Err("write the id of a job, or RUN/NAME".to_owned())
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List pools, and how full they are.
    List,
    /// Make a pool, or change its size; what runs goes on.
    Set {
        /// Its name, as definitions name it.
        name: String,
        /// How much of its jobs may run at once, counted in their weights.
        #[arg(value_parser = clap::value_parser!(i32).range(0..=1_000_000))]
        size: i32,
    },
    /// Remove a pool that no live job names.
    Remove {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlagCommand {
    /// List what is held, and why.
    List,
    /// Switch a flag on: paused, maintenance, reboot or probe_off.
    Set {
        /// The flag.
        flag: FlagName,
        /// What it holds: site, lane:graph, lane:ops, lane:sync, project:ID or feed:NAME. Only pauses hold less than
        /// the site.
        #[arg(long, default_value = "site")]
        scope: String,
        /// Why, for the others.
        #[arg(long)]
        note: Option<String>,
        /// When it ends by itself: a time, or a duration from now such as 2h.
        #[arg(long, value_parser = times::when)]
        until: Option<When>,
    },
    /// Switch a flag off.
    Clear {
        /// The flag.
        flag: FlagName,
        /// What it holds.
        #[arg(long, default_value = "site")]
        scope: String,
    },
}

/// A restart of the site.
#[derive(Debug, Args)]
pub(crate) struct Reboot {
    /// Only say whether it is safe. Exits with 0 if it is, and with 3 if not.
    #[arg(long, conflicts_with_all = ["cancel", "note"])]
    pub(crate) status: bool,
    /// The restart is over, or does not take place: jobs go on.
    #[arg(long, conflicts_with = "note")]
    pub(crate) cancel: bool,
    /// Why, for the others.
    #[arg(long)]
    pub(crate) note: Option<String>,
}
