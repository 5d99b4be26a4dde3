//! The end of a server, and TLS.

use std::time::Duration;

use tidemill_api::server::{Limits, Tls};
use tidemill_client::{Client, Http, HttpOptions};
use tidemill_testkit::door::Kind;
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;

use crate::ground::{Served, answer, claim, post};
use crate::on_both;

on_both! { everybody_who_waits_is_answered_when_the_server_ends }

async fn everybody_who_waits_is_answered_when_the_server_ends(kind: Kind) {
    let served = Served::open(kind, Limits::default()).await;
    let mut waiting = Vec::new();
    for number in 0..50 {
        let mut stream = served.connect().await;
        let text = post("/v1/claims", &claim(&format!("wait-{number}"), 60), "");
        stream.write_all(text.as_bytes()).await.expect("the claim is sent");
        waiting.push(stream);
    }
    served.until_read(50).await;
    let (address, began) = (served.address, Instant::now());
    let stopped = tokio::spawn(served.stop());
    for mut stream in waiting {
        let told = answer(&mut stream).await;
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(told.json()["runs"].as_array().map(Vec::len), Some(0), "{told:?}");
    }
    stopped.await.expect("the server ends");
    // The claims would wait for a minute.
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "somebody still listens");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_certificate_speaks_tls() {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate is made");
    let folder = tempfile::tempdir().expect("a folder is made");
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("the certificate is written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("the key is written");
    let tls = Tls::from_files(&certificate, &key).expect("the pair can be used");
    assert!(Tls::from_files(&key, &certificate).is_err(), "the files were taken for each other");
    let served = Served::with(Kind::Sqlite, |server| server.tls(tls)).await;
    let options = |authorities: Vec<u8>| HttpOptions {
        server: format!("https://localhost:{}", served.address.port()),
        token: None,
        authorities,
    };
    let trusting = Client::new(Http::new(options(made.cert.pem().into_bytes())).expect("a client"));
    assert_eq!(trusting.info().await.expect("it answers").caller, "ann");
    let wary = Client::new(Http::new(options(Vec::new())).expect("a client"));
    assert!(wary.info().await.is_err(), "a certificate that nobody vouches for was trusted");
    // Whoever does not speak TLS takes no seat for long.
    assert_eq!(served.get("/healthz").await.status, 0);
    served.stop().await;
}
