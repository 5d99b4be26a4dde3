//! Parameters of live event streams. Each stored event is sent as one server-sent event.

use serde::{Deserialize, Serialize};

/// Parameters of the event stream of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FollowRun {
    /// Start after this sequence number; by default with the first event. A `Last-Event-ID` header takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
}

/// Parameters of the event stream of all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FollowEvents {
    /// Project to filter by; by default all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Start after the event with this id; by default with new events; `0` for the first event. A `Last-Event-ID`
    /// header takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9][0-9a-z._-]*$")))]
    pub after: Option<String>,
}
