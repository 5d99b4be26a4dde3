//! The number of stones below a price: known at some prices, interpolated between them.

use super::{Cents, Counts};

/// The range between two adjacent prices at which the number of cheaper stones is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) from: Cents,
    pub(super) to: Cents,
    /// Stones cheaper than `from`.
    pub(super) below: u64,
    /// Stones in the cell.
    pub(super) count: u64,
}

impl Cell {
    /// Returns whether the cell cannot be divided.
    pub(super) const fn is_step(&self, granularity: Cents) -> bool {
        self.to - self.from <= granularity
    }

    /// Returns the stones per unit of the logarithmic scale.
    pub(super) fn density(&self) -> f64 {
        as_f64(self.count) / (scale(self.to) - scale(self.from)).max(f64::MIN_POSITIVE)
    }

    /// Returns the middle of the cell on that scale.
    pub(super) fn middle(&self, granularity: Cents) -> Cents {
        self.inside(unscale(f64::midpoint(scale(self.from), scale(self.to))), granularity)
    }

    /// Returns the nearest price at which the cell can be divided: a multiple of the granularity, and in a wide cell
    /// a multiple of about a dollar, because many prices are whole dollars.
    pub(super) fn inside(&self, price: Cents, granularity: Cents) -> Cents {
        let is_wide = self.to - self.from >= 4 * DOLLAR.max(granularity);
        let unit = if is_wide { (DOLLAR / granularity).max(1) * granularity } else { granularity };
        let rounded = (price + unit / 2).div_euclid(unit) * unit;
        let first = self.from.div_euclid(unit) * unit + unit;
        let last = (self.to - 1).div_euclid(unit) * unit;
        rounded.clamp(first, last.max(first))
    }
}

/// A dollar, in cents.
const DOLLAR: Cents = 100;

/// All known counts in order, without contradictions.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) cells: Vec<Cell>,
    pub(super) total: u64,
    pub(super) granularity: Cents,
}

impl Curve {
    pub(super) fn of(counts: &Counts, granularity: Cents) -> Self {
        let mut cells: Vec<Cell> = Vec::with_capacity(counts.below.len() + 1);
        let (mut from, mut below) = (counts.range.from, 0);
        let end = (counts.range.to, counts.total.unwrap_or_default());
        let known = counts.below.iter().map(|(&price, &count)| (price, count));
        for (to, cheaper) in known.chain([end]) {
            // The feed changes during the scan and may count fewer stones below a higher price.
            let count = cheaper.saturating_sub(below);
            cells.push(Cell { from, to, below, count });
            from = to;
            below += count;
        }
        Self { cells, total: below, granularity }
    }

    /// Returns the price in a cell below which `share` of its stones should be, by monotone cubic interpolation.
    pub(super) fn price_at(&self, index: usize, share: f64) -> Cents {
        let cell = &self.cells[index];
        let (start, width) = (scale(cell.from), scale(cell.to) - scale(cell.from));
        let (left, right) = (self.slope(index) * width, self.slope(index + 1) * width);
        let count = as_f64(cell.count);
        let cheaper = |t: f64| {
            let (t2, t3) = (t * t, t * t * t);
            (t3 - 2.0 * t2 + t) * left + (3.0 * t2 - 2.0 * t3) * count + (t3 - t2) * right
        };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if cheaper(middle) < share * count { low = middle } else { high = middle }
        }
        cell.inside(unscale(start + width * low), self.granularity)
    }

    /// Returns the density at the start of a cell: the harmonic mean of both neighbours, which keeps the cubic
    /// monotone. The density beyond the ends is zero.
    fn slope(&self, index: usize) -> f64 {
        let density = |at: Option<usize>| at.and_then(|at| self.cells.get(at)).map_or(0.0, Cell::density);
        let (left, right) = (density(index.checked_sub(1)), density(Some(index)));
        if left <= 0.0 || right <= 0.0 { 0.0 } else { 2.0 * left * right / (left + right) }
    }
}

/// Maps a price to a scale on which prices are spread about evenly: logarithmic, but linear for low prices.
fn scale(price: Cents) -> f64 {
    (as_f64(price.max(0).unsigned_abs()) / BEND).ln_1p()
}

#[expect(clippy::cast_possible_truncation, reason = "the inverse of `scale`, below the price ceiling")]
fn unscale(at: f64) -> Cents {
    (at.exp_m1() * BEND).round() as Cents
}

/// Price in cents below which the scale is about linear.
const BEND: f64 = 2_000.0;

#[expect(clippy::cast_precision_loss, reason = "numbers of stones and prices are far below 2^53")]
pub(super) fn as_f64(number: u64) -> f64 {
    number as f64
}
