//! Tests against the simulated supplier, an independent implementation of the same API that knows the expected data.

use crate::fixture::{all, at, diamond, open, quick, record};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidemill_core::diamond::PRICE_CEILING;
use tidemill_core::digest::sha256_hex;
use tidemill_core::feed::{FeedQuery, FieldRange, Item};
use tidemill_feeds::{ErrorClass, Feed, FeedError, Network, Secret};
use tidemill_supplier::{Account, Change, ChangeKind, Config, FailWith, RunningSupplier, Supplier, Truth};

/// Starts a supplier and opens the feed that queries it.
async fn start_supplier(config: Config) -> (RunningSupplier, Arc<dyn Feed>) {
    let supplier = Supplier::bind(config).await.unwrap().spawn();
    let feed =
        open(&record(&supplier.endpoint), Some(Secret::new("open sesame")), &Network::Unrestricted, quick())
            .unwrap();
    (supplier, feed)
}

/// Reads all records of a query, page by page.
async fn read_all(feed: &dyn Feed, query: &FeedQuery) -> Result<(Vec<Item>, usize), FeedError> {
    let (mut items, mut bad) = (Vec::new(), 0);
    loop {
        let offset = (items.len() + bad) as u64;
        let page = feed.page(query, &at(offset), 50).await?;
        if page.items.is_empty() && page.rejected.is_empty() {
            return Ok((items, bad));
        }
        bad += page.rejected.len();
        items.extend(page.items);
    }
}

/// Hashes of the payloads by stone id.
fn hashes(items: &[Item]) -> BTreeMap<String, String> {
    items.iter().map(|item| (item.record_id.clone(), sha256_hex(item.payload.as_bytes()))).collect()
}

fn truth(supplier: &RunningSupplier) -> BTreeMap<String, Truth> {
    let available = supplier.handle.truth().into_iter().filter(|stone| stone.available);
    available.map(|stone| (stone.id.clone(), stone)).collect()
}

#[tokio::test]
async fn every_stone_is_counted_paged_and_mapped() {
    let (supplier, feed) = start_supplier(Config { stones: 1_234, ..Config::default() }).await;
    let truth = truth(&supplier);
    assert_eq!(feed.count(&all()).await.unwrap().count, truth.len() as u64);
    let (items, bad) = read_all(&*feed, &all()).await.unwrap();
    assert_eq!((items.len(), bad), (1_234, 0));
    let expected = truth.values().map(|stone| (stone.id.clone(), stone.sha256.clone()));
    assert_eq!(hashes(&items), expected.collect());
    // The document is constant, so the supplier has parsed it only for the first page.
    let stats = supplier.handle.stats();
    assert_eq!((stats.logins, stats.pages, stats.compiled), (1, 26, 3), "{stats:?}");
    for item in &items {
        let stone = diamond(&*feed, &item.payload);
        let known = &truth[&stone.stone_id];
        assert_eq!(stone.stone_id, item.record_id);
        assert_eq!(stone.offer_id, item.offer_id);
        assert_eq!((stone.feed_price, stone.lab_grown), (i64::from(known.price), known.labgrown));
    }
    let time = feed.count(&all()).await.unwrap().source_time.unwrap();
    assert!((supplier.handle.now() - time).num_seconds().abs() <= 5, "{time}");
    supplier.stop().await;
}

#[tokio::test]
async fn price_ranges_partition_the_stones() {
    let (supplier, feed) = start_supplier(Config { stones: 500, ..Config::default() }).await;
    let edges = [0, 100_000, 200_000, 200_100, 1_000_000, PRICE_CEILING];
    let (mut seen, mut counted) = (Vec::new(), 0);
    for pair in edges.windows(2) {
        let range = FieldRange { from: pair[0], to: pair[1] };
        let query = FeedQuery { range, updated_from: None };
        counted += feed.count(&query).await.unwrap().count;
        let (items, _) = read_all(&*feed, &query).await.unwrap();
        for item in &items {
            assert!(range.contains(diamond(&*feed, &item.payload).feed_price));
        }
        seen.extend(items.into_iter().map(|item| item.record_id));
    }
    seen.sort();
    assert_eq!((seen, counted), (truth(&supplier).into_keys().collect(), 500));
    supplier.stop().await;
}

