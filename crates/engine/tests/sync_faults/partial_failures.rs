//! Syncs that fail halfway, and concurrent syncs.

use tidemill_core::feed::RunType;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::PagerOptions;
use tidemill_supplier::{Change, ChangeKind, Supplier};
use tidemill_testkit::sync_fixture::{Roles, SyncFixture};
use tokio::time::Instant;

use crate::fixture::{
    RoleSet, Subject, ended, fixture, open, planned, settings, slow, stored, succeeded, until,
};

/// Fails a sync once it has stored this many records, and checks the watermark.
async fn fails_at_half(fixture: &SyncFixture, full: bool, half: i64) {
    let before = fixture.base.store.feed(fixture.feed.clone()).await.expect("the feed is read");
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 15);
    let run = fixture.queue(full).await;
    let sync = planned(fixture, &run).await;
    until("half of it is stored", || async { stored(fixture, &sync).await >= half }).await;
    fixture.supplier.handle.behave(|behaviour| (behaviour.html, behaviour.latency_ms) = (true, 0));
    let last = ended(fixture, &run).await;
    assert_eq!(last.status, RunState::Failed, "{}", last.metadata);
    fixture.supplier.handle.behave(|behaviour| behaviour.html = false);
    let after = fixture.base.store.feed(sync.feed.clone()).await.expect("the feed is read");
    assert_eq!(after.watermark, before.watermark, "a failed sync leaves the watermark");
    let sync = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
    assert_eq!(sync.state, SyncState::Failed);
    assert!(sync.failed_workers > 0, "{sync:?}");
}

/// Sync A stores half of the changes and fails. Sync B finds no changes since, neither at the source nor among the
/// stored records: the records of A must still reach the table.
pub(crate) async fn records_of_a_failed_sync_are_consolidated_by_the_next(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let roles = RoleSet::full(&fixture.syncs);
    let first = fixture.queue(true).await;
    succeeded(&fixture, &first).await;
    for what in [ChangeKind::Price, ChangeKind::Media] {
        fixture.supplier.handle.change(&Change::random(what, 400, 1)).expect("records change");
    }
    fails_at_half(&fixture, false, 200).await;
    let run = fixture.queue(false).await;
    let done = succeeded(&fixture, &run).await;
    assert_eq!(done.run_type, RunType::Incremental);
    fixture.check_equal().await;
    roles.stop().await;
}

pub(crate) async fn half_failed_first_sync_is_completed_by_the_next(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let roles = RoleSet::full(&fixture.syncs);
    fails_at_half(&fixture, true, 700).await;
    let run = fixture.queue(false).await;
    let done = succeeded(&fixture, &run).await;
    assert_eq!(done.run_type, RunType::Full, "there is no watermark to begin from");
    fixture.check_equal().await;
    roles.stop().await;
}

/// One worker with two slots: a long full sync uses both when a short sync of another feed arrives.
pub(crate) async fn full_sync_does_not_starve_an_incremental_sync(subject: impl Into<Subject>) {
    let fixture = open(subject, slow(6_000, 25), settings()).await;
    let other = Supplier::bind(slow(200, 0)).await.expect("the supplier listens").spawn();
    fixture.add_feed("other", &other.endpoint).await;
    let mut roles = Roles::none();
    roles.scheduler(&fixture.syncs);
    roles.worker(&fixture.syncs, PagerOptions { pages_max: 2, ..PagerOptions::default() });
    roles.consolidator(&fixture.syncs);
    let first = fixture.syncs.start("other", true, None).await.expect("the sync is queued").run_id;
    succeeded(&fixture, &first).await;

    let long = fixture.queue(true).await;
    let sync = planned(&fixture, &long).await;
    until("the full sync is under way", || async { stored(&fixture, &sync).await > 300 }).await;
    other.handle.change(&Change::random(ChangeKind::Price, 40, 1)).expect("prices change");
    let began = Instant::now();
    let short = fixture.syncs.start("other", false, None).await.expect("the sync is queued").run_id;
    let short = succeeded(&fixture, &short).await;
    let (took, rest) = (began.elapsed(), 6_000 - stored(&fixture, &sync).await);
    let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
    println!(
        "{:?}: the incremental sync took {took:?}; {rest} records of the full one were still to come",
        fixture.base.kind
    );
    assert_eq!((short.run_type, now.state), (RunType::Incremental, SyncState::WorkersRunning));
    assert!(rest > 3_000, "{took:?}, {rest} records left");
    succeeded(&fixture, &long).await;
    fixture.check_equal().await;
    roles.stop().await;
    other.stop().await;
}
