//! The top-level command line: global options and the list of commands.
//!
//! The arguments of each command stand in the module of that command.

use crate::commands::{
    agent, alert, audit, backup, completions, config, console, consolidator, demo, feed, flag, graph, health,
    hook, job, man, metrics, migrate, pool, project, queue, reboot, roles, rule, run, schedule, scheduler,
    server, supplier, sweep, sync, token, up, work, worker,
};
use crate::environment;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Durable run queue on PostgreSQL or SQLite
#[derive(Debug, Parser)]
#[command(
    name = "tidemill",
    version,
    after_help = "Exit codes: 0 success · 1 internal error or outage · 2 invalid command line or configuration · \
                  3 refused (not found, not allowed, too late), or the watched run did not succeed"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Database address: postgres://…, sqlite://path, a file path, or @file to read the address from a file
    #[arg(long, global = true, env = environment::DATABASE, value_name = "URL", hide_env_values = true)]
    pub(crate) database: Option<String>,
    /// PostgreSQL schema that holds the tables
    #[arg(long, global = true, env = environment::SCHEMA, value_name = "NAME")]
    pub(crate) schema: Option<String>,
    /// Use the HTTP API of this server instead of the database: http://host:port or https://host
    #[arg(long, global = true, env = environment::SERVER, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Access token for the server, or @file to read it from a file
    #[arg(long, global = true, env = environment::TOKEN, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// PEM file with additional certificate authorities to trust for the server
    #[arg(long, global = true, env = environment::CA_FILE, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Configuration file; the default is tidemill.toml in the current directory if it exists
    #[arg(long, global = true, env = environment::CONFIG, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON instead of tables and sentences
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Format of the log on standard error
    #[arg(long, global = true, env = environment::LOG_FORMAT, value_name = "FORMAT", default_value = "human")]
    pub(crate) log: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Readable lines, with colours on a terminal
    #[default]
    Human,
    /// One JSON object per line
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a demonstration: sync a feed while a worker is killed, then verify the table
    Demo(demo::DemoArgs),
    /// Create or update the tables and SQL functions
    Migrate(migrate::MigrateArgs),
    /// Manage database roles (PostgreSQL)
    Roles {
        #[command(subcommand)]
        command: roles::RolesCommand,
    },
    /// Manage projects and their environments
    Project {
        #[command(subcommand)]
        command: project::ProjectCommand,
    },
    /// Queue, inspect, watch, cancel and retry runs
    Run {
        #[command(subcommand)]
        command: run::args::RunCommand,
    },
    /// Manage access tokens of the HTTP API
    Token {
        #[command(subcommand)]
        command: token::TokenCommand,
    },
    /// Manage cron schedules that queue runs
    Schedule {
        #[command(subcommand)]
        command: schedule::ScheduleCommand,
    },
    /// Manage webhooks that queue a run for each push
    Hook {
        #[command(subcommand)]
        command: hook::HookCommand,
    },
    /// List alerts, and send test messages to alert targets
    Alert {
        #[command(subcommand)]
        command: alert::AlertCommand,
    },
    /// List, export and verify the audit log
    Audit {
        #[command(subcommand)]
        command: audit::AuditCommand,
    },
    /// Claim runs and execute a command for each of them
    Work(work::args::WorkArgs),
    /// Check, submit, watch, cancel and retry graphs of dependent jobs
    Graph {
        #[command(subcommand)]
        command: graph::args::GraphCommand,
    },
    /// Inspect and retry the jobs of graphs
    Job {
        #[command(subcommand)]
        command: job::JobCommand,
    },
    /// Manage pools, which limit how many jobs run at once
    Pool {
        #[command(subcommand)]
        command: pool::PoolCommand,
    },
    /// Manage flags: pauses, maintenance and restarts
    Flag {
        #[command(subcommand)]
        command: flag::FlagCommand,
    },
    /// Stop all jobs before a restart of the machines, and resume them after it
    PrepareForReboot(reboot::RebootArgs),
    /// Run the controller, which schedules the jobs of graphs, until SIGTERM
    ///
    /// The controller is the only process that changes the state of jobs. Several controllers may run; one of them
    /// is active.
    #[command(after_help = "Example:\n  tidemill controller")]
    Controller(metrics::MetricsArgs),
    /// Run and manage agents, which execute the jobs of graphs
    Agent {
        #[command(subcommand)]
        command: agent::args::AgentCommand,
    },
    /// Manage feeds: external sources that are synchronised into a table
    Feed {
        #[command(subcommand)]
        command: feed::args::FeedCommand,
    },
    /// Inspect, retry, cancel and consolidate syncs
    Sync {
        #[command(subcommand)]
        command: sync::SyncCommand,
    },
    /// Manage pricing rules
    Rule {
        #[command(subcommand)]
        command: rule::args::RuleCommand,
    },
    /// Inspect message queues, and replay dead letters
    Queue {
        #[command(subcommand)]
        command: queue::QueueCommand,
    },
    /// Run the scheduler, which plans syncs, until SIGTERM
    ///
    /// For each queued sync it fixes the time window, scans the feed and divides it into partitions.
    Scheduler(scheduler::SchedulerArgs),
    /// Run a page worker for syncs until SIGTERM, or list and drain workers
    Worker(worker::WorkerArgs),
    /// Run the consolidator, which writes fetched records to the canonical table, until SIGTERM
    Consolidator(consolidator::ConsolidatorArgs),
    /// Run the HTTP API and the console until SIGTERM
    Server(server::ServerArgs),
    /// Print a one-time link to the console of a server on this machine, and open it
    Console(console::ConsoleArgs),
    /// Run every service in one process until SIGTERM
    ///
    /// Runs the migrations first, then the server, controller, agent, scheduler, page worker, consolidator and the
    /// maintenance loops.
    Up(up::UpArgs),
    /// Run a simulated supplier that serves the Nivoda API
    Supplier(supplier::SupplierArgs),
    /// Run maintenance: fail lost and overdue runs, fire schedules, delete old runs
    Sweep(sweep::SweepArgs),
    /// Show queue depth, running work and recent results
    #[command(after_help = "Example:\n  tidemill stats")]
    Stats,
    /// Copy a SQLite database while it is in use
    Backup(backup::BackupArgs),
    /// Print the default configuration, or check a configuration file
    Config {
        #[command(subcommand)]
        command: config::ConfigCommand,
    },
    /// Check the installation: schema, clocks, workers, schedules and old transactions
    ///
    /// With --server, checks that the server answers and that its background loops succeed.
    #[command(after_help = "Examples:\n  tidemill doctor\n  tidemill doctor --server http://127.0.0.1:7171")]
    Doctor,
    /// Probe a server or another role once: for containers and monitors
    ///
    /// Succeeds if the server at --server, or at the configured address, and its database answer. A failing background
    /// loop is printed and does not fail the probe. The exit code is 1 if the process does not answer or is not ready.
    Health(health::HealthArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages of all commands to a directory
    Man(man::ManArgs),
}
