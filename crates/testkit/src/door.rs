//! One contract, several doors: what a worker, a person and the sweeper can ask for, with the time as a parameter.
//!
//! The conformance cases know nothing but this trait, the owner's store for what is only read or set up, and plain
//! SQL. A [`Stage`] is one door with a database of its own behind it.

mod http;
mod plain;
mod rust;
mod sql;
mod stage;
mod steps;

pub use plain::{Plain, Tables};
pub use stage::{Kind, Opens, OverHttp, Stage, at};
pub use steps::{info, new_run_id, new_worker, refused, request};

use std::future::Future;
use std::pin::Pin;

use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{Applied, Claim, FailRun, Failed, QueueRun};
use tidemill_core::worker::{Beaten, Held, NewWorker};
use tidemill_core::{RunId, Timestamp, WorkerId};
use tidemill_store::{Cancelled, ClaimRuns, Error, FinishRun, Holder, Queued, Retried, Swept};

/// What a door answers, later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A way to the verbs. What each of them means is said at the verb of the same name on the store.
pub trait Door: Send + Sync {
    /// Queues a run under the id that the caller made.
    fn queue(&self, request: QueueRun, run: RunId, now: Timestamp) -> Answer<'_, Queued>;
    /// Claims runs, one or a batch.
    fn claim(&self, ask: ClaimRuns, now: Timestamp) -> Answer<'_, Vec<Claim>>;
    /// Starts a claimed run.
    fn start(&self, run: RunId, holder: Holder, now: Timestamp) -> Answer<'_, Applied>;
    /// Appends events; the id of each, or `None` where the caller no longer holds the run.
    fn append(
        &self,
        run: RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> Answer<'_, Vec<Option<String>>>;
    /// Renews a run's lease.
    fn heartbeat(&self, run: RunId, holder: Holder, now: Timestamp) -> Answer<'_, Held>;
    /// Finishes runs; an outcome for each.
    fn finish(
        &self,
        ends: Vec<FinishRun>,
        worker: Option<String>,
        now: Timestamp,
    ) -> Answer<'_, Vec<Applied>>;
    /// Cancels a run that waits, or asks the worker of a held one to stop.
    fn cancel(&self, run: RunId, by: String, reason: Option<String>, now: Timestamp)
    -> Answer<'_, Cancelled>;
    /// Queues another try of a run that has ended.
    fn retry(&self, run: RunId, by: String, now: Timestamp) -> Answer<'_, Retried>;
    /// Fails a stalled run, with or without a successor.
    fn fail(&self, ask: FailRun, now: Timestamp) -> Answer<'_, Failed>;
    /// Records an artifact; its id.
    fn add_artifact(&self, run: RunId, artifact: NewArtifact, now: Timestamp) -> Answer<'_, String>;
    /// Registers a worker process.
    fn register(&self, worker: NewWorker, now: Timestamp) -> Answer<'_, ()>;
    /// Says that a worker process lives; what became of its runs, and whether it is to drain.
    fn beat(&self, worker: WorkerId, runs: Vec<RunId>, now: Timestamp) -> Answer<'_, Beaten>;
    /// A worker process says goodbye.
    fn retire(&self, worker: WorkerId, now: Timestamp) -> Answer<'_, ()>;
    /// Sweeps once. Not a worker's right: a door for workers sweeps as the owner.
    fn sweep(&self, limit: usize, dead_after_secs: f64, now: Timestamp) -> Answer<'_, Vec<Swept>>;
    /// Closes the door's own connections.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
