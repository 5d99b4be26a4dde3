//! Helpers of the fault cases: a random generator, roles that can be killed one by one, detection of deaths, and waits.

use std::future::Future;
use std::time::Duration;

use tidemill_core::RunId;
use tidemill_core::queue::{QueueSettings, WORK_ITEMS};
use tidemill_core::records::Sync;
use tidemill_core::run::{Run, RunState};
use tidemill_engine::Identity;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{ConsolidatorOptions, PagerOptions, SyncSettings, Syncs};
use tidemill_store::Queue as _;
use tidemill_supplier::{Behaviour, Config, RestKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{SyncFixture, quick};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Time limit on a busy machine; reached only by a failure.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
/// Time of silence after which a process of a test counts as dead.
const DEAD_AFTER_SECS: f64 = 1.5;

/// A pseudo-random generator, so that a run can be repeated.
pub(crate) struct Rng(u64);

impl Rng {
    /// Uses `TIDEMILL_SEED`, or the clock. The seed is printed.
    pub(crate) fn seeded() -> Self {
        let clock = || host_now().timestamp_micros().unsigned_abs();
        let seed = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
        Self::of(seed.unwrap_or_else(clock))
    }

    /// Uses a seed, which is printed.
    pub(crate) fn of(seed: u64) -> Self {
        println!("seed: TIDEMILL_SEED={seed}");
        Self(seed)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Sleeps for less than this many milliseconds.
    pub(crate) async fn pause(&mut self, below_ms: u64) {
        sleep(Duration::from_millis(self.below(below_ms))).await;
    }
}

/// Returns the duration of a soak test: `TIDEMILL_SOAK_MINUTES`, or one minute.
pub(crate) fn soak() -> Duration {
    let minutes = std::env::var("TIDEMILL_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    Duration::from_mins(minutes.unwrap_or(1))
}

/// Returns settings with many small partitions and short waits.
pub(crate) fn settings() -> SyncSettings {
    SyncSettings {
        unlimited: true,
        partition_target: 250,
        partition_min: 100,
        hold_pages: 4,
        batch: 200,
        upsert: 100,
        heartbeat_every: Duration::from_millis(150),
        ..quick()
    }
}

/// Returns a supplier of this many records with a latency per response.
pub(crate) fn slow(records: u32, latency_ms: u64) -> Config {
    let behaviour = Behaviour { latency_ms, ..Behaviour::default() };
    Config { stones: records, behaviour, ..SyncFixture::config() }
}

/// Opens a fixture of 2,000 records in about eight partitions.
pub(crate) async fn fixture(subject: impl Into<Subject>) -> SyncFixture {
    open(subject, slow(2_000, 3), settings()).await
}

/// The database and the feed of a case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub(crate) kind: Kind,
    /// Pagination of the REST API. `None`: the Nivoda API.
    pub(crate) pagination: Option<RestKind>,
}

impl From<Kind> for Subject {
    fn from(kind: Kind) -> Self {
        Self { kind, pagination: None }
    }
}

impl From<(Kind, RestKind)> for Subject {
    fn from((kind, pagination): (Kind, RestKind)) -> Self {
        Self { kind, pagination: Some(pagination) }
    }
}

/// Opens a fixture with these settings.
pub(crate) async fn open(subject: impl Into<Subject>, config: Config, settings: SyncSettings) -> SyncFixture {
    let Subject { kind, pagination } = subject.into();
    match pagination {
        Some(pagination) => SyncFixture::rest(kind, pagination, config, settings).await,
        None => SyncFixture::with(kind, config, settings).await,
    }
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Scheduler,
    Worker,
    Consolidator,
}

/// Roles that can be ended one by one, and a task that detects their deaths.
pub(crate) struct RoleSet {
    syncs: Syncs,
    stop: watch::Sender<bool>,
    roles: Vec<(Role, JoinHandle<()>)>,
    maintenance: JoinHandle<()>,
}

impl RoleSet {
    /// Starts only the maintenance task.
    pub(crate) fn maintenance_only(syncs: &Syncs) -> Self {
        let maintenance = tokio::spawn(run_maintenance(syncs.clone()));
        Self { syncs: syncs.clone(), stop: watch::Sender::new(false), roles: Vec::new(), maintenance }
    }

    pub(crate) fn of(syncs: &Syncs, roles: &[Role]) -> Self {
        let mut set = Self::maintenance_only(syncs);
        for role in roles {
            set.start(*role);
        }
        set
    }

    /// Starts one scheduler, two workers, and two consolidators.
    pub(crate) fn full(syncs: &Syncs) -> Self {
        use Role::{Consolidator, Scheduler, Worker};
        Self::of(syncs, &[Scheduler, Worker, Worker, Consolidator, Consolidator])
    }

    /// Starts one more role.
    pub(crate) fn start(&mut self, role: Role) {
        let syncs = self.syncs.clone();
        self.start_on(&syncs, role);
    }

    /// Starts one more role with its own connections.
    pub(crate) fn start_on(&mut self, syncs: &Syncs, role: Role) {
        let (syncs, stop) = (syncs.clone(), self.stop.subscribe());
        self.roles.push((role, tokio::spawn(carry(syncs, role, stop))));
    }

    /// Kills the oldest process of a role like a crash, and starts another.
    pub(crate) fn kill_one(&mut self, role: Role) {
        self.kill_first(role);
        self.start(role);
    }

    /// Kills the oldest process of a role.
    pub(crate) fn kill_first(&mut self, role: Role) {
        if let Some(place) = self.roles.iter().position(|(own, _)| *own == role) {
            self.roles.remove(place).1.abort();
        }
    }

    /// Kills all processes, and starts others.
    pub(crate) fn kill_all(&mut self) {
        for (role, task) in std::mem::take(&mut self.roles) {
            task.abort();
            self.start(role);
        }
    }

    /// Stops all processes, and waits until they have ended.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        for (role, task) in self.roles {
            let ended = tokio::time::timeout(TIMEOUT, task).await;
            let ended = ended.unwrap_or_else(|_| panic!("a {role:?} does not end"));
            ended.expect("a role ends without a panic");
        }
        self.maintenance.abort();
    }
}

