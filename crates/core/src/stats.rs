//! Key figures of the queue.

use crate::run::RunState;

/// Key figures of the current and recent activity.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stats {
    /// Number of queued runs.
    pub queued_count: i64,
    /// Number of queued runs that can be claimed now.
    pub ready_count: i64,
    /// Age in seconds of the oldest run that can be claimed now.
    pub oldest_ready_secs: Option<f64>,
    /// Numbers of held runs by worker name.
    pub active: Vec<ActiveRuns>,
    /// Number of runs that succeeded in the last 24 hours.
    pub success_count: i64,
    /// Number of runs that failed in the last 24 hours.
    pub failed_count: i64,
    /// Percentage of successes among them.
    pub success_rate: Option<f64>,
    /// Mean time from claim to end in the last 7 days, by final state.
    pub durations: Vec<MeanDuration>,
    /// Mean time from claim to end in the last 24 hours, by final state.
    #[serde(default)]
    pub durations_day: Vec<MeanDuration>,
}

/// The number of runs that workers of one name hold.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActiveRuns {
    /// Name of the workers.
    pub claimed_by: String,
    /// Number of runs that they hold.
    pub active_runs: i64,
}

/// The mean duration of runs with one final state.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeanDuration {
    pub status: RunState,
    /// Mean duration in seconds.
    pub avg_duration_seconds: f64,
    pub runs: i64,
}

impl Stats {
    /// Computes the success rate from the counts.
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
