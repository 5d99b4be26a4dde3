//! Small things that many pages show: states, counts, runs and where they belong.

use crate::text::{line_of, says};
use maud::{Markup, html};
use tidemill_core::RunId;
use tidemill_core::ids::percent_encoded;
use tidemill_core::run::{Lane, Run, RunState};
use tidemill_core::why::{Facts, explain};
use tidemill_core::{Timestamp, records::Sync};

/// Characters of an id that name a run well enough for people: it is a prefix that lists can be narrowed by.
const ID_CHARS: usize = 17;
/// Characters of a commit's name that are shown.
const SHA_CHARS: usize = 10;
/// Characters of a branch or tag that are shown.
const REF_CHARS: usize = 48;

/// A number with its thousands apart.
pub(crate) fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        shown.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A number of things, in words.
pub(crate) fn counted(number: i64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// The glyph of a state: colour alone would not do for everybody.
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

/// A run's state.
pub(crate) fn state(state: RunState) -> Markup {
    html! { span class={ "state s-" (state) } { i aria-hidden="true" { (glyph(state)) } (state) } }
}

/// A state of something else, by its label.
pub(crate) fn label(label: &str) -> Markup {
    html! { span class={ "state s-" (label) } { (label.replace('_', " ")) } }
}

/// Rows of a list that has no pages, and choices of a select.
const LIST_MAX: usize = 200;

/// As many as a list without pages shows.
pub(crate) fn first<T>(all: &[T]) -> &[T] {
    all.get(..LIST_MAX).unwrap_or(all)
}

/// What such a list does not show, and where it is.
pub(crate) fn others(all: usize, command: &str) -> Markup {
    html! {
        @if all > LIST_MAX {
            p.empty.small { (counted(i64::try_from(all - LIST_MAX).unwrap_or(i64::MAX), "other is", "others are"))
                " not shown here: " code { (command) } }
        }
    }
}

/// A run by its id, as a link.
pub(crate) fn run_link(run: &RunId) -> Markup {
    let id = run.as_str();
    let short = id.get(..ID_CHARS).unwrap_or(id);
    html! { a.mono href={ "/runs/" (run.in_path()) } title=(id) { (short) } }
}

/// The page of a run that a message names: a sync by its bare id, and any other run by its own.
pub(crate) fn run_page(run: &str) -> String {
    let run = percent_encoded(run);
    if run.starts_with("run-") { format!("/runs/{run}") } else { format!("/runs/run-{run}") }
}

/// The feed of a sync's run.
pub(crate) fn feed_of(run: &Run) -> Option<&str> {
    run.name().filter(|_| run.lane == Lane::Sync)
}

/// What a run is about, in a few words.
pub(crate) fn subject(run: &Run) -> Markup {
    if let Some(feed) = feed_of(run) {
        return html! { span.chip { "sync" } " " a href={ "/feeds/" (feed) } { (feed) } };
    }
    html! {
        @if run.lane == Lane::Graph {
            span.chip { "graph" } " "
            @if let Some(name) = run.name() { b { (line_of(name, REF_CHARS)) } " " }
        }
        (says(run.env_id.as_str()))
        @if let Some(git_ref) = &run.git_ref { " " span.chip { (line_of(git_ref, REF_CHARS)) } }
        @if let Some(sha) = &run.git_sha { " " code.dim { (line_of(sha, SHA_CHARS)) } }
    }
}

/// Why a run ended as it did, without another look at the database.
pub(crate) fn ending(run: &Run, now: Timestamp) -> String {
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

/// A share of a whole, in percent, within its bounds.
pub(crate) fn percent(part: i64, whole: i64) -> i64 {
    if whole <= 0 { 0 } else { (part.saturating_mul(100) / whole).clamp(0, 100) }
}

/// How far something is, as a bar with a text alternative.
pub(crate) fn bar(part: i64, whole: i64, what: &str, class: &str) -> Markup {
    let percent = percent(part, whole);
    html! {
        progress class=(class) max="100" value=(percent) aria-label={ (what) ": " (percent) " %" } { (percent)
            " %" }
    }
}

/// How far a sync is.
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
    fn numbers_have_their_thousands_apart() {
        for (number, shown) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567"), (-12_345, "-12,345")]
        {
            assert_eq!(count(number), shown);
        }
        assert_eq!(count(i64::MIN), "-9,223,372,036,854,775,808");
        assert_eq!(counted(1, "run", "runs"), "1 run");
    }

    #[test]
    fn a_share_keeps_to_its_bounds() {
        assert_eq!((percent(1, 3), percent(5, 0), percent(9, 3), percent(-1, 3)), (33, 0, 100, 0));
        assert_eq!(percent(i64::MAX, i64::MAX), 1, "a product that is too large is the largest there is");
    }
}
