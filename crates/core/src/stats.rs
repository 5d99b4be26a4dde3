//! The key metrics, as numbers.

use crate::run::RunState;

/// What is going on, and what went on lately.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// Runs that wait.
    pub queued_count: i64,
    /// Runs that a worker could claim at once.
    pub ready_count: i64,
    /// Age of the oldest run that a worker could claim at once.
    pub oldest_ready_secs: Option<f64>,
    /// Runs held, by the name of their worker.
    pub active: Vec<ActiveRuns>,
    /// Runs of the last 24 hours that succeeded.
    pub success_count: i64,
    /// Runs of the last 24 hours that failed.
    pub failed_count: i64,
    /// Successes among them, in percent.
    pub success_rate: Option<f64>,
    /// Mean time from claim to end over the last 7 days, by final state.
    pub durations: Vec<MeanDuration>,
    /// The same over the last 24 hours.
    #[serde(default)]
    pub durations_day: Vec<MeanDuration>,
}

/// The runs that workers of one name hold.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActiveRuns {
    /// The workers' name.
    pub claimed_by: String,
    /// How many runs they hold.
    pub active_runs: i64,
}

/// How long runs took that ended in one state.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeanDuration {
    /// The state in which they ended.
    pub status: RunState,
    /// The mean, in seconds.
    pub avg_duration_seconds: f64,
    /// How many runs the mean is of.
    pub runs: i64,
}

impl Stats {
    /// Fills in the success rate from the counts.
    #[must_use]
    pub fn with_rate(mut self) -> Self {
        let total = self.success_count + self.failed_count;
        #[expect(clippy::cast_precision_loss, reason = "counts of runs are far below 2^52")]
        if total > 0 {
            let rate = 100.0 * self.success_count as f64 / total as f64;
            self.success_rate = Some((rate * 100.0).round() / 100.0);
        }
        self
    }
}
