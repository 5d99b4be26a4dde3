//! Workers that did not promise heartbeats. A worker process row, a heartbeat or a requested lease length is a promise.

use serde_json::json;
use tidemill_core::run::{ChangeOutcome, EndCause, FailOutcome, FailRun, FinalStatus, QueueRun, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{CancelOutcome, ClaimRuns, RefusalCode};

use crate::interface::{Fixture, at, info, refused, request};

/// Claims a run without promising heartbeats.
async fn claimed(fixture: &Fixture, request: QueueRun, now: Timestamp) -> RunId {
    let run = fixture.queue(request, now).await;
    let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-001") };
    let claims = fixture.claim_as(ask, now).await;
    assert_eq!(claims.first().map(|claim| &claim.run_id), Some(&run), "another run was claimable");
    run
}

/// Claims a run at `now`, appends one event a second later, and sweeps after 5 silent minutes.
pub(super) async fn stalled(fixture: &Fixture, request: QueueRun, now: Timestamp) -> RunId {
    let run = claimed(fixture, request, now).await;
    let second = chrono::TimeDelta::seconds(1);
    fixture.append_event(&run, info("begin"), now + second).await;
    assert_eq!(fixture.sweep(now + second * 300).await, [], "five minutes have not passed");
    assert_eq!(fixture.sweep(now + second * 301).await, []);
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.stalled_at), (RunState::Running, Some(now + second * 301)));
    run
}

fn by_ann(run: &RunId, retry: bool) -> FailRun {
    FailRun { run_id: run.clone(), by: "ann".to_owned(), reason: Some("the host is gone".to_owned()), retry }
}

/// However long the worker is silent, and no retry is started.
pub async fn silent_worker_without_heartbeats_keeps_its_run(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    for hour in 1..=3 {
        assert_eq!(fixture.sweep(at(hour * 3600)).await, []);
    }
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.stalled_at), (RunState::Running, Some(at(301))), "it is marked once");
    assert_eq!((found.lease_until, found.claimed_by.as_deref()), (None, Some("worker-001")));
    assert_eq!(fixture.successor(&run).await, None);
    assert_eq!(fixture.claim("worker-002", at(3 * 3600)).await, None, "no retry may run at the same time");
    let events = fixture.events(&run).await;
    let marks: Vec<_> = events.iter().filter(|event| event.message.starts_with("Run stalled")).collect();
    assert_eq!(marks.len(), 1);
    let silent_since = "2026-02-14T10:30:01.000000Z";
    assert_eq!(marks[0].payload, json!({"worker_id": "worker-001", "silent_since": silent_since}));
}

pub async fn report_on_a_stalled_run_counts(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    fixture.succeed(&run, at(9_000)).await;
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Success, Some(EndCause::Reported)));
}

/// The event clears the stalled mark. It is not a promise, so further silence stalls the run again.
pub async fn event_revives_a_stalled_run_without_heartbeats(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    fixture.append_event(&run, info("still here"), at(400)).await;
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.stalled_at, found.lease_until), (RunState::Running, None, Some(at(700))));
    assert_eq!(fixture.sweep(at(699)).await, []);
    assert_eq!(fixture.run(&run).await.stalled_at, None);
    assert_eq!(fixture.sweep(at(700)).await, []);
    assert_eq!(fixture.run(&run).await.stalled_at, Some(at(700)));
}

/// The heartbeat clears the stalled mark and is a promise, so further silence means that the worker is lost.
pub async fn heartbeat_revives_a_stalled_run_with_heartbeats(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    let held = fixture.heartbeat(&run, at(400)).await;
    assert_eq!((held.held, held.lease_until), (true, Some(at(700))));
    assert_eq!(fixture.run(&run).await.stalled_at, None);
    let swept = fixture.sweep(at(700)).await;
    assert_eq!(swept.first().map(|one| (&one.run_id, one.action)), Some((&run, EndCause::Lost)));
    assert_eq!(fixture.claim_id("worker-002", at(701)).await, swept[0].successor);
}

/// There is no retry, and repeating it changes nothing.
pub async fn stalled_run_can_be_failed(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    let failed = fixture.interface.fail(by_ann(&run, false), at(500)).await.ok();
    assert_eq!(failed, Some(FailOutcome { outcome: ChangeOutcome::Applied, successor: None }));
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Failed, Some(EndCause::Lost)));
    assert_eq!(found.finished_at, Some(at(500)));
    let expected = json!({"error": "worker lost", "original_worker": "worker-001", "failed_by": "ann",
                          "reason": "the host is gone"});
    assert_eq!(found.metadata, expected);
    let again = fixture.interface.fail(by_ann(&run, false), at(501)).await.ok();
    assert_eq!(again, Some(FailOutcome { outcome: ChangeOutcome::Duplicate, successor: None }));
    assert_eq!(fixture.claim("worker-002", at(502)).await, None);
    let late = fixture.finish(&run, FinalStatus::Success, json!({}), at(503)).await;
    assert_eq!(late, ChangeOutcome::Stale, "the returning worker is refused as stale");
}

