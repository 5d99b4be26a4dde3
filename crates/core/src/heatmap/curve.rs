//! The number of records below a value: known at some values, interpolated between them.

use super::{Counts, FieldValue};

/// The range between two adjacent values at which the number of records below is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) from: FieldValue,
    pub(super) to: FieldValue,
    /// Number of records below `from`.
    pub(super) below: u64,
    /// Number of records in the cell.
    pub(super) count: u64,
}

impl Cell {
    /// Returns whether the cell cannot be divided.
    pub(super) const fn is_step(&self, granularity: FieldValue) -> bool {
        self.to - self.from <= granularity
    }

    /// Returns the records per unit of the logarithmic scale.
    pub(super) fn density(&self) -> f64 {
        as_f64(self.count) / (scale(self.to) - scale(self.from)).max(f64::MIN_POSITIVE)
    }

    /// Returns the middle of the cell on that scale.
    pub(super) fn middle(&self, granularity: FieldValue) -> FieldValue {
        self.inside(unscale(f64::midpoint(scale(self.from), scale(self.to))), granularity)
    }

    /// Returns the nearest value at which the cell can be divided: a multiple of the granularity, and in a wide cell
    /// a multiple of about [`COARSE`], because many prices are whole dollars.
    pub(super) fn inside(&self, value: FieldValue, granularity: FieldValue) -> FieldValue {
        let is_wide = self.to - self.from >= 4 * COARSE.max(granularity);
        let unit = if is_wide { (COARSE / granularity).max(1) * granularity } else { granularity };
        let rounded = (value + unit / 2).div_euclid(unit) * unit;
        let first = self.from.div_euclid(unit) * unit + unit;
        let last = (self.to - 1).div_euclid(unit) * unit;
        rounded.clamp(first, last.max(first))
    }
}

/// The preferred unit of boundaries in wide cells: for a price one dollar.
const COARSE: FieldValue = 100;

/// All known counts in order, without contradictions.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) cells: Vec<Cell>,
    pub(super) total: u64,
    pub(super) granularity: FieldValue,
}

impl Curve {
    pub(super) fn of(counts: &Counts, granularity: FieldValue) -> Self {
        let mut cells: Vec<Cell> = Vec::with_capacity(counts.below.len() + 1);
        let (mut from, mut below) = (counts.range.from, 0);
        let end = (counts.range.to, counts.total.unwrap_or_default());
        let known = counts.below.iter().map(|(&value, &count)| (value, count));
        for (to, lower) in known.chain([end]) {
            // The feed changes during the scan and may count fewer records below a higher value.
            let count = lower.saturating_sub(below);
            cells.push(Cell { from, to, below, count });
            from = to;
            below += count;
        }
        Self { cells, total: below, granularity }
    }

    /// Returns the value in a cell below which `share` of its records should be, by monotone cubic interpolation.
    pub(super) fn value_at(&self, index: usize, share: f64) -> FieldValue {
        let cell = &self.cells[index];
        let (start, width) = (scale(cell.from), scale(cell.to) - scale(cell.from));
        let (left, right) = (self.slope(index) * width, self.slope(index + 1) * width);
        let count = as_f64(cell.count);
        let lower = |t: f64| {
            let (t2, t3) = (t * t, t * t * t);
            (t3 - 2.0 * t2 + t) * left + (3.0 * t2 - 2.0 * t3) * count + (t3 - t2) * right
        };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if lower(middle) < share * count { low = middle } else { high = middle }
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

/// Maps a value to a scale on which prices are spread about evenly: logarithmic, but linear for low values.
fn scale(value: FieldValue) -> f64 {
    (as_f64(value.max(0).unsigned_abs()) / BEND).ln_1p()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the inverse of `scale`, below the upper bound of the range"
)]
fn unscale(at: f64) -> FieldValue {
    (at.exp_m1() * BEND).round() as FieldValue
}

/// Value below which the scale is about linear.
const BEND: f64 = 2_000.0;

#[expect(clippy::cast_precision_loss, reason = "numbers of records and values are far below 2^53")]
pub(super) fn as_f64(number: u64) -> f64 {
    number as f64
}
