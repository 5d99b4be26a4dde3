//! The kernel on SQLite: each verb, each trigger, and the plain SQL that an operator may type.
//!
//! The conformance suite holds both databases to the same answers; these cases are about what is SQLite's own.

use chrono::{DateTime, Duration};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::project::{Flag, FlagName, project_scope};
use tidemill_core::run::{Applied, Claim, EndCause, FinalStatus, Gate, QueueRun, Run, RunState};
use tidemill_core::worker::NewWorker;
use tidemill_core::{Json, RunId, Timestamp, WorkerId, artifact::NewArtifact, limits, retry};
use tidemill_store::{
    Cancelled, ClaimRuns, Error, FinishRun, Holder, Options, Queued, RefusalCode, Store, Swept,
};
use uuid::Uuid;

/// The time of a test, so many seconds after its start.
fn at(secs: i64) -> Timestamp {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap() + Duration::seconds(secs)
}

/// A store on a file of its own, with the project `shop`, and a second connection for plain SQL.
struct Bench {
    store: Store,
    plain: SqliteConnection,
    _folder: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidemill.db");
        let store = Store::open(&Options::new(path.display().to_string(), || at(0))).await.unwrap();
        store.migrate(None).await.unwrap();
        store.create_project("shop", vec!["staging".to_owned()], Some(at(0))).await.unwrap();
        let plain = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        Self { store, plain, _folder: folder }
    }

    async fn try_queue(&self, request: QueueRun, secs: i64) -> Result<Queued, Error> {
        self.store.queue_run(request, RunId::new(at(secs), Uuid::new_v4()), Some(at(secs))).await
    }

    async fn queue(&self, request: QueueRun, secs: i64) -> RunId {
        self.try_queue(request, secs).await.unwrap().run_id
    }

    async fn claim(&self, ask: ClaimRuns, secs: i64) -> Vec<Claim> {
        self.store.claim_runs(ask, Some(at(secs))).await.unwrap()
    }

    /// Claims the only run that can be, as `w`.
    async fn claim_one(&self, secs: i64) -> Claim {
        let mut claims = self.claim(ClaimRuns::one("w"), secs).await;
        claims.pop().expect("there is a run to claim")
    }

    async fn append(&self, run: &RunId, events: Vec<NewEvent>, secs: i64) -> Vec<Option<String>> {
        self.store.append_events(run.clone(), events, Holder::default(), Some(at(secs))).await.unwrap()
    }

    async fn finish(&self, run: &RunId, status: FinalStatus, metadata: Value, secs: i64) -> Applied {
        let end = FinishRun { run_id: run.clone(), status, metadata, epoch: None };
        self.store.finish_runs(vec![end], None, Some(at(secs))).await.unwrap()[0]
    }

    async fn sweep(&self, secs: i64) -> Vec<Swept> {
        self.store.sweep(500, 20.0, Some(at(secs))).await.unwrap()
    }

    async fn run(&self, run: &RunId) -> Run {
        self.store.run(run.clone()).await.unwrap().expect("the run exists")
    }

    async fn sql(&mut self, text: &str) -> Result<u64, Error> {
        let result = sqlx::query(AssertSqlSafe(text.to_owned())).execute(&mut self.plain).await;
        result.map(|result| result.rows_affected()).map_err(|source| Error::database("run SQL", source))
    }

    /// A run's record: kind, level, message, payload.
    async fn record(&mut self, run: &RunId) -> Vec<(String, String, String, Value)> {
        let rows: Vec<(String, String, String, String)> = sqlx::query_as(
            "SELECT kind, level, message, payload FROM run_events WHERE run_id = $1 ORDER BY seq",
        )
        .bind(run.as_str())
        .fetch_all(&mut self.plain)
        .await
        .unwrap();
        let parsed = |text: &str| serde_json::from_str(text).unwrap();
        rows.into_iter().map(|(kind, level, message, text)| (kind, level, message, parsed(&text))).collect()
    }

    async fn messages(&mut self, run: &RunId) -> Vec<String> {
        self.record(run).await.into_iter().map(|event| event.2).collect()
    }
}

