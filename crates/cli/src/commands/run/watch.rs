//! `tidemill run watch`: follows a run and its retries until the request ends.

use crate::failure::Failure;
use crate::out::{Line, Out, Style};
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_core::run::{Lane, RunState};
use tidemill_wire::runs::ListEvents;

/// Polling interval: short while events arrive, longer otherwise.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(1);
const PAGE: u16 = 500;

/// Follows a run. The exit code is 0 if it succeeded, and 3 otherwise.
pub(super) async fn watch(client: &Client, id: RunId, out: Out) -> Result<ExitCode, Failure> {
    let mut current = id;
    if client.run(&current).await?.lane == Lane::Graph {
        return super::super::graph::watch::watch(client, &current, out).await;
    }
    loop {
        let status = follow_run(client, &current, out).await?;
        let tries = client.tries(&current).await?.items;
        let next = tries.into_iter().find(|run| run.retry_of.as_ref() == Some(&current));
        let Some(next) = next else {
            if !out.is_json() {
                let sentence = client.why(&current).await?.sentence;
                out.print(out.paint(&sentence, Style::of_state(status)));
            }
            let is_success = status == RunState::Success;
            return Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::from(3) });
        };
        if !out.is_json() {
            let notice = format!("— attempt {} of the request: {}", next.attempt, next.run_id);
            out.print(out.paint(&notice, Style::Bold));
        }
        current = next.run_id;
    }
}

/// Prints the events of one run until it has ended, and returns its final state.
async fn follow_run(client: &Client, id: &RunId, out: Out) -> Result<RunState, Failure> {
    let mut after = 0;
    let mut interval = POLL_MIN;
    let mut last_reason = String::new();
    loop {
        // The state is read before the events, so that all events are printed before the end.
        let run = client.run(id).await?;
        let request = ListEvents { after: Some(after), limit: Some(PAGE) };
        let events = client.events(id, &request).await?.items;
        for event in &events {
            after = event.seq;
            if out.is_json() {
                out.print_json(event);
            } else {
                out.print(format_event(event, out));
            }
        }
        if run.status.is_terminal() && events.len() < usize::from(PAGE) {
            return Ok(run.status);
        }
        if events.is_empty() {
            interval = (interval * 2).min(POLL_MAX);
            if run.status == RunState::Queued && out.is_live() {
                last_reason = print_reason(client, id, last_reason, out).await?;
            }
        } else {
            interval = POLL_MIN;
        }
        tokio::time::sleep(interval).await;
    }
}

/// Prints why a run is waiting, each time the reason changes.
async fn print_reason(client: &Client, id: &RunId, before: String, out: Out) -> Result<String, Failure> {
    let sentence = client.why(id).await?.sentence;
    if sentence != before {
        out.print(out.paint(&sentence, Style::Dim));
    }
    Ok(sentence)
}

/// Formats an event as one line.
pub(super) fn format_event(event: &Event, out: Out) -> Line {
    let time = event.created_at.format("%H:%M:%S%.3f");
    let detail = match event.payload.as_object() {
        Some(fields) if fields.is_empty() || fields.len() == 1 && fields.contains_key("stream") => {
            Line::default()
        }
        Some(_) | None => Line::from(" ").and(out.paint(&event.payload.to_string(), Style::Dim)),
    };
    let level = out.paint(&format!("{:<5}", event.level), Style::of_level(event.level));
    out.paint(&time.to_string(), Style::Dim)
        .and(" ")
        .and(level)
        .and(format!(" {}", event.message))
        .and(detail)
}
