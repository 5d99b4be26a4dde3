//! The scan: counts the feed's prices until the partitions are known, several counts at a time.

use super::circuit::Asked;
use super::{SyncSettings, Syncs};
use std::sync::Arc;
use tidemill_core::feed::{Cents, FeedQuery, PriceRange};
use tidemill_core::heatmap::{Counts, Goal, Planned, next_counts, partitions};
use tidemill_core::{Json, RunId, Timestamp};
use tidemill_feeds::Feed as Source;
use tokio::task::JoinSet;

/// What a scan found.
#[derive(Debug, Clone)]
pub struct Scanned {
    /// The partitions, by price.
    pub partitions: Vec<Planned>,
    /// Every range that was counted, with its count: for the picture.
    pub cells: Vec<(PriceRange, u64)>,
    /// Count calls.
    pub calls: u32,
    /// Records in all.
    pub total: u64,
    /// The source's time when it was first asked.
    pub source_time: Option<Timestamp>,
}

impl Scanned {
    /// The counted prices as cells that follow one another, as the sync keeps them.
    ///
    /// A scan counts from the lowest price up to some price; the difference between two such counts is a cell. The
    /// feed lives while it is counted, so a difference below nothing counts as nothing.
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
    /// Counts what changed since `updated_from` within `range`, until it is divided well enough, for as long as `run`
    /// is wanted.
    pub(super) async fn scan(
        &self,
        (feed, run): (&str, &RunId),
        source: &Arc<dyn Source>,
        range: PriceRange,
        updated_from: Option<Timestamp>,
        goal: Goal,
    ) -> Result<Scanned, Asked> {
        let mut counts = Counts::new(range);
        let mut cells = Vec::new();
        let mut source_time = None;
        loop {
            let wanted = next_counts(&counts, &goal);
            if wanted.is_empty() {
                break;
            }
            for together in wanted.chunks(self.settings.count_concurrency.max(1)) {
                let mut asked = JoinSet::new();
                for &prices in together {
                    let (syncs, feed, run) = (self.clone(), feed.to_owned(), run.clone());
                    let source = source.clone();
                    let query = FeedQuery { prices, updated_from };
                    asked.spawn(async move {
                        let counted = syncs.asking(&feed, &run, || source.count(&query)).await;
                        counted.map(|counted| (prices, counted))
                    });
                }
                while let Some(answer) = asked.join_next().await {
                    let (prices, counted) = answer.map_err(|_| Asked::Stopped)??;
                    counts.record(prices, counted.count);
                    cells.push((prices, counted.count));
                    source_time = source_time.or(counted.source_time);
                }
            }
        }
        cells.sort_unstable();
        Ok(Scanned {
            partitions: partitions(&counts, &goal),
            cells,
            calls: counts.calls(),
            total: counts.total().unwrap_or(0),
            source_time,
        })
    }
}

impl SyncSettings {
    /// What a scan aims at.
    pub(super) fn goal(&self, full: bool, granularity: Cents) -> Goal {
        // Three calls for each partition, as with the defaults.
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

    // The shapes of feeds are tried out with these two goals: what ships aims at nothing else.
    #[test]
    fn the_goals_that_ship_are_those_that_were_tried_out() {
        let settings = SyncSettings::default();
        assert_eq!(settings.goal(true, Goal::FULL.granularity), Goal::FULL);
        assert_eq!(settings.goal(false, Goal::INCREMENTAL.granularity), Goal::INCREMENTAL);
    }
}