/// One retry, however often it is requested.
pub async fn stalled_run_can_be_failed_with_a_retry(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    let Ok(failed) = fixture.interface.fail(by_ann(&run, true), at(500)).await else {
        panic!("it is refused")
    };
    let Some(next) = fixture.successor(&run).await else { panic!("there is no successor") };
    assert_eq!(failed, FailOutcome { outcome: ChangeOutcome::Applied, successor: Some(next.run_id.clone()) });
    assert_eq!((next.attempt, next.failures, next.losses), (2, 0, 0));
    let again = fixture.interface.fail(by_ann(&run, true), at(501)).await.ok();
    assert_eq!(
        again,
        Some(FailOutcome { outcome: ChangeOutcome::Duplicate, successor: Some(next.run_id.clone()) })
    );
    assert_eq!(fixture.claim_id("worker-002", at(502)).await, Some(next.run_id));
}

pub async fn fail_of_a_run_that_is_not_stalled_is_refused(fixture: Fixture) {
    let running = claimed(&fixture, request(), at(0)).await;
    refused(fixture.interface.fail(by_ann(&running, false), at(1)).await, RefusalCode::NotRetryable);
    fixture.append_event(&running, info("begin"), at(2)).await;
    refused(fixture.interface.fail(by_ann(&running, true), at(3)).await, RefusalCode::NotRetryable);
    fixture.succeed(&running, at(4)).await;
    refused(fixture.interface.fail(by_ann(&running, true), at(5)).await, RefusalCode::NotRetryable);
    let queued = fixture.queue(request(), at(6)).await;
    refused(fixture.interface.fail(by_ann(&queued, false), at(7)).await, RefusalCode::NotRetryable);
    refused(
        fixture.interface.fail(by_ann(&super::unknown_run(), false), at(8)).await,
        RefusalCode::UnknownRun,
    );
    assert_eq!(
        (fixture.status(&running).await, fixture.status(&queued).await),
        (RunState::Success, RunState::Queued)
    );
    fixture.cancel(&queued, at(9)).await;

    let back = stalled(&fixture, request(), at(100)).await;
    fixture.append_event(&back, info("still here"), at(500)).await;
    refused(fixture.interface.fail(by_ann(&back, true), at(501)).await, RefusalCode::NotRetryable);
}

/// The seed's stale run: cancelled with the seed's message.
pub async fn silent_claim_without_heartbeats_is_cancelled_without_retry(fixture: Fixture) {
    let run = claimed(&fixture, request(), at(15)).await;
    assert_eq!(fixture.sweep(at(314)).await, []);
    let swept = fixture.sweep(at(315)).await;
    assert_eq!(swept.len(), 1, "{swept:?}");
    assert_eq!((&swept[0].run_id, swept[0].action, &swept[0].successor), (&run, EndCause::Stale, &None));
    let found = fixture.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
    let expected = json!({
        "cancelled_by": "system",
        "reason": "Stale run (claimed for >5 minutes without events)",
        "original_worker": "worker-001",
        "claimed_at": "2026-02-14T10:30:15.000000Z",
    });
    assert_eq!(found.metadata, expected);
    assert_eq!(fixture.successor(&run).await, None);
    assert_eq!(fixture.claim("worker-002", at(400)).await, None);
}

/// A worker process row, a heartbeat or a requested lease length is a promise.
pub async fn silent_worker_with_heartbeats_loses_its_run(fixture: Fixture) {
    let requested = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let beaten = claimed(&fixture, request(), at(0)).await;
    fixture.append_event(&beaten, info("begin"), at(0)).await;
    assert!(fixture.heartbeat(&beaten, at(0)).await.held);
    let process = fixture.register("worker-003", at(0)).await;
    let registered = fixture.queue(request(), at(0)).await;
    let ask = ClaimRuns { worker_id: Some(process), lease_secs: None, ..ClaimRuns::one("worker-003") };
    assert_eq!(fixture.claim_as(ask, at(0)).await.len(), 1);
    fixture.append_event(&registered, info("begin"), at(0)).await;
    let swept = fixture.sweep(at(300)).await;
    assert_eq!(swept.len(), 3, "{swept:?}");
    for one in &swept {
        assert_eq!(one.action, EndCause::Lost);
        assert!(one.successor.is_some());
    }
    for run in [&requested, &beaten, &registered] {
        let found = fixture.run(run).await;
        assert_eq!((found.status, found.stalled_at), (RunState::Failed, None));
    }
}

pub async fn stalled_run_can_be_cancelled_and_times_out(fixture: Fixture) {
    let run = stalled(&fixture, request(), at(0)).await;
    assert_eq!(fixture.cancel(&run, at(400)).await, CancelOutcome::Requested);
    let swept = fixture.sweep(at(500)).await;
    assert_eq!(swept.first().map(|one| (&one.run_id, one.action)), Some((&run, EndCause::CancelGrace)));

    let slow = stalled(&fixture, QueueRun { timeout_secs: Some(600), ..request() }, at(1_000)).await;
    assert_eq!(fixture.sweep(at(1_600)).await, []);
    let swept = fixture.sweep(at(1_601)).await;
    assert_eq!(swept.first().map(|one| (&one.run_id, one.action)), Some((&slow, EndCause::TimedOut)));
}
