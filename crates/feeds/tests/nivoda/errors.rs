//! Misbehaving servers, and how the feed classifies and retries their errors.

use crate::fixture::{Server, Step, all, at, checked, open, quick, record};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_feeds::{ErrorClass, FeedError, Network, Secret, Tuning};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

/// Runs a count against a scripted server. Returns the error and the number of count requests.
async fn failing(steps: Vec<Step>, tuning: Tuning) -> (FeedError, usize) {
    let server = Server::start().await;
    server.then(steps);
    let error = server.feed(tuning).count(&all()).await.unwrap_err();
    (checked(&server, error), server.requests_of("Count").len())
}

#[tokio::test]
async fn server_error_is_retried_until_an_answer() {
    let server = Server::start().await;
    server.then([Step::status(502), Step::error("canceling statement due to timeout")]);
    assert_eq!(server.feed(quick()).count(&all()).await.unwrap().count, 4_711);
    assert_eq!(server.requests_of("Count").len(), 3);
}

#[tokio::test]
async fn persistent_server_error_is_an_outage() {
    let (error, tries) = failing(vec![Step::status(503); 3], quick()).await;
    assert_eq!((error.class(), tries), (ErrorClass::Outage, 3));
    assert!(error.to_string().contains("answered 503 Service Unavailable"), "{error}");
}

#[tokio::test]
async fn persistent_graphql_error_is_transient() {
    let (error, tries) = failing(vec![Step::error("deadlock detected"); 3], quick()).await;
    assert_eq!((error.class(), tries), (ErrorClass::Transient, 3));
    assert!(error.to_string().contains("deadlock detected"), "{error}");
}

#[tokio::test]
async fn rejected_query_is_not_retried() {
    let refused = Step::error("Cannot query field \"updatedAt\" on type \"DiamondQuery\"");
    let (error, tries) = failing(vec![refused], quick()).await;
    assert_eq!((error.class(), tries), (ErrorClass::Permanent, 1));
}

