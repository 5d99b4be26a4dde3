//! What the cases stand on: dice, roles that can be killed one by one, somebody who notices deaths, and ways to wait.

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
use tidemill_supplier::{Behaviour, Config};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{Mill, quick};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How long anything may take on a machine that is busy with other things; reached only by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Silence after which a process of a test counts as dead.
const DEAD_AFTER_SECS: f64 = 1.5;

/// Numbers that only look random, so that a run can be repeated.
pub(crate) struct Dice(u64);

impl Dice {
    /// From `TIDEMILL_SEED`, or from the clock. The seed is printed.
    pub(crate) fn thrown() -> Self {
        let clock = || host_now().timestamp_micros().unsigned_abs();
        let seed = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
        Self::of(seed.unwrap_or_else(clock))
    }

    /// From a seed, which is printed.
    pub(crate) fn of(seed: u64) -> Self {
        println!("seed: TIDEMILL_SEED={seed}");
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A pause of less than so many milliseconds.
    pub(crate) async fn pause(&mut self, below_ms: u64) {
        sleep(Duration::from_millis(self.below(below_ms))).await;
    }
}

/// How long a soak lasts: `TIDEMILL_SOAK_MINUTES`, or one minute.
pub(crate) fn soak() -> Duration {
    let minutes = std::env::var("TIDEMILL_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok());
    Duration::from_mins(minutes.unwrap_or(1))
}

/// Settings with many small partitions and short waits, so that there is much to disturb in little time.
pub(crate) fn settings() -> SyncSettings {
    SyncSettings {
        unlimited: true,
        partition_target: 250,
        partition_min: 100,
        hold_pages: 4,
        batch: 200,
        upsert: 100,
        beat: Duration::from_millis(150),
        ..quick()
    }
}

/// A supplier of so many stones that takes a little time for each answer.
pub(crate) fn slow(stones: u32, latency_ms: u64) -> Config {
    let behaviour = Behaviour { latency_ms, ..Behaviour::default() };
    Config { stones, behaviour, ..Mill::config() }
}

/// A mill of 2,000 stones in some eight partitions.
pub(crate) async fn mill(kind: Kind) -> Mill {
    Mill::with(kind, slow(2_000, 3), settings()).await
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Scheduler,
    Worker,
    Consolidator,
}

/// Roles that can be ended one by one, and somebody who notices that they are dead.
pub(crate) struct Crew {
    syncs: Syncs,
    stop: watch::Sender<bool>,
    roles: Vec<(Role, JoinHandle<()>)>,
    keeper: JoinHandle<()>,
}

impl Crew {
    /// Nobody but the keeper.
    pub(crate) fn keeper(syncs: &Syncs) -> Self {
        let keeper = tokio::spawn(keep(syncs.clone()));
        Self { syncs: syncs.clone(), stop: watch::Sender::new(false), roles: Vec::new(), keeper }
    }

    /// These roles.
    pub(crate) fn of(syncs: &Syncs, roles: &[Role]) -> Self {
        let mut crew = Self::keeper(syncs);
        for role in roles {
            crew.start(*role);
        }
        crew
    }

    /// One scheduler, two workers, and two consolidators.
    pub(crate) fn whole(syncs: &Syncs) -> Self {
        use Role::{Consolidator, Scheduler, Worker};
        Self::of(syncs, &[Scheduler, Worker, Worker, Consolidator, Consolidator])
    }

    /// One more.
    pub(crate) fn start(&mut self, role: Role) {
        let syncs = self.syncs.clone();
        self.start_on(&syncs, role);
    }

    /// One more, on its own way to the database.
    pub(crate) fn start_on(&mut self, syncs: &Syncs, role: Role) {
        let (syncs, stop) = (syncs.clone(), self.stop.subscribe());
        self.roles.push((role, tokio::spawn(carry(syncs, role, stop))));
    }

    /// Ends the oldest of a role where it is, as a crash would, and puts another into its place.
    pub(crate) fn kill_one(&mut self, role: Role) {
        self.kill_first(role);
        self.start(role);
    }

    /// Ends the oldest of a role where it is.
    pub(crate) fn kill_first(&mut self, role: Role) {
        if let Some(place) = self.roles.iter().position(|(own, _)| *own == role) {
            self.roles.remove(place).1.abort();
        }
    }

    /// Ends all where they are, and puts others into their place.
    pub(crate) fn kill_all(&mut self) {
        for (role, task) in std::mem::take(&mut self.roles) {
            task.abort();
            self.start(role);
        }
    }

    /// Tells all to end, and waits until they have.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        for (role, task) in self.roles {
            let ended = tokio::time::timeout(PATIENCE, task).await;
            let ended = ended.unwrap_or_else(|_| panic!("a {role:?} does not end"));
            ended.expect("a role ends without a panic");
        }
        self.keeper.abort();
    }
}

