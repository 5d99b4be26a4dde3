//! API calls for syncs.

use crate::{Client, Error, path_segment, query};
use tidemill_core::pace::Pace;
use tidemill_core::records::{ConsolidationOrder, Partition, Sync, SyncRetry, SyncStatus};
use tidemill_wire::Page;
use tidemill_wire::syncs::{CancelSync, CancelSyncResponse, Consolidate, ListSyncs, RetrySync};

impl Client {
    /// Lists syncs, newest first.
    pub async fn syncs(&self, params: &ListSyncs) -> Result<Page<Sync>, Error> {
        self.get(format!("/v1/syncs{}", query(params)?)).await
    }

    /// Returns a sync with its partitions, by its own id or the id of its last run.
    pub async fn sync(&self, sync: &str) -> Result<SyncStatus, Error> {
        self.get(format!("/v1/syncs/{}", path_segment(sync))).await
    }

    /// Lists the partitions of a sync, by price.
    pub async fn partitions(&self, sync: &str) -> Result<Page<Partition>, Error> {
        self.get(format!("/v1/syncs/{}/partitions", path_segment(sync))).await
    }

    /// Returns the number of records that a sync stored per interval.
    pub async fn pace(&self, sync: &str) -> Result<Pace, Error> {
        self.get(format!("/v1/syncs/{}/pace", path_segment(sync))).await
    }

    /// Queues a retry of a failed sync.
    pub async fn retry_sync(&self, sync: &str, retry: &RetrySync) -> Result<SyncRetry, Error> {
        self.post(format!("/v1/syncs/{}/retry", path_segment(sync)), retry).await
    }

    /// Cancels a sync that has not ended.
    pub async fn cancel_sync(&self, sync: &str, reason: Option<String>) -> Result<CancelSyncResponse, Error> {
        self.post(format!("/v1/syncs/{}/cancel", path_segment(sync)), &CancelSync { reason }).await
    }

    /// Consolidates a failed sync.
    pub async fn consolidate_sync(
        &self,
        sync: &str,
        order: Consolidate,
    ) -> Result<ConsolidationOrder, Error> {
        self.post(format!("/v1/syncs/{}/consolidate", path_segment(sync)), &order).await
    }
}
