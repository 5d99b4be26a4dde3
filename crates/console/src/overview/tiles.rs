//! Tiles with the key statistics, and the panel of workers.

use crate::page_context::PageContext;
use crate::text::safe;
use crate::time::{ago, rough_secs};
use crate::widgets::{count, pluralize};
use maud::{Markup, html};
use tidemill_core::limits::DEAD_AFTER_SECS;
use tidemill_core::queue::Message;
use tidemill_core::run::RunState;
use tidemill_core::stats::{MeanDuration, Stats};
use tidemill_core::worker::Worker;

/// Maximum number of workers shown.
const ROWS: usize = 8;

/// Whether the worker's last heartbeat is recent.
pub(crate) fn is_alive(worker: &Worker, context: &PageContext) -> bool {
    let silent = (context.now - worker.beat_at).num_seconds();
    worker.ended_at.is_none() && silent < i64::try_from(DEAD_AFTER_SECS).unwrap_or(i64::MAX)
}

fn rate(success: i64, failed: i64) -> String {
    let all = success + failed;
    if all == 0 {
        return "–".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of runs are far below 2^52")]
    let rate = 100.0 * success as f64 / all as f64;
    // Rounding must not hide a failure.
    if failed > 0 && rate > 99.9 { "> 99.9 %".to_owned() } else { format!("{rate:.1} %") }
}

pub(super) fn tiles(context: &PageContext, stats: &Stats, workers: &[Worker]) -> Markup {
    let running: i64 = stats.active.iter().map(|active| active.active_runs).sum();
    let ended = |status| of(&stats.durations, status).map_or(0, |line| line.runs);
    let week = (ended(RunState::Success), ended(RunState::Failed));
    let alive = workers.iter().filter(|worker| is_alive(worker, context)).count();
    html! {
        a.tile href="/runs?status=queued" { span { "Waiting" } b { (count(stats.queued_count)) }
            span { @if let Some(oldest) = stats.oldest_ready_secs { "oldest ready " (rough_secs(oldest)) }
                @else { (count(stats.ready_count)) " ready" } } }
        a.tile href="/runs?status=running" { span { "Running" } b { (count(running)) }
            span { "on " (pluralize(i64::try_from(stats.active.len()).unwrap_or(0), "worker", "workers")) } }
        a.tile href="/runs?status=failed&within=24h" { span { "Success, 24 h" }
            b { (rate(stats.success_count, stats.failed_count)) }
            span { (count(stats.success_count)) " successful, " span.inline.bad[stats.failed_count > 0] {
                (count(stats.failed_count)) " failed" } } }
        a.tile href="/runs?status=failed&within=7d" { span { "Success, 7 d" } b { (rate(week.0, week.1)) }
            span { (count(week.0)) " successful, " (count(week.1)) " failed" } }
            (mean_time("Mean duration, 24 h", &stats.durations_day))
            (mean_time("Mean duration, 7 d", &stats.durations))
        a.tile href="/workers" { span { "Workers" } b.bad[alive == 0 && stats.queued_count > 0] { (alive) }
            span { "alive" @if workers.len() > alive { ", " (workers.len() - alive) " ended recently" } } }
    }
}

/// Mean duration of the runs that ended in a state.
fn of(durations: &[MeanDuration], status: RunState) -> Option<&MeanDuration> {
    durations.iter().find(|line| line.status == status)
}

/// Tile with the mean durations of successful and failed runs.
fn mean_time(label: &str, durations: &[MeanDuration]) -> Markup {
    let took = |line: &MeanDuration| rough_secs(line.avg_duration_seconds);
    html! {
        div.tile { span { (label) }
            b { (of(durations, RunState::Success).map_or_else(|| "–".to_owned(), took)) }
            span { @if let Some(line) = of(durations, RunState::Failed) { "failed: " (took(line)) }
                @else { "none failed" } } }
    }
}

/// Renders the panel of workers.
pub(super) fn workers(
    context: &PageContext,
    workers: &[Worker],
    stats: &Stats,
    messages: &[Message],
) -> Markup {
    let alive: Vec<&Worker> = workers.iter().filter(|worker| is_alive(worker, context)).collect();
    let busy = |worker: &Worker| stats.active.iter().find(|active| active.claimed_by == worker.name);
    let held = |worker: &Worker| {
        let own = messages.iter().filter(|message| message.locked_by == Some(worker.worker_id)).count();
        i64::try_from(own).unwrap_or(i64::MAX)
    };
    html! {
        section.panel #crew {
            header { h2 { "Workers" } a.more href="/workers" { "All" } }
            @if alive.is_empty() {
                p.empty { "No worker is alive. Start one: " code { "tidemill work -- COMMAND" } " or "
                    code { "tidemill up" } }
            } @else {
                div.scroll { table { tbody {
                    @for worker in alive.iter().take(ROWS) {
                        tr data-key=(worker.worker_id) {
                            td { (safe(&worker.name)) @if worker.draining { " " span.chip { "draining" } } }
                            td.num { @if let Some(active) = busy(worker) {
                                (pluralize(active.active_runs, "run", "runs")) }
                                @else if held(worker) > 0 { (pluralize(held(worker), "message", "messages")) }
                                @else { span.dim { "idle" } } }
                            td.num.dim { (ago(worker.beat_at, context.now)) }
                        }
                    }
                } } }
                @if alive.len() > ROWS { p.empty.small { "and " (alive.len() - ROWS) " more" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_durations_of_a_day_and_a_week_are_separate() {
        let mean = |status, avg_duration_seconds| MeanDuration { status, avg_duration_seconds, runs: 1 };
        let day = mean_time("Mean duration, 24 h", &[mean(RunState::Success, 12.0)]).into_string();
        assert!(day.contains("Mean duration, 24 h") && day.contains("<b>12 s</b>"), "{day}");
        assert!(day.contains("none failed"), "{day}");
        let week = mean_time("Mean duration, 7 d", &[mean(RunState::Failed, 90.0)]).into_string();
        assert!(week.contains("<b>–</b>") && week.contains("failed: 1 min 30 s"), "{week}");
    }

    #[test]
    fn rate_never_hides_a_failure() {
        assert_eq!(rate(0, 0), "–");
        assert_eq!(rate(1, 1), "50.0 %");
        assert_eq!(rate(1_000_000, 1), "> 99.9 %");
        assert_eq!(rate(7, 0), "100.0 %");
    }
}
