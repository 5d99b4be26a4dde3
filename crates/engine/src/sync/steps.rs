//! Histogram of the durations of pages without the fetch. Its size does not depend on the number of pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each bucket is a tenth wider than the previous one; the last is above ten minutes.
const BUCKETS: usize = 220;
const GROWTH: f64 = 1.1;

/// Number of pages by duration.
pub(super) struct StepHistogram([AtomicU64; BUCKETS]);

impl Default for StepHistogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

/// Durations of pages in this process, without the fetch.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct StepTimes {
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl StepHistogram {
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
    fn percentiles_are_accurate_to_a_tenth() {
        let steps = StepHistogram::default();
        for millis in 1..=100 {
            steps.add(Duration::from_millis(millis));
        }
        let times = steps.times();
        assert_eq!(times.count, 100);
        assert!((50.0..56.0).contains(&times.p50_ms) && (99.0..110.0).contains(&times.p99_ms), "{times:?}");
    }
}
