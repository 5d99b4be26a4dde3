//! One function per command: reach the door or open the store, ask, print.

mod agent;
mod agents;
mod alert;
mod demo;
mod demo_shown;
mod demo_sync;
mod doctor;
mod feed;
mod graph;
mod graph_logs;
mod graph_show;
mod graph_watch;
mod hook;
mod job;
mod metrics;
mod mill;
mod project;
mod queue;
mod rule;
mod run;
mod schedule;
mod server;
mod show;
mod site;
mod supplier;
mod sync;
mod sync_show;
mod token;
mod upkeep;
mod watch;
mod watch_sync;
mod work;
mod workers;

use crate::args::{Arguments, Command, Global, RolesCommand};
use crate::args_sync::Workers;
use crate::config::Config;
use crate::fail::Failure;
use crate::out::Out;
use crate::{environment, local, patient, remote};
use std::path::Path;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Engine, Patience, Process};
use tidemill_store::{Options, Store};

/// How long a single command goes on trying.
const PATIENCE: Patience = Patience::For(patient::PATIENCE);

/// Runs one command.
pub(crate) async fn dispatch(arguments: Arguments, config: Config, out: Out) -> Result<ExitCode, Failure> {
    if environment::password_on_command_line() {
        out.say("warning: the password on the command line can be seen by others; use PGPASSFILE, PGPASSWORD or @file");
    }
    if environment::token_on_command_line() {
        out.say("warning: the token on the command line can be seen by others; use TIDEMILL_TOKEN or --token @file");
    }
    beside_its_database(&arguments)?;
    metrics::listen(&arguments.command, out).await?;
    let global = arguments.global;
    match arguments.command {
        Command::Demo(order) if order.runs => demo::demo(order, &config, out).await,
        Command::Demo(order) => Box::pin(demo_sync::demo(order, &config, out)).await,
        Command::Migrate => migrate(&config, out).await,
        Command::Roles { command: RolesCommand::Create { prefix } } => roles(&config, &prefix, out).await,
        Command::Backup { target } => backup(&config, &target, out).await,
        Command::Project { command } => {
            reaching(&global, &config, |client| project::command(client, command, out)).await
        }
        Command::Run { command } => {
            reaching(&global, &config, |client| run::command(client, command, out)).await
        }
        Command::Token { command } => {
            reaching(&global, &config, |client| token::command(client, command, out)).await
        }
        Command::Schedule { command } => {
            reaching(&global, &config, |client| schedule::command(client, command, out)).await
        }
        Command::Hook { command } => {
            reaching(&global, &config, |client| hook::command(client, command, out)).await
        }
        Command::Alert { command } => {
            reaching(&global, &config, |client| alert::command(client, command, out)).await
        }
        Command::Graph { command } => match graph::alone(&command, out) {
            Some(done) => done,
            None => reaching(&global, &config, |client| graph::command(client, command, out)).await,
        },
        Command::Job { command } => {
            reaching(&global, &config, |client| job::command(client, command, out)).await
        }
        Command::Pool { command } => {
            reaching(&global, &config, |client| site::pool(client, command, out)).await
        }
        Command::Flag { command } => {
            reaching(&global, &config, |client| site::flag(client, command, out)).await
        }
        Command::PrepareForReboot(order) => {
            reaching(&global, &config, |client| site::reboot(client, order, out)).await
        }
        Command::Controller(_) => mill::controller(syncs(open(&config).await?, &config), &config, out).await,
        Command::Feed { command } => {
            reaching(&global, &config, |client| feed::command(client, command, out)).await
        }
        Command::Sync { command } => {
            reaching(&global, &config, |client| sync::command(client, command, out)).await
        }
        Command::Rule { command } => {
            reaching(&global, &config, |client| rule::command(client, command, out)).await
        }
        Command::Queue { command } => {
            reaching(&global, &config, |client| queue::command(client, command, out)).await
        }
        Command::Scheduler { once, partitions, .. } => {
            let partitions = config.partitions.clone().with_flags(&partitions)?;
            let config = Config { partitions, ..config };
            mill::scheduler(syncs(open(&config).await?, &config), &config, once, out).await
        }
        Command::Worker(Workers { command: Some(command), .. }) => {
            reaching(&global, &config, |client| workers::command(client, command, out)).await
        }
        Command::Worker(Workers { command: None, worker, .. }) => {
            mill::worker(syncs(open(&config).await?, &config), &config, worker, out).await
        }
        Command::Consolidator { concurrency, once, .. } => {
            mill::consolidator(syncs(open(&config).await?, &config), &config, concurrency, once, out).await
        }
        Command::Server(serve) => server::server(open(&config).await?, &config, serve, out).await,
        Command::Up(up) => everything(&config, up, out).await,
        Command::Supplier(order) => supplier::supplier(order, out).await,
        Command::Stats => reaching(&global, &config, |client| upkeep::stats(client, out)).await,
        Command::Doctor => match remote::way(&global)? {
            Some(way) => doctor::server_doctor(patient::client(way), out).await,
            None => doctor::doctor(&config, out).await,
        },
        Command::Work(work) => match remote::way(&global)? {
            Some(way) => work::far(remote::Away::new(way), &config, work, out).await,
            None => work::work(open(&config).await?, &config, work, out).await,
        },
        Command::Agent { command } => agent::command(&global, &config, command, out).await,
        Command::Sweep { forever, .. } => upkeep::sweep(open(&config).await?, &config, forever, out).await,
        Command::Config { .. } | Command::Completions { .. } => {
            Err(Failure::outage("this command was answered before"))
        }
    }
}

