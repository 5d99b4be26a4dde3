//! Requests of webhooks, in the shape that their senders give them.

use axum::body::Body;
use http::Request;
use serde_json::json;

pub(crate) const SHA: &str = "6113728f27ae82c7b1a177c8d03f9e96e0adf246";

pub(crate) fn github(hook: &str, event: &str, delivery: &str, signature: &str, body: &str) -> Request<Body> {
    Request::post(format!("/v1/hooks/{hook}"))
        .header("content-type", "application/json")
        .header("user-agent", "GitHub-Hookshot/760256b")
        .header("x-github-event", event)
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", signature)
        .body(Body::from(body.to_owned()))
        .expect("a request")
}

pub(crate) fn generic(hook: &str, time: i64, signature: &str) -> http::request::Builder {
    Request::post(format!("/v1/hooks/{hook}"))
        .header("x-tidemill-timestamp", time.to_string())
        .header("x-tidemill-signature", signature)
}

/// Returns the body of a push, in the shape and order of GitHub.
pub(crate) fn push(git_ref: &str) -> String {
    json!({
        "ref": git_ref,
        "before": "0000000000000000000000000000000000000000",
        "after": SHA,
        "repository": {
            "id": 186_853_002, "node_id": "MDEwOlJlcG9zaXRvcnkxODY4NTMwMDI=", "name": "shop",
            "full_name": "acme/shop", "private": true, "owner": {"name": "acme", "login": "acme", "id": 1},
            "html_url": "https://github.com/acme/shop", "default_branch": "main", "pushed_at": 1_771_065_000,
        },
        "pusher": {"name": "ann", "email": "ann@example.com"},
        "sender": {"login": "ann", "id": 21_031_067, "type": "User", "site_admin": false},
        "created": false, "deleted": false, "forced": false, "base_ref": null,
        "compare": "https://github.com/acme/shop/compare/000000000000...6113728f27ae",
        "commits": [],
        "head_commit": {
            "id": SHA, "message": "mend the till", "timestamp": "2026-02-14T10:29:58Z",
            "author": {"name": "Ann", "email": "ann@example.com", "username": "ann"},
        },
    })
    .to_string()
}
