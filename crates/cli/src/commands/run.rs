//! Runs: queue, list, show, events, cancel, retry, why, artifacts.

use super::{show, watch};
use crate::args::{ArtifactCommand, Request, RunCommand};
use crate::environment;
use crate::fail::Failure;
use crate::out::{Cell, Out, Style};
use crate::times::{self, When};
use std::process::ExitCode;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::Level;
use tidemill_core::run::{QueueRun, Run};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_engine::Engine;
use tidemill_store::{Cancelled, EventPage, RunFilter};

pub(super) async fn command(engine: Engine, command: RunCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        RunCommand::Queue { request, idempotency_key, available_at, expires_at, watch } => {
            let mut wanted = asked(*request);
            wanted.idempotency_key = idempotency_key;
            let now = engine.store().now(None).await?;
            wanted.available_at = available_at.map(|when: When| when.from(now));
            wanted.expires_at = expires_at.map(|when: When| when.from(now));
            queue(&engine, wanted, watch, out).await
        }
        RunCommand::List { project, env, status, limit, before } => {
            let filter =
                RunFilter { project, env, status, before, limit: usize::from(limit), ..RunFilter::default() };
            list(&engine, filter, out).await
        }
        RunCommand::Show { id } => show::show(&engine, &id, out).await,
        RunCommand::Events { id, level, after, limit } => {
            events(&engine, &id, level, EventPage { after, limit: limit as usize }, out).await
        }
        RunCommand::Watch { id } => watch::watch(&engine, id, out).await,
        RunCommand::Cancel { id, reason } => cancel(&engine, &id, reason.as_deref(), out).await,
        RunCommand::Retry { id } => retry(&engine, &id, out).await,
        RunCommand::Why { id } => why(&engine, &id, out).await,
        RunCommand::Artifact { command } => artifact(&engine, command, out).await,
    }
}

/// The request that the options describe.
pub(super) fn asked(request: Request) -> QueueRun {
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
        ..QueueRun::new(request.project, request.env)
    }
}

async fn queue(engine: &Engine, wanted: QueueRun, follow: bool, out: Out) -> Result<ExitCode, Failure> {
    let queued = engine.queue(wanted).await?;
    if out.is_json() {
        out.json(&queued);
    } else {
        out.line(queued.run_id.as_str());
        if !queued.created {
            out.say(format!(
                "this key was used before: the run exists since {}",
                queued.queued_at.to_rfc3339()
            ));
        }
    }
    if follow { watch::watch(engine, queued.run_id, out).await } else { Ok(ExitCode::SUCCESS) }
}

