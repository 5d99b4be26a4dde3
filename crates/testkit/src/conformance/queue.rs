//! Queue: one run per idempotency key, stored unchanged, not claimable before its start time.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::run::{EndCause, FinalStatus, Gate, Lane, QueueRun, RunState};
use tidemill_store::RefusalCode;

use super::at_once;
use crate::interface::{Fixture, at, new_run_id, refused, request};

fn keyed(key: &str) -> QueueRun {
    QueueRun { idempotency_key: Some(key.to_owned()), ..request() }
}

pub async fn queued_run_stores_its_request_unchanged(fixture: Fixture) {
    let wanted = QueueRun {
        env: "production".to_owned(),
        git_sha: Some("abc123def456".to_owned()),
        git_ref: Some("main".to_owned()),
        metadata: json!({"author": "jöhn@example.com", "n": [1, {"deep": true}], "empty": {}}),
        idempotency_key: Some("key with spaces, and more".to_owned()),
        priority: -7,
        available_at: Some(at(5)),
        expires_at: Some(at(50)),
        max_attempts: 4,
        max_losses: 2,
        backoff_secs: 11,
        timeout_secs: Some(33),
        concurrency_key: Some("deploy".to_owned()),
        labels: vec!["b".to_owned(), "a".to_owned(), "b".to_owned()],
        ..request()
    };
    let id = fixture.queue(wanted.clone(), at(0)).await;
    let run = fixture.run(&id).await;
    assert_eq!(
        (run.project_id.as_str(), run.env_id.as_str(), run.lane),
        ("shop", "shop/production", Lane::Ops)
    );
    assert_eq!((run.status, run.gate), (RunState::Queued, Some(Gate::Time)));
    assert_eq!(
        (&run.git_sha, &run.git_ref, &run.metadata),
        (&wanted.git_sha, &wanted.git_ref, &wanted.metadata)
    );
    assert_eq!((&run.idempotency_key, run.priority), (&wanted.idempotency_key, -7));
    assert_eq!((run.available_at, run.expires_at), (Some(at(5)), Some(at(50))));
    assert_eq!((run.max_attempts, run.max_losses, run.backoff_secs, run.timeout_secs), (4, 2, 11, Some(33)));
    assert_eq!(
        (run.concurrency_key.as_deref(), run.labels.as_slice()),
        (Some("deploy"), &["a".into(), "b".into()][..])
    );
    assert_eq!((run.attempt, run.failures, run.losses, run.epoch), (1, 0, 0, 0));
    assert_eq!((run.queued_at, run.created_at, run.updated_at), (at(0), at(0), at(0)));
    assert_eq!((run.claimed_by, run.started_at, run.finished_at, run.retry_of), (None, None, None, None));
    let events = fixture.events(&id).await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].seq, events[0].message.as_str(), events[0].created_at), (1, "Run queued", at(0)));
    assert_eq!(events[0].payload, json!({"to": "queued"}));
}

/// The seed checks and then inserts, so two concurrent callers made two runs. Here sixteen callers make one run, and
/// all of them get it.
pub async fn simultaneous_equal_requests_make_one_run(fixture: Fixture) {
    for round in 0..5 {
        // With a concurrency key: the callers that lose the race must release their position.
        let wanted =
            QueueRun { concurrency_key: Some("deploy".to_owned()), ..keyed(&format!("round-{round}")) };
        let answers = at_once(16, |_| {
            let (fixture, wanted) = (fixture.clone(), wanted.clone());
            async move { fixture.try_queue(wanted, at(round)).await }
        })
        .await;
        let answers: Vec<_> =
            answers.into_iter().map(|answer| answer.map_err(|bad| bad.to_string())).collect();
        let mut ids: Vec<_> =
            answers.iter().map(|answer| answer.as_ref().map(|queued| &queued.run_id)).collect();
        ids.dedup();
        assert!(ids.len() == 1 && ids[0].is_ok(), "all of them get the same run: {ids:?}");
        let created =
            answers.iter().filter(|answer| answer.as_ref().is_ok_and(|queued| queued.created)).count();
        assert_eq!(created, 1, "one of them created it");
    }
    let runs = fixture.plain.number("SELECT count(*) FROM {ops}.runs").await;
    assert_eq!(runs.ok(), Some(5));
    // The first run of the key can be claimed, and the others follow one by one.
    for second in 10..15 {
        let Some(claim) = fixture.claim("worker-001", at(second)).await else {
            panic!("the key order does not advance")
        };
        assert_eq!(fixture.claim("worker-001", at(second)).await, None);
        fixture.succeed(&claim.run_id, at(second)).await;
    }
}

