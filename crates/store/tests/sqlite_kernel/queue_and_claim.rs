//! From the request to the claim: idempotency keys, label sets, priorities, start times, concurrency keys.

use crate::fixture::{KernelFixture, at, code, info, shop};
use serde_json::{Value, json};
use tidemill_core::project::{Flag, FlagName, FlagSource, project_scope};
use tidemill_core::run::{ChangeOutcome, Claim, EndCause, FinalStatus, Gate, QueueRun, RunState};
use tidemill_core::{RunId, limits};
use tidemill_store::{ClaimRuns, Holder, RefusalCode};
use uuid::Uuid;

#[tokio::test]
async fn run_from_queued_to_success_records_each_transition() {
    let mut fixture = KernelFixture::new().await;
    let run = fixture.queue(QueueRun { metadata: json!({"deploy": "api"}), ..shop() }, 0).await;
    let claim = fixture.claim_one(1).await;
    assert_eq!((&claim.run_id, claim.epoch, claim.lease_until), (&run, 1, at(301)));
    let id = format!("evt-{}-4", &run.as_str()[4..]);
    assert_eq!(fixture.append(&run, vec![info("building")], 2).await, [Some(id)]);
    assert_eq!(
        fixture.finish(&run, FinalStatus::Success, json!({"exit": 0}), 3).await,
        ChangeOutcome::Applied
    );

    let run = fixture.run(&run).await;
    assert_eq!((run.status, run.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(run.metadata, json!({"deploy": "api", "exit": 0}));
    assert_eq!((run.gate, run.started_at, run.finished_at), (None, Some(at(1)), Some(at(3))));
    let record = fixture.events(&run.run_id).await;
    let event = |kind: &str, message: &str, payload: Value| {
        (kind.to_owned(), "info".to_owned(), message.to_owned(), payload)
    };
    assert_eq!(
        record,
        [
            event("transition", "Run queued", json!({"to": "queued"})),
            event(
                "transition",
                "Run claimed by worker",
                json!({"from": "queued", "to": "claimed", "worker_id": "w"})
            ),
            event("transition", "Run started", json!({"from": "claimed", "to": "running"})),
            event("log", "building", json!({})),
            event(
                "transition",
                "Run succeeded",
                json!({"from": "running", "to": "success", "cause": "reported"})
            ),
        ]
    );
}

#[tokio::test]
async fn idempotency_key_returns_its_run_or_refuses_another_request() {
    let fixture = KernelFixture::new().await;
    let keyed = QueueRun {
        idempotency_key: Some("k".to_owned()),
        labels: vec!["x".to_owned(), "gpu".to_owned()],
        expires_at: Some(at(99)),
        metadata: json!({"n": 1}),
        ..shop()
    };
    let first = fixture.try_queue(keyed.clone(), 0).await.unwrap();
    let mut again = QueueRun { labels: vec!["gpu".into(), "x".into(), "x".into()], ..keyed.clone() };
    again.metadata = json!({"n": 1.0});
    let second = fixture.try_queue(again, 5).await.unwrap();
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((second.run_id, second.queued_at), (first.run_id.clone(), at(0)));
    assert_eq!(fixture.run(&first.run_id).await.labels, ["gpu", "x"]);

    let other = fixture.try_queue(QueueRun { priority: 1, ..keyed }, 6).await.unwrap_err();
    assert_eq!(other.hint().as_deref(), Some("Use another key for another request."));
    assert_eq!(code(Err::<(), _>(other)), RefusalCode::KeyConflict);
    // The same run id makes the request idempotent, with or without a key. In another project the id is taken.
    let id = RunId::new(at(7), Uuid::new_v4());
    for created in [true, false] {
        let queued = fixture.store.queue_run(shop(), id.clone(), Some(at(7))).await.unwrap();
        assert_eq!((queued.run_id, queued.created), (id.clone(), created));
    }
    fixture.store.create_project("other", vec!["staging".to_owned()], Some(at(0))).await.unwrap();
    let elsewhere = fixture.store.queue_run(QueueRun::new("other", "staging"), id, Some(at(8))).await;
    assert_eq!(code(elsewhere), RefusalCode::KeyConflict);
}

#[tokio::test]
async fn invalid_request_is_refused_with_a_reason() {
    let fixture = KernelFixture::new().await;
    assert_eq!(
        code(fixture.try_queue(QueueRun::new("none", "staging"), 0).await),
        RefusalCode::UnknownProject
    );
    let error = fixture.try_queue(QueueRun::new("shop", "live"), 0).await.unwrap_err();
    assert_eq!(error.to_string(), "project `shop` has no environment `live`");
    assert_eq!(error.hint().as_deref(), Some("It has: staging"));
    let bad = QueueRun { max_attempts: 0, ..shop() };
    assert_eq!(code(fixture.try_queue(bad, 0).await), RefusalCode::BadValue);
    let large = QueueRun { git_ref: Some("r".repeat(limits::KEY_BYTES_MAX + 1)), ..shop() };
    assert_eq!(code(fixture.try_queue(large, 0).await), RefusalCode::TooLarge);
    let nobody: RunId = "run-none".parse().unwrap();
    assert_eq!(code(fixture.store.start_run(nobody, Holder::default(), None).await), RefusalCode::UnknownRun);
}

#[tokio::test]
async fn label_sets_are_merged_by_priority_and_age_if_they_match() {
    let fixture = KernelFixture::new().await;
    for project in ["paused", "other"] {
        fixture.store.create_project(project, vec!["staging".to_owned()], Some(at(0))).await.unwrap();
    }
    let request = |project: &str, labels: &[&str], priority: i32| QueueRun {
        labels: labels.iter().map(ToString::to_string).collect(),
        priority,
        ..QueueRun::new(project, "staging")
    };
    let first = fixture.queue(request("shop", &[], 0), 1).await;
    let second = fixture.queue(request("shop", &["gpu"], 0), 2).await;
    let third = fixture.queue(request("shop", &[], 0), 3).await;
    let last = fixture.queue(request("shop", &["gpu"], -1), 4).await;
    let urgent = fixture.queue(request("shop", &[], 9), 5).await;
    fixture.queue(request("shop", &["arm", "gpu"], 99), 6).await;
    fixture.queue(request("paused", &[], 99), 6).await;
    fixture.queue(request("other", &[], 99), 6).await;
    let flag = Flag {
        flag: FlagName::Paused,
        scope: project_scope("paused"),
        note: None,
        since: at(0),
        until_at: Some(at(50)),
        set_by: None,
        source: FlagSource::Manual,
    };
    fixture.store.set_flag(flag).await.unwrap();
    let ask = ClaimRuns {
        limit: 4,
        labels: vec!["gpu".to_owned()],
        projects: Some(vec!["shop".to_owned(), "paused".to_owned()]),
        ..ClaimRuns::one("w")
    };
    let ids = |claims: Vec<Claim>| claims.into_iter().map(|claim| claim.run_id).collect::<Vec<_>>();
    assert_eq!(ids(fixture.claim(ask.clone(), 10).await), [urgent, first, second, third]);
    assert_eq!(ids(fixture.claim(ask.clone(), 10).await), [last]);
    assert_eq!(ids(fixture.claim(ask.clone(), 10).await), []);
    // The pause ends at its end time.
    assert_eq!(fixture.claim(ask, 50).await[0].project_id, "paused");
}

#[tokio::test]
async fn repeated_claim_returns_same_runs_and_dead_worker_gets_none() {
    let fixture = KernelFixture::new().await;
    for secs in 0..3 {
        fixture.queue(shop(), secs).await;
    }
    let worker_id = fixture.register(0).await;
    let ask = ClaimRuns {
        limit: 2,
        worker_id: Some(worker_id),
        request_id: Some("r1".to_owned()),
        ..ClaimRuns::one("w")
    };
    let first = fixture.claim(ask.clone(), 5).await;
    assert_eq!(first, fixture.claim(ask.clone(), 6).await);
    assert_eq!(first.len(), 2);

    // After too long a silence the runs go to other workers at once, and the heartbeat is refused.
    let swept = fixture.sweep(21).await;
    assert_eq!(swept.iter().map(|one| one.action).collect::<Vec<_>>(), [EndCause::Stale; 2]);
    let reason = fixture.run(&swept[0].run_id).await.metadata["reason"].clone();
    assert_eq!(reason, "Stale run (its worker died before the first event)");
    let error = fixture.store.claim_runs(ask, Some(at(22))).await.unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("Stop its commands, and register again."));
    assert_eq!(code(Err::<(), _>(error)), RefusalCode::Stale);
}

#[tokio::test]
async fn concurrency_key_is_held_by_one_run_and_passed_on_at_its_end() {
    let mut fixture = KernelFixture::new().await;
    let keyed = |priority| QueueRun { concurrency_key: Some("db".to_owned()), priority, ..shop() };
    let low = fixture.queue(keyed(0), 0).await;
    let high = fixture.queue(keyed(5), 1).await;
    let middle = fixture.queue(keyed(3), 2).await;
    let gates = async |fixture: &KernelFixture| {
        let mut gates = Vec::new();
        for run in [&low, &high, &middle] {
            gates.push(fixture.run(run).await.gate);
        }
        gates
    };
    // An unclaimed head gives way to a higher priority.
    assert_eq!(gates(&fixture).await, [Some(Gate::Key), Some(Gate::Open), Some(Gate::Key)]);
    let claims = fixture.claim(ClaimRuns { limit: 9, ..ClaimRuns::one("w") }, 3).await;
    assert_eq!(claims.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&high]);
    fixture.finish(&high, FinalStatus::Success, json!({}), 4).await;
    assert_eq!(gates(&fixture).await, [Some(Gate::Key), None, Some(Gate::Open)]);
    // A plain UPDATE also passes the key on, for each of its rows.
    assert_eq!(fixture.sql("UPDATE runs SET status = 'cancelled' WHERE gate IS NOT NULL").await.unwrap(), 2);
    assert_eq!(gates(&fixture).await, [None, None, None]);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM concurrency_keys")
        .fetch_one(&mut fixture.plain)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn delayed_run_is_opened_by_claim_or_sweep_and_takes_its_key() {
    let fixture = KernelFixture::new().await;
    let later = |key: Option<&str>| QueueRun {
        available_at: Some(at(60)),
        concurrency_key: key.map(str::to_owned),
        ..shop()
    };
    let free = fixture.queue(later(None), 0).await;
    let keyed = fixture.queue(later(Some("db")), 0).await;
    let holder = fixture.queue(QueueRun { concurrency_key: Some("db".to_owned()), ..shop() }, 1).await;
    assert_eq!(fixture.run(&free).await.gate, Some(Gate::Time));
    assert_eq!(fixture.claim_one(59).await.run_id, holder);
    assert_eq!(fixture.claim_one(60).await.run_id, free);
    assert_eq!(fixture.run(&keyed).await.gate, Some(Gate::Key));
    let last = fixture.queue(QueueRun { available_at: Some(at(90)), ..shop() }, 61).await;
    assert_eq!(fixture.sweep(90).await, []);
    assert_eq!(fixture.run(&last).await.gate, Some(Gate::Open));
}
