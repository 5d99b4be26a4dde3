//! How long pages take, but for the fetch: counted in buckets, so that it costs nothing however many there are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each bucket is a tenth wider than the one before; the last is above ten minutes.
const BUCKETS: usize = 220;
const GROWTH: f64 = 1.1;

/// A count for each length of time.
pub(super) struct Steps([AtomicU64; BUCKETS]);

impl Default for Steps {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

/// How long pages took in this process, but for the fetch.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct StepTimes {
    /// Pages.
    pub count: u64,
    /// Half of them took no longer, in milliseconds.
    pub p50_ms: f64,
    /// Ninety-nine of a hundred took no longer.
    pub p99_ms: f64,
}

impl Steps {
    pub(super) fn add(&self, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small positive number"
        )]
        let bucket = (micros.max(1.0).ln() / GROWTH.ln()) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn times(&self) -> StepTimes {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let percentile = |percent: u64| {
            let mut left = (count * percent).div_ceil(100).max(1);
            for (bucket, count) in counts.iter().enumerate() {
                if *count >= left {
                    let upper = i32::try_from(bucket + 1).unwrap_or(i32::MAX);
                    return GROWTH.powi(upper) / 1e3;
                }
                left -= count;
            }
            0.0
        };
        StepTimes { count, p50_ms: percentile(50), p99_ms: percentile(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_within_a_tenth() {
        let steps = Steps::default();
        for millis in 1..=100 {
            steps.add(Duration::from_millis(millis));
        }
        let times = steps.times();
        assert_eq!(times.count, 100);
        assert!((50.0..56.0).contains(&times.p50_ms) && (99.0..110.0).contains(&times.p99_ms), "{times:?}");
    }
}
