//! Small source rules that no other tool checks.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Finding;
use crate::workspace::{files, has_extension};

const COLUMNS_MAX: usize = 120;
const RUST_LINES_MAX: usize = 500;
const README_LINES_MAX: usize = 120;

// Written in two parts, so that this file follows its own rules.
const LATER: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
const SILENCERS: [&str; 2] = [concat!("#[all", "ow("), concat!("#![all", "ow(")];

/// Returns one finding for each violation.
pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for path in files(root)? {
        let is_rust = has_extension(&path, "rs");
        if is_rust || has_extension(&path, "sql") {
            let text = fs::read_to_string(&path)?;
            let found = lines(&text).into_iter().chain(if is_rust { rust(&text) } else { Vec::new() });
            findings.extend(found.map(|(line, message)| Finding::below(root, &path, line, message)));
        }
    }
    if let Ok(readme) = fs::read_to_string(root.join("README.md")) {
        let count = readme.lines().count();
        if count > README_LINES_MAX {
            let message = format!("{count} lines are more than {README_LINES_MAX}; move the rest to docs/");
            findings.push(Finding::new("README.md", README_LINES_MAX + 1, message));
        }
    }
    Ok(findings)
}

/// Checks the lines of a source file.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            findings.push((number, format!("{columns} columns are more than {COLUMNS_MAX}; break the line")));
        }
        if let Some(word) = LATER.into_iter().find(|word| has_without_issue(line, word)) {
            findings.push((number, format!("`{word}` names no issue; write `{word}(#12): …`, or do it now")));
        }
    }
    findings
}

/// Checks the rules for Rust files.
fn rust(text: &str) -> Vec<(usize, String)> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push((1, "the file has no module comment; start it with `//! …`".to_owned()));
    }
    let count = text.lines().count();
    if count > RUST_LINES_MAX {
        let message = format!("{count} lines are more than {RUST_LINES_MAX}; split the file by noun");
        findings.push((RUST_LINES_MAX + 1, message));
    }
    for (number, line) in (1..).zip(text.lines()) {
        if SILENCERS.iter().any(|silencer| line.contains(silencer)) {
            let message =
                "the lint is silenced without a reason; use `#[expect(…, reason = \"…\")]`".to_owned();
            findings.push((number, message));
        }
    }
    findings
}

/// Whether the line contains `word` as a whole word, not followed by an issue such as `(#12)`.
fn has_without_issue(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let is_letter = |character: char| character.is_alphanumeric() || character == '_';
        let before = line[..at].chars().next_back();
        let rest = &line[at + word.len()..];
        let alone = !before.is_some_and(is_letter) && !rest.chars().next().is_some_and(is_letter);
        let issue = rest.strip_prefix("(#").and_then(|rest| rest.split_once(')'));
        let named = issue.is_some_and(|(issue, _)| issue.parse::<u32>().is_ok());
        alone && !named
    })
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    #[test]
    fn findings_are_reported_with_their_line() {
        let [later, _] = LATER;
        let [silencer, _] = SILENCERS;
        let text =
            format!("fn main() {{}}\n// {later}: more\n{silencer}dead_code)]\n// {}\n", "x".repeat(120));
        let root = tree(&[("crates/a/src/main.rs", &text), ("target/x.rs", "bad"), ("notes.txt", later)]);
        let findings = shown(&findings(root.path()).unwrap());
        let starts = [":4: 123 columns", ":2: `", ":1: the file has no module", ":3: the lint is silenced"];
        assert_eq!(findings.len(), starts.len(), "{findings:?}");
        for start in starts {
            let start = format!("crates/a/src/main.rs{start}");
            assert!(findings.iter().any(|finding| finding.starts_with(&start)), "{start}: {findings:?}");
        }
    }

    #[test]
    fn issue_number_or_longer_word_is_accepted() {
        let [later, _] = LATER;
        assert!(!has_without_issue(&format!("// {later}(#12): more"), later));
        assert!(!has_without_issue(&format!("const MAS{later}S: u8"), later));
        assert!(has_without_issue(&format!("// {later}(#soon): more"), later));
        assert!(has_without_issue(later, later));
    }

    #[test]
    fn columns_are_counted_in_characters() {
        assert_eq!(lines(&"é".repeat(120)), []);
        assert_eq!(lines(&"é".repeat(121)).len(), 1);
    }

    #[test]
    fn long_files_and_a_long_readme_are_findings() {
        let long = format!("//! Long.\n{}", "\n".repeat(500));
        let readme = "\n".repeat(121);
        let root = tree(&[("a.rs", &long), ("README.md", &readme)]);
        let findings = shown(&findings(root.path()).unwrap());
        assert!(findings[0].starts_with("a.rs:501: 501 lines are more than 500"), "{findings:?}");
        assert!(findings[1].starts_with("README.md:121: 121 lines are more than 120"), "{findings:?}");
    }
}
