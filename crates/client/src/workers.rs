//! Worker processes.

use crate::{Client, Error};
use http::Method;
use tidemill_core::worker::{NewWorker, Worker};
use tidemill_core::{RunId, WorkerId};
use tidemill_wire::Page;
use tidemill_wire::workers::{Beat, Beaten, DrainWorker, Register};

impl Client {
    /// Lists worker processes.
    pub async fn workers(&self) -> Result<Page<Worker>, Error> {
        self.get("/v1/workers".to_owned()).await
    }

    /// Registers a worker process.
    pub async fn register(&self, worker: NewWorker) -> Result<(), Error> {
        let path = format!("/v1/workers/{}", worker.worker_id);
        let register = Register {
            name: worker.name,
            host: worker.host,
            pid: worker.pid,
            labels: worker.labels,
            version: worker.version,
        };
        self.order(Method::PUT, path, Some(&register)).await
    }

    /// Lets a worker get nothing new, or get it again.
    pub async fn drain_worker(&self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        self.post(format!("/v1/workers/{worker}/drain"), &DrainWorker { draining }).await
    }

    /// Says that a worker lives; what became of its runs, and whether it is to drain.
    pub async fn beat(&self, worker: WorkerId, runs: Vec<RunId>) -> Result<Beaten, Error> {
        self.post(format!("/v1/workers/{worker}/beat"), &Beat { runs }).await
    }

    /// A worker says goodbye.
    pub async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        self.order(Method::DELETE, format!("/v1/workers/{worker}"), None::<&()>).await
    }
}
