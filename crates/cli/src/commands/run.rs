//! Runs: queue, list, show, events, cancel, fail, retry, why, artifacts.

use super::{show, watch};
use crate::args::{ArtifactCommand, Request, RunCommand};
use crate::args_list::{RunFail, RunList};
use crate::asking;
use crate::fail::Failure;
use crate::out::{Cell, Out};
use crate::times::{self, When};
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::event::Level;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{Applied, Cancelled, Lane, QueueRun, Queued, Run};
use tidemill_core::shell::pasted;
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_engine::Clock;
use tidemill_store::Error;
use tidemill_wire::runs::{Fail, ListArtifacts, ListEvents, ListRuns, NewArtifact};

pub(super) async fn command(client: Client, command: RunCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        RunCommand::Queue { request, idempotency_key, available_at, expires_at, watch } => {
            let mut wanted = asked(*request);
            wanted.idempotency_key = idempotency_key;
            let info = client.info().await?;
            wanted.available_at = available_at.map(|when: When| when.from(info.now));
            wanted.expires_at = expires_at.map(|when: When| when.from(info.now));
            // In the words of the options: the server says the same of the fields of its own requests.
            wanted.check().map_err(Error::from)?;
            queue(&client, wanted, info.project.is_some(), watch, out).await
        }
        RunCommand::List(asked) => list(&client, *asked, out).await,
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
        RunCommand::Fail(RunFail { id, retry, reason }) => {
            fail(&client, &id, Fail { reason, retry }, out).await
        }
        RunCommand::Retry { id } => retry(&client, &id, out).await,
        RunCommand::Why { id } => why(&client, &id, out).await,
        RunCommand::Artifact { command } => artifact(&client, command, out).await,
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

/// Queues a run, under an id that is made here, so that it can be asked again when the answer is lost.
async fn queue(
    client: &Client,
    mut wanted: QueueRun,
    of_one_project: bool,
    follow: bool,
    out: Out,
) -> Result<ExitCode, Failure> {
    let id = Clock::Database.run_id();
    let queued = if of_one_project {
        // Such a caller may not choose the id: a key does the same.
        wanted.idempotency_key.get_or_insert_with(|| format!("cli-{id}"));
        client.queue_run(wanted).await?
    } else {
        client.queue_run_as(wanted, Some(id.clone())).await?
    };
    // An answer that was lost and asked again says "not created"; our own id says otherwise.
    let queued = Queued { created: queued.created || queued.run_id == id, ..queued };
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
    if follow { watch::watch(client, queued.run_id, out).await } else { Ok(ExitCode::SUCCESS) }
}

/// Where the name stands in the table of runs, where one has a name.
const NAME_PLACE: usize = 2;

/// The question that the options ask.
async fn filter(client: &Client, asked: RunList) -> Result<ListRuns, Failure> {
    asked.project.as_deref().map_or(Ok(()), asking::project)?;
    asked.feed.as_deref().map_or(Ok(()), asking::feed)?;
    let is_relative = |when: &Option<When>| matches!(when, Some(When::In(_)));
    // A duration reaches back from the server's clock, by which runs are queued.
    let reaches_back = is_relative(&asked.since) || is_relative(&asked.until);
    let now = if reaches_back { client.info().await?.now } else { Timestamp::UNIX_EPOCH };
    Ok(ListRuns {
        project: asked.project,
        env: asked.env,
        status: asked.status.or(asked.state),
        lane: asked.lane,
        feed: asked.feed,
        since: asked.since.map(|when| when.before(now)),
        until: asked.until.map(|when| when.before(now)),
        id_prefix: asked.id,
        sha_prefix: asked.sha,
        ref_prefix: asked.git_ref,
        name_prefix: asked.name,
        after: asked.before,
        limit: Some(asked.limit),
    })
}

/// The command that shows the runs after a page, with everything that was asked for.
fn older(asked: &ListRuns, last: &str) -> String {
    let time =
        |time: &Option<Timestamp>| time.map(|time| time.to_rfc3339_opts(chrono::SecondsFormat::Micros, true));
    let options = [
        ("--project", asked.project.clone()),
        ("--env", asked.env.clone()),
        ("--status", asked.status.map(|status| status.to_string())),
        ("--lane", asked.lane.map(|lane| lane.to_string())),
        ("--feed", asked.feed.clone()),
        ("--since", time(&asked.since)),
        ("--until", time(&asked.until)),
        ("--id", asked.id_prefix.clone()),
        ("--sha", asked.sha_prefix.clone()),
        ("--ref", asked.ref_prefix.clone()),
        ("--name", asked.name_prefix.clone()),
    ];
    let mut words = vec!["tidemill run list".to_owned()];
    words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", pasted(&value?)))));
    words.push(format!("--before {last}"));
    words.join(" ")
}

async fn list(client: &Client, asked: RunList, out: Out) -> Result<ExitCode, Failure> {
    let asked = filter(client, asked).await?;
    let page = client.runs(&asked).await?;
    let runs = page.items;
    if out.is_json() {
        out.json(&runs.iter().map(show::named).collect::<Vec<_>>());
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        out.say("no run fits; queue one: tidemill run queue --project P --env E");
        return Ok(ExitCode::SUCCESS);
    }
    let now = client.info().await?.now;
    let mut header = vec!["RUN", "STATE", "ENVIRONMENT", "TRY", "QUEUED", "TOOK", "WORKER", "REF"];
    let mut rows: Vec<Vec<Cell>> = runs.iter().map(|run| row(run, now)).collect();
    // Runs of lane `ops` have no name: where there are no others, nobody misses the column.
    if runs.iter().any(|run| run.name().is_some()) {
        header.insert(NAME_PLACE, "NAME");
        for (run, row) in runs.iter().zip(&mut rows) {
            row.insert(NAME_PLACE, run.name().unwrap_or("–").into());
        }
    }
    out.table(&header, &rows);
    if let Some(last) = page.next {
        out.say(format!("older ones: {}", older(&asked, &last)));
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
    vec![
        run.run_id.as_str().into(),
        Cell(show::state(run), show::style(run)),
        run.env_id.as_str().into(),
        run.attempt.to_string().into(),
        times::relative(run.queued_at, now).into(),
        took.into(),
        run.claimed_by.clone().unwrap_or_else(|| "–".to_owned()).into(),
        reference.into_iter().flatten().collect::<Vec<_>>().join(" ").into(),
    ]
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
        let asked = ListEvents { after: Some(after), limit: u16::try_from(rows).ok() };
        let page = client.events(id, &asked).await?.items;
        after = page.last().map_or(after, |event| event.seq);
        let whole = page.len() < rows;
        events.extend(page);
        if whole {
            break;
        }
    }
    let full = events.len() == limit;
    events.retain(|event| level.is_none_or(|level| event.level >= level));
    if out.is_json() {
        out.json(&events);
        return Ok(ExitCode::SUCCESS);
    }
    for event in &events {
        out.line(watch::told(event, out));
    }
    if full {
        out.say(format!("there may be more: tidemill run events {} --after {after}", id.in_shell()));
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(client: &Client, id: &RunId, reason: Option<String>, out: Out) -> Result<ExitCode, Failure> {
    let answer = client.cancel_run(id, reason).await?;
    let (outcome, live) = (answer.outcome, answer.live_successor);
    if out.is_json() {
        out.json(&serde_json::json!({"run_id": id, "outcome": outcome, "live_successor": live}));
    }
    match outcome {
        Cancelled::Cancelled if !out.is_json() => out.line(format!("run {id} is cancelled")),
        Cancelled::Requested if !out.is_json() => {
            out.line(format!("run {id} was asked to stop; its worker confirms, or the sweeper ends it"));
        }
        Cancelled::Ended => {
            let run = client.run(id).await?;
            let failure =
                Failure::refused(format!("run {id} has ended as {}: there is nothing to cancel", run.status));
            return Err(match live {
                Some(next) => failure
                    .hint(format!("its request goes on as {next}: tidemill run cancel {}", next.in_shell())),
                None => failure,
            });
        }
        Cancelled::Cancelled | Cancelled::Requested => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn fail(client: &Client, id: &RunId, ask: Fail, out: Out) -> Result<ExitCode, Failure> {
    let answer = client.fail_run(id, &ask).await?;
    if out.is_json() {
        out.json(&answer);
        return Ok(ExitCode::SUCCESS);
    }
    match &answer.successor {
        Some(next) => out.line(format!("run {id} is failed; run {next} carries its request on")),
        None => out.line(format!("run {id} is failed")),
    }
    if answer.outcome == Applied::Duplicate {
        out.say("an earlier call had failed it");
    }
    Ok(ExitCode::SUCCESS)
}

async fn retry(client: &Client, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let retried = client.retry_run(id).await?;
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

async fn why(client: &Client, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let why = client.why(id).await?;
    if out.is_json() {
        out.json(&serde_json::to_value(&why).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    out.line(crate::out::printable(&why.sentence));
    if let Some(hint) = why.hint {
        out.say(format!("hint: {hint}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn artifact(client: &Client, command: ArtifactCommand, out: Out) -> Result<ExitCode, Failure> {
    match command {
        ArtifactCommand::Add { id, artifact_type, url, digest, size } => {
            let metadata = Json::Object(serde_json::Map::new());
            let artifact = NewArtifact { artifact_type, url, digest, size_bytes: size, metadata };
            let artifact_id = client.add_artifact(&id, &artifact).await?.artifact_id;
            if out.is_json() {
                out.json(&serde_json::json!({"artifact_id": artifact_id, "run_id": id}));
            } else {
                out.line(artifact_id);
            }
        }
        ArtifactCommand::List { id } => {
            let mut asked =
                ListArtifacts { limit: u16::try_from(BATCH_MAX).ok(), ..ListArtifacts::default() };
            let mut artifacts = Vec::new();
            loop {
                let page = client.artifacts(&id, &asked).await?;
                artifacts.extend(page.items);
                if page.next.is_none() {
                    break;
                }
                asked.after = page.next;
            }
            if out.is_json() {
                out.json(&artifacts);
            } else {
                show::artifacts(&artifacts, out);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
