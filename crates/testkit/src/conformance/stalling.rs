//! Workers without a promise of life. A process row, a heartbeat or a lease length asked for is such a promise.

use serde_json::json;
use tidemill_core::run::{Applied, EndCause, FailRun, Failed, FinalStatus, QueueRun, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{Cancelled, ClaimRuns, RefusalCode, SweptAction};

use crate::door::{Stage, at, info, refused, request};

/// Claims a run without any promise of signs of life.
async fn claimed(stage: &Stage, request: QueueRun, now: Timestamp) -> RunId {
    let run = stage.queue(request, now).await;
    let ask = ClaimRuns { lease_secs: None, ..ClaimRuns::one("worker-001") };
    let claims = stage.claim_as(ask, now).await;
    assert_eq!(claims.first().map(|claim| &claim.run_id), Some(&run), "another run was claimable");
    run
}

/// Claims a run at `now`, appends one event a second later, and sweeps when 5 minutes have passed without another.
pub(super) async fn stalled(stage: &Stage, request: QueueRun, now: Timestamp) -> RunId {
    let run = claimed(stage, request, now).await;
    let second = chrono::TimeDelta::seconds(1);
    stage.say(&run, info("begin"), now + second).await;
    assert_eq!(stage.sweep(now + second * 300).await, [], "five minutes are not over");
    assert_eq!(stage.sweep(now + second * 301).await, []);
    let found = stage.run(&run).await;
    assert_eq!((found.status, found.stalled_at), (RunState::Running, Some(now + second * 301)));
    run
}

fn by_ann(run: &RunId, retry: bool) -> FailRun {
    FailRun { run_id: run.clone(), by: "ann".to_owned(), reason: Some("the host is gone".to_owned()), retry }
}

/// A running run stays with its worker, however long that is silent, and nothing is started beside it.
pub async fn a_silent_worker_that_promised_nothing_keeps_its_run(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    for hour in 1..=3 {
        assert_eq!(stage.sweep(at(hour * 3600)).await, []);
    }
    let found = stage.run(&run).await;
    assert_eq!((found.status, found.stalled_at), (RunState::Running, Some(at(301))), "it is marked once");
    assert_eq!((found.lease_until, found.claimed_by.as_deref()), (None, Some("worker-001")));
    assert_eq!(stage.successor(&run).await, None);
    assert_eq!(stage.claim("worker-002", at(3 * 3600)).await, None, "nothing may run beside it");
    let events = stage.events(&run).await;
    let marks: Vec<_> = events.iter().filter(|event| event.message.starts_with("Run stalled")).collect();
    assert_eq!(marks.len(), 1);
    let silent_since = "2026-02-14T10:30:01.000000Z";
    assert_eq!(marks[0].payload, json!({"worker_id": "worker-001", "silent_since": silent_since}));
}

/// The report of a worker that was silent for long counts.
pub async fn a_report_on_a_stalled_run_counts(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    stage.succeed(&run, at(9_000)).await;
    let found = stage.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Success, Some(EndCause::Reported)));
}

/// An event clears the mark. It is no promise: further silence stalls the run again.
pub async fn an_event_brings_a_stalled_run_back_without_a_promise(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    stage.say(&run, info("still here"), at(400)).await;
    let found = stage.run(&run).await;
    assert_eq!((found.status, found.stalled_at, found.lease_until), (RunState::Running, None, Some(at(700))));
    assert_eq!(stage.sweep(at(699)).await, []);
    assert_eq!(stage.run(&run).await.stalled_at, None);
    assert_eq!(stage.sweep(at(700)).await, []);
    assert_eq!(stage.run(&run).await.stalled_at, Some(at(700)));
}

/// A heartbeat clears the mark, and promises signs of life: further silence means that the worker is lost.
pub async fn a_heartbeat_brings_a_stalled_run_back_with_a_promise(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    let held = stage.heartbeat(&run, at(400)).await;
    assert_eq!((held.held, held.lease_until), (true, Some(at(700))));
    assert_eq!(stage.run(&run).await.stalled_at, None);
    let swept = stage.sweep(at(700)).await;
    assert_eq!(swept.first().map(|one| (&one.run_id, one.action)), Some((&run, SweptAction::Lost)));
    assert_eq!(stage.claim_id("worker-002", at(701)).await, swept[0].successor);
}

/// A person fails a stalled run. Nothing follows, and asking again changes nothing.
pub async fn a_stalled_run_is_failed_by_a_person(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    let failed = stage.door.fail(by_ann(&run, false), at(500)).await.ok();
    assert_eq!(failed, Some(Failed { outcome: Applied::Applied, successor: None }));
    let found = stage.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Failed, Some(EndCause::Lost)));
    assert_eq!(found.finished_at, Some(at(500)));
    let expected = json!({"error": "worker lost", "original_worker": "worker-001", "failed_by": "ann",
                          "reason": "the host is gone"});
    assert_eq!(found.metadata, expected);
    let again = stage.door.fail(by_ann(&run, false), at(501)).await.ok();
    assert_eq!(again, Some(Failed { outcome: Applied::Duplicate, successor: None }));
    assert_eq!(stage.claim("worker-002", at(502)).await, None);
    let late = stage.finish(&run, FinalStatus::Success, json!({}), at(503)).await;
    assert_eq!(late, Applied::Stale, "the worker that comes back is told that the run is not its own");
}

