//! The decision after the last page of a pass.

use super::{PASSES_MAX, PageError, RereadReason};
use crate::feed_definition::PageAccess;
use std::time::Duration;

/// Number of repeated counts in a pass before the count is taken to be higher than the list.
pub const RECOUNTS_MAX: u32 = 3;

/// Numbers of records that were read from a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadCounts {
    /// Distinct ids over all passes.
    pub distinct: u64,
    /// Distinct ids of this pass.
    pub distinct_in_pass: u64,
    /// Positions that this pass read, including repeats and records without an id.
    pub positions: u64,
    /// Records without an id in this pass.
    pub nameless: u64,
}

impl ReadCounts {
    /// Returns the number of records that the feed may count: all distinct ids, and the positions of this pass that
    /// brought no further id. Records without an id cannot be matched between passes, so only this pass counts.
    pub const fn records(&self) -> u64 {
        self.distinct.saturating_add(self.positions.saturating_sub(self.distinct_in_pass))
    }

    /// Returns the number of positions of this pass whose id was listed before.
    pub const fn repeats(&self) -> u64 {
        self.positions.saturating_sub(self.distinct_in_pass).saturating_sub(self.nameless)
    }

    /// Describes repeated records and records without an id, if there are any.
    pub fn anomaly(&self) -> Option<String> {
        let (positions, mut parts) = (self.positions, Vec::new());
        if self.repeats() > 0 {
            parts.push(format!("{} of {positions} records were listed more than once", self.repeats()));
        }
        if self.nameless > 0 {
            parts.push(format!("{} of {positions} records have no id and were rejected", self.nameless));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The decision after the last page of a pass, based on a new count of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassEnd {
    Complete,
    /// The count may be ahead of the list: fetch and count again after a wait.
    Recount,
    /// The feed counts more records than were read: read the partition again.
    Reread(RereadReason),
    /// The feed counts more records than were read, even after all passes.
    Fail(PageError),
}

impl PassEnd {
    /// Returns the wait before the next count, after `recounts` repeated counts. It doubles each time.
    pub fn wait(first: Duration, recounts: u32) -> Duration {
        first.saturating_mul(1_u32.checked_shl(recounts.min(RECOUNTS_MAX)).unwrap_or(1))
    }
}

/// Compares the records that were read with the feed's current count, after `recounts` earlier counts of this pass.
///
/// A lower count means that records were removed. A higher count can be ahead of the list, or records were added during
/// the pass; another count, and then another pass, finds them. A count that stays wrong fails the partition after
/// [`PASSES_MAX`] passes.
///
/// Pages by number do not overlap: a list that shifts down repeats a record, and one that shifts up skips one. The
/// repeat then stands in for the record that was skipped, so only distinct ids count until the last pass. A source that
/// always lists records twice is read [`PASSES_MAX`] times.
pub const fn decide_pass_end(
    counts: &ReadCounts,
    recount: u64,
    passes: u32,
    recounts: u32,
    access: PageAccess,
) -> PassEnd {
    let records = counts.records();
    let distinct = records.saturating_sub(counts.repeats());
    if recount <= records {
        if matches!(access, PageAccess::Aligned(_)) && distinct < recount && passes < PASSES_MAX {
            return PassEnd::Reread(RereadReason::CountIsHigher { seen: distinct, count: recount });
        }
        PassEnd::Complete
    } else if recounts < RECOUNTS_MAX {
        PassEnd::Recount
    } else if passes < PASSES_MAX {
        PassEnd::Reread(RereadReason::CountIsHigher { seen: records, count: recount })
    } else {
        PassEnd::Fail(PageError::CountsDisagree { seen: records, count: recount, passes })
    }
}
