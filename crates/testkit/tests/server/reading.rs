//! Callers that ask and do not read what they are told.

use std::time::Duration;

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_core::event::NewEvent;
use tidemill_core::run::QueueRun;
use tidemill_store::Holder;
use tidemill_testkit::door::{Kind, at, info};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::ground::{PATIENCE, Served};
use crate::on_both;

on_both! {
    streams_that_nobody_reads_give_their_seats_back,
}

/// As many seats as there are callers that do not read.
fn few_seats() -> Limits {
    Limits { connections: 2, write_time: Duration::from_millis(500), ..Limits::default() }
}

/// A caller that asks so often for something, and reads nothing.
async fn deaf(served: &Served, path: &str, times: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket is made");
    // Otherwise the system keeps tens of megabytes for somebody who may read later.
    socket.set_recv_buffer_size(16 * 1024).expect("it keeps little");
    let mut stream = socket.connect(served.address).await.expect("the server accepts");
    let ask = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(times);
    stream.write_all(ask.as_bytes()).await.expect("it is asked");
    stream
}

/// Waits until somebody else is answered.
async fn until_others_are_answered(served: &Served) {
    let began = Instant::now();
    while served.get("/healthz").await.status != 200 {
        assert!(began.elapsed() < PATIENCE, "the seats are not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn callers_that_do_not_read_give_their_seats_back() {
    let served = Served::open(Kind::Sqlite, few_seats()).await;
    let size = served.get("/openapi.json").await.body.len();
    // More than what the server's end of a connection keeps.
    let times = 32 * 1024 * 1024 / size;
    let held = [deaf(&served, "/openapi.json", times).await, deaf(&served, "/openapi.json", times).await];
    until_others_are_answered(&served).await;
    drop(held);
    served.stop().await;
}

async fn streams_that_nobody_reads_give_their_seats_back(kind: Kind) {
    let served = Served::open(kind, few_seats()).await;
    let run = served.stage.running(QueueRun::new("shop", "staging"), "ann", at(0)).await.run_id;
    // Different ones: what is said twice within moments is one event.
    let long = |number: usize| NewEvent {
        payload: json!({"text": "x".repeat(60 * 1024)}),
        ..info(&format!("long {number}"))
    };
    let all = deaf(&served, "/v1/stream", 1).await;
    let one = deaf(&served, &format!("/v1/runs/{run}/stream"), 1).await;
    for batch in 0..20 {
        let events: Vec<NewEvent> = (0..20).map(|number| long(batch * 20 + number)).collect();
        served.stage.append(&run, events, Holder::default(), at(1)).await;
    }
    assert!(served.stage.events(&run).await.len() > 400, "every event is another one");
    until_others_are_answered(&served).await;
    drop((all, one));
    served.stop().await;
}
