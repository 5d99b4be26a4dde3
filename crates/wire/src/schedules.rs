//! Schedules.

use crate::runs::NewRun;
use serde::{Deserialize, Serialize};
use tidemill_core::schedule::{Missed, Overlap};

/// A schedule to make, or to change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutSchedule {
    /// When it fires: five or six fields of cron.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256), example = &"30 2 * * *"))]
    pub cron: String,
    /// The IANA name of the time zone whose wall clock the pattern is read on.
    #[serde(default = "utc")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128), example = &"Europe/Berlin"))]
    pub time_zone: String,
    /// What each fire asks for.
    pub request: NewRun,
    /// What becomes of fires that were missed.
    #[serde(default = "once")]
    pub missed: Missed,
    /// What becomes of fires while an earlier run is live.
    #[serde(default = "skip")]
    pub overlap: Overlap,
}

pub(crate) fn utc() -> String {
    "UTC".to_owned()
}

const fn once() -> Missed {
    Missed::Once
}

const fn skip() -> Overlap {
    Overlap::Skip
}

/// A hold on a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PauseSchedule {
    /// Why, for the others.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
}
