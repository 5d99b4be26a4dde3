//! What follows the last page of a pass.

use super::{PASSES_MAX, PageFault, RereadReason};
use std::time::Duration;

/// Times that a feed is counted once more, within a pass, before its count is believed to be higher than its list.
pub const RECOUNTS_MAX: u32 = 3;

/// What was read of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Ids, each once, over all passes.
    pub distinct: u64,
    /// Ids, each once, of this pass.
    pub distinct_in_pass: u64,
    /// Places of the list that this pass read, repeats and records without an id included.
    pub places: u64,
    /// Records without an id that this pass read.
    pub nameless: u64,
}

impl Seen {
    /// Records that the feed may count: every id that was seen in any pass, and the places of this pass that brought no
    /// further id. A record without an id has no name by which two passes could tell it from a missing one, so only
    /// this pass counts.
    pub const fn records(&self) -> u64 {
        self.distinct.saturating_add(self.places.saturating_sub(self.distinct_in_pass))
    }

    /// Places of this pass whose id was listed before.
    pub const fn repeats(&self) -> u64 {
        self.places.saturating_sub(self.distinct_in_pass).saturating_sub(self.nameless)
    }

    /// What is odd about the list, if anything is.
    pub fn oddity(&self) -> Option<String> {
        let (places, mut parts) = (self.places, Vec::new());
        if self.repeats() > 0 {
            parts.push(format!("{} of {places} records were listed more than once", self.repeats()));
        }
        if self.nameless > 0 {
            parts.push(format!("{} of {places} records have no id and were rejected", self.nameless));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// What follows the last page of a pass, when the feed was asked for its count once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterLast {
    /// The partition is completed.
    Complete,
    /// The count may be ahead of its list: look for more and count again after a wait.
    CountAgain,
    /// The feed has more than was seen: read it again.
    Again(RereadReason),
    /// The feed has more than was seen, however often it is read.
    Fault(PageFault),
}

impl AfterLast {
    /// The wait before the count number `recounts` is asked for again, counted from 0: it doubles.
    pub fn wait(first: Duration, recounts: u32) -> Duration {
        first.saturating_mul(1_u32.checked_shl(recounts.min(RECOUNTS_MAX)).unwrap_or(1))
    }
}

/// Compares what was seen with what the feed counts now, after `recounts` earlier counts of the same pass.
///
/// Fewer than seen is what sold stones look like. More than seen can be a count that is ahead of its list, or stones
/// that came while the pass went on: another count, and then a further pass, sees them. A count that lies ends as a
/// fault after [`PASSES_MAX`] passes, and not never.
pub const fn after_last(seen: &Seen, recount: u64, passes: u32, recounts: u32) -> AfterLast {
    let records = seen.records();
    if recount <= records {
        AfterLast::Complete
    } else if recounts < RECOUNTS_MAX {
        AfterLast::CountAgain
    } else if passes < PASSES_MAX {
        AfterLast::Again(RereadReason::CountIsHigher { seen: records, count: recount })
    } else {
        AfterLast::Fault(PageFault::CountsDisagree { seen: records, count: recount, passes })
    }
}
