//! Lifetime and use of tokens.

use http::{Method, StatusCode};
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_core::limits::TOKEN_CACHE_SECS;
use tidemill_store::AccessPruneCounts;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::at;

use crate::fixture::{AccessFixture, ask, get, interface, post};

pub(crate) async fn revocation_applies_here_at_once_and_elsewhere_in_five_seconds(fixture: &AccessFixture) {
    let (token, secret) = fixture.make(Role::Viewer, None, None).await;
    let beside = fixture.base.open_second_store().await;
    let elsewhere = interface(&beside, fixture.engine.clock().clone(), Access::Tokens);
    let here = async || fixture.get("/v1/info", secret.reveal()).await;
    let there = async || get("/v1/info").token(secret.reveal()).at(&elsewhere).await;
    assert_eq!((here().await.status, there().await.status), (StatusCode::OK, StatusCode::OK));
    let path = format!("/v1/tokens/{}", token.token_id);
    let revoke = async || ask(&Method::DELETE, &path).token(&fixture.admin).at(&fixture.interface).await;
    let revoked = revoke().await;
    assert_eq!((revoked.status, &revoked.json()["revoked_by"]), (StatusCode::OK, &json!("first admin")));
    assert_eq!(here().await.code(), "token_revoked");
    assert_eq!(there().await.status, StatusCode::OK, "it is remembered elsewhere");
    fixture.wait(TOKEN_CACHE_SECS.into());
    assert_eq!(there().await.code(), "token_revoked");
    assert_eq!(revoke().await.body, revoked.body, "twice is the same as once");
    beside.close().await;
}

