//! Cancel: immediate for queued runs, by request for held runs, and never lost.

use serde_json::json;
use tidemill_core::event::EventKind;
use tidemill_core::run::{ChangeOutcome, EndCause, FinalStatus, QueueRun, RunState};
use tidemill_store::{CancelOutcome, Holder};

use super::at_once;
use crate::interface::{Fixture, at, info, request};

/// The run records who cancelled it and why.
pub async fn queued_run_is_cancelled_at_once(fixture: Fixture) {
    let run = fixture.queue(QueueRun { metadata: json!({"asked": 1}), ..request() }, at(0)).await;
    assert_eq!(fixture.cancel(&run, at(5)).await, CancelOutcome::Cancelled);
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
    assert_eq!((ended.finished_at, ended.cancel_requested_at), (Some(at(5)), Some(at(5))));
    assert_eq!((ended.cancel_requested_by.as_deref(), ended.gate), (Some("ann"), None));
    assert_eq!(ended.metadata, json!({"asked": 1, "cancelled_by": "ann", "reason": "no longer needed"}));
    assert_eq!(fixture.claim("worker-001", at(6)).await, None);
    assert_eq!(fixture.cancel(&run, at(7)).await, CancelOutcome::Ended);
    assert_eq!(fixture.messages(&run).await, ["Run queued", "Run cancelled"]);
}

/// The worker learns of the request with its next heartbeat, and confirms it.
pub async fn cancel_of_held_run_requests_a_stop(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    for start in [false, true] {
        let run = fixture.queue(request(), at(0)).await;
        let Some(claim) = fixture.claim_registered("worker-001", worker, at(1)).await else {
            panic!("no claim")
        };
        if start {
            fixture.start(&claim, "worker-001", at(2)).await;
        }
        assert!(!fixture.heartbeat(&run, at(3)).await.cancel_requested);
        assert_eq!(fixture.cancel(&run, at(4)).await, CancelOutcome::Requested);
        let held = fixture.run(&run).await;
        assert!(held.status.is_held());
        assert_eq!(
            (held.cancel_requested_at, held.cancel_requested_by.as_deref()),
            (Some(at(4)), Some("ann"))
        );
        let beat = fixture.heartbeat(&run, at(5)).await;
        assert!(beat.held && beat.cancel_requested);
        let beats = fixture.worker_heartbeat(worker, std::slice::from_ref(&run), at(6)).await;
        assert!(beats[0].held && beats[0].cancel_requested);
        assert_eq!(
            fixture.finish_as(&claim, "worker-001", FinalStatus::Cancelled, at(7)).await,
            ChangeOutcome::Applied
        );
        let ended = fixture.run(&run).await;
        assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
        let requests: Vec<_> = fixture
            .events(&run)
            .await
            .into_iter()
            .filter(|event| event.kind == EventKind::Request)
            .map(|event| (event.message, event.payload))
            .collect();
        let payload = json!({"by": "ann", "reason": "no longer needed"});
        assert_eq!(requests, [("Cancel requested".to_owned(), payload)]);
    }
}

/// A repeated cancel does not restart the grace period.
pub async fn repeated_cancel_changes_nothing(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    assert_eq!(fixture.cancel(&run, at(1)).await, CancelOutcome::Requested);
    let before = fixture.tables().await;
    assert_eq!(fixture.cancel(&run, at(20)).await, CancelOutcome::Requested);
    fixture.unchanged(&before).await;
    assert_eq!(fixture.sweep(at(31)).await.len(), 1);
}

pub async fn simultaneous_cancels_count_once(fixture: Fixture) {
    let held = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let queued = fixture.queue(request(), at(0)).await;
    for (run, first) in [(held, CancelOutcome::Requested), (queued, CancelOutcome::Cancelled)] {
        let answers = at_once(16, |_| {
            let (fixture, run) = (fixture.clone(), run.clone());
            async move { fixture.cancel(&run, at(1)).await }
        })
        .await;
        assert!(answers.contains(&first));
        let cancels = fixture.messages(&run).await;
        let cancels =
            cancels.iter().filter(|text| text.starts_with("Cancel") || *text == "Run cancelled").count();
        assert_eq!(cancels, 1);
    }
}

