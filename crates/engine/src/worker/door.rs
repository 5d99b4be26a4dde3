//! A worker's way to the verbs: beside its database, or far from it.
//!
//! Each call is asked once; whoever works here asks again. That is safe at every door: a claim carries its request id,
//! an event its key, and a finish recognises itself.

use crate::Engine;
use crate::patience::Passing;
use std::future::Future;
use std::time::Duration;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{Applied, Claim, Run};
use tidemill_core::worker::{Beaten, NewWorker};
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{ClaimRuns, Error, FinishRun, Holder, RefusalCode, Waiter};

/// What a worker can ask for.
pub trait Door: Clone + Send + Sync + 'static {
    /// Why there is no answer.
    type Error: Passing + Send + Sync + 'static;
    /// How the worker waits for something to claim.
    type Waiter: Waiting<Error = Self::Error>;

    /// Whether the caller was found dead, or no longer holds what it wanted to change.
    fn is_stale(error: &Self::Error) -> bool;
    /// Whether every later call of this worker would fail too: no permission, no schema, a version that is refused.
    fn is_hopeless(error: &Self::Error) -> bool;
    /// Whether what was said is larger than it may be.
    fn is_too_large(error: &Self::Error) -> bool;
    /// What to say of a call that nobody answered in time; it passes.
    fn unanswered(&self, what: &'static str) -> Self::Error;
    /// Registers the process.
    fn register(&self, worker: NewWorker) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Claims what is there now.
    fn claim(&self, ask: ClaimRuns) -> impl Future<Output = Result<Vec<Claim>, Self::Error>> + Send;
    /// Appends events; the id of each, or `None` where the caller no longer holds the run.
    fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> impl Future<Output = Result<Vec<Option<String>>, Self::Error>> + Send;
    /// Finishes a run.
    fn finish(
        &self,
        end: FinishRun,
        worker: Option<String>,
    ) -> impl Future<Output = Result<Applied, Self::Error>> + Send;
    /// Says that the process lives; what became of its runs, and whether it is to drain.
    fn beat(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
    ) -> impl Future<Output = Result<Beaten, Self::Error>> + Send;
    /// The process says goodbye.
    fn retire(&self, worker: WorkerId) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// A run that must exist.
    fn run(&self, run: &RunId) -> impl Future<Output = Result<Run, Self::Error>> + Send;
    /// How much could still come to a worker of this kind without anybody doing anything.
    fn work_left(
        &self,
        labels: Vec<String>,
        projects: Option<Vec<String>>,
    ) -> impl Future<Output = Result<i64, Self::Error>> + Send;
    /// Sweeps once, where a worker at this door may.
    fn sweep(&self, dead_after: Duration) -> impl Future<Output = ()> + Send;
    /// Begins to wait.
    fn waiter(&self, worker: WorkerId) -> impl Future<Output = Result<Self::Waiter, Self::Error>> + Send;
}

/// How a worker waits for something to claim.
pub trait Waiting: Send {
    /// Why it cannot wait.
    type Error;
    /// Whether waiting itself claims, under the request id of the worker.
    const CLAIMS: bool;

    /// Declares that the worker waits.
    fn arm(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Declares that it no longer does.
    fn disarm(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Waits until there may be something to claim, for `longest` at most. Giving up waiting loses nothing.
    fn wait(
        &mut self,
        ask: ClaimRuns,
        longest: Duration,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
    /// Whether a claim is on its way that has not been answered.
    fn is_asking(&self) -> bool;
}

/// The engine, beside its database.
impl Door for Engine {
    type Error = Error;
    type Waiter = Waiter;

    fn is_stale(error: &Error) -> bool {
        error.refusal_code() == Some(RefusalCode::Stale)
    }

    fn is_hopeless(error: &Error) -> bool {
        error.is_hopeless()
    }

    fn is_too_large(error: &Error) -> bool {
        error.refusal_code() == Some(RefusalCode::TooLarge)
    }

    fn unanswered(&self, what: &'static str) -> Error {
        Error::unanswered(what)
    }

    async fn register(&self, worker: NewWorker) -> Result<(), Error> {
        self.store.register_worker(worker, self.clock.now()).await
    }

    async fn claim(&self, ask: ClaimRuns) -> Result<Vec<Claim>, Error> {
        Self::claim(self, ask).await
    }

    async fn append(
        &self,
        run: &RunId,
        events: Vec<NewEvent>,
        holder: &Holder,
    ) -> Result<Vec<Option<String>>, Error> {
        Self::append(self, run, events, holder).await
    }

    async fn finish(&self, end: FinishRun, worker: Option<String>) -> Result<Applied, Error> {
        let outcomes = Self::finish(self, vec![end], worker.as_deref()).await?;
        Ok(outcomes.first().copied().unwrap_or(Applied::Stale))
    }

    async fn beat(&self, worker: WorkerId, runs: Vec<RunId>) -> Result<Beaten, Error> {
        self.store.beat_worker(worker, runs, self.clock.now()).await
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
        // Whoever may not sweep leaves it to others.
        let _ = Self::sweep(self, 500, dead_after.as_secs_f64()).await;
    }

    async fn waiter(&self, worker: WorkerId) -> Result<Waiter, Error> {
        self.store.waiter(worker).await
    }
}

impl Waiting for Waiter {
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

    fn is_asking(&self) -> bool {
        false
    }
}
