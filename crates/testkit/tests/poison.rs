//! Hostile rows cost themselves alone: whatever SQL wrote, every interface goes on reading the other rows.
#![expect(clippy::expect_used, reason = "what fails here ends the test, loudly")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use serde_json::json;
use tidemill_api::App;
use tidemill_api::access::Access;
use tidemill_client::{Client, Http, HttpOptions};
use tidemill_core::json::{UNREADABLE, is_unreadable, unreadable_reason};
use tidemill_core::run::{Claim, FinalStatus, QueueRun, RunFilter, RunState};
use tidemill_core::{Json, RunId};
use tidemill_engine::sync::{SyncSettings, Syncs};
use tidemill_engine::worker::{Carrier, Ended, Ending, RunLog, Sign, WorkerOptions};
use tidemill_engine::{Clock, Engine, Patience, Upkeep};
use tidemill_store::{EventPage, EventTail};
use tidemill_testkit::door::{Kind, Stage};
use tidemill_testkit::poison::{Poison, force};
use tidemill_wire::alerts::ListAlerts;
use tidemill_wire::runs::{ListArtifacts, ListEvents, ListFailures, ListRuns, ListTail, ListWaiting};
use tokio::sync::watch;

/// Time limit for anything that a test waits for.
const PATIENCE: Duration = Duration::from_mins(1);
/// Hostile rows of each kind in one round.
const ROWS: usize = 30;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics in every task, also in those that nobody waits for.
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

/// A server on a database of its own, and a client of it.
struct Site {
    stage: Stage,
    engine: Engine,
    client: Client,
}

