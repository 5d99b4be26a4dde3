//! Paths in JSON values, such as `data.items[0].id`.

use super::value::JsonValue;
use crate::limits::{FEED_PATH_BYTES_MAX, FEED_PATH_STEPS_MAX};
use std::fmt;
use std::str::FromStr;

/// A path: keys and indexes. The empty path is the value itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Step {
    Key(String),
    Index(usize),
    /// Every item of a list, written `[*]`.
    Each,
}

/// Why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("is longer than {FEED_PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("has more than {FEED_PATH_STEPS_MAX} steps")]
    TooManySteps,
    #[error("has an empty key")]
    EmptyKey,
    #[error("has a bracket without an index, a quoted key or `*`")]
    Bracket,
    #[error("has text after a bracket; write a dot between")]
    AfterBracket,
}

impl JsonPath {
    /// The path of one key.
    pub fn key(key: impl Into<String>) -> Self {
        Self { steps: vec![Step::Key(key.into())] }
    }

    /// Returns this path followed by a key.
    #[must_use]
    pub fn child(&self, key: impl Into<String>) -> Self {
        let mut steps = self.steps.clone();
        steps.push(Step::Key(key.into()));
        Self { steps }
    }

    /// Returns whether the path selects the value itself.
    pub fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns whether the path contains `[*]`.
    pub fn has_each(&self) -> bool {
        self.steps.contains(&Step::Each)
    }

    /// Returns whether the path consists of keys only, so that a value can be set there.
    pub fn is_keys(&self) -> bool {
        self.keys().is_some_and(|keys| !keys.is_empty())
    }

    /// Returns the first key; `None` if the path begins with a bracket or is the root.
    pub fn first_key(&self) -> Option<&str> {
        match self.steps.first()? {
            Step::Key(key) => Some(key),
            Step::Index(_) | Step::Each => None,
        }
    }

    /// Returns the keys of a path without indexes.
    pub fn keys(&self) -> Option<Vec<&str>> {
        let key = |step: &'_ Step| match step {
            Step::Key(_) => true,
            Step::Index(_) | Step::Each => false,
        };
        if !self.steps.iter().all(key) {
            return None;
        }
        let keys = self.steps.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Index(_) | Step::Each => None,
        });
        Some(keys.collect())
    }

    /// Returns the value at the path. A path with `[*]` selects the first match.
    pub fn select<'a>(&self, value: &'a JsonValue) -> Option<&'a JsonValue> {
        if self.has_each() {
            return self.select_all(value)?.into_iter().next();
        }
        self.steps.iter().try_fold(value, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Index(index) => value.items()?.get(*index),
            Step::Each => None,
        })
    }

    /// Returns the records that a data selector finds: the items of the list at the path, or every match of a path with
    /// `[*]`. `None` if there is no list.
    pub fn select_all<'a>(&self, value: &'a JsonValue) -> Option<Vec<&'a JsonValue>> {
        if !self.has_each() {
            return Some(self.select(value)?.items()?.iter().collect());
        }
        let mut found = vec![value];
        for step in &self.steps {
            found = match step {
                Step::Key(key) => found.into_iter().filter_map(|value| value.get(key)).collect(),
                Step::Index(index) => {
                    found.into_iter().filter_map(|value| value.items()?.get(*index)).collect()
                }
                Step::Each => {
                    let lists: Vec<&[JsonValue]> = found.iter().filter_map(|value| value.items()).collect();
                    if lists.is_empty() {
                        return None;
                    }
                    lists.into_iter().flatten().collect()
                }
            };
        }
        Some(found)
    }
}

impl FromStr for JsonPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        if text.len() > FEED_PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            rest = if let Some(inside) = rest.strip_prefix('[') {
                bracket(inside, &mut steps)?
            } else {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                if end == 0 {
                    return Err(PathError::EmptyKey);
                }
                steps.push(Step::Key(rest[..end].to_owned()));
                &rest[end..]
            };
            if let Some(next) = rest.strip_prefix('.') {
                if next.is_empty() {
                    return Err(PathError::EmptyKey);
                }
                rest = next;
            } else if !rest.is_empty() && !rest.starts_with('[') {
                return Err(PathError::AfterBracket);
            }
        }
        if steps.len() > FEED_PATH_STEPS_MAX {
            return Err(PathError::TooManySteps);
        }
        Ok(Self { steps })
    }
}

