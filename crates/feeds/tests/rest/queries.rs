//! Counts, filters, lookups, mapping and the exploration of an unknown API.

use crate::fixture::{RECORDS, ReceivedRequest, Server, definition, json_response, quick, record, status};
use axum::response::IntoResponse as _;
use serde_json::{Value, json};
use tidemill_core::feed_definition::{ColumnValue, CursorValue, Place, QueryRange, RecordQuery};
use tidemill_feeds::Network;
use tidemill_feeds::rest::{explore, parse_definition};

fn records(request: &ReceivedRequest) -> Vec<Value> {
    let (min, max) = (request.number("min").unwrap_or(0), request.number("max").unwrap_or(usize::MAX));
    (0..RECORDS)
        .map(record)
        .filter(|record| (min..max).contains(&usize::try_from(record["price"].as_u64().unwrap()).unwrap()))
        .collect()
}

const HEATMAP: &str =
    "partition: {type: heatmap, kind: number, from: 0, to: 5000, from_param: min, to_param: max, count: ";

fn range(from: i64, to: i64) -> RecordQuery {
    RecordQuery { range: Some(QueryRange { from, to }), ..RecordQuery::default() }
}

#[tokio::test]
async fn count_is_read_from_a_path_a_header_or_a_request() {
    for (count, path) in [
        ("{total_path: meta.total}", "/items"),
        ("{header: X-Total-Count}", "/items"),
        ("{path: /items/count, total_path: n}", "/items/count"),
        ("{path: /items/plain, total_path: $}", "/items/plain"),
    ] {
        let server = Server::start(|request| {
            let count = records(request).len();
            let body = match request.path.as_str() {
                "/items/count" => json!({ "n": count }),
                "/items/plain" => json!(count),
                _ => json!({ "data": [], "meta": { "total": count } }),
            };
            ([("x-total-count", count.to_string())], json_response(&body)).into_response()
        })
        .await;
        let source =
            server.source(&definition("{type: offset, limit: 10}", &format!("{HEATMAP}{count}}}\n")));
        for (from, to, expected) in [(0, 5_000, 47), (1_000, 2_000, 10), (4_000, 5_000, 7)] {
            let found = source.count(&range(from, to)).await.unwrap().unwrap();
            assert_eq!(found.count, expected, "{count}");
            assert!(found.source_time.is_some());
        }
        assert_eq!(server.last().path, path);
        assert_eq!(server.last().query.get("max"), None, "the last range is open");
    }
}

