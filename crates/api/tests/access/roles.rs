//! Every route with every role, and with invalid tokens.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::access::Role;
use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::records::Sync;
use tidemill_core::task::{job_id, task_id};
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_store::{Queue as _, ReceiveRequest};
use tidemill_testkit::interface::{at, new_run_id, new_worker, request};
use uuid::Uuid;

use crate::fixture::{AccessFixture, Ask, ask};
use crate::route_list::{self, GRAPH, Row, Things, Who, rows};

impl Row {
    /// Returns the request of a row.
    pub(crate) fn ask(&self, things: &Things) -> Ask {
        let path = format!("{}{}", things.path(self.path), (self.query)(things));
        let body = (self.body)(things);
        let ask = ask(&self.method, &path);
        if body.is_null() { ask } else { ask.body(&body) }
    }
}

/// Creates new items of the project `shop`.
pub(crate) async fn things(fixture: &AccessFixture) -> Things {
    let (token, _) = fixture.make(Role::Viewer, Some("shop"), None).await;
    let mut things = Things {
        project: "shop".to_owned(),
        run: fixture.base.queue(request(), at(0)).await.to_string(),
        worker: Uuid::new_v4().to_string(),
        token: token.token_id.to_string(),
        feed: "shop-gems".to_owned(),
        schedule: "shop-nightly".to_owned(),
        hook: "shop-push".to_owned(),
        letter: format!("shop-letter-{}", Uuid::new_v4()),
        sync: String::new(),
        rule: String::new(),
        graph: String::new(),
        job: String::new(),
        task: String::new(),
        agent: String::new(),
        boot: Uuid::new_v4().to_string(),
    };
    register_agent(fixture, &mut things, &fixture.admin).await;
    made(fixture, Method::PUT, &things.path("/v1/pools/{pool}"), &json!({"size": 1})).await;
    let worker = things.path("/v1/workers/{worker}");
    made(fixture, Method::PUT, &worker, &json!({"name": "w", "host": "h", "pid": 1})).await;
    // Operators drain a worker by its stored id, which depends on its token. This one has no token.
    let stored = WorkerId(things.worker.parse().expect("an id"));
    let unbound = NewWorker { worker_id: stored, ..new_worker("w") };
    fixture.base.store.register_worker(unbound, Some(at(0))).await.expect("a worker is registered");
    made(fixture, Method::PUT, &things.path("/v1/feeds/{feed}"), &route_list::feed(&things)).await;
    made(fixture, Method::PUT, &things.path("/v1/schedules/{schedule}"), &route_list::schedule(&things))
        .await;
    made(fixture, Method::PUT, &things.path("/v1/hooks/{hook}"), &route_list::hook(&things)).await;
    let rule = json!({"markup": 11_000, "feed": things.feed});
    things.rule = made(fixture, Method::POST, "/v1/rules", &rule).await["rule_id"].to_string();
    things.sync = sync(fixture, &things.feed).await.to_string();
    dead_letter(fixture, &things).await;
    things
}

/// Registers an agent with this token, and submits a graph whose only job it gets.
pub(crate) async fn register_agent(fixture: &AccessFixture, things: &mut Things, secret: &str) {
    // Earlier rows may have set flags.
    made(fixture, Method::DELETE, "/v1/reboot", &Value::Null).await;
    let paused = format!("/v1/flags?flag=paused&scope=project:{}", things.project);
    made(fixture, Method::DELETE, &paused, &Value::Null).await;
    things.agent = Uuid::new_v4().to_string();
    let label = format!("of-{}", things.agent);
    let mut register = route_list::registration(&things.boot, "agent");
    register["labels"] = json!([label]);
    let path = things.path("/v1/agents/{agent}");
    let registered = ask(&Method::PUT, &path).body(&register).token(secret).at(&fixture.interface).await;
    assert_eq!(registered.status, StatusCode::OK, "{registered:?}");
    let text = format!("{GRAPH}    labels: [{label}]\n");
    let graph = json!({"project": things.project, "env": "staging", "text": text});
    let submitted = made(fixture, Method::POST, "/v1/graphs", &graph).await;
    submitted["run_id"].as_str().expect("a run").clone_into(&mut things.graph);
    let run: RunId = things.graph.parse().expect("an id");
    things.job = job_id(&run, "press");
    things.task = task_id(&things.job, 1);
    let graphs = Graphs::new(fixture.engine.clone(), GraphSettings::default());
    let mut controller = graphs.controller("table");
    for _ in 0..10 {
        controller.tick().await.expect("the controller acts");
        if graphs.job_record(&things.job).await.expect("a job").tasks > 0 {
            controller.release().await;
            return;
        }
    }
    let why = graphs.why_job(&things.job).await.expect("a reason").sentence();
    panic!("the job of {label} is not assigned: {why}");
}

