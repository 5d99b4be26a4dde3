//! Packing of cells into partitions: first minimises the largest partition, then evens out the others.

use super::curve::{Cell, Curve};
use super::{FieldRange, PlannedPartition};

/// Divides the curve into at most `wanted` partitions.
pub(super) fn pack(curve: &Curve, wanted: u32, records_min: u64) -> Vec<PlannedPartition> {
    let cells = merged(curve);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, cells.len());
    let is_step: Vec<bool> = cells.iter().map(|cell| cell.is_step(curve.granularity)).collect();
    let capacity = capacity(&cells, &is_step, wanted);
    let ends = even_ends(&cells, &is_step, wanted, capacity);
    let mut planned = Vec::with_capacity(ends.len());
    let mut first = 0;
    for end in ends {
        planned.push(sum(&cells[first..end]));
        first = end;
    }
    join_small(&mut planned, records_min, capacity);
    planned
}

/// Merges empty cells with the previous cell, and leading ones with the next cell, because a partition must not be
/// empty. A single value keeps its own cell where possible.
fn merged(curve: &Curve) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::with_capacity(curve.cells.len());
    for &cell in &curve.cells {
        match cells.last_mut() {
            Some(last) if cell.count == 0 || last.count == 0 => {
                last.to = cell.to;
                last.count += cell.count;
            }
            Some(_) | None => cells.push(cell),
        }
    }
    cells
}

fn sum(cells: &[Cell]) -> PlannedPartition {
    let range = match cells {
        [first, .., last] => FieldRange { from: first.from, to: last.to },
        [only] => FieldRange { from: only.from, to: only.to },
        [] => FieldRange { from: 0, to: 0 },
    };
    PlannedPartition { range, predicted: cells.iter().map(|cell| cell.count).sum() }
}

/// Returns the smallest capacity with which at most `wanted` partitions suffice. A single indivisible cell may exceed
/// it.
fn capacity(cells: &[Cell], is_step: &[bool], wanted: usize) -> u64 {
    let total: u64 = cells.iter().map(|cell| cell.count).sum();
    let widest = cells.iter().zip(is_step).filter(|(_, step)| !**step).map(|(cell, _)| cell.count).max();
    let (mut low, mut high) = (widest.unwrap_or_default().max(1), total.max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if needed(cells, middle) <= wanted { high = middle } else { low = middle + 1 }
    }
    low
}

/// Returns the number of partitions for a capacity, filled from the left.
fn needed(cells: &[Cell], capacity: u64) -> usize {
    let (mut parts, mut filled) = (0, u64::MAX);
    for cell in cells {
        filled = filled.saturating_add(cell.count);
        if filled > capacity {
            parts += 1;
            filled = cell.count;
        }
    }
    parts
}

/// Returns the ends of the partitions as indices into `cells`, with the smallest sum of squares within the capacity.
fn even_ends(cells: &[Cell], is_step: &[bool], wanted: usize, capacity: u64) -> Vec<usize> {
    const IMPOSSIBLE: u128 = u128::MAX;
    let count = cells.len();
    // best[parts][end]: the least sum of squares of `parts` partitions of the first `end` cells, and its last start.
    let mut best = vec![vec![(IMPOSSIBLE, 0_usize); count + 1]; wanted + 1];
    best[0][0] = (0, 0);
    for parts in 1..=wanted {
        for end in parts..=count {
            let mut filled = 0_u64;
            for start in (parts - 1..end).rev() {
                filled += cells[start].count;
                if filled > capacity && !(end - start == 1 && is_step[start]) {
                    break;
                }
                let before = best[parts - 1][start].0;
                let square = u128::from(filled) * u128::from(filled);
                if before != IMPOSSIBLE && before + square < best[parts][end].0 {
                    best[parts][end] = (before + square, start);
                }
            }
        }
    }
    let chosen = (1..=wanted).min_by_key(|&parts| best[parts][count].0).unwrap_or(wanted);
    let mut ends = Vec::with_capacity(chosen);
    let mut end = count;
    for parts in (1..=chosen).rev() {
        ends.push(end);
        end = best[parts][end].1;
    }
    ends.reverse();
    // The first partition must begin with the first cell; otherwise no division was found.
    if end == 0 { ends } else { vec![count] }
}

/// Merges partitions with too few records with their smaller neighbour, if the sum is within the capacity.
fn join_small(planned: &mut Vec<PlannedPartition>, records_min: u64, capacity: u64) {
    let mut index = 0;
    while planned.len() > 1 && index < planned.len() {
        let small = planned[index];
        let left = index.checked_sub(1).filter(|&left| planned[left].predicted + small.predicted <= capacity);
        let right = Some(index + 1).filter(|&right| {
            planned.get(right).is_some_and(|right| right.predicted + small.predicted <= capacity)
        });
        let neighbour = left.into_iter().chain(right).min_by_key(|&other| planned[other].predicted);
        match neighbour {
            Some(other) if small.predicted < records_min => {
                let (first, second) = (index.min(other), index.max(other));
                planned[first].range.to = planned[second].range.to;
                planned[first].predicted += planned[second].predicted;
                planned.remove(second);
                index = first;
            }
            Some(_) | None => index += 1,
        }
    }
}
