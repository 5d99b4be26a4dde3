//! Webhooks that come in, over the whole door: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

use axum::Router;
use axum::body::{Body, to_bytes};
use chrono::TimeDelta;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_core::hook::{Hook, HookKind, HookRule, default_rules};
use tidemill_core::limits::HOOK_BODY_BYTES_MAX;
use tidemill_core::run::Run;
use tidemill_core::signature::sign;
use tidemill_engine::clock::Clock;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Engine, Patience};
use tidemill_store::RunFilter;
use tidemill_testkit::door::{Kind, Stage, at};
use tower::ServiceExt as _;

/// An environment variable that every test has: its value is the secret.
const SECRET_ENV: &str = "CARGO_PKG_NAME";
const SHA: &str = "6113728f27ae82c7b1a177c8d03f9e96e0adf246";

macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(tidemill_testkit::door::Kind::Postgres).await; })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(tidemill_testkit::door::Kind::Sqlite).await; })+
        }
    };
}

on_both! {
    a_push_queues_a_run_by_its_branch,
    a_delivery_that_comes_twice_is_one_run,
    a_wrong_signature_reads_like_an_unknown_hook,
    what_queues_nothing_is_answered_202,
    a_body_that_is_too_large_is_refused,
    an_environment_that_is_missing_is_said_clearly,
    a_hook_without_its_secret_reads_like_an_unknown_one,
    anybody_who_signs_time_and_body_may_queue,
    one_signed_delivery_is_one_run_under_every_key,
    an_old_or_changed_generic_delivery_is_refused,
    hooks_are_set_up_listed_and_removed,
}

struct Desk {
    stage: Stage,
    clock: Clock,
    engine: Engine,
    door: Router,
}

impl Desk {
    async fn open(kind: Kind) -> Self {
        let stage = Stage::open(kind).await;
        let clock = Clock::fixed(at(0));
        let engine = Engine::new(stage.store.clone(), clock.clone(), Patience::None);
        let syncs = Syncs::new(engine.clone(), SyncSettings::default());
        let door = router(App::new(syncs, Access::Open { name: "test".to_owned() }));
        stage
            .store
            .create_project("shop", vec!["prod".to_owned(), "dev".to_owned()], Some(at(0)))
            .await
            .expect("the environments are made");
        Self { stage, clock, engine, door }
    }

