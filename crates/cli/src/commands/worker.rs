//! `tidemill worker`: runs a page worker, and manages workers of every lane.

use super::metrics::MetricsArgs;
use super::services::{self, Service};
use crate::config::Config;
use crate::failure::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use clap::{Args, Subcommand};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::limits::DEAD_AFTER_SECS;
use tidemill_core::worker::Worker;
use tidemill_engine::sync::{PagerOptions, Syncs};
use uuid::Uuid;

/// Message of a worker that exits because it was drained.
pub(super) const DRAINED: &str = "drained: no new work is accepted, and no work is left";

/// A page worker, or the management of workers
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  tidemill worker --pages-max 16\n  tidemill worker list"
)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorkerCommand>,
    #[command(flatten)]
    pub(crate) pages: PageWorkerArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers of every lane and their states
    #[command(after_help = "Example:\n  tidemill worker list")]
    List,
    /// Stop giving new work to a worker; it exits when its current work has ended
    #[command(
        after_help = "Examples:\n  tidemill worker drain builder-1\n  tidemill worker drain builder-1 --undo"
    )]
    Drain {
        /// Name or id of the worker
        worker: String,
        /// Give work to the worker again
        #[arg(long)]
        undo: bool,
    },
}

/// Concurrency of a page worker
#[derive(Debug, Args)]
pub(crate) struct PageWorkerArgs {
    /// Minimum number of pages that are fetched at once
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) pages_min: usize,
    /// Maximum number of pages that are fetched at once
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub(crate) pages_max: usize,
    /// Process the queued pages, and exit
    #[arg(long)]
    pub(crate) once: bool,
}

impl PageWorkerArgs {
    pub(super) fn options(&self) -> PagerOptions {
        PagerOptions {
            pages_min: self.pages_min.max(1),
            pages_max: self.pages_max.max(self.pages_min).max(1),
            once: self.once,
        }
    }
}

/// Fetches pages of syncs until SIGTERM.
pub(super) async fn worker(
    syncs: Syncs,
    config: &Config,
    args: PageWorkerArgs,
    out: Out,
) -> Result<ExitCode, Failure> {
    let service = Service::start(&syncs, config).await?;
    let options = args.options();
    let location = syncs.engine().store().location();
    let (min, max) = (options.pages_min, options.pages_max);
    out.inform(format!("the worker is running on {location}, with {min} to {max} pages at once"));
    let run = || syncs.work_pages(services::identity("worker"), &options, service.stop());
    let pages = services::run_role(&syncs, "page_worker", run).await;
    service.finish(&syncs, args.once, "pages", pages, out).await
}

pub(super) async fn command(client: Client, command: WorkerCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        WorkerCommand::List => list(&client, out).await,
        WorkerCommand::Drain { worker, undo } => drain(&client, &worker, undo, out).await,
    }
}

async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let workers = client.workers().await?.items;
    if out.is_json() {
        out.print_json(&workers);
        return Ok(ExitCode::SUCCESS);
    }
    if workers.is_empty() {
        out.inform("no worker is registered; start one with `tidemill work -- COMMAND` or `tidemill up`");
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let rows: Vec<Vec<Cell>> = workers
        .iter()
        .map(|worker| {
            vec![
                worker.name.as_str().into(),
                state(worker, now),
                if worker.labels.is_empty() { "–".into() } else { worker.labels.join(", ").into() },
                format!("{} ({})", worker.host, worker.pid).into(),
                times::format_relative(worker.beat_at, now).into(),
                worker.version.as_str().into(),
                Cell::id(worker.worker_id.to_string()),
            ]
        })
        .collect();
    out.print_table(&["WORKER", "STATE", "LABELS", "HOST", "HEARTBEAT", "VERSION", "ID"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn state(worker: &Worker, now: Timestamp) -> Cell {
    let limit = i64::try_from(DEAD_AFTER_SECS).unwrap_or(i64::MAX);
    if worker.ended_at.is_some() {
        Cell::new("gone".to_owned(), Style::Dim)
    } else if (now - worker.beat_at).num_seconds() > limit {
        Cell::new("silent".to_owned(), Style::Error)
    } else if worker.draining {
        Cell::new("draining".to_owned(), Style::Warning)
    } else {
        Cell::new("here".to_owned(), Style::Success)
    }
}

async fn drain(client: &Client, worker: &str, undo: bool, out: Out) -> Result<ExitCode, Failure> {
    let found = find(client, worker).await?;
    let worker = client.drain_worker(found.worker_id, !undo).await?;
    if out.is_json() {
        out.print_json(&worker);
    } else if worker.draining {
        out.print(format!(
            "worker {} gets no new work; it exits when its current work has ended",
            worker.name
        ));
    } else {
        out.print(format!("worker {} gets work again", worker.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds a live worker by its id, or by its name if it is unique.
async fn find(client: &Client, wanted: &str) -> Result<Worker, Failure> {
    let workers = client.workers().await?.items;
    let id: Option<Uuid> = wanted.parse().ok();
    let mut found = workers.into_iter().filter(|worker| {
        worker.ended_at.is_none() && (Some(worker.worker_id.0) == id || worker.name == wanted)
    });
    let Some(first) = found.next() else {
        let failure = Failure::refused(format!("worker `{wanted}` does not exist or has ended"));
        return Err(failure.with_code("unknown_worker").with_hint("tidemill worker list"));
    };
    if found.next().is_some() {
        return Err(Failure::refused(format!("several workers have the name `{wanted}`; use an id"))
            .with_hint("tidemill worker list"));
    }
    Ok(first)
}
