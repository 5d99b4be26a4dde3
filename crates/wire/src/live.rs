//! Live events: what a reader asks for. What it gets are events as they are kept, one server-sent event for each.

use serde::{Deserialize, Serialize};

/// Which events of one run to stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FollowRun {
    /// After this sequence number, from the first unless told. A `Last-Event-ID` header goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub after: Option<i32>,
}

/// Which events of everybody's runs to stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Follow {
    /// Of this project, if not of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// After the event with this id, from now on unless told; `0` stands before the first. A `Last-Event-ID` header
    /// goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[0-9][0-9a-z._-]*$")))]
    pub after: Option<String>,
}