/// Creates an item as the admin.
async fn made(fixture: &AccessFixture, method: Method, path: &str, body: &Value) -> Value {
    let ask = ask(&method, path).token(&fixture.admin);
    let ask = if body.is_null() { ask } else { ask.body(body) };
    let reply = ask.at(&fixture.interface).await;
    assert!(reply.status.is_success(), "{method} {path}: {reply:?}");
    reply.json()
}

/// Creates a sync with a failed partition and a queued retry.
async fn sync(fixture: &AccessFixture, feed: &str) -> Uuid {
    let queued =
        made(fixture, Method::POST, &format!("/v1/feeds/{feed}/syncs"), &json!({"full": true})).await;
    let (id, run) = (Uuid::new_v4(), queued["run_id"].clone());
    let sync = json!({
        "run_id": id, "ops_run_id": run, "feed": feed, "run_type": "full", "state": "failed", "trace_id": "t",
        "expected_workers": 1, "completed_workers": 0, "failed_workers": 1, "watermark_before": null,
        "watermark_after": null, "updated_from": null, "updated_to": at(0), "page_size": 100,
        "granularity": 100, "predicted": 1, "count_calls": 1, "scan_ms": 1, "heatmap": [], "generation": 0,
        "rules_version": null, "forced": false, "advance": false, "error": null, "started_at": at(0),
        "completed_at": null, "consolidation_started_at": null, "consolidation_completed_at": null,
        "consolidation_processed": 0, "consolidation_errors": 0, "consolidation_total": 0, "deleted": 0,
        "delete_note": null, "updated_at": at(0),
    });
    let sync: Sync = serde_json::from_value(sync).expect("a sync");
    let write = fixture.base.store.write(move |mut tx| {
        let sync = sync.clone();
        Box::pin(async move { tx.insert_sync(&sync, Some(at(0))).await })
    });
    assert!(write.await.expect("a sync is stored"));
    id
}

/// Creates a dead letter of the feed.
async fn dead_letter(fixture: &AccessFixture, things: &Things) {
    let store = &fixture.base.store;
    let message = NewMessage::new(WORK_ITEMS, things.letter.as_str(), things.feed.as_str(), json!({}));
    store.send(vec![message], Some(at(0))).await.expect("a message is sent");
    let taken =
        store.receive(ReceiveRequest::new(WORK_ITEMS, WorkerId(Uuid::new_v4()), 1), Some(at(0))).await;
    for message in taken.expect("a message is there").received {
        let killed = store.kill(message.receipt, DeadReason::Permanent, None, Some(at(0))).await;
        killed.expect("it is a dead letter");
    }
}

/// Returns items that do not exist.
pub(crate) fn nothing() -> Things {
    Things {
        project: "nope".to_owned(),
        run: new_run_id(at(0)).to_string(),
        worker: Uuid::new_v4().to_string(),
        token: Uuid::new_v4().to_string(),
        feed: "nope-gems".to_owned(),
        sync: Uuid::new_v4().to_string(),
        schedule: "nope-nightly".to_owned(),
        hook: "nope-push".to_owned(),
        rule: "987654321".to_owned(),
        letter: "nope-letter".to_owned(),
        graph: new_run_id(at(0)).to_string(),
        job: "nope5nope5nope55".to_owned(),
        task: "nope5nope5nope55-001".to_owned(),
        agent: Uuid::new_v4().to_string(),
        boot: Uuid::new_v4().to_string(),
    }
}