/// If the worker does not confirm, the sweeper ends the run after the grace period, without a retry.
pub async fn sweeper_ends_cancelled_run_after_the_grace_period(fixture: Fixture) {
    for start in [false, true] {
        let claim = fixture.claimed(QueueRun { max_attempts: 3, ..request() }, "worker-001", at(0)).await;
        if start {
            fixture.start(&claim, "worker-001", at(0)).await;
        }
        fixture.cancel(&claim.run_id, at(10)).await;
        // A heartbeat renews the lease but does not stop the cancel.
        fixture.heartbeat(&claim.run_id, at(39)).await;
        assert!(fixture.sweep(at(39)).await.is_empty());
        let swept = fixture.sweep(at(40)).await;
        assert_eq!(swept.len(), 1);
        assert_eq!((swept[0].action, &swept[0].successor), (EndCause::CancelGrace, &None));
        let ended = fixture.run(&claim.run_id).await;
        assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::CancelGrace)));
        assert_eq!(ended.metadata, json!({"cancelled_by": "ann", "reason": "no longer needed"}));
        assert_eq!(
            fixture.finish_as(&claim, "worker-001", FinalStatus::Success, at(41)).await,
            ChangeOutcome::Stale
        );
    }
}

/// Restate and others lose a cancel that arrives during the back-off.
pub async fn f15_cancel_during_backoff_is_not_lost(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 3, backoff_secs: 100, ..request() };
    let run = fixture.running(wanted, "worker-001", at(0)).await.run_id;
    fixture.fail(&run, at(1)).await;
    let Some(next) = fixture.successor(&run).await else { panic!("there is no successor") };
    assert_eq!(fixture.cancel(&next.run_id, at(2)).await, CancelOutcome::Cancelled);
    assert!(fixture.sweep(at(500)).await.is_empty());
    assert_eq!(fixture.claim("worker-001", at(500)).await, None);
    assert_eq!(fixture.successor(&next.run_id).await, None);
}

/// The worker is lost after the cancel request: the run is cancelled and not retried.
pub async fn f15_cancel_survives_the_loss_of_the_worker(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    let claimed = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", worker, at(1)).await;
    let running = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", worker, at(1)).await;
    fixture.append_event(&running, info("begin"), at(2)).await;
    for run in [&claimed, &running] {
        assert_eq!(fixture.cancel(run, at(3)).await, CancelOutcome::Requested);
    }
    let swept = fixture.sweep(at(23)).await;
    assert_eq!(swept.len(), 2, "the worker is dead before the grace period ends");
    assert!(swept.iter().all(|one| one.action == EndCause::CancelGrace && one.successor.is_none()));
    for run in [claimed, running] {
        assert_eq!(fixture.status(&run).await, RunState::Cancelled);
        assert_eq!(fixture.successor(&run).await, None);
    }
    assert_eq!(fixture.claim("worker-002", at(30)).await, None);
}

/// If the worker reports failure or success after a cancel request, the report counts, but the run is not retried.
pub async fn report_after_cancel_request_counts_without_a_retry(fixture: Fixture) {
    for (status, state) in
        [(FinalStatus::Failed, RunState::Failed), (FinalStatus::Success, RunState::Success)]
    {
        let wanted = QueueRun { max_attempts: 5, ..request() };
        let claim = fixture.running(wanted, "worker-001", at(0)).await;
        fixture.cancel(&claim.run_id, at(1)).await;
        assert_eq!(fixture.finish_as(&claim, "worker-001", status, at(2)).await, ChangeOutcome::Applied);
        assert_eq!(fixture.status(&claim.run_id).await, state);
        assert_eq!(fixture.successor(&claim.run_id).await, None);
    }
}

/// A timeout or an expired lease after a cancel request cancels the run instead of retrying it.
pub async fn run_ended_after_cancel_request_is_not_retried(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 5, timeout_secs: Some(20), ..request() };
    let run = fixture.running(wanted, "worker-001", at(0)).await.run_id;
    fixture.cancel(&run, at(1)).await;
    let swept = fixture.sweep(at(400)).await;
    assert_eq!(swept.len(), 1);
    assert_eq!(swept[0].successor, None);
    assert_eq!(fixture.status(&run).await, RunState::Cancelled);
}

pub async fn events_are_accepted_after_a_cancel_request(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.cancel(&run, at(1)).await;
    let holder = Holder { worker: Some("worker-001".to_owned()), epoch: Some(1) };
    let ids = fixture.append(&run, vec![info("stopping")], holder, at(2)).await;
    assert!(ids[0].is_some());
}
