//! Filters, lookups, and requests that are rejected.

use super::client::{COUNT, Filters, by_id, truth};
use crate::fixture::SupplierFixture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tidemill_supplier::{Change, ChangeKind, RestKind, rest_definition};

fn keys(items: Vec<Value>) -> BTreeSet<String> {
    by_id(items).into_keys().collect()
}

fn prices(from: Option<f64>, to: Option<f64>) -> Filters {
    Filters { price_from: from, price_to: to, ..Filters::default() }
}

#[tokio::test]
async fn price_ranges_partition_the_items() {
    let fixture = SupplierFixture::stones(300).await;
    let truth = truth(&fixture);
    let cents = |item: &Value| (item["price"].as_f64().unwrap() * 100.0).round() / 100.0;
    for kind in RestKind::ALL {
        // Whole dollars, and bounds between two dollars.
        for (low, high) in [(1_000.0, 5_000.0), (999.99, 4_321.5)] {
            let ranges = [(None, Some(low)), (Some(low), Some(high)), (Some(high), None)];
            let mut seen = 0;
            for (from, to) in ranges {
                let filters = prices(from, to);
                let found = fixture.rest_items(kind, &filters).await;
                assert!(found.iter().all(|item| from.is_none_or(|from| cents(item) >= from)), "{kind}");
                assert!(found.iter().all(|item| to.is_none_or(|to| cents(item) < to)), "{kind}");
                assert_eq!(
                    fixture.rest_count(kind, &filters).await,
                    found.len() as u64,
                    "{kind} {filters:?}"
                );
                assert!(!found.is_empty());
                seen += found.len();
            }
            assert_eq!(seen, truth.len(), "{kind}");
        }
    }
}

#[tokio::test]
async fn price_bounds_are_exact() {
    let fixture = SupplierFixture::stones(3).await;
    for (number, price) in [(0, 9_999), (1, 10_000), (2, 10_001)] {
        let ids = vec![format!("itm_{number:010}")];
        let change = Change { price_cents: Some(price), ..Change::of_ids(ChangeKind::Price, ids) };
        fixture.supplier.handle.change(&change).unwrap();
    }
    for (from, to, expected) in [
        (None, Some(100.0), 1),
        (Some(100.0), None, 2),
        (Some(100.0), Some(100.01), 1),
        (Some(99.99), Some(100.01), 2),
        (Some(100.01), None, 1),
        (Some(100.0), Some(100.0), 0),
        (Some(200.0), Some(100.0), 0),
        (None, Some(0.0), 0),
    ] {
        let filters = prices(from, to);
        for kind in [RestKind::Offset, RestKind::GraphqlConnection] {
            assert_eq!(fixture.rest_count(kind, &filters).await, expected, "{kind} {filters:?}");
            assert_eq!(fixture.rest_items(kind, &filters).await.len() as u64, expected, "{kind} {filters:?}");
        }
    }
}

#[tokio::test]
async fn changes_are_found_by_their_time() {
    let fixture = SupplierFixture::stones(200).await;
    let handle = &fixture.supplier.handle;
    let start = handle.now();
    let mut expected = BTreeSet::new();
    for (what, seed) in
        [(ChangeKind::Payload, 1), (ChangeKind::Price, 2), (ChangeKind::Sell, 3), (ChangeKind::Hold, 4)]
    {
        let changed = handle.change(&Change::random(what, 7, seed)).unwrap();
        expected.extend(changed.ids.iter().map(|id| handle.rest_id(id).unwrap()));
    }
    let removed = handle.change(&Change::random(ChangeKind::Remove, 5, 5)).unwrap();
    for id in &removed.ids {
        expected.remove(&handle.rest_id(id).unwrap());
    }
    for kind in RestKind::ALL {
        let filters = Filters::since(start);
        let found = by_id(fixture.rest_items(kind, &filters).await);
        assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), expected, "{kind}");
        assert_eq!(fixture.rest_count(kind, &filters).await, expected.len() as u64, "{kind}");
        let sold = found.values().filter(|item| item["status"] == "sold").count();
        assert_eq!(sold, found.len() - found.keys().filter(|id| truth(&fixture).contains_key(*id)).count());
        assert!(sold > 7, "{kind}");
    }
    let latest = found_times(&fixture).await.into_iter().max().unwrap();
    let at_latest = Filters { updated_since: Some(latest), ..Filters::default() };
    assert!(fixture.rest_count(RestKind::Cursor, &at_latest).await > 0, "the time is not inclusive");
}

