//! A real server, the feed of its definition, and the table that the feed fills.

use std::path::Path;

use tidemill_core::feed::Feed;
use tidemill_core::reach::DefinedBy;
use tidemill_core::records::Sync;
use tidemill_core::run::{Run, RunState};
use tidemill_core::{Json, RunId};
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{FeedChange, SyncSettings, Syncs};
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::real_servers::{DEFINITIONS, Installation, Order, RealServer, sample_orders};
use tidemill_testkit::sync_fixture::syncs;
use tokio::time::{Instant, sleep};

use super::roles::{TIMEOUT, settings};

/// Requests per second, so that a sync takes long enough to be killed in the middle.
const RATE: u32 = 40;

/// A server and a database with its feed.
pub(crate) struct ServerFixture {
    pub(crate) base: Fixture,
    pub(crate) syncs: Syncs,
    pub(crate) server: RealServer,
    feed: String,
}

impl ServerFixture {
    /// Opens a fixture with a definition and this many orders. Returns `None` if the servers cannot be installed.
    pub(crate) async fn open(kind: Kind, definition: &str, orders: u32) -> Option<Self> {
        let installation = Installation::ensure(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
        let found = DEFINITIONS.iter().find(|known| known.name == definition);
        let definition = found.expect("the definition exists");
        let orders = sample_orders(orders);
        let server = RealServer::start(&installation, definition.server, &orders).await;
        let server = server.expect("the server starts");
        let base = Fixture::open_bare(kind).await;
        let limited = SyncSettings { unlimited: false, ..settings() };
        let text = definition.text(&server.url()).replace("rate: 0", &format!("rate: {RATE}"));
        let line = text.lines().find_map(|line| line.strip_prefix("feed: "));
        let feed = line.expect("the definition names its feed").to_owned();
        let fixture = Self { syncs: syncs(&base, limited), base, server, feed };
        fixture.apply(&text).await;
        Some(fixture)
    }

    /// Adds the feed and creates its table.
    async fn apply(&self, text: &str) {
        let feed = Feed {
            feed: self.feed.clone(),
            project_id: "default".to_owned(),
            kind: "rest".to_owned(),
            endpoint: String::new(),
            username: None,
            password_env: None,
            rate: 0,
            settings: Json::Object(serde_json::Map::new()),
            defined_by: DefinedBy::Operator,
            created_at: host_now(),
        };
        let change = FeedChange {
            feed,
            definition: Some(text.to_owned()),
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: "UTC".to_owned(),
        };
        self.syncs.put_feed(change).await.expect("the feed is added");
        let plan = self.syncs.create_table(&self.feed).await.expect("the table is created");
        assert!(plan.exists && plan.statements.is_empty() && plan.problems.is_empty(), "{plan:#?}");
    }

    /// Returns whether the next sync can read changes only.
    pub(crate) async fn has_watermark(&self) -> bool {
        let feed = self.base.store.feed(self.feed.clone()).await.expect("the feed is read");
        feed.watermark.is_some()
    }

    /// Queues a sync of the feed.
    pub(crate) async fn queue(&self, full: bool) -> RunId {
        self.syncs.start(&self.feed, full, None).await.expect("the sync is queued").run_id
    }

    /// Waits until the sync of a request has stored a number of records.
    pub(crate) async fn stored(&self, first: &RunId, records: i64) {
        let began = Instant::now();
        loop {
            let run = self.last_attempt(first).await;
            if let Ok(sync) = self.base.store.sync(run.run_id.to_string()).await {
                let partitions = self.base.store.partitions(sync.run_id).await;
                let partitions = partitions.expect("the partitions are read");
                if partitions.iter().map(|partition| partition.stored).sum::<i64>() >= records {
                    return;
                }
            }
            assert!(!run.status.is_terminal(), "{} ended too early: {}", run.run_id, run.metadata);
            assert!(began.elapsed() < TIMEOUT, "no page is stored after {TIMEOUT:?}");
            sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    /// Waits until a request has ended, in any attempt, and returns its sync. It must be a success.
    pub(crate) async fn succeeded(&self, first: &RunId) -> Sync {
        let began = Instant::now();
        loop {
            let last = self.last_attempt(first).await;
            if last.status.is_terminal() {
                assert_eq!(last.status, RunState::Success, "{}: {}", last.run_id, last.metadata);
                let sync = self.base.store.sync(last.run_id.to_string()).await.expect("the sync is read");
                assert_eq!((sync.completed_workers, sync.failed_workers), (sync.expected_workers, 0));
                return sync;
            }
            if began.elapsed() > TIMEOUT {
                let syncs = self.base.store.syncs(None, 2).await;
                panic!("{} is {} after {TIMEOUT:?}: {syncs:#?}", last.run_id, last.status);
            }
            sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn last_attempt(&self, first: &RunId) -> Run {
        let tries = self.base.store.tries(first.clone()).await.expect("the attempts are read");
        tries.into_iter().last().expect("there is an attempt")
    }

    /// Returns the rows of the table as JSON arrays, sorted by id.
    async fn rows(&self) -> Vec<Json> {
        let (array, time) = match self.base.kind {
            Kind::Sqlite => ("json_array", "strftime('%Y-%m-%dT%H:%M:%SZ', updated_at)"),
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => (
                "json_build_array",
                "to_char(updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
            ),
        };
        let text = format!(
            "SELECT CAST({array}(id, customer, city, amount_cents, note, revision, {time}) AS text) FROM orders \
             ORDER BY id"
        );
        let rows = self.base.plain.texts(&text).await.expect("the table is read");
        rows.iter().map(|row| serde_json::from_str(row).expect("a row is JSON")).collect()
    }

    /// Checks that the table contains the orders of the server and these others, and nothing else.
    pub(crate) async fn check_equal(&self, others: &[Order]) {
        let mut orders = self.server.orders().await.expect("the storage is read");
        orders.extend_from_slice(others);
        orders.sort_by_key(|order| order.id);
        let (found, mut expected): (Vec<Json>, Vec<Json>) =
            (self.rows().await, orders.iter().map(row).collect());
        assert_eq!(found.len(), expected.len(), "number of rows");
        expected.retain(|row| !found.contains(row));
        assert!(expected.is_empty(), "{} rows differ: {:?}", expected.len(), &expected[..1]);
    }
}

/// Returns the expected row of an order.
fn row(order: &Order) -> Json {
    serde_json::json!([
        order.id,
        order.customer,
        order.city,
        order.amount_cents,
        order.note,
        order.revision,
        order.updated_at_text(),
    ])
}
