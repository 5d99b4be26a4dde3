//! The complete path of a feed into its table.

use tidemill_core::feed::RunType;
use tidemill_engine::sync::SyncSettings;
use tidemill_store::Queue as _;
use tidemill_supplier::{Change, ChangeKind, Config};
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::sync_fixture::{SyncFixture, quick};

/// A full sync stores everything, an incremental one the changes, and another full one marks vanished records.
pub(crate) async fn full_and_incremental_syncs_update_and_delete(kind: Kind) {
    let fixture = SyncFixture::open(kind, 3_000).await;
    let roles = fixture.roles();
    let first = fixture.sync(false).await;
    assert_eq!(first.run_type, RunType::Full, "there is no watermark yet");
    assert_eq!((first.predicted, first.completed_workers), (3_000, first.expected_workers));
    fixture.check_equal().await;

    let changed =
        fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 120, 1)).expect("prices change");
    let second = fixture.sync(false).await;
    assert_eq!(second.run_type, RunType::Incremental);
    // The changes, and those shortly before the first sync, which are read again.
    let since = second.updated_from.expect("an incremental sync has a beginning");
    let read =
        fixture.supplier.handle.truth().into_iter().filter(|record| record.updated_at >= since).count();
    assert_eq!(usize::try_from(second.consolidation_processed).unwrap_or(0), read, "{second:?}");
    assert!(changed.ids.len() == 120 && (120..1_000).contains(&read), "{read}");
    fixture.check_equal().await;

    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 50, 2)).expect("records vanish");
    let third = fixture.sync(true).await;
    assert_eq!((third.run_type, third.deleted), (RunType::Full, 50));
    fixture.check_equal().await;
    assert_eq!(fixture.rows("deleted").await.len(), 50);
    roles.stop().await;
}

/// The server passes no time to the SQL functions: a login without the clock role owns the database, and its syncs
/// complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn owner_without_clock_role_completes_a_sync() {
    let settings = SyncSettings { unlimited: true, ..quick() };
    let config = Config { stones: 300, ..SyncFixture::config() };
    let fixture = SyncFixture::on(Fixture::open_as_plain_owner().await, config, settings).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    fixture.check_equal().await;
    roles.stop().await;
    fixture.base.store.release_dead(None).await.expect("locks of ended workers are released");
}

/// Moves the clock past the retention of syncs.
async fn age(fixture: &SyncFixture) {
    let moment = match fixture.base.kind {
        Kind::Sqlite => "updated_at - 40 * 86400 * 1000000",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "updated_at - interval '40 days'",
    };
    let text = format!("UPDATE run_metadata SET updated_at = {moment}");
    fixture.base.plain.execute(&text).await.expect("time passes");
}

/// A feed with incremental syncs only: its old syncs are still pruned, except for the full one and the last one.
pub(crate) async fn incremental_sync_without_recent_full_sync_completes(kind: Kind) {
    let fixture = SyncFixture::open(kind, 200).await;
    let roles = fixture.roles();
    let full = fixture.sync(false).await;
    assert_eq!(full.run_type, RunType::Full);
    let mut last = full.run_id;
    for seed in 1..4 {
        fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 20, seed)).expect("prices change");
        let sync = fixture.sync(false).await;
        assert_eq!(sync.run_type, RunType::Incremental);
        last = sync.run_id;
    }
    roles.stop().await;
    age(&fixture).await;
    assert_eq!(fixture.syncs.prune().await.expect("old syncs go"), 2);
    let left = fixture.base.store.syncs(None, 10).await.expect("the syncs are read");
    assert_eq!(left.iter().map(|sync| sync.run_id).collect::<Vec<_>>(), [last, full.run_id]);
    assert_eq!(fixture.syncs.prune().await.expect("no row is left to prune"), 0);
}

/// With their partitions and pages; the last full sync of the feed stays.
pub(crate) async fn old_syncs_are_pruned(kind: Kind) {
    let fixture = SyncFixture::open(kind, 200).await;
    let roles = fixture.roles();
    let old = fixture.sync(true).await;
    let stored = fixture.sync(true).await;
    roles.stop().await;
    let plain = &fixture.base.plain;
    assert_eq!(fixture.syncs.prune().await.expect("no row is old"), 0);
    age(&fixture).await;
    assert_eq!(fixture.syncs.prune().await.expect("the old sync goes"), 1);
    let left = |table: &str| format!("SELECT count(*) FROM {table} WHERE run_id = '{}'", old.run_id);
    for table in ["run_metadata", "partition_progress", "worker_runs", "{ops}.pages"] {
        assert_eq!(plain.number(&left(table)).await.expect("the table is read"), 0, "{table}");
    }
    assert_eq!(fixture.base.store.partitions(stored.run_id).await.expect("it is there").len(), 1);
    fixture.check_equal().await;
}
