//! Things in a row, each as close as can be to where it wishes to be.

use crate::picture::number;

/// Neighbours that stand together because they wish for the same room.
struct Block {
    sum: f64,
    count: usize,
}

impl Block {
    fn mean(&self) -> f64 {
        self.sum / number(i64::try_from(self.count).unwrap_or(i64::MAX))
    }
}

/// The middles of things in a given order, whose rooms do not overlap, with the least sum of squares of what each
/// is away from its wish.
///
/// Taken off the room that stands before it, each wish is a number, and the places are numbers that do not fall:
/// wherever they would, neighbours are joined at their mean.
pub(super) fn settle(wishes: &[f64], rooms: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(wishes.len());
    let mut at = 0.0;
    for room in rooms {
        offsets.push(at + room / 2.0);
        at += room;
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (wish, offset) in wishes.iter().zip(&offsets) {
        let mut block = Block { sum: wish - offset, count: 1 };
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
    fn wishes_are_met_where_there_is_room_and_shared_where_there_is_none() {
        assert_eq!(settle(&[0.0, 100.0], &[10.0, 10.0]), [0.0, 100.0]);
        assert_eq!(settle(&[0.0, 0.0], &[10.0, 10.0]), [-5.0, 5.0]);
        assert_eq!(settle(&[50.0, 0.0, 200.0], &[10.0, 10.0, 10.0]), [20.0, 30.0, 200.0]);
        assert_eq!(settle(&[], &[]), Vec::<f64>::new());
    }
}
