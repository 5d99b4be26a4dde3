//! Floods of one source or one token: others are served as if there were none.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_core::access::Role;
use tidemill_engine::graph::{GraphSettings, Graphs, SubmitGraph};
use tidemill_testkit::interface::Kind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::fixture::{Response, ServerFixture, TIMEOUT, answer, claim, post};

/// Source address of the floods. Linux lets a client use every address of 127.0.0.0/8.
const FLOODER: [u8; 4] = [127, 0, 0, 2];
const GRAPH: &str = "version: 1\njobs:\n  one: {run: 'true'}\n";

async fn send(mut stream: TcpStream, text: &str) -> Response {
    stream.write_all(text.as_bytes()).await.expect("the server reads");
    answer(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_without_token_are_refused_at_once() {
    // If the server stored them, 64 of the 72 bodies would use up the memory for bodies.
    let limits = Limits {
        body_bytes: 64 * 1024,
        bodies_bytes: 64 * 65_535,
        body_time: Duration::from_secs(3),
        ..Limits::default()
    };
    let fixture = ServerFixture::with_tokens(Kind::Sqlite, limits).await;
    let worker = fixture.token(Role::Worker).await;
    let head = "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65536\r\n\r\n";
    let text = format!("{head}{}", "x".repeat(65_535));
    let mut streams = Vec::new();
    for _ in 0..72 {
        let mut stream = fixture.connect_from(FLOODER).await;
        stream.write_all(text.as_bytes()).await.expect("the body is sent without its last byte");
        streams.push(stream);
    }
    // The first refused connections may be closed already.
    fixture.until_nothing_unread().await;
    let response = send(fixture.connect().await, &post("/v1/claims", &claim("here", 0), &worker)).await;
    assert_eq!(response.status, 200, "{response:?}");
    for mut stream in streams {
        let response = answer(&mut stream).await;
        assert_eq!((response.status, response.json()["code"].as_str()), (401, Some("unauthenticated")));
        assert!(response.head.contains("connection: close"), "{response:?}");
        let closed = tokio::time::timeout(TIMEOUT, stream.read(&mut [0; 1])).await;
        assert!(matches!(closed, Ok(Ok(0) | Err(_))), "the connection is still open");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_body_without_token_gets_its_refusal() {
    let fixture = ServerFixture::with_tokens(Kind::Sqlite, Limits::default()).await;
    let body = json!({"worker": "x".repeat(1024 * 1024 - 100)});
    let response = send(fixture.connect().await, &post("/v1/claims", &body, "")).await;
    assert_eq!(response.status, 401, "the refusal is not lost while the body is sent");
    let bad = "authorization: Bearer tm_0\r\nexpect: 100-continue\r\n";
    let head = format!("POST /v1/claims HTTP/1.1\r\nhost: localhost\r\n{bad}content-length: 1000\r\n\r\n");
    let response = send(fixture.connect().await, &head).await;
    assert_eq!(response.status, 401, "the body is not asked for: {response:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_one_token_leave_room_for_others() {
    // The default sizes: bodies of people and of machines may use 32 MiB each.
    let limits = Limits { body_time: TIMEOUT, ..Limits::default() };
    let fixture = ServerFixture::with_tokens(Kind::Sqlite, limits).await;
    let run = json!({"project": "shop", "env": "staging", "metadata": {"text": "x".repeat(200_000)}});
    for (role, path, body, status) in
        [(Role::Operator, "/v1/runs", &run, 201), (Role::Worker, "/v1/claims", &claim("here", 0), 200)]
    {
        let (one, other) = (fixture.token(role).await, fixture.token(role).await);
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{one}content-length: 1048576\r\n\r\n");
        let text: Arc<str> = format!("{head}{}", "x".repeat(1024 * 1024 - 1)).into();
        let mut bodies = JoinSet::new();
        // More than the share of the class.
        for _ in 0..40 {
            let (mut stream, text) = (fixture.connect_from(FLOODER).await, text.clone());
            bodies.spawn(async move {
                // The server may refuse the body before it has arrived.
                let _ = stream.write_all(text.as_bytes()).await;
                answer(&mut stream).await
            });
        }
        // Only a body beyond the limit of the token is answered: none is complete.
        let refused = bodies.join_next().await.expect("there are bodies").expect("a body is refused");
        assert_eq!((refused.status, refused.json()["code"].as_str()), (429, Some("throttled")), "{role}");
        for _ in 0..3 {
            let response = send(fixture.connect().await, &post(path, body, &other)).await;
            assert_eq!(response.status, status, "another token of role {role}: {response:?}");
        }
        bodies.shutdown().await;
        fixture.until_closed().await;
        let response = send(fixture.connect().await, &post(path, body, &one)).await;
        assert_eq!(response.status, status, "the token itself, afterwards: {response:?}");
        fixture.until_closed().await;
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_of_one_address_lock_nobody_out() {
    let limits = Limits { connections: 256, connections_per_source: 32, ..Limits::default() };
    let fixture = ServerFixture::with_tokens(Kind::Sqlite, limits).await;
    let agent = fixture.token(Role::Agent).await;
    let ask = format!("GET /v1/session HTTP/1.1\r\nhost: localhost\r\n{agent}\r\n");
    let mut known = fixture.connect_from(FLOODER).await;
    known.write_all(ask.as_bytes()).await.expect("the server reads");
    assert_eq!(answer(&mut known).await.status, 200);
    let mut flood = Vec::new();
    for round in 0..6 {
        for _ in 0..60 {
            flood.push(fixture.connect_from(FLOODER).await);
        }
        known.write_all(ask.as_bytes()).await.expect("the connection of a known agent stays open");
        assert_eq!(answer(&mut known).await.status, 200, "round {round}");
        let response = send(fixture.connect().await, &ask).await;
        assert_eq!(response.status, 200, "another address in round {round}");
        let response = send(fixture.connect_from(FLOODER).await, &ask).await;
        assert_eq!(response.status, 200, "the same address in round {round}");
    }
    drop(flood);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_polls_of_one_viewer_are_limited() {
    let limits = Limits { waits_per_token: 8, ..Limits::default() };
    let fixture = ServerFixture::with_tokens(Kind::Sqlite, limits).await;
    let (viewer, other) = (fixture.token(Role::Viewer).await, fixture.token(Role::Viewer).await);
    let worker = fixture.token(Role::Worker).await;
    let stream = |token: &str| format!("GET /v1/stream HTTP/1.1\r\nhost: localhost\r\n{token}\r\n");
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut one = fixture.connect_from(FLOODER).await;
        one.write_all(stream(&viewer).as_bytes()).await.expect("the stream is requested");
        let mut start = [0; 12];
        one.read_exact(&mut start).await.expect("the stream begins");
        assert_eq!(&start, b"HTTP/1.1 200");
        streams.push(one);
    }
    let mut ninth = fixture.connect_from(FLOODER).await;
    ninth.write_all(stream(&viewer).as_bytes()).await.expect("the stream is requested");
    let mut start = [0; 12];
    ninth.read_exact(&mut start).await.expect("an answer begins");
    assert_eq!(&start, b"HTTP/1.1 429", "a further stream is refused");
    assert!(String::from_utf8_lossy(&answer(&mut ninth).await.body).contains("throttled"));
    let session = format!("GET /v1/session HTTP/1.1\r\nhost: localhost\r\n{viewer}\r\n");
    assert_eq!(send(fixture.connect().await, &session).await.status, 200, "short requests continue");
    let response = send(fixture.connect().await, &post("/v1/claims", &claim("waits", 1), &worker)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let mut beside = fixture.connect().await;
    beside.write_all(stream(&other).as_bytes()).await.expect("the stream is requested");
    beside.read_exact(&mut start).await.expect("the stream begins");
    assert_eq!(&start, b"HTTP/1.1 200", "another token has streams of its own");
    drop(streams);
    let began = tokio::time::Instant::now();
    loop {
        let mut one = fixture.connect().await;
        one.write_all(stream(&viewer).as_bytes()).await.expect("the stream is requested");
        one.read_exact(&mut start).await.expect("an answer begins");
        if &start == b"HTTP/1.1 200" {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "ended streams still count");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(beside);
    fixture.stop().await;
}

/// The database counts its transactions: with one query per waiting request and interval, there would be thousands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_share_their_queries() {
    let fixture = ServerFixture::with_tokens(Kind::Postgres, Limits::default()).await;
    let viewer = fixture.token(Role::Viewer).await;
    let graphs = Graphs::new(fixture.engine.clone(), GraphSettings::default());
    let run =
        graphs.submit(SubmitGraph::new("shop", "staging", GRAPH, "ann")).await.expect("submitted").run_id;
    let job = tidemill_core::task::job_id(&run, "one");
    let paths = [
        format!("/v1/graphs/{run}/jobs?changed_after=1000000&wait_secs=30"),
        format!("/v1/jobs/{job}/logs?wait_secs=30"),
    ];
    let mut waiting = Vec::new();
    for number in 0..200 {
        let mut stream = fixture.connect().await;
        let path = &paths[number % 2];
        let ask = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{viewer}\r\n");
        stream.write_all(ask.as_bytes()).await.expect("the wait is requested");
        waiting.push(stream);
    }
    fixture.until_read(200).await;
    let count = async || {
        let text =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        fixture.base.plain.number(text).await.expect("transactions are counted")
    };
    // The counters lag behind by a second, and the first reads of all requests take a while on a busy machine. With one
    // query per request and interval, no period would be quiet.
    let began = tokio::time::Instant::now();
    let mut before = count().await;
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = count().await;
        let spent = now - std::mem::replace(&mut before, now);
        if spent < 400 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(24), "{spent} transactions in 3 seconds");
    }
    // The end of the server answers those that wait.
    let stopped = tokio::spawn(fixture.stop());
    for mut stream in waiting {
        assert_eq!(answer(&mut stream).await.status, 200);
    }
    stopped.await.expect("the server ends");
}
