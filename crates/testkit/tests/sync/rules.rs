//! Prices: which rule decides, what a sync is pinned to, and pricing anew without fetching.

use std::time::Duration;

use tidemill_core::pricing::PricingRule;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{Replaced, SyncSettings, Syncs};
use tidemill_supplier::{Config, Distribution, Truth};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles, syncs};

use crate::scene::{again, consolidate, many, number, open, planned, work};

/// A rule for every stone.
fn rule(priority: i32, markup: i32) -> PricingRule {
    PricingRule {
        rule_id: 0,
        priority,
        feed: None,
        stone_type: None,
        lab_grown: None,
        shapes: Vec::new(),
        points_min: None,
        points_max: None,
        price_min: None,
        price_max: None,
        markup,
        rating: None,
        active: true,
    }
}

/// Fails unless every active stone has the price that `price` works out of the supplier's truth.
async fn check_prices(mill: &Mill, price: impl Fn(&Truth) -> i64) {
    let rows = mill.rows("active").await;
    let truth: Vec<Truth> =
        mill.supplier.handle.truth().into_iter().filter(|stone| stone.available).collect();
    assert_eq!(rows.len(), truth.len());
    for stone in &truth {
        let row = &rows[&stone.id];
        assert_eq!(row.retail_price, price(stone), "{stone:?} {row:?}");
    }
}

/// Edits the rules while batches are written: one sync has one set of prices; the next one has the new set.
pub(crate) async fn a_rule_edited_during_consolidation_mixes_no_prices(kind: Kind) {
    let settings = SyncSettings { batch: 60, upsert: 20, ..many() };
    let mill = Mill::with(kind, Config { stones: 1_500, ..Mill::config() }, settings).await;
    let sync = planned(&mill, false).await;
    work(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::ConsolidationTriggered);
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    let mut edits = 0;
    while again(&mill, &sync).await.state != SyncState::Completed {
        edits += 1;
        let markup = 20_000 + edits;
        mill.syncs
            .add_rules(vec![rule(1, markup)], Replaced::All, None)
            .await
            .expect("the rules are replaced");
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(edits < 10_000, "it never ends");
    }
    roles.stop().await;
    assert!(edits > 1, "the rules were edited meanwhile");
    assert_eq!(number(&mill, "SELECT count(DISTINCT rules_version) FROM diamonds").await, 1);
    mill.check_equal().await;

    mill.syncs.add_rules(vec![rule(1, 20_000)], Replaced::All, None).await.expect("the rules are replaced");
    let roles = mill.roles();
    mill.sync(true).await;
    roles.stop().await;
    check_prices(&mill, |stone| i64::from(stone.price) * 2).await;
}

/// New rules for what is there: priced anew, and the feed is not asked.
pub(crate) async fn apply_prices_anew_without_fetching(kind: Kind) {
    let mill = open(kind, 900).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    let before = mill.supplier.handle.stats().requests;
    let added =
        mill.syncs.add_rules(vec![rule(1, 20_000)], Replaced::Nothing, None).await.expect("a rule is added");
    let mut heard = 0;
    let done = mill.syncs.apply_rules(FEED, |_| heard += 1).await.expect("the rules are applied");
    assert_eq!((done.stones, done.rejected), (900, 0));
    assert!(heard > 0, "progress is told");
    check_prices(&mill, |stone| i64::from(stone.price) * 2).await;
    let again = mill.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    assert_eq!((again.stones, again.rules_version), (0, done.rules_version), "there is nothing left to do");
    assert!(mill.stage.store.remove_rule(added[0]).await.expect("the rule is removed"));
    mill.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    mill.check_equal().await;
    assert_eq!(mill.supplier.handle.stats().requests, before, "the feed was asked");
}

/// Two people apply rules to one feed at once: one goes on after the other has changed the rules and is done, and both
/// hurry side by side. Every stone has the prices of one set, and that is the last one.
pub(crate) async fn rules_that_are_applied_twice_at_once_are_not_mixed(kind: Kind) {
    let settings = SyncSettings { batch: 60, ..many() };
    let mill = Mill::with(kind, Config { stones: 600, ..Mill::config() }, settings.clone()).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    let other = syncs(&mill.stage, settings);
    let replace = async |of: &Syncs, markup: i32| {
        of.add_rules(vec![rule(1, markup)], Replaced::All, None).await.expect("the rules are replaced");
    };
    replace(&mill.syncs, 20_000).await;
    let (begun, mut place) = mill.syncs.apply_some_rules(FEED, None, 100).await.expect("some are priced");
    assert_eq!((begun.stones, place.is_some()), (100, true));
    replace(&other, 30_000).await;
    let done = other.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    while let Some(from) = place {
        let (some, next) = mill.syncs.apply_some_rules(FEED, Some(from), 100).await.expect("some are priced");
        assert_eq!((some.stones, some.rules_version), (0, done.rules_version), "the other one has done it");
        place = next;
    }
    check_prices(&mill, |stone| i64::from(stone.price) * 3).await;

    for markup in [40_000, 50_000, 60_000] {
        let first = mill.syncs.apply_rules(FEED, |_| {});
        let second = async {
            replace(&other, markup).await;
            other.apply_rules(FEED, |_| {}).await
        };
        let (first, second) = tokio::join!(first, second);
        first.expect("the rules are applied");
        second.expect("the rules are applied");
        check_prices(&mill, |stone| i64::from(stone.price) * i64::from(markup) / 10_000).await;
    }
}

