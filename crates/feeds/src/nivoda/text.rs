//! A text field of a record. The source also writes numbers, booleans and null into text fields.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A text, borrowed from the record if it contains no escapes. Arrays, objects and null become the empty text.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// Returns the trimmed text; `None` if it is empty.
    pub(super) fn get(&self) -> Option<&str> {
        let text = self.0.trim();
        (!text.is_empty()).then_some(text)
    }

    /// Returns the text with its surrounding spaces; `None` if it is blank.
    pub(super) fn verbatim(&self) -> Option<&str> {
        self.get().map(|_| &*self.0)
    }

    /// Returns the trimmed text as a `String`; `None` if it is empty.
    pub(super) fn owned(&self) -> Option<String> {
        self.get().map(str::to_owned)
    }

    /// Returns the trimmed text in upper case; `None` if it is empty.
    pub(super) fn capitals(&self) -> Option<String> {
        self.get().map(str::to_uppercase)
    }

    /// Parses a boolean in any of the source's spellings.
    pub(super) fn flag(&self) -> Option<bool> {
        let text = self.get()?;
        let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        if is(&["true", "yes", "y", "1", "100%", "eye clean"]) {
            Some(true)
        } else if is(&["false", "no", "n", "0", "0%"]) {
            Some(false)
        } else {
            None
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(if value { "true" } else { "false" })))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Text::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_json_value_is_a_text_or_empty() {
        for (json, expected) in [
            (r#"" EX ""#, Some("EX")),
            (r#""a\"b""#, Some("a\"b")),
            ("12345", Some("12345")),
            ("-1.5", Some("-1.5")),
            ("true", Some("true")),
            ("null", None),
            (r#""  ""#, None),
            ("[1,[2]]", None),
            (r#"{"a":{"b":1}}"#, None),
        ] {
            assert_eq!(serde_json::from_str::<Text<'_>>(json).unwrap().get(), expected, "{json}");
        }
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        let json = r#""borrowed""#;
        assert!(matches!(serde_json::from_str::<Text<'_>>(json).unwrap().0, Cow::Borrowed("borrowed")));
    }

    #[test]
    fn flag_accepts_several_spellings() {
        for (json, expected) in [
            ("true", Some(true)),
            (r#""No""#, Some(false)),
            (r#""100%""#, Some(true)),
            (r#""?""#, None),
            ("null", None),
        ] {
            assert_eq!(serde_json::from_str::<Text<'_>>(json).unwrap().flag(), expected, "{json}");
        }
    }
}
