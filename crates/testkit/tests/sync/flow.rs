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
    // What changed, and what had changed so shortly before the first sync that it is read again.
    let since = second.updated_from.expect("an incremental sync has a beginning");
    let read = mill.supplier.handle.truth().into_iter().filter(|stone| stone.updated_at >= since).count();
    assert_eq!(usize::try_from(second.consolidation_processed).unwrap_or(0), read, "{second:?}");
    assert!(changed.ids.len() == 120 && (120..1_000).contains(&read), "{read}");
    mill.check_equal().await;

    mill.supplier.handle.change(&Change::some(What::Vanish, 50, 2)).expect("stones vanish");
    let third = mill.sync(true).await;
    assert_eq!((third.run_type, third.deleted), (RunType::Full, 50));
    mill.check_equal().await;
    assert_eq!(mill.rows("deleted").await.len(), 50);
    roles.stop().await;
}

/// Lets time pass for every sync, until it is older than syncs are kept.
async fn age(mill: &Mill) {
    let moment = match mill.stage.kind {
        Kind::Sqlite => "updated_at - 40 * 86400 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "updated_at - interval '40 days'",
    };
    let text = format!("UPDATE run_metadata SET updated_at = {moment}");
    mill.stage.plain.execute(&text).await.expect("time passes");
}

/// A feed that is only ever synced incrementally: its old syncs go all the same, but for the one full sync.
pub(crate) async fn incremental_syncs_go_where_nobody_runs_full_ones(kind: Kind) {
    let mill = Mill::open(kind, 200).await;
    let roles = mill.roles();
    let full = mill.sync(false).await;
    assert_eq!(full.run_type, RunType::Full);
    for seed in 1..3 {
        mill.supplier.handle.change(&Change::some(What::Price, 20, seed)).expect("prices change");
        assert_eq!(mill.sync(false).await.run_type, RunType::Incremental);
    }
    roles.stop().await;
    age(&mill).await;
    assert_eq!(mill.syncs.prune().await.expect("old syncs go"), 2);
    let left = mill.stage.store.syncs(None, 10).await.expect("the syncs are read");
    assert_eq!(left.iter().map(|sync| sync.run_id).collect::<Vec<_>>(), [full.run_id]);
    assert_eq!(mill.syncs.prune().await.expect("nothing is left to go"), 0);
}

/// Syncs that ended long ago go, with their partitions and pages; the last full one of the feed stays.
pub(crate) async fn what_ended_long_ago_is_removed(kind: Kind) {
    let mill = Mill::open(kind, 200).await;
    let roles = mill.roles();
    let old = mill.sync(true).await;
    let kept = mill.sync(true).await;
    roles.stop().await;
    let plain = &mill.stage.plain;
    assert_eq!(mill.syncs.prune().await.expect("nothing is old"), 0);
    age(&mill).await;
    assert_eq!(mill.syncs.prune().await.expect("the old sync goes"), 1);
    let left = |table: &str| format!("SELECT count(*) FROM {table} WHERE run_id = '{}'", old.run_id);
    for table in ["run_metadata", "partition_progress", "worker_runs", "{ops}.pages"] {
        assert_eq!(plain.number(&left(table)).await.expect("the table is read"), 0, "{table}");
    }
    assert_eq!(mill.stage.store.partitions(kept.run_id).await.expect("it is there").len(), 1);
    mill.check_equal().await;
}
