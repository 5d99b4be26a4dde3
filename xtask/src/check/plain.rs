//! Plain English: texts and names that a newcomer would have to read twice.
//!
//! The rules find household words, vague pronouns, long sentences, and doc comments that only repeat a name. They also
//! find missing docs of public items, long test names and long commit subjects. `xtask/plain-exceptions.txt` lists
//! texts that are meant as they stand, each with its reason.

mod exceptions;
mod prose;
mod source;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::Finding;
use crate::workspace::{files, has_extension};
use exceptions::Exceptions;
use source::Text;

/// The commit before the first one whose subject is checked.
const SUBJECTS_SINCE: &str = "36e2ea59b2e49fa335404c6a57fd556f6373460a";
/// Crates whose items need no doc comments.
const DEVELOPMENT: [&str; 2] = ["crates/bench/", "crates/testkit/"];
const SUBJECT_MAX: usize = 72;
const NAME_MAX: usize = 70;
const NAME_OPENINGS: [&str; 7] = ["what_", "who_", "whoever_", "nobody_", "nothing_", "whatever_", "whose_"];
/// Files that are generated, that others wrote, or that quote violations.
const SKIPPED: [&str; 4] =
    ["docs/reference/", "docs/states/", "crates/testkit/azurite/", "xtask/src/check/plain"];

/// Returns one finding for each text or name that breaks a rule and is not listed as an exception.
pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let mut exceptions = Exceptions::read(root)?;
    let mut findings = Vec::new();
    for path in files(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        if SKIPPED.iter().any(|skipped| name.starts_with(skipped)) {
            continue;
        }
        let Some(language) = source::Language::of(&path) else { continue };
        let text = std::fs::read_to_string(&path)?;
        let mut broken: Vec<(usize, String, String)> = Vec::new();
        for found in source::texts(language, &text) {
            let is_skipped = matches!(found.text, Text::Message(_)) && is_test(&name);
            if !is_skipped {
                let rules = prose::broken_rules(&found.text);
                broken
                    .extend(rules.into_iter().map(|rule| (found.line, rule, found.text.as_str().to_owned())));
            }
        }
        if has_extension(&path, "rs") {
            broken.extend(names(&text));
            if !is_test(&name) && !DEVELOPMENT.iter().any(|folder| name.starts_with(folder)) {
                broken.extend(undocumented(&text));
            }
        }
        let reported = broken.into_iter().filter(|(_, _, text)| !exceptions.covers(&name, text));
        findings
            .extend(reported.map(|(line, rule, text)| Finding::new(&name, line, format!("{rule}: {text}"))));
    }
    findings.extend(subjects(root));
    findings.extend(exceptions.unused());
    Ok(findings)
}

fn is_test(name: &str) -> bool {
    name.contains("tests/") || name.ends_with("tests.rs")
}

/// Names of functions and tests that open like a riddle or are too long.
fn names(text: &str) -> Vec<(usize, String, String)> {
    let mut broken = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let Some(name) = function_name(text) else { continue };
        if let Some(opening) = NAME_OPENINGS.into_iter().find(|opening| name.starts_with(opening)) {
            broken.push((line, format!("the name opens with `{opening}`"), name.to_owned()));
        }
        if name.len() > NAME_MAX {
            broken.push((line, format!("the name is longer than {NAME_MAX} characters"), name.to_owned()));
        }
    }
    broken
}

fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    if !before.is_empty() && !before.ends_with(' ') || before.contains("//") {
        return None;
    }
    let end = rest.find(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
    let name = &rest[..end.unwrap_or(rest.len())];
    (!name.is_empty()).then_some(name)
}

/// Public types and free functions without a doc comment. The name of a method often says enough.
fn undocumented(text: &str) -> Vec<(usize, String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let product = lines.iter().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(lines.len());
    let mut broken = Vec::new();
    for (index, line) in lines[..product].iter().enumerate() {
        if is_public_item(line) && !has_docs(&lines[..index]) {
            let rule = "a public type or function has no doc comment".to_owned();
            broken.push((index + 1, rule, line.trim().to_owned()));
        }
    }
    broken
}

fn is_public_item(line: &str) -> bool {
    // Indented items are methods, or items of macros.
    let Some(rest) = line.strip_prefix("pub ") else { return false };
    let rest = rest.trim_start_matches("async ").trim_start_matches("const ");
    ["fn ", "struct ", "enum ", "trait ", "type "].iter().any(|keyword| rest.starts_with(keyword))
}

/// Whether a doc comment stands at the end of these lines, before attributes.
fn has_docs(before: &[&str]) -> bool {
    let mut in_attribute = false;
    for line in before.iter().rev() {
        let line = line.trim();
        if in_attribute {
            in_attribute = !line.starts_with("#[");
        } else if line.starts_with("///") || line.starts_with("#[doc") {
            return true;
        } else if line.ends_with(']') && !line.starts_with("#[") {
            // The last line of an attribute that stands on several.
            in_attribute = true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            return false;
        }
    }
    false
}

