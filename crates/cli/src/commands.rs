//! One module per command, with its arguments.

pub(crate) mod agent;
pub(crate) mod alert;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod consolidator;
mod controller;
mod definition_file;
pub(crate) mod demo;
mod doctor;
pub(crate) mod feed;
pub(crate) mod flag;
pub(crate) mod graph;
pub(crate) mod health;
pub(crate) mod hook;
pub(crate) mod job;
pub(crate) mod man;
pub(crate) mod metrics;
pub(crate) mod migrate;
pub(crate) mod pool;
pub(crate) mod project;
pub(crate) mod queue;
pub(crate) mod reboot;
pub(crate) mod roles;
pub(crate) mod rule;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod scheduler;
pub(crate) mod server;
mod services;
mod stats;
pub(crate) mod supplier;
pub(crate) mod sweep;
pub(crate) mod sync;
pub(crate) mod token;
pub(crate) mod up;
pub(crate) mod work;
pub(crate) mod worker;

use crate::args::{Arguments, Command, Global};
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use crate::{environment, in_process, remote, retry};
use feed::args::FeedCommand;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{Options, Store};

const PATIENCE: RetryPolicy = RetryPolicy::For(retry::RETRY_FOR);

pub(crate) async fn dispatch(arguments: Arguments, config: Config, out: Out) -> Result<ExitCode, Failure> {
    warn_of_secrets(out);
    refuse_server(&arguments)?;
    metrics::listen(&arguments.command, out).await?;
    let global = arguments.global;
    let api = Api { global: &global, config: &config };
    match arguments.command {
        Command::Demo(args) => Box::pin(demo::demo(args, &config, out)).await,
        Command::Migrate(args) => migrate::command(&config, &args, out).await,
        Command::Roles { command } => roles::command(&config, command, out).await,
        Command::Backup(args) => backup::backup(&config, args, out).await,
        Command::Project { command } => api.run(|client| project::command(client, command, out)).await,
        Command::Run { command } => api.run(|client| run::command(client, command, out)).await,
        Command::Token { command } => api.run(|client| token::command(client, command, out)).await,
        Command::Schedule { command } => api.run(|client| schedule::command(client, command, out)).await,
        Command::Hook { command } => api.run(|client| hook::command(client, command, out)).await,
        Command::Alert { command } => api.run(|client| alert::command(client, command, out)).await,
        Command::Audit { command } => match audit::command_without_database(&command, out) {
            Some(result) => result,
            None => api.run(|client| audit::command(client, command, out)).await,
        },
        Command::Graph { command } => match graph::command_without_database(&command, out) {
            Some(result) => result,
            None => api.run(|client| graph::command(client, command, out)).await,
        },
        Command::Job { command } => api.run(|client| job::command(client, command, out)).await,
        Command::Pool { command } => api.run(|client| pool::command(client, command, out)).await,
        Command::Flag { command } => api.run(|client| flag::command(client, command, out)).await,
        Command::PrepareForReboot(args) => api.run(|client| reboot::command(client, args, out)).await,
        Command::Feed { command: FeedCommand::Definition(command) } => {
            feed::definition::command(command, &config, out).await
        }
        Command::Feed { command } => api.run(|client| feed::command(client, command, &config, out)).await,
        Command::Sync { command } => api.run(|client| sync::command(client, command, out)).await,
        Command::Rule { command } => api.run(|client| rule::command(client, command, out)).await,
        Command::Queue { command } => api.run(|client| queue::command(client, command, out)).await,
        Command::Stats => api.run(|client| stats::stats(client, out)).await,
        Command::Agent { command } => agent::command(api, command, out).await,
        Command::Worker(args) => match args.command {
            Some(command) => api.run(|client| worker::command(client, command, out)).await,
            None => worker::worker(open_syncs(&config).await?, &config, args.pages, out).await,
        },
        Command::Controller(_) => controller::controller(open_syncs(&config).await?, &config, out).await,
        Command::Scheduler(args) => scheduler::scheduler(config, args, out).await,
        Command::Consolidator(args) => {
            consolidator::consolidator(open_syncs(&config).await?, &config, args, out).await
        }
        Command::Server(args) => server::server(open(&config).await?, &config, args, out).await,
        Command::Up(args) => up::up(&config, args, out).await,
        Command::Console(args) => console::console(&global, &config, args, out).await,
        Command::Supplier(args) => supplier::supplier(args, out).await,
        Command::Sweep(args) => sweep::sweep(open(&config).await?, &config, args, out).await,
        Command::Doctor => match remote::transport(&global, &config)? {
            Some(transport) => doctor::check_server(retry::client(transport), out).await,
            None => doctor::check_database(&config, out).await,
        },
        Command::Work(args) => match remote::transport(&global, &config)? {
            Some(transport) => {
                work::work_remotely(remote::RemoteServer::new(transport), &config, args, out).await
            }
            None => work::work(open(&config).await?, &config, args, out).await,
        },
        Command::Health(args) => health::health(&global, &config, args, out).await,
        Command::Config { .. } | Command::Completions(_) | Command::Man(_) => {
            Err(Failure::outage("internal error: `main` handles this command"))
        }
    }
}