/// A person fails a stalled run and has its request carried on: one successor, however often it is asked for.
pub async fn a_stalled_run_is_failed_and_followed_by_a_person(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    let Ok(failed) = stage.door.fail(by_ann(&run, true), at(500)).await else { panic!("it is refused") };
    let Some(next) = stage.successor(&run).await else { panic!("there is no successor") };
    assert_eq!(failed, Failed { outcome: Applied::Applied, successor: Some(next.run_id.clone()) });
    assert_eq!((next.attempt, next.failures, next.losses), (2, 0, 0));
    let again = stage.door.fail(by_ann(&run, true), at(501)).await.ok();
    assert_eq!(again, Some(Failed { outcome: Applied::Duplicate, successor: Some(next.run_id.clone()) }));
    assert_eq!(stage.claim_id("worker-002", at(502)).await, Some(next.run_id));
}

/// A run that is not stalled belongs to its worker, to the queue or to the past.
pub async fn only_a_stalled_run_is_failed_by_a_person(stage: Stage) {
    let running = claimed(&stage, request(), at(0)).await;
    refused(stage.door.fail(by_ann(&running, false), at(1)).await, RefusalCode::NotRetryable);
    stage.say(&running, info("begin"), at(2)).await;
    refused(stage.door.fail(by_ann(&running, true), at(3)).await, RefusalCode::NotRetryable);
    stage.succeed(&running, at(4)).await;
    refused(stage.door.fail(by_ann(&running, true), at(5)).await, RefusalCode::NotRetryable);
    let queued = stage.queue(request(), at(6)).await;
    refused(stage.door.fail(by_ann(&queued, false), at(7)).await, RefusalCode::NotRetryable);
    refused(stage.door.fail(by_ann(&super::unknown_run(), false), at(8)).await, RefusalCode::UnknownRun);
    assert_eq!(
        (stage.status(&running).await, stage.status(&queued).await),
        (RunState::Success, RunState::Queued)
    );
    stage.cancel(&queued, at(9)).await;

    let back = stalled(&stage, request(), at(100)).await;
    stage.say(&back, info("still here"), at(500)).await;
    refused(stage.door.fail(by_ann(&back, true), at(501)).await, RefusalCode::NotRetryable);
}

/// The seed's stale run: cancelled with the seed's words, and without a successor.
pub async fn a_claim_without_a_promise_is_cancelled_and_not_followed(stage: Stage) {
    let run = claimed(&stage, request(), at(15)).await;
    assert_eq!(stage.sweep(at(314)).await, []);
    let swept = stage.sweep(at(315)).await;
    assert_eq!(swept.len(), 1, "{swept:?}");
    assert_eq!((&swept[0].run_id, swept[0].action, &swept[0].successor), (&run, SweptAction::Stale, &None));
    let found = stage.run(&run).await;
    assert_eq!((found.status, found.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
    let expected = json!({
        "cancelled_by": "system",
        "reason": "Stale run (claimed for >5 minutes without events)",
        "original_worker": "worker-001",
        "claimed_at": "2026-02-14T10:30:15.000000Z",
    });
    assert_eq!(found.metadata, expected);
    assert_eq!(stage.successor(&run).await, None);
    assert_eq!(stage.claim("worker-002", at(400)).await, None);
}

/// A process row, a heartbeat or a lease length that was asked for is a promise, and silence breaks it.
pub async fn a_silent_worker_that_promised_signs_of_life_loses_its_run(stage: Stage) {
    let asked = stage.running(request(), "worker-001", at(0)).await.run_id;
    let beaten = claimed(&stage, request(), at(0)).await;
    stage.say(&beaten, info("begin"), at(0)).await;
    assert!(stage.heartbeat(&beaten, at(0)).await.held);
    let process = stage.register("worker-003", at(0)).await;
    let registered = stage.queue(request(), at(0)).await;
    let ask = ClaimRuns { worker_id: Some(process), lease_secs: None, ..ClaimRuns::one("worker-003") };
    assert_eq!(stage.claim_as(ask, at(0)).await.len(), 1);
    stage.say(&registered, info("begin"), at(0)).await;
    let swept = stage.sweep(at(300)).await;
    assert_eq!(swept.len(), 3, "{swept:?}");
    for one in &swept {
        assert_eq!(one.action, SweptAction::Lost);
        assert!(one.successor.is_some());
    }
    for run in [&asked, &beaten, &registered] {
        let found = stage.run(run).await;
        assert_eq!((found.status, found.stalled_at), (RunState::Failed, None));
    }
}

/// A cancel and a timeout end a stalled run as they end any other.
pub async fn a_stalled_run_is_still_cancelled_and_timed_out(stage: Stage) {
    let run = stalled(&stage, request(), at(0)).await;
    assert_eq!(stage.cancel(&run, at(400)).await, Cancelled::Requested);
    let swept = stage.sweep(at(500)).await;
    assert_eq!(swept.first().map(|one| (&one.run_id, one.action)), Some((&run, SweptAction::CancelGrace)));

    let slow = stalled(&stage, QueueRun { timeout_secs: Some(600), ..request() }, at(1_000)).await;
    assert_eq!(stage.sweep(at(1_600)).await, []);
    let swept = stage.sweep(at(1_601)).await;
    assert_eq!(swept.first().map(|one| (&one.run_id, one.action)), Some((&slow, SweptAction::TimedOut)));
}
