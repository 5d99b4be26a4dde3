//! SVG charts. Each has a text alternative.

mod bars;
mod columns;
mod heatmap;
mod steps;

pub(crate) use bars::{Bars, Row, Span};
pub(crate) use columns::Columns;
pub(crate) use heatmap::Heatmap;
pub(crate) use steps::{Step, Steps};

use std::fmt::Write as _;

/// Formats a coordinate; one decimal is precise enough for a screen.
pub(crate) fn at(number: f64) -> String {
    let mut text = String::new();
    let _ = write!(text, "{number:.1}");
    text
}

/// Converts a count for scaling.
#[expect(clippy::cast_precision_loss, reason = "charts only need a few digits")]
pub(crate) const fn number(count: i64) -> f64 {
    count as f64
}
