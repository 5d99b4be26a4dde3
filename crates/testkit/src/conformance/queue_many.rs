//! Batches of requests: the same runs as one by one, all of them or none.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use std::collections::HashSet;

use serde_json::json;
use tidemill_core::limits::BATCH_MAX;
use tidemill_core::run::{Gate, QueueRun, RunState};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_store::{Error, QueueOutcome, RefusalCode};
use uuid::Uuid;

use super::at_once;
use crate::interface::{Fixture, Tables, at, request};

fn keyed(key: &str) -> QueueRun {
    QueueRun { idempotency_key: Some(key.to_owned()), ..request() }
}

fn locked(key: &str, priority: i32) -> QueueRun {
    QueueRun { concurrency_key: Some(key.to_owned()), priority, ..request() }
}

/// Adds an id to each request. The ids sort by position.
fn with_ids(requests: Vec<QueueRun>, now: Timestamp) -> Vec<(QueueRun, RunId)> {
    let id = |position| RunId::in_batch(now, position, Uuid::new_v4());
    requests.into_iter().enumerate().map(|(position, request)| (request, id(position))).collect()
}

async fn queue_many(
    fixture: &Fixture,
    requests: Vec<QueueRun>,
    now: Timestamp,
) -> Result<Vec<QueueOutcome>, Error> {
    fixture.interface.queue_many(with_ids(requests, now), now).await
}

/// Requests with every field, and several of each key.
fn mixed() -> Vec<QueueRun> {
    let labels = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    vec![
        request(),
        QueueRun {
            git_sha: Some("abc123".to_owned()),
            git_ref: Some("main".to_owned()),
            metadata: json!({"author": "jöhn", "n": [1, {"deep": true}], "id": 1_234_567_890_123_456_789_i64}),
            max_attempts: 4,
            max_losses: 2,
            backoff_secs: 11,
            timeout_secs: Some(33),
            kind: "email".to_owned(),
            ..request()
        },
        QueueRun { labels: labels(&["b", "a", "b"]), env: "production".to_owned(), ..request() },
        QueueRun { labels: labels(&["a", "b"]), project: "bank".to_owned(), ..request() },
        QueueRun { available_at: Some(at(60)), expires_at: Some(at(90)), ..keyed("delayed") },
        QueueRun { available_at: Some(at(-60)), ..locked("deploy", 0) },
        locked("deploy", 5),
        locked("deploy", 5),
        locked("backup", -1),
        QueueRun { available_at: Some(at(60)), ..locked("backup", 9) },
        QueueRun { concurrency_key: Some("deploy".to_owned()), ..keyed("first") },
        keyed("second"),
        QueueRun { concurrency_key: Some("deploy".to_owned()), ..keyed("first") },
        QueueRun { project: "bank".to_owned(), ..keyed("second") },
        QueueRun { expires_at: Some(at(30)), ..request() },
    ]
}

/// Returns the tables without values that differ between two databases: ids of label sets, transactions and
/// logins.
async fn comparable(fixture: &Fixture) -> Tables {
    let mut tables = fixture.tables().await;
    for rows in tables.values_mut() {
        for row in rows.iter_mut() {
            let fields = row.as_object_mut().expect("a row is an object");
            fields.retain(|name, _| !["label_set_id", "xact", "actor"].contains(&name.as_str()));
        }
        rows.sort_by_key(Json::to_string);
    }
    tables
}

