//! The configured misbehaviour of the REST API.

use super::client::{Filters, Place, by_id, truth};
use crate::fixture::SupplierFixture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tidemill_supplier::{Behaviour, DuplicateListing, RestKind};

/// Kinds whose next page follows from a token of the answer.
const TOKENS: [RestKind; 6] = [
    RestKind::Cursor,
    RestKind::JsonLink,
    RestKind::HeaderCursor,
    RestKind::HeaderUrl,
    RestKind::HeaderLink,
    RestKind::GraphqlConnection,
];
const POSITIONS: [RestKind; 3] = [RestKind::PageNumber, RestKind::Offset, RestKind::GraphqlOffset];

async fn with(stones: u32, change: impl FnOnce(&mut Behaviour)) -> SupplierFixture {
    let fixture = SupplierFixture::stones(stones).await;
    fixture.supplier.handle.behave(change);
    fixture
}

#[tokio::test]
async fn failures_apply_to_every_kind() {
    let fixture = SupplierFixture::stones(10).await;
    let all = Filters::default();
    for kind in RestKind::ALL {
        for (fail_with, expected) in [
            ("429", 429),
            ("429-bare", 429),
            ("500", 500),
            ("502", 502),
            ("503", 503),
            ("graphql", 200),
            ("token", if kind.is_graphql() { 200 } else { 401 }),
            ("html", 200),
            ("broken-json", 200),
            ("null-list", 200),
        ] {
            fixture
                .admin("behaviour", json!({"fail_next": 1, "fail_with": fail_with, "retry_after_secs": 7}))
                .await;
            let path = if kind.is_graphql() { "graphql".to_owned() } else { format!("{kind}/items") };
            let response = if kind.is_graphql() {
                fixture
                    .post("/rest/graphql", json!({"query": "{ items { totalCount } }"}).to_string())
                    .await
                    .unwrap()
            } else {
                fixture.get(&format!("/rest/{path}")).await
            };
            assert_eq!(response.status, expected, "{kind} {fail_with}");
            let is_json = serde_json::from_str::<Value>(&response.text).is_ok();
            assert_eq!(is_json, !matches!(fail_with, "html" | "broken-json"), "{kind} {fail_with}");
            assert_eq!(response.headers.contains_key("retry-after"), matches!(fail_with, "429" | "503"));
        }
        assert_eq!(fixture.rest_items(kind, &all).await.len(), 10, "{kind}");
        fixture.admin("behaviour", json!({"fail_next": 1, "fail_with": "500", "fail_on": "count"})).await;
        assert_eq!(fixture.rest_items(kind, &all).await.len(), 10, "{kind}");
        let path = if kind.is_graphql() { "cursor".to_owned() } else { kind.to_string() };
        assert_eq!(fixture.get(&format!("/rest/{path}/items/count")).await.status, 500, "{kind}");
        fixture.admin("behaviour", json!({"fail_next": 0, "fail_on": "any"})).await;
    }
}

#[tokio::test]
async fn outages_and_limits_apply_to_the_rest_api() {
    let fixture = with(10, |behaviour| behaviour.outage = tidemill_supplier::Outage::Unavailable).await;
    assert_eq!(fixture.get("/rest/items").await.status, 503);
    fixture.supplier.handle.behave(|behaviour| {
        behaviour.outage = tidemill_supplier::Outage::Off;
        behaviour.rate_limit = Some(0);
    });
    let refused = fixture.get("/rest/items").await;
    assert_eq!((refused.status, refused.json()), (429, json!({"error": "try again later"})));
    fixture.supplier.handle.behave(|behaviour| {
        behaviour.rate_limit = None;
        behaviour.latency_ms = 100;
    });
    let start = std::time::Instant::now();
    assert_eq!(fixture.get("/rest/items").await.status, 200);
    assert!(start.elapsed() >= std::time::Duration::from_millis(100));
}

#[tokio::test]
async fn totals_can_be_too_high_or_too_low() {
    let fixture = SupplierFixture::stones(100).await;
    for (lie, expected) in [(17, 117), (-30, 70), (-200, 0)] {
        fixture.supplier.handle.behave(|behaviour| behaviour.count_lies_by = lie);
        for kind in RestKind::ALL {
            let page = fixture.rest_page(kind, &Filters::default(), &Place::default(), 30).await;
            assert_eq!(page.total(), expected, "{kind}");
            assert_eq!(fixture.rest_count(kind, &Filters::default()).await, expected, "{kind}");
        }
    }
    fixture.admin("behaviour", json!({"count_lies_by": 0, "count_ahead_next": 1})).await;
    assert_eq!(fixture.rest_count(RestKind::Offset, &Filters::default()).await, 101);
    assert_eq!(fixture.rest_count(RestKind::Offset, &Filters::default()).await, 100);
}

