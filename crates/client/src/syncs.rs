//! Syncs.

use crate::{Client, Error, part, query};
use tidemill_core::pace::Pace;
use tidemill_core::records::{Consolidated, Partition, RetriedSync, Sync, SyncStatus};
use tidemill_wire::Page;
use tidemill_wire::syncs::{CancelSync, Consolidate, ListSyncs, RetrySync, SyncCancelled};

impl Client {
    /// Syncs, the newest first.
    pub async fn syncs(&self, asked: &ListSyncs) -> Result<Page<Sync>, Error> {
        self.get(format!("/v1/syncs{}", query(asked)?)).await
    }

    /// A sync with its partitions, by its own id or that of its last attempt.
    pub async fn sync(&self, sync: &str) -> Result<SyncStatus, Error> {
        self.get(format!("/v1/syncs/{}", part(sync))).await
    }

    /// The partitions of a sync, by price.
    pub async fn partitions(&self, sync: &str) -> Result<Page<Partition>, Error> {
        self.get(format!("/v1/syncs/{}/partitions", part(sync))).await
    }

    /// How many stones a sync stored, interval by interval.
    pub async fn pace(&self, sync: &str) -> Result<Pace, Error> {
        self.get(format!("/v1/syncs/{}/pace", part(sync))).await
    }

    /// Queues another try of a failed sync.
    pub async fn retry_sync(&self, sync: &str, retry: &RetrySync) -> Result<RetriedSync, Error> {
        self.post(format!("/v1/syncs/{}/retry", part(sync)), retry).await
    }

    /// Stops a sync.
    pub async fn cancel_sync(&self, sync: &str, reason: Option<String>) -> Result<SyncCancelled, Error> {
        self.post(format!("/v1/syncs/{}/cancel", part(sync)), &CancelSync { reason }).await
    }

    /// Consolidates a sync that failed.
    pub async fn consolidate_sync(&self, sync: &str, order: Consolidate) -> Result<Consolidated, Error> {
        self.post(format!("/v1/syncs/{}/consolidate", part(sync)), &order).await
    }
}
