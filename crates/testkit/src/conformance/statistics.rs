//! Key metrics over a known history.

use serde_json::json;
use tidemill_core::run::{FinalStatus, QueueRun, RunState};
use tidemill_core::stats::{ActiveRuns, MeanDuration, Stats};

use crate::interface::{Fixture, at, info, request};

const HOUR: i64 = 3_600;

/// The seed's four metrics: queue depth, active runs by worker, success rate of a day, mean durations of a week; and
/// mean durations of a day.
pub async fn key_metrics_match_the_seed(fixture: Fixture) {
    let empty = fixture.store.stats(Some(at(0))).await.ok();
    assert_eq!(empty, Some(Stats::default()));
    // Six days ago: counted in the durations, not in the success rate. Eight days ago: in neither.
    for (begin, status, took) in [
        (-8 * 24 * HOUR, FinalStatus::Success, 1_000),
        (-6 * 24 * HOUR, FinalStatus::Success, 30),
        (-2 * HOUR, FinalStatus::Success, 10),
        (-2 * HOUR, FinalStatus::Success, 20),
        (-HOUR, FinalStatus::Failed, 7),
        (-HOUR, FinalStatus::Cancelled, 3),
    ] {
        let run = fixture.running(request(), "worker-001", at(begin)).await.run_id;
        fixture.finish(&run, status, json!({}), at(begin + took)).await;
    }
    let cancelled = fixture.queue(request(), at(-10)).await;
    fixture.cancel(&cancelled, at(-9)).await;
    let run = fixture.claimed(request(), "worker-001", at(-8)).await.run_id;
    fixture.append_event(&run, info("begin"), at(-7)).await;
    fixture.claimed(request(), "worker-001", at(-7)).await;
    fixture
        .claimed(QueueRun { concurrency_key: Some("k".to_owned()), ..request() }, "worker-002", at(-6))
        .await;
    fixture.queue(QueueRun { concurrency_key: Some("k".to_owned()), ..request() }, at(-5)).await;
    fixture.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(-4)).await;
    fixture.queue(request(), at(-3)).await;
    fixture.queue(request(), at(-2)).await;

    let Ok(stats) = fixture.store.stats(Some(at(0))).await else { panic!("there are no metrics") };
    assert_eq!((stats.queued_count, stats.ready_count), (4, 2));
    assert_eq!(stats.oldest_ready_secs, Some(3.0));
    let active = |name: &str, active_runs| ActiveRuns { claimed_by: name.to_owned(), active_runs };
    assert_eq!(stats.active, [active("worker-001", 2), active("worker-002", 1)]);
    assert_eq!((stats.success_count, stats.failed_count, stats.success_rate), (2, 1, Some(66.67)));
    let mean = |status, avg_duration_seconds, runs| MeanDuration { status, avg_duration_seconds, runs };
    let expected =
        [mean(RunState::Cancelled, 3.0, 1), mean(RunState::Failed, 7.0, 1), mean(RunState::Success, 20.0, 3)];
    assert_eq!(stats.durations, expected);
    let expected =
        [mean(RunState::Cancelled, 3.0, 1), mean(RunState::Failed, 7.0, 1), mean(RunState::Success, 15.0, 2)];
    assert_eq!(stats.durations_day, expected, "runs that ended six days ago are not counted in the day");
}
