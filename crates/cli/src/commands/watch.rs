//! Following a run, through the tries that follow it, until its request ends.

use crate::fail::Failure;
use crate::out::{Out, Style, printable};
use std::process::ExitCode;
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::RunId;
use tidemill_core::event::Event;
use tidemill_core::run::{Lane, RunState};
use tidemill_wire::runs::ListEvents;

/// How often to look: quickly while something happens, slowly when nothing does.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Events read at once.
const PAGE: u16 = 500;

/// Follows a run. The exit code tells the outcome: 0 for success, 3 for anything else.
pub(super) async fn watch(client: &Client, id: RunId, out: Out) -> Result<ExitCode, Failure> {
    let mut current = id;
    if client.run(&current).await?.lane == Lane::Graph {
        return super::graph_watch::watch(client, &current, out).await;
    }
    loop {
        let status = follow_one(client, &current, out).await?;
        let tries = client.tries(&current).await?.items;
        let next = tries.into_iter().find(|run| run.retry_of.as_ref() == Some(&current));
        let Some(next) = next else {
            if !out.is_json() {
                let sentence = client.why(&current).await?.sentence;
                out.line(out.paint(&printable(&sentence), Style::of_state(status)));
            }
            let succeeded = status == RunState::Success;
            return Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::from(3) });
        };
        if !out.is_json() {
            let notice = format!("— try {} of the request: {}", next.attempt, next.run_id);
            out.line(out.paint(&notice, Style::Bold));
        }
        current = next.run_id;
    }
}

/// Prints one run's events until it has ended; its final state.
async fn follow_one(client: &Client, id: &RunId, out: Out) -> Result<RunState, Failure> {
    let mut after = 0;
    let mut look = LOOK_MIN;
    let mut told_why = String::new();
    loop {
        // The state is read before the events, so that an end is never seen before the events that led to it.
        let run = client.run(id).await?;
        let asked = ListEvents { after: Some(after), limit: Some(PAGE) };
        let events = client.events(id, &asked).await?.items;
        for event in &events {
            after = event.seq;
            if out.is_json() {
                out.json(event);
            } else {
                out.line(told(event, out));
            }
        }
        if run.status.is_terminal() && events.len() < usize::from(PAGE) {
            return Ok(run.status);
        }
        if events.is_empty() {
            look = (look * 2).min(LOOK_MAX);
            if run.status == RunState::Queued && out.is_live() {
                told_why = tell_why(client, id, told_why, out).await?;
            }
        } else {
            look = LOOK_MIN;
        }
        tokio::time::sleep(look).await;
    }
}

/// Says why a run waits, each time the reason changes.
async fn tell_why(client: &Client, id: &RunId, before: String, out: Out) -> Result<String, Failure> {
    let sentence = client.why(id).await?.sentence;
    if sentence != before {
        out.line(out.paint(&printable(&sentence), Style::Dim));
    }
    Ok(sentence)
}

/// One event as a line.
pub(super) fn told(event: &Event, out: Out) -> String {
    let time = event.created_at.format("%H:%M:%S%.3f");
    let detail = match event.payload.as_object() {
        Some(fields) if fields.is_empty() || fields.len() == 1 && fields.contains_key("stream") => {
            String::new()
        }
        Some(_) | None => format!(" {}", out.paint(&printable(&event.payload.to_string()), Style::Dim)),
    };
    let level = out.paint(&format!("{:<5}", event.level), Style::of_level(event.level));
    format!("{} {level} {}{detail}", out.paint(&time.to_string(), Style::Dim), printable(&event.message))
}
