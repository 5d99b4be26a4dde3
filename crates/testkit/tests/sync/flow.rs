//! The way of a feed into its table.

use tidemill_core::feed::RunType;
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::Mill;

/// A full sync brings everything, an incremental one what changed, and another full one marks what vanished.
pub(crate) async fn full_then_incremental_then_deleted(kind: Kind) {
    let mill = Mill::open(kind, 3_000).await;
    let roles = mill.roles();
    let first = mill.sync(false).await;
    assert_eq!(first.run_type, RunType::Full, "there is no watermark yet");
    assert_eq!((first.predicted, first.completed_workers), (3_000, first.expected_workers));
    mill.check_equal().await;

    let changed = mill.supplier.handle.change(&Change::some(What::Price, 120, 1)).expect("prices change");
    let second = mill.sync(false).await;
    assert_eq!(second.run_type, RunType::Incremental);
    assert!(second.consolidation_processed < 1_000, "{second:?}");
    assert_eq!(changed.ids.len(), 120);
    mill.check_equal().await;

    mill.supplier.handle.change(&Change::some(What::Vanish, 50, 2)).expect("stones vanish");
    let third = mill.sync(true).await;
    assert_eq!((third.run_type, third.deleted), (RunType::Full, 50));
    mill.check_equal().await;
    assert_eq!(mill.rows("deleted").await.len(), 50);
    roles.stop().await;
}

/// Syncs that ended long ago go, with their partitions and pages; the last full one of the feed stays.
pub(crate) async fn what_ended_long_ago_is_removed(kind: Kind) {
    let mill = Mill::open(kind, 200).await;
    let roles = mill.roles();
    let old = mill.sync(true).await;
    let kept = mill.sync(true).await;
    roles.stop().await;
    let plain = &mill.stage.plain;
    let moment = match kind {
        Kind::Sqlite => "updated_at - 40 * 86400 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "updated_at - interval '40 days'",
    };
    assert_eq!(mill.syncs.prune().await.expect("nothing is old"), 0);
    plain.execute(&format!("UPDATE run_metadata SET updated_at = {moment}")).await.expect("time passes");
    assert_eq!(mill.syncs.prune().await.expect("the old sync goes"), 1);
    let left = |table: &str| format!("SELECT count(*) FROM {table} WHERE run_id = '{}'", old.run_id);
    for table in ["run_metadata", "partition_progress", "worker_runs", "{ops}.pages"] {
        assert_eq!(plain.number(&left(table)).await.expect("the table is read"), 0, "{table}");
    }
    assert_eq!(mill.stage.store.partitions(kept.run_id).await.expect("it is there").len(), 1);
    mill.check_equal().await;
}
