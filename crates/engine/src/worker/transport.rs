//! The transport of a worker: direct database access or the HTTP API.
//!
//! Each method sends one request; callers retry. Retries are safe on every transport: a claim has a request id, an
//! event a key, and a finish is recognised by its holder.

use crate::Engine;
use crate::retry_policy::RetryableError;
use std::future::Future;
use std::time::Duration;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, Run};
use tidemill_core::worker::{HeartbeatResponse, NewWorker};
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{ClaimRuns, Error, FinishRun, Holder, RefusalCode, Waiter};

/// The operations that a worker needs.
pub trait Transport: Clone + Send + Sync + 'static {
    type Error: RetryableError + Send + Sync + 'static;
    /// Waits for claimable runs.
    type Waiter: RunWaiter<Error = Self::Error>;

    /// Whether the worker was declared dead or no longer holds the run.
    fn is_stale(error: &Self::Error) -> bool;
    /// Whether every later call would fail too: missing permission, missing schema, a refused version.
    fn is_fatal(error: &Self::Error) -> bool;
    /// Whether the request exceeds a size limit.
    fn is_too_large(error: &Self::Error) -> bool;
    /// Returns the retryable error for a call without an answer in time.
    fn timeout_error(&self, what: &'static str) -> Self::Error;
    fn register(&self, worker: NewWorker) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Claims runs that are available now.
    fn claim(&self, request: ClaimRuns) -> impl Future<Output = Result<Vec<Claim>, Self::Error>> + Send;
    /// Appends events. Returns the id of each, or `None` if the caller no longer holds the run.
    fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> impl Future<Output = Result<Vec<Option<String>>, Self::Error>> + Send;
    /// Finishes a run. Its kind is a label of metrics.
    fn finish(
        &self,
        end: FinishRun,
        worker: Option<String>,
        kind: &str,
    ) -> impl Future<Output = Result<ChangeOutcome, Self::Error>> + Send;
    /// Sends a heartbeat. Returns the state of the runs and whether the worker is to drain.
    fn heartbeat(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
    ) -> impl Future<Output = Result<HeartbeatResponse, Self::Error>> + Send;
    /// Marks the process as ended.
    fn retire(&self, worker: WorkerId) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Returns a run, or an error if it does not exist.
    fn run(&self, run: &RunId) -> impl Future<Output = Result<Run, Self::Error>> + Send;
    /// Counts the runs that such a worker could still get without outside action.
    fn work_left(
        &self,
        labels: Vec<String>,
        projects: Option<Vec<String>>,
    ) -> impl Future<Output = Result<i64, Self::Error>> + Send;
    /// Sweeps once, if a worker may do so on this transport.
    fn sweep(&self, dead_after: Duration) -> impl Future<Output = ()> + Send;
    fn waiter(&self, worker: WorkerId) -> impl Future<Output = Result<Self::Waiter, Self::Error>> + Send;
}

/// Waits for claimable runs.
pub trait RunWaiter: Send {
    type Error;
    /// Whether waiting itself claims runs, with the worker's request id.
    const CLAIMS: bool;

    /// Declares that the worker waits.
    fn arm(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Declares that it no longer waits.
    fn disarm(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Waits until there may be runs to claim, at most `longest`. Cancelling the wait loses nothing.
    fn wait(
        &mut self,
        request: ClaimRuns,
        longest: Duration,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Whether a claim was sent and not answered yet.
    fn has_pending_claim(&self) -> bool;
}

/// The transport with direct database access.
impl Transport for Engine {
    type Error = Error;
    type Waiter = Waiter;

    fn is_stale(error: &Error) -> bool {
        error.refusal_code() == Some(RefusalCode::Stale)
    }

    fn is_fatal(error: &Error) -> bool {
        error.is_hopeless()
    }

    fn is_too_large(error: &Error) -> bool {
        error.refusal_code() == Some(RefusalCode::TooLarge)
    }

    fn timeout_error(&self, what: &'static str) -> Error {
        Error::unanswered(what)
    }

    async fn register(&self, worker: NewWorker) -> Result<(), Error> {
        self.store.register_worker(worker, self.clock.now()).await
    }

    async fn claim(&self, request: ClaimRuns) -> Result<Vec<Claim>, Error> {
        Self::claim(self, request).await
    }

    async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> Result<Vec<Option<String>>, Error> {
        Self::append(self, run, events, holder).await
    }

    async fn finish(
        &self,
        end: FinishRun,
        worker: Option<String>,
        kind: &str,
    ) -> Result<ChangeOutcome, Error> {
        let status = end.status;
        let outcomes = Self::finish(self, vec![end], worker.as_deref()).await?;
        let outcome = outcomes.first().copied().unwrap_or(ChangeOutcome::Stale);
        crate::count_end(status, kind, outcome);
        Ok(outcome)
    }

    async fn heartbeat(&self, worker: WorkerId, runs: Vec<RunId>) -> Result<HeartbeatResponse, Error> {
        self.store.heartbeat_worker(worker, runs, self.clock.now()).await
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        self.store.retire_worker(worker, self.clock.now()).await
    }

    async fn run(&self, run: &RunId) -> Result<Run, Error> {
        Self::run(self, run).await
    }

    async fn work_left(&self, labels: Vec<String>, projects: Option<Vec<String>>) -> Result<i64, Error> {
        self.store.work_left(labels, projects, self.clock.now()).await
    }

    async fn sweep(&self, dead_after: Duration) {
        // A database role without this permission leaves sweeping to other processes.
        let _ = Self::sweep(self, 500, dead_after.as_secs_f64()).await;
    }

    async fn waiter(&self, worker: WorkerId) -> Result<Waiter, Error> {
        self.store.waiter(worker).await
    }
}

impl RunWaiter for Waiter {
    type Error = Error;
    const CLAIMS: bool = false;

    async fn arm(&mut self) -> Result<(), Error> {
        Self::arm(self).await
    }

    async fn disarm(&mut self) -> Result<(), Error> {
        Self::disarm(self).await
    }

    async fn wait(&mut self, _: ClaimRuns, longest: Duration) -> Result<(), Error> {
        Self::wait(self, longest).await
    }

    fn has_pending_claim(&self) -> bool {
        false
    }
}
