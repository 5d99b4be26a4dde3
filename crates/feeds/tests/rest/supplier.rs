//! Feed definitions of the simulated supplier, with every paginator.

use crate::fixture::{quick, secrets};
use std::collections::{BTreeMap, BTreeSet};
use tidemill_core::feed_definition::paging::Lookup;
use tidemill_core::feed_definition::{
    CursorValue, FeedDefinition, Paginator, Place, QueryRange, RecordQuery,
};
use tidemill_feeds::Network;
use tidemill_feeds::rest::{RestError, RestItem, RestPage, RestSource, parse_definition};
use tidemill_supplier::{
    Change, ChangeKind, Config, FailWith, RestDefinition, RestKind, RunningSupplier, Supplier,
    rest_definition,
};

const PAGE_SIZE: u32 = 30;

async fn start_supplier(stones: u32) -> RunningSupplier {
    Supplier::bind(Config { stones, ..Config::default() }).await.unwrap().spawn()
}

fn definition(supplier: &RunningSupplier, kind: RestKind) -> FeedDefinition {
    let text = RestDefinition {
        base_url: &supplier.rest_url,
        feed: "items",
        table: "shop.items",
        kind,
        page_size: PAGE_SIZE,
    };
    let text = text.to_yaml();
    parse_definition(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"))
}

fn open(supplier: &RunningSupplier, kind: RestKind) -> RestSource {
    RestSource::new(definition(supplier, kind), &secrets, &Network::Unrestricted, quick()).unwrap()
}

/// Reads all pages of a query. The number of pages is bounded, so that a loop fails the test.
async fn read_all(source: &RestSource, query: &RecordQuery) -> Result<Vec<RestItem>, RestError> {
    let (mut place, mut items) = (Place::default(), Vec::new());
    for _ in 0..200 {
        let RestPage { items: more, next, .. } = source.page(query, &place, PAGE_SIZE).await?;
        items.extend(more);
        match next {
            Some(next) => place = next,
            None => return Ok(items),
        }
    }
    panic!("the list does not end");
}

fn payloads(items: Vec<RestItem>) -> BTreeMap<String, String> {
    items.into_iter().map(|item| (item.record_id, item.payload)).collect()
}

fn has_positions(paginator: &Paginator) -> bool {
    matches!(
        paginator,
        Paginator::PageNumber { .. } | Paginator::Offset { .. } | Paginator::GraphqlOffset { .. }
    )
}

#[test]
fn definition_of_each_kind_is_valid() {
    for kind in RestKind::ALL {
        let text = rest_definition("http://127.0.0.1:8700/rest", "items", "shop.items", kind);
        let definition = parse_definition(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
        assert_eq!(definition.paginator.word(), kind.as_str());
        assert!(definition.incremental.is_some() && definition.deletes.lookup.is_some());
        assert_eq!(definition.partition.range().is_some(), kind != RestKind::SinglePage);
    }
}

#[tokio::test]
async fn every_paginator_reads_the_payloads_of_the_supplier() {
    let supplier = start_supplier(200).await;
    supplier.handle.change(&Change::random(ChangeKind::Vanish, 20, 1)).unwrap();
    let truth = supplier.handle.rest_truth();
    for kind in RestKind::ALL {
        let source = open(&supplier, kind);
        let items = read_all(&source, &RecordQuery::default()).await.unwrap();
        assert_eq!(items.len(), truth.len(), "{kind}");
        let row = source.map(&items[0].payload).unwrap();
        assert!(row.errors.is_empty() && row.unused_keys.is_empty(), "{kind}: {row:?}");
        assert_eq!(payloads(items), truth, "{kind}");
    }
}

#[tokio::test]
async fn ranges_of_the_price_are_counted_and_read() {
    let supplier = start_supplier(300).await;
    for kind in RestKind::ALL {
        if kind == RestKind::SinglePage {
            continue;
        }
        let source = open(&supplier, kind);
        let mut seen = BTreeSet::new();
        for (from, to) in [(0, 100_000), (100_000, 250_000), (250_000, 50_000_000)] {
            let range = Some(QueryRange { from, to });
            let query = RecordQuery { range, ..RecordQuery::default() };
            let items = read_all(&source, &query).await.unwrap();
            let count = source.count(&query).await.unwrap().unwrap().count;
            assert_eq!(count, items.len() as u64, "{kind}: {from} to {to}");
            seen.extend(items.into_iter().map(|item| item.record_id));
        }
        assert_eq!(seen.len(), 300, "{kind}");
    }
}

#[tokio::test]
async fn changed_and_sold_items_are_read_since_a_time() {
    let supplier = start_supplier(200).await;
    let start = supplier.handle.now();
    let changed = supplier.handle.change(&Change::random(ChangeKind::Price, 40, 1)).unwrap();
    let sold = supplier.handle.change(&Change::random(ChangeKind::Sell, 10, 2)).unwrap();
    let ids = |ids: &[String]| ids.iter().map(|id| supplier.handle.rest_id(id).unwrap()).collect();
    let (changed, sold): (BTreeSet<String>, BTreeSet<String>) = (ids(&changed.ids), ids(&sold.ids));
    let query = RecordQuery { updated_from: Some(CursorValue::Time(start)), ..RecordQuery::default() };
    for kind in RestKind::ALL {
        let items = read_all(&open(&supplier, kind), &query).await.unwrap();
        assert!(items.iter().all(|item| item.cursor.is_some()), "{kind}");
        assert!(items.iter().all(|item| item.is_deleted == sold.contains(&item.record_id)), "{kind}");
        let found: BTreeSet<String> = items.into_iter().map(|item| item.record_id).collect();
        assert_eq!(found, &changed | &sold, "{kind}");
    }
}

#[tokio::test]
async fn lookup_finds_active_items_only() {
    let supplier = start_supplier(150).await;
    let ids: Vec<String> = supplier.handle.rest_truth().into_keys().collect();
    supplier.handle.change(&Change::of_ids(ChangeKind::Sell, ids[..10].to_vec())).unwrap();
    supplier.handle.change(&Change::of_ids(ChangeKind::Remove, ids[10..20].to_vec())).unwrap();
    for kind in RestKind::ALL {
        let found = open(&supplier, kind).lookup(&ids).await.unwrap().unwrap();
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), ids[20..].iter().cloned().collect(), "{kind}");
    }
}

