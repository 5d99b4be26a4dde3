//! `tidemill agent`: runs an agent, and manages agents.

pub(crate) mod args;
mod manage;

use super::Api;
use super::up::UpArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::out::Out;
use crate::{environment, local_token, remote};
use args::{AgentCommand, AgentRunArgs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidemill_agent::{
    CommandsOnExit, Error, ExitPolicy, IsolationMode, Probe, RetentionPolicy, Settings, UserRange,
};
use tidemill_client::Client;
use tokio::sync::watch;

/// The running binary, even if its file was replaced since the start.
const OWN_BINARY: &str = "/proc/self/exe";
/// Hint of `tidemill up` if it runs no agent.
const SEPARATE_AGENT: &str =
    "run one as root or as another user: tidemill agent run --server URL --token @FILE --dir DIR";

pub(super) async fn command(api: Api<'_>, command: AgentCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        AgentCommand::Run(args) => run(api, *args, out).await,
        AgentCommand::List => api.run(async |client| manage::list(&client, out).await).await,
        AgentCommand::Drain { agent, undo } => {
            api.run(async |client| manage::drain(&client, &agent, undo, out).await).await
        }
        AgentCommand::Forget { agent, force } => {
            api.run(async |client| manage::forget(&client, &agent, force, out).await).await
        }
    }
}

/// Settings of the agent of `tidemill up`.
///
/// Returns `None` if jobs of other people would run as the user of the server, which can reach the database. That is so
/// if the server listens on an address that is not loopback, or if it has tokens and is not root.
pub(super) fn local_settings(config: &Config, up: &UpArgs, out: Out) -> Option<Settings> {
    let listen = up.server.listen.unwrap_or(config.server.listen);
    if up.no_agent || (!up.no_server && !listen.ip().to_canonical().is_loopback()) {
        return None;
    }
    if up.server.auth && !rustix::process::geteuid().is_root() {
        let reason =
            "jobs would run as the user of the server, because only root can give them users of their own";
        out.inform(format!("warning: no agent runs here: {reason}; {SEPARATE_AGENT}"));
        return None;
    }
    let database = super::options(config);
    let default_dir = match database.sqlite_path() {
        Some(path) => path.with_extension("agent"),
        None => PathBuf::from("tidemill.agent"),
    };
    let dir = up.agent_dir.clone().unwrap_or(default_dir);
    // With tokens, other people than the one who started the server submit jobs.
    let isolation = if up.server.auth { IsolationMode::Required } else { up.agent_isolation.into() };
    out.inform(format!("an agent executes jobs in {}", dir.display()));
    Some(Settings {
        dir,
        name: environment::host(),
        host: environment::host(),
        labels: Vec::new(),
        capacity: up.agent_capacity,
        secrets: up.agent_secrets.clone(),
        store: None,
        retention: RetentionPolicy::default(),
        probe: None,
        exit_policy: ExitPolicy::Never,
        commands_on_exit: CommandsOnExit::Continue,
        grace: config.grace,
        isolation,
        task_users: UserRange::default(),
        hidden: server_files(database.sqlite_path(), up)
            .into_iter()
            .chain(local_token::directory(config).ok())
            .collect(),
        supervisor: PathBuf::from(OWN_BINARY),
        supervisor_args: supervisor_args(),
    })
}

/// Files of the server that tasks must not see: the database with its journal, and the private key.
fn server_files(database: Option<&Path>, up: &UpArgs) -> Vec<PathBuf> {
    let database = database.map(Path::as_os_str).into_iter().flat_map(|path| {
        ["", "-wal", "-shm", "-journal"].map(|suffix| {
            let mut file = path.to_owned();
            file.push(suffix);
            PathBuf::from(file)
        })
    });
    database.chain(up.server.tls_key.clone()).collect()
}

/// Runs the agent of `tidemill up`. Its failure does not end the other services.
pub(super) async fn run_locally(settings: Settings, client: Client, stop: watch::Receiver<bool>, out: Out) {
    match tidemill_agent::run(settings, client, stop).await {
        Ok(_) => {}
        Err(Error::Isolation(missing)) => {
            out.inform(format!(
                "warning: no agent runs here, because its tasks cannot be isolated: {missing}; {SEPARATE_AGENT}"
            ));
        }
        Err(error) => {
            out.inform(format!(
                "warning: the agent stopped: {}",
                tidemill_engine::retry_policy::chain(&error)
            ));
        }
    }
}

fn supervisor_args() -> Vec<String> {
    vec!["supervise".to_owned(), "lasting".to_owned()]
}

async fn run(api: Api<'_>, args: AgentRunArgs, out: Out) -> Result<ExitCode, Failure> {
    let Some(transport) = remote::transport(api.global, api.config)? else {
        let hint = "tidemill agent run --server http://127.0.0.1:7171";
        return Err(Failure::usage("an agent needs a server; --server is missing").with_hint(hint));
    };
    let settings = settings(api, args);
    let stop = super::work::stop_signal();
    out.inform(format!("agent {} waits for tasks", settings.name));
    let outcome = tidemill_agent::run(settings, Client::new(transport), stop).await;
    let outcome = outcome.map_err(|error| match error {
        Error::Directory { .. } => Failure::outage(tidemill_engine::retry_policy::chain(&error)),
        Error::Setting(message) => Failure::usage(message),
        Error::Busy { .. } | Error::Isolation(_) | Error::Refused(_) | Error::Superseded(_) => {
            Failure::refused(error.to_string())
        }
    })?;
    if out.is_json() {
        let (taken, ended, held) = (outcome.taken, outcome.ended, outcome.held);
        out.print_json(&serde_json::json!({"taken": taken, "ended": ended, "held": held}));
    } else {
        let held = match outcome.held {
            0 => "no task is left".to_owned(),
            held => format!("{held} continue without the agent"),
        };
        out.inform(format!("{} taken, {} ended, {held}", outcome.taken, outcome.ended));
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(api: Api<'_>, args: AgentRunArgs) -> Settings {
    let token_file = api.global.token.as_deref().and_then(|token| token.strip_prefix('@')).map(PathBuf::from);
    Settings {
        dir: args.dir,
        name: args.name.unwrap_or_else(environment::host),
        host: environment::host(),
        labels: args.labels,
        capacity: args.capacity,
        secrets: args.secrets,
        store: args.store,
        retention: RetentionPolicy { time: args.keep, bytes: args.keep_size, ..RetentionPolicy::default() },
        probe: args.probe.map(|command| Probe { command, every: args.probe_every }),
        exit_policy: if args.drain { ExitPolicy::Drained } else { ExitPolicy::Never },
        commands_on_exit: if args.stop_commands { CommandsOnExit::Stop } else { CommandsOnExit::Continue },
        grace: args.grace.unwrap_or(api.config.grace),
        isolation: args.isolation.into(),
        task_users: args.task_users,
        hidden: token_file.into_iter().collect(),
        supervisor: PathBuf::from(OWN_BINARY),
        supervisor_args: supervisor_args(),
    }
}
