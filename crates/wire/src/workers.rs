//! Worker processes: they say that they live, and learn what became of their runs.

use serde::{Deserialize, Serialize};
use tidemill_core::RunId;

pub use tidemill_core::worker::Beaten;

/// What a worker process says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// A label for people.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// Its process id on that machine.
    pub pid: i64,
    /// What it offers.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The version of its binary.
    #[serde(default)]
    pub version: String,
}

/// A sign of life, with the runs that the worker believes to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Beat {
    /// The runs.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub runs: Vec<RunId>,
}

/// Whether a worker gets nothing new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainWorker {
    /// Whether it gets nothing: yes, unless it says otherwise.
    #[serde(default = "yes")]
    pub draining: bool,
}

const fn yes() -> bool {
    true
}

impl Default for DrainWorker {
    fn default() -> Self {
        Self { draining: yes() }
    }
}
