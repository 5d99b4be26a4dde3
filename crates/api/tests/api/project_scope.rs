//! A caller of one project sees nothing of another: not in lists, by id, or in refusals.

use crate::fixture::{ApiFixture, refused};
use http::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::run::QueueRun;
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{NewReject, Queue as _, ReceiveRequest};
use tidemill_testkit::interface::{Kind, at};
use tidemill_wire::feeds::ListGaps;
use tidemill_wire::projects::SetFlag;
use tidemill_wire::queues::{ListDead, Peek, ReplayDead};
use uuid::Uuid;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a request is read")
}

/// Creates one item of each kind in two projects; returns a run of each.
async fn create_items(api: &ApiFixture) -> [RunId; 2] {
    let mut runs = Vec::new();
    for (project, feed) in [("shop", "shop-gems"), ("bank", "bank-gems")] {
        let put = read(json!({"project_id": project, "endpoint": "http://127.0.0.1:9/graphql",
            "username": "u", "password_env": "FEED_PASSWORD"}));
        api.admin.put_feed(feed, &put).await.expect("a feed is added");
        let rule = read(json!({"markup": 11_000, "feed": feed}));
        api.admin.add_rule(&rule, None).await.expect("a rule is added");
        let schedule = read(json!({"cron": "0 3 * * *", "request": {"project": project, "env": "staging"}}));
        api.admin.put_schedule(&format!("{project}-nightly"), &schedule).await.expect("a schedule");
        for scope in [format!("project:{project}"), format!("feed:{feed}")] {
            let flag: SetFlag = read(json!({"flag": "paused", "scope": scope}));
            api.admin.set_flag(&flag).await.expect("a flag is set");
        }
        runs.push(api.base.queue(QueueRun::new(project, "staging"), at(0)).await);
        let store = &api.base.store;
        let messages = vec![
            NewMessage::new(WORK_ITEMS, format!("{feed}-1"), feed, json!({})),
            NewMessage::new(WORK_ITEMS, format!("{feed}-2"), feed, json!({})),
        ];
        store.send(messages, Some(at(0))).await.expect("messages are sent");
        let name = feed.to_owned();
        let write = store.write(move |mut tx| {
            Box::pin(async move {
                let reject = NewReject {
                    record_id: "record".to_owned(),
                    stage: tidemill_core::records::Stage::Map,
                    reason: "it is none".to_owned(),
                    payload: "{}".to_owned(),
                };
                tx.reject(&name, Uuid::nil(), None, &reject, Some(at(0))).await
            })
        });
        write.await.expect("a row is rejected");
    }
    let worker = WorkerId(Uuid::new_v4());
    let ask = ReceiveRequest::new(WORK_ITEMS, worker, 2);
    let taken = api.base.store.receive(ask, Some(at(0))).await.expect("messages").received;
    assert_eq!(
        taken.iter().map(|message| message.group.as_str()).collect::<std::collections::BTreeSet<_>>().len(),
        2
    );
    for message in taken {
        let killed = api.base.store.kill(message.receipt, DeadReason::Permanent, None, Some(at(1))).await;
        killed.expect("it is a dead letter");
    }
    // An item shared by all projects.
    api.admin.add_rule(&read(json!({"markup": 10_500})), None).await.expect("a rule is added");
    [runs.remove(0), runs.remove(0)]
}

/// Number of foreign items before the first own one.
const FOREIGN: usize = 60;

/// Creates dead letters and gaps of another project, and one own item of each behind them.
async fn create_items_behind(api: &ApiFixture, kind: Kind) {
    for (project, feed, count) in [("bank", "bank-gems", FOREIGN), ("shop", "shop-gems", 1)] {
        let put = read(json!({"project_id": project, "endpoint": "http://127.0.0.1:9/graphql",
            "username": "u", "password_env": "FEED_PASSWORD"}));
        api.admin.put_feed(feed, &put).await.expect("a feed is added");
        let store = &api.base.store;
        let messages =
            (0..count).map(|number| NewMessage::new(WORK_ITEMS, format!("{feed}-{number}"), feed, json!({})));
        store.send(messages.collect(), Some(at(0))).await.expect("messages are sent");
        let ask = ReceiveRequest::new(WORK_ITEMS, WorkerId(Uuid::new_v4()), count);
        for message in store.receive(ask, Some(at(0))).await.expect("messages").received {
            let killed = store.kill(message.receipt, DeadReason::Permanent, None, Some(at(1))).await;
            killed.expect("it is a dead letter");
        }
        let moment = if kind == Kind::Sqlite { "0" } else { "now()" };
        let gap = format!("('{feed}', 0, 100, {moment}, '{}', 'x', {moment})", Uuid::nil());
        let insert = format!(
            "INSERT INTO {{ops}}.feed_gaps (feed, range_from, range_to, updated_to, left_by, reason, created_at) \
             VALUES {}",
            vec![gap; count].join(", ")
        );
        api.base.plain.execute(&insert).await.expect("gaps are left");
    }
}

