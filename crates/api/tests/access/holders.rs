//! Credentials belong to one holder: each test steals one kind, and shows what the thief can do with it elsewhere.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::access::Role;
use tidemill_core::ids::derived_uuid;
use tidemill_core::limits::{AGENT_SECRET_SECS, AGENT_SILENT_SECS, SESSION_SECS};
use tidemill_core::sync::SYNC_LABEL;
use tidemill_testkit::interface::{at, request};
use uuid::Uuid;

use crate::fixture::{AccessFixture, Reply, ask, get, post};
use crate::roles::{register_agent, things};
use crate::route_list::{rows, secret_of};

/// Claims a run and returns its path and its epoch.
async fn claim(fixture: &AccessFixture, secret: &str) -> (String, Value) {
    let run = fixture.base.queue(request(), at(0)).await;
    let claimed = fixture.post("/v1/claims", secret, &json!({"worker": "w"})).await.json();
    assert_eq!(claimed["runs"][0]["run_id"], json!(run), "{claimed}");
    (format!("/v1/runs/{run}"), claimed["runs"][0]["epoch"].clone())
}

/// Returns every report of a worker on a run: the path and the body without worker and epoch.
fn reports(run: &str) -> Vec<(String, Value)> {
    vec![
        (format!("{run}/start"), json!({})),
        (format!("{run}/events"), json!({"events": [{"level": "info", "message": "m", "key": "k"}]})),
        (format!("{run}/heartbeat"), json!({})),
        (format!("{run}/artifacts"), json!({"artifact_type": "log", "url": "https://x"})),
        (format!("{run}/finish"), json!({"status": "cancelled"})),
        (format!("{run}/finish"), json!({"status": "success"})),
    ]
}

/// Adds the claim to a report.
fn with_claim(report: &Value, worker: &str, epoch: &Value) -> Value {
    let mut report = report.clone();
    report["worker"] = json!(worker);
    report["epoch"] = epoch.clone();
    report
}

fn refusal(reply: &Reply) -> (u16, String) {
    (reply.status.as_u16(), reply.code())
}

/// Asserts that a lease belongs to another token, with the way out.
fn assert_wrong_holder(reply: &Reply) {
    assert_eq!(refusal(reply), (403, "wrong_holder".to_owned()), "{reply:?}");
    assert!(reply.json()["hint"].as_str().is_some_and(|hint| hint.contains("tidemill ")), "{reply:?}");
}

/// A stolen worker token of the same project, and even an admin's, cannot touch the lease of another token.
pub(crate) async fn lease_belongs_to_the_token_that_claimed_it(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Worker, Some("shop")).await;
    let (run, epoch) = claim(fixture, &own).await;
    let before = fixture.get(&run, &fixture.admin).await.json();
    let thieves = [
        fixture.secret(Role::Worker, Some("shop")).await,
        fixture.secret(Role::Worker, None).await,
        fixture.secret(Role::Admin, Some("shop")).await,
        fixture.admin.clone(),
    ];
    for thief in &thieves {
        for (path, report) in reports(&run) {
            let report = with_claim(&report, "w", &epoch);
            assert_wrong_holder(&fixture.post(&path, thief, &report).await);
        }
        let id = run.trim_start_matches("/v1/runs/");
        let ends = json!({"worker": "w", "ends": [{"run_id": id, "status": "failed", "epoch": epoch}]});
        assert_wrong_holder(&fixture.post("/v1/finishes", thief, &ends).await);
    }
    assert_eq!(fixture.get(&run, &fixture.admin).await.json(), before, "nothing was changed");
    for (path, report) in reports(&run).iter().filter(|(_, report)| report["status"] != "cancelled") {
        let reply = fixture.post(path, &own, &with_claim(report, "w", &epoch)).await;
        assert!(reply.status.is_success(), "{path}: {reply:?}");
    }
    let ended = fixture.get(&run, &fixture.admin).await.json();
    assert_eq!(ended["status"], json!("success"));
    // Also not after the end, when a repeated report is a duplicate.
    let (path, report) = &reports(&run)[5];
    assert_wrong_holder(&fixture.post(path, &thieves[0], &with_claim(report, "w", &epoch)).await);
}