#[tokio::test]
async fn pages_can_ignore_their_position() {
    let fixture = SupplierFixture::stones(100).await;
    for kind in TOKENS.into_iter().chain(POSITIONS).chain([RestKind::Keyset]) {
        let all = Filters::default();
        let first = fixture.rest_page(kind, &all, &Place::default(), 30).await;
        let token = first.token().or_else(|| first.ids().pop());
        let place = Place { offset: 30, token };
        fixture.supplier.handle.behave(|behaviour| behaviour.repeat_next = 1);
        assert_eq!(fixture.rest_page(kind, &all, &place, 30).await.ids(), first.ids(), "{kind}");
        assert_eq!(fixture.rest_page(kind, &all, &place, 30).await.ids()[0], "itm_0000000030", "{kind}");
    }
}

#[tokio::test]
async fn cursors_can_stand_still() {
    let fixture = with(100, |behaviour| behaviour.stuck_cursor = true).await;
    for kind in TOKENS {
        let first = fixture.rest_page(kind, &Filters::default(), &Place::default(), 30).await;
        let place = Place { offset: 30, token: first.token() };
        let second = fixture.rest_page(kind, &Filters::default(), &place, 30).await;
        assert_eq!(second.ids(), first.ids(), "{kind}");
        assert!(second.token().is_some() && second.token() == first.token(), "{kind}");
    }
    let place = Place { offset: 30, token: Some("itm_0000000029".to_owned()) };
    let page = fixture.rest_page(RestKind::Keyset, &Filters::default(), &place, 30).await;
    assert_eq!(page.ids()[0], "itm_0000000000");
}

#[tokio::test]
async fn short_pages_omit_items_of_numbered_pages_only() {
    let fixture = SupplierFixture::stones(100).await;
    for kind in RestKind::ALL {
        fixture.supplier.handle.behave(|behaviour| behaviour.short_next = 2);
        let found = by_id(fixture.rest_items(kind, &Filters::default()).await);
        fixture.supplier.handle.behave(|behaviour| behaviour.short_next = 0);
        let is_lossy = matches!(kind, RestKind::SinglePage | RestKind::PageNumber);
        assert_eq!(found.len() < 100, is_lossy, "{kind}: {}", found.len());
    }
}

#[tokio::test]
async fn pages_in_the_middle_can_be_empty() {
    let fixture = SupplierFixture::stones(100).await;
    for kind in TOKENS {
        let first = fixture.rest_page(kind, &Filters::default(), &Place::default(), 30).await;
        fixture.supplier.handle.behave(|behaviour| behaviour.empty_next = 2);
        let mut tokens = vec![first.token().unwrap()];
        for _ in 0..2 {
            let place = Place { offset: 30, token: tokens.last().cloned() };
            let empty = fixture.rest_page(kind, &Filters::default(), &place, 30).await;
            assert_eq!(empty.items.len(), 0, "{kind}");
            assert_ne!(empty.has_more(), Some(false), "{kind}");
            tokens.push(empty.token().unwrap());
        }
        assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 3, "{kind}: the cursor does not move");
        let place = Place { offset: 30, token: tokens.pop() };
        let page = fixture.rest_page(kind, &Filters::default(), &place, 30).await;
        assert_eq!(page.ids()[0], "itm_0000000030", "{kind}");
    }
    for kind in POSITIONS {
        fixture.supplier.handle.behave(|behaviour| behaviour.empty_next = 1);
        let place = Place { offset: 30, token: None };
        let empty = fixture.rest_page(kind, &Filters::default(), &place, 30).await;
        assert_eq!((empty.items.len(), empty.has_more(), empty.total()), (0, Some(true), 100), "{kind}");
    }
}

