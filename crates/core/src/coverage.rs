//! Proof that the partitions of a sync contain every record of the source.
//!
//! A record whose partition field is empty, whose value has no partition, or that lies between two partitions is in no
//! page. Without this proof, its row would be deleted as absent. The proof compares the counts of the partitions with
//! the count of the whole list. Counts of a changing source differ for a moment, so they are repeated.

/// Rounds of counts before a difference counts as a gap.
pub const ROUNDS_MAX: u32 = 4;

/// Counts of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoverageCounts {
    /// Count of the whole list, before those of the partitions.
    pub before: u64,
    /// Sum of the counts of all partitions.
    pub partitions: u64,
    /// Count of the whole list, after those of the partitions.
    pub after: u64,
    /// Records that changed during the round, if the source can count them.
    pub changed: u64,
}

impl CoverageCounts {
    /// Returns the number of records that are in no partition, and whose absence no change explains.
    pub const fn missing(&self) -> u64 {
        let whole = if self.before < self.after { self.before } else { self.after };
        whole.saturating_sub(self.partitions).saturating_sub(self.changed)
    }
}

/// The decision after a round of counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// The partitions contain every record.
    Complete,
    /// The source may have changed during the round: count again.
    Recount,
    Gap(CoverageError),
}

/// Why the partitions of a sync do not contain every record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the source counts {whole} records, and its {ranges} partitions contain {partitions}: {missing} records are in no \
     partition, so they would not be read; {hint}"
)]
pub struct CoverageError {
    pub whole: u64,
    pub partitions: u64,
    pub missing: u64,
    /// Number of partitions of the sync.
    pub ranges: usize,
    /// How to change the definition.
    pub hint: String,
}

/// Compares the counts of a round, after `rounds` earlier ones. `hint` says how to change the definition.
pub fn decide_coverage(counts: &CoverageCounts, rounds: u32, ranges: usize, hint: &str) -> Coverage {
    let missing = counts.missing();
    if missing == 0 {
        Coverage::Complete
    } else if rounds + 1 < ROUNDS_MAX {
        Coverage::Recount
    } else {
        let whole = counts.before.min(counts.after);
        Coverage::Gap(CoverageError {
            whole,
            partitions: counts.partitions,
            missing,
            ranges,
            hint: hint.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(before: u64, partitions: u64, after: u64, changed: u64) -> CoverageCounts {
        CoverageCounts { before, partitions, after, changed }
    }

    #[test]
    fn equal_and_overlapping_counts_are_complete() {
        for complete in [counts(10, 10, 10, 0), counts(10, 12, 10, 0), counts(0, 0, 0, 0)] {
            assert_eq!(decide_coverage(&complete, 0, 2, ""), Coverage::Complete);
        }
    }

    #[test]
    fn change_during_the_round_explains_a_difference() {
        // Three records were removed, then added; or three records changed their partition.
        for explained in [counts(10, 7, 7, 0), counts(7, 7, 10, 0), counts(10, 7, 10, 3)] {
            assert_eq!(decide_coverage(&explained, ROUNDS_MAX, 2, ""), Coverage::Complete);
        }
        assert_eq!(counts(10, 7, 10, 2).missing(), 1);
    }

    #[test]
    fn lasting_difference_is_a_gap_with_the_counts() {
        let lasting = counts(1_003, 1_000, 1_003, 0);
        for round in 0..ROUNDS_MAX - 1 {
            assert_eq!(decide_coverage(&lasting, round, 4, ""), Coverage::Recount);
        }
        let Coverage::Gap(error) = decide_coverage(&lasting, ROUNDS_MAX - 1, 4, "add a value") else {
            panic!()
        };
        assert_eq!(
            error.to_string(),
            "the source counts 1003 records, and its 4 partitions contain 1000: 3 records are in no partition, so \
             they would not be read; add a value"
        );
    }
}
