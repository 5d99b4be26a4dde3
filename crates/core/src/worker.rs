//! Worker processes, which claim runs.

use crate::{Timestamp, WorkerId};

/// A worker process that sends heartbeats.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Worker {
    /// Id of the process, made at its start.
    pub worker_id: WorkerId,
    /// Display name; several processes may share it.
    pub name: String,
    /// Host name of the machine.
    pub host: String,
    /// Process id on that machine.
    pub pid: i64,
    /// Labels that runs can require.
    pub labels: Vec<String>,
    /// Version of its binary.
    pub version: String,
    /// Time of its start.
    pub started_at: Timestamp,
    /// Time of its last heartbeat.
    pub beat_at: Timestamp,
    /// Time at which it signed off or was declared dead.
    pub ended_at: Option<Timestamp>,
    /// Whether it is draining: it finishes its runs and claims no new ones.
    #[serde(default)]
    pub draining: bool,
}

/// The registration of a worker process.
#[derive(Debug, Clone, PartialEq)]
pub struct NewWorker {
    /// Made at the start of the process.
    pub worker_id: WorkerId,
    pub name: String,
    pub host: String,
    pub pid: i64,
    pub labels: Vec<String>,
    /// Version of its binary.
    pub version: String,
}

/// The state of a worker's lease on a run, in the response to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunLease {
    /// Whether the worker still holds the run.
    pub held: bool,
    /// Whether a cancel of the run was requested.
    pub cancel_requested: bool,
    /// New end of the lease.
    pub lease_until: Option<Timestamp>,
}

/// The response to a worker's heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeartbeatResponse {
    /// One lease for each run, in the order of the request.
    pub held: Vec<RunLease>,
    /// Whether the worker is draining: it gets no new runs and may exit when it holds none.
    #[serde(default)]
    pub draining: bool,
}
