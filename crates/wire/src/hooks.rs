//! Requests and responses of incoming webhooks.

use serde::{Deserialize, Serialize};
use tidemill_core::RunId;
use tidemill_core::hook::{HookKind, HookRule};

/// A webhook to create or change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutHook {
    /// Project whose runs it queues.
    pub project: String,
    /// Type of the sender.
    pub kind: HookKind,
    /// Environment variable of the server that contains the secret.
    pub secret_env: String,
    /// Rules that map branches to environments. Default: `main` to staging, `release/*` to prod, other branches to dev.
    #[serde(default)]
    pub rules: Vec<HookRule>,
    /// Whether the webhook is paused and queues no runs.
    #[serde(default)]
    pub paused: bool,
}

/// The outcome of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookResponse {
    /// Run that this delivery queued, now or before.
    pub run_id: Option<RunId>,
    /// Whether this call created the run.
    pub created: bool,
    /// Reason for which the delivery queued no run.
    pub ignored: Option<String>,
}
