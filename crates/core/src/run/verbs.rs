//! What the verbs of a run are asked, and what they answer.

use super::{Applied, FinalStatus, Lane, RunState};
use crate::{Json, RunId, Timestamp, WorkerId};

/// The answer to a request to queue a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queued {
    /// The run: a new one, or the one that the key belongs to.
    pub run_id: RunId,
    /// Where it is in its life.
    pub status: RunState,
    /// When it was queued.
    pub queued_at: Timestamp,
    /// Whether this call made it.
    pub created: bool,
}

/// What a worker asks for.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimRuns {
    /// The worker's name.
    pub worker: String,
    /// The worker's process, where it is registered.
    pub worker_id: Option<WorkerId>,
    /// How many runs it wants.
    pub limit: usize,
    /// What it offers.
    pub labels: Vec<String>,
    /// The only projects that it works for, if not all.
    pub projects: Option<Vec<String>>,
    /// Makes asking again the same as asking once.
    pub request_id: Option<String>,
    /// How long the lease lasts without a sign of life. `None`: the worker promises no signs of life, unless it is
    /// registered.
    pub lease_secs: Option<u64>,
}

impl ClaimRuns {
    /// One run for a worker of this name.
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

/// What a caller believes about its hold on a run. What it does not know is not held against it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    /// The name under which it claimed.
    pub worker: Option<String>,
    /// The fence that it was given.
    pub epoch: Option<i32>,
}

/// The end of a run, as its worker reports it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FinishRun {
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub status: FinalStatus,
    /// What to add to its metadata.
    pub metadata: Json,
    /// The fence that the worker was given.
    pub epoch: Option<i32>,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cancelled {
    /// The run waited, and is cancelled.
    Cancelled,
    /// The run is held; its worker was asked to stop.
    Requested,
    /// The run had ended: there was nothing to stop.
    Ended,
}

/// The try that follows a run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Retried {
    /// The new try.
    pub run_id: RunId,
    /// Whether this call made it.
    pub created: bool,
}

/// A person's decision to fail a stalled run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailRun {
    /// The run.
    pub run_id: RunId,
    /// The person who decides.
    pub by: String,
    /// The reason, for the run's record.
    pub reason: Option<String>,
    /// Whether to queue a successor.
    pub retry: bool,
}

/// The outcome of failing a stalled run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failed {
    /// Whether this call failed the run, or an earlier one did.
    pub outcome: Applied,
    /// The successor, if one was queued.
    pub successor: Option<RunId>,
}

/// Which runs to list; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFilter {
    /// Of this project.
    pub project: Option<String>,
    /// Of this environment, by name.
    pub env: Option<String>,
    /// In this state.
    pub status: Option<RunState>,
    /// Of this lane.
    pub lane: Option<Lane>,
    /// Runs of syncs of this feed.
    pub feed: Option<String>,
    /// Queued at this time or later.
    pub since: Option<Timestamp>,
    /// Queued before this time.
    pub until: Option<Timestamp>,
    /// With an id that begins so.
    pub id_prefix: Option<String>,
    /// On a commit whose name begins so.
    pub sha_prefix: Option<String>,
    /// On a branch or tag whose name begins so.
    pub ref_prefix: Option<String>,
    /// With a name that begins so: that of its graph, or of the feed of its sync. Other runs have none.
    pub name_prefix: Option<String>,
    /// Older than this run: the last one of the page before.
    pub before: Option<RunId>,
    /// At most so many.
    pub limit: usize,
}
