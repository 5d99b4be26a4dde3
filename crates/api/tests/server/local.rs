//! Hosts, proxies and headers: the checks of a local server, and those of every server.

use serde_json::json;
use tidemill_api::server::Limits;
use tidemill_testkit::interface::Kind;

use crate::fixture::{LOCAL_TOKEN, ServerFixture, post};

#[tokio::test]
async fn local_server_answers_only_local_host_names() {
    let fixture = ServerFixture::local(Kind::Sqlite).await;
    assert_eq!(fixture.get("/healthz").await.status, 200);
    let response =
        fixture.raw("GET /healthz HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").await;
    assert_eq!(
        (response.status, response.json()["code"].as_str()),
        (421, Some("wrong_host")),
        "{response:?}"
    );
    let page =
        fixture.raw(&post("/v1/claims", &json!({"worker": "x"}), "origin: http://evil.example\r\n")).await;
    assert_eq!((page.status, page.json()["code"].as_str()), (403, Some("wrong_origin")), "{page:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn local_server_refuses_forwarded_requests() {
    let fixture = ServerFixture::local(Kind::Sqlite).await;
    let token = format!("authorization: Bearer {LOCAL_TOKEN}\r\n");
    let ask = async |fields: &str| {
        let head = "GET /v1/info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        fixture.raw(&format!("{head}{token}{fields}\r\n")).await
    };
    assert_eq!(ask("").await.status, 200);
    for field in
        ["X-Forwarded-For: 10.1.1.1", "Forwarded: for=10.1.1.1", "Via: 1.1 proxy", "X-Real-IP: 10.1.1.1"]
    {
        let refused = ask(&format!("{field}\r\n")).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (403, Some("forwarded")), "{field}");
        assert!(refused.text().contains("--auth"), "{refused:?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn request_with_two_hosts_is_refused() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits::default()).await;
    for head in [
        "GET /v1/info HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n",
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n",
        "GET http://evil.example/v1/info HTTP/1.1\r\nhost: localhost\r\n",
    ] {
        let refused = fixture.raw(&format!("{head}connection: close\r\n\r\n")).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (400, Some("bad_host")), "{head}");
    }
    let same = "GET http://localhost/v1/info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(fixture.raw(same).await.status, 200);
    fixture.stop().await;
}

#[tokio::test]
async fn every_response_forbids_sniffing_and_the_api_storing() {
    let fixture = ServerFixture::open(Kind::Sqlite, Limits::default()).await;
    for (path, is_stored) in [
        ("/v1/info", false),
        ("/v1/runs/run-0", false),
        ("/v1/nope", false),
        ("/nope", true),
        ("/healthz", true),
        ("/metrics", true),
        ("/openapi.json", true),
        ("/docs", true),
    ] {
        let head = fixture.get(path).await.head;
        assert_eq!(head.matches("x-content-type-options: nosniff").count(), 1, "{path}: {head}");
        assert_eq!(
            head.matches("cache-control: no-store").count(),
            usize::from(!is_stored),
            "{path}: {head}"
        );
    }
    let refused = fixture.raw("GET /v1/info HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n");
    assert!(refused.await.head.contains("nosniff"));
    fixture.stop().await;
}