fn shop() -> QueueRun {
    QueueRun::new("shop", "staging")
}

fn info(message: &str) -> NewEvent {
    NewEvent::new(Level::Info, message)
}

fn code(result: Result<impl std::fmt::Debug, Error>) -> RefusalCode {
    let error = result.expect_err("it is refused");
    error.refusal_code().unwrap_or_else(|| panic!("a refusal, not {error:?}"))
}

#[tokio::test]
async fn a_run_goes_from_queued_to_success_and_each_step_is_on_record() {
    let mut bench = Bench::new().await;
    let run = bench.queue(QueueRun { metadata: json!({"deploy": "api"}), ..shop() }, 0).await;
    let claim = bench.claim_one(1).await;
    assert_eq!((&claim.run_id, claim.epoch, claim.lease_until), (&run, 1, at(301)));
    let id = format!("evt-{}-4", &run.as_str()[4..]);
    assert_eq!(bench.append(&run, vec![info("building")], 2).await, [Some(id)]);
    assert_eq!(bench.finish(&run, FinalStatus::Success, json!({"exit": 0}), 3).await, Applied::Applied);

    let run = bench.run(&run).await;
    assert_eq!((run.status, run.end_cause), (RunState::Success, Some(EndCause::Reported)));
    assert_eq!(run.metadata, json!({"deploy": "api", "exit": 0}));
    assert_eq!((run.gate, run.started_at, run.finished_at), (None, Some(at(1)), Some(at(3))));
    let record = bench.record(&run.run_id).await;
    let event = |kind: &str, message: &str, payload: Value| {
        (kind.to_owned(), "info".to_owned(), message.to_owned(), payload)
    };
    assert_eq!(
        record,
        [
            event("transition", "Run queued", json!({"to": "queued"})),
            event(
                "transition",
                "Run claimed by worker",
                json!({"from": "queued", "to": "claimed", "worker_id": "w"})
            ),
            event("transition", "Run started", json!({"from": "claimed", "to": "running"})),
            event("log", "building", json!({})),
            event(
                "transition",
                "Run succeeded",
                json!({"from": "running", "to": "success", "cause": "reported"})
            ),
        ]
    );
}

#[tokio::test]
async fn one_key_is_one_run_and_another_request_under_it_is_refused() {
    let bench = Bench::new().await;
    let keyed = QueueRun {
        idempotency_key: Some("k".to_owned()),
        labels: vec!["x".to_owned(), "gpu".to_owned()],
        expires_at: Some(at(99)),
        metadata: json!({"n": 1}),
        ..shop()
    };
    let first = bench.try_queue(keyed.clone(), 0).await.unwrap();
    let mut again = QueueRun { labels: vec!["gpu".into(), "x".into(), "x".into()], ..keyed.clone() };
    again.metadata = json!({"n": 1.0});
    let second = bench.try_queue(again, 5).await.unwrap();
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!((second.run_id, second.queued_at), (first.run_id.clone(), at(0)));
    assert_eq!(bench.run(&first.run_id).await.labels, ["gpu", "x"]);

    let other = bench.try_queue(QueueRun { priority: 1, ..keyed }, 6).await.unwrap_err();
    assert_eq!(other.hint().as_deref(), Some("Use another key for another request."));
    assert_eq!(code(Err::<(), _>(other)), RefusalCode::KeyConflict);
    // The caller's own id makes asking again the same, key or not; in another project it is taken.
    let id = RunId::new(at(7), Uuid::new_v4());
    for created in [true, false] {
        let queued = bench.store.queue_run(shop(), id.clone(), Some(at(7))).await.unwrap();
        assert_eq!((queued.run_id, queued.created), (id.clone(), created));
    }
    bench.store.create_project("other", vec!["staging".to_owned()], Some(at(0))).await.unwrap();
    let elsewhere = bench.store.queue_run(QueueRun::new("other", "staging"), id, Some(at(8))).await;
    assert_eq!(code(elsewhere), RefusalCode::KeyConflict);
}

