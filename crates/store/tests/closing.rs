//! Connections of a store: it is closed while it is in use, a caller goes away, a call is refused.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tidemill_core::run::{FinalStatus, FinishRun, RunState};
use tidemill_engine::clock::host_now;
use tidemill_store::{Options, Store};
use tidemill_testkit::interface::{Fixture, Kind, at, request};

/// Time limit for every wait; reached only by a failure.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Rounds of the race.
const ROUNDS: u64 = 60;

async fn store_closes_while_calls_are_in_flight(kind: Kind) {
    let fixture = Fixture::open(kind).await;
    for round in 0..ROUNDS {
        let store = Store::open(&Options::new(fixture.url.clone(), host_now)).await.expect("the store opens");
        let callers: Vec<_> = (0..6)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { while store.now(None).await.is_ok() {} })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(500 * (round % 8))).await;
        tokio::time::timeout(TIMEOUT, store.close()).await.expect("the store closes");
        for caller in callers {
            let ended = tokio::time::timeout(TIMEOUT, caller).await;
            ended.expect("a caller learns of it").expect("a caller ends");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    store_closes_while_calls_are_in_flight(Kind::Postgres).await;
}

/// Returns the server process ids of the store's sessions.
async fn sessions(fixture: &Fixture) -> Vec<String> {
    let read = "SELECT pid::text FROM pg_stat_activity \
                WHERE application_name = 'tidemill' AND datname = current_database() ORDER BY pid";
    fixture.plain.texts(read).await.expect("the sessions are read")
}

/// Waits until a session of the store waits for a lock.
async fn until_locked_out(fixture: &Fixture) {
    let read = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidemill' \
                AND datname = current_database() AND wait_event_type = 'Lock'";
    let begun = std::time::Instant::now();
    while fixture.plain.number(read).await.expect("the sessions are counted") == 0 {
        assert!(begun.elapsed() < TIMEOUT, "nobody waits for the lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The caller is cancelled in the middle of a transaction: the transaction completes, and its session is reused.
#[tokio::test(flavor = "multi_thread")]
async fn transaction_of_a_cancelled_caller_completes() {
    let fixture = Fixture::open(Kind::Postgres).await;
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let before = sessions(&fixture).await;
    let mut other = PgConnection::connect(&fixture.url).await.expect("another connects");
    let mut lock = other.begin().await.expect("a transaction begins");
    let text = "SELECT FROM ops.runs WHERE run_id = $1 FOR UPDATE";
    sqlx::query(text).bind(run.as_str()).execute(&mut *lock).await.expect("the run is locked");
    let end =
        FinishRun { run_id: run.clone(), status: FinalStatus::Success, metadata: json!({}), epoch: None };
    tokio::select! {
        done = fixture.store.finish_runs(vec![end], None, Some(at(1))) => panic!("it waits for the lock: {done:?}"),
        () = until_locked_out(&fixture) => {}
    }
    lock.rollback().await.expect("the lock is let go");
    let begun = std::time::Instant::now();
    while fixture.status(&run).await != RunState::Success {
        assert!(begun.elapsed() < TIMEOUT, "the step was broken off");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let after = sessions(&fixture).await;
    assert!(before.iter().all(|session| after.contains(session)), "{before:?} became {after:?}");
}

/// PostgreSQL reports an error before it releases the locks of the transaction. A second session could find them.
#[tokio::test]
async fn call_after_a_refusal_uses_the_same_session() {
    let fixture = Fixture::open(Kind::Postgres).await.with_one_connection().await;
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let before = sessions(&fixture).await;
    for second in 1..20 {
        let refused = fixture.store.retry_run(run.clone(), "ann".to_owned(), Some(at(second))).await;
        assert!(refused.expect_err("the run is not over").refusal_code().is_some());
        assert_eq!(sessions(&fixture).await, before);
    }
}