#[tokio::test]
async fn failures_are_retried_with_every_paginator() {
    let supplier = start_supplier(60).await;
    for kind in RestKind::ALL {
        let source = open(&supplier, kind);
        for fail_with in [
            FailWith::BadGateway,
            FailWith::BareLimit,
            FailWith::Closed,
            FailWith::BrokenJson,
            FailWith::Html,
        ] {
            supplier.handle.behave(|behaviour| {
                behaviour.fail_next = 1;
                behaviour.fail_with = fail_with;
            });
            let items = read_all(&source, &RecordQuery::default()).await;
            assert_eq!(items.unwrap().len(), 60, "{kind} {fail_with:?}");
        }
    }
}

#[tokio::test]
async fn contradictions_of_the_supplier_are_errors() {
    let supplier = start_supplier(200).await;
    for kind in RestKind::ALL {
        let source = open(&supplier, kind);
        let read = async || read_all(&source, &RecordQuery::default()).await;
        let is_error = async |what: &str| {
            let error = read().await.unwrap_err();
            assert!(matches!(error, RestError::Pagination(_)), "{kind}, {what}: {error}");
        };
        supplier.handle.behave(|behaviour| behaviour.count_lies_by = 7);
        if has_positions(&source.definition().paginator) || kind == RestKind::SinglePage {
            is_error("total").await;
        }
        supplier.handle.behave(|behaviour| {
            (behaviour.count_lies_by, behaviour.stuck_cursor) = (0, true);
        });
        if !has_positions(&source.definition().paginator) && kind != RestKind::SinglePage {
            is_error("cursor").await;
        }
        supplier.handle.behave(|behaviour| behaviour.stuck_cursor = false);
        assert_eq!(read().await.unwrap().len(), 200, "{kind}");
    }
}

#[tokio::test]
async fn lookup_continues_after_a_page_of_deleted_items() {
    let supplier = start_supplier(50).await;
    let ids: Vec<String> = supplier.handle.rest_truth().into_keys().collect();
    supplier.handle.change(&Change::of_ids(ChangeKind::Sell, ids[..40].to_vec())).unwrap();
    for kind in [RestKind::Offset, RestKind::Cursor] {
        let mut definition = definition(&supplier, kind);
        let Some(Lookup::Ids { ids_max, .. }) = &mut definition.deletes.lookup else { panic!() };
        *ids_max = 50;
        let source = RestSource::new(definition, &secrets, &Network::Unrestricted, quick()).unwrap();
        let mut found = source.lookup(&ids).await.unwrap().unwrap();
        found.sort();
        assert_eq!(found, ids[40..], "{kind}");
    }
}
