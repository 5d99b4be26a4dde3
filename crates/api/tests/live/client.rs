//! The client over sockets: it reconnects by itself.

use std::time::Duration;

use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_testkit::interface::Kind;
use tokio::net::TcpListener;

use crate::{LiveFixture, app};

fn client(address: std::net::SocketAddr) -> Client {
    let options = HttpOptions { server: format!("http://{address}"), token: None, authorities: Vec::new() };
    Client::new(HttpTransport::new(options).expect("an address"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_continues_across_server_restarts() {
    let fixture = LiveFixture::open(Kind::Sqlite).await;
    let run = fixture.running("shop").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut watches =
        [client(address).watch_run(&run, 0), client(address).watch(Some("shop"), Some("0".to_owned()))];
    let mut listener = Some(listener);
    for server in 0..3_usize {
        let app = app(&fixture.base.store);
        let listener = match listener.take() {
            Some(listener) => listener,
            None => TcpListener::bind(address).await.expect("the port is free again"),
        };
        let (interface, mut closing) = (tidemill_api::router(app.clone()), app.closing());
        let serving = tokio::spawn(async move {
            let stop = async move {
                let _ = closing.wait_for(|closing| *closing).await;
            };
            axum::serve(listener, interface).with_graceful_shutdown(stop).await
        });
        fixture.append_numbers(&run, server * 5..server * 5 + 5).await;
        let count = if server == 0 { 8 } else { 5 };
        for watch in &mut watches {
            for number in 0..count {
                let seen = tokio::time::timeout(Duration::from_mins(1), watch.next()).await;
                let seen = seen.expect("an event arrives").expect("the response is read");
                let seq = if server == 0 { number } else { 3 + server * 5 + number } + 1;
                assert_eq!(usize::try_from(seen.event.seq).ok(), Some(seq));
                assert_eq!(watch.last_id(), Some(seen.id.as_str()));
            }
        }
        app.close();
        serving.await.expect("the server ends").expect("without a fault");
    }
    fixture.base.close().await;
}

#[tokio::test]
async fn watch_reports_a_refusal_of_the_server() {
    let fixture = LiveFixture::open(Kind::Sqlite).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(axum::serve(listener, fixture.interface.clone()).into_future());
    let unknown = client(address).watch_run(&"run-nobody".parse().expect("an id"), 0).next().await;
    let unknown = unknown.expect_err("there is no such run");
    assert_eq!(unknown.problem().map(|problem| problem.code.as_str()), Some("unknown_run"));
    let bad = client(address).watch(None, Some("nowhere".to_owned())).next().await;
    let bad = bad.expect_err("the position does not exist");
    assert_eq!(bad.problem().map(|problem| problem.code.as_str()), Some("invalid"));
    serving.abort();
    fixture.base.close().await;
}