#[tokio::test]
async fn a_request_that_cannot_be_is_refused_with_a_reason() {
    let bench = Bench::new().await;
    assert_eq!(code(bench.try_queue(QueueRun::new("none", "staging"), 0).await), RefusalCode::UnknownProject);
    let error = bench.try_queue(QueueRun::new("shop", "live"), 0).await.unwrap_err();
    assert_eq!(error.to_string(), "project `shop` has no environment `live`");
    assert_eq!(error.hint().as_deref(), Some("It has: staging"));
    let bad = QueueRun { max_attempts: 0, ..shop() };
    assert_eq!(code(bench.try_queue(bad, 0).await), RefusalCode::BadValue);
    let large = QueueRun { git_ref: Some("r".repeat(limits::KEY_BYTES_MAX + 1)), ..shop() };
    assert_eq!(code(bench.try_queue(large, 0).await), RefusalCode::TooLarge);
    let nobody: RunId = "run-none".parse().unwrap();
    assert_eq!(code(bench.store.start_run(nobody, Holder::default(), None).await), RefusalCode::UnknownRun);
}

#[tokio::test]
async fn shelves_are_merged_by_priority_and_age_and_what_does_not_fit_stays() {
    let bench = Bench::new().await;
    for project in ["paused", "other"] {
        bench.store.create_project(project, vec!["staging".to_owned()], Some(at(0))).await.unwrap();
    }
    let request = |project: &str, labels: &[&str], priority: i32| QueueRun {
        labels: labels.iter().map(ToString::to_string).collect(),
        priority,
        ..QueueRun::new(project, "staging")
    };
    let a = bench.queue(request("shop", &[], 0), 1).await;
    let b = bench.queue(request("shop", &["gpu"], 0), 2).await;
    let c = bench.queue(request("shop", &[], 0), 3).await;
    let d = bench.queue(request("shop", &["gpu"], -1), 4).await;
    let e = bench.queue(request("shop", &[], 9), 5).await;
    bench.queue(request("shop", &["arm", "gpu"], 99), 6).await;
    bench.queue(request("paused", &[], 99), 6).await;
    bench.queue(request("other", &[], 99), 6).await;
    let flag = Flag {
        flag: FlagName::Paused,
        scope: project_scope("paused"),
        note: None,
        since: at(0),
        until_at: Some(at(50)),
        set_by: None,
    };
    bench.store.set_flag(flag).await.unwrap();
    let ask = ClaimRuns {
        limit: 4,
        labels: vec!["gpu".to_owned()],
        projects: Some(vec!["shop".to_owned(), "paused".to_owned()]),
        ..ClaimRuns::one("w")
    };
    let ids = |claims: Vec<Claim>| claims.into_iter().map(|claim| claim.run_id).collect::<Vec<_>>();
    assert_eq!(ids(bench.claim(ask.clone(), 10).await), [e, a, b, c]);
    assert_eq!(ids(bench.claim(ask.clone(), 10).await), [d]);
    assert_eq!(ids(bench.claim(ask.clone(), 10).await), []);
    // The pause ends by itself.
    assert_eq!(bench.claim(ask, 50).await[0].project_id, "paused");
}

#[tokio::test]
async fn a_claim_asked_again_gives_the_same_runs_and_a_dead_worker_gets_none() {
    let bench = Bench::new().await;
    for secs in 0..3 {
        bench.queue(shop(), secs).await;
    }
    let worker_id = WorkerId(Uuid::new_v4());
    let worker = NewWorker {
        worker_id,
        name: "w".to_owned(),
        host: "h".to_owned(),
        pid: 1,
        labels: Vec::new(),
        version: "1".to_owned(),
    };
    bench.store.register_worker(worker, Some(at(0))).await.unwrap();
    let ask = ClaimRuns {
        limit: 2,
        worker_id: Some(worker_id),
        request_id: Some("r1".to_owned()),
        ..ClaimRuns::one("w")
    };
    let first = bench.claim(ask.clone(), 5).await;
    assert_eq!(first, bench.claim(ask.clone(), 6).await);
    assert_eq!(first.len(), 2);

    // Silent for too long: its runs go to others at once, and it is told so.
    let swept = bench.sweep(21).await;
    assert_eq!(swept.iter().map(|one| one.action).collect::<Vec<_>>(), [EndCause::Stale; 2]);
    let reason = bench.run(&swept[0].run_id).await.metadata["reason"].clone();
    assert_eq!(reason, "Stale run (its worker died before the first event)");
    let error = bench.store.claim_runs(ask, Some(at(22))).await.unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("Stop what it runs, and register anew."));
    assert_eq!(code(Err::<(), _>(error)), RefusalCode::Stale);
}