/// A writer that captures the log.
struct Heard(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics while it is held").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) async fn own_items_behind_foreign_ones_are_found_in_few_queries(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    create_items_behind(&api, kind).await;
    let shop = api.of_project("shop");
    let log = Arc::new(Mutex::new(Vec::new()));
    // A second subscriber makes tracing ask for every callsite, regardless of which test reaches it first.
    let beside = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let heard = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    let subscriber = subscriber.with_writer(move || Heard(heard.clone()));
    let guard = tracing::subscriber::set_default(subscriber.finish());
    let dead = shop.admin.dead_letters(WORK_ITEMS, &ListDead { after: None, limit: Some(1) }).await;
    let gaps = shop.admin.gaps(&ListGaps { limit: Some(1), ..ListGaps::default() }).await;
    drop((guard, beside));
    let (dead, gaps) = (dead.expect("dead letters"), gaps.expect("gaps"));
    assert_eq!((dead.items.len(), dead.items[0].group.as_str()), (1, "shop-gems"));
    assert_eq!((gaps.items.len(), gaps.items[0].feed.as_str()), (1, "shop-gems"));
    let more = ListGaps { limit: Some(1), after: Some(gaps.items[0].gap_id), ..ListGaps::default() };
    assert_eq!(shop.admin.gaps(&more).await.expect("gaps").items.len(), 0);
    let everything = api.admin.gaps(&ListGaps { limit: Some(100), ..ListGaps::default() }).await;
    assert_eq!(everything.expect("gaps").items.len(), FOREIGN + 1);
    // SQLite runs statements on its own thread, which the subscriber does not cover.
    if kind == Kind::Postgres {
        let log = log.lock().expect("the log is read");
        let queries = String::from_utf8_lossy(&log).matches("sqlx::query").count();
        assert!((1..30).contains(&queries), "{queries} queries");
    }
}

