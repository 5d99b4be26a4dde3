//! Partitions: every stone in exactly one, whatever the prices are.

use std::collections::BTreeMap;

use tidemill_core::records::{Partition, Sync};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::SyncSettings;
use tidemill_supplier::{Change, Config, Distribution, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{Mill, quick};

use crate::scene::{
    again, consolidate, many, number, open, partitions, planned, run, seed_status, watermark, work,
};

/// No range is inverted, none overlaps another, and together they leave nothing out.
async fn check_ranges(mill: &Mill, sync: &Sync) -> Vec<Partition> {
    let all = partitions(mill, sync).await;
    assert_eq!(all[0].prices.from, 0);
    for pair in all.windows(2) {
        assert!(pair[0].prices.from < pair[0].prices.to, "{pair:?}");
        assert_eq!(pair[0].prices.to, pair[1].prices.from, "{pair:?}");
    }
    let dearest = mill.supplier.handle.truth().iter().map(|stone| i64::from(stone.price)).max().unwrap_or(0);
    assert!(all.last().is_some_and(|last| last.prices.to > dearest));
    all
}

/// Every stone stands in the ledger of exactly one partition, and the table equals the source.
async fn check_once(mill: &Mill, sync: &Sync) {
    assert_eq!(again(mill, sync).await.state, SyncState::Completed);
    let ids = match mill.stage.kind {
        Kind::Sqlite => "SELECT s.value || ' ' || p.partition_id FROM pages p, json_each(p.stone_ids) s",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "SELECT s.id || ' ' || p.partition_id \
             FROM ops.pages p, LATERAL unnest(coalesce(p.stone_ids, p.stone_uuids::text[])) s (id)"
        }
    };
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for line in mill.stage.plain.texts(ids).await.expect("the ledger is read") {
        let (stone, partition) = line.split_once(' ').expect("a stone and a partition");
        let other = seen.insert(stone.to_owned(), partition.to_owned());
        assert!(
            other.as_deref().is_none_or(|other| other == partition),
            "{stone}: {other:?} and {partition}"
        );
    }
    assert_eq!(seen.len(), mill.expected().len());
    mill.check_equal().await;
}

async fn whole(kind: Kind, config: Config) -> (Mill, Sync) {
    let mill = Mill::with(kind, config, many()).await;
    let sync = planned(&mill, true).await;
    check_ranges(&mill, &sync).await;
    work(&mill).await;
    consolidate(&mill).await;
    check_once(&mill, &sync).await;
    (mill, sync)
}

/// Skewed prices, prices with every cent, and all stones at one price.
pub(crate) async fn every_stone_is_in_exactly_one_partition(kind: Kind) {
    for distribution in Distribution::ALL {
        let config = Config { stones: 1_200, distribution, ..Mill::config() };
        let (_, sync) = Box::pin(whole(kind, config)).await;
        let divided = sync.expected_workers > 1;
        assert_eq!(divided, distribution != Distribution::OnePrice, "{sync:?}");
    }
}

/// A scan asks for several counts at a time, and never for more than it may.
pub(crate) async fn a_scan_asks_for_few_counts_at_a_time(kind: Kind) {
    let mill = open(kind, 1_200).await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 40);
    let sync = planned(&mill, true).await;
    assert!(sync.count_calls > 6, "{sync:?}");
    let most = mill.supplier.handle.stats().counts_at_once;
    let allowed = mill.syncs.settings().count_concurrency as u64;
    assert!((2..=allowed).contains(&most), "{most} counts at a time, and {allowed} are allowed");
}

/// Prices on a boundary, a cent below it, a cent above it, and a cent below the next dollar.
pub(crate) async fn prices_on_a_boundary(kind: Kind) {
    let mill = open(kind, 1_200).await;
    let sync = planned(&mill, true).await;
    let bounds: Vec<u32> = partitions(&mill, &sync).await[1..]
        .iter()
        .filter_map(|part| u32::try_from(part.prices.from).ok())
        .collect();
    assert!(bounds.len() > 2, "{bounds:?}");
    let mut stones = mill.expected().into_keys();
    for bound in bounds {
        for price in [bound - 1, bound, bound + 1, bound + 99] {
            let stone = stones.next().expect("there are enough");
            let order = Change { price_cents: Some(price), ..Change::these(What::Price, vec![stone]) };
            mill.supplier.handle.change(&order).expect("the price changes");
        }
    }
    work(&mill).await;
    consolidate(&mill).await;
    check_once(&mill, &sync).await;
}

