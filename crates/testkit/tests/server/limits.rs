//! Callers that send too much, too slowly, nonsense, or half of it.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_testkit::door::Kind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::ground::{PATIENCE, Served, answer, post};

fn quick() -> Limits {
    Limits {
        body_time: Duration::from_millis(300),
        head_time: Duration::from_millis(400),
        ..Limits::default()
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_413() {
    let served = Served::open(Kind::Sqlite, Limits { body_bytes: 2048, ..Limits::default() }).await;
    let body = json!({"worker": "a".repeat(4096)});
    let told = served.post("/v1/claims", &body).await;
    assert_eq!((told.status, told.json()["code"].as_str()), (413, Some("too_large")), "{told:?}");
    let chunk = format!("1000\r\n{}\r\n0\r\n\r\n", "a".repeat(4096));
    let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(served.raw(&format!("{head}{chunk}")).await.status, 413);
    // Just within the limit it is read, and found wanting for another reason.
    let fits = served.post("/v1/claims", &json!({"worker": "a".repeat(1900)})).await;
    assert_eq!(fits.status, 422, "{fits:?}");
    served.stop().await;
}

#[tokio::test]
async fn a_graph_may_be_larger_than_other_bodies() {
    let served = Served::open(Kind::Sqlite, Limits::default()).await;
    let mut text = "version: 1\njobs:\n".to_owned();
    for number in 0..40_000 {
        let _ = write!(text, "  job-{number}:\n    run: echo {}\n", "x".repeat(100));
    }
    assert!(text.len() > 4 * 1024 * 1024);
    let told = served.post("/v1/graphs/check", &json!({"text": text})).await;
    assert_eq!((told.status, told.json()["is_sound"].as_bool()), (200, Some(true)));
    // It has a limit as well, and the others have not grown.
    let told = served.post("/v1/graphs/check", &json!({"text": "x".repeat(17 * 1024 * 1024)})).await;
    assert_eq!((told.status, told.json()["code"].as_str()), (413, Some("too_large")));
    let told = served.post("/v1/claims", &json!({"worker": "x".repeat(2 * 1024 * 1024)})).await;
    assert_eq!(told.status, 413);
    served.stop().await;
}

#[tokio::test]
async fn a_webhook_may_send_as_much_as_github_does() {
    let served = Served::open(Kind::Sqlite, Limits::default()).await;
    let send = async |bytes: usize| served.post("/v1/hooks/shop", &json!("x".repeat(bytes))).await;
    let told = send(24 * 1024 * 1024).await;
    assert_eq!((told.status, told.json()["code"].as_str()), (401, Some("bad_signature")), "it was read");
    let told = send(26 * 1024 * 1024).await;
    assert_eq!((told.status, told.json()["code"].as_str()), (413, Some("too_large")));
    served.stop().await;
}

#[tokio::test]
async fn nonsense_is_refused_with_400() {
    let served = Served::open(Kind::Sqlite, Limits::default()).await;
    assert_eq!(served.raw("this is no request\r\n\r\n").await.status, 400);
    let body = "{\"worker\": ";
    let text = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let told = served.raw(&text).await;
    assert_eq!((told.status, told.json()["code"].as_str()), (400, Some("bad_json")), "{told:?}");
    // A head that is far too long is not read to its end; a reset may overtake the answer.
    let long = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-long: {}\r\n\r\n", "a".repeat(400_000));
    assert!(matches!(served.raw(&long).await.status, 0 | 431));
    assert_eq!(served.get("/healthz").await.status, 200);
    served.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_told_so_and_the_connection_is_closed() {
    let served = Served::open(Kind::Sqlite, quick()).await;
    let mut stream = served.connect().await;
    let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    let began = Instant::now();
    let told = answer(&mut stream).await;
    assert_eq!((told.status, told.json()["code"].as_str()), (408, Some("too_slow")), "{told:?}");
    assert!(told.head.contains("connection: close"), "{told:?}");
    assert!(began.elapsed() >= quick().body_time, "{:?}", began.elapsed());
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "the connection is still open");
    served.stop().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let served = Served::open(Kind::Sqlite, quick()).await;
    for sent in ["GET / HT", ""] {
        let mut stream = served.connect().await;
        stream.write_all(sent.as_bytes()).await.expect("some of a head is sent");
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the connection is still open after {sent:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn half_of_a_request_takes_no_seat_for_long() {
    let served = Served::open(Kind::Sqlite, Limits { connections: 2, ..Limits::default() }).await;
    for _ in 0..10 {
        let mut stream = served.connect().await;
        let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.expect("half of a request is sent");
        stream.shutdown().await.expect("our side is closed");
        let told = answer(&mut stream).await;
        assert_eq!((told.status, told.json()["code"].as_str()), (400, Some("unread")), "{told:?}");
    }
    // A whole request from a caller that closes its side is carried out, or dropped; the seat is free either way.
    let mut stream = served.connect().await;
    let wait = post("/v1/claims", &crate::ground::claim("half", 30), "");
    stream.write_all(wait.as_bytes()).await.expect("the claim is sent");
    stream.shutdown().await.expect("our side is closed");
    answer(&mut stream).await;
    let told = served.get("/healthz").await;
    assert_eq!(told.status, 200, "{told:?}");
    served.stop().await;
}

#[tokio::test]
async fn more_connections_than_there_are_seats_for_are_turned_away() {
    let served = Served::open(Kind::Sqlite, Limits { connections: 8, ..Limits::default() }).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = served.connect().await;
        let ask = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(ask.as_bytes()).await.expect("a request is sent");
        assert_eq!(answer(&mut stream).await.status, 200);
        held.push(stream);
    }
    for _ in 0..40 {
        let told = served.get("/healthz").await;
        assert_eq!((told.status, told.json()["code"].as_str()), (503, Some("busy")), "{told:?}");
        assert!(told.head.contains("retry-after: 1"), "{told:?}");
    }
    drop(held);
    let began = Instant::now();
    while served.get("/healthz").await.status != 200 {
        assert!(began.elapsed() < PATIENCE, "the seats are not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    served.stop().await;
}

#[tokio::test]
async fn large_answers_are_compressed_for_those_who_take_it() {
    let served = Served::open(Kind::Sqlite, Limits::default()).await;
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let plain = served.raw(&format!("{ask}\r\n")).await;
    let small = served.raw(&format!("{ask}accept-encoding: gzip\r\n\r\n")).await;
    assert!(!plain.head.contains("content-encoding") && plain.json()["openapi"] == "3.1.0");
    assert!(small.head.contains("content-encoding: gzip"), "{}", small.head);
    assert!(small.body.len() * 2 < plain.body.len(), "{} of {}", small.body.len(), plain.body.len());
    served.stop().await;
}

#[tokio::test]
async fn a_door_without_tokens_answers_under_names_of_this_machine_alone() {
    let served = Served::with(Kind::Sqlite, tidemill_api::server::Server::local).await;
    assert_eq!(served.get("/healthz").await.status, 200);
    let told = served.raw("GET /healthz HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").await;
    assert_eq!((told.status, told.json()["code"].as_str()), (421, Some("wrong_host")), "{told:?}");
    let page =
        served.raw(&post("/v1/claims", &json!({"worker": "x"}), "origin: http://evil.example\r\n")).await;
    assert_eq!(page.status, 403, "{page:?}");
    served.stop().await;
}
