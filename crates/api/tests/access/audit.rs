//! The audit log: entries, pages and immutability.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::access::Role;
use tidemill_testkit::interface::{at, request};

use crate::fixture::{AccessFixture, ask, post};

pub(crate) async fn every_change_and_no_read_is_audited(fixture: &AccessFixture) {
    let operator = fixture.secret(Role::Operator, None).await;
    let worker = fixture.secret(Role::Worker, None).await;
    let queue = post("/v1/runs", &json!({"project": "shop", "env": "staging"})).from([192, 0, 2, 9], false);
    let queued = queue.token(&operator).at(&fixture.interface).await.json();
    let run = queued["run_id"].as_str().expect("a run").to_owned();
    // Reads and reports of workers are not audited. A refused change is, as refused.
    let unknown = json!({"project": "nope", "env": "staging"});
    assert_eq!(fixture.post("/v1/runs", &operator, &unknown).await.status, StatusCode::NOT_FOUND);
    assert_eq!(fixture.get("/v1/runs", &operator).await.status, StatusCode::OK);
    assert_eq!(fixture.post("/v1/claims", &worker, &json!({"worker": "w"})).await.status, StatusCode::OK);
    let admin_works = fixture.post("/v1/claims", &fixture.admin, &json!({"worker": "w"})).await;
    assert_eq!(admin_works.status, StatusCode::OK);
    fixture.wait(1);
    let cancelled =
        fixture.post(&format!("/v1/runs/{run}/cancel"), &operator, &json!({"reason": "no"})).await;
    assert_eq!(cancelled.status, StatusCode::OK);
    let made =
        fixture.post("/v1/tokens", &fixture.admin, &json!({"name": "ci", "role": "viewer"})).await.json();
    let token = made["token"]["token_id"].as_str().expect("an id").to_owned();
    let revoke = ask(&Method::DELETE, &format!("/v1/tokens/{token}")).token(&fixture.admin);
    assert_eq!(revoke.at(&fixture.interface).await.status, StatusCode::OK);

    let record = fixture.get("/v1/audit", &fixture.admin).await.json();
    let items = record["items"].as_array().expect("items");
    let response =
        |item: &Value| ["who", "action", "subject", "project_id", "outcome"].map(|field| item[field].clone());
    let (first, operator) = ("first admin", "operator of all");
    let (applied, none) = (json!("applied"), Value::Null);
    let created = items[5]["subject"].clone();
    let expected = [
        [json!(first), json!("tokens.delete"), json!(token), none.clone(), applied.clone()],
        [json!(first), json!("tokens.create"), json!(token), none.clone(), applied.clone()],
        [json!(operator), json!("runs.cancel"), json!(run), json!("shop"), applied.clone()],
        [json!(operator), json!("runs.create"), none.clone(), json!("nope"), json!("refused")],
        [json!(operator), json!("runs.create"), json!(run), json!("shop"), applied.clone()],
        [json!("tidemill"), json!("tokens.create"), created.clone(), none, applied],
    ];
    assert_eq!(items.iter().map(response).collect::<Vec<_>>(), expected, "{record:#}");
    assert!(created.is_string(), "the first admin token is named: {record:#}");
    assert_eq!(items[3]["detail"], json!({"method": "POST", "path": "/v1/runs", "status": 404}));
    let queued = &items[4];
    assert_eq!((&queued["source"], &queued["role"]), (&json!("192.0.2.9"), &json!("operator")));
    assert_eq!(queued["detail"], json!({"method": "POST", "path": "/v1/runs"}));
    assert_eq!(items[2]["at"], json!(at(1)));
    // A project admin sees the entries of the project.
    let shop = fixture.secret(Role::Admin, Some("shop")).await;
    let part = fixture.get("/v1/audit", &shop).await.json();
    assert_eq!(part["items"].as_array().map(Vec::len), Some(2), "{part:#}");
}

