//! Answers that no source should give: each is a typed error or a rejected record, and memory stays bounded.

use crate::fixture::{
    RECORDS, Server, check_complete, definition, json_response, quick, read_all, record, slice, status,
    streaming,
};
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tidemill_core::feed_definition::{Place, RecordQuery};
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_feeds::rest::RestError;
use tidemill_feeds::{ErrorClass, FeedError, Tuning};

fn text() -> String {
    definition("single_page", "")
}

/// Reads the first page of a server that always gives this answer.
async fn failing(
    answer: impl Fn() -> Response + Send + Sync + 'static,
    tuning: Tuning,
) -> (RestError, usize) {
    let server = Server::start(move |_| answer()).await;
    let source = server.try_source(&text(), tuning).unwrap();
    let error = source.page(&RecordQuery::default(), &Place::default(), 10).await.unwrap_err();
    (error, server.count())
}

#[tokio::test]
async fn answer_that_is_no_json_is_permanent_with_an_excerpt() {
    for (body, words) in [
        ("<html><body>Maintenance", "answered HTML instead of JSON"),
        ("<?xml version=\"1.0\"?><items/>", "answered XML instead of JSON; ask for JSON, such as with"),
        ("Service is\ntired", "`Service is tired`"),
        ("", "answered without a body"),
        ("{\"data\": [1, }", "is not JSON: expected a value at byte 13"),
        ("{\"items\": []}", "answered no list of records at `data`"),
    ] {
        let (error, requests) = failing(move || body.into_response(), quick()).await;
        assert_eq!(error.class(), ErrorClass::Permanent, "{body}");
        assert!(error.to_string().contains(words), "{body}: {error}");
        assert!((1..=3).contains(&requests));
    }
}

#[tokio::test]
async fn truncated_json_is_an_outage() {
    let (error, requests) = failing(|| "{\"data\": [".into_response(), quick()).await;
    assert_eq!((error.class(), requests), (ErrorClass::Outage, 3), "{error}");
}

#[tokio::test]
async fn deep_json_is_refused_without_a_retry() {
    let deep = || {
        let body = format!("{{\"data\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        body.into_response()
    };
    let (error, requests) = failing(deep, quick()).await;
    assert_eq!((error.class(), requests), (ErrorClass::Permanent, 1));
    assert!(error.to_string().contains("nested more than 72 levels deep"), "{error}");
}

/// A body of chunks without an end. It counts the bytes that the client accepted.
struct Endless(Arc<AtomicUsize>);

impl axum::body::HttpBody for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        let chunk = Bytes::from(vec![b' '; 64 * 1024]);
        self.0.fetch_add(chunk.len(), Ordering::SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(chunk))))
    }
}

#[tokio::test]
async fn endless_body_is_aborted_at_the_limit() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let (error, requests) =
        failing(move || streaming(Body::new(Endless(Arc::clone(&counter)))), quick()).await;
    assert_eq!((error.class(), requests), (ErrorClass::Permanent, 1), "{error}");
    assert!(error.to_string().contains("answered more than"), "{error}");
    // The rest are buffers of the connection.
    assert!(sent.load(Ordering::SeqCst) < 3 * READ_BYTES_MAX, "{sent:?}");
}

