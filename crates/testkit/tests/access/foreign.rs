//! One project's tokens and another project's things.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tidemill_core::RunId;
use tidemill_core::access::Role;
use tidemill_core::alert::AlertKind;
use tidemill_engine::graph::{GraphSettings, Graphs};
use tidemill_store::{EventPage, NewAlert, NewReject};
use tidemill_testkit::door::{at, request};
use uuid::Uuid;

use crate::ground::{Ground, ask};
use crate::rows::{GRAPH, POOL, Things, Whose, rows};
use crate::table::{employ, nothing, things};

/// What every list says to somebody, without naming anything.
async fn lists(ground: &Ground, secret: &str) -> Vec<(&'static str, String)> {
    let mut said = Vec::new();
    for row in rows().iter().filter(|row| row.is_list()) {
        said.push((row.path, ground.get(&nothing().path(row.path), secret).await.body));
    }
    said
}

/// What belongs to a project and has no name of its own: flags, an alert, a rejected row, a change of a watermark.
async fn furnish(ground: &Ground, theirs: &Things) {
    for scope in [format!("project:{}", theirs.project), format!("feed:{}", theirs.feed)] {
        let flag = json!({"flag": "paused", "scope": scope});
        let set = ask(&Method::PUT, "/v1/flags").body(&flag).token(&ground.admin).at(&ground.door).await;
        assert_eq!(set.status, StatusCode::OK, "{set:?}");
    }
    let (feed, project) = (theirs.feed.clone(), theirs.project.clone());
    let write = ground.stage.store.write(move |mut tx| {
        let (feed, project) = (feed.clone(), project.clone());
        Box::pin(async move {
            let reject = NewReject {
                stone_id: "stone".to_owned(),
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
    let set = ask(&Method::PUT, &path).body(&mark).token(&ground.admin).at(&ground.door).await;
    assert_eq!(set.status, StatusCode::OK, "{set:?}");
}

/// Every route, asked about a thing of another project and about one that does not exist: the two answers are the same
/// to the byte, but for the names that the caller gave. Nothing is left behind at the other project.
pub(crate) async fn to_another_project_everything_reads_as_if_it_did_not_exist(ground: &Ground) {
    let bank = ground.secret(Role::Admin, Some("bank")).await;
    // Pools are everybody's: there is the same one before and after.
    let pool = ask(&Method::PUT, &format!("/v1/pools/{POOL}")).body(&json!({"size": 1})).token(&ground.admin);
    assert_eq!(pool.at(&ground.door).await.status, StatusCode::OK);
    let before = lists(ground, &bank).await;
    let theirs = things(ground).await;
    // Answers that are the same to the byte are of one length, and so are the names in them.
    let none = Things { rule: "9".repeat(theirs.rule.len()), ..nothing() };
    furnish(ground, &theirs).await;
    let shop = ground.secret(Role::Admin, Some("shop")).await;
    assert_eq!(ground.get(&theirs.path("/v1/runs/{run}"), &shop).await.status, StatusCode::OK);
    let told = ground.post("/v1/runs", &shop, &json!({"project": "shop", "env": "staging"})).await;
    assert_eq!(told.status, StatusCode::CREATED, "{told:?}");

    let run: RunId = theirs.run.parse().expect("an id");
    let page = || EventPage { after: 0, limit: 100 };
    let events = ground.stage.store.events(run.clone(), page()).await.expect("events");
    let owners = lists(ground, &shop).await;
    for row in rows().iter().filter(|row| row.whose != Whose::Nobodys) {
        let of_theirs = row.ask(&theirs).token(&bank).at(&ground.door).await;
        let of_nothing = row.ask(&none).token(&bank).at(&ground.door).await;
        let asked = format!("{} {}: {of_theirs:?}, and of nothing {of_nothing:?}", row.method, row.path);
        assert_eq!(of_theirs.status, of_nothing.status, "{asked}");
        assert_eq!(of_theirs.headers, of_nothing.headers, "{asked}");
        assert_eq!(theirs.hidden_in(&of_theirs.body), none.hidden_in(&of_nothing.body), "{asked}");
        match row.whose {
            Whose::Projects => assert_eq!(of_theirs.status, StatusCode::NOT_FOUND, "{asked}"),
            Whose::Parts => assert!(of_theirs.status.is_success(), "{asked}"),
            Whose::Alls => assert_eq!(of_theirs.status, StatusCode::FORBIDDEN, "{asked}"),
            Whose::Signers => assert_eq!(of_theirs.status, StatusCode::UNAUTHORIZED, "{asked}"),
            Whose::Nobodys => {}
        }
    }
    // Without naming anything, the lists are what they were: to the one who asked, and to the owner.
    let mut after = lists(ground, &bank).await;
    let record = after.iter_mut().find(|(path, _)| *path == "/v1/audit").expect("the record is a list");
    // On record is what they did themselves: they replayed nothing, twice.
    let own: Value = serde_json::from_str(&record.1).expect("a page");
    let own: Vec<_> = own["items"].as_array().expect("items").iter().map(|line| &line["action"]).collect();
    assert_eq!(own, [&json!("queues.replay"), &json!("queues.replay")]);
    assert!(!record.1.contains("shop"), "{}", record.1);
    record.1 = json!({"items": [], "next": null}).to_string();
    assert_eq!(after, before);
    assert_eq!(lists(ground, &shop).await, owners);
    assert_eq!(ground.stage.store.events(run, page()).await.expect("events"), events);
    let (path, beat) = (theirs.path("/v1/workers/{worker}/beat"), json!({"runs": []}));
    assert_eq!(ground.post(&path, &ground.admin, &beat).await.status, StatusCode::OK, "the worker lives");
}

/// Whoever may do one project's work can neither look at another's worker processes, nor keep them alive, nor end them;
/// and those that work for everybody are not theirs either.
pub(crate) async fn a_worker_is_out_of_reach_for_other_projects(ground: &Ground) {
    let (shop, bank) =
        (ground.secret(Role::Admin, Some("shop")).await, ground.secret(Role::Admin, Some("bank")).await);
    for secret in [&shop, &ground.admin] {
        let run = ground.stage.queue(request(), at(0)).await.to_string();
        let (id, none) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        let path = |id: &str, verb: &str| format!("/v1/workers/{id}{verb}");
        let register = json!({"name": format!("worker-{id}"), "host": "h", "pid": 1});
        let made = ask(&Method::PUT, &path(&id, "")).body(&register).token(secret).at(&ground.door).await;
        assert_eq!(made.status, StatusCode::NO_CONTENT, "{made:?}");
        let claim = json!({"worker": format!("worker-{id}"), "worker_id": id, "projects": ["shop"]});
        let claimed = ground.post("/v1/claims", secret, &claim).await.json();
        assert_eq!(claimed["runs"][0]["run_id"], json!(run));
        let beat = async |secret: &str, id: &str, runs: Value| {
            ground.post(&path(id, "/beat"), secret, &json!({"runs": runs})).await
        };
        let held = async || beat(secret, &id, json!([run])).await.json()["held"][0]["held"].clone();
        assert_eq!(held().await, json!(true));

        let listed = ground.get("/v1/workers", &shop).await.json();
        let name = format!("worker-{id}");
        let found =
            listed["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == json!(name)));
        let shown = found.and_then(|one| one["worker_id"].as_str()).expect("it holds a run of the project");
        assert_eq!(ground.get("/v1/workers", &bank).await.json()["items"], json!([]));
        for shown in [shown, &id] {
            // Under the id that it is shown with, and the one that it gave itself.
            for other in [Some(&bank), Some(&shop).filter(|_| secret == &ground.admin)].into_iter().flatten()
            {
                let (theirs, nobodys) =
                    (beat(other, shown, json!([])).await, beat(other, &none, json!([])).await);
                assert_eq!((theirs.status, theirs.code().as_str()), (StatusCode::CONFLICT, "stale"));
                assert_eq!(theirs.body.replace(shown, "…"), nobodys.body.replace(&none, "…"));
                let retire = ask(&Method::DELETE, &path(shown, "")).token(other).at(&ground.door).await;
                assert_eq!(retire.status, StatusCode::NO_CONTENT);
                assert_eq!(held().await, json!(true), "it was ended by another");
            }
        }
        let retire = ask(&Method::DELETE, &path(&id, "")).token(secret).at(&ground.door).await;
        assert_eq!(retire.status, StatusCode::NO_CONTENT);
        assert_eq!(beat(secret, &id, json!([])).await.code(), "stale", "its own it can end");
    }
}

/// A feed's schedule is named after the feed: whoever adds one must not so change another project's schedule.
pub(crate) async fn a_feed_does_not_take_the_schedule_of_another_project(ground: &Ground) {
    let bank = ground.secret(Role::Admin, Some("bank")).await;
    let theirs = Things { schedule: "feed-pearls".to_owned(), ..things(ground).await };
    let path = theirs.path("/v1/schedules/{schedule}");
    let put = ask(&Method::PUT, &path).body(&crate::rows::schedule(&theirs));
    assert_eq!(put.token(&ground.admin).at(&ground.door).await.status, StatusCode::OK);
    let before = ground.get(&path, &ground.admin).await.body;
    let feed = crate::rows::feed(&Things { project: "bank".to_owned(), ..theirs });
    let refused = ask(&Method::PUT, "/v1/feeds/pearls").body(&feed).token(&bank).at(&ground.door).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::CONFLICT, "name_taken"));
    assert_eq!(ground.get(&path, &ground.admin).await.body, before);
    assert_eq!(ground.get("/v1/feeds/pearls", &bank).await.code(), "unknown_feed");
}

pub(crate) async fn an_admin_of_one_project_gives_nobody_more_than_they_have(ground: &Ground) {
    let bank = ground.secret(Role::Admin, Some("bank")).await;
    let made = ground.post("/v1/tokens", &bank, &json!({"name": "ci", "role": "admin"})).await;
    assert_eq!((made.status, &made.json()["token"]["project_id"]), (StatusCode::CREATED, &json!("bank")));
    let other = json!({"name": "ci", "role": "viewer", "project": "shop"});
    let refused = ground.post("/v1/tokens", &bank, &other).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::NOT_FOUND, "unknown_project"));
    // The one with all projects is none of theirs either.
    let (all, _) = ground.make(Role::Viewer, None, None).await;
    let path = format!("/v1/tokens/{}", all.token_id);
    let reply = ask(&Method::DELETE, &path).token(&bank).at(&ground.door).await;
    assert_eq!((reply.status, reply.code().as_str()), (StatusCode::NOT_FOUND, "unknown_token"));
}

/// The id of a claim makes asking again the same as asking once. It must not give another project's runs away.
pub(crate) async fn asking_again_for_another_projects_claim_gives_nothing(ground: &Ground) {
    let (shop, bank) =
        (ground.secret(Role::Worker, Some("shop")).await, ground.secret(Role::Worker, Some("bank")).await);
    let theirs = ground.stage.queue(request(), at(0)).await;
    let asked = json!({"worker": "w", "request_id": "asked"});
    let claimed = async |secret: &str| ground.post("/v1/claims", secret, &asked).await.json()["runs"].clone();
    let first = claimed(&shop).await;
    assert_eq!(first[0]["run_id"], json!(theirs));
    assert_eq!(claimed(&shop).await, first);
    assert_eq!(claimed(&bank).await, json!([]));
}

/// Another token of the same rights can neither speak for an agent nor report of its tasks, nor learn that they exist;
/// and an agent of one project is given that project's jobs alone.
pub(crate) async fn an_agent_belongs_to_the_token_that_it_came_with(ground: &Ground) {
    let (own, other) = (ground.secret(Role::Agent, None).await, ground.secret(Role::Agent, None).await);
    let mut theirs = things(ground).await;
    employ(ground, &mut theirs, &own).await;
    let none = nothing();
    for row in rows().iter().filter(|row| row.is_agents() && row.method != Method::PUT) {
        let of_theirs = row.ask(&theirs).token(&other).at(&ground.door).await;
        let of_nothing = row.ask(&none).token(&other).at(&ground.door).await;
        let asked = format!("{} {}: {of_theirs:?}, and of nothing {of_nothing:?}", row.method, row.path);
        assert_eq!(of_theirs.status, StatusCode::NOT_FOUND, "{asked}");
        assert_eq!(of_nothing.status, StatusCode::NOT_FOUND, "{asked}");
        assert_eq!(theirs.hidden_in(&of_theirs.body), none.hidden_in(&of_nothing.body), "{asked}");
    }
    let path = theirs.path("/v1/agents/{agent}");
    let register = json!({"boot": Uuid::new_v4(), "name": "thief", "capacity": 1});
    let taken = ask(&Method::PUT, &path).body(&register).token(&other).at(&ground.door).await;
    assert_eq!((taken.status, taken.code().as_str()), (StatusCode::NOT_FOUND, "unknown_agent"));
    // The one who came with it still speaks for it, and has its task.
    let poll = json!({"boot": theirs.boot});
    let orders = ground.post(&format!("{path}/poll"), &own, &poll).await.json();
    assert_eq!(orders["tasks"][0]["task_id"], json!(theirs.task), "{orders}");

    // An agent of the bank is offered nothing of the shop, whatever it offers.
    let bank = ground.secret(Role::Agent, Some("bank")).await;
    let mine = Uuid::new_v4().to_string();
    let register = json!({"boot": theirs.boot, "name": "bank", "capacity": 10});
    let made = ask(&Method::PUT, &format!("/v1/agents/{mine}")).body(&register).token(&bank);
    assert_eq!(made.at(&ground.door).await.status, StatusCode::OK);
    let graph = json!({"project": "shop", "env": "staging", "text": GRAPH});
    assert_eq!(ground.post("/v1/graphs", &ground.admin, &graph).await.status, StatusCode::CREATED);
    let graphs = Graphs::new(ground.engine.clone(), GraphSettings::default());
    let mut controller = graphs.controller("table");
    for _ in 0..5 {
        controller.tick().await.expect("the controller acts");
    }
    let orders = ground.post(&format!("/v1/agents/{mine}/poll"), &bank, &poll).await.json();
    assert_eq!(orders, json!({"tasks": []}));
}

/// What a probe finds stops the jobs of every project: an agent whose token is for a single one is not heard.
pub(crate) async fn a_probe_of_one_project_stops_nobody(ground: &Ground) {
    for (project, status) in
        [(Some("bank"), StatusCode::UNPROCESSABLE_ENTITY), (None, StatusCode::NO_CONTENT)]
    {
        let secret = ground.secret(Role::Agent, project).await;
        let (path, boot) = (format!("/v1/agents/{}", Uuid::new_v4()), Uuid::new_v4());
        let register = json!({"boot": boot, "name": "press", "capacity": 1});
        let made = ask(&Method::PUT, &path).body(&register).token(&secret).at(&ground.door).await;
        assert_eq!(made.status, StatusCode::OK, "{made:?}");
        let probe = json!({"boot": boot, "maintenance": true});
        let said = ground.post(&format!("{path}/probe"), &secret, &probe).await;
        assert_eq!(said.status, status, "{said:?}");
        let flags = ground.stage.store.flags().await.expect("flags");
        assert_eq!(flags.len(), usize::from(project.is_none()), "{flags:?}");
    }
}

/// When the token of an agent is over, another one may speak for it if it comes from the agent's own directory; to
/// everybody else of the same rights it goes on not to exist.
pub(crate) async fn an_agent_moves_to_another_token_only_from_its_own_directory(ground: &Ground) {
    let (first, own) = ground.make(Role::Agent, Some("shop"), None).await;
    let other = ground.secret(Role::Agent, Some("shop")).await;
    let path = format!("/v1/agents/{}", Uuid::new_v4());
    let register = async |secret: &str, known: Option<&str>| {
        let body = json!({"boot": Uuid::new_v4(), "name": "press", "capacity": 1, "secret": known});
        let reply = ask(&Method::PUT, &path).body(&body).token(secret).at(&ground.door).await;
        (reply.status, reply.code())
    };
    let home = "3".repeat(64);
    let unknown = (StatusCode::NOT_FOUND, "unknown_agent".to_owned());
    assert_eq!(register(own.reveal(), Some(&home)).await.0, StatusCode::OK);
    assert_eq!(register(&other, None).await, unknown);
    assert_eq!(register(&other, Some(&"4".repeat(64))).await, unknown);
    let still = (StatusCode::CONFLICT, "frozen".to_owned());
    assert_eq!(register(&other, Some(&home)).await, still, "its token is good");
    let revoke = format!("/v1/tokens/{}", first.token_id);
    let revoked = ask(&Method::DELETE, &revoke).token(&ground.admin).at(&ground.door).await;
    assert!(revoked.status.is_success(), "{revoked:?}");
    assert_eq!(register(&other, None).await, unknown);
    assert_eq!(register(&other, Some(&"4".repeat(64))).await, unknown);
    let bank = ground.secret(Role::Agent, Some("bank")).await;
    assert_eq!(register(&bank, Some(&home)).await, unknown, "it works for another project");
    let all = ground.secret(Role::Agent, None).await;
    assert_eq!(register(&all, Some(&home)).await, unknown, "it would get more than it had");
    let (status, code) = register(&other, Some("short")).await;
    assert_eq!((status, code.as_str()), (StatusCode::UNPROCESSABLE_ENTITY, "invalid"));
    assert_eq!(register(&other, Some(&home)).await.0, StatusCode::OK);
    assert_eq!(register(&other, None).await.0, StatusCode::OK, "it is its own now");
}
