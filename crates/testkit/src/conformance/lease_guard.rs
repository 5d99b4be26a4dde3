//! PostgreSQL only: `lease_guard` in a user's transaction, and one clock for all hosts.

use chrono::TimeDelta;
use serde_json::json;
use sqlx::postgres::PgPool;
use tidemill_core::run::{ChangeOutcome, FinalStatus, RunState};
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::clock::host_now;
use tidemill_store::{ClaimRuns, Error, Holder, RefusalCode};
use tokio::sync::oneshot;

use super::unknown_run;
use crate::interface::{Fixture, PlainSql, at, info, refused, request};

fn pool(fixture: &Fixture) -> &PgPool {
    match &fixture.plain {
        PlainSql::Postgres(pool) => pool,
        PlainSql::Sqlite(_) => panic!("SQLite has one writer, which needs no guard"),
    }
}

fn failed(source: sqlx::Error) -> Error {
    Error::database("write business rows", source)
}

/// Opens a worker's transaction with a business row, guarded by its lease; returns the open transaction.
async fn business(
    pool: &PgPool,
    run: &RunId,
    epoch: Option<i32>,
) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, Error> {
    let mut transaction = pool.begin().await.map_err(failed)?;
    let insert = sqlx::query("INSERT INTO public.business (run_id) VALUES ($1)").bind(run.as_str());
    insert.execute(&mut *transaction).await.map_err(failed)?;
    let guard = sqlx::query("SELECT ops.lease_guard($1, $2)").bind(run.as_str()).bind(epoch);
    match guard.execute(&mut *transaction).await {
        Ok(_) => Ok(transaction),
        Err(refusal) => {
            // Awaited, so that no lock remains when this returns.
            transaction.rollback().await.map_err(failed)?;
            Err(failed(refusal))
        }
    }
}

async fn make_table(fixture: &Fixture) {
    let made = fixture.plain.execute("CREATE TABLE public.business (run_id text NOT NULL)").await;
    assert!(made.is_ok());
}

async fn business_rows(fixture: &Fixture) -> Option<i64> {
    fixture.plain.number("SELECT count(*) FROM public.business").await.ok()
}

/// Business writes of a zombie abort, because its run has ended or its epoch is not current.
pub async fn f6_lease_guard_aborts_the_transaction_of_a_zombie(fixture: Fixture) {
    make_table(&fixture).await;
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let run = &claim.run_id;
    let Ok(live) = business(pool(&fixture), run, Some(claim.epoch)).await else {
        panic!("the guard refused")
    };
    assert!(live.rollback().await.is_ok());
    refused(business(pool(&fixture), run, Some(claim.epoch + 1)).await.map(|_| ()), RefusalCode::Stale);
    refused(business(pool(&fixture), &unknown_run(), None).await.map(|_| ()), RefusalCode::UnknownRun);
    assert_eq!(fixture.sweep(at(300)).await.len(), 1);
    for epoch in [None, Some(claim.epoch)] {
        refused(business(pool(&fixture), run, epoch).await.map(|_| ()), RefusalCode::Stale);
    }
    let waits = fixture.queue(request(), at(301)).await;
    refused(business(pool(&fixture), &waits, None).await.map(|_| ()), RefusalCode::Stale);
    assert_eq!(business_rows(&fixture).await, Some(0));
}

pub async fn open_guard_blocks_the_sweeper_but_not_the_heartbeat(fixture: Fixture) {
    make_table(&fixture).await;
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let run = &claim.run_id;
    let Ok(open) = business(pool(&fixture), run, Some(claim.epoch)).await else {
        panic!("the guard refused")
    };
    assert!(fixture.sweep(at(400)).await.is_empty(), "the run is skipped");
    assert!(fixture.heartbeat(run, at(401)).await.held);
    assert!(fixture.append_event(run, info("still here"), at(402)).await.is_some());
    assert!(open.commit().await.is_ok());
    assert_eq!(business_rows(&fixture).await, Some(1));
    // After a rollback the guard is gone.
    let Ok(open) = business(pool(&fixture), run, Some(claim.epoch)).await else {
        panic!("the guard refused")
    };
    assert!(fixture.sweep(at(800)).await.is_empty());
    assert!(open.rollback().await.is_ok());
    assert_eq!(fixture.sweep(at(800)).await.len(), 1);
    assert_eq!(business_rows(&fixture).await, Some(1));
}