impl Site {
    async fn open(kind: Kind) -> Self {
        count_panics();
        let stage = Stage::open(kind).await;
        let engine = Engine::new(stage.store.clone(), Clock::Database, Patience::None);
        let app = App::new(
            Syncs::new(engine.clone(), SyncSettings::default()),
            Access::Open { name: "tester".to_owned() },
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = tidemill_api::router(app);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let server = format!("http://{address}");
        let http = Http::new(HttpOptions { server, token: None, authorities: Vec::new() });
        Self { stage, engine, client: Client::new(http.expect("an address")) }
    }

    async fn queue(&self) -> RunId {
        let mut request = QueueRun::new("shop", "staging");
        request.git_ref = Some("healthy".to_owned());
        self.engine.queue(request).await.expect("the run is queued").run_id
    }

    async fn ids(&self) -> Vec<RunId> {
        let ids = self.stage.plain.texts("SELECT run_id FROM {ops}.runs").await.expect("ids are read");
        ids.into_iter().map(RunId::from_database).collect()
    }

    /// Ids of rows with an unknown lane, which no record can hold.
    async fn undecodable(&self) -> BTreeSet<RunId> {
        let text = "SELECT run_id FROM {ops}.runs WHERE lane = 'weird'";
        let ids = self.stage.plain.texts(text).await.expect("ids are read");
        ids.into_iter().map(RunId::from_database).collect()
    }

    /// Reads every list and every run through the store.
    async fn read_store(&self, healthy: &[RunId]) {
        let undecodable = self.undecodable().await;
        let store = &self.stage.store;
        let mut listed = BTreeSet::new();
        let mut filter = RunFilter { limit: 7, ..RunFilter::default() };
        loop {
            let page = store.runs(filter.clone()).await.expect("runs are listed");
            listed.extend(page.iter().map(|run| run.run_id.clone()));
            let Some(last) = page.last().filter(|_| page.len() == filter.limit) else { break };
            filter.before = Some(last.run_id.clone());
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
        store.standing(None).await.expect("metrics are read");
        store.schedules(None).await.expect("schedules are listed");
        for run in &all {
            self.read_run(run, &undecodable).await;
        }
    }

    async fn read_run(&self, run: &RunId, undecodable: &BTreeSet<RunId>) {
        let store = &self.stage.store;
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

    /// Reads the same over HTTP, with the client that people use.
    async fn read_http(&self, healthy: &[RunId]) {
        let undecodable = self.undecodable().await;
        let client = &self.client;
        let mut listed = BTreeSet::new();
        let mut asked = ListRuns { limit: Some(9), ..ListRuns::default() };
        loop {
            let page = client.runs(&asked).await.expect("runs are listed");
            listed.extend(page.items.into_iter().map(|run| run.run_id));
            let Some(next) = page.next else { break };
            asked.after = Some(RunId::from_database(next));
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
                client.why(run).await.expect("a run says why it is where it is");
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
                let event = stream.next().await.expect("the stream goes on").event;
                runs.lock().expect("no poisoned lock").insert(event.run_id);
            }
        });
        seen
    }

    /// Waits until something is so.
    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so().await {
            assert!(Instant::now() < deadline, "in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sweeps, fires, tells people and prunes once.
    async fn upkeep(&self, retention: Duration) {
        let upkeep = Upkeep { retention, ..Upkeep::default() };
        self.engine.upkeep(&upkeep).await.expect("upkeep goes on");
    }

    /// Has a worker carry out runs until these have ended.
    async fn work(&self, runs: &[RunId]) -> Vec<Json> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = watch::channel(false);
        let (engine, carrier) = (self.engine.clone(), Recorder(seen.clone()));
        let worker = tokio::spawn(async move { engine.work(options(), carrier, stopped).await });
        let deadline = Instant::now() + PATIENCE;
        for run in runs {
            while !self.engine.run(run).await.expect("the run is read").status.is_terminal() {
                assert!(!worker.is_finished(), "the worker ended: {:?}", worker.await);
                assert!(Instant::now() < deadline, "run {run} was not carried out in time");
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
        ending: Ending::Never,
        beat: Duration::from_millis(200),
        look: Duration::from_millis(50),
        ending_max: Duration::from_secs(5),
        upkeep: None,
    }
}

/// Notes the metadata that each run is carried out with.
struct Recorder(Arc<Mutex<Vec<Json>>>);

impl Carrier for Recorder {
    type Moment = ();

    fn moment(&self) {}

    async fn carry(&self, claim: Claim, _: RunLog, _: watch::Receiver<Sign<()>>) -> Ended {
        self.0.lock().expect("no poisoned lock").push(claim.metadata);
        Ended::With(FinalStatus::Success, json!({"done": true}))
    }
}

/// Writes random rows, and has every interface read them, work beside them and go on.
async fn survive(kind: Kind, seed: u64) {
    let site = Site::open(kind).await;
    let plain = site.stage.plain.clone();
    let streamed = site.follow();
    let (mut poison, mut healthy) = (Poison::new(seed, &plain), Vec::new());
    // The stream begins with what is written after it was opened.
    site.until("the stream begins", async || {
        healthy.push(site.queue().await);
        !streamed.lock().expect("no poisoned lock").is_empty()
    })
    .await;

    for _ in 0..ROWS {
        let attempt = poison.attempt();
        // A refusal is fine: then nothing was written.
        let _ = plain.execute(&attempt).await;
    }
    let mut forced: Vec<String> = (0..ROWS).map(|_| poison.run()).collect();
    forced.extend((0..ROWS).map(|_| poison.event()));
    forced.extend(poison.others());
    force(&plain, &forced).await.expect("the poison is written");
    healthy.push(site.queue().await);

    site.read_store(&healthy).await;
    site.read_http(&healthy).await;
    site.upkeep(Duration::from_hours(24 * 90)).await;
    for metadata in site.work(&healthy).await {
        assert!(!is_unreadable(&metadata), "a run was carried out with {metadata}");
    }
    for run in &healthy {
        assert_eq!(site.engine.run(run).await.expect("the run is read").status, RunState::Success);
    }
    site.read_store(&healthy).await;
    site.read_http(&healthy).await;
    let last = healthy.last().expect("there is one");
    site.until("the stream tells of the last run", async || {
        streamed.lock().expect("no poisoned lock").contains(last)
    })
    .await;
    site.upkeep(Duration::ZERO).await;
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "nothing panicked (seed {seed})");
}

/// A seed of its own for each run of the test, which is printed, or the one that is asked for.
fn seeds() -> [u64; 2] {
    let chosen = std::env::var("TIDEMILL_POISON_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = [18, chosen.unwrap_or_else(|| fastrand::u64(..))];
    eprintln!("seeds: {seeds:?}; repeat with TIDEMILL_POISON_SEED={}", seeds[1]);
    seeds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_rows_in_postgres_cost_themselves_alone() {
    for seed in seeds() {
        survive(Kind::Postgres, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_rows_in_sqlite_cost_themselves_alone() {
    for seed in seeds() {
        survive(Kind::Sqlite, seed).await;
    }
}

/// A claimed run with unreadable metadata fails with a sentence that says what is wrong, and is not carried out.
async fn unreadable_metadata_fails_the_run(kind: Kind) {
    let site = Site::open(kind).await;
    let (poisoned, healthy) = (site.queue().await, site.queue().await);
    let statement =
        format!("UPDATE {{ops}}.runs SET metadata = '{{\"a\": 1e400}}' WHERE run_id = '{poisoned}'");
    force(&site.stage.plain, &[statement]).await.expect("the poison is written");
    let carried = site.work(&[poisoned.clone(), healthy.clone()]).await;
    assert_eq!(carried.len(), 1, "{carried:?}");
    assert_eq!(site.engine.run(&healthy).await.expect("a run").status, RunState::Success);
    let failed = site.client.run(&poisoned).await.expect("a run");
    assert_eq!(failed.status, RunState::Failed);
    let events = site.client.events(&poisoned, &ListEvents::default()).await.expect("events").items;
    let told = serde_json::to_string(&events).expect("JSON") + &failed.metadata.to_string();
    assert!(told.contains("outside the range of 64-bit numbers"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_metadata_in_postgres_fails_the_run() {
    unreadable_metadata_fails_the_run(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_metadata_in_sqlite_fails_the_run() {
    unreadable_metadata_fails_the_run(Kind::Sqlite).await;
}

/// An unreadable event is delivered with the placeholder as its payload, and the stream goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_event_is_streamed_with_placeholder() {
    let site = Site::open(Kind::Postgres).await;
    let run = site.queue().await;
    let mut stream = site.client.watch_run(&run, 0);
    stream.next().await.expect("the run was queued");
    let odd = format!(
        "INSERT INTO ops.run_events (run_id, seq, event_id, level, message, payload) \
         VALUES ('{run}', 2, 'evt-odd', 'info', 'odd', '{{\"a\": 1e400}}'); \
         UPDATE ops.runs SET last_seq = 2 WHERE run_id = '{run}'"
    );
    force(&site.stage.plain, &[odd]).await.expect("the poison is written");
    site.engine.cancel(&run, "ann", None).await.expect("the run is cancelled");
    let odd = tokio::time::timeout(PATIENCE, stream.next()).await.expect("in time").expect("an event").event;
    let reason = unreadable_reason(&odd.payload).unwrap_or_else(|| panic!("{UNREADABLE} in {}", odd.payload));
    assert!(reason.contains("outside the range"), "{reason}");
    let next = tokio::time::timeout(PATIENCE, stream.next()).await.expect("in time").expect("an event").event;
    assert_eq!(next.seq, 3);
}

/// A schedule with an unreadable request is paused with the reason, and the others fire.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_schedule_is_paused_and_others_fire() {
    let site = Site::open(Kind::Postgres).await;
    let row = |name: &str, request: &str| {
        format!(
            "INSERT INTO ops.schedules (schedule_id, project_id, cron, time_zone, request, missed, overlap, \
             next_fire_at, created_at) VALUES ('{name}', 'shop', '* * * * *', 'UTC', '{request}', 'once', 'skip', \
             now() - interval '5 minutes', now())"
        )
    };
    let fine = serde_json::to_string(&QueueRun::new("shop", "staging")).expect("JSON");
    let rows = [row("a-odd", r#"{"metadata": {"a": 1e400}}"#), row("fine", &fine)];
    force(&site.stage.plain, &rows).await.expect("the schedules are written");
    site.upkeep(Duration::from_hours(24)).await;
    let schedules = site.client.schedules().await.expect("schedules are listed").items;
    let note = schedules[0].paused_note.as_deref().expect("it is paused");
    assert!(note.contains("outside the range of 64-bit numbers"), "{note}");
    assert!(schedules[1].last_run_id.is_some() && schedules[1].paused_at.is_none());
}
