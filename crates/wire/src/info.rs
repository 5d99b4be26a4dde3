//! What a server says of itself.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;

/// A server, and who it takes the caller for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Info {
    /// The version of its binary.
    pub version: String,
    /// The database's time.
    pub now: Timestamp,
    /// Who is asking.
    pub caller: String,
    /// What they may do.
    pub role: String,
    /// The only project that they see, if not all.
    pub project: Option<String>,
    /// The background loops of the server, for callers that see every project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<LoopHealth>,
}

/// Whether a server lives, or can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// `lives`, `ready`, or `degraded`: it can be used, but a background loop fails.
    pub status: String,
    /// The background loops that fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<LoopHealth>,
}

/// The state of a background loop of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopHealth {
    /// The name of the loop.
    pub name: String,
    /// How often it was restarted after a failure.
    pub restarts: u64,
    /// How long it has been failing, in seconds; nothing while it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_secs: Option<u64>,
    /// The last error of a failing loop. Callers without a token get a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
