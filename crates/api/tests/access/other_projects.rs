//! Tokens of one project and items of another.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::alert::AlertKind;
use tidemill_core::sync::SYNC_LABEL;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_store::{EventPage, NewAlert, NewReject};
use tidemill_testkit::interface::{at, request};
use uuid::Uuid;

use crate::fixture::{AccessFixture, ask};
use crate::roles::{nothing, register_agent, things};
use crate::route_list::{GRAPH, POOL, Things, Whose, registration, rows};

/// Returns the responses of every list that needs no name.
async fn lists(fixture: &AccessFixture, secret: &str) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    for row in rows().iter().filter(|row| row.is_list()) {
        said.push((row.path, fixture.get(&nothing().path(row.path), secret).await.body));
    }
    said
}

/// Creates items of a project without an id: flags, an alert, a rejected record, a watermark change.
async fn create_items(fixture: &AccessFixture, theirs: &Things) {
    for scope in [format!("project:{}", theirs.project), format!("feed:{}", theirs.feed)] {
        let flag = json!({"flag": "paused", "scope": scope});
        let set =
            ask(&Method::PUT, "/v1/flags").body(&flag).token(&fixture.admin).at(&fixture.interface).await;
        assert_eq!(set.status, StatusCode::OK, "{set:?}");
    }
    let (feed, project) = (theirs.feed.clone(), theirs.project.clone());
    let write = fixture.base.store.write(move |mut tx| {
        let (feed, project) = (feed.clone(), project.clone());
        Box::pin(async move {
            let reject = NewReject {
                record_id: "record".to_owned(),
                stage: tidemill_core::records::Stage::Map,
                reason: "it is none".to_owned(),
                payload: "{}".to_owned(),
            };
            tx.reject(&feed, Uuid::nil(), None, &reject, Some(at(0))).await?;
            let alert = NewAlert::new(AlertKind::RunFailed, "subject", "it failed");
            tx.raise_alert(&NewAlert { project_id: Some(project), ..alert }, Some(at(0))).await
        })
    });
    write.await.expect("it is written");
    let mark = json!({"watermark": null, "note": "again"});
    let path = theirs.path("/v1/feeds/{feed}/watermark");
    let set = ask(&Method::PUT, &path).body(&mark).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(set.status, StatusCode::OK, "{set:?}");
}

