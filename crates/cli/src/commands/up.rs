//! `tidemill up`: every service in one process.

use super::agent::args::Isolation;
use super::metrics::MetricsArgs;
use super::server::ServerArgs;
use super::services::{self, configure_queues, identity, spawn_role};
use super::worker::PageWorkerArgs;
use crate::config::Config;
use crate::environment;
use crate::failure::Failure;
use crate::out::Out;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_engine::sync::{ConsolidatorOptions, SyncSettings, Syncs};
use tidemill_engine::{Process, RetryPolicy};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// All services in one process
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidemill up\n  tidemill up --database postgres://localhost/shop --no-agent"
)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) pages: PageWorkerArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Do not run the server
    #[arg(long, conflicts_with_all = ["listen", "tls_cert", "auth"])]
    pub(crate) no_server: bool,
    /// Do not open the console in a browser; it is opened on a desktop if standard output is a terminal
    #[arg(long, conflicts_with = "no_server")]
    pub(crate) no_open: bool,
    /// Do not run an agent; none runs either if the server listens on an address that is not loopback
    #[arg(long)]
    pub(crate) no_agent: bool,
    /// Directory of the agent; the default is next to the database
    #[arg(long, value_name = "DIR", conflicts_with = "no_agent")]
    pub(crate) agent_dir: Option<PathBuf>,
    /// Maximum total weight of the jobs that the agent runs at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        conflicts_with = "no_agent",
        value_parser = clap::value_parser!(i32).range(1..=1000)
    )]
    pub(crate) agent_capacity: i32,
    /// File of NAME=value lines with secrets for jobs; only its owner may have access to it
    #[arg(long, value_name = "FILE", conflicts_with = "no_agent")]
    pub(crate) agent_secrets: Option<PathBuf>,
    /// Isolation of the agent's tasks; with --auth it is always `required`
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Isolation::Auto, conflicts_with = "no_agent")]
    pub(crate) agent_isolation: Isolation,
}

/// Migrates the database, and runs every service until SIGTERM.
pub(super) async fn up(config: &Config, args: UpArgs, out: Out) -> Result<ExitCode, Failure> {
    super::migrate::migrate(config, out).await?;
    // A drained role must not end this process, because the process has other roles.
    let settings = SyncSettings { process: Process::Shared, ..config.sync() };
    let syncs = Syncs::new(super::open(config).await?, settings);
    configure_queues(&syncs, config).await?;
    let stop = super::work::stop_signal();
    let server = if args.no_server {
        None
    } else {
        Some(super::server::bind(&syncs, config, &args.server, out).await?)
    };
    let maintenance = services::start_maintenance(&syncs, config.upkeep(), stop.clone());
    let location = syncs.engine().store().location();
    out.inform(format!("scheduler, worker, consolidator and controller are running on {location}"));
    let mut roles: JoinSet<()> = JoinSet::new();
    spawn_sync_roles(&mut roles, &syncs, &args.pages, &stop);
    spawn_controller(&mut roles, &syncs, &stop);
    spawn_agent(&mut roles, &syncs, config, &args, &stop, out);
    if let Some(server) = server {
        if !args.no_open {
            server.open_console(config, out);
        }
        let stop = stop.clone();
        // The server supervises its own loop: it cannot restart without its socket.
        roles.spawn(async move { server.serve(stop).await });
    }
    let mut failed = None;
    while let Some(role) = roles.join_next().await {
        if let Err(error) = role {
            failed = failed.or(Some(Failure::outage(format!("a role stopped unexpectedly: {error}"))));
        }
    }
    drop(maintenance);
    syncs.engine().store().close().await;
    let times = syncs.step_times();
    if out.is_json() {
        out.print_json(&serde_json::json!({"pages": times}));
    } else if times.count > 0 {
        out.inform(format!("{} pages; median time without the fetch: {:.1} ms", times.count, times.p50_ms));
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn spawn_sync_roles(
    roles: &mut JoinSet<()>,
    syncs: &Syncs,
    pages: &PageWorkerArgs,
    stop: &watch::Receiver<bool>,
) {
    let (own, own_stop) = (syncs.clone(), stop.clone());
    spawn_role(roles, syncs, "scheduler", stop, move || {
        let (syncs, stop) = (own.clone(), own_stop.clone());
        async move { syncs.schedule(identity("scheduler"), false, stop).await.map(|_| ()) }
    });
    let (own, own_stop, options) = (syncs.clone(), stop.clone(), pages.options());
    spawn_role(roles, syncs, "page_worker", stop, move || {
        let (syncs, stop, options) = (own.clone(), own_stop.clone(), options.clone());
        async move { syncs.work_pages(identity("worker"), &options, stop).await.map(|_| ()) }
    });
    let (own, own_stop) = (syncs.clone(), stop.clone());
    spawn_role(roles, syncs, "consolidator", stop, move || {
        let (syncs, stop) = (own.clone(), own_stop.clone());
        let options = ConsolidatorOptions::default();
        async move { syncs.consolidate(identity("consolidator"), &options, stop).await.map(|_| ()) }
    });
}

fn spawn_controller(roles: &mut JoinSet<()>, syncs: &Syncs, stop: &watch::Receiver<bool>) {
    let graphs = Graphs::new(syncs.engine().with_retry_policy(RetryPolicy::None), GraphSettings::default());
    let own_stop = stop.clone();
    spawn_role(roles, syncs, "controller", stop, move || {
        let (graphs, stop) = (graphs.clone(), own_stop.clone());
        async move { graphs.control(identity("controller"), stop).await }
    });
}

fn spawn_agent(
    roles: &mut JoinSet<()>,
    syncs: &Syncs,
    config: &Config,
    args: &UpArgs,
    stop: &watch::Receiver<bool>,
    out: Out,
) {
    let Some(settings) = super::agent::local_settings(config, args, out) else { return };
    let client = crate::in_process::client(syncs.clone(), environment::user());
    let own_stop = stop.clone();
    spawn_role(roles, syncs, "agent", stop, move || {
        let (settings, client, stop) = (settings.clone(), client.clone(), own_stop.clone());
        async move {
            super::agent::run_locally(settings, client, stop, out).await;
            Ok(())
        }
    });
}
