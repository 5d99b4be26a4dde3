//! Sources whose pages contradict each other: each contradiction is a typed error that names it.

use crate::fixture::{RECORDS, Server, definition, json_response, read_all, record, secrets, slice};
use serde_json::json;
use tidemill_core::feed_definition::{PaginationError, RecordQuery};
use tidemill_core::reach::{HostRule, HostRules};
use tidemill_feeds::rest::{RestError, RestSource};
use tidemill_feeds::{ListedHosts, Network};

fn lie(error: RestError) -> PaginationError {
    match error {
        RestError::Pagination(error) => error,
        other @ (RestError::Feed(_) | RestError::Query(_) | RestError::Record(_)) => panic!("{other:?}"),
    }
}

const CURSOR: &str = "{type: cursor, cursor_path: next, cursor_param: cursor}";

#[tokio::test]
async fn cursor_that_repeats_at_once_is_an_error() {
    let server = Server::fixed(json!({ "data": [record(1)], "next": "same" })).await;
    let error = read_all(&server.source(&definition(CURSOR, ""))).await.unwrap_err();
    assert_eq!(lie(error), PaginationError::RepeatedToken { token: "same".into() });
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn cursor_loop_over_several_pages_is_an_error() {
    for records in [vec![record(1)], Vec::new()] {
        let server = Server::start(move |request| {
            let next = match request.query.get("cursor").map(String::as_str) {
                Some("a") => "b",
                Some("b") => "c",
                Some(_) | None => "a",
            };
            json_response(&json!({ "data": records, "next": next }))
        })
        .await;
        let error = read_all(&server.source(&definition(CURSOR, ""))).await.unwrap_err();
        assert_eq!(lie(error), PaginationError::RepeatedToken { token: "a".into() });
        assert_eq!(server.count(), 4);
    }
}

#[tokio::test]
async fn list_that_is_read_twice_is_no_loop() {
    let server = Server::start(|request| {
        let next = if request.query.contains_key("cursor") { None } else { Some("a") };
        json_response(&json!({ "data": [record(request.query.len())], "next": next }))
    })
    .await;
    let source = server.source(&definition(CURSOR, ""));
    for _ in 0..3 {
        assert_eq!(read_all(&source).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn next_url_on_another_host_is_refused() {
    let evil = Server::fixed(json!({ "data": [record(1)] })).await;
    let target = format!("{}/items?page=2", evil.base);
    let server = Server::fixed(json!({ "data": [record(1)], "next": target })).await;
    let text = definition("{type: json_link, next_url_path: next}", "");
    let error = lie(read_all(&server.source(&text)).await.unwrap_err());
    assert!(matches!(&error, PaginationError::ForeignUrl { host, .. } if *host == evil.base), "{error}");
    assert_eq!(evil.count(), 0, "nothing was sent");
}

#[tokio::test]
async fn stored_next_url_on_another_host_is_refused() {
    let server = Server::fixed(json!({ "data": [] })).await;
    let source = server.source(&definition("{type: json_link, next_url_path: next}", ""));
    let place =
        tidemill_core::feed_definition::Place { offset: 10, token: Some("http://127.0.0.1:1/".into()) };
    let error = source.page(&RecordQuery::default(), &place, 10).await.unwrap_err();
    assert!(error.to_string().contains("not on the host of the feed"), "{error}");
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn total_above_the_records_is_an_error() {
    let server = Server::start(|request| {
        let offset = request.number("offset").unwrap();
        json_response(&json!({ "data": slice(offset, 10), "total": 60 }))
    })
    .await;
    let text = definition("{type: offset, limit: 10}", "trust: {end: total, total_path: total}\n");
    let error = lie(read_all(&server.source(&text)).await.unwrap_err());
    assert_eq!(error, PaginationError::TotalContradiction { total: 60, read: RECORDS as u64 });
}

#[tokio::test]
async fn flag_without_a_cursor_is_an_error() {
    let server = Server::fixed(json!({ "data": [record(1)], "more": true })).await;
    let text = definition(CURSOR, "trust: {has_more_path: more}\n");
    let error = lie(read_all(&server.source(&text)).await.unwrap_err());
    assert_eq!(error, PaginationError::NoToken { flag: "more".into() });
}

fn listed(entries: &[&str]) -> Network {
    let rules: HostRules = entries.iter().map(|entry| entry.parse::<HostRule>().unwrap()).collect();
    Network::Listed(ListedHosts::new(rules))
}

#[tokio::test]
async fn host_outside_the_list_is_refused_before_a_request() {
    let server = Server::fixed(json!({ "data": [record(1)] })).await;
    let parsed = server.definition(&definition("single_page", ""));
    let open = |entries: &[&str]| {
        RestSource::new(parsed.clone(), &secrets, &listed(entries), crate::fixture::quick())
    };
    let refused = open(&["api.example.com"]).err().unwrap();
    assert!(refused.to_string().contains("is not in the list reach.hosts"), "{refused}");
    let host = server.base.strip_prefix("http://").unwrap();
    assert_eq!(read_all(&open(&[host]).unwrap()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn token_host_outside_the_list_is_refused() {
    let server = Server::fixed(json!({ "data": [record(1)] })).await;
    let auth = "rate: 0, auth: {type: oauth2_client_credentials, access_token_url: 'https://id.example.com/t', \
        client_id: me, client_secret: {env: PASSWORD}}";
    let parsed = server.definition(&definition("single_page", "").replace("rate: 0", auth));
    let host = server.base.strip_prefix("http://").unwrap();
    let refused = RestSource::new(parsed, &secrets, &listed(&[host]), crate::fixture::quick()).err().unwrap();
    assert!(refused.to_string().contains("id.example.com:443"), "{refused}");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let target = Server::fixed(json!({ "data": [record(1)] })).await;
    let location = format!("{}/items", target.base);
    let server = Server::start(move |_| {
        use axum::response::IntoResponse as _;
        (axum::http::StatusCode::FOUND, [("location", location.clone())]).into_response()
    })
    .await;
    let error = read_all(&server.source(&definition("single_page", ""))).await.unwrap_err();
    assert!(error.to_string().contains("302"), "{error}");
    assert_eq!(target.count(), 0);
}