/// Every route with an item of another project and with one that does not exist: both responses are identical except
/// for the names in the request. Nothing changes in the other project.
pub(crate) async fn other_projects_get_not_found_for_everything(fixture: &AccessFixture) {
    let bank = fixture.secret(Role::Admin, Some("bank")).await;
    // Pools are shared, so the same pool exists before and after.
    let pool =
        ask(&Method::PUT, &format!("/v1/pools/{POOL}")).body(&json!({"size": 1})).token(&fixture.admin);
    assert_eq!(pool.at(&fixture.interface).await.status, StatusCode::OK);
    let before = lists(fixture, &bank).await;
    let theirs = things(fixture).await;
    // Identical responses need names of equal length.
    let none = Things { rule: "9".repeat(theirs.rule.len()), ..nothing() };
    create_items(fixture, &theirs).await;
    let shop = fixture.secret(Role::Admin, Some("shop")).await;
    assert_eq!(fixture.get(&theirs.path("/v1/runs/{run}"), &shop).await.status, StatusCode::OK);
    let response = fixture.post("/v1/runs", &shop, &json!({"project": "shop", "env": "staging"})).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");

    let run: RunId = theirs.run.parse().expect("an id");
    let page = || EventPage { after: 0, limit: 100 };
    let events = fixture.base.store.events(run.clone(), page()).await.expect("events");
    let owners = lists(fixture, &shop).await;
    for row in rows().iter().filter(|row| row.whose != Whose::Nobodys) {
        let of_theirs = row.ask(&theirs).token(&bank).at(&fixture.interface).await;
        let of_nothing = row.ask(&none).token(&bank).at(&fixture.interface).await;
        let request = format!("{} {}: {of_theirs:?}, and of nothing {of_nothing:?}", row.method, row.path);
        assert_eq!(of_theirs.status, of_nothing.status, "{request}");
        assert_eq!(of_theirs.headers, of_nothing.headers, "{request}");
        assert_eq!(theirs.hidden_in(&of_theirs.body), none.hidden_in(&of_nothing.body), "{request}");
        match row.whose {
            Whose::Projects => assert_eq!(of_theirs.status, StatusCode::NOT_FOUND, "{request}"),
            Whose::Parts => assert!(of_theirs.status.is_success(), "{request}"),
            Whose::Alls => assert_eq!(of_theirs.status, StatusCode::FORBIDDEN, "{request}"),
            Whose::Signers => assert_eq!(of_theirs.status, StatusCode::UNAUTHORIZED, "{request}"),
            Whose::Nobodys => {}
        }
    }
    // The lists are unchanged, for the caller and for the owner.
    let mut after = lists(fixture, &bank).await;
    let record = after.iter_mut().find(|(path, _)| *path == "/v1/audit").expect("the record is a list");
    // The log of the caller's project has its own changes, two replays of nothing, and its own refused calls.
    let own: Value = serde_json::from_str(&record.1).expect("a page");
    let own = own["items"].as_array().expect("items").iter().filter(|line| line["outcome"] == "applied");
    let own: Vec<_> = own.map(|line| &line["action"]).collect();
    assert_eq!(own, [&json!("queues.replay"), &json!("queues.replay")]);
    assert!(!record.1.contains("shop"), "{}", record.1);
    record.1 = json!({"items": [], "next": null}).to_string();
    assert_eq!(after, before);
    assert_eq!(lists(fixture, &shop).await, owners);
    assert_eq!(fixture.base.store.events(run, page()).await.expect("events"), events);
    let (path, beat) = (theirs.path("/v1/workers/{worker}/beat"), json!({"runs": []}));
    assert_eq!(fixture.post(&path, &fixture.admin, &beat).await.status, StatusCode::OK, "the worker lives");
}

/// A worker token of one project can neither see, keep alive nor end worker processes of another project or of all
/// projects.
pub(crate) async fn worker_is_invisible_to_other_projects(fixture: &AccessFixture) {
    let (shop, bank) =
        (fixture.secret(Role::Admin, Some("shop")).await, fixture.secret(Role::Admin, Some("bank")).await);
    for secret in [&shop, &fixture.admin] {
        let run = fixture.base.queue(request(), at(0)).await.to_string();
        let (id, none) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let path = |id: &str, verb: &str| format!("/v1/workers/{id}{verb}");
        let register = json!({"name": format!("worker-{id}"), "host": "h", "pid": 1});
        let made =
            ask(&Method::PUT, &path(&id, "")).body(&register).token(secret).at(&fixture.interface).await;
        assert_eq!(made.status, StatusCode::NO_CONTENT, "{made:?}");
        let claim = json!({"worker": format!("worker-{id}"), "worker_id": id, "projects": ["shop"]});
        let claimed = fixture.post("/v1/claims", secret, &claim).await.json();
        assert_eq!(claimed["runs"][0]["run_id"], json!(run));
        let beat = async |secret: &str, id: &str, runs: Value| {
            fixture.post(&path(id, "/beat"), secret, &json!({"runs": runs})).await
        };
        let held = async || beat(secret, &id, json!([run])).await.json()["held"][0]["held"].clone();
        assert_eq!(held().await, json!(true));

        let listed = fixture.get("/v1/workers", &shop).await.json();
        let name = format!("worker-{id}");
        let found =
            listed["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == json!(name)));
        let shown = found.and_then(|one| one["worker_id"].as_str()).expect("it holds a run of the project");
        assert_eq!(fixture.get("/v1/workers", &bank).await.json()["items"], json!([]));
        for shown in [shown, &id] {
            // By the id in the list and by the id that the process chose.
            for other in [Some(&bank), Some(&shop).filter(|_| secret == &fixture.admin)].into_iter().flatten()
            {
                let (theirs, nobodys) =
                    (beat(other, shown, json!([])).await, beat(other, &none, json!([])).await);
                assert_eq!((theirs.status, theirs.code().as_str()), (StatusCode::CONFLICT, "stale"));
                assert_eq!(theirs.body.replace(shown, "…"), nobodys.body.replace(&none, "…"));
                let retire = ask(&Method::DELETE, &path(shown, "")).token(other).at(&fixture.interface).await;
                assert_eq!(retire.status, StatusCode::NO_CONTENT);
                assert_eq!(held().await, json!(true), "it was ended by another");
            }
        }
        let retire = ask(&Method::DELETE, &path(&id, "")).token(secret).at(&fixture.interface).await;
        assert_eq!(retire.status, StatusCode::NO_CONTENT);
        assert_eq!(beat(secret, &id, json!([])).await.code(), "stale", "its own it can end");
    }
}

/// The schedule of a feed has the name of the feed, so adding a feed must not change a schedule of another project.
pub(crate) async fn feed_cannot_take_a_schedule_of_another_project(fixture: &AccessFixture) {
    let bank = fixture.secret(Role::Admin, Some("bank")).await;
    let theirs = Things { schedule: "feed-pearls".to_owned(), ..things(fixture).await };
    let path = theirs.path("/v1/schedules/{schedule}");
    let put = ask(&Method::PUT, &path).body(&crate::route_list::schedule(&theirs));
    assert_eq!(put.token(&fixture.admin).at(&fixture.interface).await.status, StatusCode::OK);
    let before = fixture.get(&path, &fixture.admin).await.body;
    let feed = crate::route_list::feed(&Things { project: "bank".to_owned(), ..theirs });
    let refused = ask(&Method::PUT, "/v1/feeds/pearls").body(&feed).token(&bank).at(&fixture.interface).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::CONFLICT, "name_taken"));
    assert_eq!(fixture.get(&path, &fixture.admin).await.body, before);
    assert_eq!(fixture.get("/v1/feeds/pearls", &bank).await.code(), "unknown_feed");
}