/// A run that SQL claimed has no token, so no token reports on it.
pub(crate) async fn lease_without_a_token_is_not_a_tokens(fixture: &AccessFixture) {
    let claimed = fixture.base.claimed(request(), "w", at(0)).await;
    let finish = json!({"status": "success", "worker": "w", "epoch": claimed.epoch});
    let path = format!("/v1/runs/{}/finish", claimed.run_id);
    assert_wrong_holder(&fixture.post(&path, &fixture.admin, &finish).await);
}

/// Another worker process or epoch of the same token is stale. It cannot cancel either: that is an operator's right.
pub(crate) async fn report_of_another_claim_is_stale(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Worker, Some("shop")).await;
    let (run, epoch) = claim(fixture, &own).await;
    for (worker, epoch) in [("other", epoch.clone()), ("w", json!(7))] {
        for (path, report) in reports(&run) {
            let reply = fixture.post(&path, &own, &with_claim(&report, worker, &epoch)).await;
            assert_eq!(refusal(&reply), (409, "stale".to_owned()), "{path}: {reply:?}");
        }
    }
    // A queued run has no holder at all.
    let queued = fixture.base.queue(request(), at(0)).await;
    let finish = json!({"status": "cancelled", "worker": "w", "epoch": 0});
    let reply = fixture.post(&format!("/v1/runs/{queued}/finish"), &own, &finish).await;
    assert_eq!(refusal(&reply), (409, "stale".to_owned()), "{reply:?}");
    assert_eq!(fixture.get(&run, &fixture.admin).await.json()["status"], json!("claimed"));
}

pub(crate) async fn report_requires_worker_and_epoch(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Worker, Some("shop")).await;
    let (run, epoch) = claim(fixture, &own).await;
    for (path, report) in reports(&run) {
        for missing in ["worker", "epoch"] {
            let mut report = with_claim(&report, "w", &epoch);
            report.as_object_mut().expect("an object").remove(missing);
            let reply = fixture.post(&path, &own, &report).await;
            assert_eq!(refusal(&reply), (422, "invalid".to_owned()), "{path}: {reply:?}");
            assert_eq!(reply.json()["faults"][0]["field"], json!(missing), "{path}: {reply:?}");
        }
    }
    assert_eq!(fixture.get(&run, &fixture.admin).await.json()["status"], json!("claimed"));
}

/// The server itself reports on graph and sync runs. Neither workers nor admins do so over HTTP.
pub(crate) async fn graph_and_sync_runs_accept_no_report(fixture: &AccessFixture) {
    let things = things(fixture).await;
    let sync = fixture
        .post(&things.path("/v1/feeds/{feed}/syncs"), &fixture.admin, &json!({"full": true}))
        .await
        .json();
    let sync = sync["run_id"].as_str().expect("a run").to_owned();
    let worker = fixture.secret(Role::Worker, None).await;
    for run in [&things.graph, &sync] {
        let run = format!("/v1/runs/{run}");
        let found = fixture.get(&run, &fixture.admin).await.json();
        let holder = found["claimed_by"].as_str().unwrap_or("w").to_owned();
        for (path, report) in reports(&run) {
            let report = with_claim(&report, &holder, &found["epoch"]);
            for secret in [&worker, &fixture.admin] {
                assert_wrong_holder(&fixture.post(&path, secret, &report).await);
            }
        }
        assert_eq!(fixture.get(&run, &fixture.admin).await.json(), found);
    }
    let ask = json!({"worker": "w", "labels": [SYNC_LABEL]});
    let reply = fixture.post("/v1/claims", &worker, &ask).await;
    assert_eq!(refusal(&reply), (422, "invalid".to_owned()), "{reply:?}");
}

