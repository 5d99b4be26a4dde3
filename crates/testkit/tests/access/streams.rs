//! Streams of live events: they last no longer than what let their reader in.

use std::time::Duration;

use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_core::limits::TOKEN_TRUST_SECS;
use tidemill_core::run::QueueRun;
use tidemill_testkit::door::{at, info};
use tokio::time::{Instant, timeout};

use crate::ground::{Ground, ask, door, get};
use crate::sessions::signed_in;

/// What a look takes on a busy machine, on top of the time between two looks.
const BUSY: Duration = Duration::from_mins(1);

/// Reads a stream to its end; how long that took.
async fn ends(mut body: Body) -> Duration {
    let began = Instant::now();
    let longest = Duration::from_secs(TOKEN_TRUST_SECS.into()) + BUSY;
    let read = async { while body.frame().await.is_some() {} };
    timeout(longest, read).await.expect("the stream ends within seconds");
    began.elapsed()
}

/// Reads a stream until it tells a word.
async fn tells(body: &mut Body, word: &str) {
    let mut text = String::new();
    while !text.contains(word) {
        let frame = timeout(BUSY, body.frame()).await.expect("something is said in time");
        let frame = frame.expect("the stream goes on").expect("a frame");
        text.push_str(std::str::from_utf8(&frame.into_data().expect("data")).expect("text"));
    }
}

async fn by_token(ground: &Ground, path: &str, secret: &str) -> Body {
    get(path).token(secret).stream(&ground.door).await
}

async fn by_cookie(ground: &Ground, cookie: &str) -> Body {
    get("/v1/stream").header("cookie", cookie).stream(&ground.door).await
}

pub(crate) async fn a_stream_ends_at_once_when_its_token_is_revoked_here(ground: &Ground) {
    let run = ground.stage.running(QueueRun::new("shop", "staging"), "w", at(0)).await.run_id;
    let (token, secret) = ground.make(Role::Viewer, None, None).await;
    let one = by_token(ground, &format!("/v1/runs/{run}/stream"), secret.reveal()).await;
    let all = by_token(ground, "/v1/stream", secret.reveal()).await;
    let (cookie, _) = signed_in(ground, secret.reveal()).await;
    let signed = by_cookie(ground, &cookie).await;
    let mut other = by_token(ground, "/v1/stream", &ground.admin).await;
    let path = format!("/v1/tokens/{}", token.token_id);
    let revoked = ask(&Method::DELETE, &path).token(&ground.admin).at(&ground.door).await;
    assert_eq!(revoked.status, StatusCode::OK);
    for stream in [one, all, signed] {
        let took = ends(stream).await;
        assert!(took < Duration::from_secs(TOKEN_TRUST_SECS.into()), "it took {took:?}");
    }
    // Whoever came with another token reads on.
    ground.stage.say(&run, info("to those who stay"), at(1)).await;
    tells(&mut other, "to those who stay").await;
}

pub(crate) async fn a_stream_ends_soon_when_its_token_is_revoked_elsewhere_or_expires(ground: &Ground) {
    let run = ground.stage.running(QueueRun::new("shop", "staging"), "w", at(0)).await.run_id;
    let (token, secret) = ground.make(Role::Viewer, None, None).await;
    let (_, short) = ground.make(Role::Viewer, Some("shop"), Some(60)).await;
    let revoked = by_token(ground, "/v1/stream", secret.reveal()).await;
    let expired = by_token(ground, "/v1/stream", short.reveal()).await;
    let mut other = by_token(ground, "/v1/stream", &ground.admin).await;

    let elsewhere = door(&ground.stage.store, ground.engine.clock().clone(), Access::Tokens);
    let path = format!("/v1/tokens/{}", token.token_id);
    let done = ask(&Method::DELETE, &path).token(&ground.admin).at(&elsewhere).await;
    assert_eq!(done.status, StatusCode::OK);
    ends(revoked).await;
    ground.wait(60);
    ends(expired).await;
    ground.stage.say(&run, info("to those who stay"), at(1)).await;
    tells(&mut other, "to those who stay").await;
}

pub(crate) async fn a_stream_ends_when_its_reader_signs_out(ground: &Ground) {
    let (cookie, csrf) = signed_in(ground, &ground.admin).await;
    let stream = by_cookie(ground, &cookie).await;
    let out = ask(&Method::DELETE, "/v1/session").header("cookie", &cookie).header("x-csrf-token", &csrf);
    assert_eq!(out.at(&ground.door).await.status, StatusCode::NO_CONTENT);
    let took = ends(stream).await;
    assert!(took < Duration::from_secs(TOKEN_TRUST_SECS.into()), "it took {took:?}");

    // Signed out at another server, which tells nobody.
    let (cookie, csrf) = signed_in(ground, &ground.admin).await;
    let stream = by_cookie(ground, &cookie).await;
    let elsewhere = door(&ground.stage.store, ground.engine.clock().clone(), Access::Tokens);
    let out = ask(&Method::DELETE, "/v1/session").header("cookie", &cookie).header("x-csrf-token", &csrf);
    assert_eq!(out.at(&elsewhere).await.status, StatusCode::NO_CONTENT);
    ends(stream).await;
}
