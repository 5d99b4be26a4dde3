//! Hostile rows affect only themselves: every interface continues to read the other rows.
#![expect(clippy::expect_used, reason = "a failed step must end the test")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use serde_json::json;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_client::{Client, HttpOptions, HttpTransport};
use tidemill_core::json::{UNREADABLE, is_unreadable, unreadable_reason};
use tidemill_core::run::{Claim, FinalStatus, QueueRun, RunCursor, RunFilter, RunState};
use tidemill_core::{Json, RunId};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::worker::{ExecutionOutcome, Executor, ExitCondition, RunLog, RunSignal, WorkerOptions};
use tidemill_engine::{Clock, Engine, RetryPolicy, Upkeep};
use tidemill_store::{EventPage, EventTail};
use tidemill_testkit::interface::{Fixture, Kind};
use tidemill_testkit::poison::{Poison, force};
use tidemill_wire::alerts::ListAlerts;
use tidemill_wire::runs::{ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting};
use tokio::sync::watch;

/// Time limit for every wait of a test.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Hostile rows of each kind in one round.
const ROWS: usize = 30;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics in every task, including detached ones.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::SeqCst);
            previous(info);
        }));
    });
}

/// A server on a database of its own, and its client.
struct PoisonFixture {
    fixture: Fixture,
    engine: Engine,
    client: Client,
}

