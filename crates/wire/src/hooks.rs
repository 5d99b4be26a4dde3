//! Webhooks that come in.

use serde::{Deserialize, Serialize};
use tidemill_core::RunId;
use tidemill_core::hook::{HookKind, HookRule};

/// A webhook to set up, or to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutHook {
    /// The project whose runs it queues.
    pub project: String,
    /// Who sends.
    pub kind: HookKind,
    /// The environment variable of the server that holds the secret.
    pub secret_env: String,
    /// Which branch is for which environment; `main` for staging, `release/*` for prod and the others for dev where
    /// there is none.
    #[serde(default)]
    pub rules: Vec<HookRule>,
    /// Whether it queues nothing for now.
    #[serde(default)]
    pub paused: bool,
}

/// What came of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookAnswer {
    /// The run, where one was queued by this delivery, now or before.
    pub run_id: Option<RunId>,
    /// Whether this call made it.
    pub created: bool,
    /// Why there is none, where there is none.
    pub ignored: Option<String>,
}
