//! Worker processes: registration, heartbeats and draining.

use serde::{Deserialize, Serialize};
use tidemill_core::RunId;

pub use tidemill_core::worker::HeartbeatResponse;

/// The registration of a worker process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterWorker {
    pub name: String,
    /// Host name of the machine.
    pub host: String,
    /// Process id on that machine.
    pub pid: i64,
    /// Labels that runs can require.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Version of its binary.
    #[serde(default)]
    pub version: String,
}

/// A heartbeat of a worker process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerHeartbeat {
    /// Runs that the worker holds; their leases are extended.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub runs: Vec<RunId>,
}

/// A request to start or stop draining a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainWorker {
    /// Whether the worker gets no new runs; by default true.
    #[serde(default = "yes")]
    pub draining: bool,
}

const fn yes() -> bool {
    true
}

impl Default for DrainWorker {
    fn default() -> Self {
        Self { draining: yes() }
    }
}
