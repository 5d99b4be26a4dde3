//! One run, its tries, and what is certain about each.

use crate::fail::Failure;
use crate::out::{Cell, Out, Style, printable};
use crate::times;
use std::process::ExitCode;
use tidemill_client::Client;
use tidemill_core::artifact::Artifact;
use tidemill_core::run::{EndCause, Lane, Run, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_wire::runs::RunDetail;

pub(super) async fn show(client: &Client, id: &RunId, out: Out) -> Result<ExitCode, Failure> {
    let RunDetail { run, why, tries, artifacts } = client.run_detail(id).await?;
    if out.is_json() {
        let mut body = named(&run);
        if let Some(fields) = body.as_object_mut() {
            let tries: Vec<_> = tries
                .iter()
                .map(|run| {
                    serde_json::json!({"run_id": run.run_id, "attempt": run.attempt, "status": run.status,
                        "end_cause": run.end_cause, "certainty": certainty(run)})
                })
                .collect();
            fields.insert("why".to_owned(), why.sentence.into());
            fields.insert("tries".to_owned(), tries.into());
            fields.insert("artifacts".to_owned(), serde_json::to_value(&artifacts).unwrap_or_default());
            if run.lane == Lane::Graph {
                let graph = client.graph(id).await?;
                fields.insert("graph".to_owned(), serde_json::to_value(&graph).unwrap_or_default());
            }
        }
        out.json(&body);
        return Ok(ExitCode::SUCCESS);
    }
    if run.lane == Lane::Graph {
        return super::graph_show::show(client, id, out).await;
    }
    let now = client.info().await?.now;
    facts(&run, now, out);
    out.line(format!("{:<14}{}", "why", printable(&why.sentence)));
    if run.metadata.as_object().is_some_and(|fields| !fields.is_empty()) {
        out.line(format!("{:<14}{}", "metadata", printable(&run.metadata.to_string())));
    }
    if !artifacts.is_empty() {
        out.line("");
        self::artifacts(&artifacts, out);
    }
    out.line("");
    let rows: Vec<Vec<Cell>> = tries
        .iter()
        .map(|run| {
            let here = if run.run_id == *id { "→ " } else { "  " };
            vec![
                format!("{here}{}", run.attempt).into(),
                run.run_id.as_str().into(),
                Cell(state(run), style(run)),
                run.claimed_by.clone().unwrap_or_else(|| "–".to_owned()).into(),
                certainty(run).into(),
            ]
        })
        .collect();
    out.table(&["  TRY", "RUN", "STATE", "WORKER", "WHAT IS CERTAIN"], &rows);
    Ok(ExitCode::SUCCESS)
}

/// The state of a run, with what the state alone does not tell.
pub(super) fn state(run: &Run) -> String {
    match run.end_cause {
        Some(EndCause::Quarantined) => format!("{} (quarantined)", run.status),
        Some(_) | None if is_stalled(run) => format!("{} (stalled)", run.status),
        Some(_) | None => run.status.to_string(),
    }
}

pub(super) fn style(run: &Run) -> Style {
    if is_stalled(run) { Style::Odd } else { Style::of_state(run.status) }
}

/// A run that was stalled keeps the time after its end.
fn is_stalled(run: &Run) -> bool {
    run.stalled_at.is_some() && !run.status.is_terminal()
}

/// A run as JSON, with the name that people call it by.
pub(super) fn named(run: &Run) -> Json {
    let mut body = serde_json::to_value(run).unwrap_or_default();
    if let Some(fields) = body.as_object_mut() {
        fields.insert("name".to_owned(), run.name().into());
    }
    body
}

fn facts(run: &Run, now: Timestamp, out: Out) {
    let line = |name: &str, value: String| out.line(format!("{name:<14}{}", printable(&value)));
    line("run", run.run_id.to_string());
    if let Some(name) = run.name() {
        line("name", name.to_owned());
    }
    out.line(format!("{:<14}{}", "state", out.paint(&state(run), style(run))));
    line("environment", run.env_id.to_string());
    let git = [run.git_ref.as_deref(), run.git_sha.as_deref()];
    if git.iter().any(Option::is_some) {
        line("git", git.into_iter().flatten().collect::<Vec<_>>().join(" "));
    }
    line("queued", times::relative(run.queued_at, now));
    if let Some(started) = run.started_at {
        let took = times::rough(run.finished_at.unwrap_or(now) - started);
        let worker = run.claimed_by.as_deref().unwrap_or("–");
        line("worker", format!("{worker}, since {}, for {took}", times::relative(started, now)));
    }
    if let Some(finished) = run.finished_at {
        line("ended", times::relative(finished, now));
    }
    if run.priority != 0 {
        line("priority", run.priority.to_string());
    }
    if !run.labels.is_empty() {
        line("needs", run.labels.join(", "));
    }
    if let Some(key) = &run.concurrency_key {
        line("key", key.clone());
    }
}

/// What was committed with a try's state, and what was only reported.
fn certainty(run: &Run) -> String {
    match (run.status, run.end_cause) {
        (RunState::Queued, _) => "nothing was done yet".to_owned(),
        (RunState::Claimed | RunState::Running, _) => {
            "what it wrote under its lease is committed; the rest is not known yet".to_owned()
        }
        (_, Some(EndCause::Reported)) => {
            "its events, artifacts and result are committed once; what it did elsewhere is as its worker reported"
                .to_owned()
        }
        (
            _,
            Some(
                EndCause::Lost
                | EndCause::Interrupted
                | EndCause::Quarantined
                | EndCause::TimedOut
                | EndCause::CancelGrace,
            ),
        ) => {
            "its events are committed once; what it did elsewhere before it was cut off is not known".to_owned()
        }
        (_, Some(EndCause::Stale)) => "claimed and never heard of; what it did is not known".to_owned(),
        (_, Some(EndCause::Expired)) => "it was never claimed: nothing was done".to_owned(),
        (_, Some(EndCause::Cancelled | EndCause::Statement) | None) if run.started_at.is_none() => {
            "it was never claimed: nothing was done".to_owned()
        }
        (_, Some(EndCause::Cancelled | EndCause::Statement) | None) => {
            "its events are committed once; what it did elsewhere before it stopped is as its worker reported"
                .to_owned()
        }
    }
}

pub(super) fn artifacts(artifacts: &[Artifact], out: Out) {
    let rows: Vec<Vec<Cell>> = artifacts
        .iter()
        .map(|artifact| {
            vec![
                artifact.artifact_type.as_str().into(),
                artifact.size_bytes.map_or_else(|| "–".to_owned(), |size| format!("{size} B")).into(),
                artifact.digest.clone().unwrap_or_else(|| "–".to_owned()).into(),
                artifact.url.as_str().into(),
            ]
        })
        .collect();
    out.table(&["ARTIFACT", "SIZE", "DIGEST", "URL"], &rows);
}
