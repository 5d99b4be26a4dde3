//! Placement of items in a row, each as close as possible to its desired position.

use crate::chart::number;

/// Adjacent items that are placed together because their desired positions overlap.
struct Block {
    sum: f64,
    count: usize,
}

impl Block {
    fn mean(&self) -> f64 {
        self.sum / number(i64::try_from(self.count).unwrap_or(i64::MAX))
    }
}

/// Returns the centres of items in the given order, without overlaps, with the least sum of squared distances to the
/// desired positions.
///
/// After subtracting the offset of each item, this is an isotonic regression. It is solved by pool-adjacent-violators:
/// neighbours that would be out of order are merged at their mean.
pub(super) fn place_in_row(desired: &[f64], widths: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(desired.len());
    let mut at = 0.0;
    for width in widths {
        offsets.push(at + width / 2.0);
        at += width;
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (target, offset) in desired.iter().zip(&offsets) {
        let mut block = Block { sum: target - offset, count: 1 };
        while let Some(before) = blocks.pop_if(|before| before.mean() > block.mean()) {
            block = Block { sum: before.sum + block.sum, count: before.count + block.count };
        }
        blocks.push(block);
    }
    let bases = blocks.iter().flat_map(|block| std::iter::repeat_n(block.mean(), block.count));
    bases.zip(&offsets).map(|(base, offset)| base + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_positions_unless_they_overlap() {
        assert_eq!(place_in_row(&[0.0, 100.0], &[10.0, 10.0]), [0.0, 100.0]);
        assert_eq!(place_in_row(&[0.0, 0.0], &[10.0, 10.0]), [-5.0, 5.0]);
        assert_eq!(place_in_row(&[50.0, 0.0, 200.0], &[10.0, 10.0, 10.0]), [20.0, 30.0, 200.0]);
        assert_eq!(place_in_row(&[], &[]), Vec::<f64>::new());
    }
}
