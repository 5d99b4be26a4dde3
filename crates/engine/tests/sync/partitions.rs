//! Partitions: every record belongs to exactly one, for any prices.

use std::collections::BTreeMap;

use tidemill_core::records::{Partition, Sync};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::SyncSettings;
use tidemill_supplier::{Change, ChangeKind, Config, Distribution};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{SyncFixture, quick};

use crate::fixture::{
    consolidate, many, number, open, partitions, planned, reload, run, seed_status, watermark, work,
};

/// Checks that the ranges are valid, do not overlap, and cover all prices.
async fn check_ranges(fixture: &SyncFixture, sync: &Sync) -> Vec<Partition> {
    let all = partitions(fixture, sync).await;
    assert_eq!(all[0].range.from, 0);
    for pair in all.windows(2) {
        assert!(pair[0].range.from < pair[0].range.to, "{pair:?}");
        assert_eq!(pair[0].range.to, pair[1].range.from, "{pair:?}");
    }
    let dearest =
        fixture.supplier.handle.truth().iter().map(|record| i64::from(record.price)).max().unwrap_or(0);
    assert!(all.last().is_some_and(|last| last.range.to > dearest));
    all
}

/// Checks that every record was read in exactly one partition, and that the table equals the source.
async fn check_once(fixture: &SyncFixture, sync: &Sync) {
    assert_eq!(reload(fixture, sync).await.state, SyncState::Completed);
    let ids = match fixture.base.kind {
        Kind::Sqlite => "SELECT s.value || ' ' || p.partition_id FROM pages p, json_each(p.record_ids) s",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "SELECT s.id || ' ' || p.partition_id \
             FROM ops.pages p, LATERAL unnest(coalesce(p.record_ids, p.record_uuids::text[])) s (id)"
        }
    };
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for line in fixture.base.plain.texts(ids).await.expect("the ledger is read") {
        let (record, partition) = line.split_once(' ').expect("a record and a partition");
        let other = seen.insert(record.to_owned(), partition.to_owned());
        assert!(
            other.as_deref().is_none_or(|other| other == partition),
            "{record}: {other:?} and {partition}"
        );
    }
    assert_eq!(seen.len(), fixture.expected().len());
    fixture.check_equal().await;
}

async fn completed_sync(kind: Kind, config: Config) -> (SyncFixture, Sync) {
    let fixture = SyncFixture::with(kind, config, many()).await;
    let sync = planned(&fixture, true).await;
    check_ranges(&fixture, &sync).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    check_once(&fixture, &sync).await;
    (fixture, sync)
}

/// Skewed prices, prices with every cent, and all records at one price.
pub(crate) async fn every_record_belongs_to_exactly_one_partition(kind: Kind) {
    for distribution in Distribution::ALL {
        let config = Config { stones: 1_200, distribution, ..SyncFixture::config() };
        let (_, sync) = Box::pin(completed_sync(kind, config)).await;
        let divided = sync.expected_workers > 1;
        assert_eq!(divided, distribution != Distribution::OnePrice, "{sync:?}");
    }
}

pub(crate) async fn scan_limits_concurrent_count_requests(kind: Kind) {
    let fixture = open(kind, 1_200).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 40);
    let sync = planned(&fixture, true).await;
    assert!(sync.count_calls > 6, "{sync:?}");
    let most = fixture.supplier.handle.stats().counts_at_once;
    let allowed = fixture.syncs.settings().count_concurrency as u64;
    assert!((2..=allowed).contains(&most), "{most} counts at a time, and {allowed} are allowed");
}

/// Prices on a boundary, a cent below it, a cent above it, and a cent below the next dollar.
pub(crate) async fn prices_on_a_partition_boundary_are_read_once(kind: Kind) {
    let fixture = open(kind, 1_200).await;
    let sync = planned(&fixture, true).await;
    let bounds: Vec<u32> = partitions(&fixture, &sync).await[1..]
        .iter()
        .filter_map(|part| u32::try_from(part.range.from).ok())
        .collect();
    assert!(bounds.len() > 2, "{bounds:?}");
    let mut records = fixture.expected().into_keys();
    for bound in bounds {
        for price in [bound - 1, bound, bound + 1, bound + 99] {
            let record = records.next().expect("there are enough");
            let order =
                Change { price_cents: Some(price), ..Change::of_ids(ChangeKind::Price, vec![record]) };
            fixture.supplier.handle.change(&order).expect("the price changes");
        }
    }
    work(&fixture).await;
    consolidate(&fixture).await;
    check_once(&fixture, &sync).await;
}