/// Reads the inside of a bracket and returns the text after it.
fn bracket<'a>(inside: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, PathError> {
    for quote in ['"', '\''] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let (key, rest) = quoted.split_once(quote).ok_or(PathError::Bracket)?;
            steps.push(Step::Key(key.to_owned()));
            return rest.strip_prefix(']').ok_or(PathError::Bracket);
        }
    }
    let (index, rest) = inside.split_once(']').ok_or(PathError::Bracket)?;
    steps.push(match index {
        "*" => Step::Each,
        index => Step::Index(index.parse().map_err(|_| PathError::Bracket)?),
    });
    Ok(rest)
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return f.write_str("$");
        }
        for (place, step) in self.steps.iter().enumerate() {
            match step {
                Step::Key(key) if key.is_empty() || key.contains(['.', '[', ']', '$', '"', '\'']) => {
                    let quote = if key.contains('"') { '\'' } else { '"' };
                    write!(f, "[{quote}{key}{quote}]")?;
                }
                Step::Key(key) if place == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Each => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

impl serde::Serialize for JsonPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for JsonPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format!("the path `{text}` {error}")))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for JsonPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JsonPath".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "description": "Path in a JSON value, such as `data.items[0].id`."})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> JsonValue {
        let text = concat!(
            r#"{"a":{"b":[{"c":1},{"c":2},{}]},"x.y":[[7]],"#,
            r#""e":{"edges":[{"node":{"id":1}},{"node":{"id":2}}]}}"#
        );
        JsonValue::parse(text.as_bytes(), 64).unwrap()
    }

    #[test]
    fn path_selects_keys_and_indexes() {
        for (path, expected) in [
            ("a.b[0].c", Some("1")),
            ("$.a.b[1].c", Some("2")),
            ("a.b[2].c", None),
            ("a.b[9]", None),
            ("a.b.c", None),
            ("[\"x.y\"][0][0]", Some("7")),
            ("['x.y'][0]", Some("[7]")),
            ("e.edges[*].node.id", Some("1")),
        ] {
            let found = path.parse::<JsonPath>().unwrap();
            assert_eq!(found.select(&value()).map(JsonValue::to_json).as_deref(), expected, "{path}");
        }
        assert_eq!("$".parse::<JsonPath>().unwrap().select(&value()), Some(&value()));
    }

    #[test]
    fn data_selector_finds_the_records() {
        let count =
            |path: &str| path.parse::<JsonPath>().unwrap().select_all(&value()).map(|found| found.len());
        assert_eq!(count("a.b"), Some(3));
        assert_eq!(count("e.edges[*].node"), Some(2));
        assert_eq!((count("a"), count("a.c"), count("a[*].x")), (None, None, None));
    }

    #[test]
    fn invalid_path_is_an_error() {
        for (text, error) in [
            ("a..b", PathError::EmptyKey),
            ("a.", PathError::EmptyKey),
            ("a[", PathError::Bracket),
            ("a[x]", PathError::Bracket),
            ("a[-1]", PathError::Bracket),
            ("a['x]", PathError::Bracket),
            ("a[0]b", PathError::AfterBracket),
        ] {
            assert_eq!(text.parse::<JsonPath>(), Err(error), "{text}");
        }
        assert_eq!("x".repeat(FEED_PATH_BYTES_MAX + 1).parse::<JsonPath>(), Err(PathError::TooLong));
        assert_eq!("[0]".repeat(FEED_PATH_STEPS_MAX + 1).parse::<JsonPath>(), Err(PathError::TooManySteps));
    }

    #[test]
    fn shown_path_is_parsed_to_the_same_path() {
        for text in ["a.b[0].c", "$", "[\"x.y\"][0]", "edges[*].node", "['say \"hi\"']"] {
            let path: JsonPath = text.parse().unwrap();
            assert_eq!(path.to_string().parse::<JsonPath>().unwrap(), path, "{text}");
        }
    }
}
