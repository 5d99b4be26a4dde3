//! The reach of the server: definitions of projects use only what the operator listed, at the API and in every role.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use tidemill_api::access::Access;
use tidemill_api::{App, router};
use tidemill_core::access::{NewToken, Role};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::reach::{Reach, ReachKind, ReachList};
use tidemill_core::run::RunState;
use tidemill_core::signature::sign;
use tidemill_engine::sync::{PagerOptions, Syncs};
use tidemill_store::EventPage;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};
use tower::ServiceExt as _;

/// A variable of every test process. The tests never set one, because the environment is shared.
const VARIABLE: &str = "CARGO_PKG_NAME";
/// A variable that no test process has.
const UNSET: &str = "TIDEMILL_TEST_IS_NEVER_SET";
const PROJECT: &str = "default";

tidemill_testkit::on_both! {
    unlisted_uses_of_a_project_are_refused,
    unlisted_parts_of_a_definition_are_refused,
    listed_feed_of_a_project_syncs_and_copies,
    role_with_narrower_lists_stops_only_the_project_feed,
    operators_feed_keeps_its_author_until_its_reach_changes,
    hook_secret_of_a_project_must_be_listed,
}

/// An API that requires tokens, with lists, on the database of a fixture.
struct ReachFixture {
    base: SyncFixture,
    syncs: Syncs,
    interface: Router,
    /// Token of an admin of one project.
    admin: String,
}

impl ReachFixture {
    async fn open(kind: Kind, lists: impl FnOnce(&SyncFixture) -> ReachList) -> Self {
        let base = SyncFixture::open(kind, 120).await;
        let mut reach = Reach::default();
        reach.projects.insert(PROJECT.to_owned(), lists(&base));
        let syncs = with_reach(&base, reach);
        let new = NewToken {
            name: "bob".to_owned(),
            role: Role::Admin,
            projects: ProjectSet::of(Some(PROJECT)),
            expires_in_secs: None,
        };
        let (_, secret) = syncs.engine().create_token(new, "ann").await.expect("a token is made");
        let interface = router(App::new(syncs.clone(), Access::Tokens));
        Self { base, syncs, interface, admin: secret.reveal().to_owned() }
    }