/// Two tokens of the same project: the request id and the worker process of one are nothing to the other.
pub(crate) async fn claims_and_workers_of_tokens_are_separate(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Worker, Some("shop")).await;
    let thief = fixture.secret(Role::Worker, Some("shop")).await;
    let run = fixture.base.queue(request(), at(0)).await;
    let worker = Uuid::new_v4();
    let path = format!("/v1/workers/{worker}");
    let register = json!({"name": "w", "host": "h", "pid": 1});
    let made = ask(&Method::PUT, &path).body(&register).token(&own).at(&fixture.interface).await;
    assert_eq!(made.status, StatusCode::NO_CONTENT);
    let claim = json!({"worker": "w", "worker_id": worker, "request_id": "asked"});
    let claimed = async |secret: &str, claim: &Value| {
        fixture.post("/v1/claims", secret, claim).await.json()["runs"].clone()
    };
    let first = claimed(&own, &claim).await;
    assert_eq!(first[0]["run_id"], json!(run));
    let (_, token) = fixture.make(Role::Worker, Some("shop"), None).await;
    for secret in [thief.as_str(), token.reveal()] {
        assert_eq!(claimed(secret, &json!({"worker": "w", "request_id": "asked"})).await, json!([]));
        let beat = fixture.post(&format!("{path}/beat"), secret, &json!({"runs": [run]})).await;
        assert_eq!(refusal(&beat), (409, "stale".to_owned()), "{beat:?}");
        let retired = ask(&Method::DELETE, &path).token(secret).at(&fixture.interface).await;
        assert_eq!(retired.status, StatusCode::NO_CONTENT, "as for an unknown worker");
    }
    assert_eq!(claimed(&own, &claim).await, first);
    let beat = fixture.post(&format!("{path}/beat"), &own, &json!({"runs": [run]})).await.json();
    assert_eq!(beat["held"][0]["held"], json!(true), "{beat}");
}

/// A process of an agent in a directory.
struct AgentProcess<'a> {
    fixture: &'a AccessFixture,
    agent: Uuid,
    boot: Uuid,
    lock: &'static str,
}

impl<'a> AgentProcess<'a> {
    fn new(fixture: &'a AccessFixture, lock: &'static str) -> Self {
        Self { fixture, agent: Uuid::new_v4(), boot: Uuid::new_v4(), lock }
    }

    /// Another process that claims to be the same agent.
    fn again(&self, lock: &'static str) -> Self {
        Self { boot: Uuid::new_v4(), lock, ..*self }
    }

    async fn register(&self, token: &str, secret: char, next: char) -> Reply {
        let body = json!({"boot": self.boot, "name": "press", "host": "h", "capacity": 1, "dir_lock": self.lock,
            "secret": secret_of(secret), "next_secret": secret_of(next)});
        let path = format!("/v1/agents/{}", self.agent);
        ask(&Method::PUT, &path).body(&body).token(token).at(&self.fixture.interface).await
    }

    async fn beat(&self, token: &str) -> Reply {
        let path = format!("/v1/agents/{}/beat", self.agent);
        self.fixture.post(&path, token, &json!({"boot": self.boot})).await
    }
}

/// A stolen agent token: it is bound to one directory, and does not speak for that agent without its process id.
pub(crate) async fn agent_token_works_for_one_directory(fixture: &AccessFixture) {
    let (token, own) = fixture.make(Role::Agent, Some("shop"), None).await;
    let own = own.reveal();
    let agent = AgentProcess::new(fixture, "here");
    let answer = agent.register(own, 'a', 'b').await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.json()["secret_secs"], json!(AGENT_SECRET_SECS));
    let second = AgentProcess::new(fixture, "there");
    let refused = second.register(own, 'x', 'y').await;
    assert_wrong_holder(&refused);
    let said = refused.json();
    assert!(said["message"].as_str().is_some_and(|text| text.contains(&token.name)), "{said}");
    assert!(said["hint"].as_str().is_some_and(|text| text.contains("tidemill token create")), "{said}");
    // The thief knows the agent's id from a list, but neither the directory's secret nor the process.
    let listed = fixture.get("/v1/agents", &fixture.admin).await;
    assert!(!listed.body.contains(&agent.boot.to_string()), "the process id is a secret: {listed:?}");
    assert!(!listed.body.contains("boot"), "{listed:?}");
    let stored = derived_uuid(&format!("agent process {}", agent.boot));
    for boot in [Uuid::new_v4(), stored] {
        let thief = AgentProcess { boot, ..agent.again("there") };
        assert_eq!(refusal(&thief.beat(own).await), (409, "stale".to_owned()));
        assert_wrong_holder(&thief.register(own, 'x', 'y').await);
    }
    assert_eq!(agent.beat(own).await.status, StatusCode::OK);

    // The directory is lost: an operator forgets the agent, which is audited and frees the token.
    let forget = format!("/v1/agents/{}/forget?force=true", agent.agent);
    let forgotten = fixture.post(&forget, &fixture.admin, &json!({})).await;
    assert_eq!(forgotten.status, StatusCode::OK, "{forgotten:?}");
    let line = fixture.get("/v1/audit?limit=1", &fixture.admin).await.json()["items"][0].clone();
    assert_eq!((&line["action"], &line["subject"]), (&json!("agents.forget"), &json!(agent.agent)));
    assert_eq!(second.register(own, 'x', 'y').await.status, StatusCode::OK);
    assert_wrong_holder(&agent.register(own, 'b', 'c').await);
}

