//! Pricing, compared with values computed by hand.

use proptest::prelude::*;
use std::time::Instant;
use tidemill_core::diamond::Diamond;
use tidemill_core::pricing::{MARKUP_ONE, PriceQuote, PricingRule, Rules, StoneType};

fn stone(feed_price: i64, points: i64) -> Diamond {
    Diamond::new("stone-1", feed_price, "ROUND", points)
}

fn rule(rule_id: i64, priority: i32, markup: i32) -> PricingRule {
    PricingRule {
        rule_id,
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

fn decided_by(rules: Vec<PricingRule>, stone: &Diamond) -> Option<i64> {
    Rules::new(rules).price("nivoda", stone).rule_id
}

#[test]
fn prices_are_rounded_half_up() {
    // Feed price and points; markup; retail price and price per carat, computed by hand.
    let table = [
        ((100_000, 100), 11_500, (115_000, 100_000)),
        ((100_001, 100), 11_500, (115_001, 100_001)), // 115,001.15
        ((10, 100), 11_500, (12, 10)),                // 11.5 is a half: up
        ((1, 100), 14_999, (1, 1)),                   // 1.4999
        ((1, 100), 15_000, (2, 1)),                   // 1.5
        ((123_456, 125), 10_000, (123_456, 98_765)),  // 98,764.8
        ((200, 3), 10_000, (200, 6_667)),             // 6,666.67
        ((1, 200), 10_000, (1, 1)),                   // 0.5
        ((99_900, 0), 14_000, (139_860, 0)),          // no weight, no price per carat
        ((0, 50), 17_900, (0, 0)),
    ];
    for ((feed_price, points), markup, (retail_price, price_per_carat)) in table {
        let priced = Rules::new(vec![rule(7, 1, markup)]).price("nivoda", &stone(feed_price, points));
        let expected = PriceQuote { retail_price, price_per_carat, markup, rating: None, rule_id: Some(7) };
        assert_eq!(priced, expected, "{feed_price} cents, {points} points, {markup}");
    }
}

#[test]
fn stone_without_a_rule_keeps_the_feed_price() {
    let mut other = rule(1, 1, 11_500);
    other.feed = Some("demo".to_owned());
    let priced = Rules::new(vec![other]).price("nivoda", &stone(50_000, 50));
    let expected = PriceQuote {
        retail_price: 50_000,
        price_per_carat: 100_000,
        markup: MARKUP_ONE,
        rating: None,
        rule_id: None,
    };
    assert_eq!(priced, expected);
}

#[test]
fn smallest_priority_then_smallest_id_decides() {
    let stone = stone(1_000, 100);
    assert_eq!(decided_by(vec![rule(1, 20, 1), rule(2, 10, 1)], &stone), Some(2));
    assert_eq!(decided_by(vec![rule(9, 10, 1), rule(3, 10, 1), rule(5, 10, 1)], &stone), Some(3));
    let mut sleeping = rule(1, 1, 1);
    sleeping.active = false;
    assert_eq!(decided_by(vec![sleeping, rule(2, 2, 1)], &stone), Some(2));
}

#[test]
fn criteria_match_with_inclusive_bounds() {
    type Set = fn(&mut PricingRule);
    type Change = fn(&mut Diamond);
    let keep: Change = |_| ();
    let table: [(&str, Set, Change, bool); 19] = [
        ("no criterion", |_| (), keep, true),
        ("the feed", |r| r.feed = Some("nivoda".into()), keep, true),
        ("another feed", |r| r.feed = Some("demo".into()), keep, false),
        ("natural", |r| r.stone_type = Some(StoneType::Natural), keep, true),
        ("natural, lab-grown", |r| r.stone_type = Some(StoneType::Natural), |s| s.lab_grown = true, false),
        ("lab", |r| r.stone_type = Some(StoneType::Lab), |s| s.lab_grown = true, true),
        ("fancy", |r| r.stone_type = Some(StoneType::Fancy), |s| s.fancy_color = Some("Pink".into()), true),
        (
            "fancy before lab",
            |r| r.stone_type = Some(StoneType::Lab),
            |s| {
                s.lab_grown = true;
                s.fancy_color = Some("Pink".into());
            },
            false,
        ),
        ("lab-grown", |r| r.lab_grown = Some(true), |s| s.lab_grown = true, true),
        ("not lab-grown", |r| r.lab_grown = Some(false), |s| s.lab_grown = true, false),
        ("a shape", |r| r.shapes = vec!["oval".into(), " Round ".into()], keep, true),
        ("other shapes", |r| r.shapes = vec!["OVAL".into()], keep, false),
        ("just heavy enough", |r| r.points_min = Some(100), keep, true),
        ("too light", |r| r.points_min = Some(101), keep, false),
        ("just light enough", |r| r.points_max = Some(100), keep, true),
        ("too heavy", |r| r.points_max = Some(99), keep, false),
        ("just dear enough", |r| r.price_min = Some(50_000), keep, true),
        ("too dear", |r| r.price_max = Some(49_999), keep, false),
        ("just cheap enough", |r| r.price_max = Some(50_000), keep, true),
    ];
    for (name, set, change, fits) in table {
        let mut rule = rule(1, 1, 12_000);
        set(&mut rule);
        let mut stone = stone(50_000, 100);
        change(&mut stone);
        assert_eq!(decided_by(vec![rule], &stone).is_some(), fits, "{name}");
    }
}

#[test]
fn rating_comes_from_the_matching_rule() {
    let mut first = rule(1, 1, 12_000);
    first.rating = Some(8);
    let rules = Rules::new(vec![first, rule(2, 2, 12_000)]);
    assert_eq!(rules.price("nivoda", &stone(1, 1)).rating, Some(8));
}

#[test]
fn rule_check_reports_every_error() {
    let mut bad = rule(1, 1, 0);
    bad.rating = Some(11);
    bad.feed = Some("No Name".to_owned());
    bad.points_min = Some(200);
    bad.points_max = Some(100);
    bad.price_min = Some(-1);
    bad.shapes = vec![" ".to_owned()];
    bad.stone_type = Some(StoneType::Natural);
    bad.lab_grown = Some(true);
    let faults = bad.check().unwrap_err().0;
    let fields: Vec<_> = faults.iter().map(|fault| fault.field).collect();
    assert_eq!(fields, ["markup", "rating", "feed", "carats", "price", "shape", "lab grown"]);
    assert_eq!(rule(1, 1, 11_500).check(), Ok(()));
}

#[test]
fn half_a_million_stones_are_priced_quickly() {
    let mut rules: Vec<_> = (0..30).map(|id| rule(id, 1, 11_500)).collect();
    for (rule, price) in rules.iter_mut().zip(0..) {
        rule.shapes = vec!["Oval".to_owned(), "Pear".to_owned(), "Round".to_owned()];
        rule.price_min = Some(price * 10_000);
        rule.price_max = Some(price * 10_000 + 9_999);
    }
    let rules = Rules::new(rules);
    let mut stone = stone(0, 100);
    let begun = Instant::now();
    let mut sum = 0;
    for price in 0..500_000 {
        stone.feed_price = price % 300_000;
        sum += rules.price("nivoda", &stone).retail_price;
    }
    assert!(sum > 0);
    // A generous limit for unoptimised builds on busy machines, not a measurement.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn pricing_never_panics(price: i64, points: i64, markup: i32) {
        Rules::new(vec![rule(1, 1, markup)]).price("nivoda", &stone(price, points));
    }

    #[test]
    fn higher_feed_price_never_lowers_the_retail_price(
        price in 0..1_000_000_000_i64,
        more in 0..1_000_000_i64,
        markup in 1..99_999,
        points in 1..10_000_i64,
    ) {
        let rules = Rules::new(vec![rule(1, 1, markup)]);
        let (one, other) = (rules.price("f", &stone(price, points)), rules.price("f", &stone(price + more, points)));
        prop_assert!(one.retail_price <= other.retail_price);
        prop_assert!(one.price_per_carat <= other.price_per_carat);
    }
}