#[tokio::test]
async fn source_without_a_count_has_none() {
    let server = Server::fixed(json!({ "data": [] })).await;
    assert_eq!(server.source(&definition("offset", "")).count(&RecordQuery::default()).await.unwrap(), None);
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn filters_of_a_query_are_sent_with_each_page() {
    let server = Server::fixed(json!({ "data": [record(1)] })).await;
    let extra = "incremental: {cursor_path: updated_at, start_param: since}\n\
        partition: {type: values, param: country, values: [de, fr]}\n";
    let source = server.source(&definition("{type: offset, limit: 10}", extra));
    let since = CursorValue::Time("2026-01-31T12:00:00Z".parse().unwrap());
    let query = RecordQuery { value: Some("de".into()), updated_from: Some(since), range: None };
    let page = source.page(&query, &Place::default(), 10).await.unwrap();
    assert_eq!(server.last().query["since"], "2026-01-31T12:00:00Z");
    assert_eq!(server.last().query["country"], "de");
    assert_eq!(page.items[0].cursor, Some(CursorValue::Time("2026-01-01T00:00:00Z".parse().unwrap())));
}

#[tokio::test]
async fn lookup_returns_the_ids_that_still_exist() {
    let ids: Vec<String> = ["r001", "gone", "r002", "r003", "also gone"].map(str::to_owned).to_vec();
    for (lookup, repeats) in [("{param: ids, separator: ',', ids_max: 2}", false), ("{param: ids}", true)] {
        let server = Server::start(move |request| {
            let pairs = url::form_urlencoded::parse(request.raw_query.as_bytes());
            let asked: Vec<String> = if repeats {
                pairs.filter(|(name, _)| name == "ids").map(|(_, id)| id.into_owned()).collect()
            } else {
                request.query["ids"].split(',').map(str::to_owned).collect()
            };
            // The server answers at most one record at a time.
            let found =
                (0..RECORDS).map(record).filter(|record| asked.iter().any(|id| record["id"] == id.as_str()));
            json_response(&json!({ "data": found.take(1).collect::<Vec<_>>() }))
        })
        .await;
        let source = server
            .source(&definition("{type: offset, limit: 10}", &format!("deletes: {{lookup: {lookup}}}\n")));
        let mut found = source.lookup(&ids).await.unwrap().unwrap();
        found.sort();
        assert_eq!(found, ["r001", "r002", "r003"], "{lookup}");
    }
}

#[tokio::test]
async fn lookup_by_gone_status_requests_each_record() {
    let server = Server::start(|request| match request.path.as_str() {
        "/items/a%2Fb%20c" | "/items/r001" => json_response(&record(1)),
        _ => status(410, "gone"),
    })
    .await;
    let source = server.source(&definition("offset", "deletes: {lookup: {path: '/items/{id}'}}\n"));
    let ids = ["r001", "a/b c", "r999"].map(str::to_owned);
    assert_eq!(source.lookup(&ids).await.unwrap().unwrap(), ["r001", "a/b c"]);
    assert!(source.lookup(&["..".to_owned()]).await.is_err());
    let none = server.source(&definition("offset", ""));
    assert_eq!(none.lookup(&ids).await.unwrap(), None);
}

#[tokio::test]
async fn server_error_during_a_lookup_is_not_a_deletion() {
    let server = Server::start(|_| status(500, "oops")).await;
    let source = server.source(&definition("offset", "deletes: {lookup: {path: '/items/{id}'}}\n"));
    assert!(source.lookup(&["r001".to_owned()]).await.is_err());
}

/// Neither answer says that the record is gone: one is an error, and the other ignores the parameter.
#[tokio::test]
async fn lookup_without_a_list_of_its_ids_is_an_error() {
    let ids = ["r001".to_owned()];
    for (body, words) in [
        (json!({ "error": "try later" }), "answered no list of records"),
        (json!({ "data": [record(1), record(2)] }), "`r002`, for which it was not asked"),
    ] {
        let server = Server::fixed(body).await;
        let source = server.source(&definition("offset", "deletes: {lookup: {param: ids}}\n"));
        let error = source.lookup(&ids).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn stored_payload_is_mapped_to_columns() {
    let server =
        Server::fixed(json!({ "data": [{ "id": 7, "price": "12.50", "tags": ["a"], "new": 1 }] })).await;
    let into = "into:\n  table: shop.items\n  columns:\n    id: {type: integer, nullable: false}\n    \
        price: {type: decimal}\n    tags: {type: json}\n    label: {cel: \"'#' + string(record.id)\"}\n";
    let text = definition("single_page", "").replace("into: {table: shop.items}\n", into);
    let source = server.source(&text);
    let page = source.page(&RecordQuery::default(), &Place::default(), 10).await.unwrap();
    let row = source.map(&page.items[0].payload).unwrap();
    let value =
        |name: &str| row.values.iter().find(|(column, _)| column == name).map(|(_, value)| value.clone());
    assert_eq!(value("id"), Some(ColumnValue::Integer("7".into())));
    assert_eq!(value("price"), Some(ColumnValue::Decimal("12.50".into())));
    assert_eq!(value("tags"), Some(ColumnValue::Json("[\"a\"]".into())));
    assert_eq!(value("label"), Some(ColumnValue::Text("#7".into())));
    assert_eq!((row.errors, row.unused_keys), (vec![], vec!["new".to_owned()]));
}

#[tokio::test]
async fn explored_api_has_a_definition_that_reads_it() {
    let server = Server::start(|request| {
        let offset = request.number("offset").unwrap_or(0);
        let limit = request.number("limit").unwrap_or(10);
        let items = crate::fixture::slice(offset, limit);
        let body = json!({ "items": items, "total": RECORDS, "offset": offset, "limit": 10 });
        json_response(&body)
    })
    .await;
    let url = format!("{}/v1/items?status=open", server.base);
    let found = explore(&url, &Network::Unrestricted, quick()).await.unwrap();
    let undecided = &found.recognition.undecided;
    assert_eq!((found.sample.len(), undecided.len()), (10, 1), "{undecided:?}");
    assert!(undecided[0].contains("start_param"), "{undecided:?}");
    let text = found.to_yaml("items", "shop.items");
    parse_definition(&text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
    let source = server.source(&text);
    crate::fixture::check_complete(&crate::fixture::read_all(&source).await.unwrap());
    assert_eq!(server.last().query["status"], "open");
}
