//! Pricing rules. Prices are in cents, weights in hundredths of a carat, markups in ten-thousandths.

use serde::{Deserialize, Serialize};
use tidemill_core::diamond::Cents;
use tidemill_core::diamond::Points;
use tidemill_core::pricing::{PricingRule, StoneType};

/// Largest price and weight that the tables can store.
#[cfg(feature = "schema")]
const LARGEST: i64 = 999_999_999_999;

/// A pricing rule to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    /// Priority; smaller values are tried first.
    #[serde(default = "priority")]
    pub priority: i32,
    /// Matches only stones of this feed.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$")))]
    pub feed: Option<String>,
    /// Matches only stones of this type.
    #[serde(default)]
    pub stone_type: Option<StoneType>,
    /// Matches only laboratory-grown stones (true) or only mined stones (false).
    #[serde(default)]
    pub lab_grown: Option<bool>,
    /// Matches only stones of these shapes, ignoring case; empty for all shapes.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub shapes: Vec<String>,
    /// Minimum weight in hundredths of a carat.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub points_min: Option<Points>,
    /// Maximum weight in hundredths of a carat.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub points_max: Option<Points>,
    /// Minimum price of the feed, in cents.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub price_min: Option<Cents>,
    /// Maximum price of the feed, in cents.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub price_max: Option<Cents>,
    /// Retail price divided by feed price, in ten-thousandths: 11,500 is ×1.15.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 99_999), example = 11_500))]
    pub markup: i32,
    /// Rating that the rule assigns.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10)))]
    pub rating: Option<i16>,
    /// Whether the rule is used.
    #[serde(default = "yes")]
    pub active: bool,
}

const fn priority() -> i32 {
    100
}

const fn yes() -> bool {
    true
}

impl NewRule {
    /// Makes the rule with this number.
    pub fn with_id(self, rule_id: i64) -> PricingRule {
        PricingRule {
            rule_id,
            priority: self.priority,
            feed: self.feed,
            stone_type: self.stone_type,
            lab_grown: self.lab_grown,
            shapes: self.shapes,
            points_min: self.points_min,
            points_max: self.points_max,
            price_min: self.price_min,
            price_max: self.price_max,
            markup: self.markup,
            rating: self.rating,
            active: self.active,
        }
    }
}

impl From<PricingRule> for NewRule {
    fn from(rule: PricingRule) -> Self {
        Self {
            priority: rule.priority,
            feed: rule.feed,
            stone_type: rule.stone_type,
            lab_grown: rule.lab_grown,
            shapes: rule.shapes,
            points_min: rule.points_min,
            points_max: rule.points_max,
            price_min: rule.price_min,
            price_max: rule.price_max,
            markup: rule.markup,
            rating: rule.rating,
            active: rule.active,
        }
    }
}

/// Pricing rules to add in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportRules {
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub rules: Vec<NewRule>,
    /// Whether to remove the existing rules first, as far as the caller may see them.
    #[serde(default)]
    pub replace: bool,
}

/// Response to an import: the added rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddRulesResponse {
    /// Numbers of the rules, in the order of the request.
    pub added: Vec<i64>,
}

/// A sample stone to test the pricing rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SampleStone {
    /// Feed of the stone.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$")))]
    pub feed: String,
    /// Price of the feed, in cents.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST), example = 125_000))]
    pub price: Cents,
    /// Weight in hundredths of a carat.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST), example = 125))]
    pub points: Points,
    /// Shape of the stone; by default `ROUND`.
    #[serde(default = "round")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub shape: String,
    #[serde(default)]
    pub lab_grown: bool,
    /// Fancy colour, if the stone has one.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub fancy_color: Option<String>,
}

fn round() -> String {
    "ROUND".to_owned()
}

/// Parameters for building a batch of a feed's rows again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reprice {
    /// Cursor: `next` of the previous response.
    pub after: Option<String>,
    /// Maximum number of records.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub limit: Option<u16>,
}

/// The result of building a batch of rows again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepriceResponse {
    /// Version of the pricing rules.
    pub rules_version: i32,
    /// Number of stones that were priced again, or of records whose rows were built again.
    pub stones: u64,
    /// Number of records that were rejected.
    pub rejected: u64,
    /// Cursor for the next batch; null if all records are done.
    pub next: Option<String>,
}
