//! Workers as people see them: list, drain.

use crate::args_sync::WorkerCommand;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::Timestamp;
use tidemill_core::limits::DEAD_AFTER_SECS;
use tidemill_core::worker::Worker;
use uuid::Uuid;

/// What a worker says that ends because it was asked to drain.
pub(super) const DRAINED: &str = "drained: it was asked to take nothing new, and has nothing in hand";

pub(super) async fn command(client: Client, command: WorkerCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        WorkerCommand::List => list(&client, out).await,
        WorkerCommand::Drain { worker, undo } => drain(&client, &worker, undo, out).await,
    }
}

async fn list(client: &Client, out: Out) -> Result<ExitCode, Failure> {
    let workers = client.workers().await?.items;
    if out.is_json() {
        out.json(&workers);
        return Ok(ExitCode::SUCCESS);
    }
    if workers.is_empty() {
        out.say("no worker is there; start one: tidemill work -- COMMAND for runs, tidemill up for syncs");
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
                times::relative(worker.beat_at, now).into(),
                worker.version.as_str().into(),
                worker.worker_id.to_string().into(),
            ]
        })
        .collect();
    out.table(&["WORKER", "STATE", "LABELS", "HOST", "HEARD", "VERSION", "ID"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn state(worker: &Worker, now: Timestamp) -> Cell {
    let silence = i64::try_from(DEAD_AFTER_SECS).unwrap_or(i64::MAX);
    if worker.ended_at.is_some() {
        Cell("gone".to_owned(), Style::Dim)
    } else if (now - worker.beat_at).num_seconds() > silence {
        Cell("silent".to_owned(), Style::Bad)
    } else if worker.draining {
        Cell("draining".to_owned(), Style::Odd)
    } else {
        Cell("here".to_owned(), Style::Good)
    }
}

async fn drain(client: &Client, worker: &str, undo: bool, out: Out) -> Result<ExitCode, Failure> {
    let found = find(client, worker).await?;
    let worker = client.drain_worker(found.worker_id, !undo).await?;
    if out.is_json() {
        out.json(&worker);
    } else if worker.draining {
        out.line(format!(
            "worker {} takes nothing new; it ends once what it has in hand has ended",
            worker.name
        ));
    } else {
        out.line(format!("worker {} takes work again", worker.name));
    }
    Ok(ExitCode::SUCCESS)
}

/// A worker that has not ended, by its id, or by its name where only one has it.
async fn find(client: &Client, wanted: &str) -> Result<Worker, Failure> {
    let workers = client.workers().await?.items;
    let id: Option<Uuid> = wanted.parse().ok();
    let mut found = workers.into_iter().filter(|worker| {
        worker.ended_at.is_none() && (Some(worker.worker_id.0) == id || worker.name == wanted)
    });
    let Some(first) = found.next() else {
        let failure = Failure::refused(format!("worker `{wanted}` does not exist, or has ended"));
        return Err(failure.coded("unknown_worker").hint("tidemill worker list"));
    };
    if found.next().is_some() {
        return Err(Failure::refused(format!("several workers are called `{wanted}`"))
            .hint("name one by its id: tidemill worker list"));
    }
    Ok(first)
}
