//! A complete sync pipeline for tests: a supplier that answers over HTTP, a database, the three roles, and the oracle
//! that compares the table with the supplier's data.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be set up or read must end the test"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::digest::sha256_hex;
use tidemill_core::feed::Feed;
use tidemill_core::reach::DefinedBy;
use tidemill_core::records::Sync;
use tidemill_core::run::{Run, RunState};
use tidemill_core::{Json, RunId};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{
    ConsolidatorOptions, FeedChange, LedgerCheck, PagerOptions, SyncSettings, Syncs,
};
use tidemill_engine::{Engine, Identity, RetryPolicy};
use tidemill_store::FeedTables;
use tidemill_supplier::{Config, RunningSupplier, Supplier};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::interface::{Fixture, Kind};
use crate::rest_fixture::{ITEMS, expected_items, item_rows};

/// Name of the feed of every fixture.
pub const FEED: &str = "nivoda-natural";

/// Time limit for a sync.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A supplier, a database, and the sync operations on it.
pub struct SyncFixture {
    pub base: Fixture,
    pub syncs: Syncs,
    pub supplier: RunningSupplier,
    /// Feed that is synced and compared.
    pub feed: String,
}

/// Running roles of a fixture.
pub struct Roles {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// A stone in the canonical table, with the columns that the oracle compares, or a row of the table of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// SHA-256 of the raw record, or of the columns of an item. Items have no prices in cents.
    pub sha256: String,
    pub feed_price: i64,
    pub retail_price: i64,
}

impl SyncFixture {
    /// Opens a fixture with a feed of this many stones.
    pub async fn open(kind: Kind, stones: u32) -> Self {
        Self::with(kind, Config { stones, ..Self::config() }, SyncSettings { unlimited: true, ..quick() })
            .await
    }

    /// Opens a fixture with a feed, with these settings.
    pub async fn with(kind: Kind, config: Config, settings: SyncSettings) -> Self {
        Self::on(Fixture::open_bare(kind).await, config, settings).await
    }

    /// Opens a fixture on an existing database.
    pub async fn on(base: Fixture, config: Config, settings: SyncSettings) -> Self {
        let supplier = Supplier::bind(config).await.expect("the supplier listens").spawn();
        let fixture = Self { syncs: syncs(&base, settings), base, supplier, feed: FEED.to_owned() };
        fixture.add_feed(FEED, &fixture.supplier.endpoint).await;
        fixture
    }

    /// Returns the supplier configuration of tests: the pipeline requests every stone.
    pub fn config() -> Config {
        Config { off_query_per_mille: 0, seed: 7, ..Config::default() }
    }

    /// Adds a feed to the fixture.
    pub async fn add_feed(&self, name: &str, endpoint: &str) {
        let mut change = self.feed_of("default", name);
        endpoint.clone_into(&mut change.feed.endpoint);
        self.syncs.put_feed(change).await.expect("the feed is added");
    }

    /// Returns a feed of a project with the data of the fixture's supplier.
    pub fn feed_of(&self, project: &str, name: &str) -> FeedChange {
        let feed = Feed {
            feed: name.to_owned(),
            project_id: project.to_owned(),
            kind: "nivoda".to_owned(),
            endpoint: self.supplier.endpoint.clone(),
            username: Some("tester".to_owned()),
            password_env: Some("PATH".to_owned()),
            rate: 25,
            settings: Json::Object(serde_json::Map::new()),
            defined_by: DefinedBy::Operator,
            created_at: host_now(),
        };
        FeedChange {
            feed,
            definition: None,
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: "UTC".to_owned(),
        }
    }

    /// Returns the tables of the feed.
    pub fn tables(&self) -> FeedTables {
        let raw = self.feed_of("default", FEED).feed.raw_table();
        FeedTables { feed: FEED.to_owned(), raw, target: None }
    }

    /// Starts one of each role in this process.
    pub fn roles(&self) -> Roles {
        let mut roles = Roles::none();
        roles.scheduler(&self.syncs);
        roles.worker(&self.syncs, PagerOptions::default());
        roles.consolidator(&self.syncs);
        roles
    }

