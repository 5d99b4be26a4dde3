//! The order of the keys of a list that is read by its last key.

use super::number::plain_decimal;
use super::path::JsonPath;
use super::value::JsonValue;
use std::cmp::Ordering;

/// Returns whether the keys of a page rise strictly, beginning after `token`, the last key of the page before it.
///
/// Numbers are compared as numbers, texts by their bytes. A list that is sorted in another way, such as by a language,
/// counts as unordered.
pub fn keys_rise(key: &JsonPath, token: Option<&str>, records: &[&JsonValue]) -> bool {
    let keys: Option<Vec<Key<'_>>> = records.iter().map(|record| Key::of(key.select(record)?)).collect();
    let Some(keys) = keys else { return false };
    let begins_after = match (token, keys.first()) {
        (None, _) | (_, None) => true,
        (Some(token), Some(Key::Text(first))) => token < *first,
        (Some(token), Some(Key::Number(first))) => {
            plain_decimal(token).is_some_and(|token| compare(&token, first) == Ordering::Less)
        }
    };
    begins_after && keys.windows(2).all(|pair| pair[0].is_below(&pair[1]))
}

enum Key<'a> {
    Text(&'a str),
    /// The digits of a number, without an exponent.
    Number(String),
}

impl<'a> Key<'a> {
    fn of(value: &'a JsonValue) -> Option<Self> {
        match value {
            JsonValue::Text(text) => Some(Self::Text(text)),
            JsonValue::Number(number) => plain_decimal(number).map(Self::Number),
            JsonValue::Null
            | JsonValue::Bool(_)
            | JsonValue::List(_)
            | JsonValue::Object(_)
            | JsonValue::Unstorable(_) => None,
        }
    }

    fn is_below(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Text(one), Self::Text(next)) => one < next,
            (Self::Number(one), Self::Number(next)) => compare(one, next) == Ordering::Less,
            (Self::Text(_), Self::Number(_)) | (Self::Number(_), Self::Text(_)) => false,
        }
    }
}

/// Compares two numbers that `plain_decimal` has written, of any length.
fn compare(one: &str, other: &str) -> Ordering {
    match (one.strip_prefix('-'), other.strip_prefix('-')) {
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (None, None) => compare_digits(one, other),
        (Some(one), Some(other)) => compare_digits(other, one),
    }
}

fn compare_digits(one: &str, other: &str) -> Ordering {
    let parts = |digits: &'_ str| {
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        (whole.trim_start_matches('0').to_owned(), fraction.trim_end_matches('0').to_owned())
    };
    let ((one, one_fraction), (other, other_fraction)) = (parts(one), parts(other));
    one.len().cmp(&other.len()).then(one.cmp(&other)).then(one_fraction.cmp(&other_fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rises(token: Option<&str>, page: &str) -> bool {
        let list = JsonValue::parse(page.as_bytes(), 8).unwrap();
        let records: Vec<&JsonValue> = list.items().unwrap().iter().collect();
        keys_rise(&"id".parse().unwrap(), token, &records)
    }

    #[test]
    fn numbers_rise_as_numbers_and_texts_as_bytes() {
        for (token, page, expected) in [
            (None, r#"[{"id":9},{"id":10},{"id":123456789012345678901234567890}]"#, true),
            (Some("9"), r#"[{"id":10},{"id":11}]"#, true),
            (Some("10"), r#"[{"id":10},{"id":11}]"#, false),
            (Some("11"), r#"[{"id":10}]"#, false),
            (None, r#"[{"id":-2},{"id":-1.5},{"id":0},{"id":1e2},{"id":101.25}]"#, true),
            (None, r#"[{"id":1},{"id":1.0}]"#, false),
            (None, r#"[{"id":"9"},{"id":"10"}]"#, false),
            (None, r#"[{"id":"10"},{"id":"9"},{"id":"Z"},{"id":"a"}]"#, true),
            (None, r#"[{"id":"a"},{"id":"Z"}]"#, false),
            (Some("b"), r#"[{"id":"a"}]"#, false),
            (None, r#"[{"id":1},{"id":"2"}]"#, false),
            (None, r#"[{"id":1},{"no":2}]"#, false),
            (Some("x"), r#"[{"id":1}]"#, false),
            (Some("x"), "[]", true),
        ] {
            assert_eq!(rises(token, page), expected, "{token:?} {page}");
        }
    }
}