#[tokio::test]
async fn incremental_query_returns_only_changed_stones() {
    let (supplier, feed) = start_supplier(Config { stones: 300, ..Config::default() }).await;
    let changed = supplier.handle.change(&Change::random(ChangeKind::Payload, 7, 3)).unwrap();
    let query = FeedQuery { updated_from: Some(changed.at), ..all() };
    let (items, _) = read_all(&*feed, &query).await.unwrap();
    let mut expected = changed.ids;
    expected.sort();
    assert_eq!(hashes(&items).into_keys().collect::<Vec<_>>(), expected);
    supplier.stop().await;
}

#[tokio::test]
async fn lookup_finds_stones_that_are_still_offered() {
    let (supplier, feed) = start_supplier(Config { stones: 200, ..Config::default() }).await;
    let ids: Vec<String> = truth(&supplier).into_keys().take(120).collect();
    supplier.handle.change(&Change::of_ids(ChangeKind::Sell, ids[..10].to_vec())).unwrap();
    supplier.handle.change(&Change::of_ids(ChangeKind::Remove, ids[10..20].to_vec())).unwrap();
    let found = feed.lookup(&ids).unwrap().await.unwrap();
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), ids[20..].iter().cloned().collect());
    supplier.stop().await;
}

#[tokio::test]
async fn unstorable_and_unmappable_stones_are_distinguished() {
    let (supplier, feed) =
        start_supplier(Config { stones: 300, nul_stones: 3, uncertified_stones: 4, ..Config::default() })
            .await;
    let (items, bad) = read_all(&*feed, &all()).await.unwrap();
    assert_eq!((items.len(), bad), (297, 3));
    let faults: Vec<_> = items.iter().filter_map(|item| feed.map(&item.payload).err()).collect();
    assert_eq!(faults.len(), 4);
    assert!(faults.iter().all(|fault| fault.reason() == "`diamond.certificate` is missing"), "{faults:?}");
    supplier.stop().await;
}

#[tokio::test]
async fn supplier_faults_are_retried_or_classified() {
    let (supplier, feed) = start_supplier(Config { stones: 200, ..Config::default() }).await;
    for fail_with in [
        FailWith::Internal,
        FailWith::BadGateway,
        FailWith::BareLimit,
        FailWith::Graphql,
        FailWith::Token,
        FailWith::Html,
        FailWith::BrokenJson,
        FailWith::NullList,
        FailWith::Closed,
    ] {
        supplier.handle.behave(|behaviour| {
            behaviour.fail_next = 1;
            behaviour.fail_with = fail_with;
        });
        let (items, _) = read_all(&*feed, &all()).await.unwrap();
        assert_eq!(items.len(), 200, "{fail_with:?}");
    }
    supplier.handle.expire_tokens();
    assert_eq!(read_all(&*feed, &all()).await.unwrap().0.len(), 200);
    supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    assert_eq!(feed.page(&all(), &at(0), 50).await.unwrap().rejected.len(), 50);
    supplier.handle.behave(|behaviour| behaviour.outage = tidemill_supplier::Outage::Closed);
    assert_eq!(feed.count(&all()).await.unwrap_err().class(), ErrorClass::Outage);
    supplier.handle.behave(|behaviour| {
        behaviour.outage = tidemill_supplier::Outage::Off;
        behaviour.html = true;
    });
    assert_eq!(feed.count(&all()).await.unwrap_err().class(), ErrorClass::Permanent);
    supplier.stop().await;
}

#[tokio::test]
async fn wrong_password_is_an_auth_error() {
    let account = Account { username: "ali".into(), password: "another".into() };
    let (supplier, feed) = start_supplier(Config { account: Some(account), ..Config::default() }).await;
    let error = feed.count(&all()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Auth);
    assert!(error.to_string().contains("invalid username or password"), "{error}");
    supplier.stop().await;
}
