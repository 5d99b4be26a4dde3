//! Alerts: lists, and tests of the targets.

use serde::{Deserialize, Serialize};
use tidemill_core::alert::AlertKind;

/// Filter of the list of alerts, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAlerts {
    /// Project to filter by.
    pub project: Option<String>,
    /// Kind to filter by.
    pub kind: Option<AlertKind>,
    /// Whether to include resolved alerts.
    pub resolved: Option<bool>,
    /// Cursor: `next` of the previous page.
    pub after: Option<i64>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// A request to send a test message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TestAlert {
    /// Target of the message; by default all targets.
    #[serde(default)]
    pub target: Option<String>,
}

/// The result of a test message to one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AlertTestResult {
    /// Name of the target.
    pub target: String,
    /// Error of the delivery; null if it succeeded.
    pub error: Option<String>,
}
