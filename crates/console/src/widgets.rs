//! Small elements that many pages use: states, counts, links to runs, progress bars.

use crate::text::{clip, safe};
use maud::{Markup, html};
use tidemill_core::RunId;
use tidemill_core::ids::percent_encoded;
use tidemill_core::run::{Lane, Run, RunState};
use tidemill_core::why::{Facts, explain};
use tidemill_core::{Timestamp, records::Sync};

/// Characters of a run id that are shown. The prefix is long enough for a filter.
const ID_CHARS: usize = 17;
/// Characters of a commit hash that are shown.
const SHA_CHARS: usize = 10;
/// Characters of a branch or tag name that are shown.
const REF_CHARS: usize = 48;

/// Formats a number with thousands separators.
pub(crate) fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        shown.push('-');
    }
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number with its noun.
pub(crate) fn pluralize(number: i64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Symbol of a state, for users who cannot distinguish the colours.
fn glyph(state: RunState) -> &'static str {
    match state {
        RunState::Queued => "○",
        RunState::Claimed => "◔",
        RunState::Running => "●",
        RunState::Success => "✓",
        RunState::Failed => "✕",
        RunState::Cancelled => "⊘",
    }
}

/// Renders the state of a run.
pub(crate) fn state(state: RunState) -> Markup {
    html! { span class={ "state s-" (state) } { i aria-hidden="true" { (glyph(state)) } (state) } }
}

/// Renders the state of another object.
pub(crate) fn label(label: &str) -> Markup {
    html! { span class={ "state s-" (label) } { (label.replace('_', " ")) } }
}

/// Maximum number of rows in a list without pages, and of options in a select.
const LIST_MAX: usize = 200;

/// The rows that a list without pages shows.
pub(crate) fn first_rows<T>(all: &[T]) -> &[T] {
    all.get(..LIST_MAX).unwrap_or(all)
}

/// Note about omitted rows, with the command that lists them all.
pub(crate) fn omitted_rows(all: usize, command: &str) -> Markup {
    html! {
        @if all > LIST_MAX {
            p.empty.small { (pluralize(i64::try_from(all - LIST_MAX).unwrap_or(i64::MAX), "other is", "others are"))
                " not shown. All of them: " code { (command) } }
        }
    }
}

/// Link to a run.
pub(crate) fn run_link(run: &RunId) -> Markup {
    let id = run.as_str();
    let short = id.get(..ID_CHARS).unwrap_or(id);
    html! { a.mono href={ "/runs/" (run.in_path()) } title=(id) { (short) } }
}

/// Path of the run that a message names. A sync is named by its bare id, any other run by its full id.
pub(crate) fn run_page(run: &str) -> String {
    let run = percent_encoded(run);
    if run.starts_with("run-") { format!("/runs/{run}") } else { format!("/runs/run-{run}") }
}

/// Feed of a sync's run.
pub(crate) fn feed_of(run: &Run) -> Option<&str> {
    run.name().filter(|_| run.lane == Lane::Sync)
}

/// Short description of a run: feed, graph name or environment.
pub(crate) fn subject(run: &Run) -> Markup {
    if let Some(feed) = feed_of(run) {
        return html! { span.chip { "sync" } " " a href={ "/feeds/" (feed) } { (feed) } };
    }
    html! {
        @if run.lane == Lane::Graph {
            span.chip { "graph" } " "
            @if let Some(name) = run.name() { b { (clip(name, REF_CHARS)) } " " }
        }
        @if !run.kind.is_empty() { b { (clip(&run.kind, REF_CHARS)) } " " }
        (safe(run.env_id.as_str()))
        @if let Some(git_ref) = &run.git_ref { " " span.chip { (clip(git_ref, REF_CHARS)) } }
        @if let Some(sha) = &run.git_sha { " " code.dim { (clip(sha, SHA_CHARS)) } }
    }
}

/// Explains the end of a run from its row alone, without a database query.
pub(crate) fn end_reason(run: &Run, now: Timestamp) -> String {
    let facts = Facts {
        run: run.clone(),
        flags: Vec::new(),
        key_head: None,
        key_worker: None,
        key_head_facts: None,
        ahead: 0,
        workers_fitting: 0,
        workers_alive: 0,
        workers_draining: 0,
        worker_beat_at: None,
        successor: None,
        last_event: None,
        last_event_at: None,
    };
    explain(&facts, now).sentence()
}

/// Percentage within 0 and 100.
pub(crate) fn percent(part: i64, whole: i64) -> i64 {
    if whole <= 0 { 0 } else { (part.saturating_mul(100) / whole).clamp(0, 100) }
}

/// Progress bar with a text alternative.
pub(crate) fn bar(part: i64, whole: i64, what: &str, class: &str) -> Markup {
    let percent = percent(part, whole);
    html! {
        progress class=(class) max="100" value=(percent) aria-label={ (what) ": " (percent) " %" } { (percent)
            " %" }
    }
}

/// Progress of a sync.
pub(crate) fn sync_progress(sync: &Sync) -> Markup {
    let (done, of) = (i64::from(sync.completed_workers), i64::from(sync.expected_workers));
    html! {
        span.nowrap { (done) " of " (of) " partitions" }
        @if sync.failed_workers > 0 { " " span.bad { (sync.failed_workers) " failed" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_thousands_separators() {
        for (number, shown) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567"), (-12_345, "-12,345")]
        {
            assert_eq!(count(number), shown);
        }
        assert_eq!(count(i64::MIN), "-9,223,372,036,854,775,808");
        assert_eq!(pluralize(1, "run", "runs"), "1 run");
    }

    #[test]
    fn percentage_is_clamped() {
        assert_eq!((percent(1, 3), percent(5, 0), percent(9, 3), percent(-1, 3)), (33, 0, 100, 0));
        assert_eq!(percent(i64::MAX, i64::MAX), 1, "the product saturates");
    }
}
