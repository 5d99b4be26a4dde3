//! Plans for many price distributions: few counts, even partitions, every record in exactly one.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use tidemill_core::diamond::{ALL_PRICES, Cents, PRICE_CEILING};
use tidemill_core::feed::FieldRange;
use tidemill_core::heatmap::{Counts, Goal, PlannedPartition, next_counts, partitions};

/// A feed that answers counts: its prices, sorted.
struct Records(Vec<Cents>);

impl Records {
    fn new(mut prices: Vec<Cents>) -> Self {
        prices.sort_unstable();
        Self(prices)
    }

    fn count(&self, range: FieldRange) -> u64 {
        let below = |price| self.0.partition_point(|&other| other < price) as u64;
        below(range.to) - below(range.from)
    }

    fn plan_within(&self, range: FieldRange, goal: &Goal) -> (Vec<PlannedPartition>, Counts) {
        let mut counts = Counts::new(range);
        for _ in 0..100 {
            let ranges = next_counts(&counts, goal);
            if ranges.is_empty() {
                break;
            }
            for range in ranges {
                counts.record(range, self.count(range));
            }
        }
        assert!(next_counts(&counts, goal).is_empty(), "planning does not end");
        (partitions(&counts, goal), counts)
    }

    fn plan(&self, goal: &Goal) -> (Vec<PlannedPartition>, Counts) {
        self.plan_within(ALL_PRICES, goal)
    }
}

/// A small random generator, so that a plan is the same on every machine.
struct Dice(u64);

impl Dice {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    fn part(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.part()
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }
}

#[expect(clippy::cast_possible_truncation, reason = "prices")]
fn cents(dollars: f64) -> Cents {
    ((dollars * 100.0).round() as Cents).clamp(0, PRICE_CEILING - 1)
}

fn make(count: usize, seed: u64, mut price: impl FnMut(&mut Dice) -> f64) -> Records {
    let mut dice = Dice(seed);
    Records::new((0..count).map(|_| cents(price(&mut dice))).collect())
}

/// Price distributions of real feeds, and some artificial ones.
fn distributions(seed: u64) -> Vec<(&'static str, Records)> {
    let n = 500_000;
    vec![
        ("log-normal", make(n, seed, |dice| (7.5 + 1.2 * dice.normal()).exp())),
        ("narrow log-normal", make(n, seed, |dice| (7.0 + 0.3 * dice.normal()).exp())),
        ("wide log-normal", make(n, seed, |dice| (8.0 + 2.2 * dice.normal()).exp())),
        (
            "natural: a fifth under $500, a long tail",
            make(n, seed, |dice| match dice.part() {
                part if part < 0.2 => dice.between(150.0, 500.0),
                part if part < 0.9 => (7.4 + 0.9 * dice.normal()).exp() + 400.0,
                _ => 5_000.0 / dice.part().max(1e-4).powf(0.7),
            }),
        ),
        (
            "lab-grown: 77 of 90 below $250",
            make(n, seed, |dice| match dice.part() {
                part if part < 77.0 / 90.0 => dice.between(60.0, 250.0),
                _ => 250.0 / dice.part().max(1e-4).powf(0.8),
            }),
        ),
        ("uniform", make(n, seed, |dice| dice.between(0.0, 250_000.0))),
        (
            "bimodal",
            make(n, seed, |dice| {
                let middle = if dice.part() < 0.5 { 250.0_f64 } else { 30_000.0 };
                middle * (0.15 * dice.normal()).exp()
            }),
        ),
        (
            "heavy spikes at multiples of $500",
            make(n, seed, |dice| {
                let price = (7.8 + 0.9 * dice.normal()).exp();
                if dice.part() < 0.4 { (price / 500.0).round().max(1.0) * 500.0 } else { price }
            }),
        ),
        (
            "spikes at multiples of $100",
            make(n, seed, |dice| {
                let price = (7.5 + 1.0 * dice.normal()).exp();
                if dice.part() < 0.6 { (price / 100.0).round().max(1.0) * 100.0 } else { price }
            }),
        ),
        (
            "a third at $999 and a tenth at $1,234",
            make(n, seed, |dice| match dice.part() {
                part if part < 0.33 => 999.0,
                part if part < 0.43 => 1_234.0,
                _ => (7.2 + 1.1 * dice.normal()).exp(),
            }),
        ),
        ("whole dollars, all below $100", make(n, seed, |dice| dice.between(20.0, 99.0).floor())),
    ]
}