    async fn put(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::put(path)
            .header("authorization", format!("Bearer {}", self.admin))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .expect("a request");
        self.send(request).await
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answer = self.interface.clone().oneshot(request).await.expect("the API answers");
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.expect("the answer is read");
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Puts a feed that must be refused; returns the message and the hint.
    async fn refused(&self, feed: &Value) -> (String, String) {
        let (status, answer) = self.put("/v1/feeds/theirs", feed).await;
        assert_eq!(
            (status, &answer["code"]),
            (StatusCode::FORBIDDEN, &json!("out_of_reach")),
            "{feed} {answer}"
        );
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        (text("message"), text("hint"))
    }
}

fn with_reach(base: &SyncFixture, reach: Reach) -> Syncs {
    Syncs::new(base.syncs.engine().with_reach(reach), base.syncs.settings().clone())
}

fn list(entries: &[(ReachKind, &str)]) -> ReachList {
    let mut list = ReachList::default();
    for (kind, entry) in entries {
        list.set(*kind, [*entry]).expect("an entry is valid");
    }
    list
}

/// Returns the lists that let a project use the supplier of a fixture.
fn supplier_list(base: &SyncFixture) -> ReachList {
    list(&[(ReachKind::Environment, VARIABLE), (ReachKind::Hosts, &authority(&base.supplier.endpoint))])
}

/// Returns host and port of an endpoint.
fn authority(endpoint: &str) -> String {
    let rest = endpoint.strip_prefix("http://").unwrap_or(endpoint);
    rest.split('/').next().unwrap_or_default().to_owned()
}

fn feed(endpoint: &str, variable: &str) -> Value {
    json!({"project_id": PROJECT, "endpoint": endpoint, "username": "u", "password_env": variable})
}

/// Checks that a listener got no connection.
fn check_untouched(listener: &TcpListener) {
    listener.set_nonblocking(true).expect("a listener can be polled");
    let accepted = listener.accept();
    assert!(accepted.is_err(), "{accepted:?}");
}

async fn unlisted_uses_of_a_project_are_refused(kind: Kind) {
    let fixture = ReachFixture::open(kind, |_| {
        list(&[
            (ReachKind::Environment, VARIABLE),
            (ReachKind::Hosts, "*.example.com"),
            (ReachKind::Destinations, "file:///var/lib/tidemill/watermarks/"),
        ])
    })
    .await;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address: SocketAddr = listener.local_addr().expect("a bound address");
    let (good, port) = ("https://api.example.com/graphql", address.port());
    for endpoint in [
        "https://attacker.example/graphql".to_owned(),
        "https://api.example.com.attacker.example/graphql".to_owned(),
        format!("http://127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://0.0.0.0/".to_owned(),
    ] {
        let (message, hint) = fixture.refused(&feed(&endpoint, VARIABLE)).await;
        assert!(message.contains("host `"), "{message}");
        assert!(hint.contains("reach.project.default.hosts"), "{hint}");
    }
    // The answer depends on the lists alone: a variable that is set looks like one that is not.
    let (set, hint) = fixture.refused(&feed(good, "PATH")).await;
    let (unset, _) = fixture.refused(&feed(good, UNSET)).await;
    assert_eq!(set.replace("PATH", "…"), unset.replace(UNSET, "…"));
    assert!(hint.contains("`PATH` to reach.environment or reach.project.default.environment"), "{hint}");
    for url in [
        "/etc/cron.d/job",
        "file:///var/lib/tidemill/other.json",
        "/var/lib/tidemill/watermarks/../other.json",
        "s3://bucket/w.json",
    ] {
        let mut copied = feed(good, VARIABLE);
        copied["copy_url"] = json!(url);
        let (message, hint) = fixture.refused(&copied).await;
        assert!(message.contains(&format!("destination `{url}`")), "{message}");
        assert!(hint.contains("reach.destinations"), "{hint}");
    }
    let stored = fixture.base.base.store.feeds().await.expect("feeds are read");
    assert_eq!(stored.len(), 1, "no refused feed is stored");
    check_untouched(&listener);
    let mut copied = feed(good, VARIABLE);
    copied["copy_url"] = json!("/var/lib/tidemill/watermarks/theirs.json");
    let (status, answer) = fixture.put("/v1/feeds/theirs", &copied).await;
    assert_eq!((status, &answer["defined_by"]), (StatusCode::OK, &json!("project")), "{answer}");
    fixture.base.base.close().await;
}

async fn unlisted_parts_of_a_definition_are_refused(kind: Kind) {
    let fixture = ReachFixture::open(kind, |_| {
        list(&[
            (ReachKind::Environment, VARIABLE),
            (ReachKind::Hosts, "api.example.com"),
            (ReachKind::Tables, "public.orders"),
        ])
    })
    .await;
    let definition = |host: &str, variable: &str, table: &str| {
        let text = format!(
            "version: 1\nfeed: theirs\n\
             client: {{base_url: 'https://{host}', auth: {{type: bearer, token: {{env: {variable}}}}}}}\n\
             resource: {{path: /orders, primary_key: id, data_selector: items}}\n\
             paginator: {{type: single_page}}\n\
             into: {{table: {table}, primary_key: id, columns: {{id: {{path: id, type: text, nullable: false}}}}}}\n"
        );
        json!({"project_id": PROJECT, "kind": "rest", "definition": text})
    };
    for (host, variable, table, refused) in [
        ("attacker.example", VARIABLE, "public.orders", &["host `attacker.example:443`"][..]),
        ("api.example.com", UNSET, "public.orders", &["environment variable `TIDEMILL_TEST_IS_NEVER_SET`"]),
        ("api.example.com", VARIABLE, "public.customers", &["table `public.customers`"]),
        (
            "attacker.example",
            UNSET,
            "shop.orders",
            &["host `", "environment variable `", "table `shop.orders`"],
        ),
    ] {
        let (message, hint) = fixture.refused(&definition(host, variable, table)).await;
        assert!(refused.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(hint.matches("reach.project.default.").count(), refused.len(), "{hint}");
        let request = Request::post("/v1/feeds/theirs/plan")
            .header("authorization", format!("Bearer {}", fixture.admin))
            .header("content-type", "application/json")
            .body(Body::from(definition(host, variable, table).to_string()))
            .expect("a request");
        let (status, answer) = fixture.send(request).await;
        assert_eq!((status, &answer["message"]), (StatusCode::FORBIDDEN, &json!(message)), "{answer}");
    }
    let stored = fixture.base.base.store.feeds().await.expect("feeds are read");
    assert_eq!(stored.len(), 1, "no refused feed is stored");
    let listed = definition("api.example.com", VARIABLE, "public.orders");
    let (status, answer) = fixture.put("/v1/feeds/theirs", &listed).await;
    assert_eq!((status, &answer["defined_by"]), (StatusCode::OK, &json!("project")), "{answer}");
    assert_eq!((&answer["kind"], &answer["endpoint"]), (&json!("rest"), &json!("https://api.example.com")));
    fixture.base.base.close().await;
}

async fn listed_feed_of_a_project_syncs_and_copies(kind: Kind) {
    let directory = tempfile::tempdir().expect("a directory");
    let below = format!("file://{}/", directory.path().display());
    let fixture = ReachFixture::open(kind, |base| {
        let mut list = supplier_list(base);
        list.set(ReachKind::Destinations, [below.as_str()]).expect("an entry is valid");
        list
    })
    .await;
    let copy = directory.path().join("theirs.json");
    let mut theirs = feed(&fixture.base.supplier.endpoint, VARIABLE);
    theirs["copy_url"] = json!(copy);
    let (status, answer) = fixture.put("/v1/feeds/theirs", &theirs).await;
    assert_eq!((status, &answer["defined_by"]), (StatusCode::OK, &json!("project")), "{answer}");
    let roles = all_roles(&fixture.syncs);
    let run = fixture.syncs.start("theirs", true, None).await.expect("a sync is queued").run_id;
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert!(fixture.base.record(&run).await.consolidation_processed > 0);
    assert_eq!(fixture.syncs.copy_watermarks().await.expect("watermarks are copied"), 1);
    assert!(copy.exists());
    roles.stop().await;
    // A process without the destination in its lists writes nothing and says so on the feed.
    std::fs::remove_file(&copy).expect("the copy is removed");
    let narrow = with_reach(&fixture.base, Reach::default());
    assert_eq!(narrow.copy_watermarks().await.expect("watermarks are copied"), 0);
    let record = fixture.base.base.store.feed("theirs".to_owned()).await.expect("the feed is read");
    assert!(record.copy_error.is_some_and(|error| error.contains("reach.destinations")));
    assert!(!copy.exists());
    fixture.base.base.close().await;
}

async fn role_with_narrower_lists_stops_only_the_project_feed(kind: Kind) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("a bound address");
    let fixture = ReachFixture::open(kind, |_| {
        list(&[(ReachKind::Environment, VARIABLE), (ReachKind::Hosts, &address.to_string())])
    })
    .await;
    let (status, answer) =
        fixture.put("/v1/feeds/theirs", &feed(&format!("http://{address}/"), VARIABLE)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let narrow = with_reach(&fixture.base, Reach::default());
    let roles = all_roles(&narrow);
    let theirs = narrow.start("theirs", true, None).await.expect("a sync is queued").run_id;
    let ours = narrow.start(FEED, true, None).await.expect("a sync is queued").run_id;
    let (theirs, ours) = (fixture.base.settle(&theirs).await, fixture.base.settle(&ours).await);
    assert_eq!(ours.status, RunState::Success, "{}", ours.metadata);
    assert_eq!(theirs.status, RunState::Failed);
    let reason = theirs.metadata["error"].as_str().unwrap_or_default();
    assert!(reason.contains("feed `theirs` is out of reach"), "{reason}");
    assert!(reason.contains("reach.project.default.hosts"), "{reason}");
    let store = &fixture.base.base.store;
    let record = store.feed("theirs".to_owned()).await.expect("the feed is read");
    let refusal = record.refusal.expect("the refusal is on the feed");
    let why = narrow.engine().why(&theirs.run_id).await.expect("the run is explained");
    assert!(why.sentence().contains("is out of reach"), "{}", why.sentence());
    let events = store
        .events(theirs.run_id.clone(), EventPage { after: 0, limit: 100 })
        .await
        .expect("events are read");
    assert!(events.iter().any(|event| event.message.contains("is out of reach")), "{events:?}");
    assert!(refusal.contains(VARIABLE), "{refusal}");
    check_untouched(&listener);
    roles.stop().await;
    fixture.base.base.close().await;
}

async fn operators_feed_keeps_its_author_until_its_reach_changes(kind: Kind) {
    let fixture = ReachFixture::open(kind, supplier_list).await;
    let (store, endpoint) = (&fixture.base.base.store, fixture.base.supplier.endpoint.clone());
    let path = format!("/v1/feeds/{FEED}");
    let mut same = json!({"project_id": PROJECT, "endpoint": endpoint, "username": "tester",
        "password_env": "PATH", "rate": 3});
    let (status, answer) = fixture.put(&path, &same).await;
    assert_eq!((status, &answer["defined_by"]), (StatusCode::OK, &json!("operator")), "{answer}");
    assert_eq!(answer["rate"], 3);
    // Each of these changes where the operator's password goes, or what is written.
    for (field, value) in [
        ("endpoint", json!("https://attacker.example/")),
        ("username", json!("other")),
        ("password_env", json!("HOME")),
        ("copy_url", json!("/tmp/w.json")),
        ("settings", json!({"labgrown": true})),
    ] {
        let mut changed = same.clone();
        changed[field] = value;
        let (status, answer) = fixture.put(&path, &changed).await;
        assert_eq!(
            (status, &answer["code"]),
            (StatusCode::FORBIDDEN, &json!("out_of_reach")),
            "{field} {answer}"
        );
    }
    let record = store.feed(FEED.to_owned()).await.expect("the feed is read");
    assert_eq!((record.feed.endpoint.as_str(), record.feed.rate), (endpoint.as_str(), 3));
    same["password_env"] = json!(VARIABLE);
    let (status, answer) = fixture.put(&path, &same).await;
    assert_eq!((status, &answer["defined_by"]), (StatusCode::OK, &json!("project")), "{answer}");
    // The operator takes the definition over.
    fixture.base.add_feed(FEED, &endpoint).await;
    let record = store.feed(FEED.to_owned()).await.expect("the feed is read");
    assert_eq!(record.feed.defined_by.as_str(), "operator");
    fixture.base.base.close().await;
}

async fn hook_secret_of_a_project_must_be_listed(kind: Kind) {
    // A password of feeds is not a secret of hooks.
    let fixture = ReachFixture::open(kind, |_| {
        list(&[(ReachKind::Environment, "PATH"), (ReachKind::HookSecrets, VARIABLE)])
    })
    .await;
    let hook = |variable: &str| json!({"project": PROJECT, "kind": "generic", "secret_env": variable});
    for variable in ["PATH", UNSET] {
        let (status, answer) = fixture.put("/v1/hooks/theirs", &hook(variable)).await;
        assert_eq!((status, &answer["code"]), (StatusCode::FORBIDDEN, &json!("out_of_reach")), "{answer}");
        let hint = answer["hint"].as_str().unwrap_or_default();
        assert!(hint.contains("reach.project.default.hook-secrets"), "{hint}");
    }
    let (status, answer) = fixture.put("/v1/hooks/theirs", &hook(VARIABLE)).await;
    assert_eq!((status, &answer["defined_by"]), (StatusCode::OK, &json!("project")), "{answer}");
    let secret = std::env::var(VARIABLE).expect("cargo sets it");
    let now = fixture.base.base.store.now(None).await.expect("the time is read").timestamp().to_string();
    let body = json!({"env": "sync"}).to_string();
    let signature = sign(secret.as_bytes(), &[now.as_bytes(), b".", body.as_bytes()]);
    let delivery = || {
        Request::post("/v1/hooks/theirs")
            .header("x-tidemill-timestamp", &now)
            .header("x-tidemill-signature", format!("v1={signature}"))
            .body(Body::from(body.clone()))
            .expect("a request")
    };
    // Another server of the same database, whose lists lack the secret, does not read it.
    let narrow = with_reach(&fixture.base, Reach::default());
    let elsewhere = router(App::new(narrow, Access::Tokens));
    let answer = elsewhere.oneshot(delivery()).await.expect("the API answers");
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let (status, answer) = fixture.send(delivery()).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    fixture.base.base.close().await;
}

/// Starts one of each role with the lists of these syncs.
fn all_roles(syncs: &Syncs) -> Roles {
    let mut roles = Roles::none();
    roles.scheduler(syncs);
    roles.worker(syncs, PagerOptions::default());
    roles.consolidator(syncs);
    roles
}