/// Two directories that register with one token at the same moment: one of them is bound.
pub(crate) async fn concurrent_registrations_bind_one_agent(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Agent, Some("shop")).await;
    let answers = tidemill_testkit::conformance::at_once(8, |_| {
        let path = format!("/v1/agents/{}", Uuid::new_v4());
        let body = json!({"boot": Uuid::new_v4(), "name": "press", "capacity": 1,
            "secret": secret_of('a'), "next_secret": secret_of('b')});
        let register = ask(&Method::PUT, &path).body(&body).token(&own);
        let interface = fixture.interface.clone();
        async move { register.at(&interface).await.status }
    })
    .await;
    let bound = answers.iter().filter(|status| **status == StatusCode::OK).count();
    assert_eq!(bound, 1, "{answers:?}");
    assert!(answers.iter().all(|status| matches!(status.as_u16(), 200 | 403)), "{answers:?}");
}

/// A stolen secret of a directory is worthless after the next registration, and without the agent's token.
pub(crate) async fn replaced_agent_secret_is_refused(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Agent, Some("shop")).await;
    let agent = AgentProcess::new(fixture, "here");
    assert_eq!(agent.register(&own, 'a', 'b').await.status, StatusCode::OK);
    // The response was lost: the same registration again, by this process or by the next one.
    assert_eq!(agent.register(&own, 'a', 'b').await.status, StatusCode::OK);
    let next = agent.again("here");
    assert_eq!(next.register(&own, 'a', 'b').await.status, StatusCode::OK);
    assert_eq!(refusal(&agent.beat(&own).await), (409, "stale".to_owned()));
    assert_eq!(next.register(&own, 'b', 'c').await.status, StatusCode::OK);
    for (old, new) in [('a', 'b'), ('b', 'd'), ('a', 'd')] {
        assert_wrong_holder(&agent.again("here").register(&own, old, new).await);
    }
    let other = fixture.secret(Role::Agent, Some("shop")).await;
    assert_eq!(refusal(&next.again("here").register(&other, 'c', 'd').await), (409, "frozen".to_owned()));
    assert_eq!(refusal(&next.beat(&other).await), (404, "unknown_agent".to_owned()));
    let hashes = "SELECT count(*) FROM {ops}.agents WHERE secret_hash LIKE '%cccc%'";
    assert_eq!(fixture.base.plain.number(hashes).await.ok(), Some(0), "only a hash is stored");
    assert_eq!(next.beat(&own).await.status, StatusCode::OK);
}

/// A copy of the directory with the current secret and the token, while the original process sends heartbeats.
pub(crate) async fn copied_agent_directory_is_refused_while_the_agent_lives(fixture: &AccessFixture) {
    let own = fixture.secret(Role::Agent, Some("shop")).await;
    let agent = AgentProcess::new(fixture, "here");
    assert_eq!(agent.register(&own, 'a', 'b').await.status, StatusCode::OK);
    let silent = i64::try_from(AGENT_SILENT_SECS).expect("a number");
    let copy = agent.again("there");
    for _ in 0..3 {
        fixture.wait(silent);
        let refused = copy.register(&own, 'b', 'c').await;
        assert_eq!(refusal(&refused), (409, "frozen".to_owned()), "{refused:?}");
        assert_eq!(agent.beat(&own).await.status, StatusCode::OK, "the original goes on");
    }
    // The original rotates its secret: the copy is worthless for good.
    assert_eq!(agent.register(&own, 'b', 'd').await.status, StatusCode::OK);
    fixture.wait(silent + 1);
    assert_wrong_holder(&copy.register(&own, 'b', 'c').await);
    // A directory that was moved to another machine continues once the former process is silent.
    let moved = agent.again("there");
    assert_eq!(moved.register(&own, 'd', 'e').await.status, StatusCode::OK);
    assert_eq!(refusal(&agent.beat(&own).await), (409, "stale".to_owned()));
    assert_wrong_holder(&agent.again("here").register(&own, 'd', 'f').await);
}

