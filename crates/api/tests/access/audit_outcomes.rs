//! Outcomes in the audit log: every privileged change is recorded exactly once, and no refusal as a change.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::RunId;
use tidemill_core::access::{NewAuditRecord, Role};
use tidemill_core::audit::ActorRole;
use tidemill_core::schedule::Schedule;
use tidemill_core::signature::sign;
use tidemill_store::ListPage;
use tidemill_testkit::interface::{at, request};
use uuid::Uuid;

use crate::fixture::{AccessFixture, Reply, ask};
use crate::roles::{nothing, things};
use crate::route_list::{Row, Things, Who, rows};

/// Reports of workers and agents: they are recorded as events, heartbeats and task results, not in the audit log.
const REPORTS: [&str; 18] = [
    "POST /v1/runs/{run}/start",
    "POST /v1/runs/{run}/events",
    "POST /v1/runs/{run}/heartbeat",
    "POST /v1/runs/{run}/finish",
    "POST /v1/runs/{run}/artifacts",
    "POST /v1/finishes",
    "POST /v1/claims",
    "POST /v1/claims/left",
    "PUT /v1/workers/{worker}",
    "POST /v1/workers/{worker}/beat",
    "DELETE /v1/workers/{worker}",
    "PUT /v1/agents/{agent}",
    "POST /v1/agents/{agent}/beat",
    "POST /v1/agents/{agent}/poll",
    "POST /v1/agents/{agent}/kept",
    "POST /v1/agents/{agent}/probe",
    "DELETE /v1/agents/{agent}",
    "POST /v1/tasks/{task}/stage",
];
const TASK_REPORTS: [&str; 2] = ["POST /v1/tasks/{task}/result", "POST /v1/tasks/{task}/logs"];
/// Calls that change nothing although they are a POST, or can find nothing to change.
pub(crate) const WITHOUT_A_CHANGE: [&str; 5] = [
    "POST /v1/graphs/check",
    "POST /v1/rules/test",
    "POST /v1/feeds/{feed}/plan",
    "POST /v1/feeds/{feed}/reprice",
    // The caller has a token and no session.
    "DELETE /v1/session",
];
/// Calls that change nothing when they are repeated.
const IDEMPOTENT: [&str; 21] = [
    "POST /v1/runs/{run}/cancel",
    "POST /v1/workers/{worker}/drain",
    "POST /v1/agents/{agent}/drain",
    "POST /v1/graphs/{run}/cancel",
    "PUT /v1/pools/{pool}",
    "POST /v1/reboot",
    "DELETE /v1/reboot",
    "PUT /v1/projects/{project}",
    "POST /v1/projects/{project}/pause",
    "POST /v1/projects/{project}/resume",
    "PUT /v1/flags",
    "DELETE /v1/flags",
    "PUT /v1/schedules/{schedule}",
    "POST /v1/schedules/{schedule}/pause",
    "POST /v1/schedules/{schedule}/resume",
    "PUT /v1/feeds/{feed}",
    "POST /v1/feeds/{feed}/table",
    "POST /v1/feeds/{feed}/pause",
    "POST /v1/feeds/{feed}/resume",
    "DELETE /v1/tokens/{token}",
    "PUT /v1/hooks/{hook}",
];

fn name(row: &Row) -> String {
    format!("{} {}", row.method, row.path)
}

/// Returns the audited routes: all that change something and need a token, except reports.
fn audited() -> Vec<Row> {
    let mut reports: BTreeSet<&str> = REPORTS.into_iter().chain(TASK_REPORTS).collect();
    let mut audited = rows();
    audited.retain(|row| {
        let is_change = row.method != Method::GET && matches!(row.who, Who::Roles(_));
        is_change && !reports.remove(name(row).as_str())
    });
    assert!(reports.is_empty(), "these routes do not exist: {reports:?}");
    audited
}

