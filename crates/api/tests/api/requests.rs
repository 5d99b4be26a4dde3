//! Idempotency keys, validation errors, and unknown items.

use crate::fixture::{ApiFixture, fields, refused};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::limits::KEY_BYTES_MAX;
use tidemill_core::queue::WORK_ITEMS;
use tidemill_testkit::conformance::at_once;
use tidemill_testkit::interface::{Kind, at};
use tidemill_wire::queues::Peek;
use tidemill_wire::rules::{NewRule, Reprice};
use tidemill_wire::runs::ListRuns;

/// Counts the rules, without the one of a new database.
async fn rules(api: &ApiFixture) -> usize {
    api.admin.rules().await.expect("rules are listed").items.len() - 1
}

fn rule(markup: i32) -> NewRule {
    serde_json::from_value(json!({"markup": markup})).expect("a rule is read")
}

pub(crate) async fn idempotency_key_refuses_a_different_request(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let key = || Some("import-1".to_owned());
    let first = api.admin.add_rule(&rule(11_000), key()).await.expect("a rule is added");
    let again = api.admin.add_rule(&rule(11_000), key()).await.expect("the same answer is returned");
    assert_eq!(first, again);
    assert_eq!(rules(&api).await, 1);
    assert_eq!(refused(api.admin.add_rule(&rule(12_000), key()).await), (409, "key_conflict".to_owned()));
    // A key is scoped to its route and to the project of the caller.
    let import = serde_json::from_value(json!({"rules": [{"markup": 1}]})).expect("an import is read");
    let added = api.admin.import_rules(&import, key()).await.expect("rules are added");
    assert_eq!(api.admin.import_rules(&import, key()).await.expect("the same answer"), added);
    assert_eq!(rules(&api).await, 2);
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let bad = api.keyed(Method::POST, "/v1/rules", "{\"markup\":1}", Some(&long)).await;
    assert_eq!(
        (bad.0, fields(&bad.1)),
        (StatusCode::UNPROCESSABLE_ENTITY, vec!["Idempotency-Key".to_owned()])
    );

    let run = json!({"project": "shop", "env": "staging"}).to_string();
    let (status, first) = api.keyed(Method::POST, "/v1/runs", &run, Some("k")).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, again) = api.keyed(Method::POST, "/v1/runs", &run, Some("k")).await;
    assert_eq!((status, &again["run_id"]), (StatusCode::OK, &first["run_id"]));
    let other = json!({"project": "shop", "env": "staging", "priority": 1}).to_string();
    let (status, problem) = api.keyed(Method::POST, "/v1/runs", &other, Some("k")).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &"key_conflict".into()));
}

pub(crate) async fn concurrent_requests_with_one_key_make_one_rule(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let added = at_once(8, |_| {
        let admin = api.admin.clone();
        async move { admin.add_rule(&rule(11_000), Some("once".to_owned())).await }
    })
    .await;
    let added: Vec<i64> = added.into_iter().map(|rule| rule.expect("a rule is added").rule_id).collect();
    assert_eq!(rules(&api).await, 1, "{added:?}");
    assert!(added.iter().all(|number| *number == added[0]), "{added:?}");
}

pub(crate) async fn idempotency_key_expires_after_a_day(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let key = || Some("again".to_owned());
    api.admin.add_rule(&rule(11_000), key()).await.expect("a rule is added");
    let store = &api.base.store;
    assert_eq!(store.prune_request_keys(at(0)).await.expect("keys are pruned"), 0);
    assert_eq!(store.prune_request_keys(at(1)).await.expect("keys are pruned"), 1);
    api.admin.add_rule(&rule(12_000), key()).await.expect("the key is free");
    assert_eq!(rules(&api).await, 2);
}

pub(crate) async fn all_errors_of_a_body_are_reported_together(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let body = json!({
        "env": "staging", "max_attempts": 0, "priority": "high", "labels": ["a", "b,c"], "colour": "red",
        "metadata": {"text": "a\u{0}b"},
    });
    let (status, problem) = api.raw(Method::POST, "/v1/runs", &body.to_string()).await;
    assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &"invalid".into()));
    let expected = ["colour", "labels[1]", "max_attempts", "metadata.text", "priority", "project"];
    assert_eq!(fields(&problem), expected, "{problem}");

    // Errors about combinations of fields are reported next to errors of single fields.
    let body = json!({
        "project": "shop", "env": "staging", "max_losses": -1,
        "available_at": "2026-02-14T10:30:00Z", "expires_at": "2026-02-14T10:00:00Z",
    });
    let (_, problem) = api.raw(Method::POST, "/v1/runs", &body.to_string()).await;
    assert_eq!(fields(&problem), ["expires_at", "max_losses"], "{problem}");
    let import = json!({"rules": [{"markup": 1}, {"markup": 0, "stone_type": "lab", "lab_grown": false}]});
    let (_, problem) = api.raw(Method::POST, "/v1/rules/import", &import.to_string()).await;
    assert_eq!(fields(&problem), ["rules[1].lab_grown", "rules[1].markup"], "{problem}");
    let schedule = json!({"cron": "never", "request": {"project": "shop", "env": ""}});
    let (_, problem) = api.raw(Method::PUT, "/v1/schedules/nightly", &schedule.to_string()).await;
    assert_eq!(fields(&problem), ["cron", "request.env"], "{problem}");
    let worker = json!({"name": "", "host": "here", "pid": "1", "labels": ["a,b"]});
    let path = "/v1/workers/018f3c5e-0000-7000-8000-000000000001";
    let (_, problem) = api.raw(Method::PUT, path, &worker.to_string()).await;
    assert_eq!(fields(&problem), ["pid"], "a malformed body is reported first: {problem}");
    let worker = json!({"name": "", "host": "here", "pid": 1, "labels": ["a,b"]});
    let (_, problem) = api.raw(Method::PUT, path, &worker.to_string()).await;
    assert_eq!(fields(&problem), ["labels", "name"], "{problem}");
    let claim = json!({"worker": "", "labels": ["a,b"], "limit": 0, "wait_secs": 61});
    let (_, problem) = api.raw(Method::POST, "/v1/claims", &claim.to_string()).await;
    assert_eq!(fields(&problem), ["labels", "limit", "wait_secs", "worker"], "{problem}");

    let (status, problem) = api.raw(Method::POST, "/v1/runs", "{\"project\": ").await;
    assert_eq!((status, &problem["code"]), (StatusCode::BAD_REQUEST, &"bad_json".into()));
    let (status, problem) = api.raw(Method::POST, "/v1/runs", "[]").await;
    assert_eq!((status, fields(&problem)), (StatusCode::UNPROCESSABLE_ENTITY, vec!["body".to_owned()]));
}

