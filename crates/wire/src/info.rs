//! Information about the server.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;
use tidemill_core::project_set::ProjectSet;

/// The server and the identity of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Info {
    /// Version of the server.
    pub version: String,
    /// Time of the database.
    pub now: Timestamp,
    /// Name of the caller.
    pub caller: String,
    /// Role of the caller.
    pub role: String,
    /// Projects that the caller is limited to; null for all projects.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub projects: ProjectSet,
    /// Background loops of the server; only for callers without a project limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<LoopHealth>,
}

/// The health of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// `lives`, `ready`, or `degraded` if the server is usable but a background loop fails.
    pub status: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<LoopHealth>,
}

/// The health of a background loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopHealth {
    /// Name of the loop.
    pub name: String,
    /// Number of restarts after failures.
    pub restarts: u64,
    /// Time in seconds for which it has been failing; absent while it is healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_secs: Option<u64>,
    /// Last error of a failing loop. Callers without a token get a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