    /// Queues a sync of the feed.
    pub async fn queue(&self, full: bool) -> RunId {
        self.syncs.start(&self.feed, full, None).await.expect("the sync is queued").run_id
    }

    /// Waits until a run has ended.
    pub async fn settle(&self, run: &RunId) -> Run {
        self.settle_within(run, TIMEOUT).await
    }

    /// Waits until a run has ended, up to this time.
    pub async fn settle_within(&self, run: &RunId, longest: Duration) -> Run {
        let began = tokio::time::Instant::now();
        loop {
            let found = self.base.store.run(run.clone()).await.expect("the run is read");
            let found = found.expect("the run exists");
            if found.status.is_terminal() {
                return found;
            }
            if began.elapsed() > longest {
                let syncs = self.base.store.syncs(None, 5).await;
                panic!("run {run} is {} after {longest:?}: {syncs:#?}", found.status);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs a sync to its end, which must be a success; returns it.
    pub async fn sync(&self, full: bool) -> Sync {
        let run = self.queue(full).await;
        let ended = self.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        self.record(&run).await
    }

    /// Returns the sync of a run.
    pub async fn record(&self, run: &RunId) -> Sync {
        self.base.store.sync(run.to_string()).await.expect("the sync is read")
    }

    /// Returns the stones with this status in the canonical table, or the rows of the table of items, which has no
    /// deleted ones.
    pub async fn rows(&self, status: &str) -> BTreeMap<String, Row> {
        if self.feed == ITEMS {
            let rows = if status == "active" { item_rows(&self.base).await } else { BTreeMap::new() };
            return hashed(rows);
        }
        let hex = match self.base.kind {
            Kind::Sqlite => "lower(hex(payload_hash))",
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "encode(payload_hash, 'hex')",
        };
        let text = format!(
            "SELECT supplier_stone_id || ' ' || {hex} || ' ' || feed_price_cents || ' ' || retail_price_cents \
             FROM diamonds WHERE feed = '{FEED}' AND status = '{status}'"
        );
        let lines = self.base.plain.texts(&text).await.expect("the table is read");
        lines.iter().map(|line| parse(line)).collect()
    }

    /// Returns the expected content of the table: the supplier's data, with prices computed independently of the
    /// product.
    pub fn expected(&self) -> BTreeMap<String, Row> {
        if self.feed == ITEMS {
            return hashed(expected_items(&self.supplier.handle));
        }
        let truth = self.supplier.handle.truth().into_iter().filter(|stone| stone.available);
        truth
            .map(|stone| {
                let feed_price = i64::from(stone.price);
                // The only rule of a new database: 15 % on top, rounded half up.
                let retail_price = (feed_price * 115 + 50) / 100;
                (stone.id, Row { sha256: stone.sha256, feed_price, retail_price })
            })
            .collect()
    }

    /// Checks that the table equals the source.
    pub async fn check_equal(&self) {
        let (mut found, mut expected) = (self.rows("active").await, self.expected());
        found.retain(|id, row| expected.get(id) != Some(row) || expected.remove(id).is_none());
        let (extra, missing): (Vec<_>, Vec<_>) =
            (found.iter().take(3).collect(), expected.iter().take(3).collect());
        assert!(
            found.is_empty() && expected.is_empty(),
            "{} rows are not the source's: {extra:?}; {} of the source's are missing: {missing:?}",
            found.len(),
            expected.len()
        );
    }
}

impl Roles {
    /// Returns an empty set of roles.
    pub fn none() -> Self {
        Self { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    /// Starts another scheduler in this process.
    pub fn scheduler(&mut self, syncs: &Syncs) {
        let (syncs, stop) = (syncs.clone(), self.stop.subscribe());
        self.tasks.push(tokio::spawn(async move {
            syncs.schedule(identity("scheduler"), false, stop).await.expect("the scheduler ends well");
        }));
    }

    /// Starts another page worker.
    pub fn worker(&mut self, syncs: &Syncs, options: PagerOptions) {
        let (syncs, stop) = (syncs.clone(), self.stop.subscribe());
        self.tasks.push(tokio::spawn(async move {
            syncs.work_pages(identity("worker"), &options, stop).await.expect("the worker ends well");
        }));
    }

    /// Starts another consolidator, which also does the upkeep.
    pub fn consolidator(&mut self, syncs: &Syncs) {
        let (consolidating, stop) = (syncs.clone(), self.stop.subscribe());
        self.tasks.push(tokio::spawn(async move {
            let options = ConsolidatorOptions::default();
            consolidating
                .consolidate(identity("consolidator"), &options, stop)
                .await
                .expect("the consolidator ends well");
        }));
        let (repairing, mut stop) = (syncs.clone(), self.stop.subscribe());
        self.tasks.push(tokio::spawn(async move {
            while !*stop.borrow() {
                repairing.repair().await.expect("repairs are done");
                tokio::select! {
                    _ = stop.changed() => {}
                    () = tokio::time::sleep(Duration::from_millis(300)) => {}
                }
            }
        }));
    }

    /// Stops all roles, and waits until they have ended.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            task.await.expect("a role ends without a panic");
        }
    }

    /// Aborts all roles like a crash: no lease or lock is released.
    pub fn kill(self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Watches the offsets of a sync's partitions until it is dropped, and records decreases.
pub struct Offsets(JoinHandle<()>);

impl Offsets {
    /// Starts watching the partitions of a sync.
    pub fn watch(fixture: &SyncFixture, sync: &Sync) -> Self {
        let (store, id) = (fixture.base.store.clone(), sync.run_id);
        Self(tokio::spawn(async move {
            let mut highest = BTreeMap::new();
            loop {
                for partition in store.partitions(id).await.unwrap_or_default() {
                    let last = highest.entry(partition.partition_id.clone()).or_insert(partition.next_offset);
                    assert!(partition.next_offset >= *last, "{partition:?} was at {last}");
                    *last = partition.next_offset;
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }))
    }

    /// Checks that no offset has decreased.
    pub async fn check(self) {
        self.0.abort();
        let ended = self.0.await.expect_err("it watches for ever");
        assert!(ended.is_cancelled(), "an offset fell: {ended}");
    }
}

/// Returns the sync operations on the database of a fixture.
pub fn syncs(base: &Fixture, settings: SyncSettings) -> Syncs {
    Syncs::new(Engine::new(base.store.clone(), Clock::Database, RetryPolicy::None), settings)
}

/// Returns settings with short waits, so that tests of errors are fast.
pub fn quick() -> SyncSettings {
    let mut settings = SyncSettings::default();
    settings.tuning.retries_max = 2;
    settings.tuning.backoff = Duration::from_millis(10);
    settings.tuning.backoff_max = Duration::from_millis(100);
    settings.tuning.jitter_max = Duration::from_millis(5);
    settings.circuit.backoff = Duration::from_millis(100);
    settings.circuit.backoff_max = Duration::from_millis(500);
    settings.ledger_check = LedgerCheck::Panics;
    settings
}

fn identity(role: &str) -> Identity {
    Identity { name: format!("test-{role}"), host: "here".to_owned(), labels: Vec::new() }
}

/// Returns rows of items as the oracle compares them.
fn hashed(rows: BTreeMap<String, String>) -> BTreeMap<String, Row> {
    let row = |line: String| Row { sha256: sha256_hex(line.as_bytes()), feed_price: 0, retail_price: 0 };
    rows.into_iter().map(|(id, line)| (id, row(line))).collect()
}

fn parse(line: &str) -> (String, Row) {
    // Split from the end, because an id may have spaces.
    let mut fields = line.rsplitn(4, ' ');
    let mut field = || fields.next().unwrap_or_default().to_owned();
    let (retail, price, sha256, id) = (field(), field(), field(), field());
    let number = |field: String| field.parse().expect("a price is a number");
    (id, Row { sha256, feed_price: number(price), retail_price: number(retail) })
}