#[tokio::test]
async fn one_run_of_a_key_is_out_at_a_time_and_every_end_passes_the_key_on() {
    let mut bench = Bench::new().await;
    let keyed = |priority| QueueRun { concurrency_key: Some("db".to_owned()), priority, ..shop() };
    let low = bench.queue(keyed(0), 0).await;
    let high = bench.queue(keyed(5), 1).await;
    let middle = bench.queue(keyed(3), 2).await;
    let gates = async |bench: &Bench| {
        let mut gates = Vec::new();
        for run in [&low, &high, &middle] {
            gates.push(bench.run(run).await.gate);
        }
        gates
    };
    // A head that nobody has claimed gives way to a higher priority.
    assert_eq!(gates(&bench).await, [Some(Gate::Key), Some(Gate::Open), Some(Gate::Key)]);
    let claims = bench.claim(ClaimRuns { limit: 9, ..ClaimRuns::one("w") }, 3).await;
    assert_eq!(claims.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&high]);
    bench.finish(&high, FinalStatus::Success, json!({}), 4).await;
    assert_eq!(gates(&bench).await, [Some(Gate::Key), None, Some(Gate::Open)]);
    // A plain statement passes it on too, for each of its rows.
    assert_eq!(bench.sql("UPDATE runs SET status = 'cancelled' WHERE gate IS NOT NULL").await.unwrap(), 2);
    assert_eq!(gates(&bench).await, [None, None, None]);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM concurrency_keys")
        .fetch_one(&mut bench.plain)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_run_that_must_wait_is_opened_by_a_claim_or_a_sweep_and_then_takes_its_key() {
    let bench = Bench::new().await;
    let later = |key: Option<&str>| QueueRun {
        available_at: Some(at(60)),
        concurrency_key: key.map(str::to_owned),
        ..shop()
    };
    let free = bench.queue(later(None), 0).await;
    let keyed = bench.queue(later(Some("db")), 0).await;
    let holder = bench.queue(QueueRun { concurrency_key: Some("db".to_owned()), ..shop() }, 1).await;
    assert_eq!(bench.run(&free).await.gate, Some(Gate::Time));
    assert_eq!(bench.claim_one(59).await.run_id, holder);
    assert_eq!(bench.claim_one(60).await.run_id, free);
    assert_eq!(bench.run(&keyed).await.gate, Some(Gate::Key));
    let last = bench.queue(QueueRun { available_at: Some(at(90)), ..shop() }, 61).await;
    assert_eq!(bench.sweep(90).await, []);
    assert_eq!(bench.run(&last).await.gate, Some(Gate::Open));
}

