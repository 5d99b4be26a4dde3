//! One contract for several interfaces: the operations of workers, users and the sweeper, with the time as a parameter.
//!
//! The conformance cases use this trait, the owner's store for reads and set-up, and plain SQL. A [`Fixture`] is one
//! interface with a database of its own.

mod fixture;
mod http;
mod plain_sql;
mod roles;
mod rust;
mod sql;
mod steps;

pub use fixture::{Fixture, Kind, OpenFixture, OverHttp, at};
pub use plain_sql::{PlainSql, Tables};
pub use roles::TestRoles;
pub use steps::{info, new_run_id, new_worker, refused, request};

use std::future::Future;
use std::pin::Pin;

use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, FailOutcome, FailRun, QueueRun};
use tidemill_core::worker::{HeartbeatResponse, NewWorker, RunLease};
use tidemill_core::{RunId, Timestamp, WorkerId};
use tidemill_store::{
    CancelOutcome, ClaimRuns, Error, FinishRun, Holder, QueueOutcome, RetryOutcome, SweptRun,
};

/// The future answer of an interface.
pub type InterfaceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// An interface to the run operations. The store documents each operation under the same name.
pub trait Interface: Send + Sync {
    /// Queues a run under an id made by the caller.
    fn queue(&self, request: QueueRun, run: RunId, now: Timestamp) -> InterfaceFuture<'_, QueueOutcome>;
    /// Queues several runs under ids made by the caller; returns one outcome each.
    fn queue_many(
        &self,
        requests: Vec<(QueueRun, RunId)>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<QueueOutcome>>;
    /// Claims one run or a batch.
    fn claim(&self, ask: ClaimRuns, now: Timestamp) -> InterfaceFuture<'_, Vec<Claim>>;
    fn start(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, ChangeOutcome>;
    /// Appends events; returns the id of each, or `None` if the caller no longer holds the run.
    fn append(
        &self,
        run: RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<Option<String>>>;
    /// Renews the lease of a run.
    fn heartbeat(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, RunLease>;
    /// Finishes runs; returns one outcome each.
    fn finish(
        &self,
        ends: Vec<FinishRun>,
        worker: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<ChangeOutcome>>;
    /// Cancels a queued run, or requests the worker of a held run to stop.
    fn cancel(
        &self,
        run: RunId,
        by: String,
        reason: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, CancelOutcome>;
    /// Retries an ended run.
    fn retry(&self, run: RunId, by: String, now: Timestamp) -> InterfaceFuture<'_, RetryOutcome>;
    /// Fails a stalled run, with or without a retry.
    fn fail(&self, ask: FailRun, now: Timestamp) -> InterfaceFuture<'_, FailOutcome>;
    /// Records an artifact; returns its id.
    fn add_artifact(&self, run: RunId, artifact: NewArtifact, now: Timestamp) -> InterfaceFuture<'_, String>;
    /// Registers a worker process.
    fn register(&self, worker: NewWorker, now: Timestamp) -> InterfaceFuture<'_, ()>;
    /// Sends a heartbeat of a worker process; returns the state of its runs, and whether it drains.
    fn worker_heartbeat(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, HeartbeatResponse>;
    /// Retires a worker process.
    fn retire(&self, worker: WorkerId, now: Timestamp) -> InterfaceFuture<'_, ()>;
    /// Sweeps once. Workers may not sweep, so interfaces for workers sweep as the owner.
    fn sweep(&self, limit: usize, dead_after_secs: f64, now: Timestamp)
    -> InterfaceFuture<'_, Vec<SweptRun>>;
    /// Closes the connections of the interface.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}
