//! Clients that send requests and do not read the responses.

use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_core::event::NewEvent;
use tidemill_core::run::QueueRun;
use tidemill_store::Holder;
use tidemill_testkit::interface::{Kind, at, info};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::fixture::{ServerFixture, TIMEOUT};
use crate::on_both;

on_both! {
    unread_streams_free_their_connection_slots,
}

/// Returns limits with as many connection slots without a token as there are non-reading clients.
fn few_seats() -> Limits {
    Limits {
        connections: 8,
        connections_per_source: 2,
        write_time: Duration::from_millis(500),
        ..Limits::default()
    }
}

/// Sends this many requests and reads nothing.
async fn send_without_reading(fixture: &ServerFixture, path: &str, times: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket is made");
    // Otherwise the operating system buffers tens of megabytes for a slow reader.
    socket.set_recv_buffer_size(16 * 1024).expect("the receive buffer is small");
    let mut stream = socket.connect(fixture.address).await.expect("the server accepts");
    let ask = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(times);
    stream.write_all(ask.as_bytes()).await.expect("it is requested");
    stream
}

/// Waits until another client gets a response.
async fn until_others_are_answered(fixture: &ServerFixture) {
    let began = Instant::now();
    while fixture.get("/healthz").await.status != 200 {
        assert!(began.elapsed() < TIMEOUT, "the seats are not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn clients_that_do_not_read_free_their_connection_slots() {
    let fixture = ServerFixture::open(Kind::Sqlite, few_seats()).await;
    let size = fixture.get("/openapi.json").await.body.len();
    // More than the socket buffers of the server hold.
    let times = 32 * 1024 * 1024 / size;
    let held = [
        send_without_reading(&fixture, "/openapi.json", times).await,
        send_without_reading(&fixture, "/openapi.json", times).await,
    ];
    until_others_are_answered(&fixture).await;
    drop(held);
    fixture.stop().await;
}

async fn unread_streams_free_their_connection_slots(kind: Kind) {
    let fixture = ServerFixture::open(kind, few_seats()).await;
    let run = fixture.base.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
    // Different messages, because equal ones within seconds are one event.
    let long = |number: usize| NewEvent {
        payload: json!({"text": "x".repeat(60 * 1024)}),
        ..info(&format!("long {number}"))
    };
    let all = send_without_reading(&fixture, "/v1/stream", 1).await;
    let one = send_without_reading(&fixture, &format!("/v1/runs/{run}/stream"), 1).await;
    for batch in 0..20 {
        let events: Vec<NewEvent> = (0..20).map(|number| long(batch * 20 + number)).collect();
        fixture.base.append(&run, events, Holder::default(), at(1)).await;
    }
    assert!(fixture.base.events(&run).await.len() > 400, "every event is another one");
    until_others_are_answered(&fixture).await;
    drop((all, one));
    fixture.stop().await;
}
