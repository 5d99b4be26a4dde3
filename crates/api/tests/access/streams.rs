//! Streams of live events end when the access of their reader ends.

use std::time::Duration;

use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_core::limits::TOKEN_CACHE_SECS;
use tidemill_core::run::QueueRun;
use tidemill_testkit::interface::{at, info};
use tokio::time::timeout;

use crate::fixture::{AccessFixture, ask, get, interface};
use crate::sessions::signed_in;

/// Time for one check on a busy machine, in addition to the check interval.
const BUSY: Duration = Duration::from_mins(1);

/// Reads a stream to its end.
async fn ends(mut body: Body) {
    let longest = Duration::from_secs(TOKEN_CACHE_SECS.into()) + BUSY;
    let read = async { while body.frame().await.is_some() {} };
    timeout(longest, read).await.expect("the stream ends within seconds");
}

/// Reads streams to their ends while the periodic check fails: only an announcement of this process ends them.
async fn end_without_check(fixture: &AccessFixture, streams: impl IntoIterator<Item = Body>) {
    let rename = async |from: &str, to: &str| {
        let text = format!("ALTER TABLE {{ops}}.{from} RENAME TO {to}");
        fixture.base.plain.execute(&text).await.expect("the table is renamed");
    };
    rename("tokens", "tokens_away").await;
    for stream in streams {
        ends(stream).await;
    }
    rename("tokens_away", "tokens").await;
}

/// Reads a stream until it contains a word.
async fn tells(body: &mut Body, word: &str) {
    let mut text = String::new();
    while !text.contains(word) {
        let frame = timeout(BUSY, body.frame()).await.expect("a message arrives in time");
        let frame = frame.expect("the stream continues").expect("a frame");
        text.push_str(std::str::from_utf8(&frame.into_data().expect("data")).expect("text"));
    }
}

async fn by_token(fixture: &AccessFixture, path: &str, secret: &str) -> Body {
    get(path).token(secret).stream(&fixture.interface).await
}

async fn by_cookie(fixture: &AccessFixture, cookie: &str) -> Body {
    get("/v1/stream").header("cookie", cookie).stream(&fixture.interface).await
}

pub(crate) async fn stream_ends_at_once_if_its_token_is_revoked_on_this_server(fixture: &AccessFixture) {
    let run = fixture.base.running(QueueRun::new("shop", "staging"), "w", at(0)).await.run_id;
    let (token, secret) = fixture.make(Role::Viewer, None, None).await;
    let one = by_token(fixture, &format!("/v1/runs/{run}/stream"), secret.reveal()).await;
    let all = by_token(fixture, "/v1/stream", secret.reveal()).await;
    let (cookie, _) = signed_in(fixture, secret.reveal()).await;
    let signed = by_cookie(fixture, &cookie).await;
    let mut other = by_token(fixture, "/v1/stream", &fixture.admin).await;
    let path = format!("/v1/tokens/{}", token.token_id);
    let revoked = ask(&Method::DELETE, &path).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(revoked.status, StatusCode::OK);
    end_without_check(fixture, [one, all, signed]).await;
    // A reader with another token continues.
    fixture.base.append_event(&run, info("to those who stay"), at(1)).await;
    tells(&mut other, "to those who stay").await;
}

pub(crate) async fn stream_ends_soon_if_its_token_expires_or_is_revoked_elsewhere(fixture: &AccessFixture) {
    let run = fixture.base.running(QueueRun::new("shop", "staging"), "w", at(0)).await.run_id;
    let (token, secret) = fixture.make(Role::Viewer, None, None).await;
    let (_, short) = fixture.make(Role::Viewer, Some("shop"), Some(60)).await;
    let revoked = by_token(fixture, "/v1/stream", secret.reveal()).await;
    let expired = by_token(fixture, "/v1/stream", short.reveal()).await;
    let mut other = by_token(fixture, "/v1/stream", &fixture.admin).await;

    let elsewhere = interface(&fixture.base.store, fixture.engine.clock().clone(), Access::Tokens);
    let path = format!("/v1/tokens/{}", token.token_id);
    let done = ask(&Method::DELETE, &path).token(&fixture.admin).at(&elsewhere).await;
    assert_eq!(done.status, StatusCode::OK);
    ends(revoked).await;
    fixture.wait(60);
    ends(expired).await;
    fixture.base.append_event(&run, info("to those who stay"), at(1)).await;
    tells(&mut other, "to those who stay").await;
}

pub(crate) async fn stream_ends_when_its_reader_signs_out(fixture: &AccessFixture) {
    let (cookie, csrf) = signed_in(fixture, &fixture.admin).await;
    let stream = by_cookie(fixture, &cookie).await;
    let out = ask(&Method::DELETE, "/v1/session").header("cookie", &cookie).header("x-csrf-token", &csrf);
    assert_eq!(out.at(&fixture.interface).await.status, StatusCode::NO_CONTENT);
    end_without_check(fixture, [stream]).await;

    // A sign-out at another server, which is not announced.
    let (cookie, csrf) = signed_in(fixture, &fixture.admin).await;
    let stream = by_cookie(fixture, &cookie).await;
    let elsewhere = interface(&fixture.base.store, fixture.engine.clock().clone(), Access::Tokens);
    let out = ask(&Method::DELETE, "/v1/session").header("cookie", &cookie).header("x-csrf-token", &csrf);
    assert_eq!(out.at(&elsewhere).await.status, StatusCode::NO_CONTENT);
    ends(stream).await;
}
