//! Operator commands for worker processes.

use crate::Engine;
use tidemill_core::WorkerId;
use tidemill_core::worker::Worker;
use tidemill_store::Error;

impl Engine {
    /// Sets or clears the drain flag of a worker process and returns its row.
    ///
    /// A draining worker claims nothing new. It learns of the flag with its next heartbeat, finishes its runs, and
    /// exits.
    pub async fn drain_worker(&self, worker: WorkerId, draining: bool) -> Result<Worker, Error> {
        let drain = || self.store.drain_worker(worker, draining);
        self.retry_policy.retry("drain a worker", drain).await
    }
}