#[tokio::test]
async fn missing_page_and_redirect_are_permanent() {
    let moved = Step::Answer(301, vec![("location", "http://127.0.0.1:1/steal")], String::new());
    for (step, words) in [
        (Step::status(404), "answered 404 Not Found; check the path"),
        (moved, "answered 301 Moved Permanently; set the endpoint of the feed to the redirect's target"),
    ] {
        let (error, tries) = failing(vec![step], quick()).await;
        assert_eq!((error.class(), tries), (ErrorClass::Permanent, 1), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// Unreadable bodies with status 200, and the expected error text for each.
fn bad_bodies() -> [(Step, &'static str); 5] {
    [
        (Step::body(&"<!DOCTYPE html><p>Maintenance"), "answered HTML instead of JSON; check the endpoint"),
        (Step::body(&"{\"data\":{]}"), "answered with unexpected JSON"),
        (Step::body(&"{\"data\":{}}"), "answered without a "),
        (Step::body(&"{\"data\":null}"), "answered without data and without an error"),
        (Step::body(&"[1,2]"), "answered with unexpected JSON"),
    ]
}

#[tokio::test]
async fn single_malformed_body_is_retried() {
    for (step, _) in bad_bodies() {
        let server = Server::start().await;
        *server.items.lock().unwrap() = json!([{ "diamond": { "id": "S-1" } }]);
        let feed = server.feed(quick());
        server.then([step.clone()]);
        assert_eq!(feed.count(&all()).await.unwrap().count, 4_711, "{step:?}");
        server.then([step.clone()]);
        assert_eq!(feed.page(&all(), &at(0), 30).await.unwrap().items.len(), 1, "{step:?}");
        server.then([step.clone()]);
        let found = feed.lookup(&["S-1".to_owned()]).unwrap().await.unwrap();
        assert_eq!(found, ["S-1"], "{step:?}");
    }
}

#[tokio::test]
async fn persistent_malformed_body_is_permanent_with_its_reason() {
    for (step, words) in bad_bodies() {
        let (error, tries) = failing(vec![step; 3], quick()).await;
        assert_eq!((error.class(), tries), (ErrorClass::Permanent, 3), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn rate_limit_waits_as_long_as_retry_after_says() {
    let server = Server::start().await;
    server.then([Step::Answer(429, vec![("retry-after", "1")], String::new())]);
    let begun = Instant::now();
    assert_eq!(server.feed(quick()).count(&all()).await.unwrap().count, 4_711);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn retry_after_above_the_limit_fails_at_once_and_is_capped() {
    for status in [429, 503] {
        for (requested, capped) in
            [("3", 3), ("3600", 300), ("10000000000000", 300), ("99999999999999999999999", 300)]
        {
            let limited = Step::Answer(status, vec![("retry-after", requested)], String::new());
            let tuning = Tuning { retry_after_max: Duration::from_millis(1), ..quick() };
            let (error, tries) = failing(vec![limited], tuning).await;
            assert_eq!((error.class(), tries), (ErrorClass::Outage, 1), "{status} {requested}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(capped)), "{status} {requested}");
        }
    }
}

#[tokio::test]
async fn persistent_rate_limit_is_an_outage_without_retry_after() {
    let coded = json!({ "errors": [{ "message": "slow down", "extensions": { "code": "RATE_LIMITED" } }] });
    for step in [Step::status(429), Step::body(&coded)] {
        let (error, tries) = failing(vec![step; 3], quick()).await;
        assert_eq!((error.class(), tries), (ErrorClass::Outage, 3), "{error}");
    }
}

#[tokio::test]
async fn login_words_inside_an_error_do_not_refuse_the_account() {
    for text in ["Unexpected token < in JSON at position 0", "no password policy was found"] {
        let server = Server::start().await;
        server.then(vec![Step::error(text); 3]);
        let error = server.feed(quick()).count(&all()).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Transient, "{error}");
        assert_eq!(server.requests_of("Login").len(), 1, "{text}");
    }
}

#[tokio::test]
async fn unresponsive_server_is_an_outage() {
    let tuning = Tuning { answer_timeout: Duration::from_millis(100), retries_max: 1, ..quick() };
    let (error, tries) = failing(vec![Step::Silence; 2], tuning).await;
    assert_eq!((error.class(), tries), (ErrorClass::Outage, 2));
    assert!(error.to_string().contains("did not answer within 0.1 s"), "{error}");
}

#[tokio::test]
async fn request_past_its_time_limit_is_not_retried() {
    let tuning = Tuning {
        answer_timeout: Duration::from_millis(100),
        question_timeout: Duration::from_millis(250),
        retries_max: 50,
        ..quick()
    };
    let (error, tries) = failing(vec![Step::Silence; 50], tuning).await;
    assert_eq!(error.class(), ErrorClass::Outage);
    assert!((1..=3).contains(&tries), "{tries} tries of 0.1 s each within 0.25 s");
}

#[tokio::test]
async fn oversized_answer_is_permanent_and_not_read_completely() {
    let tuning = Tuning { answer_bytes_max: 10_000, ..quick() };
    let (error, tries) = failing(vec![Step::body(&"x".repeat(1_000_000))], tuning).await;
    assert_eq!((error.class(), tries), (ErrorClass::Permanent, 1));
    assert!(error.to_string().contains("answered more than 10000 bytes"), "{error}");
}

#[tokio::test]
async fn unreachable_address_is_an_outage() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let feed = open(
        &record(&format!("http://{address}/x")),
        Some(Secret::new("p")),
        &Network::Unrestricted,
        quick(),
    )
    .unwrap();
    let error = feed.count(&all()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Outage);
    assert!(error.to_string().starts_with(&format!("{address}/x could not be reached (")), "{error}");
}

/// The server closes each connection after the head and a part of the body.
#[tokio::test]
async fn truncated_answer_is_retried_and_then_an_outage() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (cuts, mut cut) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4_096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{\"data\":").await;
            let _ = cuts.send(());
        }
    });
    let feed = open(
        &record(&format!("http://{address}/x")),
        Some(Secret::new("p")),
        &Network::Unrestricted,
        quick(),
    )
    .unwrap();
    let error = feed.count(&all()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Outage);
    assert!(error.to_string().contains("closed the connection early"), "{error}");
    let count = std::iter::from_fn(|| cut.try_recv().ok()).count();
    assert_eq!(count, 3);
}

#[tokio::test]
async fn credentials_quoted_by_the_server_are_masked() {
    let server = Server::start().await;
    server.token.store(7, Ordering::SeqCst);
    server.then(vec![Step::error("worker died while serving token-7"); 3]);
    let error = server.feed(quick()).count(&all()).await.unwrap_err();
    assert!(error.to_string().contains("serving ***"), "{error}");
    checked(&server, error);

    let server = Server::start().await;
    server.logins.lock().unwrap().push_back(Step::error("wrong password `open sesame`"));
    let error = server.feed(quick()).count(&all()).await.unwrap_err();
    assert_eq!(checked(&server, error).class(), ErrorClass::Auth);
}

#[tokio::test]
async fn invalid_query_is_not_sent() {
    let server = Server::start().await;
    let feed = server.feed(quick());
    let mut query = all();
    query.range.to = 150;
    let error = feed.count(&query).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Permanent);
    assert!(error.to_string().contains("does not consist of whole dollars"), "{error}");
    for limit in [0, 51] {
        assert_eq!(feed.page(&all(), &at(0), limit).await.unwrap_err().class(), ErrorClass::Permanent);
    }
    assert_eq!(feed.page(&all(), &at(u64::MAX), 50).await.unwrap_err().class(), ErrorClass::Permanent);
    assert_eq!(server.requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn feed_that_cannot_be_opened_reports_the_reason() {
    let good = record("https://example.org/api/diamonds");
    let with = |change: &dyn Fn(&mut tidemill_core::feed::Feed)| {
        let mut feed = good.clone();
        change(&mut feed);
        let opened = open(&feed, Some(Secret::new("hush")), &Network::Unrestricted, quick());
        opened.err().map_or_else(|| "opened".to_owned(), |error| error.to_string())
    };
    assert_eq!(with(&|_| {}), "opened");
    for (endpoint, words) in [
        ("nonsense", "not a URL"),
        ("ftp://example.org/x", "unsupported scheme `ftp`"),
        ("file:///etc/passwd", "unsupported scheme `file`"),
        ("https://ali:hush@example.org/x", "the URL contains credentials"),
    ] {
        let text = with(&|feed| feed.endpoint = endpoint.to_owned());
        assert!(text.starts_with("invalid endpoint of feed `nivoda-natural`: "), "{text}");
        assert!(text.contains(words) && !text.contains("hush"), "{text}");
    }
    assert!(with(&|feed| feed.kind = "fax".into()).starts_with("unknown feed kind `fax`; use one of"));
    assert!(with(&|feed| feed.settings = json!({ "shape": 1 })).contains("unknown field `shape`"));
    assert!(with(&|feed| feed.username = None).starts_with("example.org/api/diamonds requires a user name"));
    let error = open(&good, None, &Network::Unrestricted, quick()).err().unwrap();
    assert_eq!(error.class(), ErrorClass::Auth);
}