async fn carry(syncs: Syncs, role: Role, stop: watch::Receiver<bool>) {
    let name = Identity { name: format!("test-{role:?}"), host: "here".to_owned(), labels: Vec::new() };
    // A process without a database at its start ends; the process manager starts it again.
    loop {
        let (name, stop) = (name.clone(), stop.clone());
        let ended = match role {
            Role::Scheduler => syncs.schedule(name, false, stop.clone()).await,
            Role::Worker => syncs.work_pages(name, &PagerOptions::default(), stop.clone()).await,
            Role::Consolidator => {
                syncs.consolidate(name, &ConsolidatorOptions::default(), stop.clone()).await
            }
        };
        match ended {
            Ok(_) => return,
            Err(_) if *stop.borrow() => return,
            Err(error) => println!("a {role:?} starts again: {error}"),
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Runs the maintenance loops of a process, with short intervals.
async fn run_maintenance(syncs: Syncs) {
    loop {
        let swept = syncs.engine().sweep(500, DEAD_AFTER_SECS).await.map(|_| ());
        if let Err(error) = swept.and(syncs.repair().await) {
            println!("upkeep failed: {error}");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let began = Instant::now();
    while !look().await {
        assert!(began.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a request has ended, in any attempt; returns the last run.
pub(crate) async fn ended(fixture: &SyncFixture, first: &RunId) -> Run {
    let began = Instant::now();
    loop {
        let tries = fixture.base.store.tries(first.clone()).await.expect("the tries are read");
        let last = tries.last().expect("there is a try");
        if last.status.is_terminal() {
            return last.clone();
        }
        if began.elapsed() > TIMEOUT {
            let syncs = fixture.base.store.syncs(None, 2).await;
            let queue = fixture.base.store.peek(WORK_ITEMS.to_owned(), 10, None).await;
            panic!("{} is {} after {TIMEOUT:?}: {syncs:#?} {queue:#?}", last.run_id, last.status);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a request has succeeded, and compares the table with the source.
pub(crate) async fn succeeded(fixture: &SyncFixture, first: &RunId) -> Sync {
    let last = ended(fixture, first).await;
    assert_eq!(last.status, RunState::Success, "{}: {}", last.run_id, last.metadata);
    let sync = fixture.record(&last.run_id).await;
    assert_eq!((sync.completed_workers, sync.failed_workers), (sync.expected_workers, 0), "{sync:?}");
    check_watermark_moved_once(fixture, &sync).await;
    sync
}

/// Checks that each sync moves the watermark exactly once, to the end of its window.
pub(crate) async fn check_watermark_moved_once(fixture: &SyncFixture, sync: &Sync) {
    let text = format!(
        "SELECT CAST(count(*) AS bigint) FROM {{ops}}.watermark_changes WHERE run_id = '{}'",
        sync.run_id
    );
    let changes = fixture.base.plain.number(&text).await.expect("the changes are counted");
    assert_eq!(changes, 1, "the watermark was moved {changes} times by {}", sync.run_id);
    assert_eq!(sync.watermark_after, Some(sync.updated_to));
    let feed = fixture.base.store.feed(sync.feed.clone()).await.expect("the feed is read");
    assert_eq!(feed.watermark.map(|mark| mark.last_updated_at), Some(sync.updated_to));
}

/// Waits for the sync of this request.
pub(crate) async fn planned(fixture: &SyncFixture, first: &RunId) -> Sync {
    let began = Instant::now();
    loop {
        if let Ok(sync) = fixture.base.store.sync(first.to_string()).await {
            return sync;
        }
        assert!(began.elapsed() < TIMEOUT, "the sync of {first} is not planned");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the number of records that the partitions of a sync have stored so far.
pub(crate) async fn stored(fixture: &SyncFixture, sync: &Sync) -> i64 {
    let partitions = fixture.base.store.partitions(sync.run_id).await.expect("the partitions are read");
    partitions.iter().map(|partition| partition.stored).sum()
}

/// Changes the settings of a queue.
pub(crate) async fn change_queue(
    fixture: &SyncFixture,
    queue: &str,
    change: impl FnOnce(&mut QueueSettings),
) {
    let store = &fixture.base.store;
    let mut queues = store.queues().await.expect("the queues are read");
    let settings = queues.iter_mut().find(|settings| settings.queue == queue).expect("the queue exists");
    change(settings);
    store.set_queue(settings.clone()).await.expect("the queue is changed");
}

/// Waits until a queue is empty.
pub(crate) async fn drained(fixture: &SyncFixture, queue: &'static str) {
    let store = &fixture.base.store;
    until(&format!("{queue} is empty"), || async {
        let depth = store.depth(queue.to_owned(), None).await.expect("the depth is read");
        depth.waiting + depth.delayed + depth.in_flight == 0
    })
    .await;
}
