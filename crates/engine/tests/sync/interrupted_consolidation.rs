//! A consolidation interrupted by new rules, or by a cancel.

use tidemill_core::pricing::PricingRule;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{ReplaceScope, SyncSettings};
use tidemill_supplier::{Change, ChangeKind, Config};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};

use crate::fixture::{many, number, partitions, planned, reload, run, seed_status, until, work};

/// Number of records, enough for several batches.
const RECORDS: u32 = 2_000;

async fn open(kind: Kind) -> SyncFixture {
    let settings = SyncSettings { batch: 20, upsert: 20, ..many() };
    SyncFixture::with(kind, Config { stones: RECORDS, ..SyncFixture::config() }, settings).await
}

/// Replaces the rules by one that doubles every price.
async fn double(fixture: &SyncFixture) {
    let rule = PricingRule {
        rule_id: 0,
        priority: 1,
        feed: None,
        stone_type: None,
        lab_grown: None,
        shapes: Vec::new(),
        points_min: None,
        points_max: None,
        price_min: None,
        price_max: None,
        markup: 20_000,
        rating: None,
        active: true,
    };
    fixture.syncs.add_rules(vec![rule], ReplaceScope::All, None).await.expect("the rules are replaced");
    fixture.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
}

/// Checks that every active record equals the source, at twice its price.
async fn check_doubled(fixture: &SyncFixture) {
    let rows = fixture.rows("active").await;
    let expected = fixture.expected();
    assert_eq!(rows.len(), expected.len());
    let wrong = rows.iter().filter(|(id, row)| {
        expected
            .get(*id)
            .is_none_or(|truth| (truth.feed_price * 2, &truth.sha256) != (row.retail_price, &row.sha256))
    });
    assert_eq!(wrong.count(), 0, "records are not at the price that was applied");
    assert_eq!(number(fixture, "SELECT count(DISTINCT rules_version) FROM diamonds").await, 1);
}

/// Returns the number of records that a sync has processed so far.
async fn looked_at(fixture: &SyncFixture, sync: &Sync) -> i64 {
    partitions(fixture, sync).await.iter().map(|partition| partition.consolidated).sum()
}

/// Starts a consolidation and stops its consolidator before the end.
async fn interrupted(fixture: &SyncFixture, full: bool) -> Sync {
    let sync = planned(fixture, full).await;
    work(fixture).await;
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    until("a batch is in the table", || async { looked_at(fixture, &sync).await > 0 }).await;
    roles.stop().await;
    let sync = reload(fixture, &sync).await;
    assert_eq!(sync.state, SyncState::Consolidating, "it was too quick");
    assert!(looked_at(fixture, &sync).await < i64::from(RECORDS));
    sync
}

/// Rules applied between two batches hold for every record: those priced before, those priced after, and new ones.
pub(crate) async fn rules_applied_between_batches_hold(kind: Kind) {
    let fixture = open(kind).await;
    let returned = fixture
        .supplier
        .handle
        .change(&Change::random(ChangeKind::Sell, 300, 1))
        .expect("records are sold")
        .ids;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::of_ids(ChangeKind::Return, returned)).expect("records return");
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 1_500, 2)).expect("prices change");
    let sync = interrupted(&fixture, true).await;
    double(&fixture).await;
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    assert_eq!(fixture.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    check_doubled(&fixture).await;
    let done = reload(&fixture, &sync).await;
    assert_eq!(done.consolidation_processed, i64::from(RECORDS), "no record is counted twice");
}

/// A cancel while batches are written: nothing more is written. The seeds' query has no word for it, but `state` shows
/// it. A retry finishes the sync with the rules applied meanwhile.
pub(crate) async fn cancel_during_consolidation_stops_it(kind: Kind) {
    let fixture = open(kind).await;
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    until("a batch is in the table", || async { looked_at(&fixture, &sync).await > 0 }).await;
    let stopped = fixture.syncs.cancel_sync(&sync.run_id.to_string(), "ann", Some("enough")).await;
    assert!(stopped.expect("it is cancelled"), "it was too quick");
    let orders = "SELECT count(*) FROM {ops}.messages WHERE queue = 'consolidate' AND state = 'live'";
    until("the consolidator let go", || async { number(&fixture, orders).await == 0 }).await;
    let rows = "SELECT count(*) FROM diamonds";
    let there = number(&fixture, rows).await;
    assert!(there < i64::from(RECORDS), "it went on: {there} records are in the table");
    roles.stop().await;
    assert_eq!(number(&fixture, rows).await, there, "the row count does not change");
    let cancelled = reload(&fixture, &sync).await;
    assert_eq!(cancelled.state, SyncState::Failed);
    assert_eq!(run(&fixture, &sync.ops_run_id).await.status, RunState::Cancelled);
    assert_eq!(seed_status(&fixture, &sync).await, "consolidating");

    double(&fixture).await;
    let retried = fixture.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let roles = fixture.roles();
    let ended = fixture.settle(&retried.expect("it is tried again").run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    check_doubled(&fixture).await;
}
