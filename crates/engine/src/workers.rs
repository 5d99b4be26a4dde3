//! Worker processes, as people see them.

use crate::Engine;
use tidemill_core::WorkerId;
use tidemill_core::worker::Worker;
use tidemill_store::Error;

impl Engine {
    /// Lets a worker process get nothing new, or get it again; the process.
    ///
    /// What it has in hand goes on. It learns of this with its next beat, and ends once it has nothing in hand.
    pub async fn drain_worker(&self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        let drain = || self.store.drain_worker(worker, draining);
        self.patience.settle("drain a worker", drain).await
    }
}
