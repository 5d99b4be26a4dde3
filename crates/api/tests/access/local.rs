//! A server that belongs to one user of the machine.

use std::sync::Arc;

use axum::Router;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_api::access::{Access, LocalAccess};
use tidemill_core::access::Secret;
use tidemill_engine::Clock;
use tidemill_testkit::interface::at;

use crate::fixture::{AccessFixture, ask, get, interface, post};

/// API of a local server, and the code of its first link.
fn local_interface(fixture: &AccessFixture) -> (Router, String) {
    let local = LocalAccess::new("ann".to_owned(), &Secret::token([7; 32]), "http://127.0.0.1:7171");
    let local = Arc::new(local);
    let link = local.create_link(at(0)).expect("a link is made");
    let (_, code) = link.url.split_once("/sign-in?code=").expect("the link has a code");
    let clock = Clock::fixed(at(0));
    (interface(&fixture.base.store, clock, Access::Local(local)), code.to_owned())
}

pub(crate) async fn local_server_admits_only_its_own_token(fixture: &AccessFixture) {
    let (local, _) = local_interface(fixture);
    let own = Secret::token([7; 32]);
    let info = get("/v1/info").token(own.reveal()).at(&local).await;
    assert_eq!((info.status, &info.json()["caller"]), (StatusCode::OK, &json!("ann")));
    assert_eq!((&info.json()["role"], &info.json()["projects"]), (&json!("admin"), &Value::Null));
    for refused in [
        get("/v1/info"),
        get("/v1/info").token(&fixture.admin),
        get("/v1/info").token(Secret::token([8; 32]).reveal()),
        get("/metrics"),
        post("/v1/runs", &json!({"project": "shop", "env": "staging"})),
        post("/v1/session/links", &json!({})),
    ] {
        let reply = refused.at(&local).await;
        assert_eq!((reply.status, reply.code().as_str()), (StatusCode::UNAUTHORIZED, "unauthenticated"));
        assert!(reply.body.contains("tidemill console"), "{reply:?}");
    }
    for open in ["/healthz", "/readyz", "/openapi.json", "/docs"] {
        assert_eq!(get(open).at(&local).await.status, StatusCode::OK, "{open}");
    }
    let run = post("/v1/runs", &json!({"project": "shop", "env": "staging"})).token(own.reveal());
    assert_eq!(run.at(&local).await.status, StatusCode::CREATED);
    let recorded = get("/v1/audit").token(own.reveal()).at(&local).await.json()["items"][0].clone();
    assert_eq!((&recorded["who"], &recorded["action"]), (&json!("ann"), &json!("runs.create")), "{recorded}");
}

pub(crate) async fn one_time_link_opens_one_session(fixture: &AccessFixture) {
    let (local, code) = local_interface(fixture);
    let sign_in =
        async |credential: &str| post("/v1/session", &json!({"token": credential})).at(&local).await;
    let signed = sign_in(&code).await;
    assert_eq!(signed.status, StatusCode::CREATED, "{signed:?}");
    let cookie = signed.header("set-cookie").to_owned();
    for attribute in ["tidemill_session_7171=tms_", "HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }
    assert!(!cookie.contains("Secure"), "the server has no TLS: {cookie}");
    let again = sign_in(&code).await;
    assert_eq!((again.status, again.code().as_str()), (StatusCode::UNAUTHORIZED, "link_over"));
    assert_eq!(sign_in("tml_0").await.code(), "link_over");
    assert_eq!(sign_in(&fixture.admin).await.code(), "unauthenticated");
    assert_eq!(sign_in(Secret::token([7; 32]).reveal()).await.status, StatusCode::CREATED);

    let cookie = cookie.split(';').next().expect("a cookie has a value");
    let queue = || post("/v1/runs", &json!({"project": "shop", "env": "staging"})).header("cookie", cookie);
    assert_eq!(queue().at(&local).await.code(), "csrf", "a change needs the token of the session");
    let csrf = signed.json()["csrf"].as_str().expect("a CSRF token").to_owned();
    assert_eq!(queue().header("x-csrf-token", &csrf).at(&local).await.status, StatusCode::CREATED);
    let links = ask(&Method::POST, "/v1/session/links");
    let link = links.header("cookie", cookie).header("x-csrf-token", &csrf).at(&local).await;
    assert_eq!(link.code(), "no_links", "a session does not create links");
    let link = ask(&Method::POST, "/v1/session/links").token(Secret::token([7; 32]).reveal());
    let link = link.at(&local).await;
    assert_eq!(link.status, StatusCode::CREATED, "{link:?}");
    let link = link.json()["url"].as_str().expect("a link").to_owned();
    let (_, second) = link.split_once("code=").expect("the link has a code");
    assert_eq!(sign_in(second).await.status, StatusCode::CREATED);

    let out = ask(&Method::DELETE, "/v1/session").header("cookie", cookie).header("x-csrf-token", &csrf);
    let out = out.at(&local).await;
    assert!(out.header("set-cookie").starts_with("tidemill_session_7171=; Path=/; Max-Age=0"), "{out:?}");
    assert_eq!(get("/v1/info").header("cookie", cookie).at(&local).await.status, StatusCode::UNAUTHORIZED);
}

/// A session without an audit entry must not exist, and the failure must not cost the link.
pub(crate) async fn unrecorded_sign_in_keeps_the_link(fixture: &AccessFixture) {
    let (local, code) = local_interface(fixture);
    let plain = &fixture.base.plain;
    let sign_in = async || post("/v1/session", &json!({"token": code})).at(&local).await;
    plain.execute("ALTER TABLE {ops}.audit RENAME TO audit_away").await.expect("the record is out of reach");
    let failed = sign_in().await;
    assert!(failed.status.is_server_error() && failed.header("set-cookie").is_empty(), "{failed:?}");
    plain.execute("ALTER TABLE {ops}.audit_away RENAME TO audit").await.expect("the record is back");
    assert_eq!(sign_in().await.status, StatusCode::CREATED);
}
