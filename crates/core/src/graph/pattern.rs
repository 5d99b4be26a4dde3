//! Patterns of outputs: paths within a job's directory, in which `*` stands for anything but a slash.

use crate::limits::PATTERN_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct BadPattern {
    /// What is wrong with it, as the rest of a sentence.
    pub problem: &'static str,
    /// What to do.
    pub hint: &'static str,
}

/// A relative path with stars. It cannot leave the directory that it is used in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pattern(String);

impl Pattern {
    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory below which everything lies that it can match: its parts before the first star.
    pub fn fixed_parts(&self) -> Vec<&str> {
        let parts: Vec<&str> = self.0.split('/').collect();
        let fixed = parts[..parts.len() - 1].iter().take_while(|part| !part.contains('*'));
        fixed.copied().collect()
    }

    /// Whether it matches a relative path with slashes.
    pub fn matches(&self, path: &str) -> bool {
        let (mut ours, mut theirs) = (self.0.split('/'), path.split('/'));
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(part), Some(name)) if part_matches(part, name) => {}
                (Some(_) | None, Some(_) | None) => return false,
            }
        }
    }
}

/// Whether a part of a pattern matches a name: greedy, with one step back, so never slower than the product of both.
fn part_matches(part: &str, name: &str) -> bool {
    let (part, name): (Vec<char>, Vec<char>) = (part.chars().collect(), name.chars().collect());
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        if at < part.len() && part[at] == '*' {
            star = Some((at, place));
            at += 1;
        } else if at < part.len() && part[at] == name[place] {
            at += 1;
            place += 1;
        } else if let Some((back, from)) = star {
            (at, place) = (back + 1, from + 1);
            star = Some((back, from + 1));
        } else {
            return false;
        }
    }
    part[at..].iter().all(|symbol| *symbol == '*')
}

/// Checks a path that must stay within the directory it is used in.
pub(super) fn check_path(path: &str) -> Result<(), BadPattern> {
    let bad = |problem, hint| Err(BadPattern { problem, hint });
    if path.is_empty() {
        return bad("is empty", "name a path within the job's directory");
    }
    if path.len() > PATTERN_BYTES_MAX {
        return bad("is longer than 512 bytes", "use shorter names");
    }
    if path.chars().any(char::is_control) {
        return bad("contains a control character", "leave it out");
    }
    if path.contains('\\') {
        return bad("contains a backslash", "separate directories with `/`");
    }
    if path.starts_with('/') || path.starts_with('~') {
        return bad("is not relative", "paths begin within the job's directory");
    }
    if path.split('/').any(|part| part == "..") {
        return bad("climbs out of the job's directory", "leave out `..`");
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
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        check_path(text)?;
        let bad = |problem, hint| Err(BadPattern { problem, hint });
        if text.contains("**") {
            return bad("contains `**`", "`*` stands for one name; write `a/*/b` for a directory between");
        }
        if text.contains(['?', '[', ']', '{', '}']) {
            return bad("contains `?`, `[`, `]`, `{` or `}`", "only `*` stands for something else");
        }
        if text.chars().filter(|symbol| *symbol == '*').count() > 8 {
            return bad("has more than 8 stars", "name more of the path");
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
    fn a_star_stands_for_anything_within_one_name() {
        let pattern: Pattern = "out/*/part-*.csv".parse().unwrap();
        assert!(pattern.matches("out/a/part-1.csv"));
        assert!(pattern.matches("out/ü b/part-.csv"));
        assert!(!pattern.matches("out/part-1.csv"));
        assert!(!pattern.matches("out/a/b/part-1.csv"));
        assert!(!pattern.matches("out/a/part-1.csv.gz"));
        assert_eq!(pattern.fixed_parts(), ["out"]);
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern: Pattern = "*a*a*a*a*a*a*a*b".parse().unwrap();
        assert!(!pattern.matches(&"a".repeat(5_000)));
    }

    #[test]
    fn nothing_climbs_out() {
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