pub(crate) async fn project_admin_cannot_grant_more_than_its_own_access(fixture: &AccessFixture) {
    let bank = fixture.secret(Role::Admin, Some("bank")).await;
    let made = fixture.post("/v1/tokens", &bank, &json!({"name": "ci", "role": "admin"})).await;
    assert_eq!((made.status, &made.json()["token"]["projects"]), (StatusCode::CREATED, &json!(["bank"])));
    let other = json!({"name": "ci", "role": "viewer", "projects": ["shop"]});
    let refused = fixture.post("/v1/tokens", &bank, &other).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::NOT_FOUND, "unknown_project"));
    // The token for all projects is also out of reach.
    let (all, _) = fixture.make(Role::Viewer, None, None).await;
    let path = format!("/v1/tokens/{}", all.token_id);
    let reply = ask(&Method::DELETE, &path).token(&bank).at(&fixture.interface).await;
    assert_eq!((reply.status, reply.code().as_str()), (StatusCode::NOT_FOUND, "unknown_token"));
}

/// A repeated claim request id must not return runs of another project.
pub(crate) async fn repeated_claim_of_another_project_returns_nothing(fixture: &AccessFixture) {
    let (shop, bank) =
        (fixture.secret(Role::Worker, Some("shop")).await, fixture.secret(Role::Worker, Some("bank")).await);
    let theirs = fixture.base.queue(request(), at(0)).await;
    let request = json!({"worker": "w", "request_id": "asked"});
    let claimed =
        async |secret: &str| fixture.post("/v1/claims", secret, &request).await.json()["runs"].clone();
    let first = claimed(&shop).await;
    assert_eq!(first[0]["run_id"], json!(theirs));
    assert_eq!(claimed(&shop).await, first);
    assert_eq!(claimed(&bank).await, json!([]));
}