    async fn hook(&self, name: &str, kind: HookKind, rules: Vec<HookRule>) {
        let hook = Hook {
            hook: name.to_owned(),
            project_id: "shop".to_owned(),
            kind,
            secret_env: SECRET_ENV.to_owned(),
            rules,
            paused_at: None,
            created_at: at(0),
        };
        self.engine.put_hook(hook).await.expect("the hook is set up");
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answer = self.door.clone().oneshot(request).await.expect("the door answers");
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("the answer is read");
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// A delivery as GitHub sends it.
    async fn github(&self, hook: &str, event: &str, delivery: &str, body: &str) -> (StatusCode, Value) {
        let signature = format!("sha256={}", sign(secret().as_bytes(), &[body.as_bytes()]));
        self.send(github(hook, event, delivery, &signature, body)).await
    }

    /// The run that an answer names.
    async fn run(&self, answer: &Value) -> Run {
        let mut runs = self.runs().await;
        runs.retain(|run| run.run_id.as_str() == answer["run_id"]);
        runs.pop().expect("the run is there")
    }

    async fn runs(&self) -> Vec<Run> {
        let filter = RunFilter { limit: 100, ..RunFilter::default() };
        self.stage.store.runs(filter).await.expect("the runs are read")
    }
}

fn secret() -> String {
    std::env::var(SECRET_ENV).expect("cargo sets it")
}

fn github(hook: &str, event: &str, delivery: &str, signature: &str, body: &str) -> Request<Body> {
    Request::post(format!("/v1/hooks/{hook}"))
        .header("content-type", "application/json")
        .header("user-agent", "GitHub-Hookshot/760256b")
        .header("x-github-event", event)
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", signature)
        .body(Body::from(body.to_owned()))
        .expect("a request")
}

fn generic(hook: &str, time: i64, signature: &str) -> http::request::Builder {
    Request::post(format!("/v1/hooks/{hook}"))
        .header("x-tidemill-timestamp", time.to_string())
        .header("x-tidemill-signature", signature)
}

/// The body of a push, in the shape and the order in which GitHub sends it.
fn push(git_ref: &str) -> String {
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

async fn a_push_queues_a_run_by_its_branch(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("shop", HookKind::Github, default_rules()).await;
    for (number, (git_ref, env)) in [
        ("refs/heads/main", "shop/staging"),
        ("refs/heads/release/1.2", "shop/prod"),
        ("refs/heads/feature/till", "shop/dev"),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, answer) = desk.github("shop", "push", &format!("d-{number}"), &push(git_ref)).await;
        assert_eq!((status, &answer["created"]), (StatusCode::CREATED, &json!(true)), "{answer}");
        let run = desk.run(&answer).await;
        assert_eq!(run.env_id.as_str(), env, "{git_ref}");
        assert_eq!(run.git_sha.as_deref(), Some(SHA));
        assert_eq!(run.git_ref.as_deref(), git_ref.strip_prefix("refs/heads/"));
        assert_eq!(run.metadata["github"]["repository"], "acme/shop");
        assert_eq!(run.metadata["github"]["sender"], "ann");
    }
    let dispatch = json!({"ref": "refs/heads/main", "inputs": {"colour": "blue"}, "workflow": "go.yml",
        "repository": {"full_name": "acme/shop"}, "sender": {"login": "ann"}});
    let (status, answer) = desk.github("shop", "workflow_dispatch", "d-9", &dispatch.to_string()).await;
    assert_eq!(status, StatusCode::CREATED);
    let run = desk.run(&answer).await;
    assert_eq!((run.env_id.as_str(), &run.git_sha), ("shop/staging", &None));
    assert_eq!(run.metadata["github"]["inputs"]["colour"], "blue");
}

async fn a_delivery_that_comes_twice_is_one_run(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("shop", HookKind::Github, default_rules()).await;
    let body = push("refs/heads/main");
    let (first, one) = desk.github("shop", "push", "d-1", &body).await;
    let (second, other) = desk.github("shop", "push", "d-1", &body).await;
    assert_eq!((first, second), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!((&one["run_id"], &other["created"]), (&other["run_id"], &json!(false)));
    let both =
        tokio::join!(desk.github("shop", "push", "d-2", &body), desk.github("shop", "push", "d-2", &body));
    assert_eq!(both.0.1["run_id"], both.1.1["run_id"], "{both:?}");
    assert_eq!(desk.runs().await.len(), 2);
    assert_eq!(desk.run(&both.0.1).await.idempotency_key.as_deref(), Some("github:d-2"));
}

async fn a_wrong_signature_reads_like_an_unknown_hook(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("shop", HookKind::Github, default_rules()).await;
    let body = push("refs/heads/main");
    let right = format!("sha256={}", sign(secret().as_bytes(), &[body.as_bytes()]));
    let unknown = desk.send(github("nobody", "push", "d-1", &right, &body)).await;
    assert_eq!(unknown.0, StatusCode::UNAUTHORIZED);
    let flipped = body.replacen("mend", "menD", 1);
    let wrong_secret = format!("sha256={}", sign(b"another", &[body.as_bytes()]));
    for (signature, body) in [
        (right.as_str(), flipped.as_str()),
        (wrong_secret.as_str(), body.as_str()),
        ("sha256=", body.as_str()),
        ("", body.as_str()),
        (&right["sha256=".len()..], body.as_str()),
        // What is not even JSON reads the same: nothing is parsed before.
        (right.as_str(), "{"),
    ] {
        assert_eq!(desk.send(github("shop", "push", "d-1", signature, body)).await, unknown);
    }
    let none = Request::post("/v1/hooks/shop").body(Body::from(body)).expect("a request");
    assert_eq!(desk.send(none).await, unknown);
    assert_eq!(desk.runs().await.len(), 0);
}

async fn what_queues_nothing_is_answered_202(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("shop", HookKind::Github, default_rules()).await;
    let gone = push("refs/heads/main").replace("\"deleted\":false", "\"deleted\":true");
    for (event, body) in [
        ("ping", json!({"zen": "Keep it logically awesome."}).to_string()),
        ("issues", json!({"action": "opened"}).to_string()),
        ("push", gone),
        ("push", push("refs/tags/v1")),
    ] {
        let (status, answer) = desk.github("shop", event, "d-1", &body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        assert!(answer["ignored"].is_string() && answer["run_id"].is_null(), "{answer}");
    }
    let (status, answer) = desk.github("shop", "push", "d-1", "{").await;
    assert_eq!((status, &answer["code"]), (StatusCode::BAD_REQUEST, &json!("bad_json")));
    let (status, _) = desk.github("shop", "push", "d-1", "{}").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(desk.runs().await.len(), 0);
}

async fn a_body_that_is_too_large_is_refused(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("shop", HookKind::Github, default_rules()).await;
    let large = " ".repeat(HOOK_BODY_BYTES_MAX + 1);
    let (status, answer) = desk.github("shop", "push", "d-1", &large).await;
    assert_eq!((status, &answer["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("too_large")));
}

async fn an_environment_that_is_missing_is_said_clearly(kind: Kind) {
    let desk = Desk::open(kind).await;
    let refused = desk.engine.put_hook(Hook {
        hook: "shop".to_owned(),
        project_id: "shop".to_owned(),
        kind: HookKind::Github,
        secret_env: SECRET_ENV.to_owned(),
        rules: vec![HookRule { pattern: "main".to_owned(), env: "moon".to_owned() }],
        paused_at: None,
        created_at: at(0),
    });
    let refused = refused.await.expect_err("a rule that somebody wrote must lead somewhere");
    assert_eq!(refused.hint().as_deref(), Some("tidemill project create shop --env moon"));
    let hook = json!({"project": "bank", "kind": "github", "secret_env": SECRET_ENV});
    let put = Request::put("/v1/hooks/bank").body(Body::from(hook.to_string())).expect("a request");
    assert_eq!(desk.send(put).await.0, StatusCode::OK);
    let (status, answer) = desk.github("bank", "push", "d-1", &push("refs/heads/feature/x")).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(answer["message"], "hook bank leads to environment `dev`, which project `bank` has not");
    assert_eq!(answer["hint"], "tidemill project create bank --env dev");
}

async fn a_hook_without_its_secret_reads_like_an_unknown_one(kind: Kind) {
    let desk = Desk::open(kind).await;
    let hook = json!({"project": "shop", "kind": "github", "secret_env": "TIDEMILL_TEST_IS_NEVER_SET"});
    let put = Request::put("/v1/hooks/shop").body(Body::from(hook.to_string())).expect("a request");
    assert_eq!(desk.send(put).await.0, StatusCode::OK);
    let told = desk.github("shop", "push", "d-1", &push("refs/heads/main")).await;
    assert_eq!((told.0, &told.1["code"]), (StatusCode::UNAUTHORIZED, &json!("bad_signature")));
    assert_eq!(told, desk.github("nobody", "push", "d-1", &push("refs/heads/main")).await);
    assert_eq!(desk.runs().await.len(), 0);
}

async fn anybody_who_signs_time_and_body_may_queue(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("any", HookKind::Generic, default_rules()).await;
    let time = at(0).timestamp();
    let signed = |time: i64, body: &str| {
        let stamp = time.to_string();
        format!("v1={}", sign(secret().as_bytes(), &[stamp.as_bytes(), b".", body.as_bytes()]))
    };
    let body = json!({"git_ref": "main", "priority": 7, "metadata": {"a": 1}}).to_string();
    let send = |time: i64, body: &str| {
        generic("any", time, &signed(time, body)).body(Body::from(body.to_owned())).expect("a request")
    };
    let (status, first) = desk.send(send(time, &body)).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    let run = &desk.runs().await[0];
    assert_eq!((run.env_id.as_str(), run.priority, &run.metadata), ("shop/staging", 7, &json!({"a": 1})));
    let (status, again) = desk.send(send(time, &body)).await;
    assert_eq!(
        (status, &again["run_id"]),
        (StatusCode::OK, &first["run_id"]),
        "what is replayed is the same"
    );
    let keyed = |time: i64| {
        let request = generic("any", time, &signed(time, &body)).header("idempotency-key", "k-1");
        request.body(Body::from(body.clone())).expect("a request")
    };
    let (one, other) = (desk.send(keyed(time + 1)).await, desk.send(keyed(time + 2)).await);
    assert_eq!((one.0, other.0), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(one.1["run_id"], other.1["run_id"]);
    for bad in
        [json!({"project": "bank", "env": "staging"}), json!({"env": "staging", "colour": 1}), json!({})]
    {
        let (status, answer) = desk.send(send(time, &bad.to_string())).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    }
    let bad = json!({"env": "staging", "colour": 1, "max_attempts": 0, "labels": ["a,b"]});
    let (_, answer) = desk.send(send(time, &bad.to_string())).await;
    let faults = answer["faults"].as_array().map(Vec::len);
    assert_eq!((&answer["code"], faults), (&json!("invalid"), Some(3)), "every fault at once: {answer}");
    assert_eq!(desk.runs().await.len(), 2);
}

async fn one_signed_delivery_is_one_run_under_every_key(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("any", HookKind::Generic, default_rules()).await;
    desk.hook("other", HookKind::Generic, default_rules()).await;
    let (time, body) = (at(0).timestamp(), json!({"git_ref": "main"}).to_string());
    let digits = sign(secret().as_bytes(), &[time.to_string().as_bytes(), b".", body.as_bytes()]);
    let send = async |hook: &str, digits: &str, key: Option<&str>| {
        let mut request = generic(hook, time, &format!("v1={digits}"));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        desk.send(request.body(Body::from(body.clone())).expect("a request")).await
    };
    let (status, first) = send("any", &digits, Some("k-1")).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    // Whoever saw it on its way can choose another key, and nothing that is signed.
    for (digits, key) in [
        (digits.clone(), Some("k-2")),
        (digits.clone(), None),
        (digits.to_uppercase(), Some("k-3")),
        (digits.to_uppercase(), None),
    ] {
        let (status, again) = send("any", &digits, key).await;
        assert_eq!((status, &again["run_id"]), (StatusCode::OK, &first["run_id"]), "{key:?} {digits}");
    }
    assert_eq!(desk.runs().await.len(), 1);
    let (status, elsewhere) = send("other", &digits, Some("k-4")).await;
    assert_eq!(status, StatusCode::CREATED, "another hook is another receiver: {elsewhere}");
}

async fn an_old_or_changed_generic_delivery_is_refused(kind: Kind) {
    let desk = Desk::open(kind).await;
    desk.hook("any", HookKind::Generic, default_rules()).await;
    let body = json!({"env": "staging"}).to_string();
    let sign_at = |time: i64| {
        format!("v1={}", sign(secret().as_bytes(), &[time.to_string().as_bytes(), b".", body.as_bytes()]))
    };
    let now = at(0).timestamp();
    let send = |time: i64, signature: String| {
        generic("any", time, &signature).body(Body::from(body.clone())).expect("a request")
    };
    for (time, signature) in [
        (now - 301, sign_at(now - 301)),
        (now + 301, sign_at(now + 301)),
        (now, sign_at(now - 1)),
        (now, format!("v1={}", sign(secret().as_bytes(), &[body.as_bytes()]))),
    ] {
        assert_eq!(desk.send(send(time, signature)).await.0, StatusCode::UNAUTHORIZED, "{time}");
    }
    assert_eq!(desk.send(send(now - 300, sign_at(now - 300))).await.0, StatusCode::CREATED);
    desk.clock.advance(TimeDelta::seconds(301));
    assert_eq!(desk.send(send(now - 1, sign_at(now - 1))).await.0, StatusCode::UNAUTHORIZED);
}

async fn hooks_are_set_up_listed_and_removed(kind: Kind) {
    let desk = Desk::open(kind).await;
    let put = |name: &str, body: Value| {
        Request::put(format!("/v1/hooks/{name}")).body(Body::from(body.to_string())).expect("a request")
    };
    let good = json!({"project": "shop", "kind": "github", "secret_env": SECRET_ENV});
    let (status, answer) = desk.send(put("shop", good.clone())).await;
    assert_eq!((status, &answer["rules"][0]["env"]), (StatusCode::OK, &json!("staging")));
    for (name, body, expected) in [
        ("shop", json!({"project": "nowhere", "kind": "github", "secret_env": "A"}), StatusCode::NOT_FOUND),
        ("Shop", good.clone(), StatusCode::UNPROCESSABLE_ENTITY),
        (
            "shop",
            json!({"project": "shop", "kind": "gitlab", "secret_env": "A"}),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        ("shop", json!({"project": "bank", "kind": "github", "secret_env": "A"}), StatusCode::CONFLICT),
    ] {
        assert_eq!(desk.send(put(name, body.clone())).await.0, expected, "{name} {body}");
    }
    let mut paused = good;
    paused["paused"] = json!(true);
    assert_eq!(desk.send(put("shop", paused)).await.0, StatusCode::OK);
    let (status, _) = desk.github("shop", "push", "d-1", &push("refs/heads/main")).await;
    assert_eq!(status, StatusCode::ACCEPTED, "a hook that is paused queues nothing");
    let list = || Request::get("/v1/hooks").body(Body::empty()).expect("a request");
    assert_eq!(desk.send(list()).await.1["items"].as_array().map(Vec::len), Some(1));
    let remove = || Request::delete("/v1/hooks/shop").body(Body::empty()).expect("a request");
    assert_eq!(desk.send(remove()).await.0, StatusCode::NO_CONTENT);
    let (status, answer) = desk.send(remove()).await;
    assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("unknown_hook")));
}
