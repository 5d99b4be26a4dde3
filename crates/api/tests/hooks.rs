//! Incoming webhooks through the complete HTTP API: one list of cases, run on each store.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use axum::Router;
use axum::body::{Body, to_bytes};
use chrono::TimeDelta;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_core::hook::{Hook, HookKind, HookRule, default_rules};
use tidemill_core::limits::{HOOK_BODY_BYTES_MAX, HOOK_REPLAY_DAYS};
use tidemill_core::reach::DefinedBy;
use tidemill_core::run::Run;
use tidemill_core::signature::sign;
use tidemill_engine::clock::Clock;
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::{Engine, RetryPolicy, Upkeep};
use tidemill_store::RunFilter;
use tidemill_testkit::interface::{Fixture, Kind, at};
use tower::ServiceExt as _;

use crate::deliveries::{SHA, generic, github, push};

#[path = "hooks/deliveries.rs"]
mod deliveries;

/// An environment variable that exists in every test: its value is the secret.
const SECRET_ENV: &str = "CARGO_PKG_NAME";
/// Another one, with another value.
const OTHER_SECRET_ENV: &str = "CARGO_MANIFEST_DIR";
tidemill_testkit::on_both! {
    push_queues_a_run_by_its_branch,
    repeated_delivery_makes_one_run,
    replayed_body_with_a_new_id_makes_no_second_run,
    event_header_that_contradicts_the_body_is_refused,
    wrong_signature_answers_like_an_unknown_hook,
    secret_of_one_hook_signs_for_no_other,
    delivery_without_matching_rule_is_answered_202,
    body_over_the_limit_is_refused,
    missing_environment_is_reported,
    hook_without_secret_answers_like_an_unknown_hook,
    signed_generic_delivery_queues_a_run,
    signed_delivery_with_several_keys_makes_one_run,
    old_or_modified_generic_delivery_is_refused,
    hooks_are_created_listed_and_removed,
}

struct HookFixture {
    base: Fixture,
    clock: Clock,
    engine: Engine,
    interface: Router,
}

impl HookFixture {
    async fn open(kind: Kind) -> Self {
        let base = Fixture::open(kind).await;
        let clock = Clock::fixed(at(0));
        let engine = Engine::new(base.store.clone(), clock.clone(), RetryPolicy::None);
        let syncs = Syncs::new(engine.clone(), SyncSettings::default());
        let interface = router(App::new(syncs, Access::Open { name: "test".to_owned() }));
        base.store
            .create_project("shop", vec!["prod".to_owned(), "dev".to_owned()], Some(at(0)))
            .await
            .expect("the environments are made");
        Self { base, clock, engine, interface }
    }

    async fn hook(&self, name: &str, kind: HookKind, rules: Vec<HookRule>) {
        let hook = Hook {
            hook: name.to_owned(),
            project_id: "shop".to_owned(),
            kind,
            secret_env: SECRET_ENV.to_owned(),
            rules,
            defined_by: DefinedBy::Operator,
            paused_at: None,
            created_at: at(0),
        };
        self.engine.put_hook(hook).await.expect("the hook is set up");
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answer = self.interface.clone().oneshot(request).await.expect("the API answers");
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("the answer is read");
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Sends a delivery like GitHub.
    async fn github(&self, hook: &str, event: &str, delivery: &str, body: &str) -> (StatusCode, Value) {
        let signature = format!("sha256={}", sign(secret().as_bytes(), &[body.as_bytes()]));
        self.send(github(hook, event, delivery, &signature, body)).await
    }

    /// Returns the run that an answer names.
    async fn run(&self, answer: &Value) -> Run {
        let mut runs = self.runs().await;
        runs.retain(|run| run.run_id.as_str() == answer["run_id"]);
        runs.pop().expect("the run is there")
    }

    async fn runs(&self) -> Vec<Run> {
        let filter = RunFilter { limit: 100, ..RunFilter::default() };
        self.base.store.runs(filter).await.expect("the runs are read")
    }
}

fn secret() -> String {
    std::env::var(SECRET_ENV).expect("cargo sets it")
}

async fn push_queues_a_run_by_its_branch(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    for (number, (git_ref, env)) in [
        ("refs/heads/main", "shop/staging"),
        ("refs/heads/release/1.2", "shop/prod"),
        ("refs/heads/feature/till", "shop/dev"),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, answer) = fixture.github("shop", "push", &format!("d-{number}"), &push(git_ref)).await;
        assert_eq!((status, &answer["created"]), (StatusCode::CREATED, &json!(true)), "{answer}");
        let run = fixture.run(&answer).await;
        assert_eq!(run.env_id.as_str(), env, "{git_ref}");
        assert_eq!(run.git_sha.as_deref(), Some(SHA));
        assert_eq!(run.git_ref.as_deref(), git_ref.strip_prefix("refs/heads/"));
        assert_eq!(run.metadata["github"]["repository"], "acme/shop");
        assert_eq!(run.metadata["github"]["sender"], "ann");
    }
    let dispatch = json!({"ref": "refs/heads/main", "inputs": {"colour": "blue"}, "workflow": "go.yml",
        "repository": {"full_name": "acme/shop"}, "sender": {"login": "ann"}});
    let (status, answer) = fixture.github("shop", "workflow_dispatch", "d-9", &dispatch.to_string()).await;
    assert_eq!(status, StatusCode::CREATED);
    let run = fixture.run(&answer).await;
    assert_eq!((run.env_id.as_str(), &run.git_sha), ("shop/staging", &None));
    assert_eq!(run.metadata["github"]["inputs"]["colour"], "blue");
}

