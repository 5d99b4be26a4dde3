//! `tidemill run`: runs of the queue.

pub(crate) mod args;
mod list;
mod queue_many;
mod show;
mod watch;

use crate::failure::Failure;
use crate::out::Out;
use crate::times::When;
use args::{ArtifactCommand, RunCommand, RunFailArgs, RunRequestArgs};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::event::Level;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{CancelOutcome, ChangeOutcome, Lane, QueueOutcome, QueueRun};
use tidemill_core::{Json, RunId};
use tidemill_engine::Clock;
use tidemill_store::Error;
use tidemill_wire::runs::{Fail, ListArtifacts, ListEvents, NewArtifact};

pub(super) async fn command(client: Client, command: RunCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        RunCommand::Queue { from: Some(from), .. } => queue_many::queue_many(&client, &from, out).await,
        RunCommand::Queue { request, idempotency_key, available_at, expires_at, watch, from: None } => {
            let mut wanted = queue_run(*request);
            wanted.idempotency_key = idempotency_key;
            let info = client.info().await?;
            wanted.available_at = available_at.map(|when: When| when.resolve_future(info.now));
            wanted.expires_at = expires_at.map(|when: When| when.resolve_future(info.now));
            // Checked here, too, so that errors name the options instead of the fields of the request.
            wanted.check().map_err(Error::from)?;
            queue(&client, wanted, !info.projects.is_all(), watch, out).await
        }
        RunCommand::List(args) => list::list(&client, *args, out).await,
        RunCommand::Show { id } => show::show(&client, &id, out).await,
        RunCommand::Events { id, level, after, limit } => {
            events(&client, &id, level, after, limit as usize, out).await
        }
        RunCommand::Watch { id } => watch::watch(&client, id, out).await,
        RunCommand::Cancel { id, reason } => {
            if client.run(&id).await?.lane == Lane::Graph {
                return super::graph::cancel(&client, &id, Vec::new(), reason, out).await;
            }
            cancel(&client, &id, reason, out).await
        }
        RunCommand::Fail(RunFailArgs { id, retry, reason }) => {
            fail(&client, &id, Fail { reason, retry }, out).await
        }
        RunCommand::Retry { id } => retry(&client, &id, out).await,
        RunCommand::Why { id } => why(&client, &id, out).await,
        RunCommand::Artifact { command } => artifact(&client, command, out).await,
    }
}

/// Converts the options into a request.
pub(super) fn queue_run(request: RunRequestArgs) -> QueueRun {
    let secs = |length: std::time::Duration| i32::try_from(length.as_secs()).unwrap_or(i32::MAX);
    QueueRun {
        git_sha: request.git_sha,
        git_ref: request.git_ref,
        metadata: request.metadata.unwrap_or_else(|| Json::Object(serde_json::Map::new())),
        priority: request.priority,
        max_attempts: request.attempts,
        backoff_secs: secs(request.backoff),
        timeout_secs: request.timeout.map(|timeout| secs(timeout).max(1)),
        concurrency_key: request.concurrency_key,
        labels: request.labels,
        kind: request.kind,
        ..QueueRun::new(request.project, request.env)
    }
}

/// Queues a run with an id of our own, so that the request can be retried when the response is lost.
async fn queue(
    client: &Client,
    mut wanted: QueueRun,
    is_project_token: bool,
    follow: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let id = Clock::Database.run_id();
    let queued = if is_project_token {
        // A token of one project may not choose the id. An idempotency key has the same effect.
        wanted.idempotency_key.get_or_insert_with(|| format!("cli-{id}"));
        client.queue_run(wanted).await?
    } else {
        client.queue_run_as(wanted, Some(id.clone())).await?
    };
    // The response to a retry reports "not created", although the first request created the run with our id.
    let queued = QueueOutcome { created: queued.created || queued.run_id == id, ..queued };
    if out.is_json() {
        out.print_json(&queued);
    } else {
        out.print(queued.run_id.as_str());
        if !queued.created {
            out.inform(format!(
                "a run with this key exists already; it was queued at {}",
                queued.queued_at.to_rfc3339()
            ));
        }
    }
    if follow { watch::watch(client, queued.run_id, out).await } else { Ok(ExitCode::SUCCESS) }
}