pub(crate) async fn token_expires_at_its_time(fixture: &AccessFixture) {
    let body = json!({"name": "ci", "role": "viewer", "expires_in_secs": 3});
    let made = fixture.post("/v1/tokens", &fixture.admin, &body).await;
    let secret = made.json()["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(fixture.get("/v1/info", &secret).await.json()["caller"], json!("ci"));
    fixture.wait(2);
    assert_eq!(fixture.get("/v1/info", &secret).await.status, StatusCode::OK);
    // It is still cached as valid, but its expiry is cached too.
    fixture.wait(1);
    assert_eq!(fixture.get("/v1/info", &secret).await.code(), "token_expired");
    for bad in
        [json!({"name": "", "role": "viewer"}), json!({"name": "x", "role": "viewer", "expires_in_secs": 0})]
    {
        let refused = fixture.post("/v1/tokens", &fixture.admin, &bad).await;
        assert_eq!((refused.status, refused.code().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"));
    }
}

pub(crate) async fn repeated_token_request_makes_one_token(fixture: &AccessFixture) {
    let body = |name: &str| json!({"name": name, "role": "viewer"});
    let create = async |key: &str, name: &str| {
        let create = post("/v1/tokens", &body(name)).header("idempotency-key", key);
        create.token(&fixture.admin).at(&fixture.interface).await
    };
    let made = create("first", "ci").await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    let id = made.json()["token"]["token_id"].as_str().expect("an id").to_owned();
    let again = create("first", "ci").await;
    assert_eq!((again.status, again.code().as_str()), (StatusCode::CONFLICT, "token_made"), "{again:?}");
    for said in ["message", "hint"] {
        assert!(again.json()[said].as_str().is_some_and(|text| text.contains(&id)), "{again:?}");
    }
    let secret = made.json()["secret"].as_str().expect("a secret").to_owned();
    assert!(!again.body.contains(&secret), "a secret is shown once");
    assert_eq!(create("first", "cd").await.code(), "key_conflict");
    let count = async || fixture.base.plain.number("SELECT count(*) FROM {ops}.tokens").await.ok();
    assert_eq!(count().await, Some(2), "the admin's and this one");

    let answers = at_once(8, |_| {
        let create = post("/v1/tokens", &body("cd")).header("idempotency-key", "second");
        let (create, interface) = (create.token(&fixture.admin), fixture.interface.clone());
        async move { create.at(&interface).await.status }
    })
    .await;
    let made = answers.iter().filter(|status| **status == StatusCode::CREATED).count();
    assert_eq!(made, 1, "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status.as_u16(), 201 | 409)), "{answers:?}");
    assert_eq!(count().await, Some(3));
    // Without a key, each request makes a new token.
    for _ in 0..2 {
        let plain = fixture.post("/v1/tokens", &fixture.admin, &body("more")).await;
        assert_eq!(plain.status, StatusCode::CREATED);
    }
    assert_eq!(count().await, Some(5));
    let lines = "SELECT count(*) FROM {ops}.audit WHERE action = 'tokens.create' AND outcome = 'applied'";
    // With the first admin token of the fixture.
    assert_eq!(
        fixture.base.plain.number(lines).await.ok(),
        Some(5),
        "refused calls are not recorded as applied"
    );
}

pub(crate) async fn last_use_is_written_at_most_once_a_minute(fixture: &AccessFixture) {
    let (token, secret) = fixture.make(Role::Viewer, None, None).await;
    let used = async || {
        assert_eq!(fixture.get("/v1/info", secret.reveal()).await.status, StatusCode::OK);
        let listed =
            fixture.engine.store().tokens(tidemill_store::ListPage { limit: 10, ..Default::default() }).await;
        let listed = listed.expect("tokens");
        listed.iter().find(|one| one.token_id == token.token_id).expect("the token").last_used_at
    };
    assert_eq!(used().await, Some(at(0)));
    let mut before = 0;
    for (wait, last) in [(1, 0), (30, 0), (28, 0), (1, 60), (10, 60)] {
        fixture.wait(wait);
        before += wait;
        assert_eq!(used().await, Some(at(last)), "after {before} seconds");
    }
}

pub(crate) async fn concurrent_first_admin_requests_make_one_token(fixture: &AccessFixture) {
    assert!(fixture.engine.first_admin().await.expect("an answer").is_none(), "there is one");
    let admins =
        fixture.engine.store().tokens(tidemill_store::ListPage { limit: 10, ..Default::default() }).await;
    let first = admins.expect("tokens")[0].token_id;
    fixture.engine.revoke_token(first, None, "ann").await.expect("it is revoked");
    // Neither a project admin nor an expired admin can create tokens.
    fixture.make(Role::Admin, Some("shop"), None).await;
    fixture.make(Role::Admin, None, Some(1)).await;
    fixture.wait(1);
    let engine = fixture.engine.clone();
    let made = at_once(8, |_| {
        let engine = engine.clone();
        async move { tidemill_api::access::first_admin(&engine).await }
    });
    let made: Vec<_> = made.await.into_iter().filter_map(|made| made.expect("an answer")).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(fixture.get("/v1/tokens", made[0].1.reveal()).await.status, StatusCode::OK);
}

pub(crate) async fn tokens_are_listed_in_pages(fixture: &AccessFixture) {
    for _ in 0..4 {
        fixture.make(Role::Viewer, Some("shop"), None).await;
        fixture.wait(1);
    }
    let mut seen = Vec::new();
    let mut path = "/v1/tokens?limit=2".to_owned();
    loop {
        let page = fixture.get(&path, &fixture.admin).await.json();
        let items = page["items"].as_array().expect("items").clone();
        assert!(items.iter().all(|item| item.get("hash").is_none() && item.get("secret").is_none()));
        seen.extend(items.iter().map(|item| item["created_at"].as_str().expect("a time").to_owned()));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/tokens?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted_by(|one, other| one >= other), "{seen:?}");
    let of_shop = fixture.get("/v1/tokens?project=shop", &fixture.admin).await.json();
    assert_eq!(of_shop["items"].as_array().map(Vec::len), Some(4));
}

pub(crate) async fn unseen_token_works_after_unknown_ones_of_its_source(fixture: &AccessFixture) {
    let from = [192, 0, 2, 1];
    let call =
        async |secret: &str| get("/v1/info").from(from, false).token(secret).at(&fixture.interface).await;
    let (_, unseen) = fixture.make(Role::Viewer, None, None).await;
    for number in 0..100 {
        assert_eq!(call(&unknown(number)).await.code(), "unauthenticated", "{number}");
    }
    assert_eq!(call(unseen.reveal()).await.status, StatusCode::OK);
    // Also while others of the same source are waiting.
    let (_, unseen) = fixture.make(Role::Viewer, None, None).await;
    let flood = (0..200).map(|number| {
        let request = get("/v1/info").from(from, false).token(&unknown(number));
        let interface = fixture.interface.clone();
        tokio::spawn(async move { request.at(&interface).await.code() })
    });
    let flood: Vec<_> = flood.collect();
    tokio::task::yield_now().await;
    assert_eq!(call(unseen.reveal()).await.status, StatusCode::OK);
    for one in flood {
        assert_eq!(one.await.expect("an answer"), "unauthenticated");
    }
}

pub(crate) async fn unseen_token_works_after_unknown_ones_of_many_sources(fixture: &AccessFixture) {
    let (_, unseen) = fixture.make(Role::Viewer, None, None).await;
    let answers = at_once(50, |source| {
        let interface = fixture.interface.clone();
        async move {
            for number in 0..20_u32 {
                let from = [198, 51, 100, u8::try_from(source).unwrap_or(0)];
                let secret = unknown(u32::try_from(source).unwrap_or(0) * 20 + number);
                let reply = get("/v1/info").from(from, false).token(&secret).at(&interface).await;
                assert_eq!(reply.code(), "unauthenticated");
            }
        }
    });
    assert_eq!(answers.await.len(), 50);
    let call = get("/v1/info").from([192, 0, 2, 2], false).token(unseen.reveal());
    assert_eq!(call.at(&fixture.interface).await.status, StatusCode::OK);
}

/// A well-formed token that does not exist.
fn unknown(number: u32) -> String {
    format!("tm_{number:064x}")
}

pub(crate) async fn ended_sessions_tokens_and_audit_rows_are_pruned(fixture: &AccessFixture) {
    let day = 86_400;
    let (token, secret) = fixture.make(Role::Admin, None, None).await;
    let signed = crate::sessions::sign_in(fixture, secret.reveal()).await;
    assert_eq!(signed.status, StatusCode::CREATED);
    fixture.make(Role::Viewer, None, Some(1)).await;
    fixture.engine.revoke_token(token.token_id, None, "ann").await.expect("it is revoked");
    let store = fixture.engine.store();
    let nothing = store.prune_access(at(-1), at(0), 100).await.expect("pruned");
    assert_eq!(nothing, AccessPruneCounts::default());
    fixture.wait(100 * day);
    fixture.engine.upkeep(&tidemill_engine::Upkeep::default()).await.expect("upkeep");
    for (table, left) in [("tokens", 1), ("sessions", 0), ("audit", 0)] {
        let text = format!("SELECT count(*) FROM {{ops}}.{table}");
        assert_eq!(fixture.base.plain.number(&text).await.ok(), Some(left), "{table}");
    }
}