/// Returns the entries after an id, oldest first.
async fn entries(fixture: &AccessFixture, after: i64) -> Vec<Value> {
    let page = ListPage { project: None, before: None, limit: 1_000 };
    let mut found = fixture.base.store.audit(page).await.expect("the log is read");
    found.retain(|entry| entry.audit_id > after);
    found.reverse();
    found.into_iter().map(|entry| serde_json::to_value(entry).expect("JSON")).collect()
}

async fn newest(fixture: &AccessFixture) -> i64 {
    let text = "SELECT coalesce(max(audit_id), 0) FROM {ops}.audit";
    fixture.base.plain.number(text).await.expect("the log is read")
}

/// Returns whether a cancel found that its object has ended.
pub(crate) fn is_unchanged(reply: &Reply) -> bool {
    reply.status.is_success() && reply.body.contains("\"cancelled\":false")
}

/// Makes the items such that the request of a row changes something.
pub(crate) async fn prepare(fixture: &AccessFixture, name: &str, theirs: &mut Things) {
    let empty = json!({});
    let (method, path, body) = match name {
        "POST /v1/runs/{run}/retry" => (Method::POST, "/v1/runs/{run}/cancel", empty),
        "DELETE /v1/reboot" => (Method::POST, "/v1/reboot", empty),
        "POST /v1/projects/{project}/resume" => (Method::POST, "/v1/projects/{project}/pause", empty),
        "DELETE /v1/flags" | "POST /v1/feeds/{feed}/resume" => {
            (Method::POST, "/v1/feeds/{feed}/pause", empty)
        }
        "POST /v1/schedules/{schedule}/resume" => (Method::POST, "/v1/schedules/{schedule}/pause", empty),
        "PUT /v1/schedules/{schedule}" => (Method::DELETE, "/v1/schedules/{schedule}", Value::Null),
        "PUT /v1/hooks/{hook}" => (Method::DELETE, "/v1/hooks/{hook}", Value::Null),
        "PUT /v1/feeds/{feed}" => {
            let mut other = crate::route_list::feed(theirs);
            other["username"] = json!("v");
            (Method::PUT, "/v1/feeds/{feed}", other)
        }
        "POST /v1/feeds/{feed}/table" => {
            theirs.feed.push_str("-orders");
            (Method::PUT, "/v1/feeds/{feed}", crate::route_list::definition(theirs))
        }
        "PUT /v1/projects/{project}" => {
            "new".clone_into(&mut theirs.project);
            return;
        }
        _ => return,
    };
    let ask = ask(&method, &theirs.path(path)).body(&body).token(&fixture.admin);
    let prepared = ask.at(&fixture.interface).await;
    assert!(prepared.status.is_success(), "{name}: {prepared:?}");
}

pub(crate) async fn every_change_is_recorded_once_with_actor_and_source(fixture: &AccessFixture) {
    let (admin, secret) = fixture.make(Role::Admin, None, None).await;
    let mut changed = 0;
    let mut idempotent: BTreeSet<&str> = IDEMPOTENT.into_iter().collect();
    for row in audited() {
        let name = name(&row);
        let mut theirs = things(fixture).await;
        prepare(fixture, &name, &mut theirs).await;
        let before = newest(fixture).await;
        let ask = row.ask(&theirs).token(secret.reveal()).from([192, 0, 2, 7], false);
        let reply = ask.at(&fixture.interface).await;
        let added = entries(fixture, before).await;
        let is_without = WITHOUT_A_CHANGE.contains(&name.as_str()) || is_unchanged(&reply);
        if reply.status.is_success() && is_without {
            assert!(added.is_empty(), "{name} changed nothing: {added:?}");
            continue;
        }
        assert_eq!(added.len(), 1, "{name}: {reply:?} {added:?}");
        let entry = &added[0];
        let outcome = if reply.status.is_success() { "applied" } else { "refused" };
        assert_eq!(entry["outcome"], outcome, "{name}: {reply:?}");
        assert_eq!((&entry["who"], &entry["role"]), (&json!(admin.name), &json!("admin")), "{name}");
        assert_eq!((&entry["token_id"], &entry["source"]), (&json!(admin.token_id), &json!("192.0.2.7")));
        assert_eq!(entry["detail"]["path"], row.path, "{name}");
        changed += usize::from(reply.status.is_success());
        if idempotent.remove(name.as_str()) {
            let before = newest(fixture).await;
            let again = row.ask(&theirs).token(secret.reveal()).at(&fixture.interface).await;
            assert!(reply.status.is_success() && again.status.is_success(), "{name}: {reply:?} {again:?}");
            let added = entries(fixture, before).await;
            assert!(added.is_empty(), "{name}: a repeated call changes nothing: {added:?}");
        }
    }
    assert!(changed > 25 && idempotent.is_empty(), "{changed} {idempotent:?}");
}

