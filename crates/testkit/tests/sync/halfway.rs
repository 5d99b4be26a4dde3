//! A consolidation that is met halfway: new rules, and a person who stops it.

use tidemill_core::pricing::PricingRule;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{Replaced, SyncSettings};
use tidemill_supplier::{Change, Config, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles};

use crate::scene::{again, many, number, partitions, planned, run, seed_status, until, work};

/// Stones of these tests, in so many batches that somebody comes in between.
const STONES: u32 = 2_000;

async fn open(kind: Kind) -> Mill {
    let settings = SyncSettings { batch: 20, upsert: 20, ..many() };
    Mill::with(kind, Config { stones: STONES, ..Mill::config() }, settings).await
}

/// Every price doubled, instead of what was there.
async fn double(mill: &Mill) {
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
    mill.syncs.add_rules(vec![rule], Replaced::All, None).await.expect("the rules are replaced");
    mill.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
}

/// Fails unless every active stone is as the source has it, at twice its price.
async fn check_doubled(mill: &Mill) {
    let rows = mill.rows("active").await;
    let expected = mill.expected();
    assert_eq!(rows.len(), expected.len());
    let wrong = rows.iter().filter(|(id, row)| {
        expected
            .get(*id)
            .is_none_or(|truth| (truth.feed_price * 2, &truth.sha256) != (row.retail_price, &row.sha256))
    });
    assert_eq!(wrong.count(), 0, "stones are not at the price that was applied");
    assert_eq!(number(mill, "SELECT count(DISTINCT rules_version) FROM diamonds").await, 1);
}

/// Stones that a sync has looked at so far.
async fn looked_at(mill: &Mill, sync: &Sync) -> i64 {
    partitions(mill, sync).await.iter().map(|partition| partition.consolidated).sum()
}

/// A sync whose consolidation has begun, and is not over: its consolidator has ended.
async fn stopped_halfway(mill: &Mill, full: bool) -> Sync {
    let sync = planned(mill, full).await;
    work(mill).await;
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    until("a batch is in the table", || async { looked_at(mill, &sync).await > 0 }).await;
    roles.stop().await;
    let sync = again(mill, &sync).await;
    assert_eq!(sync.state, SyncState::Consolidating, "it was too quick");
    assert!(looked_at(mill, &sync).await < i64::from(STONES));
    sync
}

/// Rules that are applied between two batches hold for every stone: those that were priced before, those that are
/// priced after, and those that were not in the table.
pub(crate) async fn rules_applied_between_two_batches_stay(kind: Kind) {
    let mill = open(kind).await;
    let returned =
        mill.supplier.handle.change(&Change::some(What::Sell, 300, 1)).expect("stones are sold").ids;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::these(What::Return, returned)).expect("stones return");
    mill.supplier.handle.change(&Change::some(What::Price, 1_500, 2)).expect("prices change");
    let sync = stopped_halfway(&mill, true).await;
    double(&mill).await;
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    assert_eq!(mill.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    check_doubled(&mill).await;
    let done = again(&mill, &sync).await;
    assert_eq!(done.consolidation_processed, i64::from(STONES), "nothing is counted twice");
}

/// Somebody cancels while batches are written: nothing is written any more. The seeds' query has no word for it, and
/// `state` says it. A retry finishes the sync, by the rules that were applied meanwhile.
pub(crate) async fn a_cancel_during_consolidation_stops_it(kind: Kind) {
    let mill = open(kind).await;
    let sync = planned(&mill, false).await;
    work(&mill).await;
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    until("a batch is in the table", || async { looked_at(&mill, &sync).await > 0 }).await;
    let stopped = mill.syncs.cancel_sync(&sync.run_id.to_string(), "ann", Some("enough")).await;
    assert!(stopped.expect("it is cancelled"), "it was too quick");
    let orders = "SELECT count(*) FROM {ops}.messages WHERE queue = 'consolidate' AND state = 'live'";
    until("the consolidator let go", || async { number(&mill, orders).await == 0 }).await;
    let rows = "SELECT count(*) FROM diamonds";
    let there = number(&mill, rows).await;
    assert!(there < i64::from(STONES), "it went on: {there} stones are in the table");
    roles.stop().await;
    assert_eq!(number(&mill, rows).await, there, "the row count stands still");
    let cancelled = again(&mill, &sync).await;
    assert_eq!(cancelled.state, SyncState::Failed);
    assert_eq!(run(&mill, &sync.ops_run_id).await.status, RunState::Cancelled);
    assert_eq!(seed_status(&mill, &sync).await, "consolidating");

    double(&mill).await;
    let retried = mill.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let roles = mill.roles();
    let ended = mill.settle(&retried.expect("it is tried again").run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    check_doubled(&mill).await;
}
