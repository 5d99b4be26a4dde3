//! Queueing: once per key, kept as it was asked, and not before its time.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::run::{EndCause, FinalStatus, Gate, Lane, QueueRun, RunState};
use tidemill_store::{RefusalCode, SweptAction};

use super::at_once;
use crate::door::{Stage, at, new_run_id, refused, request};

fn keyed(key: &str) -> QueueRun {
    QueueRun { idempotency_key: Some(key.to_owned()), ..request() }
}

/// Everything that was asked for is in the row, and the rest is as it should be at the beginning.
pub async fn a_run_is_kept_as_it_was_asked_for(stage: Stage) {
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
    let id = stage.queue(wanted.clone(), at(0)).await;
    let run = stage.run(&id).await;
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
    let events = stage.events(&id).await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].seq, events[0].message.as_str(), events[0].created_at), (1, "Run queued", at(0)));
    assert_eq!(events[0].payload, json!({"to": "queued"}));
}

/// The seed checks, then inserts: two callers at once made two runs. Here sixteen make one, and all get it.
pub async fn sixteen_equal_requests_at_one_instant_make_one_run(stage: Stage) {
    for round in 0..5 {
        // A concurrency key too: what the losers entered for nothing must be given back.
        let wanted =
            QueueRun { concurrency_key: Some("deploy".to_owned()), ..keyed(&format!("round-{round}")) };
        let answers = at_once(16, |_| {
            let (stage, wanted) = (stage.clone(), wanted.clone());
            async move { stage.try_queue(wanted, at(round)).await }
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
        assert_eq!(created, 1, "one of them made it");
    }
    let runs = stage.plain.number("SELECT count(*) FROM {ops}.runs").await;
    assert_eq!(runs.ok(), Some(5));
    // The first run of the key can be claimed, and the others follow one by one.
    for second in 10..15 {
        let Some(claim) = stage.claim("worker-001", at(second)).await else {
            panic!("the line stands still")
        };
        assert_eq!(stage.claim("worker-001", at(second)).await, None);
        stage.succeed(&claim.run_id, at(second)).await;
    }
}

/// Of sixteen different requests under one key, one is taken; the others are refused and leave nothing.
pub async fn one_of_sixteen_different_requests_with_one_key_wins(stage: Stage) {
    let answers = at_once(16, |number| {
        let stage = stage.clone();
        let wanted = QueueRun { metadata: json!({"n": number}), ..keyed("one") };
        async move { stage.try_queue(wanted, at(0)).await }
    })
    .await;
    let (taken, refusals): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refusals.len()), (1, 15));
    for refusal in refusals {
        refused(refusal, RefusalCode::KeyConflict);
    }
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(1));
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.run_events").await.ok(), Some(1));
}

/// Asked again, in another order of words, with the same meaning.
pub async fn the_same_key_and_request_give_the_run_that_exists(stage: Stage) {
    let wanted = QueueRun {
        labels: vec!["b".to_owned(), "a".to_owned()],
        metadata: json!({"a": 1, "b": [1, 2]}),
        available_at: Some(at(0) + TimeDelta::microseconds(123_457)),
        ..keyed("same")
    };
    let run = stage.queue(wanted.clone(), at(0)).await;
    let before = stage.tables().await;
    let again = QueueRun {
        labels: vec!["a".to_owned(), "b".to_owned(), "a".to_owned()],
        metadata: json!({"b": [1, 2], "a": 1}),
        ..wanted
    };
    let Ok(answer) = stage.try_queue(again, at(7)).await else { panic!("it was refused") };
    assert_eq!((answer.run_id, answer.created, answer.queued_at), (run, false, at(0)));
    stage.unchanged(&before).await;
}

/// The same key asks for something else: refused, and nothing is written.
pub async fn the_same_key_with_another_request_is_refused(stage: Stage) {
    let first = keyed("same");
    stage.queue(first.clone(), at(0)).await;
    let before = stage.tables().await;
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
    ];
    for other in others {
        refused(stage.try_queue(other, at(1)).await, RefusalCode::KeyConflict);
    }
    stage.unchanged(&before).await;
}

/// The key is the project's own: another project neither collides with it nor learns of it.
pub async fn another_projects_key_is_no_obstacle(stage: Stage) {
    let shop = stage.queue(keyed("same"), at(0)).await;
    let bank = QueueRun { project: "bank".to_owned(), metadata: json!({"other": true}), ..keyed("same") };
    let bank = stage.queue(bank, at(1)).await;
    assert_ne!(shop, bank);
}

/// The body is kept apart from the metadata, which a report changes; the end of the run changes nothing either.
pub async fn a_key_is_remembered_after_the_run_has_ended(stage: Stage) {
    let run = stage.queue(keyed("once"), at(0)).await;
    stage.claim("worker-001", at(1)).await;
    stage.finish(&run, FinalStatus::Success, json!({"exit_code": 0, "n": 1}), at(2)).await;
    let Ok(answer) = stage.try_queue(keyed("once"), at(3)).await else { panic!("it was refused") };
    assert_eq!((&answer.run_id, answer.status, answer.created), (&run, RunState::Success, false));
    let with_report = QueueRun { metadata: json!({"exit_code": 0, "n": 1}), ..keyed("once") };
    refused(stage.try_queue(with_report, at(3)).await, RefusalCode::KeyConflict);
}

