//! Glob patterns, matched by the regex engine: `*` matches any characters except `/`, `**` matches any characters.
//!
//! All other characters are literal. The `globset` crate differs: there `**/x` also matches `x`, and `?`, `[`, `{` and
//! `\` have a meaning.

use regex::Regex;

/// A compiled pattern. Matching takes linear time for every pattern.
#[derive(Debug, Clone)]
pub struct Glob(Option<Regex>);

impl Glob {
    /// Compiles a pattern. One that exceeds the size limit of the regex engine, far beyond the limits of this project,
    /// matches nothing.
    pub fn new(pattern: &str) -> Self {
        let deep: Vec<String> = pattern.split("**").map(one_level).collect();
        Self(Regex::new(&format!(r"(?s)\A{}\z", deep.join(".*"))).ok())
    }

    /// Returns whether the pattern matches a complete name or path.
    pub fn matches(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

/// Converts a pattern without `**` to a regular expression.
fn one_level(pattern: &str) -> String {
    let literals: Vec<String> = pattern.split('*').map(regex::escape).collect();
    literals.join("[^/]*")
}