#[tokio::test]
async fn announced_huge_body_is_aborted_early() {
    let answer = || {
        let chunk = Bytes::from(vec![b'x'; 100 * 1024 * 1024]);
        Body::from(chunk).into_response()
    };
    let begun = Instant::now();
    let (error, requests) = failing(answer, quick()).await;
    assert_eq!((error.class(), requests), (ErrorClass::Permanent, 1), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn page_that_is_too_large_is_requested_with_fewer_records() {
    let server = Server::start(|request| {
        let offset = request.number("offset").unwrap();
        let records: Vec<Value> = slice(offset, request.number("limit").unwrap())
            .into_iter()
            .map(|mut record| {
                record["blob"] = json!("x".repeat(1_200_000));
                record
            })
            .collect();
        json_response(&json!({ "data": records }))
    })
    .await;
    let tuning = Tuning { item_bytes_max: 2_000_000, ..quick() };
    let source = server.try_source(&definition("{type: offset, limit: 10}", ""), tuning).unwrap();
    let page = source.page(&RecordQuery::default(), &Place::default(), 10).await.unwrap();
    assert_eq!((page.items.len(), server.count()), (5, 2));
    assert_eq!(page.next, Some(Place { offset: 5, token: None }));
}

/// The default of a client is 45 s; a definition may ask for more, up to the bound that `feed check` names.
#[tokio::test]
async fn time_limit_of_the_definition_applies() {
    let slow = Server::start(|_| {
        std::thread::sleep(Duration::from_millis(300));
        json_response(&json!({ "data": [] }))
    });
    let server = slow.await;
    let tuning = Tuning { answer_timeout: Duration::from_millis(50), retries_max: 0, ..quick() };
    let text = definition("single_page", "").replace("rate: 0", "rate: 0, timeout: 60s");
    let source = server.try_source(&text, tuning).unwrap();
    let page = source.page(&RecordQuery::default(), &Place::default(), 10).await.unwrap();
    assert_eq!(page.items, []);
    let text =
        definition("single_page", "").replace("{base}", &server.base).replace("rate: 0", "timeout: 11m");
    let errors = tidemill_feeds::rest::parse_definition(&text).unwrap_err();
    assert!(format!("{errors:?}").contains("must be between 1s and 10m"), "{errors:#?}");
}

#[tokio::test]
async fn slow_body_times_out() {
    let tuning = Tuning { answer_timeout_max: Duration::from_secs(1), retries_max: 1, ..quick() };
    let slow = || {
        struct Slow;
        impl axum::body::HttpBody for Slow {
            type Data = Bytes;
            type Error = std::convert::Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
                Poll::Pending
            }
        }
        streaming(Body::new(Slow))
    };
    let (error, requests) = failing(slow, tuning).await;
    assert_eq!((error.class(), requests), (ErrorClass::Outage, 2));
    assert!(error.to_string().contains("did not answer within 1 s"), "{error}");
}

#[tokio::test]
async fn rate_limit_waits_as_long_as_retry_after_says() {
    let server = Server::fixed(json!({ "data": [record(1)] })).await;
    server.then((axum::http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response());
    let begun = Instant::now();
    assert_eq!(read_all(&server.source(&text())).await.unwrap().len(), 1);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn server_errors_are_retried_and_rejections_are_not() {
    for (code, class, requests) in [
        (500, ErrorClass::Outage, 3),
        (503, ErrorClass::Outage, 3),
        (429, ErrorClass::Outage, 3),
        (400, ErrorClass::Permanent, 1),
        (404, ErrorClass::Permanent, 1),
        (403, ErrorClass::Auth, 1),
    ] {
        let (error, count) = failing(move || status(code, "sorry"), quick()).await;
        assert_eq!((error.class(), count), (class, requests), "{code}: {error}");
    }
    let (error, _) = failing(|| status(400, "unknown filter `x`"), quick()).await;
    assert!(error.to_string().contains("(`unknown filter `x``)"), "{error}");
}

#[tokio::test]
async fn graphql_error_in_a_successful_answer_is_an_error() {
    let server =
        Server::fixed(json!({ "data": null, "errors": [{ "message": "Cannot query field \"x\"" }] })).await;
    let text = text().replace("path: /items, ", "path: /items, graphql: {query: 'query { x }'}, ");
    let error = read_all(&server.source(&text)).await.unwrap_err();
    assert!(
        matches!(&error, RestError::Feed(FeedError::Permanent { reason, .. }) if reason.contains("Cannot query"))
    );
}

#[tokio::test]
async fn bad_records_are_rejected_and_the_page_is_read() {
    let body = format!(
        r#"{{"data":[{{"id":"a","n":123456789012345678901234567890}},{{"id":"a","v":2}},{{"v":3}},
        {{"id":"b","t":"x\u0000y"}},{{"id":"{}"}},{{"id":"c","big":1e400}},"text"]}}"#,
        "k".repeat(2_000)
    );
    let server = Server::start(move |_| body.clone().into_response()).await;
    let page = server.source(&text()).page(&RecordQuery::default(), &Place::default(), 10).await.unwrap();
    let payloads: Vec<_> = page.items.iter().map(|item| item.payload.as_str()).collect();
    assert_eq!(
        payloads,
        [
            r#"{"id":"a","n":123456789012345678901234567890}"#,
            r#"{"id":"a","v":2}"#,
            r#"{"id":"c","big":1e400}"#,
        ],
        "numbers keep their digits"
    );
    let places: Vec<_> = page.rejected.iter().map(|bad| bad.place).collect();
    assert_eq!(places, [2, 3, 4, 6]);
    assert!(page.rejected[1].reason.contains("NUL"), "{:?}", page.rejected[1]);
}

#[tokio::test]
async fn honest_list_survives_single_failures() {
    let server = Server::start(|request| {
        let offset = request.number("offset").unwrap();
        json_response(&json!({ "data": slice(offset, 10) }))
    })
    .await;
    server.then(status(500, "oops"));
    server.then("<html>".into_response());
    check_complete(&read_all(&server.source(&definition("{type: offset, limit: 10}", ""))).await.unwrap());
    assert_eq!(server.count(), RECORDS.div_ceil(10) + 3);
}
