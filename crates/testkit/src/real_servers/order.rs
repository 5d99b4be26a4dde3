//! The orders that the servers list.

use anyhow::{Context as _, Result};
use chrono::{DateTime, Duration, SecondsFormat, Utc};
use serde_json::{Value, json};
use tidemill_core::Timestamp;

/// An order in a shop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: i64,
    pub customer: String,
    pub city: String,
    pub amount_cents: i64,
    pub note: Option<String>,
    /// Number that grows with each change of any order.
    pub revision: i64,
    /// Time of the last change, in whole seconds.
    pub updated_at: Timestamp,
}

/// Cities of the sample orders.
const CITIES: [&str; 4] = ["Ulm", "Aachen", "Köln", "São Paulo"];
/// Notes of the sample orders, with characters that need quoting somewhere.
const NOTES: [Option<&str>; 4] = [None, Some(""), Some("it's \"urgent\";\n50 % \\ off"), Some("größer – 大")];
/// Amounts of the sample orders are below this number.
const AMOUNT_CENTS_MAX: i64 = 100_000;

/// Time of the first change of the sample orders: the year 2026.
const FIRST_CHANGE_SECS: i64 = 1_767_225_600;

/// Returns `count` orders with the ids from 1 on. They were changed a minute after one another from 2026-01-01 on;
/// amounts are spread, and some occur twice.
pub fn sample_orders(count: u32) -> Vec<Order> {
    let first = DateTime::from_timestamp(FIRST_CHANGE_SECS, 0).unwrap_or_default();
    (1..=i64::from(count))
        .map(|id| {
            let index = |length: usize| usize::try_from(id).unwrap_or(0) % length;
            Order {
                id,
                customer: format!("Customer {}", id % 17),
                city: CITIES[index(CITIES.len())].to_owned(),
                amount_cents: (id / 2) * 7_919 % AMOUNT_CENTS_MAX,
                note: NOTES[index(NOTES.len() + 1) % NOTES.len()].map(str::to_owned),
                revision: id,
                updated_at: first + Duration::minutes(id),
            }
        })
        .collect()
}

impl Order {
    /// Returns the time of the last change as text.
    pub fn updated_at_text(&self) -> String {
        self.updated_at.to_rfc3339_opts(SecondsFormat::Secs, true)
    }

    /// Returns the order as a nested record.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "customer": {"name": self.customer, "city": self.city},
            "amount_cents": self.amount_cents,
            "amount": decimal(self.amount_cents),
            "note": self.note,
            "revision": self.revision,
            "updated_at": self.updated_at_text(),
        })
    }

    /// Reads a nested record.
    pub(super) fn from_json(json: &Value) -> Result<Self> {
        let number = |key: &str| json[key].as_i64().with_context(|| format!("`{key}` is not a number"));
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a value is not a text");
        Ok(Self {
            id: number("id")?,
            customer: text(&json["customer"]["name"])?,
            city: text(&json["customer"]["city"])?,
            amount_cents: number("amount_cents")?,
            note: json["note"].as_str().map(str::to_owned),
            revision: number("revision")?,
            updated_at: parse_time(&text(&json["updated_at"])?)?,
        })
    }
}

/// Returns an amount as a number with decimals.
fn decimal(cents: i64) -> Value {
    let text = format!("{}.{:02}", cents / 100, cents % 100);
    text.parse::<f64>().map_or(Value::Null, Value::from)
}

/// Parses a time of a storage.
pub(super) fn parse_time(text: &str) -> Result<Timestamp> {
    let time = DateTime::parse_from_rfc3339(text).with_context(|| format!("`{text}` is not a time"))?;
    Ok(time.with_timezone(&Utc))
}
