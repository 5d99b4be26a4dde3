//! Prices: which rule applies, the rules that a sync is pinned to, and repricing without fetching.

use std::time::Duration;

use tidemill_core::pricing::PricingRule;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{ReplaceScope, SyncSettings, Syncs};
use tidemill_supplier::{Config, Distribution, Truth};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture, syncs};

use crate::fixture::{consolidate, many, number, open, planned, reload, work};

/// Returns a rule for every stone.
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

/// Checks that every active stone has the price that `price` computes from the supplier's data.
async fn check_prices(fixture: &SyncFixture, price: impl Fn(&Truth) -> i64) {
    let rows = fixture.rows("active").await;
    let truth: Vec<Truth> =
        fixture.supplier.handle.truth().into_iter().filter(|stone| stone.available).collect();
    assert_eq!(rows.len(), truth.len());
    for stone in &truth {
        let row = &rows[&stone.id];
        assert_eq!(row.retail_price, price(stone), "{stone:?} {row:?}");
    }
}

/// One sync has one set of prices, although the rules change between batches; the next sync has the new set.
pub(crate) async fn rule_edit_during_consolidation_mixes_no_prices(kind: Kind) {
    let settings = SyncSettings { batch: 60, upsert: 20, ..many() };
    let fixture = SyncFixture::with(kind, Config { stones: 1_500, ..SyncFixture::config() }, settings).await;
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::ConsolidationTriggered);
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    let mut edits = 0;
    while reload(&fixture, &sync).await.state != SyncState::Completed {
        edits += 1;
        let markup = 20_000 + edits;
        fixture
            .syncs
            .add_rules(vec![rule(1, markup)], ReplaceScope::All, None)
            .await
            .expect("the rules are replaced");
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(edits < 10_000, "it never ends");
    }
    roles.stop().await;
    assert!(edits > 1, "the rules were edited meanwhile");
    assert_eq!(number(&fixture, "SELECT count(DISTINCT rules_version) FROM diamonds").await, 1);
    fixture.check_equal().await;

    fixture
        .syncs
        .add_rules(vec![rule(1, 20_000)], ReplaceScope::All, None)
        .await
        .expect("the rules are replaced");
    let roles = fixture.roles();
    fixture.sync(true).await;
    roles.stop().await;
    check_prices(&fixture, |stone| i64::from(stone.price) * 2).await;
}

pub(crate) async fn apply_reprices_without_fetching(kind: Kind) {
    let fixture = open(kind, 900).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    let before = fixture.supplier.handle.stats().requests;
    let added = fixture
        .syncs
        .add_rules(vec![rule(1, 20_000)], ReplaceScope::Nothing, None)
        .await
        .expect("a rule is added");
    let mut heard = 0;
    let done = fixture.syncs.apply_rules(FEED, |_| heard += 1).await.expect("the rules are applied");
    assert_eq!((done.stones, done.rejected), (900, 0));
    assert!(heard > 0, "progress is recorded");
    check_prices(&fixture, |stone| i64::from(stone.price) * 2).await;
    let reload = fixture.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    assert_eq!((reload.stones, reload.rules_version), (0, done.rules_version), "there is nothing left to do");
    assert!(fixture.base.store.remove_rule(added[0]).await.expect("the rule is removed"));
    fixture.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    fixture.check_equal().await;
    assert_eq!(fixture.supplier.handle.stats().requests, before, "the feed got a request");
}

