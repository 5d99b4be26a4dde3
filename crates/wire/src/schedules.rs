//! Requests to create, change and pause schedules.

use crate::runs::NewRun;
use serde::{Deserialize, Serialize};
use tidemill_core::schedule::{MissedPolicy, OverlapPolicy};

/// A schedule to create or change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutSchedule {
    /// Cron pattern with five fields, or a short form such as `@daily`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256), example = &"30 2 * * *"))]
    pub cron: String,
    /// IANA name of the time zone of the pattern; by default `UTC`.
    #[serde(default = "utc")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"Europe/Berlin"))]
    pub time_zone: String,
    /// Run that each fire queues.
    pub request: NewRun,
    /// Policy for missed fires.
    #[serde(default = "once")]
    pub missed: MissedPolicy,
    /// Policy for fires while an earlier run has not ended.
    #[serde(default = "skip")]
    pub overlap: OverlapPolicy,
}

pub(crate) fn utc() -> String {
    "UTC".to_owned()
}

const fn once() -> MissedPolicy {
    MissedPolicy::Once
}

const fn skip() -> OverlapPolicy {
    OverlapPolicy::Skip
}

/// A request to pause a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseSchedule {
    /// Reason, for other operators.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
}