async fn found_times(fixture: &SupplierFixture) -> Vec<String> {
    let items = fixture.rest_items(RestKind::SinglePage, &Filters::default()).await;
    items.iter().map(|item| item["updated_at"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn items_are_found_by_id_until_they_are_removed() {
    let fixture = SupplierFixture::stones(50).await;
    let ids: Vec<String> = truth(&fixture).into_keys().collect();
    let change = |what, id: &String| fixture.supplier.handle.change(&Change::of_ids(what, vec![id.clone()]));
    change(ChangeKind::Sell, &ids[1]).unwrap();
    change(ChangeKind::Remove, &ids[2]).unwrap();
    let requested = vec![ids[0].clone(), ids[1].clone(), ids[2].clone(), "itm_x".to_owned(), ids[0].clone()];
    let filters = Filters { ids: requested, ..Filters::default() };
    for kind in RestKind::ALL {
        let found = by_id(fixture.rest_items(kind, &filters).await);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&ids[0], &ids[1]], "{kind}");
        assert_eq!(
            (&found[&ids[0]]["status"], &found[&ids[1]]["status"]),
            (&json!("active"), &json!("sold"))
        );
        if !kind.is_graphql() {
            let status = async |id: &str| fixture.get(&format!("/rest/{kind}/items/{id}")).await.status;
            assert_eq!((status(&ids[0]).await, status(&ids[1]).await), (200, 410), "{kind}");
            assert_eq!((status(&ids[2]).await, status("itm_9999999999").await), (404, 404), "{kind}");
        }
    }
    assert_eq!(fixture.supplier.handle.stats().lookups, 4 * 9);
}

#[tokio::test]
async fn damaged_items_can_be_listed() {
    let fixture = SupplierFixture::stones(20).await;
    let handle = &fixture.supplier.handle;
    handle.change(&Change::of_ids(ChangeKind::Nul, vec!["itm_0000000003".to_owned()])).unwrap();
    handle.change(&Change::of_ids(ChangeKind::NoCertificate, vec!["itm_0000000004".to_owned()])).unwrap();
    let items = by_id(fixture.rest_items(RestKind::Keyset, &Filters::default()).await);
    assert_eq!(items["itm_0000000003"]["notes"], "see \0");
    assert_eq!(items["itm_0000000004"]["brand"], Value::Null);
    assert_eq!(keys(items.into_values().collect()).len(), 20);
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_a_reason() {
    let fixture = SupplierFixture::stones(3).await;
    for (path, status, reason) in [
        ("/rest/items?limit=0", 400, "limit must be between 1 and 1000, not 0"),
        ("/rest/items?sort=price", 400, "unknown parameter `sort`"),
        ("/rest/items/count?sort=price", 400, "unknown parameter `sort`"),
        ("/rest/cursor/items?cursor=7", 400, "invalid cursor `7`"),
        ("/rest/items/none", 404, "the item does not exist"),
        ("/rest/graphql_offset/items", 404, "the lists are at /rest/KIND/items and /rest/graphql"),
        ("/rest/graphql", 405, "the resource does not support this method"),
        ("/rest/", 404, "the lists are at /rest/KIND/items and /rest/graphql"),
    ] {
        let response = fixture.get(path).await;
        assert_eq!((response.status, response.json()), (status, json!({ "error": reason })), "{path}");
    }
    let post = fixture.post("/rest/items", String::new()).await.unwrap();
    assert_eq!((post.status, post.headers["allow"].to_str().unwrap()), (405, "GET"));
    for (document, variables, reason) in [
        ("{ stones }", json!({}), "type `Query` has no field `stones`"),
        ("{ items(first: 1) { nodes { id } } }", json!({}), "field `items` has no argument `first`"),
        ("{ items { nodes { price { id } } } }", json!({}), "field `price` of type `Item` has no fields"),
        ("{ items(limit: 1001) { totalCount } }", json!({}), "limit must be between 1 and 1000, not 1001"),
        (
            "query A { itemsCount } query B { itemsCount }",
            json!({}),
            "the document must contain one operation",
        ),
        (COUNT, json!({"priceTo": "12"}), "priceTo must be a non-negative number, not \"12\""),
        (COUNT, json!({"ids": 7}), "ids must be a list, not 7"),
    ] {
        assert_eq!(fixture.rest_query(document, variables).await.error(), reason, "{document}");
    }
    assert_eq!(fixture.post("/rest/graphql", "x".to_owned()).await.unwrap().status, 400);
}

#[tokio::test]
async fn definition_names_the_pagination_of_its_kind() {
    for kind in RestKind::ALL {
        let text = rest_definition("http://127.0.0.1:9/rest", "items", "shop.items", kind);
        assert!(text.contains(&format!("paginator: {{type: {kind}")), "{text}");
        assert_eq!(text.contains("limit: 100"), kind != RestKind::SinglePage, "{text}");
        assert_eq!(text.contains("graphql"), kind.is_graphql(), "{text}");
    }
    assert_eq!("keyset".parse(), Ok(RestKind::Keyset));
    assert!("pages".parse::<RestKind>().unwrap_err().contains("single_page, page_number"));
}
