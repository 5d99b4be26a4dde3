//! Arguments and results of the operations on runs.

use super::{ChangeOutcome, FinalStatus, Lane, RunState};
use crate::{Json, RunId, Timestamp, WorkerId};

/// The result of queueing a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueOutcome {
    /// Id of the run: a new one, or the first one with the same idempotency key.
    pub run_id: RunId,
    /// State of the run.
    pub status: RunState,
    pub queued_at: Timestamp,
    /// Whether this call created the run.
    pub created: bool,
}

/// A request to claim runs.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimRuns {
    /// Name of the worker.
    pub worker: String,
    /// Id of the worker process, if it is registered.
    pub worker_id: Option<WorkerId>,
    /// Maximum number of runs.
    pub limit: usize,
    /// Labels of the worker.
    pub labels: Vec<String>,
    /// Projects to claim from; null for all projects.
    pub projects: Option<Vec<String>>,
    /// Idempotency key: a repeated request with the same id returns the same runs.
    pub request_id: Option<String>,
    /// Duration of the lease without an event or heartbeat. `None`: the worker sends no heartbeats, unless it is
    /// registered.
    pub lease_secs: Option<u64>,
}

impl ClaimRuns {
    /// Makes a request for one run.
    pub fn one(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            worker_id: None,
            limit: 1,
            labels: Vec::new(),
            projects: None,
            request_id: None,
            lease_secs: Some(crate::limits::LEASE_SECS),
        }
    }
}

/// The expected holder of a run. A call is stale if the run has another holder; missing fields are not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// Name of the worker that claimed the run.
    pub worker: Option<String>,
    /// Number of the claim.
    pub epoch: Option<i32>,
}

/// The end of a run, reported by its worker.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FinishRun {
    /// Id of the run.
    pub run_id: RunId,
    pub status: FinalStatus,
    /// Metadata to merge into that of the run.
    pub metadata: Json,
    /// Number of the claim.
    pub epoch: Option<i32>,
}

/// The outcome of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CancelOutcome {
    /// The run was queued and is now cancelled.
    Cancelled,
    /// A worker holds the run and was asked to stop it.
    Requested,
    /// The run had already ended.
    Ended,
}

/// The outcome of a retry.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetryOutcome {
    /// Id of the successor.
    pub run_id: RunId,
    /// Whether this call created the successor.
    pub created: bool,
}

/// An operator's decision to fail a stalled run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailRun {
    pub run_id: RunId,
    /// Name of the operator.
    pub by: String,
    pub reason: Option<String>,
    /// Whether to queue a successor.
    pub retry: bool,
}

/// The outcome of failing a stalled run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailOutcome {
    /// Whether this call or an earlier one failed the run.
    pub outcome: ChangeOutcome,
    /// Id of the successor, if one was queued.
    pub successor: Option<RunId>,
}

/// The filter of a list of runs. Missing fields match all runs.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFilter {
    /// Project of the runs.
    pub project: Option<String>,
    /// Name of the environment.
    pub env: Option<String>,
    /// State of the runs.
    pub status: Option<RunState>,
    /// Lane of the runs.
    pub lane: Option<Lane>,
    /// Kind of the runs.
    pub kind: Option<String>,
    /// Feed whose syncs the runs belong to.
    pub feed: Option<String>,
    /// Earliest time of queueing, inclusive.
    pub since: Option<Timestamp>,
    /// Latest time of queueing, exclusive.
    pub until: Option<Timestamp>,
    /// Prefix of the run id.
    pub id_prefix: Option<String>,
    /// Prefix of the commit.
    pub sha_prefix: Option<String>,
    /// Prefix of the branch or tag.
    pub ref_prefix: Option<String>,
    /// Prefix of the name: that of the graph, or of the feed of the sync. Other runs have no name.
    pub name_prefix: Option<String>,
    /// Cursor: the last run of the previous page.
    pub before: Option<super::RunCursor>,
    /// Maximum number of runs.
    pub limit: usize,
}