/// Warns of secrets on the command line, which other users of the machine can read.
fn warn_of_secrets(out: Out) {
    if environment::has_password_on_command_line() {
        out.inform(
            "warning: other users can read the password on the command line; use PGPASSFILE, PGPASSWORD or @file",
        );
    }
    if environment::has_token_on_command_line() {
        out.inform(
            "warning: other users can read the token on the command line; use TIDEMILL_TOKEN or --token @file",
        );
    }
}

/// Refuses `--server` for a command that needs direct database access.
pub(crate) fn refuse_server(arguments: &Arguments) -> Result<(), Failure> {
    let name = match &arguments.command {
        Command::Project { .. }
        | Command::Run { .. }
        | Command::Schedule { .. }
        | Command::Feed { .. }
        | Command::Sync { .. }
        | Command::Rule { .. }
        | Command::Queue { .. }
        | Command::Token { .. }
        | Command::Hook { .. }
        | Command::Alert { .. }
        | Command::Audit { .. }
        | Command::Graph { .. }
        | Command::Job { .. }
        | Command::Pool { .. }
        | Command::Flag { .. }
        | Command::PrepareForReboot(_)
        | Command::Stats
        | Command::Work(_)
        | Command::Agent { .. }
        | Command::Doctor
        | Command::Console(_)
        | Command::Health(_)
        | Command::Supplier(_)
        | Command::Completions(_)
        | Command::Man(_) => return Ok(()),
        Command::Worker(args) if args.command.is_some() => return Ok(()),
        Command::Worker(_) => "worker",
        Command::Demo(_) => "demo",
        Command::Migrate(_) => "migrate",
        Command::Roles { .. } => "roles",
        Command::Controller(_) => "controller",
        Command::Scheduler(_) => "scheduler",
        Command::Consolidator(_) => "consolidator",
        Command::Server(_) => "server",
        Command::Up(_) => "up",
        Command::Sweep(_) => "sweep",
        Command::Backup(_) => "backup",
        Command::Config { .. } => "config",
    };
    if arguments.global.server.is_none() {
        return Ok(());
    }
    let message = format!("tidemill {name} needs direct database access; it cannot be used with --server");
    Err(Failure::usage(message).with_hint("remove --server and TIDEMILL_SERVER, and use --database"))
}

/// Access to the API: through the server of `--server`, or in this process on the database.
#[derive(Clone, Copy)]
struct Api<'a> {
    global: &'a Global,
    config: &'a Config,
}

impl Api<'_> {
    /// Runs a command with a client.
    async fn run<F>(self, command: impl FnOnce(Client) -> F) -> Result<ExitCode, Failure>
    where
        F: Future<Output = Result<ExitCode, Failure>>,
    {
        if let Some(transport) = remote::transport(self.global, self.config)? {
            return command(retry::client(transport)).await;
        }
        let syncs = open_syncs(self.config).await?;
        let code = command(in_process::client(syncs.clone(), environment::user())).await;
        // Sends the notifications that waiting workers have not received yet.
        syncs.engine().store().close().await;
        code
    }
}

fn options(config: &Config) -> Options {
    let mut options = Options::new(config.database.clone(), host_now);
    options.schema.clone_from(&config.schema);
    options.sync_schema.clone_from(&config.sync_schema);
    options.pooler = config.pooler;
    options.connections = config.connections;
    options
}

/// Opens the database for syncs, as configured.
async fn open_syncs(config: &Config) -> Result<Syncs, Failure> {
    Ok(Syncs::new(open(config).await?, config.sync()))
}

/// Opens a migrated database. Creates nothing.
async fn open(config: &Config) -> Result<Engine, Failure> {
    let options = options(config);
    if let Some(path) = options.sqlite_path()
        && !path.as_os_str().is_empty()
        && !path.exists()
    {
        return Err(Failure::refused(format!("database `{}` does not exist", path.display()))
            .with_hint("tidemill migrate"));
    }
    // Retries, because the database server may be restarting.
    let store = PATIENCE.retry("open the database", || Store::open(&options)).await?;
    PATIENCE.retry("check the schema", || store.check_schema()).await?;
    Ok(Engine::new(store, Clock::Database, PATIENCE)
        .with_alerts(config.alerts.clone())
        .with_reach(config.reach.clone()))
}
