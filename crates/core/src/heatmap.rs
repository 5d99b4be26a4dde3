//! The heatmap: how many stones cost what, and the partitions that follow from it.
//!
//! Planning is a pure function of counts. [`next_counts`] says what to count, several ranges at a time, until it has
//! nothing more to ask; [`partitions`] cuts the prices by what is known, at any time. Every boundary is a multiple of
//! the granularity, ranges are half-open and follow one another without a gap, so every stone is in exactly one.
//!
//! First the total; then a coarse grid; then the prices at which, by interpolation, the equal shares should end; then
//! again, only where a share came out wrong. A price that many stones have is found and stands alone: it cannot be
//! divided. The feed lives while it is counted, so counts may contradict each other a little: a negative difference
//! counts as nothing.

mod curve;
mod pack;
mod probe;

use crate::feed::{Cents, PriceRange};
use curve::Curve;
use std::collections::BTreeMap;

/// What the plan should come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Stones per partition.
    pub target: u64,
    /// Partitions at the most.
    pub partitions_max: u32,
    /// Stones per partition at the least, where that can be had.
    pub records_min: u64,
    /// Counts at the most.
    pub calls_max: u32,
    /// The smallest difference between two prices that the feed can tell apart.
    pub granularity: Cents,
}

impl Goal {
    /// For a full sync.
    pub const FULL: Self =
        Self { target: 5_000, partitions_max: 30, records_min: 1_000, calls_max: 60, granularity: 100 };

    /// For an incremental sync.
    pub const INCREMENTAL: Self = Self { partitions_max: 10, calls_max: 30, ..Self::FULL };

    /// How many partitions `total` stones should be cut into; none for no stone.
    pub fn partitions_for(&self, total: u64) -> u32 {
        if total == 0 {
            return 0;
        }
        let by_target = total.div_ceil(self.target.max(1));
        let by_minimum = (total / self.records_min.max(1)).max(1);
        let wanted = by_target.min(by_minimum).clamp(1, self.partitions_max.max(1).into());
        u32::try_from(wanted).unwrap_or(self.partitions_max)
    }

    fn granularity(&self) -> Cents {
        self.granularity.max(1)
    }
}

/// What is known: counts of price ranges within one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    range: PriceRange,
    total: Option<u64>,
    /// How many stones of the range cost less than the price.
    below: BTreeMap<Cents, u64>,
    calls: u32,
}

impl Counts {
    /// Nothing is known of a range: [`PriceRange::ALL`], or a gap that is to be planned again.
    pub const fn new(range: PriceRange) -> Self {
        Self { range, total: None, below: BTreeMap::new(), calls: 0 }
    }

    /// Takes the answer to a count. What does not begin where the range begins, or at a price that is already
    /// known, says nothing and is only counted as a call.
    pub fn record(&mut self, range: PriceRange, count: u64) {
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

    /// How many stones there are, once that was counted.
    pub const fn total(&self) -> Option<u64> {
        self.total
    }

    /// How often the feed was asked.
    pub const fn calls(&self) -> u32 {
        self.calls
    }
}

/// One partition of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Planned {
    /// Its prices.
    pub range: PriceRange,
    /// How many stones it should have, by the counts.
    pub predicted: u64,
}

/// What to count next, all at once or in any order; nothing when the plan is good enough, or as good as it gets.
pub fn next_counts(counts: &Counts, goal: &Goal) -> Vec<PriceRange> {
    let Some(total) = counts.total else { return vec![counts.range] };
    let wanted = goal.partitions_for(total);
    let left = goal.calls_max.saturating_sub(counts.calls);
    if wanted <= 1 || left == 0 {
        return Vec::new();
    }
    let mut prices = if counts.below.is_empty() {
        probe::grid(counts.range, goal.granularity())
    } else {
        probe::prices(&Curve::of(counts, goal.granularity()), wanted)
    };
    // A price that is known says nothing new: without this, planning might not end.
    prices.retain(|price| {
        counts.range.from < *price && *price < counts.range.to && !counts.below.contains_key(price)
    });
    prices.truncate(usize::try_from(left).unwrap_or(usize::MAX));
    let from = counts.range.from;
    prices.into_iter().map(|to| PriceRange { from, to }).collect()
}

/// The plan by what is known: ranges that follow one another and cover the whole; none where there is no stone.
pub fn partitions(counts: &Counts, goal: &Goal) -> Vec<Planned> {
    let wanted = goal.partitions_for(counts.total.unwrap_or_default());
    if wanted == 0 {
        return Vec::new();
    }
    pack::pack(&Curve::of(counts, goal.granularity()), wanted, goal.records_min)
}
