//! Shutdown of a server, and TLS.

use std::time::Duration;

use tidemill_api::server::{Limits, Tls};
use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_testkit::interface::Kind;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::fixture::{ServerFixture, answer, claim, post};
use crate::on_both;

on_both! { waiting_callers_are_answered_at_shutdown }

async fn waiting_callers_are_answered_at_shutdown(kind: Kind) {
    let fixture = ServerFixture::open(kind, Limits::default()).await;
    let mut waiting = Vec::new();
    for number in 0..50 {
        let mut stream = fixture.connect().await;
        let text = post("/v1/claims", &claim(&format!("wait-{number}"), 60), "");
        stream.write_all(text.as_bytes()).await.expect("the claim is sent");
        waiting.push(stream);
    }
    fixture.until_read(50).await;
    let (address, began) = (fixture.address, Instant::now());
    let stopped = tokio::spawn(fixture.stop());
    for mut stream in waiting {
        let response = answer(&mut stream).await;
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.json()["runs"].as_array().map(Vec::len), Some(0), "{response:?}");
    }
    stopped.await.expect("the server ends");
    // The claims would wait for a minute.
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "a receiver still exists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_a_certificate_uses_tls() {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate is made");
    let folder = tempfile::tempdir().expect("a folder is made");
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("the certificate is written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the key is written");
    let tls = Tls::from_files(&certificate, &key).expect("the pair can be used");
    assert!(Tls::from_files(&key, &certificate).is_err(), "the files were confused");
    let fixture = ServerFixture::with(Kind::Sqlite, |server| server.tls(tls)).await;
    let options = |authorities: Vec<u8>| HttpOptions {
        server: format!("https://localhost:{}", fixture.address.port()),
        token: None,
        authorities,
    };
    let trusting = Client::new(HttpTransport::new(options(made.cert.pem().into_bytes())).expect("a client"));
    assert_eq!(trusting.info().await.expect("it answers").caller, "ann");
    let wary = Client::new(HttpTransport::new(options(Vec::new())).expect("a client"));
    assert!(wary.info().await.is_err(), "an untrusted certificate was accepted");
    // A client without TLS does not hold a slot for long.
    assert_eq!(fixture.get("/healthz").await.status, 0);
    fixture.stop().await;
}
