//! Retry: within its budget, after its back-off, once per run.

use serde_json::json;
use tidemill_core::retry::backoff;
use tidemill_core::run::{FinalStatus, Gate, QueueRun, Run, RunState};
use tidemill_store::RefusalCode;

use super::at_once;
use crate::interface::{Fixture, at, refused, request};

async fn follower(fixture: &Fixture, run: &tidemill_core::RunId) -> Run {
    let Some(next) = fixture.successor(run).await else { panic!("run {run} has no successor") };
    next
}

/// The successor has the right attempt numbers and waits as long as core computes.
pub async fn failed_run_within_its_budget_is_retried_after_backoff(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 3, backoff_secs: 10, metadata: json!({"asked": 1}), ..request() };
    let mut run = fixture.queue(wanted, at(0)).await;
    let mut now = at(1);
    for failures in 0..2 {
        assert_eq!(fixture.claim_id("worker-001", now).await, Some(run.clone()));
        assert_eq!(fixture.run(&run).await.failures, failures);
        fixture.finish(&run, FinalStatus::Failed, json!({"exit_code": failures}), now).await;
        let next = follower(&fixture, &run).await;
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
        assert_eq!(fixture.claim("worker-001", due - chrono::TimeDelta::microseconds(1)).await, None);
        (run, now) = (next.run_id, due);
    }
    assert_eq!(fixture.claim_id("worker-001", now).await, Some(run.clone()));
    fixture.fail(&run, now).await;
    assert_eq!(fixture.successor(&run).await, None, "three attempts are three");
}

/// One attempt is the default.
pub async fn failed_run_without_budget_is_not_retried(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.fail(&run, at(1)).await;
    assert_eq!(fixture.successor(&run).await, None);
    assert_eq!(fixture.claim("worker-001", at(9_999)).await, None);
}

pub async fn losses_and_failures_have_separate_budgets(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 2, max_losses: 1, backoff_secs: 0, ..request() };
    let first = fixture.running(wanted, "worker-001", at(0)).await.run_id;
    assert_eq!(fixture.sweep(at(301)).await.len(), 1);
    let second = follower(&fixture, &first).await;
    assert_eq!((second.attempt, second.failures, second.losses, second.available_at), (2, 0, 1, None));
    fixture.claim("worker-002", at(302)).await;
    fixture.fail(&second.run_id, at(303)).await;
    let third = follower(&fixture, &second.run_id).await;
    assert_eq!((third.attempt, third.failures, third.losses), (3, 1, 1));
    fixture.claim("worker-003", at(304)).await;
    fixture.fail(&third.run_id, at(305)).await;
    assert_eq!(fixture.successor(&third.run_id).await, None);
}

/// Sixteen concurrent retries by persons get the same run: the next attempt, at once, with fresh budgets.
pub async fn repeated_retry_makes_one_run(fixture: Fixture) {
    let wanted = QueueRun {
        metadata: json!({"asked": 1}),
        git_sha: Some("abc".to_owned()),
        priority: 4,
        timeout_secs: Some(9),
        labels: vec!["arm".to_owned()],
        expires_at: Some(at(500)),
        ..request()
    };
    let run = fixture.queue(wanted, at(0)).await;
    fixture.cancel(&run, at(1)).await;
    let answers = at_once(16, |_| {
        let (fixture, run) = (fixture.clone(), run.clone());
        async move { fixture.retry(&run, at(2)).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
    assert!(answers.iter().all(|answer| answer.run_id == answers[0].run_id));
    let next = fixture.run(&answers[0].run_id).await;
    assert_eq!((next.attempt, next.failures, next.losses, next.retry_of.as_ref()), (2, 0, 0, Some(&run)));
    assert_eq!((next.gate, next.available_at, next.queued_at), (Some(Gate::Open), None, at(2)));
    assert_eq!((next.metadata, next.git_sha.as_deref()), (json!({"asked": 1}), Some("abc")));
    assert_eq!((next.priority, next.timeout_secs, next.labels), (4, Some(9), vec!["arm".to_owned()]));
    assert_eq!(next.expires_at, None, "it was for the first try");
    let requests = fixture.messages(&run).await.iter().filter(|text| *text == "Retry requested").count();
    assert_eq!(requests, 1);
    let events = fixture.events(&next.run_id).await;
    assert_eq!(events[0].payload, json!({"to": "queued", "retry_of": run, "attempt": 2}));
}

pub async fn only_failed_or_cancelled_runs_can_be_retried(fixture: Fixture) {
    let queued = fixture.queue(QueueRun { priority: -1, ..request() }, at(0)).await;
    let running = fixture.queue(request(), at(0)).await;
    let done = fixture.queue(QueueRun { priority: 1, ..request() }, at(0)).await;
    for _ in 0..2 {
        fixture.claim("worker-001", at(1)).await;
    }
    fixture.succeed(&done, at(2)).await;
    assert_eq!(fixture.status(&running).await, RunState::Claimed);
    let before = fixture.tables().await;
    for run in [queued, running, done] {
        refused(fixture.interface.retry(run, "ann".to_owned(), at(3)).await, RefusalCode::NotRetryable);
    }
    fixture.unchanged(&before).await;
}

pub async fn retry_of_a_retried_run_returns_its_successor(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 2, ..request() };
    let run = fixture.running(wanted, "worker-001", at(0)).await.run_id;
    fixture.fail(&run, at(1)).await;
    let next = follower(&fixture, &run).await.run_id;
    let before = fixture.tables().await;
    let retried = fixture.retry(&run, at(2)).await;
    assert_eq!((retried.run_id, retried.created), (next, false));
    fixture.unchanged(&before).await;
}

pub async fn retry_by_a_person_has_fresh_budgets(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 2, max_losses: 0, backoff_secs: 0, ..request() };
    let first = fixture.running(wanted, "worker-001", at(0)).await.run_id;
    fixture.fail(&first, at(1)).await;
    let second = follower(&fixture, &first).await.run_id;
    fixture.claim("worker-001", at(2)).await;
    fixture.fail(&second, at(3)).await;
    let third = fixture.retry(&second, at(4)).await.run_id;
    fixture.claim("worker-001", at(5)).await;
    fixture.fail(&third, at(6)).await;
    let fourth = follower(&fixture, &third).await;
    assert_eq!((fourth.attempt, fourth.failures), (4, 1));
    let tries = fixture.store.tries(third).await.unwrap_or_default();
    assert_eq!(tries.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
}
