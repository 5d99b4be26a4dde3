//! A store on a SQLite file of its own, and helpers for the cases.

use chrono::{DateTime, Duration};
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, SqliteConnection};
use tempfile::TempDir;
use tidemill_core::event::{Level, NewEvent};
use tidemill_core::run::{ChangeOutcome, Claim, FinalStatus, QueueRun, Run};
use tidemill_core::worker::NewWorker;
use tidemill_core::{RunId, Timestamp, WorkerId};
use tidemill_store::{
    ClaimRuns, Error, FinishRun, Holder, Options, QueueOutcome, RefusalCode, Store, SweptRun,
};
use uuid::Uuid;

/// Returns the test's start time plus `secs` seconds.
pub(crate) fn at(secs: i64) -> Timestamp {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap() + Duration::seconds(secs)
}

/// A store on a file of its own with the project `shop`, and a second connection for plain SQL.
pub(crate) struct KernelFixture {
    pub(crate) store: Store,
    pub(crate) plain: SqliteConnection,
    _folder: TempDir,
}

impl KernelFixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tidemill.db");
        let store = Store::open(&Options::new(path.display().to_string(), || at(0))).await.unwrap();
        store.migrate(None).await.unwrap();
        store.create_project("shop", vec!["staging".to_owned()], Some(at(0))).await.unwrap();
        let plain = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        Self { store, plain, _folder: folder }
    }

    pub(crate) async fn try_queue(&self, request: QueueRun, secs: i64) -> Result<QueueOutcome, Error> {
        self.store.queue_run(request, RunId::new(at(secs), Uuid::new_v4()), Some(at(secs))).await
    }

    pub(crate) async fn queue(&self, request: QueueRun, secs: i64) -> RunId {
        self.try_queue(request, secs).await.unwrap().run_id
    }

    pub(crate) async fn claim(&self, ask: ClaimRuns, secs: i64) -> Vec<Claim> {
        self.store.claim_runs(ask, Some(at(secs))).await.unwrap()
    }

    /// Claims the only claimable run as worker `w`.
    pub(crate) async fn claim_one(&self, secs: i64) -> Claim {
        let mut claims = self.claim(ClaimRuns::one("w"), secs).await;
        claims.pop().expect("there is a run to claim")
    }

    /// Registers a worker process named `w`.
    pub(crate) async fn register(&self, secs: i64) -> WorkerId {
        let worker_id = WorkerId(Uuid::new_v4());
        let worker = NewWorker {
            worker_id,
            name: "w".to_owned(),
            host: "h".to_owned(),
            pid: 1,
            labels: Vec::new(),
            version: "1".to_owned(),
        };
        self.store.register_worker(worker, Some(at(secs))).await.unwrap();
        worker_id
    }

    pub(crate) async fn append(&self, run: &RunId, events: Vec<NewEvent>, secs: i64) -> Vec<Option<String>> {
        self.store.append_events(run.clone(), events, Holder::default(), Some(at(secs))).await.unwrap()
    }

    pub(crate) async fn finish(
        &self,
        run: &RunId,
        status: FinalStatus,
        metadata: Value,
        secs: i64,
    ) -> ChangeOutcome {
        let end = FinishRun { run_id: run.clone(), status, metadata, epoch: None };
        self.store.finish_runs(vec![end], None, Some(at(secs))).await.unwrap()[0]
    }

    pub(crate) async fn sweep(&self, secs: i64) -> Vec<SweptRun> {
        self.store.sweep(500, 20.0, Some(at(secs))).await.unwrap()
    }

    pub(crate) async fn run(&self, run: &RunId) -> Run {
        self.store.run(run.clone()).await.unwrap().expect("the run exists")
    }

    pub(crate) async fn sql(&mut self, text: &str) -> Result<u64, Error> {
        let result = sqlx::query(AssertSqlSafe(text.to_owned())).execute(&mut self.plain).await;
        result.map(|result| result.rows_affected()).map_err(|source| Error::database("run SQL", source))
    }

    /// Returns the events of a run: kind, level, message, payload.
    pub(crate) async fn events(&mut self, run: &RunId) -> Vec<(String, String, String, Value)> {
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

    pub(crate) async fn messages(&mut self, run: &RunId) -> Vec<String> {
        self.events(run).await.into_iter().map(|event| event.2).collect()
    }
}

pub(crate) fn shop() -> QueueRun {
    QueueRun::new("shop", "staging")
}

pub(crate) fn info(message: &str) -> NewEvent {
    NewEvent::new(Level::Info, message)
}

pub(crate) fn code(result: Result<impl std::fmt::Debug, Error>) -> RefusalCode {
    let error = result.expect_err("it is refused");
    error.refusal_code().unwrap_or_else(|| panic!("a refusal, not {error:?}"))
}
