//! `check`: rules that the compiler does not know. Every finding is reported with its position and its remedy.

mod dependencies;
pub(crate) mod frozen;
pub(crate) mod links;
mod plain;
mod sql;
mod tasks;
mod tidy;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::{generate, out, workspace};

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Relative to the root of the repository.
    path: String,
    line: usize,
    /// States the problem and the remedy.
    message: String,
}

impl Finding {
    /// Creates a finding for a path that is relative to the root.
    pub(crate) fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }

    /// Creates a finding for a path below `root`.
    fn below(root: &Path, path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self::new(path.strip_prefix(root).unwrap_or(path).to_string_lossy(), line, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Runs all checks and prints the findings.
pub(crate) fn check() -> Result<ExitCode> {
    let root = workspace::root();
    let mut findings = generate::findings(&root)?;
    findings.extend(dependencies::findings(&root)?);
    findings.extend(frozen::findings(&root)?);
    findings.extend(links::findings(&root)?);
    findings.extend(plain::findings(&root)?);
    findings.extend(sql::findings(&root)?);
    findings.extend(tasks::findings(&root)?);
    findings.extend(tidy::findings(&root)?);
    findings.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    for finding in &findings {
        out::line(finding);
    }
    match findings.len() {
        0 => Ok(ExitCode::SUCCESS),
        1 => anyhow::bail!("`cargo xtask check` has 1 finding; fix it and run the check again"),
        count => anyhow::bail!("`cargo xtask check` has {count} findings; fix them and run the check again"),
    }
}

/// Creates a small tree of files for the tests of the checks.
#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, contents) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }
    root
}

/// Formats findings for the tests of the checks.
#[cfg(test)]
fn shown(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