/// Many records within one dollar, which the feed's filter cannot separate.
pub(crate) async fn prices_with_cents_are_read_once(kind: Kind) {
    let config = Config {
        stones: 500,
        distribution: Distribution::OnePrice,
        one_price_cents: 10_000,
        ..SyncFixture::config()
    };
    let fixture = SyncFixture::with(kind, config, many()).await;
    let records: Vec<String> = fixture.expected().into_keys().collect();
    for (number, record) in records.into_iter().enumerate() {
        let price = 10_000 + u32::try_from(number % 150).unwrap_or(0);
        let order = Change { price_cents: Some(price), ..Change::of_ids(ChangeKind::Price, vec![record]) };
        fixture.supplier.handle.change(&order).expect("the price changes");
    }
    let sync = planned(&fixture, true).await;
    let all = check_ranges(&fixture, &sync).await;
    assert!(all.iter().all(|part| part.range.from % 100 == 0), "a boundary within a dollar: {all:?}");
    work(&fixture).await;
    consolidate(&fixture).await;
    check_once(&fixture, &sync).await;
}

pub(crate) async fn feed_with_one_record_completes(kind: Kind) {
    let (_, sync) = Box::pin(completed_sync(kind, Config { stones: 1, ..SyncFixture::config() })).await;
    assert_eq!((sync.expected_workers, sync.predicted), (1, 1));
}

/// A feed without records, and later one without changes: one empty partition completes the sync.
pub(crate) async fn empty_feed_completes_after_one_empty_page(kind: Kind) {
    let fixture = SyncFixture::with(kind, Config { stones: 0, ..SyncFixture::config() }, many()).await;
    let sync = planned(&fixture, false).await;
    assert_eq!((sync.expected_workers, sync.predicted), (1, 0));
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(seed_status(&fixture, &sync).await, "completed");
    let ended = run(&fixture, &sync.ops_run_id).await;
    assert_eq!((ended.status, ended.metadata["records"].as_i64()), (RunState::Success, Some(0)));
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));
    let live = "SELECT count(*) FROM {ops}.messages WHERE state = 'live'";
    assert_eq!(number(&fixture, live).await, 0);

    fixture.supplier.handle.change(&Change::random(ChangeKind::Add, 7, 1)).expect("records are added");
    let roles = fixture.roles();
    fixture.sync(false).await;
    fixture.check_equal().await;
    // A watermark in the future of the source's clock, as an earlier version may have left it.
    let far = fixture.supplier.handle.now() + chrono::TimeDelta::days(1);
    let moved = match kind {
        Kind::Sqlite => format!("UPDATE feeds SET last_updated_at = {}", far.timestamp_micros()),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("UPDATE {{ops}}.feeds SET last_updated_at = '{}'", far.to_rfc3339())
        }
    };
    fixture.base.plain.execute(&moved).await.expect("it is moved");
    let before = watermark(&fixture).await;
    fixture.sync(false).await;
    roles.stop().await;
    assert_eq!(watermark(&fixture).await, before, "a watermark never falls");
    fixture.check_equal().await;
}

/// Few counts, and partitions of about the same size.
pub(crate) async fn large_skewed_feed_is_partitioned_evenly(kind: Kind) {
    let settings = SyncSettings { unlimited: true, ..quick() };
    let fixture =
        SyncFixture::with(kind, Config { stones: 100_000, ..SyncFixture::config() }, settings).await;
    let before = fixture.supplier.handle.stats().counts;
    let sync = planned(&fixture, true).await;
    let counted = fixture.supplier.handle.stats().counts - before;
    assert_eq!(counted, u64::try_from(sync.count_calls).unwrap_or(0));
    assert!(counted <= 60, "{counted} count calls");
    let all = partitions(&fixture, &sync).await;
    assert!(all.len() >= 20, "{} partitions", all.len());
    let mut sizes = vec![0_usize; all.len()];
    for record in fixture.supplier.handle.truth() {
        let price = i64::from(record.price);
        let fits: Vec<usize> = (0..all.len()).filter(|&index| all[index].range.contains(price)).collect();
        assert_eq!(fits.len(), 1, "{price} is in {} partitions", fits.len());
        sizes[fits[0]] += 1;
    }
    let mean = 100_000 / all.len();
    for (part, size) in all.iter().zip(&sizes) {
        let is_one_step = part.range.to - part.range.from <= sync.granularity;
        assert!(size * 10 <= mean * 13 || is_one_step, "{size} records in {part:?}, and {mean} on average");
    }
}
