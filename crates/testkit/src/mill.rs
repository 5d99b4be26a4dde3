//! A whole pipeline for tests: a supplier that really answers over HTTP, a database, the three roles, and the oracle
//! that compares the table with the supplier's own truth.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a mill that cannot be set up or read ends the test, loudly"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::feed::Feed;
use tidemill_core::records::Sync;
use tidemill_core::run::{Run, RunState};
use tidemill_core::{Json, RunId};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{ConsolidatorOptions, FeedChange, PagerOptions, SyncSettings, Syncs};
use tidemill_engine::{Engine, Identity, Patience};
use tidemill_supplier::{Config, Running, Supplier};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::door::{Kind, Stage};

/// The feed of every mill.
pub const FEED: &str = "nivoda-natural";

/// How long a sync of a test may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// A supplier, a database and the use cases on it.
pub struct Mill {
    /// The database.
    pub stage: Stage,
    /// The use cases.
    pub syncs: Syncs,
    /// The supplier.
    pub supplier: Running,
}

/// The roles of a mill while they run.
pub struct Roles {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// A stone in the canonical table, as far as the oracle looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// SHA-256 of the record that it was built from.
    pub sha256: String,
    /// What the feed asks.
    pub feed_price: i64,
    /// What it is sold for.
    pub retail_price: i64,
}

impl Mill {
    /// A mill with a feed, over so many stones.
    pub async fn open(kind: Kind, stones: u32) -> Self {
        Self::with(kind, Config { stones, ..Self::config() }, SyncSettings { unlimited: true, ..quick() })
            .await
    }

    /// A mill with a feed, from everything that can be chosen.
    pub async fn with(kind: Kind, config: Config, settings: SyncSettings) -> Self {
        Self::on(Stage::open_bare(kind).await, config, settings).await
    }

    /// The same on a database that is there.
    pub async fn on(stage: Stage, config: Config, settings: SyncSettings) -> Self {
        let supplier = Supplier::bind(config).await.expect("the supplier listens").spawn();
        let mill = Self { syncs: syncs(&stage, settings), stage, supplier };
        mill.add_feed(FEED, &mill.supplier.endpoint).await;
        mill
    }

    /// The supplier of a test: every stone is one that the pipeline asks for.
    pub fn config() -> Config {
        Config { off_query_per_mille: 0, seed: 7, ..Config::default() }
    }

    /// Adds a feed.
    pub async fn add_feed(&self, name: &str, endpoint: &str) {
        let feed = Feed {
            feed: name.to_owned(),
            project_id: "default".to_owned(),
            kind: "nivoda".to_owned(),
            endpoint: endpoint.to_owned(),
            username: Some("tester".to_owned()),
            password_env: Some("PATH".to_owned()),
            rate: 25,
            settings: Json::Object(serde_json::Map::new()),
            created_at: host_now(),
        };
        let change = FeedChange {
            feed,
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: "UTC".to_owned(),
        };
        self.syncs.put_feed(change).await.expect("the feed is added");
    }

    /// Starts one of each role, in this process.
    pub fn roles(&self) -> Roles {
        let mut roles = Roles::none();
        roles.scheduler(&self.syncs);
        roles.worker(&self.syncs, PagerOptions::default());
        roles.consolidator(&self.syncs);
        roles
    }

    /// Queues a sync of the feed.
    pub async fn queue(&self, full: bool) -> RunId {
        self.syncs.start(FEED, full, None).await.expect("the sync is queued").run_id
    }

    /// Waits until a run has ended.
    pub async fn settle(&self, run: &RunId) -> Run {
        self.settle_within(run, PATIENCE).await
    }

