//! The choice of the next values to count.

use super::curve::{Cell, Curve, as_f64};
use super::{FieldRange, FieldValue, pack};

/// Largest partition, relative to the mean, of a plan that is good enough. It is stricter than the guarantee, because
/// the feed changes after the scan.
const GOOD_ENOUGH: f64 = 1.25;

/// Sizes of a share, relative to the mean, for which a known end is accepted.
const FITTING: (f64, f64) = (0.75, 1.2);

/// Maximum mean size of the remaining shares, relative to the mean: small shares must not add up.
const LEFT_OVER: f64 = 1.06;

/// Density relative to the neighbours from which a cell may hide a value with many records.
const SUSPICIOUS: f64 = 2.5;

/// A cell is narrow if its width is at most its lowest value divided by this.
const NARROW: FieldValue = 8;

/// Maximum number of counts in one cell per round.
const AT_ONCE: usize = 4;

/// Units of round values; for a price in cents.
const ROUND: [FieldValue; 6] = [1_000_000, 100_000, 50_000, 10_000, 5_000, 100];

/// Values of the first counts in hundreds, for a price in dollars; denser where most records are.
const GRID: [FieldValue; 10] = [100, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 40_000, 200_000];

/// Returns the first values to count.
pub(super) fn grid(range: FieldRange, granularity: FieldValue) -> Vec<FieldValue> {
    let whole = Cell { from: range.from, to: range.to, below: 0, count: 1 };
    if whole.is_step(granularity) {
        return Vec::new();
    }
    let inside = |value: &FieldValue| range.from < *value && *value < range.to;
    let mut values: Vec<_> =
        GRID.iter().map(|hundreds| whole.inside(hundreds * 100, granularity)).filter(inside).collect();
    if values.len() < GRID.len() / 2 {
        // A narrow range is divided evenly.
        let step = (range.width() / 8).max(granularity);
        values.extend((1..8).map(|part| whole.inside(range.from + part * step, granularity)).filter(inside));
    }
    values.sort_unstable();
    values.dedup();
    values
}

/// Returns the next values to count, the most useful first; empty if the plan is good enough.
pub(super) fn values(curve: &Curve, wanted: u32) -> Vec<FieldValue> {
    let allowed = as_f64(curve.total) / f64::from(wanted) * GOOD_ENOUGH;
    let planned = pack::pack(curve, wanted, 0);
    let too_large: Vec<FieldRange> = planned
        .iter()
        .filter(|part| part.range.width() > curve.granularity && as_f64(part.predicted) > allowed)
        .map(|part| part.range)
        .collect();
    let is_wanted = |cell: &Cell| {
        cell.count > 0
            && !cell.is_step(curve.granularity)
            && too_large.iter().any(|range| range.contains(cell.from))
    };
    let mut requests = boundaries(curve, wanted);
    requests.retain(|request| is_wanted(&curve.cells[request.cell]));
    if requests.is_empty() {
        // All boundaries are in place, but a partition is still too large: divide its largest cell, or another cell
        // that relieves the neighbouring partitions.
        let divisible = |&cell: &usize| !curve.cells[cell].is_step(curve.granularity);
        let cells = (0..curve.cells.len()).filter(divisible).filter(|_| !too_large.is_empty());
        let largest = cells.max_by_key(|&cell| (is_wanted(&curve.cells[cell]), curve.cells[cell].count));
        requests.extend(
            largest.map(|cell| CountRequest { cell, value: curve.cells[cell].middle(curve.granularity) }),
        );
    }
    requests.sort_by_key(|request| (std::cmp::Reverse(curve.cells[request.cell].count), request.value));
    let mut values: Vec<FieldValue> = requests.iter().map(|request| request.value).collect();
    values.dedup();
    values
}

/// A value to count, and the cell that it divides.
struct CountRequest {
    cell: usize,
    value: FieldValue,
}

