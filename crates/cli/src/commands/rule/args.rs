//! Command-line arguments of `tidemill rule`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum RuleCommand {
    /// Add a rule; the matching rule with the lowest priority value prices a stone
    #[command(
        after_help = "Example:\n  tidemill rule add --markup 1.15 --feed nivoda --carat-min 1 --rating 7"
    )]
    Add(Box<RuleAddArgs>),
    /// List rules in the order in which they are tried
    #[command(after_help = "Example:\n  tidemill rule list")]
    List,
    /// Remove a rule
    #[command(after_help = "Example:\n  tidemill rule remove 3")]
    Remove {
        /// Number of the rule
        id: i64,
    },
    /// Add the rules of a JSON file: a list of objects as `rule list --json` prints them
    #[command(after_help = "Example:\n  tidemill rule import rules.json --replace")]
    Import {
        /// JSON file with the rules
        file: PathBuf,
        /// Remove all existing rules first
        #[arg(long)]
        replace: bool,
    },
    /// Apply the current rules to the stored stones of a feed, without fetching anything
    #[command(after_help = "Example:\n  tidemill rule apply nivoda")]
    Apply {
        /// Name of the feed
        feed: String,
        /// Number of stones to price per request
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
        batch: Option<u16>,
    },
    /// Show which rule would price a stone, and at which price
    #[command(after_help = "Example:\n  tidemill rule test --feed nivoda --price 1000 --carats 1.2")]
    Test(Box<RuleTestArgs>),
}

/// The rule to add
#[derive(Debug, Args)]
pub(crate) struct RuleAddArgs {
    /// Priority of the rule; lower values are tried first
    #[arg(long, default_value_t = 100)]
    pub(crate) priority: i32,
    /// Factor between the feed price and the retail price, such as 1.15
    #[arg(long, value_parser = parse_ratio)]
    pub(crate) markup: i32,
    /// Rating of the stones that match, from 1 to 10
    #[arg(long)]
    pub(crate) rating: Option<i16>,
    /// Match only stones of this feed
    #[arg(long)]
    pub(crate) feed: Option<String>,
    /// Match only stones of this type: natural, lab or fancy
    #[arg(long)]
    pub(crate) stone_type: Option<tidemill_core::pricing::StoneType>,
    /// Match only stones that were (true) or were not (false) grown in a laboratory
    #[arg(long, value_name = "true|false")]
    pub(crate) lab_grown: Option<bool>,
    /// Match only stones of this shape; may be repeated
    #[arg(long = "shape", value_name = "SHAPE")]
    pub(crate) shapes: Vec<String>,
    /// Match only stones of at least this weight in carats
    #[arg(long, value_parser = parse_hundredths)]
    pub(crate) carat_min: Option<i64>,
    /// Match only stones of at most this weight in carats
    #[arg(long, value_parser = parse_hundredths)]
    pub(crate) carat_max: Option<i64>,
    /// Match only stones with at least this feed price in dollars
    #[arg(long, value_parser = parse_hundredths)]
    pub(crate) price_min: Option<i64>,
    /// Match only stones with at most this feed price in dollars
    #[arg(long, value_parser = parse_hundredths)]
    pub(crate) price_max: Option<i64>,
}

/// The stone to test the rules with
#[derive(Debug, Args)]
pub(crate) struct RuleTestArgs {
    /// Feed of the stone
    #[arg(long)]
    pub(crate) feed: String,
    /// Feed price in dollars
    #[arg(long, value_parser = parse_hundredths)]
    pub(crate) price: i64,
    /// Weight in carats
    #[arg(long, value_parser = parse_hundredths)]
    pub(crate) carats: i64,
    /// Shape of the stone
    #[arg(long, default_value = "ROUND")]
    pub(crate) shape: String,
    /// Test a stone that was grown in a laboratory
    #[arg(long)]
    pub(crate) lab_grown: bool,
    /// Fancy colour of the stone
    #[arg(long)]
    pub(crate) fancy_color: Option<String>,
}

/// Parses a number with at most two decimals into hundredths.
fn parse_hundredths(text: &str) -> Result<i64, String> {
    parse_decimal(text, 2)
}

/// Parses a number with at most four decimals into ten-thousandths.
fn parse_ratio(text: &str) -> Result<i32, String> {
    i32::try_from(parse_decimal(text, 4)?).map_err(|_| "it is too large".to_owned())
}

/// Parses a decimal number into an integer, because money never passes through a float.
fn parse_decimal(text: &str, places: u32) -> Result<i64, String> {
    let (units, fraction) = text.split_once('.').unwrap_or((text, ""));
    let invalid = || format!("`{text}` is not a number with at most {places} decimals");
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if fraction.len() > places as usize || units.is_empty() || !is_digits(units) || !is_digits(fraction) {
        return Err(invalid());
    }
    let padded = format!("{fraction:0<width$}", width = places as usize);
    let scaled = units.parse::<i64>().ok().and_then(|units| units.checked_mul(10_i64.pow(places)));
    let total = scaled.and_then(|units| units.checked_add(padded.parse().unwrap_or(0)));
    total.filter(|total| *total <= 100_000_000_000_000).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_parse_without_a_float() {
        assert_eq!(parse_hundredths("12.3"), Ok(1_230));
        assert_eq!(parse_hundredths("0.07"), Ok(7));
        assert_eq!(parse_hundredths("1000000"), Ok(100_000_000));
        assert_eq!(parse_ratio("1.15"), Ok(11_500));
        for invalid in ["", ".5", "-1", "1.234", "1e3", "1,5", "99999999999999999999"] {
            assert!(parse_hundredths(invalid).is_err(), "{invalid}");
        }
    }
}