    /// Waits until a run has ended, for so long.
    pub async fn settle_within(&self, run: &RunId, longest: Duration) -> Run {
        let began = tokio::time::Instant::now();
        loop {
            let found = self.stage.store.run(run.clone()).await.expect("the run is read");
            let found = found.expect("the run exists");
            if found.status.is_terminal() {
                return found;
            }
            if began.elapsed() > longest {
                let syncs = self.stage.store.syncs(None, 5).await;
                panic!("run {run} is {} after {longest:?}: {syncs:#?}", found.status);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A sync from queued to its end, which must be good; its record.
    pub async fn sync(&self, full: bool) -> Sync {
        let run = self.queue(full).await;
        let ended = self.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        self.record(&run).await
    }

    /// The sync that a run is an attempt of.
    pub async fn record(&self, run: &RunId) -> Sync {
        self.stage.store.sync(run.to_string()).await.expect("the sync is read")
    }

    /// The stones of a status in the canonical table.
    pub async fn rows(&self, status: &str) -> BTreeMap<String, Row> {
        let hex = match self.stage.kind {
            Kind::Sqlite => "lower(hex(payload_hash))",
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => "encode(payload_hash, 'hex')",
        };
        let text = format!(
            "SELECT supplier_stone_id || ' ' || {hex} || ' ' || feed_price_cents || ' ' || retail_price_cents \
             FROM diamonds WHERE feed = '{FEED}' AND status = '{status}'"
        );
        let lines = self.stage.plain.texts(&text).await.expect("the table is read");
        lines.iter().map(|line| parse(line)).collect()
    }

    /// What the table must hold: the supplier's own truth, and prices worked out apart from the product's code.
    pub fn expected(&self) -> BTreeMap<String, Row> {
        let truth = self.supplier.handle.truth().into_iter().filter(|stone| stone.available);
        truth
            .map(|stone| {
                let feed_price = i64::from(stone.price);
                // The one rule that a new database has: 15 % on top, halves up.
                let retail_price = (feed_price * 115 + 50) / 100;
                (stone.id, Row { sha256: stone.sha256, feed_price, retail_price })
            })
            .collect()
    }

    /// Fails unless the table equals the source.
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
    /// Nobody yet.
    pub fn none() -> Self {
        Self { stop: watch::Sender::new(false), tasks: Vec::new() }
    }

    /// Another scheduler.
    pub fn scheduler(&mut self, syncs: &Syncs) {
        let (syncs, stop) = (syncs.clone(), self.stop.subscribe());
        self.tasks.push(tokio::spawn(async move {
            syncs.schedule(identity("scheduler"), false, stop).await.expect("the scheduler ends well");
        }));
    }

    /// Another worker of pages.
    pub fn worker(&mut self, syncs: &Syncs, options: PagerOptions) {
        let (syncs, stop) = (syncs.clone(), self.stop.subscribe());
        self.tasks.push(tokio::spawn(async move {
            syncs.work_pages(identity("worker"), &options, stop).await.expect("the worker ends well");
        }));
    }

    /// Another consolidator, which does the upkeep too.
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

    /// Tells all of them to end, and waits until they have.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            task.await.expect("a role ends without a panic");
        }
    }

    /// Ends all of them where they are, as a crash would: nothing is given back, nothing is said.
    pub fn kill(self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Watches the offsets of a sync's partitions until it is dropped; falls are kept.
pub struct Offsets(JoinHandle<()>);

impl Offsets {
    /// Watches from now on.
    pub fn watch(mill: &Mill, sync: &Sync) -> Self {
        let (store, id) = (mill.stage.store.clone(), sync.run_id);
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

    /// Fails where an offset has fallen.
    pub async fn check(self) {
        self.0.abort();
        let ended = self.0.await.expect_err("it watches for ever");
        assert!(ended.is_cancelled(), "an offset fell: {ended}");
    }
}

/// Use cases on the database of a stage.
pub fn syncs(stage: &Stage, settings: SyncSettings) -> Syncs {
    Syncs::new(Engine::new(stage.store.clone(), Clock::Database, Patience::None), settings)
}

/// Settings with short waits, so that a test of errors takes no minutes.
pub fn quick() -> SyncSettings {
    let mut settings = SyncSettings::default();
    settings.tuning.retries_max = 2;
    settings.tuning.backoff = Duration::from_millis(10);
    settings.tuning.backoff_max = Duration::from_millis(100);
    settings.tuning.jitter_max = Duration::from_millis(5);
    settings.circuit.backoff = Duration::from_millis(100);
    settings.circuit.backoff_max = Duration::from_millis(500);
    settings
}

fn identity(role: &str) -> Identity {
    Identity { name: format!("test-{role}"), host: "here".to_owned(), labels: Vec::new() }
}

fn parse(line: &str) -> (String, Row) {
    // From the end: an id may have spaces.
    let mut words = line.rsplitn(4, ' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (retail, price, sha256, id) = (word(), word(), word(), word());
    let number = |word: String| word.parse().expect("a price is a number");
    (id, Row { sha256, feed_price: number(price), retail_price: number(retail) })
}