pub(crate) async fn audit_entry_names_created_and_implied_subjects(fixture: &AccessFixture) {
    let operator = fixture.secret(Role::Operator, None).await;
    let feed = json!({"project_id": "shop", "endpoint": "http://127.0.0.1:9/graphql", "username": "u",
        "password_env": "FEED_PASSWORD"});
    let put =
        ask(&Method::PUT, "/v1/feeds/gems").body(&feed).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(put.status, StatusCode::OK, "{put:?}");
    let rule = |feed: Value| json!({"markup": 11_000, "feed": feed});
    let made = fixture.post("/v1/rules", &operator, &rule(json!("gems"))).await.json()["rule_id"].to_string();
    let rules = json!({"rules": [rule(json!("gems")), rule(Value::Null)]});
    let imported = fixture.post("/v1/rules/import", &operator, &rules).await.json();
    let numbers = format!("{},{}", imported["added"][0], imported["added"][1]);
    let (scope, lane) = ("feed:gems", "lane:graph");
    for scope in [scope, lane] {
        let flag = json!({"flag": "paused", "scope": scope});
        let set = ask(&Method::PUT, "/v1/flags").body(&flag).token(&operator).at(&fixture.interface).await;
        assert_eq!(set.status, StatusCode::OK, "{set:?}");
    }
    let clear = ask(&Method::DELETE, "/v1/flags?flag=paused&scope=feed:gems").token(&operator);
    assert_eq!(clear.at(&fixture.interface).await.status, StatusCode::OK);

    let record = fixture.get("/v1/audit", &fixture.admin).await.json();
    let items = record["items"].as_array().expect("items");
    let response = |item: &Value| {
        let text = |field: &str| item[field].as_str().map(str::to_owned);
        (item["detail"]["path"].as_str().unwrap_or_default().to_owned(), text("subject"), text("project_id"))
    };
    let expected_of = |path: &str, subject: &str, project: Option<&str>| {
        (path.to_owned(), Some(subject.to_owned()), project.map(str::to_owned))
    };
    let expected = [
        expected_of("/v1/flags", scope, Some("shop")),
        expected_of("/v1/flags", lane, None),
        expected_of("/v1/flags", scope, Some("shop")),
        // Some entries belong to the shop, the others to no project.
        expected_of("/v1/rules/import", &numbers, None),
        expected_of("/v1/rules", &made, Some("shop")),
    ];
    assert_eq!(items.iter().take(5).map(response).collect::<Vec<_>>(), expected, "{record:#}");
}

pub(crate) async fn audit_log_is_paged_and_immutable(fixture: &AccessFixture) {
    for _ in 0..5 {
        let run = fixture.base.queue(request(), at(0)).await;
        let path = format!("/v1/runs/{run}/cancel");
        assert_eq!(fixture.post(&path, &fixture.admin, &json!({})).await.status, StatusCode::OK);
    }
    let mut seen = Vec::new();
    let mut path = "/v1/audit?limit=2".to_owned();
    loop {
        let page = fixture.get(&path, &fixture.admin).await.json();
        seen.extend(
            page["items"].as_array().expect("items").iter().filter_map(|item| item["audit_id"].as_i64()),
        );
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/audit?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 6, "the first admin token, and five runs");
    assert!(seen.is_sorted_by(|one, other| one > other), "{seen:?}");
    let changed = fixture.base.plain.execute("UPDATE {ops}.audit SET who = 'nobody'").await;
    let refused = changed.expect_err("recorded events do not change");
    assert_eq!(refused.refusal_code(), Some(tidemill_store::RefusalCode::Frozen));
}

/// Only the change of the token is audited, not other calls of agents. If the audit entry cannot be written, the change
/// is rolled back.
pub(crate) async fn change_of_agent_token_is_audited(fixture: &AccessFixture) {
    let (first, old) = fixture.make(Role::Agent, None, None).await;
    let (second, new) = fixture.make(Role::Agent, None, None).await;
    let agent = uuid::Uuid::new_v4();
    let register = async |token: &str| {
        let body = json!({
            "boot": uuid::Uuid::new_v4(), "name": "one", "capacity": 1, "protocol": 1, "secret": "7".repeat(32),
            "next_secret": "7".repeat(32),
        });
        let ask = ask(&Method::PUT, &format!("/v1/agents/{agent}")).body(&body).from([192, 0, 2, 9], false);
        ask.token(token).at(&fixture.interface).await.status
    };
    let lines = "SELECT count(*) FROM {ops}.audit WHERE action LIKE 'agents%' AND outcome = 'applied'";
    for _ in 0..2 {
        assert_eq!(register(old.reveal()).await, StatusCode::OK);
    }
    assert_eq!(register(new.reveal()).await, StatusCode::CONFLICT, "the first token is good");
    assert_eq!(fixture.base.plain.number(lines).await.ok(), Some(0));
    let revoke = ask(&Method::DELETE, &format!("/v1/tokens/{}", first.token_id)).token(&fixture.admin);
    assert_eq!(revoke.at(&fixture.interface).await.status, StatusCode::OK);

    let plain = &fixture.base.plain;
    plain.execute("ALTER TABLE {ops}.audit RENAME TO audit_away").await.expect("the record is out of reach");
    assert!(register(new.reveal()).await.is_server_error(), "a change without audit entry is not made");
    plain.execute("ALTER TABLE {ops}.audit_away RENAME TO audit").await.expect("the record is back");
    for _ in 0..2 {
        assert_eq!(register(new.reveal()).await, StatusCode::OK);
    }
    let record = fixture.get("/v1/audit?limit=1", &fixture.admin).await.json();
    let line = &record["items"][0];
    assert_eq!(line["action"], "agents.rebind", "{record:#}");
    assert_eq!(line["who"], second.name);
    assert_eq!(line["token_id"], json!(second.token_id));
    assert_eq!((&line["role"], &line["source"]), (&json!("agent"), &json!("192.0.2.9")));
    assert_eq!(line["subject"], json!(agent));
    assert_eq!(line["detail"]["former_token_id"], json!(first.token_id));
    assert_eq!(line["detail"]["agent"], "one");
    assert!(!record.to_string().contains(&"7".repeat(32)), "never a secret");
    assert_eq!(fixture.base.plain.number(lines).await.ok(), Some(1), "once");
}
