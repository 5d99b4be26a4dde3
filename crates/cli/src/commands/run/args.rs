//! Command-line arguments of `tidemill run`.

use crate::times::{self, When};
use crate::values::parse_metadata;
use clap::{Args, Subcommand};
use std::time::Duration;
use tidemill_core::event::Level;
use tidemill_core::limits::{GRAPH_NAME_CHARS_MAX, KIND_BYTES_MAX};
use tidemill_core::run::{Lane, RunCursor, RunState};
use tidemill_core::{Json, RunId};

/// The request that a run or a schedule executes
#[derive(Debug, Clone, Args)]
pub(crate) struct RunRequestArgs {
    /// Project that the run belongs to
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: String,
    /// Environment of the project
    #[arg(long, value_name = "ENV")]
    pub(crate) env: String,
    /// Git commit to record with the run
    #[arg(long, value_name = "SHA")]
    pub(crate) git_sha: Option<String>,
    /// Git branch or tag to record with the run
    #[arg(long, value_name = "REF")]
    pub(crate) git_ref: Option<String>,
    /// JSON object that is passed to the worker; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = parse_metadata)]
    pub(crate) metadata: Option<Json>,
    /// Priority of the run; higher values are claimed first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Maximum number of attempts before a failure that a worker reports is final
    #[arg(long, default_value_t = tidemill_core::limits::ATTEMPTS_DEFAULT, value_name = "N")]
    pub(crate) attempts: i32,
    /// Delay before the first retry; it doubles with each retry
    #[arg(long, value_parser = times::parse_duration, default_value = "5s", value_name = "TIME")]
    pub(crate) backoff: Duration,
    /// Time limit of the run
    #[arg(long, value_parser = times::parse_duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// Concurrency key: only one run of the project with this key executes at a time
    #[arg(long, value_name = "KEY")]
    pub(crate) concurrency_key: Option<String>,
    /// Label that a worker must have to claim the run; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Kind of work, by which a worker chooses the handler, such as email
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) kind: String,
}

/// Options of a single request, which exclude `--from`.
const REQUEST_OPTIONS: [&str; 16] = [
    "project",
    "env",
    "git_sha",
    "git_ref",
    "metadata",
    "priority",
    "attempts",
    "backoff",
    "timeout",
    "concurrency_key",
    "labels",
    "kind",
    "idempotency_key",
    "available_at",
    "expires_at",
    "watch",
];

/// Makes an option optional if `--from` names the requests.
fn optional_with_from(argument: clap::Arg) -> clap::Arg {
    argument.required(false).required_unless_present("from").default_value_if(
        "from",
        clap::builder::ArgPredicate::IsPresent,
        "",
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Queue a run, and print its id
    #[command(
        after_help = "Examples:\n  \
                      tidemill run queue --project shop --env staging --kind email --metadata '{\"to\": \"ada\"}'\n  \
                      tidemill run queue --from requests.jsonl",
        mut_arg("project", optional_with_from),
        mut_arg("env", optional_with_from)
    )]
    Queue {
        #[command(flatten)]
        request: Box<RunRequestArgs>,
        /// Idempotency key: a repeated request with the same key returns the first run
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// Earliest start: a time, or a duration from now such as 10m
        #[arg(long = "at", value_parser = times::parse_when, value_name = "TIME")]
        available_at: Option<When>,
        /// Cancel the run if no worker has claimed it by then: a time, or a duration from now such as 2h
        #[arg(long = "expires", value_parser = times::parse_when, value_name = "TIME")]
        expires_at: Option<When>,
        /// Follow the run until it ends
        #[arg(long)]
        watch: bool,
        /// Queue one run for each line of this file, or of standard input if it is -; a line is a JSON object with the
        /// fields of the HTTP API and of idempotency_key
        #[arg(long, value_name = "FILE", conflicts_with_all = REQUEST_OPTIONS)]
        from: Option<String>,
    },
    /// List runs, newest first
    #[command(after_help = "Examples:\n  tidemill run list --project shop --status failed\n  \
                            tidemill run list --kind email --since 2h --limit 100")]
    List(Box<RunListArgs>),
    /// Show a run and its attempts, and which of its effects are certain
    #[command(after_help = "Example:\n  tidemill run show run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Show {
        /// Run to show
        id: RunId,
    },
    /// Show the events of a run
    #[command(
        after_help = "Example:\n  tidemill run events run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --level warn"
    )]
    Events {
        /// Run whose events are shown
        id: RunId,
        /// Show only events of this level or higher
        #[arg(long)]
        level: Option<Level>,
        /// Show only events after this sequence number
        #[arg(long, default_value_t = 0)]
        after: i32,
        /// Maximum number of events
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Follow a run and its retries until the request ends
    #[command(after_help = "Example:\n  tidemill run watch run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Watch {
        /// Run to follow
        id: RunId,
    },
    /// Cancel a queued run, or request that the worker of a started run stops
    #[command(
        after_help = "Example:\n  tidemill run cancel run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --reason typo"
    )]
    Cancel {
        /// Run to cancel
        id: RunId,
        /// Reason to record with the run
        #[arg(long)]
        reason: Option<String>,
    },
    /// Fail a stalled run whose worker is gone
    #[command(after_help = "Example:\n  tidemill run fail run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e --retry")]
    Fail(RunFailArgs),
    /// Queue another attempt of a run that failed or was cancelled
    #[command(after_help = "Example:\n  tidemill run retry run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Retry {
        /// Run to retry
        id: RunId,
    },
    /// Explain why a run is in its state
    #[command(after_help = "Example:\n  tidemill run why run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    Why {
        /// Run to explain
        id: RunId,
    },
    /// Record and list artifacts of a run
    Artifact {
        #[command(subcommand)]
        command: ArtifactCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// Record an artifact of a run
    #[command(after_help = "Example:\n  tidemill run artifact add run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e \
                            --type sbom --url s3://ci/sbom")]
    Add {
        /// Run that produced the artifact
        id: RunId,
        /// Type of the artifact: image, sbom, logs …
        #[arg(long = "type", value_name = "TYPE")]
        artifact_type: String,
        /// Address of the artifact
        #[arg(long)]
        url: String,
        /// Digest of the contents
        #[arg(long)]
        digest: Option<String>,
        /// Size in bytes
        #[arg(long)]
        size: Option<i64>,
    },
    /// List the artifacts of a run
    #[command(after_help = "Example:\n  tidemill run artifact list run-0192f5a0-7c1e-7b3a-9d4e-2f6a8b0c1d2e")]
    List {
        /// Run whose artifacts are listed
        id: RunId,
    },
}

