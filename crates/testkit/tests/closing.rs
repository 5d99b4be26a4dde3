//! A store that is closed while others still use it: it ends, and takes nobody with it.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tidemill_core::run::{FinalStatus, FinishRun, RunState};
use tidemill_engine::clock::host_now;
use tidemill_store::{Options, Store};
use tidemill_testkit::door::{Kind, Stage, at, request};

/// How long anything may take; reached only by a failure.
const PATIENCE: Duration = Duration::from_mins(1);

/// Rounds of the race.
const ROUNDS: u64 = 60;

async fn a_store_closes_while_calls_are_on_their_way(kind: Kind) {
    let stage = Stage::open(kind).await;
    for round in 0..ROUNDS {
        let store = Store::open(&Options::new(stage.url.clone(), host_now)).await.expect("the store opens");
        let callers: Vec<_> = (0..6)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { while store.now(None).await.is_ok() {} })
            })
            .collect();
        tokio::time::sleep(Duration::from_micros(500 * (round % 8))).await;
        tokio::time::timeout(PATIENCE, store.close()).await.expect("the store closes");
        for caller in callers {
            let ended = tokio::time::timeout(PATIENCE, caller).await;
            ended.expect("a caller learns of it").expect("a caller ends");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    a_store_closes_while_calls_are_on_their_way(Kind::Postgres).await;
}

/// The sessions of a store, by the numbers that the server gave them.
async fn sessions(stage: &Stage) -> Vec<String> {
    let read = "SELECT pid::text FROM pg_stat_activity \
                WHERE application_name = 'tidemill' AND datname = current_database() ORDER BY pid";
    stage.plain.texts(read).await.expect("the sessions are read")
}

/// Waits until a session of the store waits for a lock.
async fn until_locked_out(stage: &Stage) {
    let read = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidemill' \
                AND datname = current_database() AND wait_event_type = 'Lock'";
    let begun = std::time::Instant::now();
    while stage.plain.number(read).await.expect("the sessions are counted") == 0 {
        assert!(begun.elapsed() < PATIENCE, "nobody waits for the lock");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whoever asked for a step went away in the middle of it: the step is brought to its end, and its session goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_nobody_waits_for_is_brought_to_its_end() {
    let stage = Stage::open(Kind::Postgres).await;
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let before = sessions(&stage).await;
    let mut other = PgConnection::connect(&stage.url).await.expect("another connects");
    let mut lock = other.begin().await.expect("a transaction begins");
    let text = "SELECT FROM ops.runs WHERE run_id = $1 FOR UPDATE";
    sqlx::query(text).bind(run.as_str()).execute(&mut *lock).await.expect("the run is locked");
    let end =
        FinishRun { run_id: run.clone(), status: FinalStatus::Success, metadata: json!({}), epoch: None };
    tokio::select! {
        done = stage.store.finish_runs(vec![end], None, Some(at(1))) => panic!("it waits for the lock: {done:?}"),
        () = until_locked_out(&stage) => {}
    }
    lock.rollback().await.expect("the lock is let go");
    let begun = std::time::Instant::now();
    while stage.status(&run).await != RunState::Success {
        assert!(begun.elapsed() < PATIENCE, "the step was broken off");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let after = sessions(&stage).await;
    assert!(before.iter().all(|session| after.contains(session)), "{before:?} became {after:?}");
}