/// The other callers are refused, and nothing of their requests remains.
pub async fn simultaneous_different_requests_with_one_key_make_one_run(fixture: Fixture) {
    let answers = at_once(16, |number| {
        let fixture = fixture.clone();
        let wanted = QueueRun { metadata: json!({"n": number}), ..keyed("one") };
        async move { fixture.try_queue(wanted, at(0)).await }
    })
    .await;
    let (taken, refusals): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refusals.len()), (1, 15));
    for refusal in refusals {
        refused(refusal, RefusalCode::KeyConflict);
    }
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(1));
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.run_events").await.ok(), Some(1));
}

/// The repeated request has its JSON fields in another order.
pub async fn repeated_request_with_its_key_returns_the_existing_run(fixture: Fixture) {
    let wanted = QueueRun {
        labels: vec!["b".to_owned(), "a".to_owned()],
        metadata: json!({"a": 1, "b": [1, 2]}),
        available_at: Some(at(0) + TimeDelta::microseconds(123_457)),
        ..keyed("same")
    };
    let run = fixture.queue(wanted.clone(), at(0)).await;
    let before = fixture.tables().await;
    let again = QueueRun {
        labels: vec!["a".to_owned(), "b".to_owned(), "a".to_owned()],
        metadata: json!({"b": [1, 2], "a": 1}),
        ..wanted
    };
    let Ok(answer) = fixture.try_queue(again, at(7)).await else { panic!("it was refused") };
    assert_eq!((answer.run_id, answer.created, answer.queued_at), (run, false, at(0)));
    fixture.unchanged(&before).await;
}

pub async fn different_request_with_a_used_key_is_refused(fixture: Fixture) {
    let first = keyed("same");
    fixture.queue(first.clone(), at(0)).await;
    let before = fixture.tables().await;
    let others = [
        QueueRun { env: "production".to_owned(), ..first.clone() },
        QueueRun { git_sha: Some("abc".to_owned()), ..first.clone() },
        QueueRun { git_ref: Some("main".to_owned()), ..first.clone() },
        QueueRun { metadata: json!({"n": 1}), ..first.clone() },
        QueueRun { priority: 1, ..first.clone() },
        QueueRun { available_at: Some(at(9)), ..first.clone() },
        QueueRun { expires_at: Some(at(9)), ..first.clone() },
        QueueRun { max_attempts: 2, ..first.clone() },
        QueueRun { max_losses: 2, ..first.clone() },
        QueueRun { backoff_secs: 2, ..first.clone() },
        QueueRun { timeout_secs: Some(2), ..first.clone() },
        QueueRun { concurrency_key: Some("k".to_owned()), ..first.clone() },
        QueueRun { labels: vec!["gpu".to_owned()], ..first.clone() },
        QueueRun { kind: "email".to_owned(), ..first.clone() },
    ];
    for other in others {
        refused(fixture.try_queue(other, at(1)).await, RefusalCode::KeyConflict);
    }
    fixture.unchanged(&before).await;
}

/// Another project neither collides with the key nor learns of it.
pub async fn idempotency_key_is_scoped_to_its_project(fixture: Fixture) {
    let shop = fixture.queue(keyed("same"), at(0)).await;
    let bank = QueueRun { project: "bank".to_owned(), metadata: json!({"other": true}), ..keyed("same") };
    let bank = fixture.queue(bank, at(1)).await;
    assert_ne!(shop, bank);
}

/// The request body is stored apart from the metadata, which reports change.
pub async fn idempotency_key_outlives_the_end_of_its_run(fixture: Fixture) {
    let run = fixture.queue(keyed("once"), at(0)).await;
    fixture.claim("worker-001", at(1)).await;
    fixture.finish(&run, FinalStatus::Success, json!({"exit_code": 0, "n": 1}), at(2)).await;
    let Ok(answer) = fixture.try_queue(keyed("once"), at(3)).await else { panic!("it was refused") };
    assert_eq!((&answer.run_id, answer.status, answer.created), (&run, RunState::Success, false));
    let with_report = QueueRun { metadata: json!({"exit_code": 0, "n": 1}), ..keyed("once") };
    refused(fixture.try_queue(with_report, at(3)).await, RefusalCode::KeyConflict);
}

