//! Syncs: what is asked and said about them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Which syncs to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListSyncs {
    /// Of this feed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// The cursor of the page before.
    pub after: Option<Uuid>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Another try of a failed sync.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RetrySync {
    /// Read what failed from its beginning, and not from where it stopped.
    #[serde(default)]
    pub restart: bool,
    /// Only this partition is read from its beginning.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub partition: Option<String>,
}

/// A wish that a sync stops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelSync {
    /// Why.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub reason: Option<String>,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SyncCancelled {
    /// The sync.
    pub sync: Uuid,
    /// Whether it was stopped by this call; it had ended otherwise.
    pub cancelled: bool,
}

/// An order to consolidate a sync that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Consolidate {
    /// In spite of failed partitions.
    #[serde(default)]
    pub force: bool,
    /// Move the watermark past them, and note the gaps.
    #[serde(default)]
    pub advance: bool,
}
