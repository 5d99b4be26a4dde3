//! Pricing: the first matching rule determines the retail price of a stone.
//!
//! Rules are tried by ascending priority, then by id. A missing criterion matches every stone. A stone without a
//! matching rule keeps the feed's price, so that it is listed and visibly unpriced. All arithmetic uses integers;
//! halves are rounded up.

use crate::diamond::{Cents, Diamond, Points};
use crate::label::labelled;
use crate::limits::{KEY_BYTES_MAX, LABELS_MAX};
use crate::request::{FieldError, ValidationError};

/// A markup of ×1 in ten-thousandths.
pub const MARKUP_ONE: i32 = 10_000;

/// The largest markup; the column has one digit before and four digits after the decimal point.
pub const MARKUP_MAX: i32 = 99_999;

labelled! {
    /// The type of a stone for pricing.
    "stone type" StoneType {
        /// Mined, without a fancy colour.
        Natural = "natural",
        /// Laboratory-grown, without a fancy colour.
        Lab = "lab",
        /// With a fancy colour, mined or laboratory-grown.
        Fancy = "fancy",
    }
}

impl StoneType {
    /// Returns the type of a stone.
    pub const fn of(stone: &Diamond) -> Self {
        if stone.fancy_color.is_some() {
            Self::Fancy
        } else if stone.lab_grown {
            Self::Lab
        } else {
            Self::Natural
        }
    }
}

/// A rule that sets the price of matching stones.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PricingRule {
    /// Number of the rule; among equal priorities the smaller number is tried first.
    pub rule_id: i64,
    /// Priority; smaller values are tried first.
    pub priority: i32,
    /// Matches only stones of this feed.
    pub feed: Option<String>,
    /// Matches only stones of this type.
    pub stone_type: Option<StoneType>,
    /// Matches only laboratory-grown stones (true) or only mined stones (false).
    pub lab_grown: Option<bool>,
    /// Matches only stones of these shapes, ignoring case; empty for all shapes.
    pub shapes: Vec<String>,
    /// Minimum weight in hundredths of a carat.
    pub points_min: Option<Points>,
    /// Maximum weight in hundredths of a carat.
    pub points_max: Option<Points>,
    /// Minimum price of the feed, in cents.
    pub price_min: Option<Cents>,
    /// Maximum price of the feed, in cents.
    pub price_max: Option<Cents>,
    /// Retail price divided by feed price, in ten-thousandths: 11,500 is ×1.15.
    pub markup: i32,
    /// Rating that the rule assigns, 1 to 10.
    pub rating: Option<i16>,
    /// Whether the rule is used.
    pub active: bool,
}

