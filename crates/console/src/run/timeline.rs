//! Timeline of a run and its other tries: states and their durations.

use crate::chart::{Bars, Row, Span};
use crate::time::{clock, rough};
use crate::widgets::state;
use maud::{Markup, html};
use tidemill_core::Timestamp;
use tidemill_core::event::{Event, EventKind};
use tidemill_core::run::{Run, RunState};
use tidemill_wire::runs::RunDetail;

/// Maximum number of tries shown.
const TRIES_MAX: usize = 12;

/// A state change of a run.
pub(super) struct Change {
    seq: i32,
    to: RunState,
    at: Timestamp,
}

/// Collects the state changes. They are among the first and the last events of a run, however many there are.
pub(super) fn changes(first: &[Event], last: &[Event]) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for event in first.iter().chain(last).filter(|event| event.kind == EventKind::Transition) {
        let to = event.payload.get("to").and_then(|to| to.as_str()).and_then(|to| to.parse().ok());
        if let Some(to) = to
            && changes.iter().all(|known| known.seq != event.seq)
        {
            changes.push(Change { seq: event.seq, to, at: event.created_at });
        }
    }
    changes.sort_by_key(|change| change.seq);
    changes
}

/// Renders the chart and a line with the times.
pub(super) fn chart(detail: &RunDetail, changes: &[Change], now: Timestamp) -> Markup {
    let skipped = detail.tries.len().saturating_sub(TRIES_MAX);
    let rows = detail.tries.iter().skip(skipped).map(|run| {
        let own = run.run_id == detail.run.run_id;
        let running =
            changes.iter().find(|change| own && change.to == RunState::Running).map(|change| change.at);
        let name =
            format!("try {}{}", run.attempt, if own && detail.tries.len() > 1 { " (this)" } else { "" });
        Row { name, spans: spans(run, running, now) }
    });
    let bars = Bars { title: format!("Timeline of {}", detail.run.run_id), rows: rows.collect() };
    html! {
        (bars.draw())
        p.changes {
            @for (index, change) in changes.iter().enumerate() {
                @if index > 0 { " → " }
                span.nowrap { (state(change.to)) " " (clock(change.at))
                    @if let Some(before) = index.checked_sub(1).and_then(|before| changes.get(before)) {
                        span.dim { " +" (rough(change.at - before.at)) }
                    }
                }
            }
        }
    }
}

/// Periods of a try. `running` is the time of its start, if the events contain it.
fn spans(run: &Run, running: Option<Timestamp>, now: Timestamp) -> Vec<Span> {
    let end = run.finished_at.unwrap_or(now);
    let claimed = run.started_at.unwrap_or(end);
    let mut spans =
        vec![Span { from: run.queued_at, to: claimed, state: RunState::Queued.as_str(), waiting: true }];
    if run.started_at.is_none() {
        return spans;
    }
    let last = if run.status.is_terminal() { run.status } else { RunState::Running };
    let mut span =
        |from, to, state: RunState| spans.push(Span { from, to, state: state.as_str(), waiting: false });
    match running {
        Some(running) => {
            span(claimed, running, RunState::Claimed);
            span(running, end, last);
        }
        None if run.status == RunState::Claimed => span(claimed, end, RunState::Claimed),
        None => span(claimed, end, last),
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeDelta, TimeZone as _, Utc};
    use serde_json::json;

    fn event(seq: i32, kind: EventKind, to: &str, secs: i64) -> Event {
        let at = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap() + TimeDelta::seconds(secs);
        Event {
            event_id: format!("event-{seq}"),
            run_id: tidemill_core::RunId::from_database("run-1".to_owned()),
            seq,
            kind,
            level: tidemill_core::event::Level::Info,
            message: String::new(),
            payload: json!({"to": to}),
            event_key: None,
            created_at: at,
        }
    }

    #[test]
    fn changes_at_both_ends_are_found_once_each() {
        let first = [
            event(1, EventKind::Transition, "queued", 0),
            event(2, EventKind::Transition, "claimed", 1),
            event(3, EventKind::Log, "running", 1),
        ];
        let last =
            [event(2, EventKind::Transition, "claimed", 1), event(90, EventKind::Transition, "failed", 9)];
        let found: Vec<(i32, RunState)> =
            changes(&first, &last).iter().map(|change| (change.seq, change.to)).collect();
        assert_eq!(found, [(1, RunState::Queued), (2, RunState::Claimed), (90, RunState::Failed)]);
    }
}
