//! From the request to the claim: keys, shelves, priorities, time, concurrency.

use crate::bench::{Bench, at, code, info, shop};
use serde_json::{Value, json};
use tidemill_core::project::{Flag, FlagName, FlagSource, project_scope};
use tidemill_core::run::{Applied, Claim, EndCause, FinalStatus, Gate, QueueRun, RunState};
use tidemill_core::{RunId, limits};
use tidemill_store::{ClaimRuns, Holder, RefusalCode};
use uuid::Uuid;

#[tokio::test]
async fn a_run_goes_from_queued_to_success_and_each_step_is_on_record() {
    let mut bench = Bench::new().await;
    let run = bench.queue(QueueRun { metadata: json!({"deploy": "api"}), ..shop() }, 0).await;
    let claim = bench.claim_one(1).await;
    assert_eq!((&claim.run_id, claim.epoch, claim.lease_until), (&run, 1, at(301)));
    let id = format!("evt-{}-4", &run.as_str()[4..]);
    assert_eq!(bench.append(&run, vec![info("building")], 2).await, [Some(id)]);
    assert_eq!(bench.finish(&run, FinalStatus::Success, json!({"exit": 0}), 3).await, Applied::Applied);

    let run = bench.run(&run).await;
    assert_eq!((run.status, run.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(run.metadata, json!({"deploy": "api", "exit": 0}));
    assert_eq!((run.gate, run.started_at, run.finished_at), (None, Some(at(1)), Some(at(3))));
    let record = bench.record(&run.run_id).await;
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
async fn one_key_is_one_run_and_another_request_under_it_is_refused() {
    let bench = Bench::new().await;
    let keyed = QueueRun {
        idempotency_key: Some("k".to_owned()),
        labels: vec!["x".to_owned(), "gpu".to_owned()],
        expires_at: Some(at(99)),
        metadata: json!({"n": 1}),
        ..shop()
    };
    let first = bench.try_queue(keyed.clone(), 0).await.unwrap();
    let mut again = QueueRun { labels: vec!["gpu".into(), "x".into(), "x".into()], ..keyed.clone() };
    again.metadata = json!({"n": 1.0});
    let second = bench.try_queue(again, 5).await.unwrap();
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((second.run_id, second.queued_at), (first.run_id.clone(), at(0)));
    assert_eq!(bench.run(&first.run_id).await.labels, ["gpu", "x"]);

    let other = bench.try_queue(QueueRun { priority: 1, ..keyed }, 6).await.unwrap_err();
    assert_eq!(other.hint().as_deref(), Some("Use another key for another request."));
    assert_eq!(code(Err::<(), _>(other)), RefusalCode::KeyConflict);
    // The caller's own id makes asking again the same, key or not; in another project it is taken.
    let id = RunId::new(at(7), Uuid::new_v4());
    for created in [true, false] {
        let queued = bench.store.queue_run(shop(), id.clone(), Some(at(7))).await.unwrap();
        assert_eq!((queued.run_id, queued.created), (id.clone(), created));
    }
    bench.store.create_project("other", vec!["staging".to_owned()], Some(at(0))).await.unwrap();
    let elsewhere = bench.store.queue_run(QueueRun::new("other", "staging"), id, Some(at(8))).await;
    assert_eq!(code(elsewhere), RefusalCode::KeyConflict);
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused_with_a_reason() {
    let bench = Bench::new().await;
    assert_eq!(code(bench.try_queue(QueueRun::new("none", "staging"), 0).await), RefusalCode::UnknownProject);
    let error = bench.try_queue(QueueRun::new("shop", "live"), 0).await.unwrap_err();
    assert_eq!(error.to_string(), "project `shop` has no environment `live`");
    assert_eq!(error.hint().as_deref(), Some("It has: staging"));
    let bad = QueueRun { max_attempts: 0, ..shop() };
    assert_eq!(code(bench.try_queue(bad, 0).await), RefusalCode::BadValue);
    let large = QueueRun { git_ref: Some("r".repeat(limits::KEY_BYTES_MAX + 1)), ..shop() };
    assert_eq!(code(bench.try_queue(large, 0).await), RefusalCode::TooLarge);
    let nobody: RunId = "run-none".parse().unwrap();
    assert_eq!(code(bench.store.start_run(nobody, Holder::default(), None).await), RefusalCode::UnknownRun);
}

#[tokio::test]
async fn shelves_are_merged_by_priority_and_age_and_what_does_not_fit_stays() {
    let bench = Bench::new().await;
    for project in ["paused", "other"] {
        bench.store.create_project(project, vec!["staging".to_owned()], Some(at(0))).await.unwrap();
    }
    let request = |project: &str, labels: &[&str], priority: i32| QueueRun {
        labels: labels.iter().map(ToString::to_string).collect(),
        priority,
        ..QueueRun::new(project, "staging")
    };
    let first = bench.queue(request("shop", &[], 0), 1).await;
    let second = bench.queue(request("shop", &["gpu"], 0), 2).await;
    let third = bench.queue(request("shop", &[], 0), 3).await;
    let last = bench.queue(request("shop", &["gpu"], -1), 4).await;
    let urgent = bench.queue(request("shop", &[], 9), 5).await;
    bench.queue(request("shop", &["arm", "gpu"], 99), 6).await;
    bench.queue(request("paused", &[], 99), 6).await;
    bench.queue(request("other", &[], 99), 6).await;
    let flag = Flag {
        flag: FlagName::Paused,
        scope: project_scope("paused"),
        note: None,
        since: at(0),
        until_at: Some(at(50)),
        set_by: None,
        source: FlagSource::Manual,
    };
    bench.store.set_flag(flag).await.unwrap();
    let ask = ClaimRuns {
        limit: 4,
        labels: vec!["gpu".to_owned()],
        projects: Some(vec!["shop".to_owned(), "paused".to_owned()]),
        ..ClaimRuns::one("w")
    };
    let ids = |claims: Vec<Claim>| claims.into_iter().map(|claim| claim.run_id).collect::<Vec<_>>();
    assert_eq!(ids(bench.claim(ask.clone(), 10).await), [urgent, first, second, third]);
    assert_eq!(ids(bench.claim(ask.clone(), 10).await), [last]);
    assert_eq!(ids(bench.claim(ask.clone(), 10).await), []);
    // The pause ends by itself.
    assert_eq!(bench.claim(ask, 50).await[0].project_id, "paused");
}

#[tokio::test]
async fn a_claim_asked_again_gives_the_same_runs_and_a_dead_worker_gets_none() {
    let bench = Bench::new().await;
    for secs in 0..3 {
        bench.queue(shop(), secs).await;
    }
    let worker_id = bench.register(0).await;
    let ask = ClaimRuns {
        limit: 2,
        worker_id: Some(worker_id),
        request_id: Some("r1".to_owned()),
        ..ClaimRuns::one("w")
    };
    let first = bench.claim(ask.clone(), 5).await;
    assert_eq!(first, bench.claim(ask.clone(), 6).await);
    assert_eq!(first.len(), 2);

    // Silent for too long: its runs go to others at once, and it is told so.
    let swept = bench.sweep(21).await;
    assert_eq!(swept.iter().map(|one| one.action).collect::<Vec<_>>(), [EndCause::Stale; 2]);
    let reason = bench.run(&swept[0].run_id).await.metadata["reason"].clone();
    assert_eq!(reason, "Stale run (its worker died before the first event)");
    let error = bench.store.claim_runs(ask, Some(at(22))).await.unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("Stop what it runs, and register anew."));
    assert_eq!(code(Err::<(), _>(error)), RefusalCode::Stale);
}

#[tokio::test]
async fn one_run_of_a_key_is_out_at_a_time_and_every_end_passes_the_key_on() {
    let mut bench = Bench::new().await;
    let keyed = |priority| QueueRun { concurrency_key: Some("db".to_owned()), priority, ..shop() };
    let low = bench.queue(keyed(0), 0).await;
    let high = bench.queue(keyed(5), 1).await;
    let middle = bench.queue(keyed(3), 2).await;
    let gates = async |bench: &Bench| {
        let mut gates = Vec::new();
        for run in [&low, &high, &middle] {
            gates.push(bench.run(run).await.gate);
        }
        gates
    };
    // A head that nobody has claimed gives way to a higher priority.
    assert_eq!(gates(&bench).await, [Some(Gate::Key), Some(Gate::Open), Some(Gate::Key)]);
    let claims = bench.claim(ClaimRuns { limit: 9, ..ClaimRuns::one("w") }, 3).await;
    assert_eq!(claims.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&high]);
    bench.finish(&high, FinalStatus::Success, json!({}), 4).await;
    assert_eq!(gates(&bench).await, [Some(Gate::Key), None, Some(Gate::Open)]);
    // A plain statement passes it on too, for each of its rows.
    assert_eq!(bench.sql("UPDATE runs SET status = 'cancelled' WHERE gate IS NOT NULL").await.unwrap(), 2);
    assert_eq!(gates(&bench).await, [None, None, None]);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM concurrency_keys")
        .fetch_one(&mut bench.plain)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_run_that_must_wait_is_opened_by_a_claim_or_a_sweep_and_then_takes_its_key() {
    let bench = Bench::new().await;
    let later = |key: Option<&str>| QueueRun {
        available_at: Some(at(60)),
        concurrency_key: key.map(str::to_owned),
        ..shop()
    };
    let free = bench.queue(later(None), 0).await;
    let keyed = bench.queue(later(Some("db")), 0).await;
    let holder = bench.queue(QueueRun { concurrency_key: Some("db".to_owned()), ..shop() }, 1).await;
    assert_eq!(bench.run(&free).await.gate, Some(Gate::Time));
    assert_eq!(bench.claim_one(59).await.run_id, holder);
    assert_eq!(bench.claim_one(60).await.run_id, free);
    assert_eq!(bench.run(&keyed).await.gate, Some(Gate::Key));
    let last = bench.queue(QueueRun { available_at: Some(at(90)), ..shop() }, 61).await;
    assert_eq!(bench.sweep(90).await, []);
    assert_eq!(bench.run(&last).await.gate, Some(Gate::Open));
}
