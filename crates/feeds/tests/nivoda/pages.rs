//! Counts, pages and lookups: the requests that are sent and the answers that are read.

use crate::fixture::{Server, Step, all, at, open, quick, record};
use serde_json::json;
use std::sync::atomic::Ordering;
use tidemill_core::feed::{FeedQuery, FieldRange};
use tidemill_feeds::{Network, Secret, Tuning};

#[tokio::test]
async fn count_returns_the_sources_time() {
    let server = Server::start().await;
    let body = json!({ "data": { "as": { "diamonds_by_query_count": 12 } } }).to_string();
    server.then([Step::Answer(200, vec![("date", "Sun, 06 Nov 1994 08:49:37 GMT")], body)]);
    let counted = server.feed(quick()).count(&all()).await.unwrap();
    assert_eq!(counted.count, 12);
    assert_eq!(counted.source_time, Some("1994-11-06T08:49:37Z".parse().unwrap()));
}

#[tokio::test]
async fn count_and_page_use_the_same_filters() {
    let server = Server::start().await;
    let mut feed = record(&server.endpoint);
    feed.settings = json!({ "labgrown": true, "sizes": { "from": 1.0, "to": 3.0 } });
    let feed = open(&feed, Some(Secret::new("open sesame")), &Network::Unrestricted, quick()).unwrap();
    let updated_from = Some("2026-02-03T04:05:06Z".parse().unwrap());
    let query = FeedQuery { range: FieldRange { from: 50_000, to: 90_000 }, updated_from };
    feed.count(&query).await.unwrap();
    feed.page(&query, &at(29), 31).await.unwrap();
    let (count, page) =
        (&server.requests_of("Count")[0]["variables"], &server.requests_of("Page")[0]["variables"]);
    assert_eq!(count["query"], page["query"]);
    assert_eq!(count["query"]["dollar_value"], json!({ "from": 500, "to": 899 }));
    assert_eq!(count["query"]["labgrown"], json!(true));
    assert_eq!((&page["offset"], &page["limit"]), (&json!(29), &json!(31)));
}

#[tokio::test]
async fn graphql_document_is_constant() {
    let server = Server::start().await;
    let feed = server.feed(quick());
    feed.page(&all(), &at(0), 50).await.unwrap();
    server.token.fetch_add(1, Ordering::SeqCst);
    feed.page(&all(), &at(50), 10).await.unwrap();
    let pages = server.requests_of("Page");
    // The second request is the one whose token was refused.
    assert_eq!(pages.len(), 3);
    assert!(pages.iter().all(|page| page["query"] == pages[0]["query"]));
    let text = pages[0]["query"].as_str().unwrap();
    assert!(
        text.contains("order: { type: createdAt, direction: ASC }") && !text.contains("token-"),
        "{text}"
    );
}

#[tokio::test]
async fn page_keeps_the_order_and_separates_bad_records() {
    let server = Server::start().await;
    *server.items.lock().unwrap() = json!([
        { "id": "O-2", "price": 5, "diamond": { "id": "S-2" } },
        { "id": "O-9", "price": 5, "diamond": {} },
        { "id": "O-1", "price": 5, "diamond": { "id": "S-1", "image": "\u{0}" } },
        { "id": "O-3", "price": 5, "diamond": { "id": "S-3", "image": "\\u0000" } },
        { "id": "O-4", "price": 5, "diamond": { "id": "S-4", "image": "x".repeat(2_000) } },
        { "id": "O-2", "price": 5, "diamond": { "id": "S-2" } },
    ]);
    let feed = server.feed(Tuning { item_bytes_max: 1_000, ..quick() });
    let page = feed.page(&all(), &at(0), 50).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|item| item.record_id.as_str()).collect();
    assert_eq!(names, ["S-2", "S-3", "S-2"]);
    let bad: Vec<_> = page.rejected.iter().map(|bad| bad.record_id.as_deref()).collect();
    assert_eq!(bad, [None, Some("S-1"), Some("S-4")]);
    assert!(!page.is_last);
}

#[tokio::test]
async fn records_without_ids_are_bad_and_make_no_lookup_miss() {
    let server = Server::start().await;
    let feed = server.feed(quick());
    *server.items.lock().unwrap() = json!([{ "id": "O-1" }, { "id": "O-2" }]);
    let page = feed.page(&all(), &at(0), 50).await.unwrap();
    assert_eq!((page.items.len(), page.rejected.len()), (0, 2));
    assert_ne!(page.rejected[0].name(), page.rejected[1].name());
    let ids = ["S-1".to_owned(), "S-2".to_owned()];
    let mut found = feed.lookup(&ids).unwrap().await.unwrap();
    found.sort();
    assert_eq!(found, ids);
}

#[tokio::test]
async fn oversized_page_is_requested_in_smaller_parts() {
    let server = Server::start().await;
    // Forty records of 240 KB exceed eight megabytes.
    *server.large.lock().unwrap() = Some((40, 240_000));
    let feed = server.feed(quick());
    let page = feed.page(&all(), &at(0), 50).await.unwrap();
    let bytes: usize = page.items.iter().map(|item| item.payload.len()).sum();
    assert!(page.rejected.is_empty() && !page.items.is_empty(), "{:?}", page.rejected.len());
    assert!(bytes <= tidemill_core::limits::READ_BYTES_MAX, "{bytes}");
    let limits: Vec<_> =
        server.requests_of("Page").iter().map(|page| page["variables"]["limit"].as_u64().unwrap()).collect();
    assert_eq!(limits, [50, 25]);
}

#[tokio::test]
async fn surplus_records_are_dropped() {
    let server = Server::start().await;
    *server.items.lock().unwrap() = json!([{ "diamond": { "id": "1" } }, { "diamond": { "id": "2" } }]);
    let page = server.feed(quick()).page(&all(), &at(0), 1).await.unwrap();
    assert_eq!((page.items.len(), page.items[0].record_id.as_str()), (1, "1"));
}

#[tokio::test]
async fn lookup_sends_fifty_ids_at_a_time_and_ignores_other_ids() {
    let server = Server::start().await;
    *server.items.lock().unwrap() = json!([
        { "id": "O-7", "diamond": { "id": "S-7" } },
        { "id": "O-8", "diamond": { "id": "S-8", "image": "\u{0}" } },
        { "id": "O-X", "diamond": { "id": "S-X" } },
    ]);
    let ids: Vec<String> = (0..120).map(|number| format!("S-{number}")).collect();
    let feed = server.feed(quick());
    let found = feed.lookup(&ids).unwrap().await.unwrap();
    let found: std::collections::BTreeSet<_> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["S-7", "S-8"].into());
    let requests = server.requests_of("Page");
    let lengths: Vec<_> =
        requests.iter().map(|page| page["variables"]["query"]["ids"].as_array().unwrap().len()).collect();
    // An answer may be short: missing ids are requested again until an answer contains none of them.
    assert_eq!(lengths, [50, 48, 50, 20]);
    // A lookup uses the feed's own filters; otherwise a sold stone would seem to be offered.
    assert_eq!(requests[0]["variables"]["query"]["availability"], json!(["AVAILABLE"]));
    assert_eq!(requests[0]["variables"]["query"].get("dollar_value"), None);
    assert!(feed.lookup(&[]).unwrap().await.unwrap().is_empty());
}
