//! Pictures, drawn as SVG from the numbers that the door gives. Each has a text alternative.

mod bars;
mod columns;
mod heat;
mod steps;

pub(crate) use bars::{Bars, Row, Span};
pub(crate) use columns::Columns;
pub(crate) use heat::Heat;
pub(crate) use steps::{Step, Steps};

use std::fmt::Write as _;

/// A coordinate: one decimal is more than a screen shows.
pub(crate) fn at(number: f64) -> String {
    let mut text = String::new();
    let _ = write!(text, "{number:.1}");
    text
}

/// A whole number as one that can be scaled.
#[expect(clippy::cast_precision_loss, reason = "what is drawn needs no more than a few digits")]
pub(crate) const fn number(whole: i64) -> f64 {
    whole as f64
}
