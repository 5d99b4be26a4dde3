//! What a caller of one project sees of another: nothing, by list, by id, and by the words of a refusal.

use crate::doorway::{Doorway, refused};
use http::Method;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tidemill_core::queue::{DeadReason, NewMessage, WORK_ITEMS};
use tidemill_core::run::QueueRun;
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{NewReject, Queue as _, Receive};
use tidemill_testkit::door::{Kind, at};
use tidemill_wire::feeds::ListGaps;
use tidemill_wire::projects::SetFlag;
use tidemill_wire::queues::{ListDead, Peek, ReplayDead};
use uuid::Uuid;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a request is read")
}

/// One of everything for each of two projects; the runs of both.
async fn furnish(door: &Doorway) -> [RunId; 2] {
    let mut runs = Vec::new();
    for (project, feed) in [("shop", "shop-gems"), ("bank", "bank-gems")] {
        let put = read(json!({"project_id": project, "endpoint": "http://127.0.0.1:9/graphql",
            "username": "u", "password_env": "FEED_PASSWORD"}));
        door.admin.put_feed(feed, &put).await.expect("a feed is added");
        let rule = read(json!({"markup": 11_000, "feed": feed}));
        door.admin.add_rule(&rule, None).await.expect("a rule is added");
        let schedule = read(json!({"cron": "0 3 * * *", "request": {"project": project, "env": "staging"}}));
        door.admin.put_schedule(&format!("{project}-nightly"), &schedule).await.expect("a schedule");
        for scope in [format!("project:{project}"), format!("feed:{feed}")] {
            let flag: SetFlag = read(json!({"flag": "paused", "scope": scope}));
            door.admin.set_flag(&flag).await.expect("a flag is set");
        }
        runs.push(door.stage.queue(QueueRun::new(project, "staging"), at(0)).await);
        let store = &door.stage.store;
        let messages = vec![
            NewMessage::new(WORK_ITEMS, format!("{feed}-1"), feed, json!({})),
            NewMessage::new(WORK_ITEMS, format!("{feed}-2"), feed, json!({})),
        ];
        store.send(messages, Some(at(0))).await.expect("messages are sent");
        let name = feed.to_owned();
        let write = store.write(move |mut tx| {
            Box::pin(async move {
                let reject = NewReject {
                    stone_id: "stone".to_owned(),
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
    let ask = Receive::new(WORK_ITEMS, worker, 2);
    let taken = door.stage.store.receive(ask, Some(at(0))).await.expect("messages").received;
    assert_eq!(
        taken.iter().map(|message| message.group.as_str()).collect::<std::collections::BTreeSet<_>>().len(),
        2
    );
    for message in taken {
        let killed = door.stage.store.kill(message.receipt, DeadReason::Permanent, None, Some(at(1))).await;
        killed.expect("it is a dead letter");
    }
    // What belongs to everybody.
    door.admin.add_rule(&read(json!({"markup": 10_500})), None).await.expect("a rule is added");
    [runs.remove(0), runs.remove(0)]
}

/// What of others lies before the first that is one's own.
const FOREIGN: usize = 60;

/// So many dead letters and gaps of another project, and behind them one of each of its own.
async fn furnish_behind(door: &Doorway, kind: Kind) {
    for (project, feed, count) in [("bank", "bank-gems", FOREIGN), ("shop", "shop-gems", 1)] {
        let put = read(json!({"project_id": project, "endpoint": "http://127.0.0.1:9/graphql",
            "username": "u", "password_env": "FEED_PASSWORD"}));
        door.admin.put_feed(feed, &put).await.expect("a feed is added");
        let store = &door.stage.store;
        let messages =
            (0..count).map(|number| NewMessage::new(WORK_ITEMS, format!("{feed}-{number}"), feed, json!({})));
        store.send(messages.collect(), Some(at(0))).await.expect("messages are sent");
        let ask = Receive::new(WORK_ITEMS, WorkerId(Uuid::new_v4()), count);
        for message in store.receive(ask, Some(at(0))).await.expect("messages").received {
            let killed = store.kill(message.receipt, DeadReason::Permanent, None, Some(at(1))).await;
            killed.expect("it is a dead letter");
        }
        let moment = if kind == Kind::Sqlite { "0" } else { "now()" };
        let gap = format!("('{feed}', 0, 100, {moment}, '{}', 'x', {moment})", Uuid::nil());
        let insert = format!(
            "INSERT INTO {{ops}}.feed_gaps (feed, price_from, price_to, updated_to, left_by, reason, created_at) \
             VALUES {}",
            vec![gap; count].join(", ")
        );
        door.stage.plain.execute(&insert).await.expect("gaps are left");
    }
}

/// Keeps what is logged.
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

pub(crate) async fn what_is_own_is_found_behind_what_is_foreign_without_a_query_for_each(kind: Kind) {
    let door = Doorway::open(kind).await;
    furnish_behind(&door, kind).await;
    let shop = door.of_project("shop");
    let log = Arc::new(Mutex::new(Vec::new()));
    // Beside another subscriber every place in the code is asked, whichever test reaches it first.
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
    let everything = door.admin.gaps(&ListGaps { limit: Some(100), ..ListGaps::default() }).await;
    assert_eq!(everything.expect("gaps").items.len(), FOREIGN + 1);
    // SQLite answers on a thread of its own, which nobody listens to here.
    if kind == Kind::Postgres {
        let log = log.lock().expect("the log is read");
        let queries = String::from_utf8_lossy(&log).matches("sqlx::query").count();
        assert!((1..30).contains(&queries), "{queries} queries");
    }
}

pub(crate) async fn a_caller_of_one_project_sees_nothing_of_another(kind: Kind) {
    let door = Doorway::open(kind).await;
    let [_, foreign] = furnish(&door).await;
    let shop = door.of_project("shop");
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

    // What it replays and replaces is its own.
    let theirs = ReplayDead { ids: vec!["bank-gems-1".to_owned(), "bank-gems-2".to_owned()], all: false };
    assert_eq!(shop.admin.replay(WORK_ITEMS, &theirs).await.expect("nothing is sent").replayed, 0);
    let all = ReplayDead { ids: Vec::new(), all: true };
    assert_eq!(shop.admin.replay(WORK_ITEMS, &all).await.expect("its own is sent").replayed, 1);
    assert_eq!(door.admin.queue(WORK_ITEMS).await.expect("a queue").depth.dead, 1);
    let import = read(json!({"rules": [{"markup": 1, "feed": "shop-gems"}], "replace": true}));
    shop.admin.import_rules(&import, None).await.expect("its own rules are replaced");
    // Its own, the other project's, the one of everybody, and the one that a new database has.
    assert_eq!(door.admin.rules().await.expect("rules").items.len(), 4);
}

pub(crate) async fn what_is_foreign_reads_as_what_does_not_exist(kind: Kind) {
    let door = Doorway::open(kind).await;
    let [_, foreign] = furnish(&door).await;
    let shop = door.of_project("shop");
    let theirs = door.admin.rules().await.expect("rules").items;
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
    // Names are shared: that one is taken is all that is told. What everybody shares is not theirs to change.
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
