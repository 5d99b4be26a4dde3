//! `tidemill run show`: a run, its attempts, and which of their effects are certain.

use crate::failure::Failure;
use crate::out::{Cell, Line, Out, Style};
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
        let mut body = run_json(&run);
        if let Some(fields) = body.as_object_mut() {
            let tries: Vec<_> = tries
                .iter()
                .map(|run| {
                    serde_json::json!({"run_id": run.run_id, "attempt": run.attempt, "status": run.status,
                        "end_cause": run.end_cause, "certainty": describe_certainty(run)})
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
        out.print_json(&body);
        return Ok(ExitCode::SUCCESS);
    }
    if run.lane == Lane::Graph {
        return super::super::graph::show::show(client, id, out).await;
    }
    let now = client.info().await?.now;
    print_facts(&run, now, out);
    out.print(format!("{:<14}{}", "why", why.sentence));
    if run.metadata.as_object().is_some_and(|fields| !fields.is_empty()) {
        out.print(format!("{:<14}{}", "metadata", run.metadata));
    }
    if !artifacts.is_empty() {
        out.print("");
        print_artifacts(&artifacts, out);
    }
    out.print("");
    let rows: Vec<Vec<Cell>> = tries
        .iter()
        .map(|run| {
            let marker = if run.run_id == *id { "→ " } else { "  " };
            vec![
                format!("{marker}{}", run.attempt).into(),
                Cell::id(run.run_id.as_str()),
                Cell::new(describe_state(run), style(run)),
                run.claimed_by.clone().unwrap_or_else(|| "–".to_owned()).into(),
                describe_certainty(run).into(),
            ]
        })
        .collect();
    out.print_table(&["  TRY", "RUN", "STATE", "WORKER", "CERTAINTY"], &rows);
    Ok(ExitCode::SUCCESS)
}

/// State of a run, and whether it is quarantined or stalled.
pub(super) fn describe_state(run: &Run) -> String {
    match run.end_cause {
        Some(EndCause::Quarantined) => format!("{} (quarantined)", run.status),
        Some(_) | None if is_stalled(run) => format!("{} (stalled)", run.status),
        Some(_) | None => run.status.to_string(),
    }
}

pub(super) fn style(run: &Run) -> Style {
    if is_stalled(run) { Style::Warning } else { Style::of_state(run.status) }
}

/// Excludes ended runs, which keep the time at which they stalled.
fn is_stalled(run: &Run) -> bool {
    run.stalled_at.is_some() && !run.status.is_terminal()
}

/// Converts a run into JSON, with the name of its graph or feed.
pub(super) fn run_json(run: &Run) -> Json {
    let mut body = serde_json::to_value(run).unwrap_or_default();
    if let Some(fields) = body.as_object_mut() {
        fields.insert("name".to_owned(), run.name().into());
    }
    body
}

fn print_facts(run: &Run, now: Timestamp, out: Out) {
    let line = |name: &str, value: String| out.print(format!("{name:<14}{value}"));
    line("run", run.run_id.to_string());
    if let Some(name) = run.name() {
        line("name", name.to_owned());
    }
    if !run.kind.is_empty() {
        line("kind", run.kind.clone());
    }
    out.print(Line::from(format!("{:<14}", "state")).and(out.paint(&describe_state(run), style(run))));
    line("environment", run.env_id.to_string());
    let git = [run.git_ref.as_deref(), run.git_sha.as_deref()];
    if git.iter().any(Option::is_some) {
        line("git", git.into_iter().flatten().collect::<Vec<_>>().join(" "));
    }
    line("queued", times::format_relative(run.queued_at, now));
    if let Some(started) = run.started_at {
        let took = times::format_rough(run.finished_at.unwrap_or(now) - started);
        let worker = run.claimed_by.as_deref().unwrap_or("–");
        line("worker", format!("{worker}, since {}, for {took}", times::format_relative(started, now)));
    }
    if let Some(finished) = run.finished_at {
        line("ended", times::format_relative(finished, now));
    }
    if run.priority != 0 {
        line("priority", run.priority.to_string());
    }
    if !run.labels.is_empty() {
        line("labels", run.labels.join(", "));
    }
    if let Some(key) = &run.concurrency_key {
        line("key", key.clone());
    }
}

/// Describes which effects of an attempt are committed, and which are only reported.
fn describe_certainty(run: &Run) -> String {
    match (run.status, run.end_cause) {
        (RunState::Queued, _) => "not started".to_owned(),
        (RunState::Claimed | RunState::Running, _) => {
            "events under its lease are committed; other effects are unknown until it ends".to_owned()
        }
        (_, Some(EndCause::Reported)) => {
            "events, artifacts and result are committed once; other effects are as its worker reported"
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
        ) => "events are committed once; other effects before the interruption are unknown".to_owned(),
        (_, Some(EndCause::Stale)) => "claimed without a heartbeat; its effects are unknown".to_owned(),
        (_, Some(EndCause::Expired)) => "never claimed; no effects".to_owned(),
        (_, Some(EndCause::Cancelled | EndCause::Statement) | None) if run.started_at.is_none() => {
            "never claimed; no effects".to_owned()
        }
        (_, Some(EndCause::Cancelled | EndCause::Statement) | None) => {
            "events are committed once; other effects before it stopped are as its worker reported".to_owned()
        }
    }
}

pub(super) fn print_artifacts(artifacts: &[Artifact], out: Out) {
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
    out.print_table(&["ARTIFACT", "SIZE", "DIGEST", "URL"], &rows);
}
