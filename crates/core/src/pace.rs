//! The throughput of a sync: stored records per interval, in a bounded number of intervals.

use crate::Timestamp;
use crate::limits::PACE_POINTS_MAX;
use crate::records::Partition;

/// Stored records of a sync per interval.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pace {
    /// Start of the first interval: the time of the first page; null if no page was stored.
    pub from: Option<Timestamp>,
    /// Length of each interval in seconds.
    pub interval_secs: i64,
    /// Number of records stored in each interval, in order.
    pub stored: Vec<i64>,
}

/// The division of a sync's duration into intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    pub from: Timestamp,
    pub interval_secs: i64,
    pub points: i64,
}

impl Scale {
    /// Divides the time from the first page of a sync to its last; `None` if there was no page.
    pub fn of(partitions: &[Partition]) -> Option<Self> {
        let read = partitions.iter().filter(|partition| partition.first_page_at.is_some());
        let from = read.clone().filter_map(|partition| partition.first_page_at).min()?;
        // Consolidation updates partitions after their last page, so the end of a partition takes precedence.
        let to = read.map(|partition| partition.ended_at.unwrap_or(partition.updated_at)).max()?;
        Some(Self::between(from, to))
    }

    fn between(from: Timestamp, to: Timestamp) -> Self {
        let most = i64::try_from(PACE_POINTS_MAX).unwrap_or(1);
        let secs = (to - from).num_seconds().max(0) + 1;
        let interval_secs = (secs + most - 1) / most;
        Self { from, interval_secs, points: (secs + interval_secs - 1) / interval_secs }
    }

    /// Fills the intervals with counts by index; indices outside of the range are ignored.
    pub fn filled(self, counts: impl IntoIterator<Item = (i64, i64)>) -> Pace {
        let mut stored = vec![0; usize::try_from(self.points).unwrap_or(0)];
        for (index, count) in counts {
            if let Some(stored) = usize::try_from(index).ok().and_then(|index| stored.get_mut(index)) {
                *stored += count;
            }
        }
        Pace { from: Some(self.from), interval_secs: self.interval_secs, stored }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, TimeDelta};

    #[test]
    fn intervals_are_bounded_and_cover_any_duration() {
        let from = DateTime::UNIX_EPOCH;
        for secs in [0, 1, 2, 58, 59, 60, 61, 119, 120, 3_599, 86_400, 40_000_000] {
            let scale = Scale::between(from, from + TimeDelta::seconds(secs));
            let (points, most) = (scale.points, i64::try_from(PACE_POINTS_MAX).unwrap());
            assert!((1..=most).contains(&points), "{secs} s: {scale:?}");
            assert!(scale.interval_secs * points > secs, "{secs} s are covered: {scale:?}");
            assert!(
                scale.interval_secs * (points - 1) <= secs,
                "{secs} s: no superfluous interval: {scale:?}"
            );
        }
        let backwards = Scale::between(from, from - TimeDelta::seconds(5));
        assert_eq!((backwards.points, backwards.interval_secs), (1, 1));
    }

    #[test]
    fn counts_outside_of_the_intervals_are_ignored() {
        let scale = Scale { from: DateTime::UNIX_EPOCH, interval_secs: 2, points: 3 };
        let pace = scale.filled([(0, 5), (2, 7), (2, 1), (3, 100), (-1, 100)]);
        assert_eq!((pace.interval_secs, pace.stored), (2, vec![5, 0, 8]));
    }
}
