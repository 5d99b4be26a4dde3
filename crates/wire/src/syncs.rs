//! Requests and responses about syncs.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Filter of the list of syncs, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListSyncs {
    /// Feed to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// Cursor: `next` of the previous page.
    pub after: Option<Uuid>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// A request to retry a failed sync.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RetrySync {
    /// Restart the failed partitions from the beginning instead of continuing them.
    #[serde(default)]
    pub restart: bool,
    /// Restart only this partition from the beginning.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub partition: Option<String>,
}

/// A request to cancel a sync.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelSync {
    /// Reason of the cancel.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: Option<String>,
}

/// The outcome of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelSyncResponse {
    /// Id of the sync.
    pub sync: Uuid,
    /// Whether this call cancelled it; false if it had already ended.
    pub cancelled: bool,
}

/// An order to consolidate a failed sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Consolidate {
    /// Consolidate in spite of failed partitions.
    #[serde(default)]
    pub force: bool,
    /// Advance the watermark past the failed partitions and record the gaps.
    #[serde(default)]
    pub advance: bool,
}
