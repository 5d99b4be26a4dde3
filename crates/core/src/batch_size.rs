//! The batch size for reading records of unknown size within a byte limit.

/// Records of the first batch.
const FIRST: usize = 32;
/// Maximum growth factor from one batch to the next.
const GROWTH: usize = 8;

/// The number of records to read next within a byte limit: few at first, then as many as fit by their mean size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    records_max: usize,
    /// Mean size of a record in the last batch.
    mean: usize,
}

impl Default for BatchSize {
    fn default() -> Self {
        Self { records_max: FIRST, mean: 0 }
    }
}

impl BatchSize {
    /// Returns the number of records that fit into `bytes_left`. It can be 0; a caller that has read nothing yet
    /// reads one.
    pub fn next(&self, bytes_left: usize) -> usize {
        bytes_left.checked_div(self.mean).unwrap_or(usize::MAX).min(self.records_max)
    }

    /// Records the size of the batch that was read.
    pub fn record(&mut self, records: usize, bytes: usize) {
        if let Some(mean) = bytes.checked_div(records) {
            self.mean = mean;
            self.records_max = self.records_max.saturating_mul(GROWTH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_grow_to_the_limit_and_shrink_to_zero() {
        let mut batch = BatchSize::default();
        assert_eq!(batch.next(1_000_000), 32);
        for (records, bytes, next) in [
            (32, 32_000, 256),
            (256, 256_000, 1_000),
            (0, 0, 1_000),
            (100, 0, 16_384),
            (2, 1_000_000, 2),
            (1, 9_000_000, 0),
        ] {
            batch.record(records, bytes);
            assert_eq!(batch.next(1_000_000), next, "after {records} records of {bytes} bytes");
        }
    }
}