/// After a lost answer the same run id identifies the same call, with and without a key.
pub async fn repeated_request_with_its_run_id_returns_the_same_run(fixture: Fixture) {
    for wanted in [request(), keyed("k")] {
        let id = new_run_id(at(0));
        let first = fixture.interface.queue(wanted.clone(), id.clone(), at(0)).await;
        let before = fixture.tables().await;
        let again = fixture.interface.queue(wanted.clone(), id.clone(), at(5)).await;
        let (Ok(first), Ok(again)) = (first, again) else { panic!("one of them was refused") };
        assert_eq!((&first.run_id, first.created), (&id, true));
        assert_eq!((&again.run_id, again.created, again.queued_at), (&id, false, at(0)));
        // Another project cannot use the id.
        let other = QueueRun { project: "bank".to_owned(), idempotency_key: None, ..wanted };
        refused(fixture.interface.queue(other, id, at(6)).await, RefusalCode::KeyConflict);
        fixture.unchanged(&before).await;
    }
}

/// Oban and others block a retry by the key of the run that it retries. Here the key belongs to the request, not to an
/// attempt.
pub async fn f14_idempotency_key_does_not_block_the_retry(fixture: Fixture) {
    let wanted =
        QueueRun { max_attempts: 2, backoff_secs: 0, concurrency_key: Some("k".to_owned()), ..keyed("once") };
    let run = fixture.queue(wanted.clone(), at(0)).await;
    fixture.claim("worker-001", at(1)).await;
    fixture.fail(&run, at(2)).await;
    let Some(next) = fixture.successor(&run).await else { panic!("there is no second try") };
    assert_eq!((next.attempt, next.idempotency_key), (2, None));
    assert_eq!(fixture.claim_id("worker-001", at(3)).await, Some(next.run_id.clone()));
    let Ok(answer) = fixture.try_queue(wanted, at(4)).await else { panic!("it was refused") };
    assert_eq!(answer.run_id, run, "the key still gives the first try");
    fixture.fail(&next.run_id, at(5)).await;
    let person = fixture.retry(&next.run_id, at(6)).await;
    assert!(person.created);
}

/// Its age counts from its start time.
pub async fn delayed_run_is_not_claimed_before_its_time(fixture: Fixture) {
    let later = fixture.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(0)).await;
    let sooner = fixture.queue(QueueRun { available_at: Some(at(30)), ..request() }, at(1)).await;
    assert_eq!(fixture.run(&later).await.gate, Some(Gate::Time));
    assert_eq!(fixture.claim("worker-001", at(29)).await, None);
    assert_eq!(fixture.claim_id("worker-001", at(30)).await, Some(sooner));
    let plain = fixture.queue(request(), at(59)).await;
    assert_eq!(
        fixture.claim_id("worker-001", at(70)).await,
        Some(plain),
        "it is older than a run of second 60"
    );
    assert_eq!(fixture.claim_id("worker-001", at(70)).await, Some(later));
}

pub async fn run_with_a_past_start_time_is_claimable_at_once(fixture: Fixture) {
    let run = fixture.queue(QueueRun { available_at: Some(at(-60)), ..request() }, at(0)).await;
    assert_eq!(fixture.run(&run).await.gate, Some(Gate::Open));
    assert_eq!(fixture.claim_id("worker-001", at(0)).await, Some(run));
}

/// The sweeper opens due runs even without claims, so that lists show them as ready.
pub async fn sweeper_opens_due_runs(fixture: Fixture) {
    let run = fixture.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(0)).await;
    assert!(fixture.sweep(at(59)).await.is_empty());
    assert_eq!(fixture.run(&run).await.gate, Some(Gate::Time));
    assert!(fixture.sweep(at(60)).await.is_empty(), "no run was ended");
    assert_eq!(fixture.run(&run).await.gate, Some(Gate::Open));
}

/// The sweeper cancels it once, without a retry.
pub async fn unclaimed_run_expires(fixture: Fixture) {
    let wanted = QueueRun { expires_at: Some(at(60)), metadata: json!({"asked": 1}), ..request() };
    let run = fixture.queue(wanted.clone(), at(0)).await;
    let claimed = fixture.queue(QueueRun { priority: 1, ..wanted }, at(1)).await;
    assert_eq!(fixture.claim_id("worker-001", at(10)).await, Some(claimed.clone()));
    assert!(fixture.sweep(at(59)).await.is_empty());
    let swept = fixture.sweep(at(60)).await;
    assert_eq!(swept.len(), 1);
    assert_eq!((&swept[0].run_id, swept[0].action, &swept[0].successor), (&run, EndCause::Expired, &None));
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Expired)));
    assert_eq!((ended.finished_at, ended.started_at), (Some(at(60)), None));
    let reason = "Nobody claimed the run before it expired";
    assert_eq!(ended.metadata, json!({"asked": 1, "cancelled_by": "system", "reason": reason}));
    assert_eq!(fixture.status(&claimed).await, RunState::Claimed, "a claimed run does not expire");
    assert_eq!(fixture.claim("worker-001", at(61)).await, None);
}