/// A cancel by another caller ends the lease, so it waits for the guarded transaction.
pub async fn cancel_by_finish_waits_for_an_open_guard(fixture: Fixture) {
    make_table(&fixture).await;
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let Ok(open) = business(pool(&fixture), &claim.run_id, Some(claim.epoch)).await else {
        panic!("refused")
    };
    let (ended, mut end) = oneshot::channel();
    let (other, run) = (fixture.clone(), claim.run_id.clone());
    let task = tokio::spawn(async move {
        let answer = other.finish(&run, FinalStatus::Cancelled, json!({}), at(1)).await;
        let _ = ended.send(answer);
    });
    wait_until_blocked(pool(&fixture)).await;
    assert!(end.try_recv().is_err(), "the cancel did not wait");
    assert_eq!(fixture.status(&claim.run_id).await, RunState::Running);
    assert!(open.commit().await.is_ok());
    assert_eq!(end.await.ok(), Some(ChangeOutcome::Applied));
    assert!(task.await.is_ok());
    assert_eq!(business_rows(&fixture).await, Some(1));
}

/// Returns when a session of this database waits for a lock.
async fn wait_until_blocked(pool: &PgPool) {
    let text = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..10_000 {
        let blocked: Result<i64, _> = sqlx::query_scalar(text).persistent(false).fetch_one(pool).await;
        if blocked.is_ok_and(|count| count > 0) {
            return;
        }
    }
    panic!("no session waits for a lock");
}

fn an_hour_ahead() -> Timestamp {
    host_now() + TimeDelta::hours(1)
}

/// The database clock decides. The host with the wrong clock sweeps no live run, claims in the same order, and gets
/// leases of normal length.
pub async fn host_clock_an_hour_ahead_steals_no_run(fixture: Fixture) {
    let fast = fixture.open_second_store_with_clock(an_hour_ahead).await;
    let store = &fixture.store;
    let worker = crate::interface::new_worker("worker-001");
    let process = worker.worker_id;
    assert!(store.register_worker(worker, None).await.is_ok());
    let mut runs = Vec::new();
    for (queue, clock) in [(&fast, an_hour_ahead()), (store, host_now())] {
        let queued = queue.queue_run(request(), crate::interface::new_run_id(clock), None).await;
        let Ok(queued) = queued else { panic!("not queued") };
        runs.push(queued.run_id);
    }
    let ask = ClaimRuns { worker_id: Some(process), ..ClaimRuns::one("worker-001") };
    let claims = store.claim_runs(ask, None).await.unwrap_or_default();
    assert_eq!(
        claims.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(),
        [&runs[0]],
        "the first one first"
    );
    let claimed = fast.claim_runs(ClaimRuns::one("worker-002"), None).await.unwrap_or_default();
    assert_eq!(claimed.len(), 1);
    let lease = claimed[0].lease_until - claims[0].lease_until;
    assert!(lease.abs() < TimeDelta::minutes(1), "the leases are {lease} apart");
    let swept = fast.sweep(500, 20.0, None).await;
    assert!(swept.is_ok_and(|swept| swept.is_empty()), "the fast host took something away");
    assert!(store.sweep(500, 20.0, None).await.is_ok_and(|swept| swept.is_empty()));
    let beat = fast.heartbeat_worker(process, vec![runs[0].clone()], None).await;
    assert!(beat.is_ok_and(|beaten| beaten.held[0].held));
    let held = fast.heartbeat(runs[1].clone(), Holder::default(), None).await;
    assert!(held.is_ok_and(|held| held.held));
    for run in runs {
        assert_eq!(fixture.status(&run).await, RunState::Claimed);
    }
}
