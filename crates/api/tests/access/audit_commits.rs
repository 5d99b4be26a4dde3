//! A change and its audit entry are committed together, or neither is.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::access::Role;
use tidemill_testkit::interface::{at, request};

use crate::audit_outcomes::{WITHOUT_A_CHANGE, is_unchanged, prepare};
use crate::fixture::{AccessFixture, Reply, ask, post};
use crate::roles::things;
use crate::route_list::{GRAPH, Row, Who, rows};

/// Changes outside the database: a test message.
const WITHOUT_A_STEP: [&str; 1] = ["POST /v1/alerts/test"];

fn name(row: &Row) -> String {
    format!("{} {}", row.method, row.path)
}

/// Returns the routes by which people change things.
fn changes() -> Vec<Row> {
    let by_people = |row: &Row| match row.who {
        Who::Everybody(_) => false,
        Who::Roles(roles) => roles.contains(&Role::Operator) || roles == [Role::Admin],
    };
    rows().into_iter().filter(|row| row.method != Method::GET && by_people(row)).collect()
}

/// Returns every row of the database, except the last use of tokens.
async fn contents(fixture: &AccessFixture) -> BTreeSet<String> {
    let plain = &fixture.base.plain;
    let tables = if fixture.base.store.is_postgres() {
        "SELECT table_schema || '.' || table_name FROM information_schema.tables \
          WHERE table_schema IN ('ops', 'public') AND table_type = 'BASE TABLE'"
    } else {
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    };
    let mut found = BTreeSet::new();
    for table in plain.texts(tables).await.expect("the tables are listed") {
        let text = if fixture.base.store.is_postgres() {
            format!("SELECT CAST(to_jsonb(t) - 'last_used_at' AS text) FROM {table} t")
        } else {
            let columns = format!(
                "SELECT group_concat('quote(\"' || name || '\")', ' || '','' || ') \
                   FROM pragma_table_info('{table}') WHERE name <> 'last_used_at'"
            );
            let columns = plain.texts(&columns).await.expect("the columns are listed").remove(0);
            format!("SELECT {columns} FROM {table}")
        };
        let rows = plain.texts(&text).await.expect("the rows are read");
        found.extend(rows.into_iter().map(|row| format!("{table}: {row}")));
    }
    found
}

async fn lines(fixture: &AccessFixture) -> i64 {
    let text = "SELECT count(*) FROM {ops}.audit WHERE outcome = 'applied'";
    fixture.base.plain.number(text).await.expect("lines are counted")
}

/// Checks that the reply to an internal error reveals no details.
fn tells_nothing(reply: &Reply) {
    if !reply.status.is_server_error() {
        return;
    }
    assert_eq!(reply.code(), "internal", "{reply:?}");
    let said = reply.body.to_lowercase();
    for inside in ["audit", "insert", "select", "relation", "table", "sql", "column", "ops."] {
        assert!(!said.contains(inside), "{inside}: {reply:?}");
    }
}

/// Requests every change twice: without the audit table, where it must fail and leave nothing, and with it.
pub(crate) async fn change_without_audit_entry_is_rolled_back(fixture: &AccessFixture) {
    let plain = &fixture.base.plain;
    let (away, back) =
        ("ALTER TABLE {ops}.audit RENAME TO audit_away", "ALTER TABLE {ops}.audit_away RENAME TO audit");
    let mut done = BTreeSet::new();
    for row in changes() {
        let name = name(&row);
        let mut theirs = things(fixture).await;
        prepare(fixture, &name, &mut theirs).await;
        let is_step = !WITHOUT_A_STEP.contains(&name.as_str()) && !WITHOUT_A_CHANGE.contains(&name.as_str());
        let mut refused = None;
        if is_step {
            plain.execute(away).await.expect("the record is out of reach");
            let before = contents(fixture).await;
            let reply = row.ask(&theirs).token(&fixture.admin).at(&fixture.interface).await;
            let after = contents(fixture).await;
            plain.execute(back).await.expect("the record is back");
            tells_nothing(&reply);
            let changed: Vec<_> = after.symmetric_difference(&before).collect();
            assert!(changed.is_empty(), "{name} is not on record, and left: {reply:?} {changed:?}");
            refused = Some(reply.status == StatusCode::INTERNAL_SERVER_ERROR);
        }
        let before = lines(fixture).await;
        let reply = row.ask(&theirs).token(&fixture.admin).at(&fixture.interface).await;
        let added = lines(fixture).await - before;
        let is_unchanged = WITHOUT_A_CHANGE.contains(&name.as_str()) || is_unchanged(&reply);
        let is_change = reply.status.is_success() && !is_unchanged;
        assert_eq!(added, i64::from(is_change), "{name}: {reply:?}");
        if let Some(refused) = refused {
            assert_eq!(refused, is_change, "{name}: a change is refused without its record: {reply:?}");
        }
        if is_step && is_change {
            done.insert(name);
        }
    }
    assert!(done.len() > 30, "{done:?}");
    plain.execute(away).await.expect("the record is out of reach");
    let sign_in = post("/v1/session", &json!({"token": fixture.admin})).at(&fixture.interface).await;
    assert_eq!(sign_in.status, StatusCode::INTERNAL_SERVER_ERROR, "{sign_in:?}");
    tells_nothing(&sign_in);
    let sessions = plain.number("SELECT count(*) FROM {ops}.sessions").await;
    assert_eq!(sessions.ok(), Some(0), "somebody signed in, and it is not on record");
    plain.execute(back).await.expect("the record is back");
}