impl PricingRule {
    /// Checks the rule and reports all errors.
    pub fn check(&self) -> Result<(), ValidationError> {
        let mut errors = Vec::new();
        let mut add = |field: &'static str, problem: String| errors.push(FieldError { field, problem });
        if !(1..=MARKUP_MAX).contains(&self.markup) {
            let markup = self.markup;
            add("markup", format!("is {markup} ten-thousandths; it must be between 1 and {MARKUP_MAX}"));
        }
        if let Some(rating) = self.rating.filter(|rating| !(1..=10).contains(rating)) {
            add("rating", format!("is {rating}; it must be between 1 and 10"));
        }
        if self.feed.as_deref().is_some_and(|feed| !crate::ids::is_name(feed)) {
            add("feed", "must be lower-case letters, digits and dashes, at most 128".to_owned());
        }
        let bounds =
            [("carats", self.points_min, self.points_max), ("price", self.price_min, self.price_max)];
        for (field, min, max) in bounds {
            if min.is_some_and(|min| min < 0) || max.is_some_and(|max| max < 0) {
                add(field, "must not be negative".to_owned());
            }
            if let (Some(min), Some(max)) = (min, max)
                && min > max
            {
                add(field, "must have a minimum that is not above its maximum".to_owned());
            }
        }
        if self.shapes.len() > LABELS_MAX {
            add("shapes", format!("are {}; at most {LABELS_MAX} are allowed", self.shapes.len()));
        }
        for shape in &self.shapes {
            if shape.trim().is_empty() || shape.len() > KEY_BYTES_MAX || shape.contains('\0') {
                add("shape", "must be a word without a NUL character".to_owned());
            }
        }
        if let (Some(stone_type), Some(lab_grown)) = (self.stone_type, self.lab_grown) {
            let fits = match stone_type {
                StoneType::Natural => !lab_grown,
                StoneType::Lab => lab_grown,
                StoneType::Fancy => true,
            };
            if !fits {
                add("lab grown", format!("is {lab_grown}, which contradicts stone type {stone_type}"));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(ValidationError(errors)) }
    }

    fn fits(&self, feed: &str, stone_type: StoneType, stone: &Diamond) -> bool {
        self.feed.as_deref().is_none_or(|own| own == feed)
            && self.stone_type.is_none_or(|own| own == stone_type)
            && self.lab_grown.is_none_or(|own| own == stone.lab_grown)
            && within(stone.points, self.points_min, self.points_max)
            && within(stone.feed_price, self.price_min, self.price_max)
            && (self.shapes.is_empty() || {
                let shape = stone.shape.trim();
                self.shapes.iter().any(|own| own.eq_ignore_ascii_case(shape))
            })
    }
}

/// Returns whether a value is within inclusive, optional bounds.
fn within(value: i64, min: Option<i64>, max: Option<i64>) -> bool {
    min.is_none_or(|min| min <= value) && max.is_none_or(|max| value <= max)
}

/// The result of pricing a stone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PriceQuote {
    /// Retail price in cents.
    pub retail_price: Cents,
    /// Feed price per carat in cents; 0 if the weight is unknown.
    pub price_per_carat: Cents,
    /// Retail price divided by feed price, in ten-thousandths.
    pub markup: i32,
    /// Rating of the stone.
    pub rating: Option<i16>,
    /// Rule that matched; null if none did.
    pub rule_id: Option<i64>,
}

/// The result of pricing all stones again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepriceSummary {
    /// Version of the rules.
    pub rules_version: i32,
    /// Number of stones that were priced again.
    pub stones: u64,
    /// Number of stones that could not be priced.
    pub rejected: u64,
}

/// The active rules in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(Vec<PricingRule>);

impl Rules {
    /// Sorts the rules and drops inactive ones.
    pub fn new(mut rules: Vec<PricingRule>) -> Self {
        rules.retain(|rule| rule.active);
        rules.sort_by_key(|rule| (rule.priority, rule.rule_id));
        for rule in &mut rules {
            for shape in &mut rule.shapes {
                *shape = shape.trim().to_ascii_uppercase();
            }
        }
        Self(rules)
    }

    /// Returns the rules in order.
    pub fn as_slice(&self) -> &[PricingRule] {
        &self.0
    }

    /// Prices a stone of a feed.
    pub fn price(&self, feed: &str, stone: &Diamond) -> PriceQuote {
        let stone_type = StoneType::of(stone);
        let rule = self.0.iter().find(|rule| rule.fits(feed, stone_type, stone));
        let markup = rule.map_or(MARKUP_ONE, |rule| rule.markup);
        PriceQuote {
            retail_price: ratio(stone.feed_price, markup.into(), MARKUP_ONE.into()),
            price_per_carat: ratio(stone.feed_price, 100, stone.points),
            markup,
            rating: rule.and_then(|rule| rule.rating),
            rule_id: rule.map(|rule| rule.rule_id),
        }
    }
}

/// Returns `value` × `times` / `by`, with halves rounded up; 0 if `by` is not positive.
fn ratio(value: Cents, times: i64, by: i64) -> Cents {
    if by <= 0 {
        return 0;
    }
    let by = i128::from(by);
    // Doubled, so that a half is an integer.
    let result = (i128::from(value) * i128::from(times) * 2 + by).div_euclid(by * 2);
    Cents::try_from(result).unwrap_or(if result < 0 { Cents::MIN } else { Cents::MAX })
}
