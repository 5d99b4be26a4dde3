//! A lock on the user's table while a sync writes it.

use super::fixture::{COLUMNS, TrustFixture, records};
use serde_json::json;
use std::time::Duration;
use tidemill_core::run::RunState;
use tidemill_testkit::interface::{Kind, PlainSql};

/// Time of the lock on PostgreSQL: longer than a batch waits for it. SQLite has one lock for all, so it is short.
const LOCKED: Duration = Duration::from_secs(7);
const LOCKED_SQLITE: Duration = Duration::from_secs(2);

/// Locks the table for a while.
async fn lock(plain: &PlainSql) {
    match plain {
        PlainSql::Postgres(pool) => {
            let mut tx = pool.begin().await.expect("a transaction");
            let locked =
                sqlx::raw_sql("LOCK TABLE public.items IN ACCESS EXCLUSIVE MODE").execute(&mut *tx).await;
            locked.expect("the table is locked");
            tokio::time::sleep(LOCKED).await;
            tx.commit().await.expect("the lock is released");
        }
        PlainSql::Sqlite(pool) => {
            let tx = pool.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
            tokio::time::sleep(LOCKED_SQLITE).await;
            tx.commit().await.expect("the lock is released");
        }
    }
}

pub(crate) async fn lock_of_some_seconds_delays_the_sync_alone(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply_text(&fixture.definition("", "", COLUMNS)).await;
    fixture.sync(true).await;
    fixture.api.change(|all| all.iter_mut().for_each(|record| record["note"] = json!("changed")));
    fixture.api.hold();
    let run = fixture.queue(true).await;
    let plain = fixture.base.base.plain.clone();
    let locked = tokio::spawn(async move { lock(&plain).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    fixture.api.release();
    // The message of a sync that waits for the lock counts one delivery, as any message that is processed.
    let text =
        "SELECT CAST(coalesce(max(deliveries), 0) AS bigint) FROM {ops}.messages WHERE queue = 'consolidate'";
    let mut deliveries = 0;
    while !locked.is_finished() {
        deliveries = deliveries.max(fixture.base.base.plain.number(text).await.expect("deliveries are read"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    locked.await.expect("the lock is taken and released");
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert!(deliveries <= 1, "a lock used up {deliveries} deliveries");
    assert_eq!(fixture.rows("note = 'changed'").await, 60);
    fixture.close().await;
}