async fn list(engine: &Engine, filter: RunFilter, out: Out) -> Result<ExitCode, Failure> {
    let limit = filter.limit;
    let runs = engine.store().runs(filter).await?;
    if out.is_json() {
        out.json(&runs);
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        out.say("no run fits; queue one: tidemill run queue --project P --env E");
        return Ok(ExitCode::SUCCESS);
    }
    let now = engine.store().now(None).await?;
    let rows: Vec<Vec<Cell>> = runs.iter().map(|run| row(run, now)).collect();
    out.table(&["RUN", "STATE", "ENVIRONMENT", "TRY", "QUEUED", "TOOK", "WORKER", "REF"], &rows);
    if let Some(last) = runs.last().filter(|_| runs.len() == limit) {
        out.say(format!("older ones: tidemill run list --before {}", last.run_id));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(run: &Run, now: Timestamp) -> Vec<Cell> {
    let took = match (run.started_at, run.finished_at) {
        (Some(started), finished) => times::rough(finished.unwrap_or(now) - started),
        (None, _) => "–".to_owned(),
    };
    let sha: Option<String> = run.git_sha.as_ref().map(|sha| sha.chars().take(9).collect());
    let reference = [run.git_ref.as_deref(), sha.as_deref()];
    let state = match run.end_cause {
        Some(tidemill_core::run::EndCause::Quarantined) => format!("{} (quarantined)", run.status),
        Some(_) | None => run.status.to_string(),
    };
    vec![
        run.run_id.as_str().into(),
        Cell(state, Style::of_state(run.status)),
        run.env_id.as_str().into(),
        run.attempt.to_string().into(),
        times::relative(run.queued_at, now).into(),
        took.into(),
        run.claimed_by.clone().unwrap_or_else(|| "–".to_owned()).into(),
        reference.into_iter().flatten().collect::<Vec<_>>().join(" ").into(),
    ]
}

async fn events(
    engine: &Engine,
    id: &RunId,
    level: Option<Level>,
    page: EventPage,
    out: Out,
) -> Result<ExitCode, Failure> {
    engine.run(id).await?;
    let mut events = engine.store().events(id.clone(), page).await?;
    let full = events.len() == page.limit;
    let last = events.last().map(|event| event.seq);
    events.retain(|event| level.is_none_or(|level| event.level >= level));
    if out.is_json() {
        out.json(&events);
        return Ok(ExitCode::SUCCESS);
    }
    for event in &events {
        out.line(watch::told(event, out));
    }
    if let Some(last) = last.filter(|_| full) {
        out.say(format!("there may be more: tidemill run events {id} --after {last}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(engine: &Engine, id: &RunId, reason: Option<&str>, out: Out) -> Result<ExitCode, Failure> {
    let outcome = engine.cancel(id, &environment::person(), reason).await?;
    let live = live_successor(engine, id).await?;
    if out.is_json() {
        out.json(&serde_json::json!({"run_id": id, "outcome": outcome, "live_successor": live}));
    }
    match outcome {
        Cancelled::Cancelled if !out.is_json() => out.line(format!("run {id} is cancelled")),
        Cancelled::Requested if !out.is_json() => {
            out.line(format!("run {id} was asked to stop; its worker confirms, or the sweeper ends it"));
        }
        Cancelled::Ended => {
            let run = engine.run(id).await?;
            let failure =
                Failure::refused(format!("run {id} has ended as {}: there is nothing to cancel", run.status));
            return Err(match live {
                Some(next) => {
                    failure.hint(format!("its request goes on as {next}: tidemill run cancel {next}"))
                }
                None => failure,
            });
        }
        Cancelled::Cancelled | Cancelled::Requested => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The try of the same request that has not ended, if it is another one.
async fn live_successor(engine: &Engine, id: &RunId) -> Result<Option<RunId>, Failure> {
    let tries = engine.store().tries(id.clone()).await?;
    let live = tries.into_iter().find(|run| !run.status.is_terminal() && run.run_id != *id);
    Ok(live.map(|run| run.run_id))
}

async fn retry(engine: &Engine, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let retried = engine.retry(id, &environment::person()).await?;
    if out.is_json() {
        out.json(&retried);
    } else {
        out.line(retried.run_id.as_str());
        if !retried.created {
            out.say("this run had been tried again before; that try is shown");
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn why(engine: &Engine, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let reason = engine.why(id).await?;
    if out.is_json() {
        let mut body = serde_json::to_value(&reason).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.insert("run_id".to_owned(), id.as_str().into());
            fields.insert("sentence".to_owned(), reason.sentence().into());
            if let Some(hint) = reason.hint(id) {
                fields.insert("hint".to_owned(), hint.into());
            }
        }
        out.json(&body);
        return Ok(ExitCode::SUCCESS);
    }
    out.line(crate::out::printable(&reason.sentence()));
    if let Some(hint) = reason.hint(id) {
        out.say(format!("hint: {hint}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn artifact(engine: &Engine, command: ArtifactCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ArtifactCommand::Add { id, artifact_type, url, digest, size } => {
            let metadata = Json::Object(serde_json::Map::new());
            let artifact = NewArtifact { artifact_type, url, digest, size_bytes: size, metadata };
            let artifact_id = engine.add_artifact(&id, artifact).await?;
            if out.is_json() {
                out.json(&serde_json::json!({"artifact_id": artifact_id, "run_id": id}));
            } else {
                out.line(artifact_id);
            }
        }
        ArtifactCommand::List { id } => {
            engine.run(&id).await?;
            let artifacts = engine.store().artifacts(id).await?;
            if out.is_json() {
                out.json(&artifacts);
            } else {
                show::artifacts(&artifacts, out);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
