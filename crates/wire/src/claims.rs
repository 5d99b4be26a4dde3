//! Claiming of runs by workers, with optional long polling.

use serde::{Deserialize, Serialize};
use tidemill_core::WorkerId;
use tidemill_core::run::Claim;

/// A request to claim runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Name of the worker.
    pub worker: String,
    /// Id of the worker process, if it is registered.
    #[serde(default)]
    pub worker_id: Option<WorkerId>,
    /// Maximum number of runs; by default 1.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
    /// Labels of the worker. A run is claimed only if the worker has all its labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Projects to claim from; by default all projects.
    #[serde(default)]
    pub projects: Option<Vec<String>>,
    /// Idempotency key: after a lost response, repeat the request with the same id to receive the same runs.
    #[serde(default)]
    pub request_id: Option<String>,
    /// Duration of the lease in seconds without an event or heartbeat.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 86400)))]
    pub lease_secs: Option<u32>,
    /// Time in seconds to wait for a run if none can be claimed now.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
}

impl ClaimRequest {
    /// Makes a request for one run.
    pub fn one(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            worker_id: None,
            limit: None,
            labels: Vec::new(),
            projects: None,
            request_id: None,
            lease_secs: None,
            wait_secs: None,
        }
    }
}

/// The runs that a worker could claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerScope {
    /// Labels of the worker. A run is claimed only if the worker has all its labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Projects to claim from; by default all projects.
    #[serde(default)]
    pub projects: Option<Vec<String>>,
}

/// The amount of remaining work for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkLeft {
    /// Number of runs that the worker could still get: queued runs, and runs of other workers that may be requeued.
    pub left: i64,
}

/// Response to a claim: the claimed runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimResponse {
    /// Idempotency key of the request; a repeated request with this id returns the same response.
    pub request_id: String,
    /// Claimed runs; empty if none could be claimed.
    pub runs: Vec<Claim>,
    /// Reason for which no run was claimed, if it is not an empty queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ClaimReason>,
}

/// The reason for which a worker gets no runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimReason {
    /// The worker is draining: it finishes its runs and gets no new ones.
    Draining,
}
