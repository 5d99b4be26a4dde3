//! The filters of a `DiamondQuery`: parsed strictly from the GraphQL value, and evaluated per stone.

use crate::stone::{Availability, SHAPES, State, number_of};
use async_graphql_value::{ConstValue as Value, Name};

/// Conditions on a stone that do not depend on its position in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// Whole dollars, both ends included.
    pub(crate) dollars: (u32, u32),
    /// Cents, both ends included; not limited if whole dollars describe the range.
    pub(crate) cents: (u32, u32),
    /// Microseconds since 1970, both ends included.
    pub(crate) updated: (i64, i64),
    /// Hundredths of a carat, both ends included.
    sizes: (u32, u32),
    /// A bit for each shape.
    shapes: u32,
    /// A bit for each availability.
    pub(crate) availability: u8,
    labgrown: Option<bool>,
    has_image: Option<bool>,
    has_v360: Option<bool>,
    exclude_fair: bool,
    hide_memo: bool,
}

pub(crate) const ANY_DOLLARS: (u32, u32) = (0, u32::MAX);
pub(crate) const ANY_TIME: (i64, i64) = (i64::MIN, i64::MAX);

impl Default for Filter {
    fn default() -> Self {
        Self {
            dollars: ANY_DOLLARS,
            cents: (0, u32::MAX),
            updated: ANY_TIME,
            sizes: (0, u32::MAX),
            shapes: u32::MAX,
            availability: Availability::Available.bit()
                | Availability::OnHold.bit()
                | Availability::Sold.bit(),
            labgrown: None,
            has_image: None,
            has_v360: None,
            exclude_fair: false,
            hide_memo: false,
        }
    }
}

impl Filter {
    pub(crate) fn matches(&self, stone: &State) -> bool {
        let dollars = stone.dollars();
        self.dollars.0 <= dollars
            && dollars <= self.dollars.1
            && self.cents.0 <= stone.price
            && stone.price <= self.cents.1
            && self.updated.0 <= stone.updated
            && stone.updated <= self.updated.1
            && self.matches_traits(stone)
    }

    fn matches_traits(&self, stone: &State) -> bool {
        let traits = stone.traits;
        self.availability & stone.availability.bit() != 0
            && self.shapes & (1 << traits.shape()) != 0
            && self.sizes.0 <= traits.carats()
            && traits.carats() <= self.sizes.1
            && self.labgrown.is_none_or(|wanted| wanted == traits.labgrown())
            && self.has_image.is_none_or(|wanted| wanted == traits.image())
            && self.has_v360.is_none_or(|wanted| wanted == traits.v360())
            && !(self.exclude_fair && traits.fair())
            && !(self.hide_memo && traits.memo())
    }

    /// Returns the filter without its range of whole dollars.
    pub(crate) const fn at_any_price(self) -> Self {
        Self { dollars: ANY_DOLLARS, ..self }
    }

    /// Whether one of its ranges is inverted.
    const fn is_inverted(&self) -> bool {
        self.dollars.0 > self.dollars.1 || self.updated.0 > self.updated.1 || self.sizes.0 > self.sizes.1
    }
}

/// A `DiamondQuery` in parsed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) filter: Filter,
    /// Only these stones, by number; unknown ids are omitted.
    pub(crate) stones: Option<Vec<u32>>,
    /// A range is inverted, so the supplier returns arbitrary stones.
    pub(crate) is_inverted: bool,
}

impl Query {
    /// Parses a `DiamondQuery`; `null` selects all stones.
    pub(crate) fn read(value: &Value, seed: u64) -> Result<Self, String> {
        let mut query = Self { filter: Filter::default(), stones: None, is_inverted: false };
        if matches!(value, Value::Null) {
            return Ok(query);
        }
        let Value::Object(fields) = value else {
            return Err(format!("query must be an object, not {value}"));
        };
        let filter = &mut query.filter;
        for (name, value) in fields {
            if matches!(value, Value::Null) {
                continue;
            }
            match name.as_str() {
                "dollar_value" => filter.dollars = dollars(value)?,
                "updated" => filter.updated = times(value)?,
                "sizes" => filter.sizes = sizes(value)?,
                "shapes" => filter.shapes = shapes(value)?,
                "labgrown" => filter.labgrown = Some(boolean(value)?),
                "has_image" => filter.has_image = Some(boolean(value)?),
                "has_v360" => filter.has_v360 = Some(boolean(value)?),
                "availability" => filter.availability = availability(value)?,
                "excludeFairPoorCuts" => filter.exclude_fair = boolean(value)?,
                "hide_memo" => filter.hide_memo = boolean(value)?,
                "ids" => query.stones = Some(ids(value, seed)?),
                other => return Err(format!("unknown field `{other}` in the query")),
            }
        }
        query.is_inverted = query.filter.is_inverted();
        Ok(query)
    }
}