/// An agent of another project, with a stolen process id of its victim, neither gets nor reports the victim's tasks.
pub(crate) async fn agent_cannot_report_tasks_of_another_agent(fixture: &AccessFixture) {
    let mut theirs = things(fixture).await;
    let shop = fixture.secret(Role::Agent, Some("shop")).await;
    register_agent(fixture, &mut theirs, &shop).await;
    let bank = fixture.secret(Role::Agent, Some("bank")).await;
    let mine = AgentProcess::new(fixture, "bank");
    assert_eq!(mine.register(&bank, 'a', 'b').await.status, StatusCode::OK);
    let poll =
        fixture.post(&format!("/v1/agents/{}/poll", mine.agent), &bank, &json!({"boot": mine.boot})).await;
    assert_eq!(poll.json(), json!({"tasks": []}));
    for row in rows().iter().filter(|row| row.path.starts_with("/v1/tasks/")) {
        for (agent, boot) in
            [(mine.agent.to_string(), mine.boot.to_string()), (theirs.agent.clone(), theirs.boot.clone())]
        {
            let claimed = crate::route_list::Things { agent, boot, ..theirs.clone() };
            let reply = row.ask(&claimed).token(&bank).at(&fixture.interface).await;
            assert_eq!(reply.status, StatusCode::NOT_FOUND, "{}: {reply:?}", row.path);
        }
        let own = row.ask(&theirs).token(&shop).at(&fixture.interface).await;
        assert_eq!(own.status, StatusCode::OK, "{}: {own:?}", row.path);
    }
}

pub(crate) async fn agent_token_names_its_projects(fixture: &AccessFixture) {
    let create = async |secret: &str, body: Value| fixture.post("/v1/tokens", secret, &body).await;
    let reply = create(&fixture.admin, json!({"name": "a", "role": "agent"})).await;
    assert_eq!(refusal(&reply), (422, "invalid".to_owned()), "{reply:?}");
    assert!(reply.body.contains("all_projects"), "{reply:?}");
    for (body, projects) in [
        (json!({"name": "a", "role": "agent", "projects": ["shop"]}), json!(["shop"])),
        (
            json!({"name": "a", "role": "agent", "projects": ["shop", "bank", "shop"]}),
            json!(["bank", "shop"]),
        ),
        (json!({"name": "a", "role": "worker", "projects": ["shop", "bank"]}), json!(["bank", "shop"])),
        (json!({"name": "a", "role": "agent", "all_projects": true}), Value::Null),
        (json!({"name": "a", "role": "viewer"}), Value::Null),
        (json!({"name": "a", "role": "viewer", "all_projects": true}), Value::Null),
    ] {
        let reply = create(&fixture.admin, body).await;
        assert_eq!(reply.status, StatusCode::CREATED, "{reply:?}");
        assert_eq!(reply.json()["token"]["projects"], projects);
    }
    for body in [
        json!({"name": "a", "role": "agent", "projects": ["shop"], "all_projects": true}),
        json!({"name": "a", "role": "viewer", "projects": ["shop", "bank"]}),
        json!({"name": "a", "role": "admin", "projects": ["shop", "bank"]}),
    ] {
        assert_eq!(refusal(&create(&fixture.admin, body).await), (422, "invalid".to_owned()));
    }
    let missing = json!({"name": "a", "role": "agent", "projects": ["shop", "none"]});
    assert_eq!(refusal(&create(&fixture.admin, missing).await), (404, "unknown_project".to_owned()));
    // An admin of one project has only that project to give.
    let bank = fixture.secret(Role::Admin, Some("bank")).await;
    let reply = create(&bank, json!({"name": "a", "role": "agent"})).await;
    assert_eq!(reply.json()["token"]["projects"], json!(["bank"]), "{reply:?}");
    let all = json!({"name": "a", "role": "agent", "all_projects": true});
    assert_eq!(create(&bank, all).await.status, StatusCode::FORBIDDEN);
    let more = json!({"name": "a", "role": "agent", "projects": ["bank", "shop"]});
    assert_eq!(refusal(&create(&bank, more).await), (404, "unknown_project".to_owned()));
}