#[tokio::test]
async fn flag_for_more_items_can_be_wrong() {
    let fixture = SupplierFixture::stones(100).await;
    let last = Place { offset: 90, token: None };
    for lie in [true, false] {
        fixture.supplier.handle.behave(|behaviour| behaviour.has_more = Some(lie));
        for kind in POSITIONS.into_iter().chain([RestKind::Keyset, RestKind::GraphqlConnection]) {
            for place in [Place::default(), last.clone()] {
                let page = fixture.rest_page(kind, &Filters::default(), &place, 30).await;
                assert_eq!(page.has_more(), Some(lie), "{kind}");
            }
        }
    }
}

#[tokio::test]
async fn lists_can_ignore_the_time_of_changes() {
    let fixture = SupplierFixture::stones(100).await;
    let since = Filters::since(fixture.supplier.handle.now());
    for kind in RestKind::ALL {
        assert_eq!(fixture.rest_count(kind, &since).await, 0, "{kind}");
        fixture.supplier.handle.behave(|behaviour| behaviour.ignore_updated_since = true);
        assert_eq!(by_id(fixture.rest_items(kind, &since).await), truth(&fixture), "{kind}");
        assert_eq!(fixture.rest_count(kind, &since).await, 100, "{kind}");
        fixture.supplier.handle.behave(|behaviour| behaviour.ignore_updated_since = false);
    }
}

#[tokio::test]
async fn items_can_be_listed_twice_without_id_or_not_at_all() {
    let doubles = vec![DuplicateListing { at: 40, of: 5 }, DuplicateListing { at: 70, of: 60 }];
    let fixture = with(100, |behaviour| behaviour.doubles = doubles).await;
    for kind in RestKind::ALL {
        if kind == RestKind::Keyset {
            continue;
        }
        let pages = fixture.rest_pages(kind, &Filters::default(), 30).await;
        assert!(pages.iter().all(|page| page.total() == 102), "{kind}");
        let ids: Vec<String> = pages.iter().flat_map(super::client::Page::ids).collect();
        assert_eq!((ids.len(), &ids[40], &ids[70]), (102, &ids[5], &ids[61]), "{kind}");
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 100, "{kind}");
    }
    fixture.admin("behaviour", json!({"doubles": [], "hidden": [50], "nameless": [51]})).await;
    for kind in RestKind::ALL {
        if kind == RestKind::Keyset {
            continue;
        }
        let items = fixture.rest_items(kind, &Filters::default()).await;
        let is_short = kind == RestKind::Offset || kind == RestKind::GraphqlOffset;
        // A client with positions advances by the number of items, so it reads one of them twice.
        assert_eq!(items.len(), if is_short { 100 } else { 99 }, "{kind}");
        assert_eq!(items.iter().filter(|item| item["id"].is_null()).count(), 1, "{kind}");
    }
    fixture.admin("behaviour", json!({"hidden": [], "nameless": [], "duplicate_next": 1})).await;
    let page = fixture.rest_page(RestKind::Offset, &Filters::default(), &Place::default(), 30).await;
    assert_eq!((page.items.len(), &page.items[30]), (31, &page.items[0]));
}

#[tokio::test]
async fn keyset_continues_after_a_second_listing() {
    let doubles = vec![DuplicateListing { at: 10, of: 90 }];
    let fixture = with(100, |behaviour| behaviour.doubles = doubles).await;
    let pages = fixture.rest_pages(RestKind::Keyset, &Filters::default(), 30).await;
    let ids: Vec<String> = pages.iter().flat_map(super::client::Page::ids).collect();
    assert_eq!((ids.len(), &ids[10]), (101, &"itm_0000000090".to_owned()));
}

#[tokio::test]
async fn ids_can_have_spaces_and_items_padding() {
    let fixture = with(10, |behaviour| {
        (behaviour.spaced_ids, behaviour.padding_bytes) = (true, 5_000);
    })
    .await;
    let truth = truth(&fixture);
    assert!(truth.contains_key("itm_0000000004 ") && !truth.contains_key("itm_0000000005"));
    for kind in [RestKind::Keyset, RestKind::Cursor, RestKind::GraphqlOffset] {
        let pages = fixture.rest_pages(kind, &Filters::default(), 2).await;
        let items: Vec<Value> = pages.into_iter().flat_map(|page| page.items).collect();
        assert!(items.iter().all(|item| (5_000..8_000).contains(&item.to_string().len())));
        assert_eq!(by_id(items), truth, "{kind}");
    }
    let one = fixture.get("/rest/items/itm_0000000004%20").await.json();
    assert_eq!(one, truth["itm_0000000004 "]);
}