pub(crate) async fn refused_changes_are_never_recorded_as_applied(fixture: &AccessFixture) {
    let (viewer, worker) =
        (fixture.secret(Role::Viewer, None).await, fixture.secret(Role::Worker, None).await);
    let other = fixture.secret(Role::Admin, Some("bank")).await;
    let (theirs, unknown) = (things(fixture).await, nothing());
    let mut statuses = BTreeSet::new();
    for row in audited() {
        let name = name(&row);
        let callers = [(&viewer, &theirs), (&worker, &theirs), (&other, &theirs), (&fixture.admin, &unknown)];
        for (secret, items) in callers {
            let before = newest(fixture).await;
            let reply = row.ask(items).token(secret).at(&fixture.interface).await;
            let added = entries(fixture, before).await;
            // The window of recorded refusals is a minute.
            fixture.wait(3);
            if !reply.status.is_client_error() {
                assert!(reply.status.is_success(), "{name}: {reply:?}");
                continue;
            }
            statuses.insert(reply.status.as_u16());
            assert_eq!(added.len(), 1, "{name}: {reply:?} {added:?}");
            assert_eq!(added[0]["outcome"], "refused", "{name}: {reply:?}");
            assert_eq!(added[0]["detail"]["status"], reply.status.as_u16(), "{name}");
        }
    }
    for status in [403, 404] {
        assert!(statuses.contains(&status), "{statuses:?}");
    }
    // A caller that is refused very often fills neither the log nor the disk.
    let before = newest(fixture).await;
    fixture.wait(60);
    for _ in 0..40 {
        assert_eq!(fixture.post("/v1/runs", &viewer, &json!({})).await.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(entries(fixture, before).await.len(), 30);
    fixture.wait(60);
    fixture.post("/v1/runs", &viewer, &json!({})).await;
    let last = entries(fixture, before).await.pop().expect("an entry");
    assert_eq!(last["detail"]["not_recorded_before"], 10, "{last}");
}

/// The statement finds no row to change, commits, and the caller gets a conflict.
pub(crate) async fn hook_name_of_another_project_is_recorded_as_refused(fixture: &AccessFixture) {
    let put = async |project: &str| {
        let hook = json!({"project": project, "kind": "generic", "secret_env": "CARGO_PKG_NAME"});
        let ask = ask(&Method::PUT, "/v1/hooks/push").body(&hook).token(&fixture.admin);
        ask.at(&fixture.interface).await
    };
    assert_eq!(put("shop").await.status, StatusCode::OK);
    let before = newest(fixture).await;
    let refused = put("bank").await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{refused:?}");
    let added = entries(fixture, before).await;
    assert_eq!(added.len(), 1, "{added:?}");
    assert_eq!(added[0]["outcome"], "refused", "{added:?}");
}

pub(crate) async fn refused_reports_are_recorded_once_per_route_and_minute(fixture: &AccessFixture) {
    let (token, secret) = fixture.make(Role::Worker, Some("bank"), None).await;
    let run = fixture.base.queue(request(), at(0)).await;
    let report = json!({"worker": "w", "epoch": 1});
    let before = newest(fixture).await;
    for _ in 0..3 {
        for call in ["start", "heartbeat"] {
            let path = format!("/v1/runs/{run}/{call}");
            let ask = ask(&Method::POST, &path).body(&report).token(secret.reveal());
            let reply = ask.from([192, 0, 2, 7], false).at(&fixture.interface).await;
            assert_eq!(reply.status, StatusCode::NOT_FOUND, "{reply:?}");
        }
    }
    let added = entries(fixture, before).await;
    let actions: Vec<_> = added.iter().map(|entry| entry["action"].as_str().unwrap_or_default()).collect();
    assert_eq!(actions, ["runs.start", "runs.heartbeat"], "{added:?}");
    for entry in &added {
        assert_eq!((&entry["outcome"], &entry["detail"]["status"]), (&json!("refused"), &json!(404)));
        assert_eq!((&entry["subject"], &entry["source"]), (&json!(run.as_str()), &json!("192.0.2.7")));
        assert_eq!((&entry["token_id"], &entry["role"]), (&json!(token.token_id), &json!("worker")));
    }
    fixture.wait(60);
    let before = newest(fixture).await;
    fixture.post(&format!("/v1/runs/{run}/start"), secret.reveal(), &report).await;
    let added = entries(fixture, before).await;
    assert_eq!(added.len(), 1, "{added:?}");
    assert_eq!(added[0]["detail"]["not_recorded_before"], 2, "{added:?}");

    // A token of a machine is known, but it cannot sign in. An unknown token has no actor.
    let before = newest(fixture).await;
    for (token, status) in [(secret.reveal(), 403), ("tm_none", 401)] {
        let reply =
            ask(&Method::POST, "/v1/session").body(&json!({"token": token})).at(&fixture.interface).await;
        assert_eq!(reply.status.as_u16(), status, "{reply:?}");
    }
    let added = entries(fixture, before).await;
    assert_eq!(added.len(), 1, "{added:?}");
    assert_eq!((&added[0]["action"], &added[0]["outcome"]), (&json!("session.create"), &json!("refused")));
}

/// Queues, claims and starts a run with this token.
async fn started(fixture: &AccessFixture, secret: &str) -> (RunId, Value) {
    let run = fixture.base.queue(request(), at(0)).await;
    let claimed = fixture.post("/v1/claims", secret, &json!({"worker": "w"})).await.json();
    let claim = &claimed["runs"][0];
    assert_eq!(claim["run_id"], run.as_str(), "{claimed}");
    let hold = json!({"worker": "w", "epoch": claim["epoch"]});
    let start = fixture.post(&format!("/v1/runs/{run}/start"), secret, &hold).await;
    assert_eq!(start.status, StatusCode::OK, "{start:?}");
    (run, claim["epoch"].clone())
}

pub(crate) async fn cancelling_through_finish_is_audited(fixture: &AccessFixture) {
    // A person that claims a run and reports it as cancelled has cancelled it.
    let (run, epoch) = started(fixture, &fixture.admin).await;
    let before = newest(fixture).await;
    let body = json!({"status": "cancelled", "worker": "w", "epoch": epoch});
    let finished = fixture.post(&format!("/v1/runs/{run}/finish"), &fixture.admin, &body).await;
    assert_eq!(finished.status, StatusCode::OK, "{finished:?}");
    let added = entries(fixture, before).await;
    assert_eq!(added.len(), 1, "{added:?}");
    let entry = &added[0];
    assert_eq!((&entry["action"], &entry["outcome"]), (&json!("runs.finish"), &json!("applied")), "{entry}");
    assert_eq!((&entry["subject"], &entry["project_id"]), (&json!(run.as_str()), &json!("shop")));
    assert_eq!(entry["detail"]["run_status"], "cancelled");

    // Ending a run without its lease is recorded if it is done at all, by any role.
    let worker = fixture.secret(Role::Worker, None).await;
    for path in ["/v1/runs/{run}/finish", "/v1/finishes"] {
        let (run, _) = started(fixture, &worker).await;
        let before = newest(fixture).await;
        let end = json!({"status": "cancelled"});
        let ends = json!({"ends": [{"run_id": run.as_str(), "status": "cancelled"}]});
        let body = if path == "/v1/finishes" { ends } else { end };
        fixture.post(&path.replace("{run}", run.as_str()), &worker, &body).await;
        let state = fixture.engine.run(&run).await.expect("the run").status;
        let applied: Vec<_> = entries(fixture, before)
            .await
            .into_iter()
            .filter(|entry| entry["outcome"] == "applied")
            .collect();
        assert_eq!(applied.len(), usize::from(state.is_terminal()), "{path}: {state} {applied:?}");
        assert!(applied.iter().all(|entry| entry["role"] == "worker" && entry["subject"] == run.as_str()));
    }
}

pub(crate) async fn hook_delivery_and_schedule_fire_are_audited(fixture: &AccessFixture) {
    let hook = json!({"project": "shop", "kind": "generic", "secret_env": "CARGO_PKG_NAME"});
    let put = ask(&Method::PUT, "/v1/hooks/shop-push").body(&hook).token(&fixture.admin);
    assert_eq!(put.at(&fixture.interface).await.status, StatusCode::OK);
    let before = newest(fixture).await;
    let (body, time) = (json!({"env": "staging"}), at(0).timestamp().to_string());
    let secret = std::env::var("CARGO_PKG_NAME").expect("cargo sets it");
    let signature = sign(secret.as_bytes(), &[time.as_bytes(), b".", body.to_string().as_bytes()]);
    for expected in [1, 1] {
        let deliver = ask(&Method::POST, "/v1/hooks/shop-push")
            .body(&body)
            .header("x-tidemill-timestamp", &time)
            .header("x-tidemill-signature", &format!("v1={signature}"))
            .from([192, 0, 2, 8], false);
        let delivered = deliver.at(&fixture.interface).await;
        assert!(delivered.status.is_success(), "{delivered:?}");
        let added = entries(fixture, before).await;
        assert_eq!(added.len(), expected, "a repeated delivery queues nothing: {added:?}");
        let entry = &added[0];
        assert_eq!((&entry["who"], &entry["role"]), (&json!("shop-push"), &json!("hook")), "{entry}");
        assert_eq!((&entry["action"], &entry["source"]), (&json!("hooks.deliver"), &json!("192.0.2.8")));
        assert_eq!((&entry["subject"], &entry["project_id"]), (&delivered.json()["run_id"], &json!("shop")));
    }

    let schedule = json!({"cron": "0 3 * * *", "request": {"project": "shop", "env": "staging"}});
    let put = ask(&Method::PUT, "/v1/schedules/nightly").body(&schedule).token(&fixture.admin);
    let stored: Schedule =
        serde_json::from_value(put.at(&fixture.interface).await.json()).expect("a schedule");
    let before = newest(fixture).await;
    fixture.wait((stored.next_fire_at.expect("a time") - at(0)).num_seconds() + 1);
    let fired = fixture.engine.fire_due().await.expect("it fires");
    let runs: Vec<Value> =
        fired.iter().filter_map(|fire| fire.run_id.as_ref()).map(|run| json!(run)).collect();
    assert!(!runs.is_empty());
    let added = entries(fixture, before).await;
    assert_eq!(added.iter().map(|entry| entry["subject"].clone()).collect::<Vec<_>>(), runs);
    let entry = &added[0];
    assert_eq!((&entry["who"], &entry["role"]), (&json!("nightly"), &json!("schedule")), "{entry}");
    assert_eq!((&entry["action"], &entry["project_id"]), (&json!("schedules.fire"), &json!("shop")));
}

/// A response to a commit can be lost; the step is then repeated with the same entry.
pub(crate) async fn retried_call_has_one_entry(fixture: &AccessFixture) {
    let before = newest(fixture).await;
    let entry = NewAuditRecord::of(Uuid::new_v4(), "ann", ActorRole::Admin, "flags.put");
    for _ in 0..2 {
        fixture.base.store.add_audit(entry.clone(), Some(at(0))).await.expect("the entry is accepted");
    }
    assert_eq!(entries(fixture, before).await.len(), 1);
}
