//! How many records are read at a time, where only reading them tells how large they are.

/// Records of the first portion.
const FIRST: usize = 32;
/// How many times as many records a portion may have as the one before.
const GROWTH: usize = 8;

/// The number of records to read next under a bound of bytes: few at first, and then as many as fit by their mean size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    records_max: usize,
    /// Bytes of a record in the last portion.
    mean: usize,
}

impl Default for Portion {
    fn default() -> Self {
        Self { records_max: FIRST, mean: 0 }
    }
}

impl Portion {
    /// Records to read next where so many bytes are left. 0 is possible, and whoever has read nothing yet reads one.
    pub fn records(&self, bytes_left: usize) -> usize {
        bytes_left.checked_div(self.mean).unwrap_or(usize::MAX).min(self.records_max)
    }

    /// Takes note of what was read.
    pub fn learn(&mut self, records: usize, bytes: usize) {
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
    fn portions_grow_to_what_fits_and_shrink_to_nothing() {
        let mut portion = Portion::default();
        assert_eq!(portion.records(1_000_000), 32);
        for (records, bytes, next) in [
            (32, 32_000, 256),
            (256, 256_000, 1_000),
            (0, 0, 1_000),
            (100, 0, 16_384),
            (2, 1_000_000, 2),
            (1, 9_000_000, 0),
        ] {
            portion.learn(records, bytes);
            assert_eq!(portion.records(1_000_000), next, "after {records} records of {bytes} bytes");
        }
    }
}
