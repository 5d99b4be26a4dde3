//! Message queues: their depth, dead letters and replays.

use serde::{Deserialize, Serialize};
use tidemill_core::queue::{QueueDepth, QueueSettings};

/// A queue and its depth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueSummary {
    /// Settings of the queue.
    pub settings: QueueSettings,
    /// Numbers of messages that the caller may see.
    pub depth: QueueDepth,
}

/// Parameters for peeking into a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Peek {
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Parameters of the list of dead letters, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListDead {
    /// Cursor: `next` of the previous page.
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub after: Option<String>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Dead letters to replay, by id or all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayDead {
    /// Ids of the dead letters.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 1024))))]
    pub ids: Vec<String>,
    /// Replay all dead letters that the caller may see.
    #[serde(default)]
    pub all: bool,
}

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayResponse {
    /// Name of the queue.
    pub queue: String,
    /// Number of replayed dead letters.
    pub replayed: u64,
    /// Commands for dead letters whose replay has no effect, because their partition or sync has failed.
    #[serde(default)]
    pub hints: Vec<String>,
}
