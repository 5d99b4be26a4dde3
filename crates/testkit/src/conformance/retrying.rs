//! Another try: within its budget, after its wait, once however often it is asked for.

use serde_json::json;
use tidemill_core::retry::backoff;
use tidemill_core::run::{FinalStatus, Gate, QueueRun, Run, RunState};
use tidemill_store::RefusalCode;

use super::at_once;
use crate::door::{Stage, at, refused, request};

async fn follower(stage: &Stage, run: &tidemill_core::RunId) -> Run {
    let Some(next) = stage.successor(run).await else { panic!("run {run} has no successor") };
    next
}

/// A reported failure within its budget: the successor has the right numbers, and waits as long as core says.
pub async fn a_failure_within_its_budget_is_followed_after_the_back_off(stage: Stage) {
    let wanted = QueueRun { max_attempts: 3, backoff_secs: 10, metadata: json!({"asked": 1}), ..request() };
    let mut run = stage.queue(wanted, at(0)).await;
    let mut now = at(1);
    for failures in 0..2 {
        assert_eq!(stage.claim_id("worker-001", now).await, Some(run.clone()));
        assert_eq!(stage.run(&run).await.failures, failures);
        stage.finish(&run, FinalStatus::Failed, json!({"exit_code": failures}), now).await;
        let next = follower(&stage, &run).await;
        let due = now + backoff(10, failures, &run);
        assert_eq!(
            (next.available_at, next.gate, next.status),
            (Some(due), Some(Gate::Time), RunState::Queued)
        );
        assert_eq!((next.attempt, next.failures, next.losses), (failures + 2, failures + 1, 0));
        assert_eq!((next.queued_at, next.retry_of.as_ref()), (now, Some(&run)));
        assert_eq!(
            next.metadata,
            json!({"asked": 1}),
            "it starts with what was asked, not with what was reported"
        );
        assert_eq!(stage.claim("worker-001", due - chrono::TimeDelta::microseconds(1)).await, None);
        (run, now) = (next.run_id, due);
    }
    assert_eq!(stage.claim_id("worker-001", now).await, Some(run.clone()));
    stage.fail(&run, now).await;
    assert_eq!(stage.successor(&run).await, None, "three attempts are three");
}

/// A single attempt, the default, is not tried again by itself.
pub async fn a_failure_without_a_budget_is_the_end(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.fail(&run, at(1)).await;
    assert_eq!(stage.successor(&run).await, None);
    assert_eq!(stage.claim("worker-001", at(9_999)).await, None);
}

/// Losses do not use up attempts, and failures do not use up losses.
pub async fn losses_and_failures_have_budgets_of_their_own(stage: Stage) {
    let wanted = QueueRun { max_attempts: 2, max_losses: 1, backoff_secs: 0, ..request() };
    let first = stage.running(wanted, "worker-001", at(0)).await.run_id;
    assert_eq!(stage.sweep(at(301)).await.len(), 1);
    let second = follower(&stage, &first).await;
    assert_eq!((second.attempt, second.failures, second.losses, second.available_at), (2, 0, 1, None));
    stage.claim("worker-002", at(302)).await;
    stage.fail(&second.run_id, at(303)).await;
    let third = follower(&stage, &second.run_id).await;
    assert_eq!((third.attempt, third.failures, third.losses), (3, 1, 1));
    stage.claim("worker-003", at(304)).await;
    stage.fail(&third.run_id, at(305)).await;
    assert_eq!(stage.successor(&third.run_id).await, None);
}

/// A person's retry: the next attempt, with fresh budgets, at once; sixteen persons at one instant get the same.
pub async fn a_retry_is_made_once_however_often_it_is_asked_for(stage: Stage) {
    let wanted = QueueRun {
        metadata: json!({"asked": 1}),
        git_sha: Some("abc".to_owned()),
        priority: 4,
        timeout_secs: Some(9),
        labels: vec!["arm".to_owned()],
        expires_at: Some(at(500)),
        ..request()
    };
    let run = stage.queue(wanted, at(0)).await;
    stage.finish(&run, FinalStatus::Cancelled, json!({"reason": "x"}), at(1)).await;
    let answers = at_once(16, |_| {
        let (stage, run) = (stage.clone(), run.clone());
        async move { stage.retry(&run, at(2)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    assert!(answers.iter().all(|answer| answer.run_id == answers[0].run_id));
    let next = stage.run(&answers[0].run_id).await;
    assert_eq!((next.attempt, next.failures, next.losses, next.retry_of.as_ref()), (2, 0, 0, Some(&run)));
    assert_eq!((next.gate, next.available_at, next.queued_at), (Some(Gate::Open), None, at(2)));
    assert_eq!((next.metadata, next.git_sha.as_deref()), (json!({"asked": 1}), Some("abc")));
    assert_eq!((next.priority, next.timeout_secs, next.labels), (4, Some(9), vec!["arm".to_owned()]));
    assert_eq!(next.expires_at, None, "it was for the first try");
    let requests = stage.messages(&run).await.iter().filter(|text| *text == "Retry requested").count();
    assert_eq!(requests, 1);
    let events = stage.events(&next.run_id).await;
    assert_eq!(events[0].payload, json!({"to": "queued", "retry_of": run, "attempt": 2}));
}

/// What succeeded is done, and what is not over cannot be tried again.
pub async fn only_what_failed_or_was_cancelled_can_be_retried(stage: Stage) {
    let queued = stage.queue(QueueRun { priority: -1, ..request() }, at(0)).await;
    let running = stage.queue(request(), at(0)).await;
    let done = stage.queue(QueueRun { priority: 1, ..request() }, at(0)).await;
    for _ in 0..2 {
        stage.claim("worker-001", at(1)).await;
    }
    stage.succeed(&done, at(2)).await;
    assert_eq!(stage.status(&running).await, RunState::Claimed);
    let before = stage.tables().await;
    for run in [queued, running, done] {
        refused(stage.door.retry(run, "ann".to_owned(), at(3)).await, RefusalCode::NotRetryable);
    }
    stage.unchanged(&before).await;
}

/// A run that was followed by itself already has its successor: a person gets that one.
pub async fn a_retry_of_what_was_followed_gives_the_try_that_exists(stage: Stage) {
    let wanted = QueueRun { max_attempts: 2, ..request() };
    let run = stage.running(wanted, "worker-001", at(0)).await.run_id;
    stage.fail(&run, at(1)).await;
    let next = follower(&stage, &run).await.run_id;
    let before = stage.tables().await;
    let retried = stage.retry(&run, at(2)).await;
    assert_eq!((retried.run_id, retried.created), (next, false));
    stage.unchanged(&before).await;
}

/// A person's retry begins with fresh budgets, so that it is tried as often as the first.
pub async fn a_retry_has_fresh_budgets(stage: Stage) {
    let wanted = QueueRun { max_attempts: 2, max_losses: 0, backoff_secs: 0, ..request() };
    let first = stage.running(wanted, "worker-001", at(0)).await.run_id;
    stage.fail(&first, at(1)).await;
    let second = follower(&stage, &first).await.run_id;
    stage.claim("worker-001", at(2)).await;
    stage.fail(&second, at(3)).await;
    let third = stage.retry(&second, at(4)).await.run_id;
    stage.claim("worker-001", at(5)).await;
    stage.fail(&third, at(6)).await;
    let fourth = follower(&stage, &third).await;
    assert_eq!((fourth.attempt, fourth.failures), (4, 1));
    let tries = stage.store.tries(third).await.unwrap_or_default();
    assert_eq!(tries.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
}