async fn carry(syncs: Syncs, role: Role, stop: watch::Receiver<bool>) {
    let name = Identity { name: format!("test-{role:?}"), host: "here".to_owned(), labels: Vec::new() };
    // A database that is away when a process starts ends it; whoever looks after processes starts it again.
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

/// Upkeep as every process does it, only quicker.
async fn keep(syncs: Syncs) {
    loop {
        let swept = syncs.engine().sweep(500, DEAD_AFTER_SECS).await.map(|_| ());
        if let Err(error) = swept.and(syncs.repair().await) {
            println!("upkeep failed: {error}");
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let began = Instant::now();
    while !look().await {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a request has ended, whichever of its tries it is; the last one.
pub(crate) async fn ended(mill: &Mill, first: &RunId) -> Run {
    let began = Instant::now();
    loop {
        let tries = mill.stage.store.tries(first.clone()).await.expect("the tries are read");
        let last = tries.last().expect("there is a try");
        if last.status.is_terminal() {
            return last.clone();
        }
        if began.elapsed() > PATIENCE {
            let syncs = mill.stage.store.syncs(None, 2).await;
            let queue = mill.stage.store.peek(WORK_ITEMS.to_owned(), 10, None).await;
            panic!("{} is {} after {PATIENCE:?}: {syncs:#?} {queue:#?}", last.run_id, last.status);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a request has ended well, and compares the table with the source.
pub(crate) async fn good(mill: &Mill, first: &RunId) -> Sync {
    let last = ended(mill, first).await;
    assert_eq!(last.status, RunState::Success, "{}: {}", last.run_id, last.metadata);
    let sync = mill.record(&last.run_id).await;
    assert_eq!((sync.completed_workers, sync.failed_workers), (sync.expected_workers, 0), "{sync:?}");
    check_marked_once(mill, &sync).await;
    sync
}

/// Each sync moves the watermark exactly once, and to its sealed end.
pub(crate) async fn check_marked_once(mill: &Mill, sync: &Sync) {
    let text = format!(
        "SELECT CAST(count(*) AS bigint) FROM {{ops}}.watermark_changes WHERE run_id = '{}'",
        sync.run_id
    );
    let changes = mill.stage.plain.number(&text).await.expect("the changes are counted");
    assert_eq!(changes, 1, "the watermark was moved {changes} times by {}", sync.run_id);
    assert_eq!(sync.watermark_after, Some(sync.updated_to));
    let feed = mill.stage.store.feed(sync.feed.clone()).await.expect("the feed is read");
    assert_eq!(feed.watermark.map(|mark| mark.last_updated_at), Some(sync.updated_to));
}

/// The last sync of a feed, once there is one for this request.
pub(crate) async fn planned(mill: &Mill, first: &RunId) -> Sync {
    let began = Instant::now();
    loop {
        if let Ok(sync) = mill.stage.store.sync(first.to_string()).await {
            return sync;
        }
        assert!(began.elapsed() < PATIENCE, "the sync of {first} is not planned");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Records that the partitions of a sync have stored so far.
pub(crate) async fn stored(mill: &Mill, sync: &Sync) -> i64 {
    let partitions = mill.stage.store.partitions(sync.run_id).await.expect("the partitions are read");
    partitions.iter().map(|partition| partition.stored).sum()
}

/// Changes how a queue treats its messages.
pub(crate) async fn change_queue(mill: &Mill, queue: &str, change: impl FnOnce(&mut QueueSettings)) {
    let store = &mill.stage.store;
    let mut queues = store.queues().await.expect("the queues are read");
    let settings = queues.iter_mut().find(|settings| settings.queue == queue).expect("the queue exists");
    change(settings);
    store.set_queue(settings.clone()).await.expect("the queue is changed");
}

/// Waits until nothing is in a queue.
pub(crate) async fn drained(mill: &Mill, queue: &'static str) {
    let store = &mill.stage.store;
    until(&format!("{queue} is empty"), || async {
        let depth = store.depth(queue.to_owned(), None).await.expect("the depth is read");
        depth.waiting + depth.delayed + depth.in_flight == 0
    })
    .await;
}
