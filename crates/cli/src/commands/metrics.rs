//! The metrics endpoint of services that run without a server.

use super::agent::args::AgentCommand;
use crate::args::Command;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Metrics endpoint of a service; the server has one at its own address
#[derive(Debug, Clone, Args)]
pub(crate) struct MetricsArgs {
    /// Serve Prometheus metrics at http://ADDR/metrics, without authentication
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics_listen: Option<SocketAddr>,
}

/// Starts the metrics endpoint, if the command has the option. It ends with the process.
pub(super) async fn listen(command: &Command, out: Out) -> Result<(), Failure> {
    let Some(address) = metrics_args(command).and_then(|args| args.metrics_listen) else { return Ok(()) };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Failure::outage(format!("could not serve metrics on {address}: {error}"))
            .with_hint("use another address for --metrics-listen")
    })?;
    let local = listener.local_addr().unwrap_or(address);
    tidemill_api::metrics::install();
    // The server supervises its own loop, and ends with the process.
    tokio::spawn(tidemill_api::metrics::serve(listener));
    if out.is_json() {
        out.print_json(&serde_json::json!({"metrics": format!("http://{local}/metrics")}));
    }
    out.inform(format!("the metrics are at http://{local}/metrics"));
    Ok(())
}

fn metrics_args(command: &Command) -> Option<&MetricsArgs> {
    match command {
        Command::Controller(metrics) => Some(metrics),
        Command::Scheduler(args) => Some(&args.metrics),
        Command::Consolidator(args) => Some(&args.metrics),
        Command::Sweep(args) => Some(&args.metrics),
        Command::Worker(args) => Some(&args.metrics),
        Command::Work(args) => Some(&args.metrics),
        Command::Up(args) => Some(&args.metrics),
        Command::Agent { command: AgentCommand::Run(args) } => Some(&args.metrics),
        Command::Agent {
            command: AgentCommand::List | AgentCommand::Drain { .. } | AgentCommand::Forget { .. },
        }
        | Command::Demo(_)
        | Command::Migrate(_)
        | Command::Roles { .. }
        | Command::Project { .. }
        | Command::Run { .. }
        | Command::Token { .. }
        | Command::Schedule { .. }
        | Command::Hook { .. }
        | Command::Alert { .. }
        | Command::Audit { .. }
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
        | Command::Console(_)
        | Command::Supplier(_)
        | Command::Stats
        | Command::Backup(_)
        | Command::Config { .. }
        | Command::Doctor
        | Command::Health(_)
        | Command::Completions(_)
        | Command::Man(_) => None,
    }
}
