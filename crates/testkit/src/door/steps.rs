//! Single steps for cases, in as few words as they need: what is refused or fails here ends the test.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a step that fails ends the test, loudly"
)]

use std::fmt::Debug;

use tidemill_core::event::{Event, Level, NewEvent};
use tidemill_core::run::{Applied, Claim, FinalStatus, QueueRun, Run, RunState};
use tidemill_core::worker::{Held, NewWorker};
use tidemill_core::{Json, RunId, Timestamp, WorkerId};
use tidemill_store::{
    Cancelled, ClaimRuns, Error, EventPage, FinishRun, Holder, Queued, RefusalCode, Retried, Swept,
};
use uuid::Uuid;

use super::{Stage, Tables};

/// Silence after which a worker is dead, unless a case says otherwise.
const DEAD_AFTER_SECS: f64 = 20.0;
/// Runs in one sweep, unless a case says otherwise.
const SWEEP_MAX: usize = 500;

/// A request with every default, of the project `shop`.
pub fn request() -> QueueRun {
    QueueRun::new("shop", "staging")
}

/// A new id for a run that is queued at `now`.
pub fn new_run_id(now: Timestamp) -> RunId {
    RunId::new(now, Uuid::new_v4())
}

/// A worker process that has just started.
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

/// An event that says something.
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

/// Beliefs of the worker that got this claim.
fn holder(claim: &Claim, worker: &str) -> Holder {
    Holder { worker: Some(worker.to_owned()), epoch: Some(claim.epoch) }
}

impl Stage {
    /// Queues a run, which must be a new one.
    pub async fn queue(&self, request: QueueRun, now: Timestamp) -> RunId {
        let queued = self.try_queue(request, now).await.expect("the run is queued");
        assert!(queued.created, "the run existed");
        assert_eq!((queued.status, queued.queued_at), (RunState::Queued, now));
        queued.run_id
    }

    /// Asks for a run under a new id.
    pub async fn try_queue(&self, request: QueueRun, now: Timestamp) -> Result<Queued, Error> {
        self.door.queue(request, new_run_id(now), now).await
    }

    /// Claims one run without labels.
    pub async fn claim(&self, worker: &str, now: Timestamp) -> Option<Claim> {
        let mut claims = self.claim_as(ClaimRuns::one(worker), now).await;
        assert!(claims.len() <= 1, "one run was asked for, and {} came", claims.len());
        claims.pop()
    }

    /// Claims what is asked for.
    pub async fn claim_as(&self, ask: ClaimRuns, now: Timestamp) -> Vec<Claim> {
        self.door.claim(ask, now).await.expect("the claim is answered")
    }

    /// The id of the run that one claim without labels gives.
    pub async fn claim_id(&self, worker: &str, now: Timestamp) -> Option<RunId> {
        self.claim(worker, now).await.map(|claim| claim.run_id)
    }

    /// Queues a run and claims it; nothing else may be claimable.
    pub async fn claimed(&self, request: QueueRun, worker: &str, now: Timestamp) -> Claim {
        let run = self.queue(request, now).await;
        let claim = self.claim(worker, now).await.expect("the run is claimed");
        assert_eq!(claim.run_id, run, "another run was claimable");
        claim
    }

    /// Queues a run, claims it and starts it.
    pub async fn running(&self, request: QueueRun, worker: &str, now: Timestamp) -> Claim {
        let claim = self.claimed(request, worker, now).await;
        assert_eq!(self.start(&claim, worker, now).await, Applied::Applied);
        claim
    }

    /// Registers a worker process.
    pub async fn register(&self, name: &str, now: Timestamp) -> WorkerId {
        let worker = new_worker(name);
        let id = worker.worker_id;
        self.door.register(worker, now).await.expect("the worker is registered");
        id
    }

    /// Claims one run for a registered worker.
    pub async fn claim_registered(&self, name: &str, worker: WorkerId, now: Timestamp) -> Option<Claim> {
        let ask = ClaimRuns { worker_id: Some(worker), ..ClaimRuns::one(name) };
        self.claim_as(ask, now).await.pop()
    }

    /// Starts a run as the worker that claimed it.
    pub async fn start(&self, claim: &Claim, worker: &str, now: Timestamp) -> Applied {
        self.door
            .start(claim.run_id.clone(), holder(claim, worker), now)
            .await
            .expect("the start is answered")
    }

    /// Appends one event as somebody who knows nothing but the run's id.
    pub async fn say(&self, run: &RunId, event: NewEvent, now: Timestamp) -> Option<String> {
        let mut ids = self.append(run, vec![event], Holder::default(), now).await;
        assert_eq!(ids.len(), 1);
        ids.pop().flatten()
    }

