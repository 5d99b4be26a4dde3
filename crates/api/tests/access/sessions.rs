//! Signing in with a browser.

use http::{Method, StatusCode};
use serde_json::json;
use tidemill_core::access::Role;
use tidemill_core::limits::{SESSION_SECS, SESSIONS_MAX};
use tidemill_testkit::interface::{at, request};

use crate::fixture::{AccessFixture, Reply, ask, get, post};

pub(crate) async fn sign_in(fixture: &AccessFixture, secret: &str) -> Reply {
    post("/v1/session", &json!({"token": secret})).at(&fixture.interface).await
}

/// Signs in; returns the cookie and the CSRF token.
pub(crate) async fn signed_in(fixture: &AccessFixture, secret: &str) -> (String, String) {
    let reply = sign_in(fixture, secret).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
    let csrf = reply.json()["csrf"].as_str().expect("a csrf token").to_owned();
    let cookie = reply.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
    (format!("theme=dark; {cookie}"), csrf)
}

pub(crate) async fn session_cookie_is_http_only_and_same_site(fixture: &AccessFixture) {
    let body = json!({"token": fixture.admin});
    let plain = post("/v1/session", &body).at(&fixture.interface).await;
    let set = plain.header("set-cookie");
    let (value, flags) = set.split_once("; ").expect("flags");
    assert!(value.starts_with("tidemill_session=tms_"), "{set}");
    assert_eq!(flags, format!("Path=/; Max-Age={SESSION_SECS}; HttpOnly; SameSite=Lax"));
    let over_tls = post("/v1/session", &body).from([10, 0, 0, 1], true).at(&fixture.interface).await;
    let proxied =
        post("/v1/session", &body).header("x-forwarded-proto", "https").at(&fixture.interface).await;
    for reply in [over_tls, proxied] {
        assert!(reply.header("set-cookie").ends_with("; HttpOnly; SameSite=Lax; Secure"), "{reply:?}");
    }
    let who = plain.json();
    assert_eq!((&who["caller"], &who["role"]), (&json!("first admin"), &json!("admin")));
}

pub(crate) async fn change_by_cookie_requires_the_csrf_token(fixture: &AccessFixture) {
    let operator = fixture.secret(Role::Operator, None).await;
    let (cookie, csrf) = signed_in(fixture, &operator).await;
    let (_, other) = signed_in(fixture, &operator).await;
    let run = fixture.base.queue(request(), at(0)).await;
    let show = get("/v1/session").header("cookie", &cookie).at(&fixture.interface).await;
    assert_eq!((show.status, &show.json()["csrf"]), (StatusCode::OK, &json!(csrf)));

    let cancel = || ask(&Method::POST, &format!("/v1/runs/{run}/cancel")).header("cookie", &cookie);
    let forged = [
        cancel().body(&json!({})),
        cancel().body(&json!({"csrf": csrf})),
        cancel().body(&json!({})).header("x-csrf-token", &other),
        cancel().body(&json!({})).header("x-csrf-token", ""),
        cancel().form("reason=x"),
        cancel().form(&format!("csrf={other}")),
        cancel().body(&json!({})).header("x-csrf-token", &csrf).header("origin", "https://evil.example"),
    ];
    for (number, ask) in forged.into_iter().enumerate() {
        let reply = ask.at(&fixture.interface).await;
        assert_eq!(
            (reply.status, reply.code().as_str()),
            (StatusCode::FORBIDDEN, "csrf"),
            "{number}: {reply:?}"
        );
    }
    let run_is = async |state: &str| {
        let shown = fixture.get(&format!("/v1/runs/{run}"), &fixture.admin).await.json();
        assert_eq!(shown["status"], json!(state));
    };
    run_is("queued").await;
    // A form passes the CSRF check; the refusal comes from the route itself.
    let retry = ask(&Method::POST, &format!("/v1/runs/{run}/retry")).header("cookie", &cookie);
    let reply = retry.form(&format!("reason=x&csrf={csrf}")).at(&fixture.interface).await;
    assert_eq!(reply.code(), "not_retryable", "{reply:?}");
    let reply = cancel().body(&json!({})).header("x-csrf-token", &csrf).at(&fixture.interface).await;
    assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
    run_is("cancelled").await;
    // A token in a header needs no CSRF token, because no other site can make a browser send it.
    let reply = cancel().token(&operator).body(&json!({})).at(&fixture.interface).await;
    assert!(reply.status != StatusCode::FORBIDDEN, "{reply:?}");
}