pub(crate) async fn repeated_request_is_audited_once(fixture: &AccessFixture) {
    let queue = || {
        let body = json!({"project": "shop", "env": "staging"});
        post("/v1/runs", &body).header("idempotency-key", "once").token(&fixture.admin)
    };
    assert_eq!(queue().at(&fixture.interface).await.status, StatusCode::CREATED);
    let again = queue().at(&fixture.interface).await;
    assert_eq!((again.status, lines(fixture).await), (StatusCode::OK, 2), "the first token, and the run");
    let id = again.json()["run_id"].as_str().expect("a run").to_owned();
    for _ in 0..2 {
        let cancel = ask(&Method::POST, &format!("/v1/runs/{id}/cancel")).body(&json!({}));
        assert_eq!(cancel.token(&fixture.admin).at(&fixture.interface).await.status, StatusCode::OK);
    }
    assert_eq!(lines(fixture).await, 3, "what has ended is not cancelled again");
}

/// A call that finds its change already made adds no entry; a repeated `fail` that queues a successor does.
pub(crate) async fn repeated_operation_on_a_run_is_audited_once(fixture: &AccessFixture) {
    let worker = fixture.secret(Role::Worker, None).await;
    let start = async || {
        let run = fixture.base.queue(request(), at(0)).await;
        let claims = fixture.post("/v1/claims", &worker, &json!({"worker": "w", "limit": 10})).await;
        assert_eq!(claims.status, StatusCode::OK, "{claims:?}");
        let hold = json!({"worker": "w", "epoch": 1});
        let started = fixture.post(&format!("/v1/runs/{run}/start"), &worker, &hold).await;
        assert_eq!(started.status, StatusCode::OK, "{started:?}");
        run
    };
    let change = async |path: &str, body: Value| {
        let before = lines(fixture).await;
        let reply = fixture.post(path, &fixture.admin, &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {reply:?}");
        lines(fixture).await - before
    };
    let run = start().await;
    let cancel = format!("/v1/runs/{run}/cancel");
    assert_eq!((change(&cancel, json!({})).await, change(&cancel, json!({})).await), (1, 0), "held");
    let end = json!({"worker": "w", "epoch": 1, "status": "cancelled"});
    let ended = fixture.post(&format!("/v1/runs/{run}/finish"), &worker, &end).await;
    assert_eq!(ended.status, StatusCode::OK, "{ended:?}");
    let retry = format!("/v1/runs/{run}/retry");
    assert_eq!((change(&retry, json!({})).await, change(&retry, json!({})).await), (1, 0), "retry");

    let graph = json!({"project": "shop", "env": "staging", "text": GRAPH});
    let graph = fixture.post("/v1/graphs", &fixture.admin, &graph).await.json();
    let graph = graph["run_id"].as_str().expect("a run").to_owned();
    let cancel = format!("/v1/graphs/{graph}/cancel");
    assert_eq!((change(&cancel, json!({})).await, change(&cancel, json!({})).await), (1, 0), "graph");

    let run = start().await;
    fixture.wait(3_600);
    fixture.engine.sweep(100, 10.0).await.expect("the run is marked as stalled");
    let fail = format!("/v1/runs/{run}/fail");
    for (retry, added) in [(false, 1), (false, 0), (true, 1), (true, 0)] {
        assert_eq!(change(&fail, json!({"retry": retry})).await, added, "fail, retry: {retry}");
    }
}