    /// Appends events.
    pub async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> Vec<Option<String>> {
        self.door.append(run.clone(), events, holder, now).await.expect("the append is answered")
    }

    /// Renews a lease as somebody who knows nothing but the run's id.
    pub async fn heartbeat(&self, run: &RunId, now: Timestamp) -> Held {
        self.door.heartbeat(run.clone(), Holder::default(), now).await.expect("the heartbeat is answered")
    }

    /// Beats for a worker process that holds these runs.
    pub async fn beat(&self, worker: WorkerId, runs: &[RunId], now: Timestamp) -> Vec<Held> {
        self.door.beat(worker, runs.to_vec(), now).await.expect("the beat is answered").held
    }

    /// Asks a worker process to drain, or to take runs again.
    pub async fn drain(&self, worker: WorkerId, draining: bool) {
        let worker = self.store.drain_worker(worker, draining).await.expect("the worker is there");
        assert_eq!(worker.draining, draining);
    }

    /// Whether the beat of a worker process tells it to drain.
    pub async fn is_told_to_drain(&self, worker: WorkerId, now: Timestamp) -> bool {
        self.door.beat(worker, Vec::new(), now).await.expect("the beat is answered").draining
    }

    /// Finishes a run as somebody who knows nothing but its id.
    pub async fn finish(&self, run: &RunId, status: FinalStatus, metadata: Json, now: Timestamp) -> Applied {
        self.try_finish(run, status, metadata, now).await.expect("the finish is answered")
    }

    /// The same, with its refusal.
    pub async fn try_finish(
        &self,
        run: &RunId,
        status: FinalStatus,
        metadata: Json,
        now: Timestamp,
    ) -> Result<Applied, Error> {
        let end = FinishRun { run_id: run.clone(), status, metadata, epoch: None };
        let outcomes = self.door.finish(vec![end], None, now).await?;
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
    ) -> Applied {
        let end = FinishRun {
            run_id: claim.run_id.clone(),
            status,
            metadata: serde_json::json!({}),
            epoch: Some(claim.epoch),
        };
        let outcomes = self.door.finish(vec![end], Some(worker.to_owned()), now).await;
        outcomes.expect("the finish is answered")[0]
    }

    /// Finishes a run well.
    pub async fn succeed(&self, run: &RunId, now: Timestamp) {
        let outcome = self.finish(run, FinalStatus::Success, serde_json::json!({}), now).await;
        assert_eq!(outcome, Applied::Applied);
    }

    /// Finishes a run badly.
    pub async fn fail(&self, run: &RunId, now: Timestamp) {
        let metadata = serde_json::json!({"exit_code": 1});
        assert_eq!(self.finish(run, FinalStatus::Failed, metadata, now).await, Applied::Applied);
    }

    /// Cancels a run on a person's behalf.
    pub async fn cancel(&self, run: &RunId, now: Timestamp) -> Cancelled {
        let reason = Some("no longer needed".to_owned());
        self.door.cancel(run.clone(), "ann".to_owned(), reason, now).await.expect("the cancel is answered")
    }

    /// Retries a run on a person's behalf.
    pub async fn retry(&self, run: &RunId, now: Timestamp) -> Retried {
        self.door.retry(run.clone(), "ann".to_owned(), now).await.expect("the retry is answered")
    }

    /// Sweeps once.
    pub async fn sweep(&self, now: Timestamp) -> Vec<Swept> {
        self.door.sweep(SWEEP_MAX, DEAD_AFTER_SECS, now).await.expect("the sweep is done")
    }

    /// A run that must exist.
    pub async fn run(&self, run: &RunId) -> Run {
        self.store.run(run.clone()).await.expect("the run is read").expect("the run exists")
    }

    /// Where a run is in its life.
    pub async fn status(&self, run: &RunId) -> RunState {
        self.run(run).await.status
    }

    /// The try that followed a run.
    pub async fn successor(&self, run: &RunId) -> Option<Run> {
        let tries = self.store.tries(run.clone()).await.expect("the tries are read");
        tries.into_iter().find(|next| next.retry_of.as_ref() == Some(run))
    }

    /// A run's whole record.
    pub async fn events(&self, run: &RunId) -> Vec<Event> {
        let page = EventPage { after: 0, limit: 10_000 };
        self.store.events(run.clone(), page).await.expect("the events are read")
    }

    /// The messages of a run's record.
    pub async fn messages(&self, run: &RunId) -> Vec<String> {
        self.events(run).await.into_iter().map(|event| event.message).collect()
    }

    /// Everything that is kept.
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