#[tokio::test]
async fn a_reported_failure_is_tried_again_after_a_wait_until_the_budget_is_spent() {
    let mut bench = Bench::new().await;
    let request = QueueRun { max_attempts: 2, backoff_secs: 10, metadata: json!({"n": 1}), ..shop() };
    let first = bench.queue(request, 0).await;
    bench.claim_one(1).await;
    bench.finish(&first, FinalStatus::Failed, json!({"error": "no"}), 2).await;

    let tries = bench.store.tries(first.clone()).await.unwrap();
    let second = &tries[1];
    assert_eq!((second.attempt, second.failures, second.losses), (2, 1, 0));
    assert_eq!(second.available_at, Some(at(2) + retry::backoff(10, 0, &first)));
    assert_eq!((second.gate, &second.metadata), (Some(Gate::Time), &json!({"n": 1})));
    let queued = bench.record(&second.run_id).await.remove(0).3;
    assert_eq!(queued, json!({"to": "queued", "retry_of": first.as_str(), "attempt": 2}));

    bench.claim_one(60).await;
    bench.finish(&second.run_id, FinalStatus::Failed, json!({}), 61).await;
    assert_eq!(bench.store.tries(first.clone()).await.unwrap().len(), 2);
    // A person may try once more, with fresh budgets; asking again gives the same try.
    let asked = bench.store.retry_run(second.run_id.clone(), "ann".to_owned(), Some(at(62))).await.unwrap();
    let again = bench.store.retry_run(second.run_id.clone(), "ann".to_owned(), Some(at(63))).await.unwrap();
    assert_eq!((asked.created, again.created, &asked.run_id), (true, false, &again.run_id));
    let third = bench.run(&asked.run_id).await;
    assert_eq!((third.attempt, third.failures, third.gate), (3, 0, Some(Gate::Open)));
    assert_eq!(bench.messages(&second.run_id).await.pop().unwrap(), "Retry requested");
    let refused = bench.store.retry_run(third.run_id, "ann".to_owned(), Some(at(64))).await;
    assert_eq!(code(refused), RefusalCode::NotRetryable);
}

#[tokio::test]
async fn a_lost_run_is_tried_again_and_then_put_into_quarantine_with_its_last_words() {
    let bench = Bench::new().await;
    let first = bench.queue(QueueRun { max_losses: 1, ..shop() }, 0).await;
    bench.claim_one(1).await;
    assert_eq!(bench.sweep(300).await, []);
    let swept = bench.sweep(301).await;
    let second = swept[0].successor.clone().expect("another try");
    assert_eq!(
        swept,
        [Swept { run_id: first.clone(), action: EndCause::Stale, successor: Some(second.clone()) }]
    );
    assert_eq!(
        bench.run(&first).await.metadata,
        json!({
            "cancelled_by": "system", "original_worker": "w", "claimed_at": "2027-01-15T08:00:01.000000Z",
            "reason": "Stale run (claimed for >5 minutes without events)",
        })
    );
    bench.claim_one(302).await;
    let lines = (0..25).map(|n| info(&format!("line {n}"))).collect();
    bench.append(&second, lines, 303).await;
    assert_eq!(
        bench.sweep(603).await,
        [Swept { run_id: second.clone(), action: EndCause::Quarantined, successor: None }]
    );
    let ended = bench.run(&second).await;
    assert_eq!((ended.status, ended.losses), (RunState::Failed, 1));
    assert_eq!(ended.metadata["losses"], 2);
    let tail = ended.metadata["output_tail"].as_array().unwrap();
    assert_eq!((tail.len(), &tail[0], &tail[19]), (20, &json!("line 5"), &json!("line 24")));
}

#[tokio::test]
async fn what_waits_too_long_expires_and_what_runs_too_long_times_out() {
    let bench = Bench::new().await;
    let waiting = bench.queue(QueueRun { expires_at: Some(at(10)), ..shop() }, 0).await;
    assert_eq!(
        bench.sweep(10).await,
        [Swept { run_id: waiting, action: EndCause::Expired, successor: None }]
    );
    let slow = bench.queue(QueueRun { timeout_secs: Some(60), max_attempts: 2, ..shop() }, 11).await;
    bench.claim_one(12).await;
    bench.store.start_run(slow.clone(), Holder::default(), Some(at(13))).await.unwrap();
    assert_eq!(bench.sweep(72).await, []);
    let swept = bench.sweep(73).await;
    assert_eq!((swept[0].action, swept[0].successor.is_some()), (EndCause::TimedOut, true));
    assert_eq!(bench.run(&slow).await.metadata, json!({"error": "the run took longer than 60 s"}));
}

