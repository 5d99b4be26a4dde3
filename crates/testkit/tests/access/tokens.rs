//! What a token is worth, and until when.

use http::{Method, StatusCode};
use serde_json::json;
use tidemill_api::access::Access;
use tidemill_core::access::Role;
use tidemill_core::limits::TOKEN_TRUST_SECS;
use tidemill_store::PrunedAccess;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::door::at;

use crate::ground::{Ground, ask, door, get, post};

pub(crate) async fn revocation_bites_at_once_here_and_within_five_seconds_elsewhere(ground: &Ground) {
    let (token, secret) = ground.make(Role::Viewer, None, None).await;
    let beside = ground.stage.beside().await;
    let elsewhere = door(&beside, ground.engine.clock().clone(), Access::Tokens);
    let here = async || ground.get("/v1/info", secret.reveal()).await;
    let there = async || get("/v1/info").token(secret.reveal()).at(&elsewhere).await;
    assert_eq!((here().await.status, there().await.status), (StatusCode::OK, StatusCode::OK));
    let path = format!("/v1/tokens/{}", token.token_id);
    let revoke = async || ask(&Method::DELETE, &path).token(&ground.admin).at(&ground.door).await;
    let revoked = revoke().await;
    assert_eq!((revoked.status, &revoked.json()["revoked_by"]), (StatusCode::OK, &json!("first admin")));
    assert_eq!(here().await.code(), "token_revoked");
    assert_eq!(there().await.status, StatusCode::OK, "it is remembered elsewhere");
    ground.wait(TOKEN_TRUST_SECS.into());
    assert_eq!(there().await.code(), "token_revoked");
    assert_eq!(revoke().await.body, revoked.body, "twice is the same as once");
    beside.close().await;
}