/// Another token with the same rights can neither act for an agent nor report on its tasks, nor learn that they exist.
/// An agent of one project gets only jobs of that project.
pub(crate) async fn agent_is_bound_to_its_first_token(fixture: &AccessFixture) {
    let (own, other) = (fixture.secret(Role::Agent, None).await, fixture.secret(Role::Agent, None).await);
    let mut theirs = things(fixture).await;
    register_agent(fixture, &mut theirs, &own).await;
    let none = nothing();
    for row in rows().iter().filter(|row| row.is_agents() && row.method != Method::PUT) {
        let of_theirs = row.ask(&theirs).token(&other).at(&fixture.interface).await;
        let of_nothing = row.ask(&none).token(&other).at(&fixture.interface).await;
        let request = format!("{} {}: {of_theirs:?}, and of nothing {of_nothing:?}", row.method, row.path);
        assert_eq!(of_theirs.status, StatusCode::NOT_FOUND, "{request}");
        assert_eq!(of_nothing.status, StatusCode::NOT_FOUND, "{request}");
        assert_eq!(theirs.hidden_in(&of_theirs.body), none.hidden_in(&of_nothing.body), "{request}");
    }
    let path = theirs.path("/v1/agents/{agent}");
    let mut register = registration(&Uuid::new_v4().to_string(), "thief");
    for secret in ["secret", "next_secret"] {
        register[secret] = json!("x".repeat(64));
    }
    let taken = ask(&Method::PUT, &path).body(&register).token(&other).at(&fixture.interface).await;
    assert_eq!((taken.status, taken.code().as_str()), (StatusCode::NOT_FOUND, "unknown_agent"));
    // The first token still acts for the agent, which has its task.
    let poll = json!({"boot": theirs.boot});
    let orders = fixture.post(&format!("{path}/poll"), &own, &poll).await.json();
    assert_eq!(orders["tasks"][0]["task_id"], json!(theirs.task), "{orders}");

    // An agent of the bank gets no job of the shop.
    let bank = fixture.secret(Role::Agent, Some("bank")).await;
    let mine = Uuid::new_v4().to_string();
    let register = registration(&theirs.boot, "bank");
    let made = ask(&Method::PUT, &format!("/v1/agents/{mine}")).body(&register).token(&bank);
    assert_eq!(made.at(&fixture.interface).await.status, StatusCode::OK);
    let graph = json!({"project": "shop", "env": "staging", "text": GRAPH});
    assert_eq!(fixture.post("/v1/graphs", &fixture.admin, &graph).await.status, StatusCode::CREATED);
    let graphs = Graphs::new(fixture.engine.clone(), GraphSettings::default());
    let mut controller = graphs.controller("table");
    for _ in 0..5 {
        controller.tick().await.expect("the controller acts");
    }
    let orders = fixture.post(&format!("/v1/agents/{mine}/poll"), &bank, &poll).await.json();
    assert_eq!(orders, json!({"tasks": []}));
}

/// A probe flag stops the jobs of every project, so probes of project agents are refused.
pub(crate) async fn project_probe_cannot_set_site_flags(fixture: &AccessFixture) {
    for (project, status) in
        [(Some("bank"), StatusCode::UNPROCESSABLE_ENTITY), (None, StatusCode::NO_CONTENT)]
    {
        let secret = fixture.secret(Role::Agent, project).await;
        let (path, boot) = (format!("/v1/agents/{}", Uuid::new_v4()), Uuid::new_v4());
        let register = registration(&boot.to_string(), "press");
        let made = ask(&Method::PUT, &path).body(&register).token(&secret).at(&fixture.interface).await;
        assert_eq!(made.status, StatusCode::OK, "{made:?}");
        let probe = json!({"boot": boot, "maintenance": true});
        let said = fixture.post(&format!("{path}/probe"), &secret, &probe).await;
        assert_eq!(said.status, status, "{said:?}");
        let flags = fixture.base.store.flags().await.expect("flags");
        assert_eq!(flags.len(), usize::from(project.is_none()), "{flags:?}");
    }
}

