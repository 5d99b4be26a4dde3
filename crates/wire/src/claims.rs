//! Claims: a worker asks for runs, and may wait for them.

use serde::{Deserialize, Serialize};
use tidemill_core::WorkerId;
use tidemill_core::run::Claim;

/// What a worker asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The worker's name.
    pub worker: String,
    /// The worker's process, where it is registered.
    #[serde(default)]
    pub worker_id: Option<WorkerId>,
    /// How many runs it wants: one, unless it says otherwise.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
    /// What it offers.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The only projects that it works for, if not all.
    #[serde(default)]
    pub projects: Option<Vec<String>>,
    /// Makes asking again the same as asking once: after a lost answer, ask again with the same id.
    #[serde(default)]
    pub request_id: Option<String>,
    /// How long the lease lasts without a sign of life.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 86400)))]
    pub lease_secs: Option<u32>,
    /// How long to wait for something to claim, where there is nothing.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60)))]
    pub wait_secs: Option<u16>,
}

impl Ask {
    /// One run for a worker of this name.
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

/// What a worker offers, and for whom it works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// What it offers.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The only projects that it works for, if not all.
    #[serde(default)]
    pub projects: Option<Vec<String>>,
}

/// What is left for such a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Left {
    /// Runs that could come to it without anybody doing anything: those that wait, and those in hand elsewhere.
    pub left: i64,
}

/// What a worker gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claimed {
    /// The id under which the same answer can be had again.
    pub request_id: String,
    /// The runs; none where there was nothing to claim.
    pub runs: Vec<Claim>,
    /// Why there are none, where it is not that nothing waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ClaimReason>,
}

/// Why a worker gets nothing, whatever waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClaimReason {
    /// It was asked to drain: to end what it has, and to take nothing new.
    Draining,
}