impl PoisonFixture {
    async fn open(kind: Kind) -> Self {
        count_panics();
        let fixture = Fixture::open(kind).await;
        let engine = Engine::new(fixture.store.clone(), Clock::Database, RetryPolicy::None);
        let app = App::new(
            Syncs::new(engine.clone(), SyncSettings::default()),
            Access::Open { name: "tester".to_owned() },
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = tidemill_api::router(app);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let server = format!("http://{address}");
        let http = HttpTransport::new(HttpOptions { server, token: None, authorities: Vec::new() });
        Self { fixture, engine, client: Client::new(http.expect("an address")) }
    }

    async fn queue(&self) -> RunId {
        let mut request = QueueRun::new("shop", "staging");
        request.git_ref = Some("healthy".to_owned());
        self.engine.queue(request).await.expect("the run is queued").run_id
    }

    async fn ids(&self) -> Vec<RunId> {
        let ids = self.fixture.plain.texts("SELECT run_id FROM {ops}.runs").await.expect("ids are read");
        ids.into_iter().map(RunId::from_database).collect()
    }

    /// Returns the ids of rows with an unknown lane, which no record can hold.
    async fn undecodable(&self) -> BTreeSet<RunId> {
        let text = "SELECT run_id FROM {ops}.runs WHERE lane = 'weird'";
        let ids = self.fixture.plain.texts(text).await.expect("ids are read");
        ids.into_iter().map(RunId::from_database).collect()
    }

    /// Reads every list and every run through the store.
    async fn read_store(&self, healthy: &[RunId]) {
        let undecodable = self.undecodable().await;
        let store = &self.fixture.store;
        let mut listed = BTreeSet::new();
        let mut filter = RunFilter { limit: 7, ..RunFilter::default() };
        loop {
            let page = store.runs(filter.clone()).await.expect("runs are listed");
            listed.extend(page.iter().map(|run| run.run_id.clone()));
            let Some(last) = page.last().filter(|_| page.len() == filter.limit) else { break };
            filter.before = Some(RunCursor::at(last));
        }
        let all: BTreeSet<RunId> = self.ids().await.into_iter().collect();
        assert_eq!(listed, &all - &undecodable, "every readable run is listed");
        assert!(healthy.iter().all(|run| listed.contains(run)));
        for status in [RunState::Queued, RunState::Claimed, RunState::Failed, RunState::Success] {
            let filter = RunFilter { status: Some(status), limit: 500, ..RunFilter::default() };
            store.runs(filter).await.expect("runs are listed by status");
        }
        let everything = RunFilter { limit: 500, ..RunFilter::default() };
        store.waiting_runs(everything.clone()).await.expect("waiting runs are listed");
        store.failures(everything).await.expect("failures are listed");
        store.stats(None).await.expect("runs are counted");
        store.overview(None).await.expect("metrics are read");
        store.schedules(None).await.expect("schedules are listed");
        for run in &all {
            self.read_run(run, &undecodable).await;
        }
    }

    async fn read_run(&self, run: &RunId, undecodable: &BTreeSet<RunId>) {
        let store = &self.fixture.store;
        let found = self.engine.run(run).await;
        assert_eq!(found.is_err(), undecodable.contains(run), "{run}: {found:?}");
        let why = self.engine.why(run).await;
        assert!(why.is_ok() || undecodable.contains(run), "{run}: {why:?}");
        let page = EventPage { after: 0, limit: 1_000 };
        store.events(run.clone(), page).await.expect("events are read");
        let tail = EventTail { limit: 100, ..EventTail::default() };
        store.event_tail(run.clone(), tail).await.expect("the last events are read");
        store.artifacts(run.clone()).await.expect("artifacts are listed");
    }

    /// Reads every list and every run over HTTP with the public client.
    async fn read_http(&self, healthy: &[RunId]) {
        let undecodable = self.undecodable().await;
        let client = &self.client;
        let mut listed = BTreeSet::new();
        let mut asked = ListRuns { limit: Some(9), ..ListRuns::default() };
        loop {
            let page = client.runs(&asked).await.expect("runs are listed");
            listed.extend(page.items.into_iter().map(|run| run.run_id));
            let Some(next) = page.next else { break };
            asked.after = Some(next.parse().expect("a cursor"));
        }
        let all: BTreeSet<RunId> = self.ids().await.into_iter().collect();
        assert_eq!(listed, &all - &undecodable, "every readable run is listed");
        assert!(healthy.iter().all(|run| listed.contains(run)));
        client.failures(&ListFailures::default()).await.expect("failures are listed");
        client.waiting_runs(&ListWaiting::default()).await.expect("waiting runs are listed");
        client.stats().await.expect("runs are counted");
        client.schedules().await.expect("schedules are listed");
        client.alerts(&ListAlerts::default()).await.expect("alerts are listed");
        for run in &all {
            let readable = !undecodable.contains(run);
            let found = client.run(run).await;
            assert_eq!(found.is_ok(), readable, "{run:?}: {found:?}");
            let detail = client.run_detail(run).await;
            assert!(detail.is_ok() || !readable, "{run:?}: {detail:?}");
            if readable {
                client.why(run).await.expect("why explains the run");
                client.tries(run).await.expect("tries are listed");
                client.events(run, &ListEvents::default()).await.expect("events are read");
                client.tail(run, &ListTail::default()).await.expect("the last events are read");
                client.artifacts(run, &ListArtifacts::default()).await.expect("artifacts are listed");
            }
        }
    }

    /// Collects the runs of all streamed events.
    fn follow(&self) -> Arc<Mutex<BTreeSet<RunId>>> {
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let (mut stream, runs) = (self.client.watch(None, None), seen.clone());
        tokio::spawn(async move {
            loop {
                let event = stream.next().await.expect("the stream continues").event;
                runs.lock().expect("no poisoned lock").insert(event.run_id);
            }
        });
        seen
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so().await {
            assert!(Instant::now() < deadline, "in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sweeps, fires schedules, sends alerts and prunes once.
    async fn upkeep(&self, retention: Duration) {
        let upkeep = Upkeep { retention, ..Upkeep::default() };
        self.engine.upkeep(&upkeep).await.expect("upkeep continues");
    }

    /// Lets a worker execute runs until these have ended.
    async fn work(&self, runs: &[RunId]) -> Vec<Json> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = watch::channel(false);
        let (engine, carrier) = (self.engine.clone(), Recorder(seen.clone()));
        let worker = tokio::spawn(async move { engine.work(options(), carrier, stopped).await });
        let deadline = Instant::now() + TIMEOUT;
        for run in runs {
            while !self.engine.run(run).await.expect("the run is read").status.is_terminal() {
                assert!(!worker.is_finished(), "the worker ended: {:?}", worker.await);
                assert!(Instant::now() < deadline, "run {run} was not executed in time");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        stop.send(true).expect("the worker listens");
        worker.await.expect("the worker does not panic").expect("the worker ends well");
        Arc::into_inner(seen).expect("the worker is gone").into_inner().expect("no poisoned lock")
    }
}

fn options() -> WorkerOptions {
    WorkerOptions {
        name: "ann".to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
        projects: None,
        slots: 4,
        exit_when: ExitCondition::Never,
        heartbeat_every: Duration::from_millis(200),
        poll_every: Duration::from_millis(50),
        shutdown_timeout: Duration::from_secs(5),
        upkeep: None,
    }
}

/// Records the metadata of each executed run.
struct Recorder(Arc<Mutex<Vec<Json>>>);

impl Executor for Recorder {
    type Moment = ();

    fn moment(&self) {}

    async fn execute(&self, claim: Claim, _: RunLog, _: watch::Receiver<RunSignal<()>>) -> ExecutionOutcome {
        self.0.lock().expect("no poisoned lock").push(claim.metadata);
        ExecutionOutcome::Finished(FinalStatus::Success, json!({"done": true}))
    }
}

/// Writes random rows, and checks that every interface reads them and continues.
async fn survive(kind: Kind, seed: u64) {
    let fixture = PoisonFixture::open(kind).await;
    let plain = fixture.fixture.plain.clone();
    let streamed = fixture.follow();
    let (mut poison, mut healthy) = (Poison::new(seed, &plain), Vec::new());
    // The stream begins with events written after it was opened.
    fixture
        .until("the stream begins", async || {
            healthy.push(fixture.queue().await);
            !streamed.lock().expect("no poisoned lock").is_empty()
        })
        .await;

    for _ in 0..ROWS {
        let attempt = poison.attempt();
        // A refusal is fine: nothing was written.
        let _ = plain.execute(&attempt).await;
    }
    let mut forced: Vec<String> = (0..ROWS).map(|_| poison.run()).collect();
    forced.extend((0..ROWS).map(|_| poison.event()));
    forced.extend(poison.others());
    force(&plain, &forced).await.expect("the poison is written");
    healthy.push(fixture.queue().await);

    fixture.read_store(&healthy).await;
    fixture.read_http(&healthy).await;
    fixture.upkeep(Duration::from_hours(24 * 90)).await;
    for metadata in fixture.work(&healthy).await {
        assert!(!is_unreadable(&metadata), "a run was executed with {metadata}");
    }
    for run in &healthy {
        assert_eq!(fixture.engine.run(run).await.expect("the run is read").status, RunState::Success);
    }
    fixture.read_store(&healthy).await;
    fixture.read_http(&healthy).await;
    let last = healthy.last().expect("there is one");
    fixture
        .until("the stream has the event of the last run", async || {
            streamed.lock().expect("no poisoned lock").contains(last)
        })
        .await;
    fixture.upkeep(Duration::ZERO).await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "no task panicked (seed {seed})");
}

/// Returns a new seed for each run of the test, which is printed, or the one of the environment.
fn seeds() -> [u64; 2] {
    let chosen = std::env::var("TIDEMILL_POISON_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = [18, chosen.unwrap_or_else(|| fastrand::u64(..))];
    eprintln!("seeds: {seeds:?}; repeat with TIDEMILL_POISON_SEED={}", seeds[1]);
    seeds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_rows_in_postgres_affect_only_themselves() {
    for seed in seeds() {
        survive(Kind::Postgres, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_rows_in_sqlite_affect_only_themselves() {
    for seed in seeds() {
        survive(Kind::Sqlite, seed).await;
    }
}

/// A claimed run with unreadable metadata fails with a message and is not executed.
async fn unreadable_metadata_fails_the_run(kind: Kind) {
    let fixture = PoisonFixture::open(kind).await;
    let (poisoned, healthy) = (fixture.queue().await, fixture.queue().await);
    let statement =
        format!("UPDATE {{ops}}.runs SET metadata = '{{\"a\": 1e400}}' WHERE run_id = '{poisoned}'");
    force(&fixture.fixture.plain, &[statement]).await.expect("the poison is written");
    let carried = fixture.work(&[poisoned.clone(), healthy.clone()]).await;
    assert_eq!(carried.len(), 1, "{carried:?}");
    assert_eq!(fixture.engine.run(&healthy).await.expect("a run").status, RunState::Success);
    let failed = fixture.client.run(&poisoned).await.expect("a run");
    assert_eq!(failed.status, RunState::Failed);
    let events = fixture.client.events(&poisoned, &ListEvents::default()).await.expect("events").items;
    let message = serde_json::to_string(&events).expect("JSON") + &failed.metadata.to_string();
    assert!(message.contains("outside the range of 64-bit numbers"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_metadata_in_postgres_fails_the_run() {
    unreadable_metadata_fails_the_run(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_metadata_in_sqlite_fails_the_run() {
    unreadable_metadata_fails_the_run(Kind::Sqlite).await;
}

/// An unreadable event is streamed with the placeholder as its payload, and the stream continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_event_is_streamed_with_placeholder() {
    let fixture = PoisonFixture::open(Kind::Postgres).await;
    let run = fixture.queue().await;
    let mut stream = fixture.client.watch_run(&run, 0);
    stream.next().await.expect("the run was queued");
    let odd = format!(
        "INSERT INTO ops.run_log (run_id, seq, event_id, level, message, payload) \
         VALUES ('{run}', 2, 'evt-odd', 'info', 'odd', '{{\"a\": 1e400}}'); \
         UPDATE ops.runs SET last_seq = 2 WHERE run_id = '{run}'"
    );
    force(&fixture.fixture.plain, &[odd]).await.expect("the poison is written");
    fixture.engine.cancel(&run, "ann", None).await.expect("the run is cancelled");
    let odd = tokio::time::timeout(TIMEOUT, stream.next()).await.expect("in time").expect("an event").event;
    let reason = unreadable_reason(&odd.payload).unwrap_or_else(|| panic!("{UNREADABLE} in {}", odd.payload));
    assert!(reason.contains("outside the range"), "{reason}");
    let next = tokio::time::timeout(TIMEOUT, stream.next()).await.expect("in time").expect("an event").event;
    assert_eq!(next.seq, 3);
}

/// A schedule with an unreadable request is paused with the reason, and the others fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_schedule_is_paused_and_others_fire() {
    let fixture = PoisonFixture::open(Kind::Postgres).await;
    let row = |name: &str, request: &str| {
        format!(
            "INSERT INTO ops.schedules (schedule_id, project_id, cron, time_zone, request, missed, overlap, \
             next_fire_at, created_at) VALUES ('{name}', 'shop', '* * * * *', 'UTC', '{request}', 'once', 'skip', \
             now() - interval '5 minutes', now())"
        )
    };
    let fine = serde_json::to_string(&QueueRun::new("shop", "staging")).expect("JSON");
    let rows = [row("a-odd", r#"{"metadata": {"a": 1e400}}"#), row("fine", &fine)];
    force(&fixture.fixture.plain, &rows).await.expect("the schedules are written");
    fixture.upkeep(Duration::from_hours(24)).await;
    let schedules = fixture.client.schedules().await.expect("schedules are listed").items;
    let note = schedules[0].paused_note.as_deref().expect("it is paused");
    assert!(note.contains("outside the range of 64-bit numbers"), "{note}");
    assert!(schedules[1].last_run_id.is_some() && schedules[1].paused_at.is_none());
}
