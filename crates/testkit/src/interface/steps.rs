//! Short helpers for cases. A refusal or an error ends the test.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failed step must end the test")]

use std::fmt::Debug;

use tidemill_core::event::{Event, Level, NewEvent};
use tidemill_core::run::{ChangeOutcome, Claim, FinalStatus, QueueRun, Run, RunState};
use tidemill_core::worker::{NewWorker, RunLease};
use tidemill_core::{Json, RunId, Timestamp, WorkerId};
use tidemill_store::{
    CancelOutcome, ClaimRuns, Error, EventPage, FinishRun, Holder, QueueOutcome, RefusalCode, RetryOutcome,
    SweptRun,
};
use uuid::Uuid;

use super::{Fixture, Tables};

/// Default time of silence after which a worker is dead.
const DEAD_AFTER_SECS: f64 = 20.0;
/// Default limit of a sweep.
const SWEEP_MAX: usize = 500;

/// Returns a request for the project `shop` with default values.
pub fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

/// Returns a new id for a run that is queued at `now`.
pub fn new_run_id(now: Timestamp) -> RunId {
    RunId::new(now, Uuid::new_v4())
}

/// Returns a worker process that has just started.
pub fn new_worker(name: &str) -> NewWorker {
    NewWorker {
        worker_id: WorkerId(Uuid::new_v4()),
        name: name.to_owned(),
        host: "host".to_owned(),
        pid: 4_711,
        labels: Vec::new(),
        version: "0.1.0".to_owned(),
    }
}

/// Returns an event with this message.
pub fn info(message: &str) -> NewEvent {
    NewEvent::new(Level::Info, message)
}

/// Checks that a call was refused by this rule.
#[track_caller]
pub fn refused<T: Debug>(answer: Result<T, Error>, code: RefusalCode) {
    match answer {
        Err(error) if error.refusal_code() == Some(code) => {}
        other => panic!("expected a refusal as {}, got {other:?}", code.as_str()),
    }
}

/// Returns the holder for the worker that got this claim.
fn holder(claim: &Claim, worker: &str) -> Holder {
    Holder { worker: Some(worker.to_owned()), epoch: Some(claim.epoch) }
}

impl Fixture {
    /// Queues a run, which must be new.
    pub async fn queue(&self, request: QueueRun, now: Timestamp) -> RunId {
        let queued = self.try_queue(request, now).await.expect("the run is queued");
        assert!(queued.created, "the run existed");
        assert_eq!((queued.status, queued.queued_at), (RunState::Queued, now));
        queued.run_id
    }

    /// Queues a run under a new id.
    pub async fn try_queue(&self, request: QueueRun, now: Timestamp) -> Result<QueueOutcome, Error> {
        self.interface.queue(request, new_run_id(now), now).await
    }

    /// Claims one run without labels.
    pub async fn claim(&self, worker: &str, now: Timestamp) -> Option<Claim> {
        let mut claims = self.claim_as(ClaimRuns::one(worker), now).await;
        assert!(claims.len() <= 1, "claimed {} runs with a limit of 1", claims.len());
        claims.pop()
    }

    pub async fn claim_as(&self, ask: ClaimRuns, now: Timestamp) -> Vec<Claim> {
        self.interface.claim(ask, now).await.expect("the claim is answered")
    }

    /// Claims one run without labels and returns its id.
    pub async fn claim_id(&self, worker: &str, now: Timestamp) -> Option<RunId> {
        self.claim(worker, now).await.map(|claim| claim.run_id)
    }

    /// Queues a run and claims it; no other run may be claimable.
    pub async fn claimed(&self, request: QueueRun, worker: &str, now: Timestamp) -> Claim {
        let run = self.queue(request, now).await;
        let claim = self.claim(worker, now).await.expect("the run is claimed");
        assert_eq!(claim.run_id, run, "another run was claimable");
        claim
    }

    /// Queues a run, claims it and starts it.
    pub async fn running(&self, request: QueueRun, worker: &str, now: Timestamp) -> Claim {
        let claim = self.claimed(request, worker, now).await;
        assert_eq!(self.start(&claim, worker, now).await, ChangeOutcome::Applied);
        claim
    }

    /// Registers a worker process.
    pub async fn register(&self, name: &str, now: Timestamp) -> WorkerId {
        let worker = new_worker(name);
        let id = worker.worker_id;
        self.interface.register(worker, now).await.expect("the worker is registered");
        id
    }

    /// Claims one run for a registered worker.
    pub async fn claim_registered(&self, name: &str, worker: WorkerId, now: Timestamp) -> Option<Claim> {
        let ask = ClaimRuns { worker_id: Some(worker), ..ClaimRuns::one(name) };
        self.claim_as(ask, now).await.pop()
    }

    /// Starts a run as the worker that claimed it.
    pub async fn start(&self, claim: &Claim, worker: &str, now: Timestamp) -> ChangeOutcome {
        self.interface
            .start(claim.run_id.clone(), holder(claim, worker), now)
            .await
            .expect("the start is answered")
    }

    /// Appends one event as a caller that knows only the run id.
    pub async fn append_event(&self, run: &RunId, event: NewEvent, now: Timestamp) -> Option<String> {
        let mut ids = self.append(run, vec![event], Holder::default(), now).await;
        assert_eq!(ids.len(), 1);
        ids.pop().flatten()
    }