/// A run can name any feed in its metadata. Its answers are the same for a feed of another project and for no feed: not
/// even a pause and its note are visible.
pub(crate) async fn run_reveals_nothing_about_a_feed_of_another_project(fixture: &AccessFixture) {
    let theirs = things(fixture).await;
    let flag = json!({"flag": "paused", "scope": format!("feed:{}", theirs.feed), "note": "stock-taking"});
    let set = ask(&Method::PUT, "/v1/flags").body(&flag).token(&fixture.admin).at(&fixture.interface).await;
    assert_eq!(set.status, StatusCode::OK, "{set:?}");
    let bank = fixture.secret(Role::Operator, Some("bank")).await;
    let mut answers = Vec::new();
    for feed in [theirs.feed.clone(), "9".repeat(theirs.feed.len())] {
        let metadata = json!({"feed": feed, "run_type": "full"});
        let run = json!({"project": "bank", "env": "staging", "labels": [SYNC_LABEL], "metadata": metadata});
        let queued = fixture.post("/v1/runs", &bank, &run).await;
        assert_eq!(queued.status, StatusCode::CREATED, "{queued:?}");
        let run: RunId = queued.json()["run_id"].as_str().expect("a run").parse().expect("an id");
        // As a schedule of the bank would queue it.
        let id = run.clone();
        let mark =
            fixture.base.store.write(move |mut tx| Box::pin(async move { tx.mark_sync_run(&id).await }));
        mark.await.expect("the run is marked");
        let mut said = Vec::new();
        for path in ["why", "detail", "events"] {
            let reply = fixture.get(&format!("/v1/runs/{run}/{path}"), &bank).await;
            assert_eq!(reply.status, StatusCode::OK, "{reply:?}");
            // The ids of events contain the id of the run without its prefix.
            let id = run.as_str().trim_start_matches("run-");
            said.push(reply.body.replace(id, "ID").replace(&feed, "FEED"));
        }
        answers.push(said);
        // The number of runs ahead is the same for the next one.
        let cancelled = fixture.post(&format!("/v1/runs/{run}/cancel"), &bank, &json!({})).await;
        assert_eq!(cancelled.status, StatusCode::OK, "{cancelled:?}");
    }
    assert_eq!(answers[0], answers[1]);
    assert!(!answers[0].concat().contains("stock-taking"), "{answers:?}");
}

/// Once the token of an agent is invalid, another one can take over with the secret of the agent's directory. For all
/// other callers the agent does not exist.
pub(crate) async fn agent_changes_token_only_with_its_directory_secret(fixture: &AccessFixture) {
    let (first, own) = fixture.make(Role::Agent, Some("shop"), None).await;
    let other = fixture.secret(Role::Agent, Some("shop")).await;
    let path = format!("/v1/agents/{}", Uuid::new_v4());
    let register = async |secret: &str, known: &str| {
        let body = json!({"boot": Uuid::new_v4(), "name": "press", "capacity": 1, "secret": known,
            "next_secret": known});
        let reply = ask(&Method::PUT, &path).body(&body).token(secret).at(&fixture.interface).await;
        (reply.status, reply.code())
    };
    let home = "3".repeat(64);
    let unknown = (StatusCode::NOT_FOUND, "unknown_agent".to_owned());
    assert_eq!(register(own.reveal(), &home).await.0, StatusCode::OK);
    assert_eq!(register(&other, &"4".repeat(64)).await, unknown);
    let still = (StatusCode::CONFLICT, "frozen".to_owned());
    assert_eq!(register(&other, &home).await, still, "its token is good");
    let revoke = format!("/v1/tokens/{}", first.token_id);
    let revoked = ask(&Method::DELETE, &revoke).token(&fixture.admin).at(&fixture.interface).await;
    assert!(revoked.status.is_success(), "{revoked:?}");
    assert_eq!(register(&other, &"4".repeat(64)).await, unknown);
    let bank = fixture.secret(Role::Agent, Some("bank")).await;
    assert_eq!(register(&bank, &home).await, unknown, "it works for another project");
    let all = fixture.secret(Role::Agent, None).await;
    assert_eq!(register(&all, &home).await, unknown, "it would get more than it had");
    let (status, code) = register(&other, "short").await;
    assert_eq!((status, code.as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"));
    assert_eq!(register(&other, &home).await.0, StatusCode::OK);
    assert_eq!(register(&other, &home).await.0, StatusCode::OK, "it is its own now");
    let wrong = (StatusCode::FORBIDDEN, "wrong_holder".to_owned());
    assert_eq!(register(&other, &"4".repeat(64)).await, wrong, "its own token needs the secret too");
}