#[tokio::test]
async fn a_run_that_waits_is_cancelled_at_once_and_a_held_one_is_asked_to_stop() {
    let mut bench = Bench::new().await;
    let cancel = async |bench: &Bench, run: &RunId, secs| {
        let reason = Some("wrong branch".to_owned());
        bench.store.cancel_run(run.clone(), "ann".to_owned(), reason, Some(at(secs))).await.unwrap()
    };
    let waiting = bench.queue(shop(), 0).await;
    assert_eq!(cancel(&bench, &waiting, 1).await, Cancelled::Cancelled);
    assert_eq!(cancel(&bench, &waiting, 2).await, Cancelled::Ended);
    let notes = json!({"cancelled_by": "ann", "reason": "wrong branch"});
    assert_eq!(bench.run(&waiting).await.metadata, notes);

    let held = bench.queue(QueueRun { max_attempts: 9, ..shop() }, 3).await;
    bench.claim_one(4).await;
    assert_eq!(cancel(&bench, &held, 5).await, Cancelled::Requested);
    assert_eq!(cancel(&bench, &held, 6).await, Cancelled::Requested);
    let beat = bench.store.heartbeat(held.clone(), Holder::default(), Some(at(7))).await.unwrap();
    assert!(beat.held && beat.cancel_requested && beat.lease_until == Some(at(307)));
    assert_eq!(bench.sweep(34).await, []);
    assert_eq!(bench.sweep(35).await[0].action, EndCause::CancelGrace);
    assert_eq!(bench.run(&held).await.metadata, notes);
    let last = ["Run queued", "Run claimed by worker", "Cancel requested", "Run cancelled"];
    assert_eq!(bench.messages(&held).await, last);
}

#[tokio::test]
async fn a_zombie_changes_nothing_and_is_recorded_once_per_verb() {
    let mut bench = Bench::new().await;
    let run = bench.queue(shop(), 0).await;
    bench.claim_one(1).await;
    for holder in [
        Holder { worker: Some("other".to_owned()), epoch: None },
        Holder { worker: Some("w".to_owned()), epoch: Some(7) },
    ] {
        let stale = bench.store.start_run(run.clone(), holder.clone(), Some(at(2))).await.unwrap();
        assert_eq!(stale, Applied::Stale);
        let beat = bench.store.heartbeat(run.clone(), holder.clone(), Some(at(2))).await.unwrap();
        assert!(!beat.held && beat.lease_until.is_none());
        let ids = bench.store.append_events(run.clone(), vec![info("x")], holder, Some(at(2))).await.unwrap();
        assert_eq!(ids, [None]);
        let end = FinishRun {
            run_id: run.clone(),
            status: FinalStatus::Success,
            metadata: json!({}),
            epoch: Some(7),
        };
        let ends = bench.store.finish_runs(vec![end], Some("other".to_owned()), Some(at(2))).await.unwrap();
        assert_eq!(ends, [Applied::Stale]);
    }
    assert_eq!(bench.run(&run).await.status, RunState::Claimed);
    let refusals: Vec<_> = bench.record(&run).await.into_iter().skip(2).collect();
    assert_eq!(refusals.len(), 4, "{refusals:?}");
    assert_eq!(refusals[0].3, json!({"verb": "start", "epoch": 1, "worker_id": "other"}));
}