/// Checks the properties of every plan.
fn check(records: &Records, all: FieldRange, goal: &Goal, plan: &[PlannedPartition]) {
    let total = records.count(all);
    if total == 0 {
        assert!(plan.is_empty());
        return;
    }
    assert!(plan.len() <= usize::try_from(goal.partitions_for(total)).unwrap());
    assert_eq!(plan.first().unwrap().range.from, all.from);
    assert_eq!(plan.last().unwrap().range.to, all.to);
    for pair in plan.windows(2) {
        assert_eq!(pair[0].range.to, pair[1].range.from);
        assert_eq!(pair[1].range.from % goal.granularity, 0, "{:?}", pair[1]);
    }
    assert!(plan.iter().all(|part| part.range.width() > 0), "{plan:?}");
    let stored: u64 = plan.iter().map(|part| records.count(part.range)).sum();
    assert_eq!(stored, total, "every record in exactly one partition");
}

/// Returns the size of the largest divisible partition relative to the mean.
#[expect(clippy::cast_precision_loss, reason = "numbers of records")]
fn balance(records: &Records, goal: &Goal, plan: &[PlannedPartition]) -> f64 {
    let mean = records.0.len() as f64 / plan.len() as f64;
    let divisible = plan.iter().filter(|part| part.range.width() > goal.granularity);
    divisible.map(|part| records.count(part.range) as f64 / mean).fold(0.0, f64::max)
}

