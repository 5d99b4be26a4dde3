//! A text of a record: the source gives numbers, booleans and nothing in the same places.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A text, borrowed from the record where it has no escapes. What is no text, number or boolean is nothing.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// The text without the space around it; nothing when nothing is left.
    pub(super) fn get(&self) -> Option<&str> {
        let text = self.0.trim();
        (!text.is_empty()).then_some(text)
    }

    /// The text as it came, with the space around it; nothing when it is only space.
    pub(super) fn verbatim(&self) -> Option<&str> {
        self.get().map(|_| &*self.0)
    }

    /// The text without the space around it, to be kept.
    pub(super) fn owned(&self) -> Option<String> {
        self.get().map(str::to_owned)
    }

    /// The same, in capitals.
    pub(super) fn capitals(&self) -> Option<String> {
        self.get().map(str::to_uppercase)
    }

    /// Yes or no, in the words that the source has for it.
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
    fn whatever_stands_there_is_a_text_or_nothing() {
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
    fn a_text_without_escapes_is_borrowed() {
        let json = r#""borrowed""#;
        assert!(matches!(serde_json::from_str::<Text<'_>>(json).unwrap().0, Cow::Borrowed("borrowed")));
    }

    #[test]
    fn a_flag_has_several_words() {
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