async fn repeated_delivery_makes_one_run(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    let body = push("refs/heads/main");
    let (first, one) = fixture.github("shop", "push", "d-1", &body).await;
    let (second, other) = fixture.github("shop", "push", "d-1", &body).await;
    assert_eq!((first, second), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!((&one["run_id"], &other["created"]), (&other["run_id"], &json!(false)));
    let body = push("refs/heads/feature/till");
    let both = tokio::join!(
        fixture.github("shop", "push", "d-2", &body),
        fixture.github("shop", "push", "d-2", &body)
    );
    assert_eq!(both.0.1["run_id"], both.1.1["run_id"], "{both:?}");
    assert_eq!(fixture.runs().await.len(), 2);
    assert_eq!(fixture.run(&both.0.1).await.idempotency_key.as_deref(), Some("github:d-2"));
}

/// GitHub signs the body alone: an observer of a delivery can send it again under another id.
async fn replayed_body_with_a_new_id_makes_no_second_run(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    let body = push("refs/heads/main");
    let (status, first) = fixture.github("shop", "push", "d-1", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    let replays = tokio::join!(
        fixture.github("shop", "push", "d-2", &body),
        fixture.github("shop", "push", "d-3", &body)
    );
    for (status, replay) in [replays.0, replays.1] {
        assert_eq!((status, &replay["created"]), (StatusCode::OK, &json!(false)), "{replay}");
        assert_eq!(replay["run_id"], first["run_id"]);
    }
    // Also after the rules have changed, and while the body is remembered.
    let rules = vec![HookRule { pattern: "**".to_owned(), env: "prod".to_owned() }];
    fixture.hook("shop", HookKind::Github, rules).await;
    fixture.clock.advance(TimeDelta::days(HOOK_REPLAY_DAYS - 1));
    fixture.engine.upkeep(&Upkeep::default()).await.expect("old rows are removed");
    let (status, replay) = fixture.github("shop", "push", "d-4", &body).await;
    assert_eq!((status, &replay["run_id"]), (StatusCode::OK, &first["run_id"]), "{replay}");
    // The id of a delivery cannot be used for another body.
    let (status, answer) = fixture.github("shop", "push", "d-5", &push("refs/heads/a")).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let (status, answer) = fixture.github("shop", "push", "d-5", &push("refs/heads/b")).await;
    assert_eq!((status, &answer["code"]), (StatusCode::CONFLICT, &json!("key_conflict")));
    fixture.clock.advance(TimeDelta::days(HOOK_REPLAY_DAYS) + TimeDelta::seconds(1));
    let before = fixture.clock.now().expect("a fixed clock") - TimeDelta::days(HOOK_REPLAY_DAYS);
    let removed = fixture.base.store.prune_hook_deliveries(before).await.expect("old bodies are removed");
    assert_eq!(removed, 2);
}

async fn event_header_that_contradicts_the_body_is_refused(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    let dispatch = json!({"ref": "refs/heads/main", "inputs": null, "workflow": "go.yml"}).to_string();
    let created = json!({"ref": "main", "ref_type": "branch", "master_branch": "main"}).to_string();
    for (event, body) in [
        ("workflow_dispatch", push("refs/heads/main")),
        ("issues", push("refs/heads/main")),
        ("push", dispatch),
        ("workflow_dispatch", created),
    ] {
        let (status, answer) = fixture.github("shop", event, "d-1", &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{event}: {answer}");
        assert_eq!(answer["faults"][0]["field"], "X-GitHub-Event", "{answer}");
    }
    assert_eq!(fixture.runs().await.len(), 0);
}

async fn wrong_signature_answers_like_an_unknown_hook(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    let body = push("refs/heads/main");
    let right = format!("sha256={}", sign(secret().as_bytes(), &[body.as_bytes()]));
    let unknown = fixture.send(github("nobody", "push", "d-1", &right, &body)).await;
    assert_eq!(unknown.0, StatusCode::UNAUTHORIZED);
    let flipped = body.replacen("mend", "menD", 1);
    let wrong_secret = format!("sha256={}", sign(b"another", &[body.as_bytes()]));
    for (signature, body) in [
        (right.as_str(), flipped.as_str()),
        (wrong_secret.as_str(), body.as_str()),
        ("sha256=", body.as_str()),
        ("", body.as_str()),
        (&right["sha256=".len()..], body.as_str()),
        // Invalid JSON gets the same response, because nothing is parsed before the check.
        (right.as_str(), "{"),
    ] {
        assert_eq!(fixture.send(github("shop", "push", "d-1", signature, body)).await, unknown);
    }
    let none = Request::post("/v1/hooks/shop").body(Body::from(body)).expect("a request");
    assert_eq!(fixture.send(none).await, unknown);
    assert_eq!(fixture.runs().await.len(), 0);
}

/// A delivery that one hook accepts is refused by another one, also by one of the same project.
async fn secret_of_one_hook_signs_for_no_other(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    let secret_of = |env: &str| std::env::var(env).expect("cargo sets it");
    assert_ne!(secret_of(SECRET_ENV), secret_of(OTHER_SECRET_ENV));
    let hooks =
        [("one", "shop", SECRET_ENV), ("two", "shop", OTHER_SECRET_ENV), ("bank", "bank", OTHER_SECRET_ENV)];
    for hook_kind in [HookKind::Github, HookKind::Generic] {
        for (hook, project_id, secret_env) in hooks {
            let hook = Hook {
                hook: hook.to_owned(),
                project_id: project_id.to_owned(),
                kind: hook_kind,
                secret_env: secret_env.to_owned(),
                rules: vec![HookRule { pattern: "**".to_owned(), env: "staging".to_owned() }],
                defined_by: DefinedBy::Operator,
                paused_at: None,
                created_at: at(0),
            };
            fixture.engine.put_hook(hook).await.expect("the hook is set up");
        }
        for (number, (signer, _, secret_env)) in hooks.into_iter().enumerate() {
            let time = at(0).timestamp() + i64::try_from(number).expect("small");
            let request = |hook: &str| match hook_kind {
                HookKind::Github => {
                    let body = push(&format!("refs/heads/{signer}"));
                    let signature = sign(secret_of(secret_env).as_bytes(), &[body.as_bytes()]);
                    github(hook, "push", &format!("d-{signer}"), &format!("sha256={signature}"), &body)
                }
                HookKind::Generic => {
                    let (stamp, body) = (time.to_string(), json!({"git_ref": signer}).to_string());
                    let signed: [&[u8]; 3] = [stamp.as_bytes(), b".", body.as_bytes()];
                    let signature = format!("v1={}", sign(secret_of(secret_env).as_bytes(), &signed));
                    generic(hook, time, &signature).body(Body::from(body)).expect("a request")
                }
            };
            for (other, _, _) in hooks.into_iter().filter(|(_, _, env)| *env != secret_env) {
                let before = fixture.runs().await.len();
                let (status, answer) = fixture.send(request(other)).await;
                assert_eq!(
                    (status, &answer["code"]),
                    (StatusCode::UNAUTHORIZED, &json!("bad_signature")),
                    "{hook_kind:?}: the secret of {signer} at {other}: {answer}"
                );
                assert_eq!(fixture.runs().await.len(), before, "{signer} at {other} queued a run");
            }
            let (status, answer) = fixture.send(request(signer)).await;
            assert_eq!(status, StatusCode::CREATED, "{hook_kind:?} {signer}: {answer}");
        }
    }
}

async fn delivery_without_matching_rule_is_answered_202(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    let gone = push("refs/heads/main").replace("\"deleted\":false", "\"deleted\":true");
    for (event, body) in [
        ("ping", json!({"zen": "Keep it logically awesome."}).to_string()),
        ("issues", json!({"action": "opened"}).to_string()),
        ("push", gone),
        ("push", push("refs/tags/v1")),
    ] {
        let (status, answer) = fixture.github("shop", event, "d-1", &body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        assert!(answer["ignored"].is_string() && answer["run_id"].is_null(), "{answer}");
    }
    let (status, answer) = fixture.github("shop", "push", "d-1", "{").await;
    assert_eq!((status, &answer["code"]), (StatusCode::BAD_REQUEST, &json!("bad_json")));
    let (status, _) = fixture.github("shop", "push", "d-1", "{}").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(fixture.runs().await.len(), 0);
}

async fn body_over_the_limit_is_refused(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("shop", HookKind::Github, default_rules()).await;
    let large = " ".repeat(HOOK_BODY_BYTES_MAX + 1);
    let (status, answer) = fixture.github("shop", "push", "d-1", &large).await;
    assert_eq!((status, &answer["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("too_large")));
}

async fn missing_environment_is_reported(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    let refused = fixture.engine.put_hook(Hook {
        hook: "shop".to_owned(),
        project_id: "shop".to_owned(),
        kind: HookKind::Github,
        secret_env: SECRET_ENV.to_owned(),
        rules: vec![HookRule { pattern: "main".to_owned(), env: "moon".to_owned() }],
        defined_by: DefinedBy::Operator,
        paused_at: None,
        created_at: at(0),
    });
    let refused = refused.await.expect_err("a configured rule must match");
    assert_eq!(refused.hint().as_deref(), Some("tidemill project create shop --env moon"));
    let hook = json!({"project": "bank", "kind": "github", "secret_env": SECRET_ENV});
    let put = Request::put("/v1/hooks/bank").body(Body::from(hook.to_string())).expect("a request");
    assert_eq!(fixture.send(put).await.0, StatusCode::OK);
    let (status, answer) = fixture.github("bank", "push", "d-1", &push("refs/heads/feature/x")).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(
        answer["message"],
        "hook bank uses environment `dev`, but project `bank` has no such environment"
    );
    assert_eq!(answer["hint"], "tidemill project create bank --env dev");
}

async fn hook_without_secret_answers_like_an_unknown_hook(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    let hook = json!({"project": "shop", "kind": "github", "secret_env": "TIDEMILL_TEST_IS_NEVER_SET"});
    let put = Request::put("/v1/hooks/shop").body(Body::from(hook.to_string())).expect("a request");
    assert_eq!(fixture.send(put).await.0, StatusCode::OK);
    let message = fixture.github("shop", "push", "d-1", &push("refs/heads/main")).await;
    assert_eq!((message.0, &message.1["code"]), (StatusCode::UNAUTHORIZED, &json!("bad_signature")));
    assert_eq!(message, fixture.github("nobody", "push", "d-1", &push("refs/heads/main")).await);
    assert_eq!(fixture.runs().await.len(), 0);
}

async fn signed_generic_delivery_queues_a_run(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("any", HookKind::Generic, default_rules()).await;
    let time = at(0).timestamp();
    let signed = |time: i64, body: &str| {
        let stamp = time.to_string();
        format!("v1={}", sign(secret().as_bytes(), &[stamp.as_bytes(), b".", body.as_bytes()]))
    };
    let body = json!({"git_ref": "main", "priority": 7, "metadata": {"a": 1}}).to_string();
    let send = |time: i64, body: &str| {
        generic("any", time, &signed(time, body)).body(Body::from(body.to_owned())).expect("a request")
    };
    let (status, first) = fixture.send(send(time, &body)).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    let run = &fixture.runs().await[0];
    assert_eq!((run.env_id.as_str(), run.priority, &run.metadata), ("shop/staging", 7, &json!({"a": 1})));
    let (status, again) = fixture.send(send(time, &body)).await;
    assert_eq!(
        (status, &again["run_id"]),
        (StatusCode::OK, &first["run_id"]),
        "the replayed message is equal"
    );
    let keyed = |time: i64| {
        let request = generic("any", time, &signed(time, &body)).header("idempotency-key", "k-1");
        request.body(Body::from(body.clone())).expect("a request")
    };
    let (one, other) = (fixture.send(keyed(time + 1)).await, fixture.send(keyed(time + 2)).await);
    assert_eq!((one.0, other.0), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(one.1["run_id"], other.1["run_id"]);
    for bad in
        [json!({"project": "bank", "env": "staging"}), json!({"env": "staging", "colour": 1}), json!({})]
    {
        let (status, answer) = fixture.send(send(time, &bad.to_string())).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    }
    let bad = json!({"env": "staging", "colour": 1, "max_attempts": 0, "labels": ["a,b"]});
    let (_, answer) = fixture.send(send(time, &bad.to_string())).await;
    let faults = answer["faults"].as_array().map(Vec::len);
    assert_eq!((&answer["code"], faults), (&json!("invalid"), Some(3)), "every fault at once: {answer}");
    assert_eq!(fixture.runs().await.len(), 2);
}

async fn signed_delivery_with_several_keys_makes_one_run(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("any", HookKind::Generic, default_rules()).await;
    fixture.hook("other", HookKind::Generic, default_rules()).await;
    let (time, body) = (at(0).timestamp(), json!({"git_ref": "main"}).to_string());
    let digits = sign(secret().as_bytes(), &[time.to_string().as_bytes(), b".", body.as_bytes()]);
    let send = async |hook: &str, digits: &str, key: Option<&str>| {
        let mut request = generic(hook, time, &format!("v1={digits}"));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        fixture.send(request.body(Body::from(body.clone())).expect("a request")).await
    };
    let (status, first) = send("any", &digits, Some("k-1")).await;
    assert_eq!(status, StatusCode::CREATED, "{first}");
    // An observer can change the key, but nothing that is signed.
    for (digits, key) in [
        (digits.clone(), Some("k-2")),
        (digits.clone(), None),
        (digits.to_uppercase(), Some("k-3")),
        (digits.to_uppercase(), None),
    ] {
        let (status, again) = send("any", &digits, key).await;
        assert_eq!((status, &again["run_id"]), (StatusCode::OK, &first["run_id"]), "{key:?} {digits}");
    }
    assert_eq!(fixture.runs().await.len(), 1);
    let (status, elsewhere) = send("other", &digits, Some("k-4")).await;
    assert_eq!(status, StatusCode::CREATED, "another hook is another receiver: {elsewhere}");
}

async fn old_or_modified_generic_delivery_is_refused(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    fixture.hook("any", HookKind::Generic, default_rules()).await;
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
        assert_eq!(fixture.send(send(time, signature)).await.0, StatusCode::UNAUTHORIZED, "{time}");
    }
    assert_eq!(fixture.send(send(now - 300, sign_at(now - 300))).await.0, StatusCode::CREATED);
    fixture.clock.advance(TimeDelta::seconds(301));
    assert_eq!(fixture.send(send(now - 1, sign_at(now - 1))).await.0, StatusCode::UNAUTHORIZED);
}

async fn hooks_are_created_listed_and_removed(kind: Kind) {
    let fixture = HookFixture::open(kind).await;
    let put = |name: &str, body: Value| {
        Request::put(format!("/v1/hooks/{name}")).body(Body::from(body.to_string())).expect("a request")
    };
    let good = json!({"project": "shop", "kind": "github", "secret_env": SECRET_ENV});
    let (status, answer) = fixture.send(put("shop", good.clone())).await;
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
        assert_eq!(fixture.send(put(name, body.clone())).await.0, expected, "{name} {body}");
    }
    let mut paused = good;
    paused["paused"] = json!(true);
    assert_eq!(fixture.send(put("shop", paused)).await.0, StatusCode::OK);
    let (status, _) = fixture.github("shop", "push", "d-1", &push("refs/heads/main")).await;
    assert_eq!(status, StatusCode::ACCEPTED, "a paused hook queues nothing");
    let list = || Request::get("/v1/hooks").body(Body::empty()).expect("a request");
    assert_eq!(fixture.send(list()).await.1["items"].as_array().map(Vec::len), Some(1));
    let remove = || Request::delete("/v1/hooks/shop").body(Body::empty()).expect("a request");
    assert_eq!(fixture.send(remove()).await.0, StatusCode::NO_CONTENT);
    let (status, answer) = fixture.send(remove()).await;
    assert_eq!((status, &answer["code"]), (StatusCode::NOT_FOUND, &json!("unknown_hook")));
}