pub(crate) async fn every_route_admits_exactly_its_roles(fixture: &AccessFixture) {
    let shared = things(fixture).await;
    for role in Role::ALL {
        let unbound = fixture.secret(*role, None).await;
        for row in rows() {
            // A token of role agent works for one agent.
            let is_agent = row.is_agents() && *role == Role::Agent;
            let secret = if is_agent { fixture.secret(*role, None).await } else { unbound.clone() };
            // A refused caller changes nothing; an admitted one may.
            let refused = matches!(row.who, Who::Roles(roles) if !roles.contains(role));
            let mut things = if refused { shared.clone() } else { things(fixture).await };
            if !refused && row.is_agents() {
                // An agent is bound to the token of its registration.
                register_agent(fixture, &mut things, &secret).await;
            }
            let reply = row.ask(&things).token(&secret).at(&fixture.interface).await;
            let request = format!("{role}: {} {}: {reply:?}", row.method, row.path);
            match row.who {
                Who::Roles(roles) if !roles.contains(role) => {
                    assert_eq!(
                        (reply.status, reply.code().as_str()),
                        (StatusCode::FORBIDDEN, "forbidden"),
                        "{request}"
                    );
                }
                Who::Roles(_) => {
                    let refused =
                        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS];
                    assert!(!refused.contains(&reply.status) && !reply.status.is_server_error(), "{request}");
                    // The item exists and the request is valid, otherwise the row would prove nothing.
                    let missed = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND];
                    assert!(!missed.contains(&reply.status), "{request}");
                }
                Who::Everybody(_) => assert_ne!(reply.status, StatusCode::FORBIDDEN, "{request}"),
            }
        }
    }
}

pub(crate) async fn no_route_admits_missing_expired_revoked_or_malformed_tokens(fixture: &AccessFixture) {
    let (_, expired) = fixture.make(Role::Admin, None, Some(10)).await;
    let (revoked, revoked_secret) = fixture.make(Role::Admin, None, None).await;
    fixture.engine.revoke_token(revoked.token_id, None, "ann").await.expect("it is revoked");
    fixture.wait(10);
    let unknown = format!("tm_{}", "0".repeat(64));
    let bearer = |secret: &str| Some(format!("Bearer {secret}"));
    let callers = [
        (None, "unauthenticated"),
        (bearer(expired.reveal()), "token_expired"),
        (bearer(revoked_secret.reveal()), "token_revoked"),
        (bearer(&unknown), "unauthenticated"),
        (bearer("garbage"), "unauthenticated"),
        (bearer(&fixture.admin[..20]), "unauthenticated"),
        (Some(format!("Basic {}", fixture.admin)), "unauthenticated"),
        (Some(fixture.admin.clone()), "unauthenticated"),
    ];
    let things = things(fixture).await;
    for row in rows() {
        for (shown, code) in &callers {
            let mut ask = row.ask(&things);
            if let Some(shown) = shown {
                ask = ask.header("authorization", shown);
            }
            let reply = ask.at(&fixture.interface).await;
            let request = format!("{} {} with {code}: {reply:?}", row.method, row.path);
            match row.who {
                Who::Roles(_) => {
                    assert_eq!(
                        (reply.status, reply.code().as_str()),
                        (StatusCode::UNAUTHORIZED, *code),
                        "{request}"
                    );
                    assert_eq!(reply.header("www-authenticate"), "Bearer", "{request}");
                }
                // Open routes ignore tokens; sign-in checks the token in its body, hooks check a signature.
                Who::Everybody(None) => assert_eq!(reply.status, StatusCode::OK, "{request}"),
                Who::Everybody(Some(code)) => assert_eq!(reply.code(), code, "{request}"),
            }
        }
    }
    // Unknown tokens of every kind get the same response.
    let response = async |shown: &str| {
        ask(&http::Method::GET, "/v1/info").token(shown).at(&fixture.interface).await.body
    };
    assert_eq!(response(&unknown).await, response("garbage").await);
}