/// Commit subjects since [`SUBJECTS_SINCE`] that are too long, name no crate or open like a riddle.
fn subjects(root: &Path) -> Vec<Finding> {
    let range = format!("{SUBJECTS_SINCE}..HEAD");
    let log =
        Command::new("git").args(["log", "--no-merges", "--format=%h %s", &range]).current_dir(root).output();
    // An unpacked archive has no history, and a shallow clone may lack the first commit.
    let Some(log) = log.ok().filter(|log| log.status.success()) else { return Vec::new() };
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    commits
        .filter_map(|(commit, subject)| Some(Finding::new("commit", 1, broken_subject(commit, subject)?)))
        .collect()
}

fn broken_subject(commit: &str, subject: &str) -> Option<String> {
    let rule = if subject.chars().count() > SUBJECT_MAX {
        format!("the subject is longer than {SUBJECT_MAX} characters")
    } else if !subject.starts_with('[') || !subject.contains("] ") {
        "the subject does not open with `[crate] `".to_owned()
    } else if subject.split_once("] ").is_some_and(|(_, rest)| prose::opens_with_pronoun(rest)) {
        "the subject opens with what, who or nobody; use the imperative".to_owned()
    } else {
        return None;
    };
    Some(format!("{commit}: {rule}: {subject}"))
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    #[test]
    fn riddles_are_found_in_every_kind_of_text() {
        let rust = "//! Holds the queued runs of a project.\n\n/// Whoever comes first gets the run.\n\
                    pub fn claim() {}\n\nfn what_is_left() {}\n\n\
                    fn f() {\n    // Nobody is told.\n    fail(\"nobody is left \\\n          here to answer\");\n}\n";
        let root = tree(&[
            ("crates/a/src/lib.rs", rust),
            ("crates/a/sql/run.sql", "-- The shelf of a run.\nSELECT 1;\n"),
            ("docs/a.md", "# What follows\n\nThe door is open.\n"),
        ]);
        let found = shown(&findings(root.path()).unwrap());
        let expected = [
            "crates/a/sql/run.sql:1: household word `shelf`",
            "crates/a/src/lib.rs:3: opens with `Whoever`",
            "crates/a/src/lib.rs:3: vague word `whoever`",
            "crates/a/src/lib.rs:9: opens with `Nobody`",
            "crates/a/src/lib.rs:9: vague word `nobody`",
            "crates/a/src/lib.rs:10: opens with `nobody`",
            "crates/a/src/lib.rs:10: vague word `nobody`",
            "crates/a/src/lib.rs:6: the name opens with `what_`",
            "docs/a.md:1: opens with `What`",
            "docs/a.md:3: household word `door`",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }

    #[test]
    fn public_item_without_docs_is_a_finding() {
        let text = "//! Runs.\n\n#[derive(\n    Debug,\n)]\npub struct Run;\n\n/// Claims.\n#[must_use]\n\
                    pub fn claim() {}\n\npub async fn finish() {}\n\npub(crate) fn helper() {}\n\
                    impl Run {\n    pub fn id(&self) {}\n}\n";
        let lines: Vec<usize> = undocumented(text).into_iter().map(|(line, _, _)| line).collect();
        assert_eq!(lines, [6, 12]);
    }

    #[test]
    fn messages_in_tests_are_not_checked_but_names_are() {
        let text = "//! Tests of the messages of runs.\n\nfn nobody_answers() {\n    panic!(\"nobody is left\");\n}\n";
        let root = tree(&[("crates/a/tests/runs.rs", text)]);
        let found = shown(&findings(root.path()).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("the name opens with `nobody_`"), "{found:?}");
    }

    #[test]
    fn exception_covers_its_text_and_an_unused_one_is_a_finding() {
        let root = tree(&[
            ("a.sql", "-- The shelf of a run.\n"),
            (
                "xtask/plain-exceptions.txt",
                "# Reasons.\na.sql | The shelf of | a table of others\nb.sql | x | gone\n",
            ),
        ]);
        let found = shown(&findings(root.path()).unwrap());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("xtask/plain-exceptions.txt:3: the exception covers no text"),
            "{found:?}"
        );
    }

    #[test]
    fn commit_subjects_follow_the_rules() {
        assert_eq!(broken_subject("abc", "[store] claim runs in order"), None);
        let long = format!("[store] {}", "x".repeat(65));
        assert!(broken_subject("abc", &long).is_some_and(|text| text.contains("longer than 72")));
        assert!(broken_subject("abc", "claim runs").is_some_and(|text| text.contains("[crate]")));
        assert!(broken_subject("abc", "[store] who claims is told").is_some());
    }
}
