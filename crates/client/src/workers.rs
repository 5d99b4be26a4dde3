//! API calls for worker processes.

use crate::{Client, Error};
use http::Method;
use tidemill_core::worker::{NewWorker, Worker};
use tidemill_core::{RunId, WorkerId};
use tidemill_wire::Page;
use tidemill_wire::workers::{DrainWorker, HeartbeatResponse, RegisterWorker, WorkerHeartbeat};

impl Client {
    /// Lists worker processes and their runs.
    pub async fn workers(&self) -> Result<Page<Worker>, Error> {
        self.get("/v1/workers".to_owned()).await
    }

    /// Registers a worker process.
    pub async fn register(&self, worker: NewWorker) -> Result<(), Error> {
        let path = format!("/v1/workers/{}", worker.worker_id);
        let register = RegisterWorker {
            name: worker.name,
            host: worker.host,
            pid: worker.pid,
            labels: worker.labels,
            version: worker.version,
        };
        self.request_no_content(Method::PUT, path, Some(&register)).await
    }

    /// Starts or ends the draining of a worker. A draining worker gets no new runs.
    pub async fn drain_worker(&self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        self.post(format!("/v1/workers/{worker}/drain"), &DrainWorker { draining }).await
    }

    /// Sends a worker's heartbeat. The response says which of its runs it still holds and whether it must drain.
    pub async fn heartbeat_worker(
        &self,
        worker: WorkerId,
        runs: Vec<RunId>,
    ) -> Result<HeartbeatResponse, Error> {
        self.post(format!("/v1/workers/{worker}/beat"), &WorkerHeartbeat { runs }).await
    }

    /// Unregisters a worker process.
    pub async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        self.request_no_content(Method::DELETE, format!("/v1/workers/{worker}"), None::<&()>).await
    }
}