/// A stolen token of a person works anywhere: with its role, in its project, until it expires or is revoked.
pub(crate) async fn stolen_token_of_a_person_has_its_scope_and_its_end(fixture: &AccessFixture) {
    let run = fixture.base.queue(request(), at(0)).await;
    for (role, may_cancel, may_admin) in
        [(Role::Viewer, 403, 403), (Role::Operator, 200, 403), (Role::Admin, 200, 200)]
    {
        let (expiring, secret) = fixture.make(role, Some("shop"), Some(100)).await;
        let (_, elsewhere) = fixture.make(role, Some("bank"), None).await;
        let call = async |path: &str, secret: &str| {
            get(path).token(secret).from([203, 0, 113, 9], true).at(&fixture.interface).await.status.as_u16()
        };
        let cancel = async |secret: &str| {
            let cancel = post(&format!("/v1/runs/{run}/cancel"), &json!({})).token(secret);
            cancel.at(&fixture.interface).await.status.as_u16()
        };
        let path = format!("/v1/runs/{run}");
        assert_eq!(call(&path, secret.reveal()).await, 200, "{role}");
        assert_eq!(call("/v1/tokens", secret.reveal()).await, may_admin, "{role}");
        assert_eq!(cancel(secret.reveal()).await, may_cancel, "{role}");
        assert_eq!(call(&path, elsewhere.reveal()).await, 404, "{role} of another project");
        let revoke = format!("/v1/tokens/{}", expiring.token_id);
        let revoked = ask(&Method::DELETE, &revoke).token(&fixture.admin).at(&fixture.interface).await;
        assert_eq!(revoked.status, StatusCode::OK);
        assert_eq!(call(&path, secret.reveal()).await, 401, "{role}: revoked");
        let (_, short) = fixture.make(role, Some("shop"), Some(1)).await;
        assert_eq!(call(&path, short.reveal()).await, 200);
        fixture.wait(1);
        assert_eq!(call(&path, short.reveal()).await, 401, "{role}: expired");
    }
}

/// A stolen session cookie reads what its token reads. It is no token, changes nothing without the CSRF token, and ends
/// with its token or by itself.
pub(crate) async fn stolen_session_cookie_is_no_token_and_ends(fixture: &AccessFixture) {
    let (token, secret) = fixture.make(Role::Admin, Some("shop"), None).await;
    let sign_in = async || {
        let signed = post("/v1/session", &json!({"token": secret.reveal()})).at(&fixture.interface).await;
        assert_eq!(signed.status, StatusCode::CREATED, "{signed:?}");
        signed.header("set-cookie").split(';').next().expect("a cookie").to_owned()
    };
    let cookie = sign_in().await;
    let read = async |cookie: &str| {
        get("/v1/runs")
            .header("cookie", cookie)
            .from([203, 0, 113, 9], true)
            .at(&fixture.interface)
            .await
            .status
    };
    assert_eq!(read(&cookie).await, StatusCode::OK);
    let value = cookie.split_once('=').expect("a pair").1;
    assert_eq!(fixture.get("/v1/runs", value).await.status, StatusCode::UNAUTHORIZED, "it is no token");
    let signed = post("/v1/session", &json!({"token": value})).at(&fixture.interface).await;
    assert_eq!(signed.status, StatusCode::UNAUTHORIZED, "it opens no other session");
    let run = json!({"project": "shop", "env": "staging"});
    let change = post("/v1/runs", &run).header("cookie", &cookie).at(&fixture.interface).await;
    assert_eq!(refusal(&change), (403, "csrf".to_owned()), "{change:?}");
    fixture.wait(i64::from(SESSION_SECS));
    assert_eq!(read(&cookie).await, StatusCode::UNAUTHORIZED, "it is over");
    let cookie = sign_in().await;
    let revoke = format!("/v1/tokens/{}", token.token_id);
    let revoked = ask(&Method::DELETE, &revoke).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(revoked.status, StatusCode::OK);
    assert_eq!(read(&cookie).await, StatusCode::UNAUTHORIZED, "its token is revoked");
}
