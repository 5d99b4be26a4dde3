//! Limits of JSON documents, and the placeholder for stored documents that cannot be read.
//!
//! Numbers are 64-bit integers or 64-bit floating-point numbers. `serde_json` rounds everything else while it parses,
//! so the checks here look at the text. They use no recursion and ignore the contents of strings.

mod number;
#[cfg(test)]
mod tests;

use crate::Json;
use crate::limits::{JSON_DEPTH_MAX, JSON_ENVELOPE_LEVELS, JSON_READ_DEPTH_MAX};
use number::{Number, Precision};
use std::fmt;

/// Key of the placeholder object that stands for a document in the database that cannot be read.
pub const UNREADABLE: &str = "tidemill.unreadable";

/// Length to which a number is cut in a message.
const NUMBER_CHARS: usize = 40;

/// A violated limit of a JSON document. The message is the rest of a sentence that begins with the document's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonError {
    /// Objects and arrays are nested too deeply.
    TooDeep { max: usize },
    /// A number outside the range of 64-bit floating-point numbers, such as `1e400`.
    OutOfRange(String),
    /// An integer of more than 64 bits that would be rounded.
    TooPrecise(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep { max } => write!(f, "is nested more than {max} levels deep"),
            Self::OutOfRange(number) => {
                write!(f, "holds the number {number}, which is outside the range of 64-bit numbers")
            }
            Self::TooPrecise(number) => {
                write!(f, "holds the number {number}, which has more than 64 bits")
            }
        }
    }
}

impl std::error::Error for JsonError {}

impl JsonError {
    /// Returns the message with advice for the sender.
    pub fn with_advice(&self) -> String {
        let advice = match self {
            Self::TooDeep { .. } => "send the inner part as a string",
            Self::OutOfRange(_) | Self::TooPrecise(_) => "send it as a string",
        };
        format!("{self}; {advice}")
    }
}

/// Makes the placeholder for a document that cannot be read.
pub fn unreadable(reason: impl fmt::Display) -> Json {
    serde_json::json!({ UNREADABLE: reason.to_string() })
}

/// Returns whether a document is the placeholder.
pub fn is_unreadable(json: &Json) -> bool {
    unreadable_reason(json).is_some()
}

/// Returns the reason in a placeholder; `None` if the document is not a placeholder.
pub fn unreadable_reason(json: &Json) -> Option<&str> {
    json.as_object()?.get(UNREADABLE)?.as_str()
}

/// Checks the text of a document before it is parsed. The parser reports text that is not JSON.
pub fn check_text(text: impl AsRef<[u8]>) -> Result<(), JsonError> {
    scan(text.as_ref(), JSON_DEPTH_MAX, Precision::Digits)
}

/// Checks the text of a request that contains documents; it may be nested a few levels deeper.
pub fn check_request(text: impl AsRef<[u8]>) -> Result<(), JsonError> {
    scan(text.as_ref(), JSON_DEPTH_MAX + JSON_ENVELOPE_LEVELS, Precision::Digits)
}

/// Reads a document from the database. A document that cannot be read becomes the placeholder.
pub fn read_stored(text: &[u8]) -> Json {
    if let Err(problem) = scan(text, JSON_READ_DEPTH_MAX, Precision::RoundTrip) {
        return unreadable(problem);
    }
    serde_json::from_slice(text).unwrap_or_else(|error| unreadable(format!("is not JSON: {error}")))
}

/// Checks nesting and numbers in one pass over the text.
fn scan(text: &[u8], depth_max: usize, precision: Precision) -> Result<(), JsonError> {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(text, at),
            b'{' | b'[' => {
                depth += 1;
                if depth > depth_max {
                    return Err(JsonError::TooDeep { max: depth_max });
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let length = text[at..].iter().take_while(|byte| is_number_byte(**byte)).count();
                check_number(&text[at - 1..at + length], precision)?;
                at += length;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the position after the closing quote of a string whose contents begin at `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = text.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    at
}

fn is_number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

fn check_number(text: &[u8], precision: Precision) -> Result<(), JsonError> {
    // Short numbers without an exponent always fit.
    if text.len() <= 18 && !text.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return Ok(());
    }
    let Some(number) = Number::parse(text) else { return Ok(()) };
    if !number.is_in_range() {
        return Err(JsonError::OutOfRange(shown(text)));
    }
    if number.is_rounded(precision) {
        return Err(JsonError::TooPrecise(shown(text)));
    }
    Ok(())
}

fn shown(number: &[u8]) -> String {
    let text = String::from_utf8_lossy(number);
    if text.len() <= NUMBER_CHARS { text.into_owned() } else { format!("{}…", &text[..NUMBER_CHARS]) }
}
