//! Cancels: at once where nobody works, by asking where somebody does, and never lost.

use serde_json::json;
use tidemill_core::event::EventKind;
use tidemill_core::run::{Applied, EndCause, FinalStatus, QueueRun, RunState};
use tidemill_store::{Cancelled, Holder, SweptAction};

use super::at_once;
use crate::door::{Stage, at, info, request};

/// What waits is cancelled at once, and says by whom and why.
pub async fn a_run_that_waits_is_cancelled_at_once(stage: Stage) {
    let run = stage.queue(QueueRun { metadata: json!({"asked": 1}), ..request() }, at(0)).await;
    assert_eq!(stage.cancel(&run, at(5)).await, Cancelled::Cancelled);
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
    assert_eq!((ended.finished_at, ended.cancel_requested_at), (Some(at(5)), Some(at(5))));
    assert_eq!((ended.cancel_requested_by.as_deref(), ended.gate), (Some("ann"), None));
    assert_eq!(ended.metadata, json!({"asked": 1, "cancelled_by": "ann", "reason": "no longer needed"}));
    assert_eq!(stage.claim("worker-001", at(6)).await, None);
    assert_eq!(stage.cancel(&run, at(7)).await, Cancelled::Ended);
    assert_eq!(stage.messages(&run).await, ["Run queued", "Run cancelled"]);
}

/// What is held is asked to stop; the worker learns of it with its next heartbeat or beat, and confirms.
pub async fn the_worker_of_a_held_run_is_asked_to_stop(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    for start in [false, true] {
        let run = stage.queue(request(), at(0)).await;
        let Some(claim) = stage.claim_registered("worker-001", worker, at(1)).await else {
            panic!("no claim")
        };
        if start {
            stage.start(&claim, "worker-001", at(2)).await;
        }
        assert!(!stage.heartbeat(&run, at(3)).await.cancel_requested);
        assert_eq!(stage.cancel(&run, at(4)).await, Cancelled::Requested);
        let held = stage.run(&run).await;
        assert!(held.status.is_held());
        assert_eq!(
            (held.cancel_requested_at, held.cancel_requested_by.as_deref()),
            (Some(at(4)), Some("ann"))
        );
        let beat = stage.heartbeat(&run, at(5)).await;
        assert!(beat.held && beat.cancel_requested);
        let beats = stage.beat(worker, std::slice::from_ref(&run), at(6)).await;
        assert!(beats[0].held && beats[0].cancel_requested);
        assert_eq!(
            stage.finish_as(&claim, "worker-001", FinalStatus::Cancelled, at(7)).await,
            Applied::Applied
        );
        let ended = stage.run(&run).await;
        assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
        let requests: Vec<_> = stage
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

/// Asked again, a cancel is the same cancel: the grace period does not begin anew.
pub async fn a_cancel_asked_again_changes_nothing(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    assert_eq!(stage.cancel(&run, at(1)).await, Cancelled::Requested);
    let before = stage.tables().await;
    assert_eq!(stage.cancel(&run, at(20)).await, Cancelled::Requested);
    stage.unchanged(&before).await;
    assert_eq!(stage.sweep(at(31)).await.len(), 1);
}

/// Sixteen persons at one instant: one cancel on record.
pub async fn sixteen_cancels_at_one_instant_are_one(stage: Stage) {
    let held = stage.running(request(), "worker-001", at(0)).await.run_id;
    let queued = stage.queue(request(), at(0)).await;
    for (run, first) in [(held, Cancelled::Requested), (queued, Cancelled::Cancelled)] {
        let answers = at_once(16, |_| {
            let (stage, run) = (stage.clone(), run.clone());
            async move { stage.cancel(&run, at(1)).await }
        })
        .await;
        assert!(answers.contains(&first));
        let cancels = stage.messages(&run).await;
        let cancels =
            cancels.iter().filter(|text| text.starts_with("Cancel") || *text == "Run cancelled").count();
        assert_eq!(cancels, 1);
    }
}

/// The worker does not confirm: after the grace period the sweeper ends the run, and nothing follows it.
pub async fn after_the_grace_period_the_sweeper_ends_the_run(stage: Stage) {
    for start in [false, true] {
        let claim = stage.claimed(QueueRun { max_attempts: 3, ..request() }, "worker-001", at(0)).await;
        if start {
            stage.start(&claim, "worker-001", at(0)).await;
        }
        stage.cancel(&claim.run_id, at(10)).await;
        // A heartbeat keeps the lease, not the run.
        stage.heartbeat(&claim.run_id, at(39)).await;
        assert!(stage.sweep(at(39)).await.is_empty());
        let swept = stage.sweep(at(40)).await;
        assert_eq!(swept.len(), 1);
        assert_eq!((swept[0].action, &swept[0].successor), (SweptAction::CancelGrace, &None));
        let ended = stage.run(&claim.run_id).await;
        assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::CancelGrace)));
        assert_eq!(ended.metadata, json!({"cancelled_by": "ann", "reason": "no longer needed"}));
        assert_eq!(stage.finish_as(&claim, "worker-001", FinalStatus::Success, at(41)).await, Applied::Stale);
    }
}

