//! Alerts: which ones, and whether messages arrive.

use serde::{Deserialize, Serialize};
use tidemill_core::alert::AlertKind;

/// Which alerts to list, the newest first; what is not named does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAlerts {
    /// Of this project.
    pub project: Option<String>,
    /// Of this kind.
    pub kind: Option<AlertKind>,
    /// Those that are over as well.
    pub resolved: Option<bool>,
    /// The cursor of the page before.
    pub after: Option<i64>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// A wish for a test message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TestAlert {
    /// To this target; to all of them where none is named.
    #[serde(default)]
    pub target: Option<String>,
}

/// Whether a test message reached a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tested {
    /// The target.
    pub target: String,
    /// Why it was not reached, where it was not.
    pub error: Option<String>,
}
