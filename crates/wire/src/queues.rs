//! Queues: what is in them, dead letters, and replays.

use serde::{Deserialize, Serialize};
use tidemill_core::queue::{QueueDepth, QueueSettings};

/// A queue, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueLine {
    /// How it treats its messages.
    pub settings: QueueSettings,
    /// What is in it, as far as the caller sees it.
    pub depth: QueueDepth,
}

/// How many messages to look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Peek {
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Which dead letters to list, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListDead {
    /// The cursor of the page before.
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub after: Option<String>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Dead letters to send again: those of these ids, or all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayDead {
    /// Those of these ids.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000), inner(length(min = 1, max = 1024))))]
    pub ids: Vec<String>,
    /// All that the caller sees.
    #[serde(default)]
    pub all: bool,
}

/// What a replay did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replayed {
    /// The queue.
    pub queue: String,
    /// How many dead letters were sent again.
    pub replayed: u64,
    /// What to do about those that lead to nothing, because their partition or their sync has failed.
    #[serde(default)]
    pub hints: Vec<String>,
}