fn boolean(value: &Value) -> Result<bool, String> {
    if let Value::Boolean(value) = value { Ok(*value) } else { Err(format!("`{value}` is not a boolean")) }
}

/// Parses both ends of a range object with `read`.
fn ends<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Result<(Option<T>, Option<T>), String> {
    let Value::Object(fields) = value else { return Err(format!("`{value}` is not a range")) };
    if let Some(other) = fields.keys().find(|name| !matches!(name.as_str(), "from" | "to")) {
        return Err(format!("unknown field `{other}` in a range"));
    }
    let end = |name: &str| match fields.get(&Name::new(name)) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| format!("invalid end of a range: `{value}`")),
    };
    Ok((end("from")?, end("to")?))
}

fn dollars(value: &Value) -> Result<(u32, u32), String> {
    let integer = |value: &Value| if let Value::Number(number) = value { number.as_i64() } else { None };
    let (from, to) = ends(value, integer)?;
    // A range that ends below zero is inverted. Clamping its end to 0 would include stones that cost 0.
    if to.is_some_and(|to| to < 0) {
        return Ok((1, 0));
    }
    let clamp = |number: i64| u32::try_from(number.max(0)).unwrap_or(u32::MAX);
    Ok((from.map_or(0, clamp), to.map_or(u32::MAX, clamp)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range")]
fn sizes(value: &Value) -> Result<(u32, u32), String> {
    let number = |value: &Value| if let Value::Number(number) = value { number.as_f64() } else { None };
    let (from, to) = ends(value, number)?;
    // Tolerance for rounding: 0.57 is not exactly 57 hundredths in binary.
    let points = |carats: f64, nudge: f64| (carats * 100.0 + nudge).clamp(0.0, 1e9);
    Ok((
        from.map_or(0, |carats| points(carats, -1e-6).ceil() as u32),
        to.map_or(u32::MAX, |carats| points(carats, 1e-6).floor() as u32),
    ))
}

fn times(value: &Value) -> Result<(i64, i64), String> {
    let time = |value: &Value| {
        let time = chrono::DateTime::parse_from_rfc3339(word(value)?).ok()?;
        Some(time.timestamp_micros())
    };
    let (from, to) = ends(value, time)?;
    Ok((from.unwrap_or(ANY_TIME.0), to.unwrap_or(ANY_TIME.1)))
}

/// Returns the elements of a list of strings or enum values; GraphQL also accepts a single value as a list.
fn words(value: &Value) -> Result<Vec<&str>, String> {
    let read = |value| word(value).ok_or_else(|| format!("`{value}` is not a string"));
    if let Value::List(list) = value { list.iter().map(read).collect() } else { Ok(vec![read(value)?]) }
}

/// Returns the text of a string or of an enum value.
pub(crate) fn word(value: &Value) -> Option<&str> {
    if let Value::Enum(name) = value {
        return Some(name.as_str());
    }
    if let Value::String(text) = value { Some(text) } else { None }
}

fn shapes(value: &Value) -> Result<u32, String> {
    let words = words(value)?;
    // An unknown shape selects no stone.
    Ok(SHAPES
        .iter()
        .enumerate()
        .filter(|(_, shape)| words.contains(*shape))
        .fold(0, |mask, (at, _)| mask | 1 << at))
}

fn availability(value: &Value) -> Result<u8, String> {
    let known = [Availability::Available, Availability::OnHold, Availability::Sold];
    words(value)?.into_iter().try_fold(0, |mask, word| {
        let one = known.into_iter().find(|one| one.as_str() == word);
        match one {
            Some(one) => Ok(mask | one.bit()),
            // Unavailable stones are in no list.
            None if word == Availability::Gone.as_str() => Ok(mask),
            None => Err(format!("unknown availability `{word}`")),
        }
    })
}

fn ids(value: &Value, seed: u64) -> Result<Vec<u32>, String> {
    let mut numbers: Vec<u32> = words(value)?.into_iter().filter_map(|id| number_of(seed, id)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}