async fn events(
    client: &Client,
    id: &RunId,
    level: Option<Level>,
    after: i32,
    limit: usize,
    out: Out,
) -> Result<ExitCode, Failure> {
    let (mut events, mut after) = (Vec::new(), after);
    while events.len() < limit {
        let rows = (limit - events.len()).min(BATCH_MAX);
        let request = ListEvents { after: Some(after), limit: u16::try_from(rows).ok() };
        let page = client.events(id, &request).await?.items;
        after = page.last().map_or(after, |event| event.seq);
        let is_last_page = page.len() < rows;
        events.extend(page);
        if is_last_page {
            break;
        }
    }
    let is_full = events.len() == limit;
    events.retain(|event| level.is_none_or(|level| event.level >= level));
    if out.is_json() {
        out.print_json(&events);
        return Ok(ExitCode::SUCCESS);
    }
    for event in &events {
        out.print(watch::format_event(event, out));
    }
    if is_full {
        out.inform(format!("for later events: tidemill run events {} --after {after}", id.in_shell()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(client: &Client, id: &RunId, reason: Option<String>, out: Out) -> Result<ExitCode, Failure> {
    let response = client.cancel_run(id, reason).await?;
    let (outcome, live) = (response.outcome, response.live_successor);
    if out.is_json() {
        out.print_json(&serde_json::json!({"run_id": id, "outcome": outcome, "live_successor": live}));
    }
    match outcome {
        CancelOutcome::Cancelled if !out.is_json() => out.print(format!("run {id} is cancelled")),
        CancelOutcome::Requested if !out.is_json() => {
            out.print(format!(
                "cancel of run {id} is requested; its worker confirms it, or the sweeper ends the run"
            ));
        }
        CancelOutcome::Ended => {
            let run = client.run(id).await?;
            let message = format!("run {id} has already ended: {}", run.status);
            return Err(match live {
                Some(next) => Failure::refused(format!("{message}; its successor is {next}"))
                    .with_hint(format!("tidemill run cancel {}", next.in_shell())),
                None => Failure::refused(message),
            });
        }
        CancelOutcome::Cancelled | CancelOutcome::Requested => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn fail(client: &Client, id: &RunId, request: Fail, out: Out) -> Result<ExitCode, Failure> {
    let response = client.fail_run(id, &request).await?;
    if out.is_json() {
        out.print_json(&response);
        return Ok(ExitCode::SUCCESS);
    }
    match &response.successor {
        Some(next) => out.print(format!("run {id} is failed; run {next} is its successor")),
        None => out.print(format!("run {id} is failed")),
    }
    if response.outcome == ChangeOutcome::Duplicate {
        out.inform("the run was already failed by an earlier request");
    }
    Ok(ExitCode::SUCCESS)
}

async fn retry(client: &Client, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let retried = client.retry_run(id).await?;
    if out.is_json() {
        out.print_json(&retried);
    } else {
        out.print(retried.run_id.as_str());
        if !retried.created {
            out.inform("this run was already retried; the id of that run is printed");
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn why(client: &Client, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let why = client.why(id).await?;
    if out.is_json() {
        out.print_json(&serde_json::to_value(&why).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    out.print(why.sentence);
    if let Some(hint) = why.hint {
        out.inform(format!("hint: {hint}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn artifact(client: &Client, command: ArtifactCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ArtifactCommand::Add { id, artifact_type, url, digest, size } => {
            let metadata = Json::Object(serde_json::Map::new());
            // An artifact belongs to the claim that produced it. The server refuses callers that did not claim the run.
            let run = client.run(&id).await?;
            let (worker, epoch) = (run.claimed_by.unwrap_or_default(), run.epoch);
            let artifact =
                NewArtifact { artifact_type, url, digest, size_bytes: size, metadata, worker, epoch };
            let artifact_id = client.add_artifact(&id, &artifact).await?.artifact_id;
            if out.is_json() {
                out.print_json(&serde_json::json!({"artifact_id": artifact_id, "run_id": id}));
            } else {
                out.print(artifact_id);
            }
        }
        ArtifactCommand::List { id } => {
            let mut request =
                ListArtifacts { limit: u16::try_from(BATCH_MAX).ok(), ..ListArtifacts::default() };
            let mut artifacts = Vec::new();
            loop {
                let page = client.artifacts(&id, &request).await?;
                artifacts.extend(page.items);
                if page.next.is_none() {
                    break;
                }
                request.after = page.next;
            }
            if out.is_json() {
                out.print_json(&artifacts);
            } else {
                show::print_artifacts(&artifacts, out);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