/// Two people apply rules to one feed: first one resumes after the other has finished, then both at the same time.
/// Every stone has the prices of the last set.
pub(crate) async fn concurrent_rule_applications_mix_no_prices(kind: Kind) {
    let settings = SyncSettings { batch: 60, ..many() };
    let fixture =
        SyncFixture::with(kind, Config { stones: 600, ..SyncFixture::config() }, settings.clone()).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    let other = syncs(&fixture.base, settings);
    let replace = async |of: &Syncs, markup: i32| {
        of.add_rules(vec![rule(1, markup)], ReplaceScope::All, None).await.expect("the rules are replaced");
    };
    replace(&fixture.syncs, 20_000).await;
    let (begun, mut place) = fixture.syncs.apply_some_rules(FEED, None, 100).await.expect("some are priced");
    assert_eq!((begun.stones, place.is_some()), (100, true));
    replace(&other, 30_000).await;
    let done = other.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
    while let Some(from) = place {
        let (some, next) =
            fixture.syncs.apply_some_rules(FEED, Some(from), 100).await.expect("some are priced");
        assert_eq!((some.stones, some.rules_version), (0, done.rules_version), "the other one has done it");
        place = next;
    }
    check_prices(&fixture, |stone| i64::from(stone.price) * 3).await;

    for markup in [40_000, 50_000, 60_000] {
        let first = fixture.syncs.apply_rules(FEED, |_| {});
        let second = async {
            replace(&other, markup).await;
            other.apply_rules(FEED, |_| {}).await
        };
        let (first, second) = tokio::join!(first, second);
        first.expect("the rules are applied");
        second.expect("the rules are applied");
        check_prices(&fixture, |stone| i64::from(stone.price) * i64::from(markup) / 10_000).await;
    }
}

/// Priorities, ties, limits, and stones without a matching rule, against prices computed independently.
pub(crate) async fn first_matching_rule_sets_the_price(kind: Kind) {
    let fixture = open(kind, 900).await;
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
    let numbers = fixture.syncs.add_rules(rules, ReplaceScope::All, None).await.expect("the rules are added");
    assert_eq!(numbers.len(), 7);
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Completed);
    let by_hand = |stone: &Truth| {
        let price = i64::from(stone.price);
        let markup = match price {
            200_000.. if stone.labgrown => 13_000,
            ..=50_000 => 15_000,
            50_001..=100_000 => 14_000,
            // No rule matches: the price is that of the feed.
            100_001..1_000_000 => 10_000,
            1_000_000.. => 12_345,
        };
        (price * markup + 5_000) / 10_000
    };
    check_prices(&fixture, by_hand).await;
    for (rating, bound) in
        [(3, "feed_price_cents <= 50000"), (4, "feed_price_cents BETWEEN 50001 AND 100000")]
    {
        let rated = number(&fixture, &format!("SELECT count(*) FROM diamonds WHERE rating = {rating}")).await;
        let meant = number(&fixture, &format!("SELECT count(*) FROM diamonds WHERE {bound}")).await;
        assert!(rated > 0 && rated == meant, "{rated} of {meant} have rating {rating}");
    }
    let unpriced =
        "SELECT count(*) FROM diamonds WHERE rule_id IS NULL AND retail_price_cents <> feed_price_cents";
    assert_eq!(number(&fixture, unpriced).await, 0);
}

/// Computed by hand: $123.45 by 1.15 is $141.9675, by 1.5 is $185.175, by 1.005 is $124.06725, by 0.9999 is
/// $123.437655.
pub(crate) async fn prices_match_manual_calculation(kind: Kind) {
    let config = Config {
        stones: 40,
        distribution: Distribution::OnePrice,
        one_price_cents: 12_345,
        ..SyncFixture::config()
    };
    let fixture = SyncFixture::with(kind, config, many()).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    let all_at = |cents: i64| format!("SELECT count(*) FROM diamonds WHERE retail_price_cents = {cents}");
    assert_eq!(number(&fixture, &all_at(14_197)).await, 40);
    for (markup, cents) in [(15_000, 18_518), (10_050, 12_407), (9_999, 12_344), (10_000, 12_345)] {
        fixture
            .syncs
            .add_rules(vec![rule(1, markup)], ReplaceScope::All, None)
            .await
            .expect("the rules are replaced");
        fixture.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
        assert_eq!(number(&fixture, &all_at(cents)).await, 40, "{markup}");
    }
    let refused = fixture
        .syncs
        .add_rules(vec![rule(1, 20_000), rule(1, 0)], ReplaceScope::All, None)
        .await
        .expect_err("0 is no markup");
    assert!(refused.to_string().contains("markup"), "{refused}");
    let stored = fixture.base.store.rules().await.expect("the rules are listed");
    assert_eq!((stored.len(), stored[0].markup), (1, 10_000), "all or none");
}
