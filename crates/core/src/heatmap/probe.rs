//! Where to count next.

use super::curve::{Cell, Curve, as_f64};
use super::{Cents, PriceRange, pack};

/// The largest partition, by the mean, with which the plan is good enough. Below what is promised, because the feed
/// goes on living.
const GOOD_ENOUGH: f64 = 1.25;

/// The sizes of a share, by the mean, with which an end that is known already is taken.
const FITTING: (f64, f64) = (0.75, 1.2);

/// What may be left for the shares after it on average, by the mean: small shares must not add up.
const LEFT_OVER: f64 = 1.06;

/// How much denser than its neighbours a cell is that may hide a price which many stones have.
const SUSPICIOUS: f64 = 2.5;

/// A cell is narrow when it is this part of its price wide, or less.
const NARROW: Cents = 8;

/// Counts in one cell at a time.
const AT_ONCE: usize = 4;

/// What prices are multiples of when they are round, in cents.
const ROUND: [Cents; 6] = [1_000_000, 100_000, 50_000, 10_000, 5_000, 100];

/// Prices, in dollars, at which the first counts are taken: closer where stones mostly are.
const GRID: [Cents; 10] = [100, 250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 40_000, 200_000];

/// The first prices to count at.
pub(super) fn grid(range: PriceRange, granularity: Cents) -> Vec<Cents> {
    let whole = Cell { from: range.from, to: range.to, below: 0, count: 1 };
    if whole.is_step(granularity) {
        return Vec::new();
    }
    let inside = |price: &Cents| range.from < *price && *price < range.to;
    let mut prices: Vec<_> =
        GRID.iter().map(|dollars| whole.inside(dollars * 100, granularity)).filter(inside).collect();
    if prices.len() < GRID.len() / 2 {
        // A narrow range: evenly.
        let step = (range.width() / 8).max(granularity);
        prices.extend((1..8).map(|part| whole.inside(range.from + part * step, granularity)).filter(inside));
    }
    prices.sort_unstable();
    prices.dedup();
    prices
}

/// The prices to count at next, the most useful first; none when the plan is good enough.
pub(super) fn prices(curve: &Curve, wanted: u32) -> Vec<Cents> {
    let allowed = as_f64(curve.total) / f64::from(wanted) * GOOD_ENOUGH;
    let planned = pack::pack(curve, wanted, 0);
    let too_large: Vec<PriceRange> = planned
        .iter()
        .filter(|part| part.range.width() > curve.granularity && as_f64(part.predicted) > allowed)
        .map(|part| part.range)
        .collect();
    let is_wanted = |cell: &Cell| {
        cell.count > 0
            && !cell.is_step(curve.granularity)
            && too_large.iter().any(|range| range.contains(cell.from))
    };
    let mut wishes = boundaries(curve, wanted);
    wishes.retain(|wish| is_wanted(&curve.cells[wish.cell]));
    if wishes.is_empty() {
        // Every boundary is where it should be, and a partition is still too large: divide its largest cell, or any
        // other that leaves the partitions around it more room.
        let divisible = |&cell: &usize| !curve.cells[cell].is_step(curve.granularity);
        let cells = (0..curve.cells.len()).filter(divisible).filter(|_| !too_large.is_empty());
        let largest = cells.max_by_key(|&cell| (is_wanted(&curve.cells[cell]), curve.cells[cell].count));
        wishes.extend(largest.map(|cell| Wish { cell, price: curve.cells[cell].middle(curve.granularity) }));
    }
    wishes.sort_by_key(|wish| (std::cmp::Reverse(curve.cells[wish.cell].count), wish.price));
    let mut prices: Vec<Cents> = wishes.iter().map(|wish| wish.price).collect();
    prices.dedup();
    prices
}

/// A price to count at, and the cell that it divides.
struct Wish {
    cell: usize,
    price: Cents,
}

/// Goes from left to right, and wishes for a count wherever a share should end and nothing is known nearby.
fn boundaries(curve: &Curve, wanted: u32) -> Vec<Wish> {
    let total = as_f64(curve.total);
    let mean = total / f64::from(wanted);
    let mut targets: Vec<(usize, f64)> = Vec::new();
    let mut filled = 0.0;
    for left in (1..wanted).rev().map(f64::from) {
        if total - filled <= mean * FITTING.1 {
            break;
        }
        // After a price that many stones have, less is left than there are partitions for.
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
            // It cannot be divided: it begins a partition if the one before is full enough, and ends it if not.
            filled = if low - filled > mean * 0.5 { low } else { high };
        } else {
            targets.push((index, (target - low) / (high - low)));
            filled = target;
        }
    }
    let mut wishes = Vec::with_capacity(targets.len());
    for same_cell in targets.chunk_by(|one, other| one.0 == other.0) {
        wish(curve, same_cell, &mut wishes);
    }
    wishes
}

/// The known end nearest to the ideal one, where it fits and `left` further shares can take the rest.
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

/// Wishes for the shares that should end in one cell.
fn wish(curve: &Curve, targets: &[(usize, f64)], wishes: &mut Vec<Wish>) {
    let Some(&(index, _)) = targets.first() else { return };
    let cell = &curve.cells[index];
    let granularity = curve.granularity;
    if is_suspicious(curve, index) {
        match round_price(cell, granularity) {
            // Just before the round price, and just after: if many stones have it, it stands alone from now on.
            Some(round) => {
                let prices = [round, round + granularity];
                let inside = prices.into_iter().filter(|&price| cell.from < price && price < cell.to);
                wishes.extend(inside.map(|price| Wish { cell: index, price }));
            }
            None => wishes.push(Wish { cell: index, price: cell.middle(granularity) }),
        }
        return;
    }
    // Of a cell of which little is known, a few prices say enough to guess the others better.
    let stride = if targets.len() > AT_ONCE { targets.len().div_ceil(AT_ONCE) } else { 1 };
    for &(_, share) in targets.iter().skip(stride / 2).step_by(stride) {
        wishes.push(Wish { cell: index, price: curve.price_at(index, share) });
    }
}

/// Whether a cell is narrow, and much denser than both its neighbours.
fn is_suspicious(curve: &Curve, index: usize) -> bool {
    let cell = &curve.cells[index];
    let left = index.checked_sub(1).and_then(|left| curve.cells.get(left)).map_or(0.0, Cell::density);
    let right = curve.cells.get(index + 1).map_or(0.0, Cell::density);
    cell.to - cell.from <= cell.from / NARROW && cell.density() > left.max(right) * SUSPICIOUS
}

/// The round price of a cell that is narrow enough to have one, its first price included.
fn round_price(cell: &Cell, granularity: Cents) -> Option<Cents> {
    let units = ROUND.into_iter().filter(|&unit| unit > granularity && cell.to - cell.from <= 2 * unit);
    let prices = units.map(|unit| (cell.from + unit - 1).div_euclid(unit) * unit);
    prices.into_iter().find(|&price| price < cell.to && price > 0)
}