pub(crate) async fn all_errors_of_a_query_are_reported_together(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let path = "/v1/runs?limit=0&status=lost&since=soon&sha_prefix=ab&name_prefix=&kind=&project=%00&wrong=1&lane=ops\
                &lane=sync";
    let (status, problem) = api.raw(Method::GET, path, "").await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let expected =
        ["kind", "lane", "limit", "name_prefix", "project", "sha_prefix", "since", "status", "wrong"];
    assert_eq!(fields(&problem), expected, "{problem}");
    for path in ["/v1/rejects?after=x", "/v1/queues/work-items/dead?after=%5B%5D", "/v1/syncs?after=1"] {
        let (status, problem) = api.raw(Method::GET, path, "").await;
        assert_eq!((status, fields(&problem)), (StatusCode::UNPROCESSABLE_ENTITY, vec!["after".to_owned()]));
    }
    let (status, problem) = api.raw(Method::GET, "/v1/feeds/%00", "").await;
    assert_eq!((status, fields(&problem)), (StatusCode::UNPROCESSABLE_ENTITY, vec!["path".to_owned()]));
}

/// Every route that names a project returns the same hint, whether the API or the database refuses it.
pub(crate) async fn unknown_project_is_refused_with_the_command_that_creates_it(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let (production, staging) = ("production", "staging");
    let graph =
        json!({"project": "none", "env": "staging", "text": "version: 1\njobs: {a: {run: 'true'}}\n"});
    let request = json!({"project": "none", "env": "staging"});
    for (method, path, body, env) in [
        (Method::POST, "/v1/runs", request.clone(), staging),
        (Method::POST, "/v1/graphs", graph, staging),
        (Method::PUT, "/v1/schedules/n", json!({"cron": "30 2 * * *", "request": request}), staging),
        (
            Method::PUT,
            "/v1/hooks/n",
            json!({"project": "none", "kind": "github", "secret_env": "S"}),
            production,
        ),
        (
            Method::POST,
            "/v1/tokens",
            json!({"name": "n", "role": "viewer", "projects": ["none"]}),
            production,
        ),
        (Method::PUT, "/v1/flags", json!({"flag": "paused", "scope": "project:none"}), production),
        (Method::GET, "/v1/projects/none", Value::Null, production),
        (Method::POST, "/v1/projects/none/pause", json!({}), production),
        (Method::GET, "/v1/stream?project=none", Value::Null, production),
    ] {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, problem) = api.raw(method, path, &text).await;
        assert_eq!(
            (status.as_u16(), &problem["code"]),
            (404, &json!("unknown_project")),
            "{path}: {problem}"
        );
        let hint = format!("tidemill project create none --env {env}");
        assert_eq!(problem["hint"], hint, "{path}");
    }
}

pub(crate) async fn missing_items_are_reported_as_unknown(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let gone = |code: &str| (404, code.to_owned());
    assert_eq!(refused(api.admin.project("none").await), gone("unknown_project"));
    assert_eq!(refused(api.admin.resume_project("none").await), gone("unknown_project"));
    assert_eq!(refused(api.admin.schedule("none").await), gone("unknown_schedule"));
    assert_eq!(refused(api.admin.remove_schedule("none").await), gone("unknown_schedule"));
    assert_eq!(refused(api.admin.resume_schedule("none").await), gone("unknown_schedule"));
    assert_eq!(refused(api.admin.feed("none").await), gone("unknown_feed"));
    assert_eq!(refused(api.admin.watermark("none").await), gone("unknown_feed"));
    assert_eq!(refused(api.admin.resume_feed("none").await), gone("unknown_feed"));
    assert_eq!(refused(api.admin.reprice("none", &Reprice::default()).await), gone("unknown_feed"));
    assert_eq!(refused(api.admin.sync("none").await), gone("unknown_sync"));
    assert_eq!(refused(api.admin.cancel_sync("none", None).await), gone("unknown_sync"));
    assert_eq!(refused(api.admin.remove_rule(7).await), gone("unknown_rule"));
    assert_eq!(refused(api.admin.peek("none", Peek::default()).await), gone("unknown_queue"));
    assert!(api.admin.peek(WORK_ITEMS, Peek::default()).await.expect("a queue").items.is_empty());
    let (status, problem) = api.raw(Method::GET, "/v1/nothing", "").await;
    assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &"no_route".into()));
    let none = ListRuns { project: Some("none".to_owned()), ..ListRuns::default() };
    assert!(api.admin.runs(&none).await.expect("an empty list").items.is_empty());
}
