//! `check`: what the compiler does not see. Every fault is reported, each with its place and its remedy.

mod arrows;
mod sql;
mod tasks;
mod tidy;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::{generate, out, workspace};

/// One thing to mend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The file, from the root of the repository.
    path: String,
    /// The line, counted from 1.
    line: usize,
    /// What is wrong and what to do.
    message: String,
}

impl Fault {
    /// A fault in the file at `path`, which is relative to the root.
    pub(crate) fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }

    /// A fault in the file at `path`, which lies below `root`.
    fn below(root: &Path, path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self::new(path.strip_prefix(root).unwrap_or(path).to_string_lossy(), line, message)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Runs every check.
pub(crate) fn check() -> Result<ExitCode> {
    let root = workspace::root();
    let mut faults = generate::faults(&root);
    faults.extend(arrows::faults(&root)?);
    faults.extend(sql::faults(&root)?);
    faults.extend(tasks::faults(&root)?);
    faults.extend(tidy::faults(&root)?);
    faults.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
    for fault in &faults {
        out::line(fault);
    }
    match faults.len() {
        0 => Ok(ExitCode::SUCCESS),
        1 => anyhow::bail!("`cargo xtask check` found 1 fault; mend it and run it again"),
        count => anyhow::bail!("`cargo xtask check` found {count} faults; mend them and run it again"),
    }
}

/// A small tree of files for the tests of the checks.
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

/// The faults as people see them, for the tests of the checks.
#[cfg(test)]
fn shown(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}