/// Priorities, ties, bounds, and what fits nothing, against prices worked out apart.
pub(crate) async fn the_first_rule_that_fits_decides(kind: Kind) {
    let mill = open(kind, 900).await;
    let rules = vec![
        // The lowest number is tried first, and of equal ones the older.
        PricingRule { price_max: Some(50_000), rating: Some(3), ..rule(10, 15_000) },
        PricingRule { price_max: Some(100_000), rating: Some(4), ..rule(10, 14_000) },
        PricingRule { price_min: Some(200_000), lab_grown: Some(true), rating: Some(9), ..rule(5, 13_000) },
        PricingRule { feed: Some("other".to_owned()), ..rule(2, 90_000) },
        PricingRule { active: false, ..rule(1, 50_000) },
        PricingRule { price_min: Some(300_000), shapes: vec!["no such shape".to_owned()], ..rule(3, 80_000) },
        PricingRule { price_min: Some(1_000_000), feed: Some(FEED.to_owned()), ..rule(20, 12_345) },
    ];
    let numbers = mill.syncs.add_rules(rules, Replaced::All, None).await.expect("the rules are added");
    assert_eq!(numbers.len(), 7);
    let sync = planned(&mill, false).await;
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::Completed);
    let by_hand = |stone: &Truth| {
        let price = i64::from(stone.price);
        let markup = match price {
            200_000.. if stone.labgrown => 13_000,
            ..=50_000 => 15_000,
            50_001..=100_000 => 14_000,
            // No rule fits: it stays at what the feed asks.
            100_001..1_000_000 => 10_000,
            1_000_000.. => 12_345,
        };
        (price * markup + 5_000) / 10_000
    };
    check_prices(&mill, by_hand).await;
    for (rating, bound) in
        [(3, "feed_price_cents <= 50000"), (4, "feed_price_cents BETWEEN 50001 AND 100000")]
    {
        let rated = number(&mill, &format!("SELECT count(*) FROM diamonds WHERE rating = {rating}")).await;
        let meant = number(&mill, &format!("SELECT count(*) FROM diamonds WHERE {bound}")).await;
        assert!(rated > 0 && rated == meant, "{rated} of {meant} have rating {rating}");
    }
    let unpriced =
        "SELECT count(*) FROM diamonds WHERE rule_id IS NULL AND retail_price_cents <> feed_price_cents";
    assert_eq!(number(&mill, unpriced).await, 0);
}

/// Some prices on paper: $123.45 by 1.15 is $141.9675, by 1.5 is $185.175, by 1.005 is $124.06725, by 0.9999
/// is $123.437655.
pub(crate) async fn prices_worked_out_on_paper(kind: Kind) {
    let config = Config {
        stones: 40,
        distribution: Distribution::OnePrice,
        one_price_cents: 12_345,
        ..Mill::config()
    };
    let mill = Mill::with(kind, config, many()).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    let all_at = |cents: i64| format!("SELECT count(*) FROM diamonds WHERE retail_price_cents = {cents}");
    assert_eq!(number(&mill, &all_at(14_197)).await, 40);
    for (markup, cents) in [(15_000, 18_518), (10_050, 12_407), (9_999, 12_344), (10_000, 12_345)] {
        mill.syncs
            .add_rules(vec![rule(1, markup)], Replaced::All, None)
            .await
            .expect("the rules are replaced");
        mill.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
        assert_eq!(number(&mill, &all_at(cents)).await, 40, "{markup}");
    }
    let refused = mill
        .syncs
        .add_rules(vec![rule(1, 20_000), rule(1, 0)], Replaced::All, None)
        .await
        .expect_err("0 is no markup");
    assert!(refused.to_string().contains("markup"), "{refused}");
    let kept = mill.stage.store.rules().await.expect("the rules are listed");
    assert_eq!((kept.len(), kept[0].markup), (1, 10_000), "all or none");
}
