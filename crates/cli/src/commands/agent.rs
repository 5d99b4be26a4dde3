//! Agents: `agent run` takes tasks of graphs and carries them out.

use super::agents;
use crate::args::Global;
use crate::args_agent::{AgentCommand, AgentRun};
use crate::args_server::Up;
use crate::config::Config;
use crate::fail::Failure;
use crate::out::Out;
use crate::{environment, remote};
use std::path::PathBuf;
use std::process::ExitCode;
use tidemill_agent::{Commands, Ending, Error, Keep, Probe, Settings};
use tidemill_client::Client;
use tokio::sync::watch;

/// This very binary, even if its file was replaced since it was started.
const OWN_BINARY: &str = "/proc/self/exe";

pub(super) async fn command(
    global: &Global,
    config: &Config,
    command: AgentCommand,
    out: Out,
) -> Result<ExitCode, Failure> {
    match command {
        AgentCommand::Run(order) => run(global, config, *order, out).await,
        AgentCommand::List => {
            super::reaching(global, config, async |client| agents::list(&client, out).await).await
        }
        AgentCommand::Drain { agent, undo } => {
            super::reaching(global, config, async |client| agents::drain(&client, &agent, undo, out).await)
                .await
        }
        AgentCommand::Forget { agent, force } => {
            super::reaching(global, config, async |client| agents::forget(&client, &agent, force, out).await)
                .await
        }
    }
}

/// The settings of the agent that accompanies all other roles in one process, on a machine that talks to nobody else.
pub(super) fn beside(config: &Config, up: &Up, out: Out) -> Option<Settings> {
    let listen = up.serve.listen.unwrap_or(config.server.listen);
    if up.no_agent || (!up.no_server && !listen.ip().to_canonical().is_loopback()) {
        return None;
    }
    let database = super::options(config);
    let beside = match database.sqlite_path() {
        Some(path) => path.with_extension("agent"),
        None => PathBuf::from("tidemill.agent"),
    };
    let dir = up.agent_dir.clone().unwrap_or(beside);
    out.say(format!("an agent carries out jobs in {}", dir.display()));
    Some(Settings {
        dir,
        name: environment::host(),
        host: environment::host(),
        labels: Vec::new(),
        capacity: up.agent_capacity,
        secrets: up.agent_secrets.clone(),
        store: None,
        keep: Keep::default(),
        probe: None,
        ending: Ending::Never,
        commands: Commands::GoOn,
        grace: config.grace,
        supervisor: PathBuf::from(OWN_BINARY),
        supervisor_args: supervisor_args(),
    })
}

/// Runs an agent beside other roles. They go on without it.
pub(super) async fn accompany(settings: Settings, client: Client, stop: watch::Receiver<bool>, out: Out) {
    if let Err(error) = tidemill_agent::run(settings, client, stop).await {
        out.say(format!("warning: the agent does not run: {}", tidemill_engine::patience::chain(&error)));
    }
}

fn supervisor_args() -> Vec<String> {
    vec!["supervise".to_owned(), "lasting".to_owned()]
}

async fn run(global: &Global, config: &Config, order: AgentRun, out: Out) -> Result<ExitCode, Failure> {
    let Some(way) = remote::way(global)? else {
        let hint = "name one with --server or TIDEMILL_SERVER; `tidemill server` is one";
        return Err(Failure::usage("an agent asks a server, and none is named").hint(hint));
    };
    let settings = settings(config, order);
    let stop = super::work::stop_signal();
    out.say(format!("agent {} waits for tasks", settings.name));
    let carried = tidemill_agent::run(settings, Client::new(way), stop).await;
    let carried = carried.map_err(|error| match error {
        Error::Directory { .. } => Failure::outage(tidemill_engine::patience::chain(&error)),
        Error::Setting(message) => Failure::usage(message),
        Error::Busy { .. } | Error::Refused(_) | Error::Superseded(_) => Failure::refused(error.to_string()),
    })?;
    if out.is_json() {
        let (taken, ended, held) = (carried.taken, carried.ended, carried.held);
        out.json(&serde_json::json!({"taken": taken, "ended": ended, "held": held}));
    } else {
        let held = match carried.held {
            0 => "nothing is held".to_owned(),
            held => format!("{held} held, which go on"),
        };
        out.say(format!("{} taken, {} ended, {held}", carried.taken, carried.ended));
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(config: &Config, order: AgentRun) -> Settings {
    Settings {
        dir: order.dir,
        name: order.name.unwrap_or_else(environment::host),
        host: environment::host(),
        labels: order.labels,
        capacity: order.capacity,
        secrets: order.secrets,
        store: order.store,
        keep: Keep { time: order.keep, bytes: order.keep_size, ..Keep::default() },
        probe: order.probe.map(|command| Probe { command, every: order.probe_every }),
        ending: if order.drain { Ending::Drained } else { Ending::Never },
        commands: if order.stop_commands { Commands::Stop } else { Commands::GoOn },
        grace: order.grace.unwrap_or(config.grace),
        supervisor: PathBuf::from(OWN_BINARY),
        supervisor_args: supervisor_args(),
    }
}