/// The answer was lost: the same run id is the same call, with and without a key.
pub async fn a_queue_call_asked_again_with_its_run_id_gives_the_same_run(stage: Stage) {
    for wanted in [request(), keyed("k")] {
        let id = new_run_id(at(0));
        let first = stage.door.queue(wanted.clone(), id.clone(), at(0)).await;
        let before = stage.tables().await;
        let again = stage.door.queue(wanted.clone(), id.clone(), at(5)).await;
        let (Ok(first), Ok(again)) = (first, again) else { panic!("one of them was refused") };
        assert_eq!((&first.run_id, first.created), (&id, true));
        assert_eq!((&again.run_id, again.created, again.queued_at), (&id, false, at(0)));
        // Another project cannot have the id.
        let other = QueueRun { project: "bank".to_owned(), idempotency_key: None, ..wanted };
        refused(stage.door.queue(other, id, at(6)).await, RefusalCode::KeyConflict);
        stage.unchanged(&before).await;
    }
}

/// Oban and others block a retry by the key of the run it retries. The key belongs to the request, not to a try.
pub async fn f14_a_key_does_not_block_the_retry(stage: Stage) {
    let wanted =
        QueueRun { max_attempts: 2, backoff_secs: 0, concurrency_key: Some("k".to_owned()), ..keyed("once") };
    let run = stage.queue(wanted.clone(), at(0)).await;
    stage.claim("worker-001", at(1)).await;
    stage.fail(&run, at(2)).await;
    let Some(next) = stage.successor(&run).await else { panic!("there is no second try") };
    assert_eq!((next.attempt, next.idempotency_key), (2, None));
    assert_eq!(stage.claim_id("worker-001", at(3)).await, Some(next.run_id.clone()));
    let Ok(answer) = stage.try_queue(wanted, at(4)).await else { panic!("it was refused") };
    assert_eq!(answer.run_id, run, "the key still gives the first try");
    stage.fail(&next.run_id, at(5)).await;
    let person = stage.retry(&next.run_id, at(6)).await;
    assert!(person.created);
}

/// A run is not claimed before its time; then it is, and its age counts from that time.
pub async fn a_run_is_not_claimed_before_its_time(stage: Stage) {
    let later = stage.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(0)).await;
    let sooner = stage.queue(QueueRun { available_at: Some(at(30)), ..request() }, at(1)).await;
    assert_eq!(stage.run(&later).await.gate, Some(Gate::Time));
    assert_eq!(stage.claim("worker-001", at(29)).await, None);
    assert_eq!(stage.claim_id("worker-001", at(30)).await, Some(sooner));
    let plain = stage.queue(request(), at(59)).await;
    assert_eq!(
        stage.claim_id("worker-001", at(70)).await,
        Some(plain),
        "it is older than a run of second 60"
    );
    assert_eq!(stage.claim_id("worker-001", at(70)).await, Some(later));
}

/// A time that has passed means at once.
pub async fn a_time_in_the_past_means_at_once(stage: Stage) {
    let run = stage.queue(QueueRun { available_at: Some(at(-60)), ..request() }, at(0)).await;
    assert_eq!(stage.run(&run).await.gate, Some(Gate::Open));
    assert_eq!(stage.claim_id("worker-001", at(0)).await, Some(run));
}

/// The sweeper opens what is due even when nobody claims, so that others see it as ready.
pub async fn the_sweeper_opens_what_is_due(stage: Stage) {
    let run = stage.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(0)).await;
    assert!(stage.sweep(at(59)).await.is_empty());
    assert_eq!(stage.run(&run).await.gate, Some(Gate::Time));
    assert!(stage.sweep(at(60)).await.is_empty(), "nothing was ended");
    assert_eq!(stage.run(&run).await.gate, Some(Gate::Open));
}

/// Nobody claimed it in time: the system cancels it, once, and nothing follows.
pub async fn a_run_that_nobody_claims_in_time_expires(stage: Stage) {
    let wanted = QueueRun { expires_at: Some(at(60)), metadata: json!({"asked": 1}), ..request() };
    let run = stage.queue(wanted.clone(), at(0)).await;
    let claimed = stage.queue(QueueRun { priority: 1, ..wanted }, at(1)).await;
    assert_eq!(stage.claim_id("worker-001", at(10)).await, Some(claimed.clone()));
    assert!(stage.sweep(at(59)).await.is_empty());
    let swept = stage.sweep(at(60)).await;
    assert_eq!(swept.len(), 1);
    assert_eq!((&swept[0].run_id, swept[0].action, &swept[0].successor), (&run, SweptAction::Expired, &None));
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Expired)));
    assert_eq!((ended.finished_at, ended.started_at), (Some(at(60)), None));
    let reason = "Nobody claimed the run before it expired";
    assert_eq!(ended.metadata, json!({"asked": 1, "cancelled_by": "system", "reason": reason}));
    assert_eq!(stage.status(&claimed).await, RunState::Claimed, "what is claimed does not expire");
    assert_eq!(stage.claim("worker-001", at(61)).await, None);
}
