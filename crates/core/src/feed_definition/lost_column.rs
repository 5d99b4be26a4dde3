//! Detection of columns that the source no longer fills, for example because it renamed a field.
//!
//! A field that is absent from a record may be optional. It counts as lost on three conditions: all records of a batch
//! lack it, rows of these records have a value, and chance does not explain it. The share of rows with a value says how
//! likely it is that so many records have none.

/// Rows of a sample, at most.
pub const SAMPLE_ROWS_MAX: u64 = 1_000;
/// Largest probability at which a column counts as lost.
const CHANCE_MAX: f64 = 0.01;

/// The values of a column in the user's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColumnUse {
    /// Rows that the batch would change.
    pub rows: u64,
    /// Rows of the batch that have a value, which would be overwritten.
    pub filled: u64,
    /// Rows of a sample of the table.
    pub sample: u64,
    /// Rows of the sample that have a value.
    pub sample_filled: u64,
}

impl ColumnUse {
    /// Returns whether a column that is absent from all records of the batch is lost.
    #[expect(clippy::cast_precision_loss, reason = "a share of a count")]
    pub fn is_lost(&self) -> bool {
        if self.filled == 0 {
            return false;
        }
        // One more row without a value, so that a small table proves little.
        let share = self.sample_filled as f64 / (self.sample as f64 + 1.0);
        (1.0 - share).powf(self.rows as f64) < CHANCE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(rows: u64, filled: u64, sample: u64, sample_filled: u64) -> bool {
        ColumnUse { rows, filled, sample, sample_filled }.is_lost()
    }

    #[test]
    fn column_that_every_row_has_is_lost() {
        assert!(is_lost(500, 500, 1_000, 1_000));
        assert!(is_lost(1, 1, 1_000, 1_000));
        assert!(is_lost(20, 20, 20, 20));
    }

    #[test]
    fn optional_column_is_not_lost() {
        // Half of the rows have a value; three records without one are nothing special.
        assert!(!is_lost(3, 1, 1_000, 500));
        assert!(!is_lost(1, 1, 1, 1));
        assert!(!is_lost(10, 1, 1_000, 20));
        // No value would be overwritten.
        assert!(!is_lost(500, 0, 1_000, 1_000));
        assert!(!is_lost(500, 0, 0, 0));
    }

    #[test]
    fn rare_column_is_lost_if_a_whole_list_has_none() {
        assert!(is_lost(500, 10, 1_000, 20));
    }
}