pub(crate) async fn a_token_ends_at_its_time(ground: &Ground) {
    let body = json!({"name": "ci", "role": "viewer", "expires_in_secs": 3});
    let made = ground.post("/v1/tokens", &ground.admin, &body).await;
    let secret = made.json()["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(ground.get("/v1/info", &secret).await.json()["caller"], json!("ci"));
    ground.wait(2);
    assert_eq!(ground.get("/v1/info", &secret).await.status, StatusCode::OK);
    // It is still remembered as good, but its end is known too.
    ground.wait(1);
    assert_eq!(ground.get("/v1/info", &secret).await.code(), "token_expired");
    for bad in
        [json!({"name": "", "role": "viewer"}), json!({"name": "x", "role": "viewer", "expires_in_secs": 0})]
    {
        let refused = ground.post("/v1/tokens", &ground.admin, &bad).await;
        assert_eq!((refused.status, refused.code().as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"));
    }
}

pub(crate) async fn a_token_that_is_asked_for_twice_is_made_once(ground: &Ground) {
    let body = |name: &str| json!({"name": name, "role": "viewer"});
    let create = async |key: &str, name: &str| {
        let create = post("/v1/tokens", &body(name)).header("idempotency-key", key);
        create.token(&ground.admin).at(&ground.door).await
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
    let count = async || ground.stage.plain.number("SELECT count(*) FROM {ops}.tokens").await.ok();
    assert_eq!(count().await, Some(2), "the admin's and this one");

    let answers = at_once(8, |_| {
        let create = post("/v1/tokens", &body("cd")).header("idempotency-key", "second");
        let (create, door) = (create.token(&ground.admin), ground.door.clone());
        async move { create.at(&door).await.status }
    })
    .await;
    let made = answers.iter().filter(|status| **status == StatusCode::CREATED).count();
    assert_eq!(made, 1, "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status.as_u16(), 201 | 409)), "{answers:?}");
    assert_eq!(count().await, Some(3));
    // Without a key, each request is one of its own.
    for _ in 0..2 {
        let plain = ground.post("/v1/tokens", &ground.admin, &body("more")).await;
        assert_eq!(plain.status, StatusCode::CREATED);
    }
    assert_eq!(count().await, Some(5));
    let lines = "SELECT count(*) FROM {ops}.audit WHERE action = 'tokens.create'";
    assert_eq!(ground.stage.plain.number(lines).await.ok(), Some(4), "what was refused is not on record");
}

pub(crate) async fn the_last_use_is_written_at_most_once_a_minute(ground: &Ground) {
    let (token, secret) = ground.make(Role::Viewer, None, None).await;
    let used = async || {
        assert_eq!(ground.get("/v1/info", secret.reveal()).await.status, StatusCode::OK);
        let listed =
            ground.engine.store().tokens(tidemill_store::Slice { limit: 10, ..Default::default() }).await;
        let listed = listed.expect("tokens");
        listed.iter().find(|one| one.token_id == token.token_id).expect("the token").last_used_at
    };
    assert_eq!(used().await, Some(at(0)));
    let mut before = 0;
    for (wait, last) in [(1, 0), (30, 0), (28, 0), (1, 60), (10, 60)] {
        ground.wait(wait);
        before += wait;
        assert_eq!(used().await, Some(at(last)), "after {before} seconds");
    }
}

pub(crate) async fn the_first_admin_is_made_once_however_many_ask(ground: &Ground) {
    assert!(ground.engine.first_admin().await.expect("an answer").is_none(), "there is one");
    let admins =
        ground.engine.store().tokens(tidemill_store::Slice { limit: 10, ..Default::default() }).await;
    let first = admins.expect("tokens")[0].token_id;
    ground.engine.revoke_token(first, None, "ann").await.expect("it is revoked");
    // An admin of one project, and one whose time is over, cannot let anybody else in.
    ground.make(Role::Admin, Some("shop"), None).await;
    ground.make(Role::Admin, None, Some(1)).await;
    ground.wait(1);
    let engine = ground.engine.clone();
    let made = at_once(8, |_| {
        let engine = engine.clone();
        async move { tidemill_api::access::first_admin(&engine).await }
    });
    let made: Vec<_> = made.await.into_iter().filter_map(|made| made.expect("an answer")).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(ground.get("/v1/tokens", made[0].1.reveal()).await.status, StatusCode::OK);
}

pub(crate) async fn tokens_are_listed_page_by_page(ground: &Ground) {
    for _ in 0..4 {
        ground.make(Role::Viewer, Some("shop"), None).await;
        ground.wait(1);
    }
    let mut seen = Vec::new();
    let mut path = "/v1/tokens?limit=2".to_owned();
    loop {
        let page = ground.get(&path, &ground.admin).await.json();
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
    let of_shop = ground.get("/v1/tokens?project=shop", &ground.admin).await.json();
    assert_eq!(of_shop["items"].as_array().map(Vec::len), Some(4));
}

pub(crate) async fn a_source_of_unknown_tokens_has_to_wait(ground: &Ground) {
    let unknown = |number: u32| format!("tm_{number:064x}");
    let from = [192, 0, 2, 1];
    let call = async |secret: &str, from: [u8; 4]| {
        get("/v1/info").from(from, false).token(secret).at(&ground.door).await
    };
    assert_eq!(call(&ground.admin, from).await.status, StatusCode::OK);
    let (_, unseen) = ground.make(Role::Viewer, None, None).await;
    for number in 0..20 {
        assert_eq!(call(&unknown(number), from).await.code(), "unauthenticated", "{number}");
    }
    let told = call(&unknown(20), from).await;
    assert_eq!((told.status, told.code().as_str()), (StatusCode::TOO_MANY_REQUESTS, "throttled"));
    assert_eq!(told.header("retry-after"), "60");
    assert_eq!(
        call(unseen.reveal(), from).await.status,
        StatusCode::TOO_MANY_REQUESTS,
        "nothing is looked up"
    );
    assert_eq!(call(&ground.admin, from).await.status, StatusCode::OK, "who was known before goes on");
    // Also when it has to be looked up again.
    ground.wait(i64::from(TOKEN_TRUST_SECS) + 1);
    assert_eq!(call(&ground.admin, from).await.status, StatusCode::OK, "who was known before goes on");
    assert_eq!(call(&unknown(21), from).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(call(unseen.reveal(), [192, 0, 2, 2]).await.status, StatusCode::OK, "others do not wait");
    ground.wait(60);
    assert_eq!(call(&unknown(20), from).await.code(), "unauthenticated");
}

pub(crate) async fn what_is_over_is_pruned(ground: &Ground) {
    let day = 86_400;
    let (token, secret) = ground.make(Role::Admin, None, None).await;
    let signed = crate::sessions::sign_in(ground, secret.reveal()).await;
    assert_eq!(signed.status, StatusCode::CREATED);
    ground.make(Role::Viewer, None, Some(1)).await;
    ground.engine.revoke_token(token.token_id, None, "ann").await.expect("it is revoked");
    let store = ground.engine.store();
    let nothing = store.prune_access(at(-1), at(0), 100).await.expect("pruned");
    assert_eq!(nothing, PrunedAccess::default());
    ground.wait(100 * day);
    ground.engine.upkeep(&tidemill_engine::Upkeep::default()).await.expect("upkeep");
    for (table, left) in [("tokens", 1), ("sessions", 0), ("audit", 0)] {
        let text = format!("SELECT count(*) FROM {{ops}}.{table}");
        assert_eq!(ground.stage.plain.number(&text).await.ok(), Some(left), "{table}");
    }
}
