//! JSON values with exact numbers.
//!
//! `serde_json` rounds numbers beyond 64 bits. This parser keeps the digits of each number as text. It limits the
//! nesting, reads 10,000 levels without a stack overflow, and marks texts that a database cannot store.

mod parser;
#[cfg(test)]
mod tests;

pub use parser::ParseError;

use std::fmt::Write as _;

/// A JSON value whose numbers keep all their digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonValue {
    Null,
    Bool(bool),
    /// A number as the source wrote it.
    Number(String),
    Text(String),
    /// A text that databases cannot store.
    Unstorable(Unstorable),
    List(Vec<JsonValue>),
    /// Keys and values in the source's order. A repeated key keeps its last value.
    Object(Vec<(String, JsonValue)>),
}

/// Why databases cannot store a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unstorable {
    #[error("a NUL character")]
    Nul,
    #[error("an unpaired surrogate")]
    Surrogate,
}

impl JsonValue {
    /// Parses a JSON text of at most `depth_max` levels.
    pub fn parse(text: &[u8], depth_max: usize) -> Result<Self, ParseError> {
        parser::parse(text, depth_max)
    }

    /// Returns the value of a key; `None` if this is not an object or has no such key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the entries of an object; an empty slice for other values.
    pub fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Object(entries) => entries,
            Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::Unstorable(_)
            | Self::List(_) => &[],
        }
    }

    /// Returns the items of a list; `None` for other values.
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            Self::Null
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::Unstorable(_)
            | Self::Object(_) => None,
        }
    }

    /// Returns a text or the digits of a number; `None` for other values.
    pub fn scalar(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Unstorable(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Returns a boolean. The texts and numbers that sources use for booleans count too.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Number(text) | Self::Text(text) => match text.as_str() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            Self::Null | Self::Unstorable(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Returns a count: a number without sign and fraction, or a text with such a number.
    pub fn count(&self) -> Option<u64> {
        self.scalar()?.parse().ok()
    }

    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the type of the value, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) | Self::Unstorable(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Returns why databases cannot store the value or a part of it.
    pub fn unstorable(&self) -> Option<Unstorable> {
        match self {
            Self::Unstorable(reason) => Some(*reason),
            Self::List(items) => items.iter().find_map(Self::unstorable),
            Self::Object(entries) => entries.iter().find_map(|(_, value)| value.unstorable()),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => None,
        }
    }

    /// Returns the value as JSON text without spaces.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Null | Self::Unstorable(_) => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => text.push_str(digits),
            Self::Text(value) => write_text(value, text),
            Self::List(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    item.write(text);
                }
                text.push(']');
            }
            Self::Object(entries) => {
                text.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    write_text(key, text);
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }
}

/// Appends a text as a JSON string.
pub fn write_text(value: &str, text: &mut String) {
    text.push('"');
    for symbol in value.chars() {
        match symbol {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            symbol if u32::from(symbol) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", u32::from(symbol));
            }
            symbol => text.push(symbol),
        }
    }
    text.push('"');
}

impl From<&crate::Json> for JsonValue {
    fn from(json: &crate::Json) -> Self {
        use crate::Json;
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => Self::Number(number.to_string()),
            Json::String(text) if text.contains('\0') => Self::Unstorable(Unstorable::Nul),
            Json::String(text) => Self::Text(text.clone()),
            Json::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Json::Object(entries) => {
                Self::Object(entries.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect())
            }
        }
    }
}