/// Goes from left to right and requests a count wherever a share should end and no known value is near.
fn boundaries(curve: &Curve, wanted: u32) -> Vec<CountRequest> {
    let total = as_f64(curve.total);
    let mean = total / f64::from(wanted);
    let mut targets: Vec<(usize, f64)> = Vec::new();
    let mut filled = 0.0;
    for left in (1..wanted).rev().map(f64::from) {
        if total - filled <= mean * FITTING.1 {
            break;
        }
        // After a value with many records, fewer records remain than the remaining partitions expect.
        let ideal = ((total - filled) / (left + 1.0)).max(mean);
        if let Some(end) = known_end(curve, filled, ideal, mean, left) {
            filled = end;
            continue;
        }
        let target = filled + ideal;
        let Some(index) = curve.cells.iter().position(|cell| as_f64(cell.below + cell.count) >= target)
        else {
            break;
        };
        let cell = &curve.cells[index];
        let (low, high) = (as_f64(cell.below), as_f64(cell.below + cell.count));
        if cell.is_step(curve.granularity) {
            // An indivisible cell begins a partition if the previous one is full enough, and ends it otherwise.
            filled = if low - filled > mean * 0.5 { low } else { high };
        } else {
            targets.push((index, (target - low) / (high - low)));
            filled = target;
        }
    }
    let mut requests = Vec::with_capacity(targets.len());
    for same_cell in targets.chunk_by(|one, other| one.0 == other.0) {
        request_in_cell(curve, same_cell, &mut requests);
    }
    requests
}

/// Returns the known end nearest to the ideal one, if its share has a fitting size and `left` more shares can take the
/// rest.
fn known_end(curve: &Curve, filled: f64, ideal: f64, mean: f64, left: f64) -> Option<f64> {
    let rest = as_f64(curve.total) - filled;
    let distance = |end: &f64| (end - filled - ideal).abs();
    let ends = curve.cells.iter().map(|cell| as_f64(cell.below + cell.count));
    ends.filter(|end| {
        let size = end - filled;
        size >= mean * FITTING.0 && size <= mean * FITTING.1 && rest - size <= left * mean * LEFT_OVER
    })
    .min_by(|one, other| distance(one).total_cmp(&distance(other)))
}

/// Requests counts for the shares that should end in one cell.
fn request_in_cell(curve: &Curve, targets: &[(usize, f64)], requests: &mut Vec<CountRequest>) {
    let Some(&(index, _)) = targets.first() else { return };
    let cell = &curve.cells[index];
    let granularity = curve.granularity;
    if is_suspicious(curve, index) {
        match round_value(cell, granularity) {
            // Count just below and just above the round value, to isolate it if many records have it.
            Some(round) => {
                let values = [round, round + granularity];
                let inside = values.into_iter().filter(|&value| cell.from < value && value < cell.to);
                requests.extend(inside.map(|value| CountRequest { cell: index, value }));
            }
            None => requests.push(CountRequest { cell: index, value: cell.middle(granularity) }),
        }
        return;
    }
    // A few counts in a large cell improve the interpolation for the others.
    let stride = if targets.len() > AT_ONCE { targets.len().div_ceil(AT_ONCE) } else { 1 };
    for &(_, share) in targets.iter().skip(stride / 2).step_by(stride) {
        requests.push(CountRequest { cell: index, value: curve.value_at(index, share) });
    }
}

/// Returns whether a cell is narrow and much denser than both neighbours.
fn is_suspicious(curve: &Curve, index: usize) -> bool {
    let cell = &curve.cells[index];
    let left = index.checked_sub(1).and_then(|left| curve.cells.get(left)).map_or(0.0, Cell::density);
    let right = curve.cells.get(index + 1).map_or(0.0, Cell::density);
    cell.to - cell.from <= cell.from / NARROW && cell.density() > left.max(right) * SUSPICIOUS
}

/// Returns the round value in a narrow cell, including its first value.
fn round_value(cell: &Cell, granularity: FieldValue) -> Option<FieldValue> {
    let units = ROUND.into_iter().filter(|&unit| unit > granularity && cell.to - cell.from <= 2 * unit);
    let values = units.map(|unit| (cell.from + unit - 1).div_euclid(unit) * unit);
    values.into_iter().find(|&value| value < cell.to && value > 0)
}