#[tokio::test]
async fn an_event_appended_twice_is_one_event() {
    let mut bench = Bench::new().await;
    let run = bench.queue(shop(), 0).await;
    bench.claim_one(1).await;
    let batch = || vec![info("a"), info("a"), info("b").keyed("k1"), info("c").keyed("k1")];
    let first = bench.append(&run, batch(), 2).await;
    assert_eq!(first[0], first[1]);
    assert_eq!(first[2], first[3]);
    assert_eq!(bench.append(&run, batch(), 11).await, first);
    // Without a key the same words are news after ten seconds; with one they never are.
    let later = bench.append(&run, batch(), 12).await;
    assert!(later[0] != first[0] && later[2] == first[2]);
    let odd = NewEvent { payload: json!({"π": [1.50, "\"\u{1F30A}\n"]}), ..info("line\u{1}\\ \"quoted\"") };
    bench.append(&run, vec![odd.clone()], 13).await;
    let last = bench.record(&run).await.pop().unwrap();
    assert_eq!((last.2, last.3), (odd.message, odd.payload));

    bench.finish(&run, FinalStatus::Success, json!({}), 14).await;
    assert_eq!(bench.append(&run, batch(), 15).await, [None, None, first[2].clone(), first[2].clone()]);
    assert_eq!(bench.messages(&run).await.pop().unwrap(), "Refused append: the lease is gone");
    let large = vec![info(&"x".repeat(limits::MESSAGE_BYTES_MAX + 1))];
    let refused = bench.store.append_events(run, large, Holder::default(), Some(at(16))).await;
    assert_eq!(code(refused), RefusalCode::TooLarge);
}

#[tokio::test]
async fn several_ends_in_one_call_have_an_outcome_each_and_their_artifacts_are_kept() {
    let bench = Bench::new().await;
    let mut runs = Vec::new();
    for secs in 0..4 {
        runs.push(bench.queue(shop(), secs).await);
    }
    bench.claim(ClaimRuns { limit: 2, ..ClaimRuns::one("w") }, 5).await;
    let end =
        |run: &RunId, status, metadata| FinishRun { run_id: run.clone(), status, metadata, epoch: None };
    let made = json!({"artifacts": [
        {"type": "image", "url": "oci://a", "size_bytes": 5}, {"type": "", "url": "x"}, {"type": "log"}]});
    let ends = vec![
        end(&runs[0], FinalStatus::Success, made.clone()),
        end(&runs[0], FinalStatus::Success, made.clone()),
        end(&runs[1], FinalStatus::Failed, json!({})),
        end(&runs[1], FinalStatus::Success, json!({})),
        end(&runs[2], FinalStatus::Success, json!({})),
        end(&runs[3], FinalStatus::Cancelled, json!({})),
    ];
    let outcomes = bench.store.finish_runs(ends, Some("w".to_owned()), Some(at(6))).await.unwrap();
    use Applied as A;
    assert_eq!(outcomes, [A::Applied, A::Duplicate, A::Applied, A::Stale, A::Stale, A::Applied]);
    let artifact = NewArtifact {
        artifact_type: "image".to_owned(),
        url: "oci://a".to_owned(),
        digest: Some("sha256:1".to_owned()),
        size_bytes: None,
        metadata: json!({}),
    };
    let id = bench.store.add_artifact(runs[0].clone(), artifact, Some(at(7))).await.unwrap();
    let kept = bench.store.artifacts(runs[0].clone()).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0].artifact_id, kept[0].size_bytes), (&id, Some(5)));
    assert_eq!(kept[0].digest.as_deref(), Some("sha256:1"));
    // The same report once more, after its answer was lost; then with another ending.
    assert_eq!(bench.finish(&runs[0], FinalStatus::Success, made, 8).await, A::Duplicate);
    assert_eq!(bench.finish(&runs[0], FinalStatus::Failed, json!({}), 8).await, A::Stale);
    let unknown = bench.store.finish_runs(
        vec![end(&"run-none".parse().unwrap(), FinalStatus::Success, Json::Object(serde_json::Map::new()))],
        None,
        None,
    );
    assert_eq!(code(unknown.await), RefusalCode::UnknownRun);
}

