//! The heatmap: the distribution of records over an ordered field, and the partitions derived from it.
//!
//! Planning is a pure function of counts. [`next_counts`] returns the ranges to count next, until the plan is good
//! enough. [`partitions`] returns the plan for the current counts. Every boundary is a multiple of the granularity,
//! and the half-open ranges are adjacent, so every record is in exactly one partition.
//!
//! The order of the counts: the total; a coarse grid; the interpolated ends of equal shares; then refinements where a
//! share has the wrong size. A value with many records gets its own partition, because it cannot be divided. The feed
//! changes during the scan, so counts may contradict each other; a negative difference counts as zero.

mod curve;
mod pack;
mod probe;

use crate::feed::{FieldRange, FieldValue};
use curve::Curve;
use std::collections::BTreeMap;

/// The goal of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Wanted number of records per partition.
    pub target: u64,
    pub partitions_max: u32,
    /// Minimum number of records per partition, where possible.
    pub records_min: u64,
    /// Maximum number of count requests.
    pub calls_max: u32,
    /// Smallest difference of two values that the feed's filter supports.
    pub granularity: FieldValue,
}

impl Goal {
    /// The goal of a full sync.
    pub const FULL: Self =
        Self { target: 5_000, partitions_max: 30, records_min: 1_000, calls_max: 60, granularity: 100 };

    /// The goal of an incremental sync.
    pub const INCREMENTAL: Self = Self { partitions_max: 10, calls_max: 30, ..Self::FULL };

    /// Returns the number of partitions for `total` records; 0 for no records.
    pub fn partitions_for(&self, total: u64) -> u32 {
        if total == 0 {
            return 0;
        }
        let by_target = total.div_ceil(self.target.max(1));
        let by_minimum = (total / self.records_min.max(1)).max(1);
        let wanted = by_target.min(by_minimum).clamp(1, self.partitions_max.max(1).into());
        u32::try_from(wanted).unwrap_or(self.partitions_max)
    }

    fn granularity(&self) -> FieldValue {
        self.granularity.max(1)
    }
}

/// The counts of a range so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    range: FieldRange,
    total: Option<u64>,
    /// Number of records of the range below the value.
    below: BTreeMap<FieldValue, u64>,
    calls: u32,
}

impl Counts {
    /// Starts without counts for a range: the whole range of the feed, or a gap that is planned again.
    pub const fn new(range: FieldRange) -> Self {
        Self { range, total: None, below: BTreeMap::new(), calls: 0 }
    }

    /// Records the result of a count. A count that begins neither at the start of the range nor at a known value
    /// carries no information and only counts as a request.
    pub fn record(&mut self, range: FieldRange, count: u64) {
        self.calls += 1;
        if range == self.range {
            self.total = Some(count);
            return;
        }
        let before =
            if range.from == self.range.from { Some(0) } else { self.below.get(&range.from).copied() };
        if let Some(before) = before
            && self.range.from < range.to
            && range.to < self.range.to
        {
            self.below.insert(range.to, before.saturating_add(count));
        }
    }

    /// Returns the number of all records, once it was counted.
    pub const fn total(&self) -> Option<u64> {
        self.total
    }

    /// Returns the number of count requests so far.
    pub const fn calls(&self) -> u32 {
        self.calls
    }
}

/// A partition of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedPartition {
    /// Range of the partition field.
    pub range: FieldRange,
    /// Expected number of records.
    pub predicted: u64,
}

/// Returns the ranges to count next, in any order; empty if the plan is good enough or cannot be improved.
pub fn next_counts(counts: &Counts, goal: &Goal) -> Vec<FieldRange> {
    let Some(total) = counts.total else { return vec![counts.range] };
    let wanted = goal.partitions_for(total);
    let remaining = goal.calls_max.saturating_sub(counts.calls);
    if wanted <= 1 || remaining == 0 {
        return Vec::new();
    }
    let mut values = if counts.below.is_empty() {
        probe::grid(counts.range, goal.granularity())
    } else {
        probe::values(&Curve::of(counts, goal.granularity()), wanted)
    };
    // Counting up to a known value again would add nothing, and planning might not terminate.
    values.retain(|value| {
        counts.range.from < *value && *value < counts.range.to && !counts.below.contains_key(value)
    });
    values.truncate(usize::try_from(remaining).unwrap_or(usize::MAX));
    let from = counts.range.from;
    values.into_iter().map(|to| FieldRange { from, to }).collect()
}

/// Returns the plan for the current counts: adjacent ranges that cover everything; empty if there are no records.
pub fn partitions(counts: &Counts, goal: &Goal) -> Vec<PlannedPartition> {
    let wanted = goal.partitions_for(counts.total.unwrap_or_default());
    if wanted == 0 {
        return Vec::new();
    }
    pack::pack(&Curve::of(counts, goal.granularity()), wanted, goal.records_min)
}
