//! How fast a sync goes: stones stored, interval by interval, in a bounded number of intervals.

use crate::Timestamp;
use crate::limits::PACE_POINTS_MAX;
use crate::records::Partition;

/// Stones that a sync stored, interval by interval.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pace {
    /// When the first interval begins: with the first page. Nothing where no page was stored.
    pub from: Option<Timestamp>,
    /// How long each interval is, in seconds.
    pub interval_secs: i64,
    /// Stones that were stored in each, in order.
    pub stored: Vec<i64>,
}

/// Which intervals there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// When the first begins.
    pub from: Timestamp,
    /// How long each is, in seconds.
    pub interval_secs: i64,
    /// How many there are.
    pub points: i64,
}

impl Scale {
    /// The intervals from the first page of a sync to its last; none where there was no page.
    pub fn of(partitions: &[Partition]) -> Option<Self> {
        let read = partitions.iter().filter(|partition| partition.first_page_at.is_some());
        let from = read.clone().filter_map(|partition| partition.first_page_at).min()?;
        // What is consolidated later changes a partition, and is no page: where it has ended, that is its last.
        let to = read.map(|partition| partition.ended_at.unwrap_or(partition.updated_at)).max()?;
        Some(Self::between(from, to))
    }

    fn between(from: Timestamp, to: Timestamp) -> Self {
        let most = i64::try_from(PACE_POINTS_MAX).unwrap_or(1);
        let secs = (to - from).num_seconds().max(0) + 1;
        let interval_secs = (secs + most - 1) / most;
        Self { from, interval_secs, points: (secs + interval_secs - 1) / interval_secs }
    }

    /// The pace, from what was stored in some of the intervals.
    pub fn filled(self, counts: impl IntoIterator<Item = (i64, i64)>) -> Pace {
        let mut stored = vec![0; usize::try_from(self.points).unwrap_or(0)];
        for (place, count) in counts {
            if let Some(there) = usize::try_from(place).ok().and_then(|place| stored.get_mut(place)) {
                *there += count;
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
    fn however_long_a_sync_takes_there_are_few_intervals_and_they_cover_it() {
        let from = DateTime::UNIX_EPOCH;
        for secs in [0, 1, 2, 58, 59, 60, 61, 119, 120, 3_599, 86_400, 40_000_000] {
            let scale = Scale::between(from, from + TimeDelta::seconds(secs));
            let (points, most) = (scale.points, i64::try_from(PACE_POINTS_MAX).unwrap());
            assert!((1..=most).contains(&points), "{secs} s: {scale:?}");
            assert!(scale.interval_secs * points > secs, "{secs} s are covered: {scale:?}");
            assert!(
                scale.interval_secs * (points - 1) <= secs,
                "{secs} s: none is empty for nothing: {scale:?}"
            );
        }
        let backwards = Scale::between(from, from - TimeDelta::seconds(5));
        assert_eq!((backwards.points, backwards.interval_secs), (1, 1));
    }

    #[test]
    fn what_lies_outside_of_the_intervals_is_not_drawn() {
        let scale = Scale { from: DateTime::UNIX_EPOCH, interval_secs: 2, points: 3 };
        let pace = scale.filled([(0, 5), (2, 7), (2, 1), (3, 100), (-1, 100)]);
        assert_eq!((pace.interval_secs, pace.stored), (2, vec![5, 0, 8]));
    }
}