#[tokio::test]
async fn a_plain_statement_is_completed_and_recorded() {
    let mut bench = Bench::new().await;
    let env = "INSERT INTO runs (run_id, project_id, env_id) VALUES ('run-1', 'shop', 'shop/staging')";
    bench.sql(env).await.unwrap();
    let run: RunId = "run-1".parse().unwrap();
    assert_eq!(bench.run(&run).await.labels, [""; 0]);
    let claim =
        "UPDATE runs SET status = 'claimed', claimed_by = 'me' WHERE run_id = 'run-1' AND status = 'queued'";
    assert_eq!(bench.sql(claim).await.unwrap(), 1);
    assert_eq!(bench.sql(claim).await.unwrap(), 0);
    let held = bench.run(&run).await;
    assert_eq!((held.gate, held.epoch, held.started_at), (None, 1, Some(held.updated_at)));
    assert_eq!(held.lease_until, Some(held.updated_at + Duration::seconds(300)));
    bench.sql("UPDATE runs SET status = 'running' WHERE run_id = 'run-1'").await.unwrap();
    bench
        .sql("UPDATE runs SET status = 'failed', metadata = '{\"a\":1}' WHERE run_id = 'run-1'")
        .await
        .unwrap();
    let ended = bench.run(&run).await;
    assert_eq!((ended.end_cause, ended.finished_at), (Some(EndCause::Statement), Some(ended.updated_at)));
    let last = bench.record(&run).await.pop().unwrap();
    assert_eq!((last.1.as_str(), last.2.as_str()), ("error", "Run failed"));
    assert_eq!(last.3, json!({"from": "running", "to": "failed", "cause": "statement"}));
    // The successor starts with what was asked for, not with what was reported.
    let next = bench.store.retry_run(run, "ann".to_owned(), Some(at(1))).await.unwrap().run_id;
    assert_eq!(bench.run(&next).await.metadata, json!({}));
}

#[tokio::test]
async fn the_file_refuses_what_must_not_be_whoever_asks() {
    let mut bench = Bench::new().await;
    let ended = bench.queue(shop(), 0).await;
    bench.claim_one(1).await;
    bench.finish(&ended, FinalStatus::Success, json!({}), 2).await;
    bench.queue(shop(), 3).await;
    bench.claim_one(4).await;
    bench.queue(shop(), 5).await;
    for statement in [
        "UPDATE runs SET priority = 1 WHERE status = 'success'",
        "UPDATE runs SET status = 'queued', gate = 'open', finished_at = NULL WHERE status = 'success'",
        "UPDATE runs SET status = 'success' WHERE status = 'queued'",
        "UPDATE runs SET status = 'running', claimed_by = 'x' WHERE status = 'queued'",
        "DELETE FROM runs",
        "DELETE FROM run_events",
        "UPDATE run_events SET message = 'forged'",
        "REPLACE INTO run_events (run_id, seq, level, message) SELECT run_id, 1, 'info', 'forged' FROM runs",
        "REPLACE INTO runs (run_id, project_id, env_id) SELECT run_id, project_id, env_id FROM runs",
    ] {
        assert_eq!(code(bench.sql(statement).await), RefusalCode::Frozen, "{statement}");
    }
    for statement in [
        "UPDATE runs SET status = 'claimed' WHERE status = 'queued'",
        "UPDATE runs SET gate = NULL WHERE status = 'queued'",
        "UPDATE runs SET finished_at = 1 WHERE status = 'queued'",
        "UPDATE runs SET gate = 'open' WHERE status = 'claimed'",
        "UPDATE runs SET metadata = '{' WHERE status = 'queued'",
        "UPDATE runs SET priority = 'high' WHERE status = 'queued'",
        "INSERT INTO runs (run_id, project_id, env_id, status) VALUES ('run-1', 'shop', 'shop/staging', 'success')",
    ] {
        let error = bench.sql(statement).await.expect_err(statement);
        assert!(error.refusal_code().is_none(), "{error:?}");
    }
    let elsewhere = "INSERT INTO runs (run_id, project_id, env_id) VALUES ('run-1', 'shop', 'shop/live')";
    assert_eq!(code(bench.sql(elsewhere).await), RefusalCode::UnknownEnvironment);
    // A record goes with its run, and only after it.
    assert_eq!(bench.sql("DELETE FROM runs WHERE status = 'success'").await.unwrap(), 1);
    let gone = format!("DELETE FROM run_events WHERE run_id = '{ended}'");
    assert_eq!(bench.sql(&gone).await.unwrap(), 4);
}