/// Refuses a server where the command is about the database itself.
pub(crate) fn beside_its_database(arguments: &Arguments) -> Result<(), Failure> {
    let about = match &arguments.command {
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
        | Command::Graph { .. }
        | Command::Job { .. }
        | Command::Pool { .. }
        | Command::Flag { .. }
        | Command::PrepareForReboot(_)
        | Command::Stats
        | Command::Work(_)
        | Command::Worker(Workers { command: Some(_), .. })
        | Command::Agent { .. }
        | Command::Doctor
        | Command::Completions { .. } => return Ok(()),
        Command::Demo(_) => "demo",
        Command::Migrate => "migrate",
        Command::Roles { .. } => "roles",
        Command::Controller(_) => "controller",
        Command::Scheduler { .. } => "scheduler",
        Command::Worker(Workers { command: None, .. }) => "worker",
        Command::Consolidator { .. } => "consolidator",
        Command::Server(_) => "server",
        Command::Up(_) => "up",
        Command::Supplier(_) => "supplier",
        Command::Sweep { .. } => "sweep",
        Command::Backup { .. } => "backup",
        Command::Config { .. } => "config",
    };
    if arguments.global.server.is_none() {
        return Ok(());
    }
    Err(Failure::usage(format!("tidemill {about} works beside its database, and not through a server"))
        .hint("leave out --server, or TIDEMILL_SERVER; --database names the database"))
}

/// Runs a short command through the HTTP door: that of a server, or the one within this process.
async fn reaching<F>(
    global: &Global,
    config: &Config,
    command: impl FnOnce(Client) -> F,
) -> Result<ExitCode, Failure>
where
    F: Future<Output = Result<ExitCode, Failure>>,
{
    if let Some(way) = remote::way(global)? {
        return command(patient::client(way)).await;
    }
    closing(open(config).await?, |engine| {
        command(local::client(syncs(engine, config), environment::person()))
    })
    .await
}

/// Runs a short command, and tells waiting workers what it only hinted at.
async fn closing<F>(engine: Engine, command: impl FnOnce(Engine) -> F) -> Result<ExitCode, Failure>
where
    F: Future<Output = Result<ExitCode, Failure>>,
{
    let code = command(engine.clone()).await;
    engine.store().close().await;
    code
}

fn options(config: &Config) -> Options {
    let mut options = Options::new(config.database.clone(), host_now);
    options.schema.clone_from(&config.schema);
    options.sync_schema.clone_from(&config.sync_schema);
    options.pooler = config.pooler;
    options.connections = config.connections;
    options
}

/// The use cases of syncs, as configured.
fn syncs(engine: Engine, config: &Config) -> Syncs {
    Syncs::new(engine, config.sync())
}

/// Opens a database that is ready to be used. Makes nothing.
async fn open(config: &Config) -> Result<Engine, Failure> {
    let options = options(config);
    if let Some(path) = options.sqlite_path()
        && !path.as_os_str().is_empty()
        && !path.exists()
    {
        return Err(Failure::refused(format!("there is no database at `{}`", path.display()))
            .hint("tidemill migrate makes one; --database names another"));
    }
    // A server that restarts right now is waited for, as it is by every call that follows.
    let store = PATIENCE.settle("open the database", || Store::open(&options)).await?;
    PATIENCE.settle("look at the schema", || store.check_schema()).await?;
    Ok(Engine::new(store, Clock::Database, PATIENCE).with_alerts(config.alerts.clone()))
}

/// Every role in one process. One command, nothing to prepare: it makes what it needs.
async fn everything(config: &Config, up: crate::args_server::Up, out: Out) -> Result<ExitCode, Failure> {
    migrate(config, out).await?;
    // A role that is drained here only rests: the process has others.
    let settings = SyncSettings { process: Process::Shared, ..config.sync() };
    mill::up(Syncs::new(open(config).await?, settings), config, up, out).await
}

async fn migrate(config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let store = Store::open(&options(config)).await?;
    let still = || format!("the migration of {} goes on", store.place());
    let migrated = out.wait(still, store.migrate(None)).await?;
    // Feeds, graphs and first steps need a project that is always there.
    store.create_project("default", vec!["default".to_owned()], None).await?;
    if out.is_json() {
        out.json(&migrated);
    } else if migrated.applied.is_empty() && !migrated.code_renewed {
        out.line(format!("{} is up to date", store.place()));
    } else {
        let applied = if migrated.applied.is_empty() {
            "functions renewed".to_owned()
        } else {
            migrated.applied.join(", ")
        };
        out.line(format!("{} is ready ({applied})", store.place()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn backup(config: &Config, target: &Path, out: Out) -> Result<ExitCode, Failure> {
    let engine = open(config).await?;
    let still = || {
        let bytes = std::fs::metadata(target).map_or(0, |file| file.len());
        format!("the copy goes on: {} has {bytes} bytes", target.display())
    };
    let bytes = out.wait(still, engine.store().backup(target)).await?;
    if out.is_json() {
        out.json(&serde_json::json!({"target": target, "bytes": bytes}));
    } else {
        out.line(format!("{} holds a whole copy of {bytes} bytes", target.display()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn roles(config: &Config, prefix: &str, out: Out) -> Result<ExitCode, Failure> {
    let engine = open(config).await?;
    let roles = engine.store().create_roles(prefix).await?;
    if out.is_json() {
        out.json(&roles);
    } else {
        out.line(format!("{} owns the tables", roles.owner));
        out.line(format!("{} may call the functions", roles.worker));
        out.line(format!("{} may read the tables", roles.reader));
        out.say(format!("hint: GRANT {} TO your_login;", roles.worker));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) {
    use clap::CommandFactory as _;
    clap_complete::generate(shell, &mut Arguments::command(), "tidemill", &mut std::io::stdout());
}
