//! The queries with which KEDA scales workers, as a reader runs them: they are read from the Kubernetes files.

use crate::{Access, Session};
use chrono::TimeDelta;
use serde_json::json;
use sqlx::Row as _;
use tidemill_core::feed::Feed;
use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::queue::{CONSOLIDATE, NewMessage, WORK_ITEMS};
use tidemill_core::reach::DefinedBy;
use tidemill_core::run::QueueRun;
use tidemill_core::sync::SYNC_LABEL;
use tidemill_core::{Timestamp, WorkerId};
use tidemill_store::{Queue as _, ReceiveRequest};
use tidemill_testkit::interface::{at, request};
use uuid::Uuid;

const FILE: &str = include_str!("../../../../deploy/kustomize/keda/postgresql/scaled-objects.yaml");

/// Returns the query of a ScaledObject: the folded lines below `query: >-`.
fn query(name: &str) -> String {
    let mut documents = FILE.split("\n---\n");
    let document = documents.find(|text| text.contains(&format!("\n  name: {name}\n"))).unwrap();
    let (_, rest) = document.split_once("query: >-\n").unwrap();
    rest.lines()
        .take_while(|line| line.starts_with("          "))
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A database, and a login that is only a reader.
struct Scaling {
    access: Access,
    reader: Session,
}

impl Scaling {
    async fn open() -> Self {
        let mut access = Access::open().await;
        let role = access.names.reader.clone();
        let reader = access.login("keda", &[&role]).await;
        Self { access, reader }
    }

    /// Returns the count of a query at a time.
    async fn count(&mut self, name: &str, now: Timestamp) -> String {
        let text = query(name);
        // As it is written, with the clock of the server.
        self.reader.text(&text).await;
        self.reader.text(&text.replace("now()", &format!("'{}'::timestamptz", now.to_rfc3339()))).await
    }

    async fn work(&mut self, now: Timestamp) -> String {
        self.count("tidemill-work", now).await
    }

    async fn worker(&mut self, now: Timestamp) -> String {
        self.count("tidemill-worker", now).await
    }

    async fn queue(&self, request: QueueRun) {
        self.access.fixture.queue(request, at(0)).await;
    }

    async fn send(&self, queue: &str, id: &str, delay_secs: i64) {
        let mut message = NewMessage::new(queue, id, "nivoda", json!({}));
        message.delay = TimeDelta::seconds(delay_secs);
        self.access.fixture.store.send(vec![message], Some(at(0))).await.unwrap();
    }

    async fn pause(&self, scope: &str, until_at: Option<Timestamp>) {
        let flag = Flag {
            flag: FlagName::Paused,
            scope: scope.to_owned(),
            note: None,
            since: at(0),
            until_at,
            set_by: None,
            source: FlagSource::Manual,
        };
        self.access.fixture.store.set_flag(flag).await.unwrap();
    }

    async fn resume(&self, scope: &str) {
        self.access.fixture.store.clear_flag(FlagName::Paused, scope.to_owned()).await.unwrap();
    }

    async fn add_feed(&self) {
        let feed = Feed {
            feed: "nivoda".to_owned(),
            project_id: "shop".to_owned(),
            kind: "nivoda".to_owned(),
            endpoint: "http://127.0.0.1:9".to_owned(),
            username: None,
            password_env: None,
            rate: 1,
            settings: json!({}),
            defined_by: DefinedBy::Operator,
            created_at: at(0),
        };
        let store = &self.access.fixture.store;
        let put =
            store.write(move |mut tx| Box::pin(async move { tx.put_feed(&feed, None, Some(at(0))).await }));
        assert!(put.await.unwrap());
    }
}

#[tokio::test]
async fn delayed_run_scales_work_from_zero_when_it_is_due() {
    let mut scaling = Scaling::open().await;
    assert_eq!(scaling.work(at(0)).await, "0");
    scaling.queue(QueueRun { available_at: Some(at(60)), ..request() }).await;
    assert_eq!(scaling.work(at(59)).await, "0");
    assert_eq!(scaling.work(at(60)).await, "1");
}

#[tokio::test]
async fn run_counts_until_it_ends() {
    let mut scaling = Scaling::open().await;
    scaling.queue(request()).await;
    scaling.queue(request()).await;
    assert_eq!(scaling.work(at(1)).await, "2");
    let fixture = scaling.access.fixture.clone();
    let claim = fixture.claim("pod-1", at(1)).await.unwrap();
    assert_eq!(scaling.work(at(2)).await, "2");
    fixture.start(&claim, "pod-1", at(2)).await;
    assert_eq!(scaling.work(at(3)).await, "2");
    fixture.succeed(&claim.run_id, at(3)).await;
    assert_eq!(scaling.work(at(4)).await, "1");
}

#[tokio::test]
async fn runs_of_other_lanes_and_labels_do_not_scale_work() {
    let mut scaling = Scaling::open().await;
    scaling.queue(QueueRun { labels: vec!["gpu".to_owned()], ..request() }).await;
    scaling.queue(QueueRun { labels: vec![SYNC_LABEL.to_owned()], ..request() }).await;
    assert_eq!(scaling.work(at(1)).await, "0");
    scaling.queue(request()).await;
    assert_eq!(scaling.work(at(1)).await, "1");
    let mut superuser = scaling.access.superuser().await;
    superuser.rows("UPDATE ops.runs SET lane = 'graph', gate = 'key' RETURNING run_id").await;
    assert_eq!(scaling.work(at(1)).await, "0");
}

#[tokio::test]
async fn paused_runs_do_not_scale_work_until_the_pause_ends() {
    let mut scaling = Scaling::open().await;
    scaling.queue(request()).await;
    for scope in ["lane:ops", "project:shop"] {
        scaling.pause(scope, Some(at(100))).await;
        assert_eq!(scaling.work(at(99)).await, "0", "{scope}");
        assert_eq!(scaling.work(at(100)).await, "1", "{scope}");
        scaling.resume(scope).await;
    }
    scaling.pause("lane:sync", None).await;
    assert_eq!(scaling.work(at(1)).await, "1");
    // Commands that run continue.
    scaling.access.fixture.claim("pod-1", at(2)).await.unwrap();
    scaling.pause("lane:ops", None).await;
    assert_eq!(scaling.work(at(3)).await, "1");
}

#[tokio::test]
async fn waiting_and_held_messages_scale_workers() {
    let mut scaling = Scaling::open().await;
    scaling.send(WORK_ITEMS, "one", 0).await;
    scaling.send(WORK_ITEMS, "two", 0).await;
    scaling.send(WORK_ITEMS, "later", 60).await;
    scaling.send(CONSOLIDATE, "other", 0).await;
    assert_eq!(scaling.worker(at(1)).await, "2");
    assert_eq!(scaling.worker(at(60)).await, "3");
    let store = scaling.access.fixture.store.clone();
    let ask = ReceiveRequest::new(WORK_ITEMS, WorkerId(Uuid::new_v4()), 10);
    let held = store.receive(ask, Some(at(1))).await.unwrap().received;
    assert_eq!(held.len(), 2);
    assert_eq!(scaling.worker(at(2)).await, "2");
    store.complete(vec![held[0].receipt.clone()], Some(at(2))).await.unwrap();
    assert_eq!(scaling.worker(at(3)).await, "1");
    // The lock expires: the message can be received again.
    assert_eq!(scaling.worker(at(200)).await, "2");
}

#[tokio::test]
async fn messages_of_paused_feeds_do_not_scale_workers() {
    let mut scaling = Scaling::open().await;
    scaling.add_feed().await;
    scaling.send(WORK_ITEMS, "one", 0).await;
    for scope in ["lane:sync", "feed:nivoda", "project:shop"] {
        assert_eq!(scaling.worker(at(1)).await, "1", "{scope}");
        scaling.pause(scope, Some(at(50))).await;
        assert_eq!(scaling.worker(at(1)).await, "0", "{scope}");
        assert_eq!(scaling.worker(at(50)).await, "1", "{scope}");
        scaling.resume(scope).await;
    }
}

#[tokio::test]
async fn waiting_and_held_syncs_scale_consolidators() {
    let mut scaling = Scaling::open().await;
    scaling.send(CONSOLIDATE, "one", 0).await;
    scaling.send(CONSOLIDATE, "partial", 300).await;
    scaling.send(WORK_ITEMS, "other", 0).await;
    assert_eq!(scaling.count("tidemill-consolidator", at(1)).await, "1");
    assert_eq!(scaling.count("tidemill-consolidator", at(300)).await, "2");
    let ask = ReceiveRequest::new(CONSOLIDATE, WorkerId(Uuid::new_v4()), 10);
    scaling.access.fixture.store.receive(ask, Some(at(1))).await.unwrap();
    assert_eq!(scaling.count("tidemill-consolidator", at(2)).await, "1");
}

/// KEDA runs the queries every few seconds, so they must not read ended runs and messages.
#[tokio::test]
async fn queries_read_indexes_of_unfinished_work() {
    let mut scaling = Scaling::open().await;
    scaling.reader.rows("SET enable_seqscan = off").await;
    for (name, indexes) in [
        ("tidemill-work", &["runs_ready", "runs_timed", "runs_held"][..]),
        ("tidemill-worker", &["messages_ready"]),
        ("tidemill-consolidator", &["messages_ready"]),
    ] {
        let rows = scaling.reader.rows(&format!("EXPLAIN {}", query(name))).await;
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        for index in indexes {
            assert!(plan.iter().any(|line| line.contains(index)), "{name}: {plan:#?}");
        }
        let reads_table =
            |line: &String| line.contains("Seq Scan on runs") || line.contains("Seq Scan on messages");
        assert!(!plan.iter().any(reads_table), "{name}: {plan:#?}");
    }
}