/// Many stones within one dollar, which the feed's filter cannot tell apart.
pub(crate) async fn fractions_of_a_dollar(kind: Kind) {
    let config = Config {
        stones: 500,
        distribution: Distribution::OnePrice,
        one_price_cents: 10_000,
        ..Mill::config()
    };
    let mill = Mill::with(kind, config, many()).await;
    let stones: Vec<String> = mill.expected().into_keys().collect();
    for (number, stone) in stones.into_iter().enumerate() {
        let price = 10_000 + u32::try_from(number % 150).unwrap_or(0);
        let order = Change { price_cents: Some(price), ..Change::these(What::Price, vec![stone]) };
        mill.supplier.handle.change(&order).expect("the price changes");
    }
    let sync = planned(&mill, true).await;
    let all = check_ranges(&mill, &sync).await;
    assert!(all.iter().all(|part| part.prices.from % 100 == 0), "a boundary within a dollar: {all:?}");
    work(&mill).await;
    consolidate(&mill).await;
    check_once(&mill, &sync).await;
}

/// One stone.
pub(crate) async fn one_stone(kind: Kind) {
    let (_, sync) = Box::pin(whole(kind, Config { stones: 1, ..Mill::config() })).await;
    assert_eq!((sync.expected_workers, sync.predicted), (1, 1));
}

/// A feed without stones, and later one without changes: one empty partition completes the sync.
pub(crate) async fn empty_feed_completes_after_one_empty_page(kind: Kind) {
    let mill = Mill::with(kind, Config { stones: 0, ..Mill::config() }, many()).await;
    let sync = planned(&mill, false).await;
    assert_eq!((sync.expected_workers, sync.predicted), (1, 0));
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(seed_status(&mill, &sync).await, "completed");
    let ended = run(&mill, &sync.ops_run_id).await;
    assert_eq!((ended.status, ended.metadata["records"].as_i64()), (RunState::Success, Some(0)));
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));
    let live = "SELECT count(*) FROM {ops}.messages WHERE state = 'live'";
    assert_eq!(number(&mill, live).await, 0);

    mill.supplier.handle.change(&Change::some(What::Add, 7, 1)).expect("stones are added");
    let roles = mill.roles();
    mill.sync(false).await;
    mill.check_equal().await;
    // A watermark that the source's clock has yet to reach, as an earlier version may have left it.
    let far = mill.supplier.handle.now() + chrono::TimeDelta::days(1);
    let moved = match kind {
        Kind::Sqlite => format!("UPDATE feeds SET last_updated_at = {}", far.timestamp_micros()),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("UPDATE {{ops}}.feeds SET last_updated_at = '{}'", far.to_rfc3339())
        }
    };
    mill.stage.plain.execute(&moved).await.expect("it is moved");
    let before = watermark(&mill).await;
    mill.sync(false).await;
    roles.stop().await;
    assert_eq!(watermark(&mill).await, before, "a watermark never falls");
    mill.check_equal().await;
}

/// A large skewed feed: few counts, and partitions of about the same size.
pub(crate) async fn a_large_skewed_feed_is_divided_well(kind: Kind) {
    let settings = SyncSettings { unlimited: true, ..quick() };
    let mill = Mill::with(kind, Config { stones: 100_000, ..Mill::config() }, settings).await;
    let before = mill.supplier.handle.stats().counts;
    let sync = planned(&mill, true).await;
    let counted = mill.supplier.handle.stats().counts - before;
    assert_eq!(counted, u64::try_from(sync.count_calls).unwrap_or(0));
    assert!(counted <= 60, "{counted} count calls");
    let all = partitions(&mill, &sync).await;
    assert!(all.len() >= 20, "{} partitions", all.len());
    let mut sizes = vec![0_usize; all.len()];
    for stone in mill.supplier.handle.truth() {
        let price = i64::from(stone.price);
        let fits: Vec<usize> = (0..all.len()).filter(|&index| all[index].prices.contains(price)).collect();
        assert_eq!(fits.len(), 1, "{price} is in {} partitions", fits.len());
        sizes[fits[0]] += 1;
    }
    let mean = 100_000 / all.len();
    for (part, size) in all.iter().zip(&sizes) {
        let is_one_step = part.prices.to - part.prices.from <= sync.granularity;
        assert!(size * 10 <= mean * 13 || is_one_step, "{size} stones in {part:?}, and {mean} on average");
    }
}
