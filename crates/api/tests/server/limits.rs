//! Clients that send too much, too slowly, malformed or incomplete requests.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_testkit::interface::Kind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::fixture::{ServerFixture, TIMEOUT, answer, post};

fn quick() -> Limits {
    Limits {
        body_time: Duration::from_millis(300),
        head_time: Duration::from_millis(400),
        ..Limits::default()
    }
}

#[tokio::test]
async fn body_over_the_limit_is_refused_with_413() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits { body_bytes: 2048, ..Limits::default() }).await;
    let body = json!({"worker": "a".repeat(4096)});
    let response = fixture.post("/v1/claims", &body).await;
    assert_eq!((response.status, response.json()["code"].as_str()), (413, Some("too_large")), "{response:?}");
    let chunk = format!("1000\r\n{}\r\n0\r\n\r\n", "a".repeat(4096));
    let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(fixture.raw(&format!("{head}{chunk}")).await.status, 413);
    // Just within the limit it is read, and refused for another reason.
    let fits = fixture.post("/v1/claims", &json!({"worker": "a".repeat(1900)})).await;
    assert_eq!(fits.status, 422, "{fits:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn graph_body_has_a_larger_limit() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits::default()).await;
    let mut text = "version: 1\njobs:\n".to_owned();
    for number in 0..40_000 {
        let _ = write!(text, "  job-{number}:\n    run: echo {}\n", "x".repeat(100));
    }
    assert!(text.len() > 4 * 1024 * 1024);
    let response = fixture.post("/v1/graphs/check", &json!({"text": text})).await;
    assert_eq!((response.status, response.json()["is_sound"].as_bool()), (200, Some(true)));
    // It also has a limit, and the other limits are unchanged.
    let response = fixture.post("/v1/graphs/check", &json!({"text": "x".repeat(17 * 1024 * 1024)})).await;
    assert_eq!((response.status, response.json()["code"].as_str()), (413, Some("too_large")));
    let response = fixture.post("/v1/claims", &json!({"worker": "x".repeat(2 * 1024 * 1024)})).await;
    assert_eq!(response.status, 413);
    fixture.stop().await;
}

#[tokio::test]
async fn webhook_body_has_the_limit_of_github() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits::default()).await;
    let send = async |bytes: usize| fixture.post("/v1/hooks/shop", &json!("x".repeat(bytes))).await;
    let response = send(24 * 1024 * 1024).await;
    assert_eq!(
        (response.status, response.json()["code"].as_str()),
        (401, Some("bad_signature")),
        "it was read"
    );
    let response = send(26 * 1024 * 1024).await;
    assert_eq!((response.status, response.json()["code"].as_str()), (413, Some("too_large")));
    fixture.stop().await;
}

#[tokio::test]
async fn malformed_request_is_refused_with_400() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits::default()).await;
    assert_eq!(fixture.raw("this is no request\r\n\r\n").await.status, 400);
    let body = "{\"worker\": ";
    let text = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let response = fixture.raw(&text).await;
    assert_eq!((response.status, response.json()["code"].as_str()), (400, Some("bad_json")), "{response:?}");
    // A far too long head is not read completely; a reset may arrive before the response.
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "a".repeat(400_000));
    assert!(matches!(fixture.raw(&long).await.status, 0 | 431));
    assert_eq!(fixture.get("/healthz").await.status, 200);
    fixture.stop().await;
}

#[tokio::test]
async fn missing_body_times_out_and_closes_the_connection() {
    let fixture = ServerFixture::open(Kind::Sqlite, quick()).await;
    let mut stream = fixture.connect().await;
    let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    // Before the head is sent: the server may read it at once.
    let began = Instant::now();
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    let response = answer(&mut stream).await;
    assert_eq!((response.status, response.json()["code"].as_str()), (408, Some("too_slow")), "{response:?}");
    assert!(response.head.contains("connection: close"), "{response:?}");
    assert!(began.elapsed() >= quick().body_time, "{:?}", began.elapsed());
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the connection is still open");
    fixture.stop().await;
}

#[tokio::test]
async fn missing_head_times_out() {
    let fixture = ServerFixture::open(Kind::Sqlite, quick()).await;
    for sent in ["GET / HT", ""] {
        let mut stream = fixture.connect().await;
        stream.write_all(sent.as_bytes()).await.expect("some of a head is sent");
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the connection is still open after {sent:?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn incomplete_request_frees_its_connection_slot() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits { connections: 2, ..Limits::default() }).await;
    for _ in 0..10 {
        let mut stream = fixture.connect().await;
        let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.expect("half of a request is sent");
        stream.shutdown().await.expect("our side is closed");
        let response = answer(&mut stream).await;
        assert_eq!(
            (response.status, response.json()["code"].as_str()),
            (400, Some("unread")),
            "{response:?}"
        );
    }
    // A complete request of a client that closes its side is executed or dropped; the slot is free either way.
    let mut stream = fixture.connect().await;
    let wait = post("/v1/claims", &crate::fixture::claim("half", 30), "");
    stream.write_all(wait.as_bytes()).await.expect("the claim is sent");
    stream.shutdown().await.expect("our side is closed");
    answer(&mut stream).await;
    let response = fixture.get("/healthz").await;
    assert_eq!(response.status, 200, "{response:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn connections_over_the_limit_are_refused() {
    let limits = Limits { connections: 32, body_time: Duration::from_mins(10), ..Limits::default() };
    let fixture = ServerFixture::open(Kind::Sqlite, limits).await;
    // A connection with a running request is not closed to make room. So much of a body gives minutes for the rest.
    let head = "POST /v1/hooks/shop HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n";
    let ask = format!("{head}{}", "x".repeat(900_000));
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = fixture.connect().await;
        stream.write_all(ask.as_bytes()).await.expect("most of a request is sent");
        streams.push(stream);
    }
    fixture.until_read(8).await;
    for _ in 0..40 {
        let response = fixture.get("/healthz").await;
        assert_eq!((response.status, response.json()["code"].as_str()), (503, Some("busy")), "{response:?}");
        assert!(response.head.contains("retry-after: 1"), "{response:?}");
    }
    drop(streams);
    let began = Instant::now();
    while fixture.get("/healthz").await.status != 200 {
        assert!(began.elapsed() < TIMEOUT, "the seats are not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fixture.stop().await;
}

#[tokio::test]
async fn idle_connections_make_room_for_new_ones() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits { connections: 8, ..Limits::default() }).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = fixture.connect().await;
        let ask = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(ask.as_bytes()).await.expect("a request is sent");
        assert_eq!(answer(&mut stream).await.status, 200);
        streams.push(stream);
    }
    let mut first = streams.swap_remove(0);
    let closed = tokio::time::timeout(TIMEOUT, first.read(&mut [0; 1])).await.expect("it is closed");
    assert_eq!(closed.expect("without a reset"), 0);
    fixture.stop().await;
}

#[tokio::test]
async fn large_responses_are_compressed_if_accepted() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits::default()).await;
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let plain = fixture.raw(&format!("{ask}\r\n")).await;
    let small = fixture.raw(&format!("{ask}accept-encoding: gzip\r\n\r\n")).await;
    assert!(!plain.head.contains("content-encoding") && plain.json()["openapi"] == "3.1.0");
    assert!(small.head.contains("content-encoding: gzip"), "{}", small.head);
    assert!(small.body.len() * 2 < plain.body.len(), "{} of {}", small.body.len(), plain.body.len());
    fixture.stop().await;
}
