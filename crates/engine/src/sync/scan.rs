//! The scan: counts the feed's records by range until the partitions are known, with several concurrent counts.

use super::circuit::FeedAccessError;
use super::{SyncSettings, Syncs};
use std::sync::Arc;
use tidemill_core::feed::{FeedQuery, FieldRange, FieldValue};
use tidemill_core::heatmap::{Counts, Goal, PlannedPartition, next_counts, partitions};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_feeds::Feed as Source;
use tokio::task::JoinSet;

/// Result of a scan.
#[derive(Debug, Clone)]
pub struct ScanResult {
    /// The partitions, ordered by range.
    pub partitions: Vec<PlannedPartition>,
    /// All counted ranges with their counts, for the heat map.
    pub cells: Vec<(FieldRange, u64)>,
    /// Number of count calls.
    pub calls: u32,
    /// Total number of records.
    pub total: u64,
    /// The source's time at the first count.
    pub source_time: Option<Timestamp>,
    /// Sum of the counts, if each partition was counted separately.
    pub counted_each: Option<u64>,
}

impl ScanResult {
    /// Returns the counts as adjacent cells, in the stored format.
    ///
    /// A scan counts from the lowest value up to some value; the difference of two such counts is a cell. Records
    /// change during the scan, so a negative difference counts as zero.
    pub fn heatmap(&self) -> Json {
        let mut cells = Vec::new();
        let (mut from, mut below) = (self.cells.first().map_or(0, |(range, _)| range.from), 0);
        for &(range, count) in &self.cells {
            if range.to > from {
                let within = count.saturating_sub(below);
                cells.push(serde_json::json!({"from": from, "to": range.to, "count": within}));
                (from, below) = (range.to, count.max(below));
            }
        }
        Json::Array(cells)
    }
}

impl Syncs {
    /// Divides the records that changed since `updated_from`: into the feed's own ranges, or by counts.
    pub(super) async fn divide(
        &self,
        of: (&str, &RunId),
        source: &Arc<dyn Source>,
        updated_from: Option<Timestamp>,
        goal: Goal,
        now: Timestamp,
    ) -> Result<ScanResult, FeedAccessError> {
        if let Some(ranges) = source.fixed_ranges(now) {
            return self.count_ranges(of, source, ranges, updated_from, goal).await;
        }
        let (whole, top) = (source.range(), top_of(source.as_ref(), now));
        let range = FieldRange { to: top, ..whole };
        let mut scanned = self.scan(of, source, range, updated_from, goal).await?;
        if let Some(last) = scanned.partitions.last_mut() {
            // The last partition also has the records above the counted range.
            last.range.to = whole.to;
        }
        Ok(scanned)
    }

    /// Counts each given range, if the feed supports counts and the goal allows as many calls.
    async fn count_ranges(
        &self,
        (feed, run): (&str, &RunId),
        source: &Arc<dyn Source>,
        ranges: Vec<FieldRange>,
        updated_from: Option<Timestamp>,
        goal: Goal,
    ) -> Result<ScanResult, FeedAccessError> {
        let mut scanned = ScanResult {
            partitions: Vec::with_capacity(ranges.len()),
            cells: Vec::new(),
            calls: 0,
            total: 0,
            source_time: None,
            counted_each: None,
        };
        let counts = source.reading().counts && ranges.len() <= goal.calls_max as usize;
        let from = ranges.first().map_or(0, |first| first.from);
        for range in ranges {
            let mut predicted = 0;
            if counts {
                let query = FeedQuery { range, updated_from };
                let counted = self.query_feed(feed, run, || source.count(&query)).await?;
                predicted = counted.count;
                scanned.total += counted.count;
                scanned.calls += 1;
                scanned.source_time = scanned.source_time.or(counted.source_time);
                scanned.cells.push((FieldRange { from, to: range.to }, scanned.total));
            }
            scanned.partitions.push(PlannedPartition { range, predicted });
        }
        scanned.counted_each = counts.then_some(scanned.total);
        Ok(scanned)
    }

    /// Counts the records that changed since `updated_from` within `range`, until they can be partitioned, unless
    /// `run` is cancelled.
    pub(super) async fn scan(
        &self,
        (feed, run): (&str, &RunId),
        source: &Arc<dyn Source>,
        range: FieldRange,
        updated_from: Option<Timestamp>,
        goal: Goal,
    ) -> Result<ScanResult, FeedAccessError> {
        // The planner expects a range that starts at zero and boundaries that are multiples of the granularity. So all
        // values are moved by the lowest value of the field, which may be negative.
        let origin = source.range().from;
        let moved =
            |range: FieldRange, by: FieldValue| FieldRange { from: range.from + by, to: range.to + by };
        let mut counts = Counts::new(moved(range, -origin));
        let mut cells = Vec::new();
        let mut source_time = None;
        loop {
            let wanted = next_counts(&counts, &goal);
            if wanted.is_empty() {
                break;
            }
            for together in wanted.chunks(self.settings.count_concurrency.max(1)) {
                let mut tasks = JoinSet::new();
                for range in together.iter().map(|&range| moved(range, origin)) {
                    let (syncs, feed, run) = (self.clone(), feed.to_owned(), run.clone());
                    let source = source.clone();
                    let query = FeedQuery { range, updated_from };
                    tasks.spawn(async move {
                        let counted = syncs.query_feed(&feed, &run, || source.count(&query)).await;
                        counted.map(|counted| (range, counted))
                    });
                }
                while let Some(answer) = tasks.join_next().await {
                    let (range, counted) = answer.map_err(|_| FeedAccessError::Stopped)??;
                    counts.record(moved(range, -origin), counted.count);
                    cells.push((range, counted.count));
                    source_time = source_time.or(counted.source_time);
                }
            }
        }
        cells.sort_unstable();
        let planned = partitions(&counts, &goal).into_iter();
        let planned = planned.map(|one| PlannedPartition { range: moved(one.range, origin), ..one });
        Ok(ScanResult {
            partitions: planned.collect(),
            cells,
            calls: counts.calls(),
            total: counts.total().unwrap_or(0),
            source_time,
            counted_each: None,
        })
    }
}

/// Returns the end of the range that is counted: the end of the field, or the next day for times without an end.
pub(super) fn top_of(source: &dyn Source, now: Timestamp) -> FieldValue {
    const DAY_SECS: FieldValue = 86_400;
    let (whole, step) = (source.range(), source.granularity().max(1));
    if whole.to < FieldValue::MAX {
        return whole.to;
    }
    let steps = (now.timestamp().saturating_add(DAY_SECS) - whole.from).max(1) / step + 1;
    whole.from + steps * step
}

impl SyncSettings {
    /// Returns the goal of a scan.
    pub(super) fn goal(&self, full: bool, granularity: FieldValue) -> Goal {
        // Three calls per partition, as with the defaults.
        let incremental = Goal::INCREMENTAL.calls_max.max(self.partitions_incremental.saturating_mul(3));
        Goal {
            target: self.partition_target,
            partitions_max: if full { self.partitions_full } else { self.partitions_incremental },
            records_min: self.partition_min,
            calls_max: self.count_calls_max.min(if full { u32::MAX } else { incremental }),
            granularity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The tests of the partitioning use these two goals, so the defaults must be equal to them.
    #[test]
    fn default_goals_are_the_tested_ones() {
        let settings = SyncSettings::default();
        assert_eq!(settings.goal(true, Goal::FULL.granularity), Goal::FULL);
        assert_eq!(settings.goal(false, Goal::INCREMENTAL.granularity), Goal::INCREMENTAL);
    }
}
