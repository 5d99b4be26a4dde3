//! Pricing rules. Prices are cents, weights hundredths of a carat, markups ten-thousandths, as in the records.

use serde::{Deserialize, Serialize};
use tidemill_core::diamond::Points;
use tidemill_core::feed::Cents;
use tidemill_core::pricing::{PricingRule, StoneType};

/// The largest price and weight that the tables hold.
#[cfg(feature = "schema")]
const LARGEST: i64 = 999_999_999_999;

/// A rule to add.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRule {
    /// The smaller is tried first.
    #[serde(default = "priority")]
    pub priority: i32,
    /// Only stones of this feed.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$")))]
    pub feed: Option<String>,
    /// Only stones of this type.
    #[serde(default)]
    pub stone_type: Option<StoneType>,
    /// Only stones that were, or were not, grown in a laboratory.
    #[serde(default)]
    pub lab_grown: Option<bool>,
    /// Only stones of these shapes, in any case of letters; all shapes where it is empty.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub shapes: Vec<String>,
    /// Only stones of this weight or more, in hundredths of a carat.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub points_min: Option<Points>,
    /// Only stones of this weight or less, in hundredths of a carat.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub points_max: Option<Points>,
    /// Only stones for which the feed asks this or more, in cents.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub price_min: Option<Cents>,
    /// Only stones for which the feed asks this or less, in cents.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST)))]
    pub price_max: Option<Cents>,
    /// Selling price by feed price, in ten-thousandths: 11,500 is ×1.15.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 99_999), example = 11_500))]
    pub markup: i32,
    /// The rating that it gives.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10)))]
    pub rating: Option<i16>,
    /// Whether it is used at all.
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
    /// The rule under its number.
    pub fn numbered(self, rule_id: i64) -> PricingRule {
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

/// Rules to add, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportRules {
    /// The rules.
    #[cfg_attr(feature = "schema", schemars(length(max = 1000)))]
    pub rules: Vec<NewRule>,
    /// Whether those that are there, as far as the caller sees them, go first.
    #[serde(default)]
    pub replace: bool,
}

/// Rules that were added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RulesAdded {
    /// Their numbers, in the order in which they were given.
    pub added: Vec<i64>,
}

/// A stone to try the rules on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TryStone {
    /// Its feed.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$")))]
    pub feed: String,
    /// What the feed asks, in cents.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST), example = 125_000))]
    pub price: Cents,
    /// Its weight, in hundredths of a carat.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = LARGEST), example = 125))]
    pub points: Points,
    /// Its shape.
    #[serde(default = "round")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub shape: String,
    /// Whether it was grown in a laboratory.
    #[serde(default)]
    pub lab_grown: bool,
    /// Its fancy colour.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub fancy_color: Option<String>,
}

fn round() -> String {
    "ROUND".to_owned()
}

/// Which stones are priced again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Reprice {
    /// What `next` of the answer before says.
    pub after: Option<String>,
    /// At most so many stones.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub limit: Option<u16>,
}

/// What was priced again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepricedSome {
    /// The version of the rules.
    pub rules_version: i32,
    /// Stones that were priced again.
    pub stones: u64,
    /// Stones that could not be.
    pub rejected: u64,
    /// Where to go on, unless that was all.
    pub next: Option<String>,
}
