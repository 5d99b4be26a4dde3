//! The command line.

use crate::environment;
use crate::times::{self, When};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use tidemill_core::event::Level;
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_core::{Json, RunId};

/// Takes a run from queued to done on PostgreSQL, or on one SQLite file.
#[derive(Debug, Parser)]
#[command(
    name = "tidemill",
    version,
    after_help = "Exit codes: 0 done · 1 a bug or an outage · 2 the command line or configuration is wrong · \
                  3 refused (not found, not allowed, too late), or a watched run did not succeed"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Where the data is: postgres://…, sqlite://path, a path, or @file that holds the address.
    #[arg(long, global = true, env = environment::DATABASE, value_name = "URL", hide_env_values = true)]
    pub(crate) database: Option<String>,
    /// The schema on PostgreSQL.
    #[arg(long, global = true, env = environment::SCHEMA, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// A server to go through instead: http://host:port or https://host.
    #[arg(long, global = true, env = environment::SERVER, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The token for that server, or @file that holds it.
    #[arg(long, global = true, env = environment::TOKEN, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A file with certificates (PEM) of authorities that are trusted beside the usual ones, for a server with a
    /// certificate of your own.
    #[arg(long, global = true, env = environment::CA_FILE, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The configuration file; `tidemill.toml` in this folder where it exists.
    #[arg(long, global = true, env = environment::CONFIG, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON instead of tables and sentences.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How the log looks, on standard error.
    #[arg(long, global = true, env = environment::LOG_FORMAT, value_name = "FORMAT", default_value = "human")]
    pub(crate) log: crate::args_server::LogFormat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: a feed brought into a table, a worker killed in the middle, and the proof that nothing is
    /// missing.
    Demo(crate::args_sync::Demo),
    /// Create or update the tables and functions.
    Migrate,
    /// Manage the database's own roles (PostgreSQL).
    Roles {
        #[command(subcommand)]
        command: RolesCommand,
    },
    /// Manage projects and their environments.
    Project {
        #[command(subcommand)]
        command: ProjectCommand,
    },
    /// Queue, watch and change runs.
    Run {
        #[command(subcommand)]
        command: RunCommand,
    },
    /// Manage tokens: who may do what over HTTP.
    Token {
        #[command(subcommand)]
        command: crate::args_access::TokenCommand,
    },
    /// Queue runs by the clock.
    Schedule {
        #[command(subcommand)]
        command: ScheduleCommand,
    },
    /// Queue runs when somebody pushes: webhooks of GitHub and others.
    Hook {
        #[command(subcommand)]
        command: crate::args_hook::HookCommand,
    },
    /// List alerts, and try whether messages arrive.
    Alert {
        #[command(subcommand)]
        command: crate::args_alert::AlertCommand,
    },
    /// Claim runs and carry each out with a command.
    Work(Work),
    /// Check, submit, watch and change graphs: jobs with dependencies.
    Graph {
        #[command(subcommand)]
        command: crate::args_graph::GraphCommand,
    },
    /// Look at jobs of graphs, and run them again.
    Job {
        #[command(subcommand)]
        command: crate::args_graph::JobCommand,
    },
    /// Manage pools: how much of some jobs runs at once.
    Pool {
        #[command(subcommand)]
        command: crate::args_graph::PoolCommand,
    },
    /// Manage flags: pauses, maintenance, restarts.
    Flag {
        #[command(subcommand)]
        command: crate::args_graph::FlagCommand,
    },
    /// Prepare for a restart of the site: jobs are stopped, and wait until it is over.
    PrepareForReboot(crate::args_graph::Reboot),
    /// Control graphs: the only one that changes the state of jobs. Several may run, and one acts. Runs until SIGTERM.
    Controller(crate::args_server::Watched),
    /// Carry out tasks of graphs.
    Agent {
        #[command(subcommand)]
        command: crate::args_agent::AgentCommand,
    },
    /// Manage feeds: outside sources that are kept in a table.
    Feed {
        #[command(subcommand)]
        command: crate::args_sync::FeedCommand,
    },
    /// Look at syncs, and retry, cancel or consolidate them.
    Sync {
        #[command(subcommand)]
        command: crate::args_sync::SyncCommand,
    },
    /// Manage the rules that price stones.
    Rule {
        #[command(subcommand)]
        command: crate::args_sync::RuleCommand,
    },
    /// Look at queues and their dead letters.
    Queue {
        #[command(subcommand)]
        command: crate::args_sync::QueueCommand,
    },
    /// Plan syncs: seal the window, scan the feed, divide it. Runs until SIGTERM.
    Scheduler {
        /// Plan what is queued, and end.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        partitions: crate::args_sync::PartitionFlags,
        #[command(flatten)]
        watched: crate::args_server::Watched,
    },
    /// Carry out pages of syncs until SIGTERM. Or list workers of every kind, and drain them.
    Worker(crate::args_sync::Workers),
    /// Bring what was fetched into the canonical table. Runs until SIGTERM.
    Consolidator {
        /// Batches at a time.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
        concurrency: Option<u16>,
        /// Do what is there, and end.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        watched: crate::args_server::Watched,
    },
    /// Answer over HTTP. Runs until SIGTERM.
    Server(crate::args_server::Serve),
    /// Do everything in one process: answer, control graphs, carry out jobs, plan syncs, carry out pages, consolidate
    /// and keep up. Runs until SIGTERM.
    Up(crate::args_server::Up),
    /// Stand in for a supplier that speaks the Nivoda API.
    Supplier(crate::args_sync::Supplier),
    /// Do upkeep: end what is lost or overdue, fire schedules, prune.
    Sweep {
        /// Go on until stopped.
        #[arg(long = "loop")]
        forever: bool,
        #[command(flatten)]
        watched: crate::args_server::Watched,
    },
    /// Show the queue and how runs ended lately.
    Stats,
    /// Copy a SQLite database while it is in use.
    Backup {
        /// The file to make.
        target: PathBuf,
    },
    /// Show or check the configuration.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Look for trouble: schema, clocks, silent workers, old transactions; with --server, failing background loops.
    Doctor,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RolesCommand {
    /// Create owner, worker and reader roles, and give each what it needs.
    Create {
        /// What their names begin with.
        #[arg(long, default_value = "tidemill")]
        prefix: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProjectCommand {
    /// Create a project, or add environments to it.
    Create {
        /// Its id: lower-case letters, digits and dashes.
        id: String,
        /// An environment.
        #[arg(long = "env", value_name = "NAME", required = true)]
        environments: Vec<String>,
    },
    /// List projects.
    List,
    /// Stop workers from claiming a project's runs.
    Pause {
        /// The project.
        id: String,
        /// Why, for the others.
        #[arg(long)]
        note: Option<String>,
        /// When it ends by itself: a time, or a duration from now such as 2h.
        #[arg(long, value_parser = times::when)]
        until: Option<When>,
    },
    /// Let workers claim a project's runs again.
    Resume {
        /// The project.
        id: String,
    },
}

/// What a request asks for.
#[derive(Debug, Clone, Args)]
pub(crate) struct Request {
    /// The project.
    #[arg(long, value_name = "P")]
    pub(crate) project: String,
    /// The environment.
    #[arg(long, value_name = "E")]
    pub(crate) env: String,
    /// The commit.
    #[arg(long, value_name = "S")]
    pub(crate) git_sha: Option<String>,
    /// The branch or tag.
    #[arg(long, value_name = "R")]
    pub(crate) git_ref: Option<String>,
    /// What the worker should know, as a JSON object; @FILE reads it from a file, and @- from standard input.
    #[arg(long, value_name = "JSON", value_parser = metadata)]
    pub(crate) metadata: Option<Json>,
    /// Larger is first.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) priority: i32,
    /// Tries in all before a failure that a worker reports is final.
    #[arg(long, default_value_t = tidemill_core::limits::ATTEMPTS_DEFAULT, value_name = "N")]
    pub(crate) attempts: i32,
    /// Wait before the first retry; doubles each time.
    #[arg(long, value_parser = times::duration, default_value = "5s", value_name = "TIME")]
    pub(crate) backoff: Duration,
    /// How long the run may take.
    #[arg(long, value_parser = times::duration, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// At most one run of the project with this key is carried out at a time.
    #[arg(long, value_name = "KEY")]
    pub(crate) concurrency_key: Option<String>,
    /// Something that a worker must offer.
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Queue a run, and print its id.
    Queue {
        #[command(flatten)]
        request: Box<Request>,
        /// Makes asking twice the same as asking once.
        #[arg(long, value_name = "K")]
        idempotency_key: Option<String>,
        /// Not before: a time, or a duration from now such as 10m.
        #[arg(long = "at", value_parser = times::when, value_name = "TIME")]
        available_at: Option<When>,
        /// Cancelled if nobody claimed it by then.
        #[arg(long = "expires", value_parser = times::when, value_name = "TIME")]
        expires_at: Option<When>,
        /// Follow it until it ends.
        #[arg(long)]
        watch: bool,
    },
    /// List runs, the youngest first.
    List(Box<crate::args_list::RunList>),
    /// Show a run, its tries, and what is certain about each.
    Show {
        /// The run.
        id: RunId,
    },
    /// Show what was recorded about a run.
    Events {
        /// The run.
        id: RunId,
        /// Only events of at least this level.
        #[arg(long)]
        level: Option<Level>,
        /// After this sequence number.
        #[arg(long, default_value_t = 0)]
        after: i32,
        /// At most so many.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Follow a run, and the tries that follow it, until its request ends.
    Watch {
        /// The run.
        id: RunId,
    },
    /// Cancel a run, or ask its worker to stop.
    Cancel {
        /// The run.
        id: RunId,
        /// Why.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Fail a stalled run whose worker is gone.
    Fail(crate::args_list::RunFail),
    /// Queue another try of a run that failed or was cancelled.
    Retry {
        /// The run.
        id: RunId,
    },
    /// Say why a run is where it is.
    Why {
        /// The run.
        id: RunId,
    },
    /// Record something that a run made, or list it.
    Artifact {
        #[command(subcommand)]
        command: ArtifactCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// Record an artifact.
    Add {
        /// The run.
        id: RunId,
        /// What it is: image, sbom, logs …
        #[arg(long = "type", value_name = "TYPE")]
        artifact_type: String,
        /// Where it lives.
        #[arg(long)]
        url: String,
        /// The digest of its contents.
        #[arg(long)]
        digest: Option<String>,
        /// Its size in bytes.
        #[arg(long)]
        size: Option<i64>,
    },
    /// List a run's artifacts.
    List {
        /// The run.
        id: RunId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Create a schedule, or change the one of that name.
    Add {
        /// Its name.
        name: String,
        /// When it fires: five fields, or @daily and the like.
        #[arg(long)]
        cron: String,
        /// The time zone whose wall clock counts.
        #[arg(long, default_value = "UTC", value_name = "ZONE")]
        time_zone: String,
        /// What becomes of fires that were missed: skip, once or all.
        #[arg(long, default_value = "once")]
        missed: Missed,
        /// What becomes of a fire while the run before it is live: allow or skip.
        #[arg(long, default_value = "skip")]
        overlap: Overlap,
        #[command(flatten)]
        request: Box<Request>,
    },
    /// List schedules and when they fire next.
    List,
    /// Remove a schedule.
    Remove {
        /// Its name.
        name: String,
    },
    /// Stop a schedule from firing.
    Pause {
        /// Its name.
        name: String,
        /// Why, for the others.
        #[arg(long)]
        note: Option<String>,
    },
    /// Let a schedule fire again.
    Resume {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key with its default.
    Default,
    /// Check the configuration, and report every fault.
    Check,
}

/// A worker that carries runs out with a command.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// A name for people; this machine's name where there is none.
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,
    /// End when nothing is left to do.
    #[arg(long)]
    pub(crate) drain: bool,
    /// Something that this worker offers.
    #[arg(long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Work only for this project.
    #[arg(long = "project", value_name = "P")]
    pub(crate) projects: Vec<String>,
    /// Runs carried out at once.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub(crate) slots: Option<u16>,
    /// How long a command may take to end when it is told to.
    #[arg(long, value_parser = times::duration, value_name = "TIME")]
    pub(crate) grace: Option<Duration>,
    /// Leave upkeep to others.
    #[arg(long)]
    pub(crate) no_upkeep: bool,
    #[command(flatten)]
    pub(crate) watched: crate::args_server::Watched,
    /// The command. It gets the run as JSON on its standard input, and in TIDEMILL_RUN_ID and the like.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// Bytes of metadata in a file: more than a run takes, since spaces between its parts are not kept.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Metadata as it is, or where it is: an argument carries only half of what a run takes.
fn metadata(text: &str) -> Result<Json, String> {
    let Some(path) = text.strip_prefix('@') else { return json(text) };
    let read = match path {
        "-" => bounded(std::io::stdin().lock()),
        path => std::fs::File::open(path).and_then(bounded),
    };
    let bytes = read.map_err(|error| format!("could not read it: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("there are more than {FILE_BYTES_MAX} bytes of it"));
    }
    json(&String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?)
}

/// What can be read, and one byte more than is taken at most: a file may have no end.
fn bounded(source: impl std::io::Read) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn json(text: &str) -> Result<Json, String> {
    tidemill_core::json::check_text(text).map_err(|problem| format!("it {}", problem.with_advice()))?;
    let value: Json = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    if value.is_object() {
        Ok(value)
    } else {
        Err("it must be a JSON object, such as {\"key\": 1}".to_owned())
    }
}