    pub async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> Vec<Option<String>> {
        self.interface.append(run.clone(), events, holder, now).await.expect("the append is answered")
    }

    /// Renews a lease as a caller that knows only the run id.
    pub async fn heartbeat(&self, run: &RunId, now: Timestamp) -> RunLease {
        self.interface
            .heartbeat(run.clone(), Holder::default(), now)
            .await
            .expect("the heartbeat is answered")
    }

    /// Sends a heartbeat for a worker process with these runs.
    pub async fn worker_heartbeat(&self, worker: WorkerId, runs: &[RunId], now: Timestamp) -> Vec<RunLease> {
        self.interface
            .worker_heartbeat(worker, runs.to_vec(), now)
            .await
            .expect("the heartbeat is answered")
            .held
    }

    /// Sets whether a worker process drains.
    pub async fn drain(&self, worker: WorkerId, draining: bool) {
        let worker = self.store.drain_worker(worker, draining).await.expect("the worker is there");
        assert_eq!(worker.draining, draining);
    }

    /// Returns whether the heartbeat of a worker process reports that it drains.
    pub async fn is_draining(&self, worker: WorkerId, now: Timestamp) -> bool {
        self.interface
            .worker_heartbeat(worker, Vec::new(), now)
            .await
            .expect("the heartbeat is answered")
            .draining
    }

    /// Finishes a run as a caller that knows only its id.
    pub async fn finish(
        &self,
        run: &RunId,
        status: FinalStatus,
        metadata: Json,
        now: Timestamp,
    ) -> ChangeOutcome {
        self.try_finish(run, status, metadata, now).await.expect("the finish is answered")
    }

    /// Finishes a run and returns the refusal, if any.
    pub async fn try_finish(
        &self,
        run: &RunId,
        status: FinalStatus,
        metadata: Json,
        now: Timestamp,
    ) -> Result<ChangeOutcome, Error> {
        let end = FinishRun { run_id: run.clone(), status, metadata, epoch: None };
        let outcomes = self.interface.finish(vec![end], None, now).await?;
        assert_eq!(outcomes.len(), 1);
        Ok(outcomes[0])
    }

    /// Finishes a run as the worker that claimed it.
    pub async fn finish_as(
        &self,
        claim: &Claim,
        worker: &str,
        status: FinalStatus,
        now: Timestamp,
    ) -> ChangeOutcome {
        let end = FinishRun {
            run_id: claim.run_id.clone(),
            status,
            metadata: serde_json::json!({}),
            epoch: Some(claim.epoch),
        };
        let outcomes = self.interface.finish(vec![end], Some(worker.to_owned()), now).await;
        outcomes.expect("the finish is answered")[0]
    }

    /// Finishes a run with success.
    pub async fn succeed(&self, run: &RunId, now: Timestamp) {
        let outcome = self.finish(run, FinalStatus::Success, serde_json::json!({}), now).await;
        assert_eq!(outcome, ChangeOutcome::Applied);
    }

    /// Finishes a run with failure.
    pub async fn fail(&self, run: &RunId, now: Timestamp) {
        let metadata = serde_json::json!({"exit_code": 1});
        assert_eq!(self.finish(run, FinalStatus::Failed, metadata, now).await, ChangeOutcome::Applied);
    }

    /// Cancels a run on behalf of a person.
    pub async fn cancel(&self, run: &RunId, now: Timestamp) -> CancelOutcome {
        let reason = Some("no longer needed".to_owned());
        self.interface
            .cancel(run.clone(), "ann".to_owned(), reason, now)
            .await
            .expect("the cancel is answered")
    }

    /// Retries a run on behalf of a person.
    pub async fn retry(&self, run: &RunId, now: Timestamp) -> RetryOutcome {
        self.interface.retry(run.clone(), "ann".to_owned(), now).await.expect("the retry is answered")
    }

    pub async fn sweep(&self, now: Timestamp) -> Vec<SweptRun> {
        self.interface.sweep(SWEEP_MAX, DEAD_AFTER_SECS, now).await.expect("the sweep is done")
    }

    /// Returns a run that must exist.
    pub async fn run(&self, run: &RunId) -> Run {
        self.store.run(run.clone()).await.expect("the run is read").expect("the run exists")
    }

    pub async fn status(&self, run: &RunId) -> RunState {
        self.run(run).await.status
    }

    /// Returns the retry of a run.
    pub async fn successor(&self, run: &RunId) -> Option<Run> {
        let tries = self.store.tries(run.clone()).await.expect("the tries are read");
        tries.into_iter().find(|next| next.retry_of.as_ref() == Some(run))
    }

    /// Returns all events of a run.
    pub async fn events(&self, run: &RunId) -> Vec<Event> {
        let page = EventPage { after: 0, limit: 10_000 };
        self.store.events(run.clone(), page).await.expect("the events are read")
    }

    /// Returns the messages of all events of a run.
    pub async fn messages(&self, run: &RunId) -> Vec<String> {
        self.events(run).await.into_iter().map(|event| event.message).collect()
    }

    /// Reads all kernel tables.
    pub async fn tables(&self) -> Tables {
        self.plain.tables().await.expect("the tables are read")
    }

    /// Checks that nothing was written since these tables were read.
    #[track_caller]
    pub fn unchanged(&self, before: &Tables) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let after = self.tables().await;
            for (table, rows) in &after {
                assert_eq!(Some(rows), before.get(table), "table {table} was changed, at {caller}");
            }
        }
    }
}