/// Filters of the list of runs; a run must match all of them
#[derive(Debug, Clone, Args)]
pub(crate) struct RunListArgs {
    /// Show only runs of this project
    #[arg(long)]
    pub(crate) project: Option<String>,
    /// Show only runs of this environment
    #[arg(long)]
    pub(crate) env: Option<String>,
    /// Show only runs in this state
    #[arg(long)]
    pub(crate) status: Option<RunState>,
    /// Alias of --status
    // An option of its own instead of a clap alias, so that an error names the option that was typed.
    #[arg(long, conflicts_with = "status")]
    pub(crate) state: Option<RunState>,
    /// Show only runs of this lane: ops, graph or sync
    #[arg(long)]
    pub(crate) lane: Option<Lane>,
    /// Show only runs of this kind
    #[arg(long, value_parser = parse_kind)]
    pub(crate) kind: Option<String>,
    /// Show only sync runs of this feed
    #[arg(long)]
    pub(crate) feed: Option<String>,
    /// Show only runs queued at or after this time: a time, or a duration before now such as 2h
    #[arg(long, value_parser = times::parse_when, value_name = "TIME")]
    pub(crate) since: Option<When>,
    /// Show only runs queued before this time: a time, or a duration before now such as 30m
    #[arg(long, value_parser = times::parse_when, value_name = "TIME")]
    pub(crate) until: Option<When>,
    /// Show only runs whose id starts with this prefix; `run-` may be omitted
    #[arg(long, value_parser = parse_id_prefix, value_name = "PREFIX")]
    pub(crate) id: Option<String>,
    /// Show only runs whose commit starts with this prefix of at least four characters
    #[arg(long, value_parser = parse_sha_prefix, value_name = "PREFIX")]
    pub(crate) sha: Option<String>,
    /// Show only runs whose branch or tag starts with this prefix
    #[arg(long = "ref", value_parser = parse_ref_prefix, value_name = "PREFIX")]
    pub(crate) git_ref: Option<String>,
    /// Show only runs whose name starts with this prefix: the name of the graph or of the synced feed
    #[arg(long, value_parser = parse_name_prefix, value_name = "PREFIX")]
    pub(crate) name: Option<String>,
    /// Maximum number of runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Show only runs older than this one: the id of a run, or the position that the previous page printed
    #[arg(long, value_name = "RUN")]
    pub(crate) before: Option<RunCursor>,
}

/// The stalled run to fail
#[derive(Debug, Args)]
pub(crate) struct RunFailArgs {
    /// Stalled run to fail
    pub(crate) id: RunId,
    /// Queue a successor for the request
    #[arg(long)]
    pub(crate) retry: bool,
    /// Reason to record with the run
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// Parses a prefix of a run id, with or without `run-`.
fn parse_id_prefix(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("run-").unwrap_or(text);
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !text.is_empty() && rest.len() <= 60 && rest.bytes().all(is_allowed) {
        return Ok(format!("run-{rest}"));
    }
    Err("a run id is `run-` followed by lower-case letters, digits and hyphens".to_owned())
}

fn parse_kind(text: &str) -> Result<String, String> {
    let fits = (1..=KIND_BYTES_MAX).contains(&text.len());
    if fits { Ok(text.to_owned()) } else { Err(format!("a kind must have 1 to {KIND_BYTES_MAX} bytes")) }
}

fn parse_sha_prefix(text: &str) -> Result<String, String> {
    let is_long_enough = (4..=1024).contains(&text.len());
    if is_long_enough { Ok(text.to_owned()) } else { Err("give at least 4 characters of it".to_owned()) }
}

fn parse_name_prefix(text: &str) -> Result<String, String> {
    let fits = (1..=GRAPH_NAME_CHARS_MAX).contains(&text.chars().count());
    if fits { Ok(text.to_owned()) } else { Err(format!("give 1 to {GRAPH_NAME_CHARS_MAX} characters of it")) }
}

fn parse_ref_prefix(text: &str) -> Result<String, String> {
    let fits = (1..=1024).contains(&text.len());
    if fits { Ok(text.to_owned()) } else { Err("give 1 to 1024 characters of it".to_owned()) }
}

#[cfg(test)]
mod tests {
    use crate::args::Arguments;
    use clap::Parser as _;

    #[test]
    fn invalid_state_error_names_the_option_as_typed() {
        let error = |option: &str| {
            let words = ["tidemill", "run", "list", option, "done"];
            Arguments::try_parse_from(words).expect_err("`done` is not a state").to_string()
        };
        assert!(error("--state").contains("'--state <"), "{}", error("--state"));
        assert!(error("--status").contains("'--status <"), "{}", error("--status"));
        for option in ["--state", "--status"] {
            let words = ["tidemill", "run", "list", option, "failed"];
            assert!(Arguments::try_parse_from(words).is_ok(), "{option}");
        }
    }
}