/// The seed's manual cancellation: `finish_run(…, 'cancelled')` by somebody who holds nothing, from any live state.
pub async fn anybody_may_cancel_by_a_finish_from_any_live_state(stage: Stage) {
    let notes = json!({"cancelled_by": "user-456", "reason": "Manual stop via console"});
    let queued = stage.queue(QueueRun { priority: -1, ..request() }, at(0)).await;
    let claimed = stage.queue(request(), at(0)).await;
    let running = stage.queue(QueueRun { priority: 1, ..request() }, at(0)).await;
    stage.claim("worker-001", at(1)).await;
    stage.claim("worker-001", at(1)).await;
    stage.say(&running, info("begin"), at(2)).await;
    let states = [RunState::Queued, RunState::Claimed, RunState::Running];
    for (run, state) in [queued, claimed, running].into_iter().zip(states) {
        assert_eq!(stage.status(&run).await, state);
        let answer = stage.finish(&run, FinalStatus::Cancelled, notes.clone(), at(3)).await;
        assert_eq!(answer, Applied::Applied, "{state}");
        let ended = stage.run(&run).await;
        assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
        assert_eq!(ended.metadata, notes);
        assert_eq!(stage.finish(&run, FinalStatus::Success, json!({}), at(4)).await, Applied::Stale);
        assert_eq!(stage.successor(&run).await, None);
    }
}

/// Restate and others lose a cancel that comes while a try backs off.
pub async fn f15_a_cancel_is_not_lost_while_a_try_backs_off(stage: Stage) {
    let wanted = QueueRun { max_attempts: 3, backoff_secs: 100, ..request() };
    let run = stage.running(wanted, "worker-001", at(0)).await.run_id;
    stage.fail(&run, at(1)).await;
    let Some(next) = stage.successor(&run).await else { panic!("there is no successor") };
    assert_eq!(stage.cancel(&next.run_id, at(2)).await, Cancelled::Cancelled);
    assert!(stage.sweep(at(500)).await.is_empty());
    assert_eq!(stage.claim("worker-001", at(500)).await, None);
    assert_eq!(stage.successor(&next.run_id).await, None);
}

/// Asked to stop, and then the worker is gone: the run is cancelled, and nobody tries it again.
pub async fn f15_a_cancel_is_not_lost_when_the_worker_is(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    let claimed = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", worker, at(1)).await;
    let running = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", worker, at(1)).await;
    stage.say(&running, info("begin"), at(2)).await;
    for run in [&claimed, &running] {
        assert_eq!(stage.cancel(run, at(3)).await, Cancelled::Requested);
    }
    let swept = stage.sweep(at(23)).await;
    assert_eq!(swept.len(), 2, "the worker is dead before the grace period is over");
    assert!(swept.iter().all(|one| one.action == SweptAction::CancelGrace && one.successor.is_none()));
    for run in [claimed, running] {
        assert_eq!(stage.status(&run).await, RunState::Cancelled);
        assert_eq!(stage.successor(&run).await, None);
    }
    assert_eq!(stage.claim("worker-002", at(30)).await, None);
}

/// Asked to stop, the worker reports a failure or a success instead: that is how it ended, and nothing follows.
pub async fn a_report_after_a_cancel_request_counts_and_is_not_followed(stage: Stage) {
    for (status, state) in
        [(FinalStatus::Failed, RunState::Failed), (FinalStatus::Success, RunState::Success)]
    {
        let wanted = QueueRun { max_attempts: 5, ..request() };
        let claim = stage.running(wanted, "worker-001", at(0)).await;
        stage.cancel(&claim.run_id, at(1)).await;
        assert_eq!(stage.finish_as(&claim, "worker-001", status, at(2)).await, Applied::Applied);
        assert_eq!(stage.status(&claim.run_id).await, state);
        assert_eq!(stage.successor(&claim.run_id).await, None);
    }
}

/// A timeout or the end of the lease after a cancel request is a cancel, not another try.
pub async fn what_ends_a_run_after_a_cancel_request_is_not_followed(stage: Stage) {
    let wanted = QueueRun { max_attempts: 5, timeout_secs: Some(20), ..request() };
    let run = stage.running(wanted, "worker-001", at(0)).await.run_id;
    stage.cancel(&run, at(1)).await;
    let swept = stage.sweep(at(400)).await;
    assert_eq!(swept.len(), 1);
    assert_eq!(swept[0].successor, None);
    assert_eq!(stage.status(&run).await, RunState::Cancelled);
}

/// A worker that was asked to stop may still say what it does.
pub async fn events_are_taken_after_a_cancel_request(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.cancel(&run, at(1)).await;
    let holder = Holder { worker: Some("worker-001".to_owned()), epoch: Some(1) };
    let ids = stage.append(&run, vec![info("stopping")], holder, at(2)).await;
    assert!(ids[0].is_some());
}