#[test]
fn any_distribution_is_divided_evenly_with_few_counts() {
    let mut failures = Vec::new();
    for seed in [1, 2] {
        for (name, records) in distributions(seed) {
            for granularity in [100, 1] {
                let goal = Goal { granularity, ..Goal::FULL };
                let (plan, counts) = records.plan(&goal);
                check(&records, ALL_PRICES, &goal, &plan);
                let balance = balance(&records, &goal, &plan);
                let line = format!(
                    "{name} ({granularity} cents): {} counts, {} partitions, largest {balance:.2} of the mean",
                    counts.calls(),
                    plan.len()
                );
                println!("{line}");
                if counts.calls() > 60 || balance > 1.3 || plan.len() < 20 {
                    failures.push(line);
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn empty_feed_has_no_partition_and_costs_one_count() {
    let (plan, counts) = Records::new(vec![]).plan(&Goal::FULL);
    assert!(plan.is_empty());
    assert_eq!((counts.calls(), counts.total()), (1, Some(0)));
}

#[test]
fn one_record_has_one_partition_of_all_prices() {
    for price in [0, 1, 99, 12_345, PRICE_CEILING - 1] {
        let (plan, counts) = Records::new(vec![price]).plan(&Goal::FULL);
        assert_eq!(plan, [PlannedPartition { range: ALL_PRICES, predicted: 1 }]);
        assert_eq!(counts.calls(), 1);
    }
}

#[test]
fn feed_that_fits_one_partition_costs_one_count() {
    let records = make(4_999, 1, |dice| dice.between(100.0, 9_000.0));
    let (plan, counts) = records.plan(&Goal::FULL);
    assert_eq!((plan.len(), counts.calls()), (1, 1));
}

#[test]
fn single_price_gets_its_own_partition_quickly() {
    for price in [12_300, 99_900, 100_000, 100, 7_654_300] {
        let records = Records::new(vec![price; 200_000]);
        let (plan, counts) = records.plan(&Goal::FULL);
        check(&records, ALL_PRICES, &Goal::FULL, &plan);
        assert!(counts.calls() <= 60);
        let full: Vec<_> = plan.iter().filter(|part| records.count(part.range) > 0).collect();
        assert_eq!(full.len(), 1, "{price}");
    }
}

#[test]
fn boundary_price_belongs_to_the_upper_partition() {
    let records = make(100_000, 3, |dice| dice.between(100.0, 2_000.0));
    let (plan, _) = records.plan(&Goal::FULL);
    assert!(plan.len() > 10);
    for pair in plan.windows(2) {
        let price = pair[1].range.from;
        assert!(pair[1].range.contains(price) && !pair[0].range.contains(price));
        assert!(pair[0].range.contains(price - 1));
    }
}

#[test]
fn cents_are_divided_only_with_fine_granularity() {
    let prices: Vec<Cents> = (0..100_000).map(|n| 10_000 + n % 300).collect();
    let records = Records::new(prices);
    let cents = Goal { granularity: 1, ..Goal::FULL };
    let (plan, _) = records.plan(&cents);
    check(&records, ALL_PRICES, &cents, &plan);
    assert!(balance(&records, &cents, &plan) <= 1.3 && plan.len() >= 16, "{plan:?}");
    // Three prices in whole dollars: exactly three partitions with records.
    let (plan, _) = records.plan(&Goal::FULL);
    check(&records, ALL_PRICES, &Goal::FULL, &plan);
    assert_eq!(plan.iter().filter(|part| records.count(part.range) > 0).count(), 3, "{plan:?}");
}

#[test]
fn incremental_plan_has_at_most_ten_partitions() {
    let records = make(30_000, 9, |dice| (7.5 + 1.2 * dice.normal()).exp());
    let (plan, counts) = records.plan(&Goal::INCREMENTAL);
    check(&records, ALL_PRICES, &Goal::INCREMENTAL, &plan);
    assert_eq!(plan.len(), 6);
    assert!(counts.calls() <= 30);
    assert!(plan.iter().all(|part| part.predicted >= Goal::INCREMENTAL.records_min), "{plan:?}");
}

#[test]
fn number_of_partitions_follows_from_the_total() {
    let wanted: Vec<_> = [0, 1, 999, 5_000, 5_001, 149_999, 150_000, 150_001, 5_000_000]
        .map(|total| Goal::FULL.partitions_for(total))
        .to_vec();
    assert_eq!(wanted, [0, 1, 1, 1, 2, 30, 30, 30, 30]);
    let small = Goal { target: 100, records_min: 1_000, ..Goal::FULL };
    assert_eq!([999, 1_999, 2_000, 10_500].map(|total| small.partitions_for(total)), [1, 1, 2, 10]);
}

#[test]
fn gap_is_planned_within_its_own_prices() {
    let records = make(300_000, 5, |dice| (7.5 + 1.0 * dice.normal()).exp());
    for gap in [FieldRange { from: 120_000, to: 180_000 }, FieldRange { from: 900_000, to: PRICE_CEILING }] {
        let (plan, counts) = records.plan_within(gap, &Goal::FULL);
        check(&records, gap, &Goal::FULL, &plan);
        assert!(counts.calls() <= 60 && plan.len() > 1, "{plan:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_prices_are_covered_once(
        prices in proptest::collection::vec(prop_oneof![
            0..50_000_i64, Just(9_900), 0..5_000_000_i64, 0..PRICE_CEILING
        ], 0..3_000),
        granularity in prop_oneof![Just(1_i64), Just(100), Just(30)],
        target in 1..500_u64,
        partitions_max in 1..40_u32,
        records_min in 0..200_u64,
        calls_max in 0..80_u32,
    ) {
        let goal = Goal { target, partitions_max, records_min, calls_max, granularity };
        let records = Records::new(prices);
        let (plan, counts) = records.plan(&goal);
        check(&records, ALL_PRICES, &goal, &plan);
        prop_assert!(counts.calls() <= calls_max.max(1));
    }

    #[test]
    fn contradictory_counts_still_make_a_plan(
        answers in proptest::collection::vec(prop_oneof![0..40_000_u64, Just(0), Just(u64::MAX)], 1..80),
        total in prop_oneof![0..200_000_u64, Just(u64::MAX)],
    ) {
        let mut counts = Counts::new(ALL_PRICES);
        counts.record(ALL_PRICES, total);
        let mut answers = answers.into_iter().cycle();
        for _ in 0..100 {
            let ranges = next_counts(&counts, &Goal::FULL);
            if ranges.is_empty() {
                break;
            }
            for range in ranges {
                prop_assert!(range.width() > 0);
                counts.record(range, answers.next().unwrap());
            }
        }
        let plan = partitions(&counts, &Goal::FULL);
        prop_assert_eq!(plan.is_empty(), total == 0);
        for pair in plan.windows(2) {
            prop_assert_eq!(pair[0].range.to, pair[1].range.from);
        }
        prop_assert!(plan.iter().all(|part| part.range.width() > 0));
        if let (Some(first), Some(last)) = (plan.first(), plan.last()) {
            prop_assert_eq!((first.range.from, last.range.to), (0, PRICE_CEILING));
        }
    }
}

#[test]
fn feed_that_changes_during_the_scan_is_divided_evenly() {
    let mut dice = Dice(11);
    let mut records = make(500_000, 8, |dice| (7.5 + 1.2 * dice.normal()).exp());
    let mut counts = Counts::new(ALL_PRICES);
    loop {
        let ranges = next_counts(&counts, &Goal::FULL);
        if ranges.is_empty() {
            break;
        }
        for range in ranges {
            // Between two counts, fifty records are sold and fifty are added.
            for _ in 0..50 {
                let gone = usize::try_from(dice.bits()).unwrap_or_default() % records.0.len();
                records.0[gone] = cents((7.5 + 1.2 * dice.normal()).exp());
            }
            records.0.sort_unstable();
            counts.record(range, records.count(range));
        }
    }
    let plan = partitions(&counts, &Goal::FULL);
    check(&records, ALL_PRICES, &Goal::FULL, &plan);
    assert!(counts.calls() <= 60 && balance(&records, &Goal::FULL, &plan) <= 1.3);
}
