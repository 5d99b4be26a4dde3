//! What a process counts, said at an address of its own: for the roles that run apart from a server.

use crate::args::Command;
use crate::args_agent::AgentCommand;
use crate::args_server::Watched;
use crate::args_sync::Workers;
use crate::fail::Failure;
use crate::out::Out;
use tokio::net::TcpListener;

/// Begins to say it, where the command asks for that. It ends with the process.
pub(super) async fn listen(command: &Command, out: Out) -> Result<(), Failure> {
    let Some(address) = watched(command).and_then(|watched| watched.metrics_listen) else { return Ok(()) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::outage(format!("could not say metrics on {address}: {error}"))
            .hint("--metrics-listen names another address")
    })?;
    let local = listener.local_addr().unwrap_or(address);
    tidemill_api::metrics::install();
    // The server supervises itself, connection by connection; it ends with the process.
    tokio::spawn(tidemill_api::metrics::serve(listener));
    if out.is_json() {
        out.json(&serde_json::json!({"metrics": format!("http://{local}/metrics")}));
    }
    out.say(format!("metrics are at http://{local}/metrics"));
    Ok(())
}

/// How the process of a command is watched, where it is one that goes on.
fn watched(command: &Command) -> Option<&Watched> {
    match command {
        Command::Controller(watched)
        | Command::Scheduler { watched, .. }
        | Command::Consolidator { watched, .. }
        | Command::Sweep { watched, .. }
        | Command::Worker(Workers { watched, .. }) => Some(watched),
        Command::Work(work) => Some(&work.watched),
        Command::Up(up) => Some(&up.watched),
        Command::Agent { command: AgentCommand::Run(order) } => Some(&order.watched),
        Command::Agent {
            command: AgentCommand::List | AgentCommand::Drain { .. } | AgentCommand::Forget { .. },
        }
        | Command::Demo(_)
        | Command::Migrate
        | Command::Roles { .. }
        | Command::Project { .. }
        | Command::Run { .. }
        | Command::Token { .. }
        | Command::Schedule { .. }
        | Command::Hook { .. }
        | Command::Alert { .. }
        | Command::Graph { .. }
        | Command::Job { .. }
        | Command::Pool { .. }
        | Command::Flag { .. }
        | Command::PrepareForReboot(_)
        | Command::Feed { .. }
        | Command::Sync { .. }
        | Command::Rule { .. }
        | Command::Queue { .. }
        | Command::Server(_)
        | Command::Supplier(_)
        | Command::Stats
        | Command::Backup { .. }
        | Command::Config { .. }
        | Command::Doctor
        | Command::Completions { .. } => None,
    }
}