pub(crate) async fn session_ends_on_expiry_sign_out_and_token_revocation(fixture: &AccessFixture) {
    let (token, secret) = fixture.make(Role::Viewer, None, None).await;
    let show = async |cookie: &str| get("/v1/session").header("cookie", cookie).at(&fixture.interface).await;

    let (cookie, csrf) = signed_in(fixture, secret.reveal()).await;
    assert_eq!(show(&cookie).await.status, StatusCode::OK);
    let out = ask(&Method::DELETE, "/v1/session").header("cookie", &cookie).header("x-csrf-token", &csrf);
    let out = out.at(&fixture.interface).await;
    assert_eq!(out.status, StatusCode::NO_CONTENT);
    assert!(out.header("set-cookie").starts_with("tidemill_session=; Path=/; Max-Age=0;"), "{out:?}");
    assert_eq!(show(&cookie).await.code(), "unauthenticated", "a kept cookie is invalid");

    let (cookie, _) = signed_in(fixture, secret.reveal()).await;
    fixture.wait(i64::from(SESSION_SECS) - 1);
    assert_eq!(show(&cookie).await.status, StatusCode::OK);
    fixture.wait(1);
    assert_eq!(show(&cookie).await.code(), "session_over");

    let (cookie, _) = signed_in(fixture, secret.reveal()).await;
    assert_eq!(show(&cookie).await.status, StatusCode::OK);
    let path = format!("/v1/tokens/{}", token.token_id);
    let revoked = ask(&Method::DELETE, &path).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(revoked.status, StatusCode::OK);
    assert_eq!(show(&cookie).await.code(), "token_revoked");
    assert_eq!(sign_in(fixture, secret.reveal()).await.code(), "token_revoked");
    // A cookie is not accepted as a token, and a token not as a cookie.
    let value = cookie.rsplit('=').next().unwrap_or_default();
    assert_eq!(fixture.get("/v1/info", value).await.code(), "unauthenticated");
    let swapped = format!("tidemill_session={}", fixture.admin);
    assert_eq!(show(&swapped).await.code(), "unauthenticated");
}

pub(crate) async fn sessions_per_token_are_limited(fixture: &AccessFixture) {
    let (first, _) = signed_in(fixture, &fixture.admin).await;
    for _ in 0..SESSIONS_MAX {
        fixture.wait(1);
        signed_in(fixture, &fixture.admin).await;
    }
    let count = fixture.base.plain.number("SELECT count(*) FROM {ops}.sessions").await;
    assert_eq!(count.ok(), Some(SESSIONS_MAX.into()));
    let reply = get("/v1/session").header("cookie", &first).at(&fixture.interface).await;
    assert_eq!(reply.code(), "unauthenticated", "the oldest made room");
}

pub(crate) async fn sign_in_works_after_failed_ones_of_its_source(fixture: &AccessFixture) {
    let from = [198, 51, 100, 7];
    let try_in = async |secret: &str| {
        post("/v1/session", &json!({"token": secret})).from(from, false).at(&fixture.interface).await
    };
    let (_, unseen) = fixture.make(tidemill_core::access::Role::Viewer, None, None).await;
    for number in 0..50 {
        assert_eq!(try_in("tm_guess").await.code(), "unauthenticated");
        assert_eq!(try_in(&format!("tm_{number:064x}")).await.code(), "unauthenticated");
    }
    assert_eq!(try_in(unseen.reveal()).await.status, StatusCode::CREATED);
}

pub(crate) async fn cross_site_requests_are_refused(fixture: &AccessFixture) {
    let body = json!({"token": fixture.admin});
    let forged =
        post("/v1/session", &body).header("host", "mill.example").header("origin", "https://evil.example");
    assert_eq!(forged.at(&fixture.interface).await.code(), "csrf");
}
