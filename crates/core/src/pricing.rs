//! Pricing: the first rule that fits a stone says what it is sold for.
//!
//! Rules are tried by ascending priority, equal priorities by id. A criterion that a rule does not have fits every
//! stone. A stone that no rule fits is sold for what the feed asks: it is there, and seen to be unpriced.
//! Everything is counted in whole numbers; halves are rounded up.

use crate::diamond::{Diamond, Points};
use crate::feed::Cents;
use crate::label::labelled;
use crate::limits::{KEY_BYTES_MAX, LABELS_MAX};
use crate::request::{Fault, Invalid};

/// A markup of ×1, in ten-thousandths.
pub const MARKUP_ONE: i32 = 10_000;

/// The largest markup: the column holds four decimals and one digit before them.
pub const MARKUP_MAX: i32 = 99_999;

labelled! {
    /// What kind of stone it is, for pricing.
    "stone type" StoneType {
        /// Mined, and without a fancy colour.
        Natural = "natural",
        /// Grown in a laboratory, and without a fancy colour.
        Lab = "lab",
        /// With a fancy colour, however it was made.
        Fancy = "fancy",
    }
}

impl StoneType {
    /// The type of a stone.
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

/// One rule as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PricingRule {
    /// Its number: decides between equal priorities, the smaller first.
    pub rule_id: i64,
    /// The smaller is tried first.
    pub priority: i32,
    /// Only stones of this feed.
    pub feed: Option<String>,
    /// Only stones of this type.
    pub stone_type: Option<StoneType>,
    /// Only stones that were, or were not, grown in a laboratory.
    pub lab_grown: Option<bool>,
    /// Only stones of these shapes, in any case of letters; all shapes where it is empty.
    pub shapes: Vec<String>,
    /// Only stones of this weight or more.
    pub points_min: Option<Points>,
    /// Only stones of this weight or less.
    pub points_max: Option<Points>,
    /// Only stones for which the feed asks this or more.
    pub price_min: Option<Cents>,
    /// Only stones for which the feed asks this or less.
    pub price_max: Option<Cents>,
    /// Selling price by feed price, in ten-thousandths: 11,500 is ×1.15.
    pub markup: i32,
    /// The rating that it gives, 1 to 10.
    pub rating: Option<i16>,
    /// Whether it is used at all.
    pub active: bool,
}

impl PricingRule {
    /// Checks the rule: every fault at once.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut faults = Vec::new();
        let mut add = |field: &'static str, problem: String| faults.push(Fault { field, problem });
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
                add(field, "must have a least value that is not above its greatest".to_owned());
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
                add("lab grown", format!("is {lab_grown}, which no {stone_type} stone is"));
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Invalid(faults)) }
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

/// Whether a value lies between two bounds, both inclusive, each of which may be missing.
fn within(value: i64, min: Option<i64>, max: Option<i64>) -> bool {
    min.is_none_or(|min| min <= value) && max.is_none_or(|max| value <= max)
}

/// What pricing adds to a stone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Priced {
    /// What it is sold for.
    pub retail_price: Cents,
    /// What the feed asks per carat; 0 where the weight is unknown.
    pub price_per_carat: Cents,
    /// Selling price by feed price, in ten-thousandths.
    pub markup: i32,
    /// Its rating.
    pub rating: Option<i16>,
    /// The rule that decided; none fitted without it.
    pub rule_id: Option<i64>,
}

/// What applying the rules to the stones that are there did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Repriced {
    /// The version of the rules.
    pub rules_version: i32,
    /// Stones that were priced again.
    pub stones: u64,
    /// Stones that could not be.
    pub rejected: u64,
}

/// Rules in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(Vec<PricingRule>);

impl Rules {
    /// Sorts the rules, and leaves out those that are not active.
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

    /// The rules, in order.
    pub fn as_slice(&self) -> &[PricingRule] {
        &self.0
    }

    /// Prices one stone of a feed.
    pub fn price(&self, feed: &str, stone: &Diamond) -> Priced {
        let stone_type = StoneType::of(stone);
        let rule = self.0.iter().find(|rule| rule.fits(feed, stone_type, stone));
        let markup = rule.map_or(MARKUP_ONE, |rule| rule.markup);
        Priced {
            retail_price: ratio(stone.feed_price, markup.into(), MARKUP_ONE.into()),
            price_per_carat: ratio(stone.feed_price, 100, stone.points),
            markup,
            rating: rule.and_then(|rule| rule.rating),
            rule_id: rule.map(|rule| rule.rule_id),
        }
    }
}

/// `value` × `times` / `by`, halves rounded up; 0 where `by` is not positive.
fn ratio(value: Cents, times: i64, by: i64) -> Cents {
    if by <= 0 {
        return 0;
    }
    let by = i128::from(by);
    // Twice everything, so that a half is a whole number.
    let result = (i128::from(value) * i128::from(times) * 2 + by).div_euclid(by * 2);
    Cents::try_from(result).unwrap_or(if result < 0 { Cents::MIN } else { Cents::MAX })
}