pub(crate) async fn project_caller_sees_nothing_of_another_project(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let [_, foreign] = create_items(&api).await;
    let shop = api.of_project("shop");
    for path in [
        "/v1/projects",
        "/v1/flags",
        "/v1/schedules",
        "/v1/feeds",
        "/v1/syncs",
        "/v1/rejects",
        "/v1/gaps",
        "/v1/rules",
        "/v1/queues",
        "/v1/queues/work-items",
        "/v1/queues/work-items/messages",
        "/v1/queues/work-items/dead",
        "/v1/runs",
        "/v1/stats",
    ] {
        let (status, answer) = shop.raw(Method::GET, path, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        let text = answer.to_string();
        assert!(
            !text.contains("bank") && !text.contains(foreign.as_str()),
            "{path} tells of another: {text}"
        );
    }
    let rules = shop.admin.rules().await.expect("rules").items;
    assert_eq!(rules.len(), 1, "its own, and none that names no feed");
    assert_eq!(shop.admin.rejects(&read(json!({}))).await.expect("rejects").items.len(), 1);
    let line = shop.admin.queue(WORK_ITEMS).await.expect("a queue");
    assert_eq!((line.depth.waiting, line.depth.dead), (1, 1));
    assert_eq!(shop.admin.peek(WORK_ITEMS, Peek { limit: Some(1) }).await.expect("a look").items.len(), 1);
    let dead = shop.admin.dead_letters(WORK_ITEMS, &ListDead { after: None, limit: Some(1) }).await;
    assert_eq!(dead.expect("dead letters").items[0].group, "shop-gems");

    // It replays and replaces only its own items.
    let theirs = ReplayDead { ids: vec!["bank-gems-1".to_owned(), "bank-gems-2".to_owned()], all: false };
    assert_eq!(shop.admin.replay(WORK_ITEMS, &theirs).await.expect("nothing is sent").replayed, 0);
    let all = ReplayDead { ids: Vec::new(), all: true };
    assert_eq!(shop.admin.replay(WORK_ITEMS, &all).await.expect("its own is sent").replayed, 1);
    assert_eq!(api.admin.queue(WORK_ITEMS).await.expect("a queue").depth.dead, 1);
    let import = read(json!({"rules": [{"markup": 1, "feed": "shop-gems"}], "replace": true}));
    shop.admin.import_rules(&import, None).await.expect("its own rules are replaced");
    // Its own rule, the other project's, the shared one, and the one of a new database.
    assert_eq!(api.admin.rules().await.expect("rules").items.len(), 4);
}

pub(crate) async fn foreign_items_answer_like_unknown_ones(kind: Kind) {
    let api = ApiFixture::open(kind).await;
    let [_, foreign] = create_items(&api).await;
    let shop = api.of_project("shop");
    let theirs = api.admin.rules().await.expect("rules").items;
    let theirs =
        theirs.iter().find(|rule| rule.feed.as_deref() == Some("bank-gems")).expect("a rule").rule_id;
    let unknown = "run-018f3c5e-0000-7000-8000-000000000000";
    let rule = theirs.to_string();
    let cases = [
        (Method::GET, "/v1/runs/{}", foreign.as_str(), unknown, ""),
        (Method::GET, "/v1/projects/{}", "bank", "nobody", ""),
        (Method::POST, "/v1/projects/{}/pause", "bank", "nobody", ""),
        (Method::GET, "/v1/schedules/{}", "bank-nightly", "nobody", ""),
        (Method::DELETE, "/v1/schedules/{}", "bank-nightly", "nobody", ""),
        (Method::GET, "/v1/feeds/{}", "bank-gems", "nobody", ""),
        (Method::POST, "/v1/feeds/{}/syncs", "bank-gems", "nobody", ""),
        (Method::POST, "/v1/feeds/{}/resume", "bank-gems", "nobody", ""),
        (Method::GET, "/v1/feeds/{}/watermark", "bank-gems", "nobody", ""),
        (Method::GET, "/v1/syncs?feed={}", "bank-gems", "nobody", ""),
        (Method::GET, "/v1/rejects?feed={}", "bank-gems", "nobody", ""),
        (Method::GET, "/v1/gaps?feed={}", "bank-gems", "nobody", ""),
        (Method::GET, "/v1/runs?project={}", "bank", "nobody", ""),
        (Method::DELETE, "/v1/rules/{}", &rule, "987654", ""),
        (Method::DELETE, "/v1/flags?flag=paused&scope=feed:{}", "bank-gems", "nobody", ""),
        (Method::POST, "/v1/rules", "bank-gems", "nobody", "{\"markup\":1,\"feed\":\"{}\"}"),
        (Method::POST, "/v1/rules/test", "bank-gems", "nobody", "{\"price\":1,\"points\":1,\"feed\":\"{}\"}"),
        (Method::POST, "/v1/runs", "bank", "nobody", "{\"project\":\"{}\",\"env\":\"staging\"}"),
    ];
    for (method, path, theirs, nobody, body) in cases {
        let (status, answer) =
            shop.raw(method.clone(), &path.replace("{}", theirs), &body.replace("{}", theirs)).await;
        let (expected, other) =
            shop.raw(method, &path.replace("{}", nobody), &body.replace("{}", nobody)).await;
        assert_eq!((status.as_u16(), expected), (404, status), "{path}: {answer}");
        let (one, other) = (answer.to_string().replace(theirs, "*"), other.to_string().replace(nobody, "*"));
        assert_eq!(one, other, "{path}");
    }
    // Names are shared, so a taken name is refused without details. Shared items cannot be changed by project callers.
    let schedule = read(json!({"cron": "0 3 * * *", "request": {"project": "shop", "env": "staging"}}));
    let taken = refused(shop.admin.put_schedule("bank-nightly", &schedule).await);
    assert_eq!(taken, (409, "name_taken".to_owned()));
    let lane: SetFlag = read(json!({"flag": "paused", "scope": "lane:ops"}));
    assert_eq!(refused(shop.admin.set_flag(&lane).await), (403, "forbidden".to_owned()));
    let everybody = read(json!({"markup": 1}));
    assert_eq!(refused(shop.admin.add_rule(&everybody, None).await), (403, "forbidden".to_owned()));
    let project = read(json!({"environments": ["dev"]}));
    assert_eq!(refused(shop.admin.put_project("another", &project).await), (403, "forbidden".to_owned()));
}
