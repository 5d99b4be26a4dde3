//! Path patterns of outputs, relative to the job's directory. `*` matches any characters except a slash.

use crate::glob::Glob;
use crate::limits::PATTERN_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// An output pattern that is not a valid path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct InvalidPatternError {
    /// Problem, as the rest of a sentence that begins with the pattern.
    pub problem: &'static str,
    pub hint: &'static str,
}

/// A relative path with `*` wildcards. It cannot leave its base directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pattern(String);

impl Pattern {
    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the directories before the first `*`: all matches are below them.
    pub fn fixed_parts(&self) -> Vec<&str> {
        let parts: Vec<&str> = self.0.split('/').collect();
        let fixed = parts[..parts.len() - 1].iter().take_while(|part| !part.contains('*'));
        fixed.copied().collect()
    }

    /// Compiles the pattern for matching relative paths.
    pub fn glob(&self) -> Glob {
        Glob::new(&self.0)
    }
}

/// Checks that a path is relative and does not leave its base directory.
pub(super) fn check_path(path: &str) -> Result<(), InvalidPatternError> {
    let bad = |problem, hint| Err(InvalidPatternError { problem, hint });
    if path.is_empty() {
        return bad("is empty", "name a path within the job's directory");
    }
    if path.len() > PATTERN_BYTES_MAX {
        return bad("is longer than 512 bytes", "use shorter names");
    }
    if path.chars().any(char::is_control) {
        return bad("contains a control character", "remove it");
    }
    if path.contains('\\') {
        return bad("contains a backslash", "separate directories with `/`");
    }
    if path.starts_with('/') || path.starts_with('~') {
        return bad("is not relative", "use a path relative to the job's directory");
    }
    if path.split('/').any(|part| part == "..") {
        return bad("leaves the job's directory", "remove `..`");
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") {
        return bad(
            "has an empty part, or one that is `.`",
            "write `a/b`, without `./` or a slash at the end",
        );
    }
    Ok(())
}

impl FromStr for Pattern {
    type Err = InvalidPatternError;

    fn from_str(text: &str) -> Result<Self, InvalidPatternError> {
        check_path(text)?;
        let bad = |problem, hint| Err(InvalidPatternError { problem, hint });
        if text.contains("**") {
            return bad("contains `**`", "`*` matches one name; write `a/*/b` for one directory level");
        }
        if text.contains(['?', '[', ']', '{', '}']) {
            return bad("contains `?`, `[`, `]`, `{` or `}`", "the only wildcard is `*`");
        }
        if text.chars().filter(|symbol| *symbol == '*').count() > 8 {
            return bad("has more than 8 stars", "write out more of the path");
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_within_one_path_component() {
        let pattern: Pattern = "out/*/part-*.csv".parse().unwrap();
        assert!(pattern.glob().matches("out/a/part-1.csv"));
        assert!(pattern.glob().matches("out/ü b/part-.csv"));
        assert!(!pattern.glob().matches("out/part-1.csv"));
        assert!(!pattern.glob().matches("out/a/b/part-1.csv"));
        assert!(!pattern.glob().matches("out/a/part-1.csv.gz"));
        assert_eq!(pattern.fixed_parts(), ["out"]);
    }

    #[test]
    fn pattern_with_many_stars_matches_quickly() {
        let pattern: Pattern = "*a*a*a*a*a*a*a*b".parse().unwrap();
        assert!(!pattern.glob().matches(&"a".repeat(5_000)));
    }

    #[test]
    fn paths_outside_the_directory_are_rejected() {
        let bad = [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "./a",
            "a/",
            "a\\b",
            "a\0b",
            "~/x",
            "a/**/b",
            "a?",
            "[ab]",
        ];
        for bad in bad {
            assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
        }
    }
}
