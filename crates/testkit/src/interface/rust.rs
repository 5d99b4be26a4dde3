//! The store as an interface: on PostgreSQL, on PostgreSQL behind a pooler, and on SQLite.

use std::pin::Pin;

use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, Claim, FailOutcome, FailRun, QueueRun};
use tidemill_core::worker::{HeartbeatResponse, NewWorker, RunLease};
use tidemill_core::{RunId, Timestamp, WorkerId};
use tidemill_store::{
    CancelOutcome, ClaimRuns, FinishRun, Holder, QueueOutcome, RetryOutcome, Store, SweptRun,
};

use super::{Interface, InterfaceFuture};

impl Interface for Store {
    fn queue(&self, request: QueueRun, run: RunId, now: Timestamp) -> InterfaceFuture<'_, QueueOutcome> {
        Box::pin(self.queue_run(request, run, Some(now)))
    }

    fn queue_many(
        &self,
        requests: Vec<(QueueRun, RunId)>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<QueueOutcome>> {
        Box::pin(self.queue_runs(requests, Some(now)))
    }

    fn claim(&self, ask: ClaimRuns, now: Timestamp) -> InterfaceFuture<'_, Vec<Claim>> {
        Box::pin(self.claim_runs(ask, Some(now)))
    }

    fn start(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, ChangeOutcome> {
        Box::pin(self.start_run(run, holder, Some(now)))
    }

    fn append(
        &self,
        run: RunId,
        events: Vec<NewEvent>,
        holder: Holder,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<Option<String>>> {
        Box::pin(self.append_events(run, events, holder, Some(now)))
    }

    fn heartbeat(&self, run: RunId, holder: Holder, now: Timestamp) -> InterfaceFuture<'_, RunLease> {
        Box::pin(Self::heartbeat(self, run, holder, Some(now)))
    }

    fn finish(
        &self,
        ends: Vec<FinishRun>,
        worker: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<ChangeOutcome>> {
        Box::pin(self.finish_runs(ends, worker, Some(now)))
    }

    fn cancel(
        &self,
        run: RunId,
        by: String,
        reason: Option<String>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, CancelOutcome> {
        Box::pin(self.cancel_run(run, by, reason, Some(now)))
    }

    fn retry(&self, run: RunId, by: String, now: Timestamp) -> InterfaceFuture<'_, RetryOutcome> {
        Box::pin(self.retry_run(run, by, Some(now)))
    }

    fn fail(&self, ask: FailRun, now: Timestamp) -> InterfaceFuture<'_, FailOutcome> {
        Box::pin(self.fail_run(ask, Some(now)))
    }

    fn add_artifact(&self, run: RunId, artifact: NewArtifact, now: Timestamp) -> InterfaceFuture<'_, String> {
        Box::pin(Self::add_artifact(self, run, artifact, Some(now)))
    }

    fn register(&self, worker: NewWorker, now: Timestamp) -> InterfaceFuture<'_, ()> {
        Box::pin(self.register_worker(worker, Some(now)))
    }

    fn worker_heartbeat(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
        now: Timestamp,
    ) -> InterfaceFuture<'_, HeartbeatResponse> {
        Box::pin(self.heartbeat_worker(worker, runs, Some(now)))
    }

    fn retire(&self, worker: WorkerId, now: Timestamp) -> InterfaceFuture<'_, ()> {
        Box::pin(self.retire_worker(worker, Some(now)))
    }

    fn sweep(
        &self,
        limit: usize,
        dead_after_secs: f64,
        now: Timestamp,
    ) -> InterfaceFuture<'_, Vec<SweptRun>> {
        Box::pin(Self::sweep(self, limit, dead_after_secs, Some(now)))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::close(self))
    }
}