/// Queues the same requests, under the same ids, as a batch on one database and one by one on another.
pub async fn batch_equals_its_requests_one_by_one(fixture: Fixture) {
    let other = Fixture::open(fixture.kind).await;
    fixture.queue(locked("deploy", 1), at(0)).await;
    let before: Vec<_> = fixture.tables().await["runs"].clone();
    let first: RunId = before[0]["run_id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    other.interface.queue(locked("deploy", 1), first, at(0)).await.expect("the run is queued");
    let requests = with_ids(mixed(), at(1));
    let batch = fixture.interface.queue_many(requests.clone(), at(1)).await.expect("they are queued");
    let mut single = Vec::new();
    for (request, run) in requests {
        single.push(other.interface.queue(request, run, at(1)).await.expect("it is queued"));
    }
    assert_eq!(batch, single);
    assert_eq!((batch[10].created, batch[12].created), (true, false));
    assert_eq!(batch[10].run_id, batch[12].run_id);
    assert_eq!(comparable(&fixture).await, comparable(&other).await);
    other.close().await;
}

pub async fn repeated_batch_creates_nothing(fixture: Fixture) {
    let requests = with_ids(mixed(), at(1));
    let first = fixture.interface.queue_many(requests.clone(), at(1)).await.expect("they are queued");
    let before = fixture.tables().await;
    let again = fixture.interface.queue_many(requests, at(7)).await.expect("they are known");
    assert!(again.iter().all(|outcome| !outcome.created));
    let ids = |outcomes: &[QueueOutcome]| -> Vec<RunId> {
        outcomes.iter().map(|outcome| outcome.run_id.clone()).collect()
    };
    assert_eq!(ids(&again), ids(&first));
    assert!(again.iter().all(|outcome| outcome.queued_at == at(1)));
    fixture.unchanged(&before).await;
    // With other ids, the keys identify the runs.
    let keys = vec![keyed("second"), request()];
    let again = queue_many(&fixture, keys, at(8)).await.expect("they are queued");
    assert_eq!((&again[0].run_id, again[0].created, again[1].created), (&first[11].run_id, false, true));
}

/// Each refusal has the code of a single request, and names the position.
pub async fn bad_element_refuses_the_whole_batch(fixture: Fixture) {
    fixture.queue(keyed("used"), at(0)).await;
    let before = fixture.tables().await;
    let bad = [
        (QueueRun { priority: i32::MAX, ..request() }, RefusalCode::BadValue),
        (QueueRun { max_attempts: 0, ..request() }, RefusalCode::BadValue),
        (QueueRun { metadata: json!([1]), ..request() }, RefusalCode::BadValue),
        (QueueRun { labels: vec![String::new()], ..request() }, RefusalCode::BadValue),
        (QueueRun { git_ref: Some("a\nb".to_owned()), ..request() }, RefusalCode::BadValue),
        (QueueRun { git_sha: Some("s".repeat(2_000)), ..request() }, RefusalCode::TooLarge),
        (QueueRun { expires_at: Some(at(5)), available_at: Some(at(5)), ..request() }, RefusalCode::BadValue),
        (QueueRun::new("nobody", "staging"), RefusalCode::UnknownProject),
        (QueueRun::new("shop", "nowhere"), RefusalCode::UnknownEnvironment),
        (QueueRun { priority: 1, ..keyed("used") }, RefusalCode::KeyConflict),
        (QueueRun { priority: 1, ..keyed("new") }, RefusalCode::KeyConflict),
    ];
    for (wrong, code) in bad {
        let batch = vec![keyed("new"), locked("deploy", 0), request(), wrong.clone(), request()];
        let error = queue_many(&fixture, batch, at(1)).await.expect_err("it is refused");
        assert_eq!(error.refusal_code(), Some(code), "{error} for {wrong:?}");
        assert!(error.to_string().starts_with("runs[3]"), "{error}");
        fixture.unchanged(&before).await;
    }
    let mut twice = with_ids(vec![request(), request()], at(1));
    twice[1].1 = twice[0].1.clone();
    let error = fixture.interface.queue_many(twice, at(1)).await.expect_err("it is refused");
    assert_eq!(error.refusal_code(), Some(RefusalCode::BadValue), "{error}");
    let mut taken = with_ids(vec![request(), QueueRun::new("bank", "staging")], at(1));
    taken[1].1 = before["runs"][0]["run_id"].as_str().and_then(|id| id.parse().ok()).expect("an id");
    let error = fixture.interface.queue_many(taken.clone(), at(1)).await.expect_err("it is refused");
    assert_eq!(error.refusal_code(), Some(RefusalCode::KeyConflict), "{error}");
    // A later request with the same key does not answer for the one whose id is taken.
    taken[1].0.idempotency_key = Some("late".to_owned());
    taken.push((taken[1].0.clone(), RunId::in_batch(at(1), 2, Uuid::new_v4())));
    let error = fixture.interface.queue_many(taken, at(1)).await.expect_err("it is refused");
    assert_eq!(error.refusal_code(), Some(RefusalCode::KeyConflict), "{error}");
    assert!(error.to_string().starts_with("runs[1]"), "{error}");
    fixture.unchanged(&before).await;
}

/// Every caller sends the same keys in another order, with ids of its own.
pub async fn simultaneous_batches_with_the_same_keys_make_each_run_once(fixture: Fixture) {
    for round in 0..3 {
        let answers = at_once(6, |caller| {
            let fixture = fixture.clone();
            let mut requests: Vec<QueueRun> = (0..40)
                .map(|number| QueueRun {
                    concurrency_key: Some(format!("lock-{}", number % 7)),
                    priority: number % 3,
                    ..keyed(&format!("{round}-{number}"))
                })
                .collect();
            requests.rotate_left(caller * 7);
            if caller % 2 == 1 {
                requests.reverse();
            }
            async move { queue_many(&fixture, requests, at(i64::from(round))).await }
        })
        .await;
        let mut created = HashSet::new();
        let mut known = HashSet::new();
        for answer in answers {
            for outcome in answer.expect("no caller is refused") {
                assert!(!outcome.created || created.insert(outcome.run_id.clone()), "created twice");
                known.insert(outcome.run_id);
            }
        }
        assert_eq!((created.len(), known.len()), (40, 40));
    }
    let runs = fixture.plain.number("SELECT count(*) FROM {ops}.runs").await;
    assert_eq!(runs.ok(), Some(120));
    // Exactly one run of each key can be claimed, and the first by priority.
    let open = "SELECT count(*) FROM {ops}.runs WHERE gate = 'open'";
    assert_eq!(fixture.plain.number(open).await.ok(), Some(7));
    for second in 10..130 {
        let claim = fixture.claim("worker-001", at(second)).await.expect("the next run of a key");
        fixture.succeed(&claim.run_id, at(second)).await;
    }
    assert_eq!(fixture.claim("worker-001", at(200)).await, None);
}

pub async fn batch_is_limited(fixture: Fixture) {
    let full = vec![request(); BATCH_MAX];
    let queued = queue_many(&fixture, full, at(0)).await.expect("they are queued");
    assert_eq!(queued.len(), BATCH_MAX);
    let outcome = |outcome: &QueueOutcome| {
        (outcome.created, outcome.status, outcome.queued_at) == (true, RunState::Queued, at(0))
    };
    assert!(queued.iter().all(outcome));
    let before = fixture.plain.number("SELECT count(*) FROM {ops}.runs").await;
    let error = queue_many(&fixture, vec![request(); BATCH_MAX + 1], at(1)).await.expect_err("too many");
    assert!(matches!(error.refusal_code(), Some(RefusalCode::TooLarge | RefusalCode::BadValue)), "{error}");
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), before.ok());
}

pub async fn runs_of_a_batch_are_claimed_in_its_order(fixture: Fixture) {
    let queued = queue_many(&fixture, vec![request(); 20], at(0)).await.expect("they are queued");
    for outcome in queued {
        assert_eq!(fixture.claim_id("worker-001", at(1)).await, Some(outcome.run_id));
    }
    // The head of a key is the first request of the highest priority.
    let batch = vec![locked("deploy", 0), locked("deploy", 2), locked("deploy", 2)];
    let queued = queue_many(&fixture, batch, at(2)).await.expect("they are queued");
    let mut gates = Vec::new();
    for outcome in &queued {
        gates.push(fixture.run(&outcome.run_id).await.gate);
    }
    assert_eq!(gates, [Some(Gate::Key), Some(Gate::Open), Some(Gate::Key)]);
}
