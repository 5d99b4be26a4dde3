//! The patch files in `faults/` and their headers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{file_name, files, has_extension};

/// The patch that the others need: it adds the module that selects the fault of a process.
pub(super) const BASE: &str = "base";
/// The lanes of a header. `queue` and `access` belong to `kernel`.
const LANES: [&str; 4] = ["kernel", "ops", "graph", "sync"];
const DATABASES: [&str; 2] = ["PostgreSQL", "SQLite"];

/// A fault with its patch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The rule that the fault breaks, for error messages.
    pub(super) breaks: String,
    /// The full names of the tests that catch it, by test target.
    pub(super) tests: BTreeMap<String, Vec<String>>,
}

/// Reads every fault, sorted by name, without the base patch.
pub(super) fn read_all(directory: &Path) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for path in files(directory)?.into_iter().filter(|path| has_extension(path, "patch")) {
        let name = file_name(&path).trim_end_matches(".patch").to_owned();
        if name != BASE {
            let text =
                fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            patches.push(read(name, path, &text)?);
        }
    }
    ensure!(!patches.is_empty(), "there is no patch in {}", directory.display());
    Ok(patches)
}

/// Reads the header, which ends where the diff begins.
fn read(name: String, path: PathBuf, text: &str) -> Result<Patch> {
    let header = text.split("diff --git ").next().unwrap_or_default();
    let (mut breaks, mut lane, mut database) = (String::new(), "", "");
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in header.lines().filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some(("Breaks", value)) => value.clone_into(&mut breaks),
            Some(("Lane", value)) => lane = value,
            Some(("Database", value)) => database = value,
            Some(("Caught by", value)) => {
                let (target, full_name) = value.split_once(' ').with_context(|| {
                    format!("faults/{name}.patch: write `Caught by: <test target> <full name of the test>`")
                })?;
                tests.entry(target.to_owned()).or_default().push(full_name.trim().to_owned());
            }
            // A sentence goes on.
            _ if tests.is_empty() && lane.is_empty() && !breaks.is_empty() => {
                breaks.push(' ');
                breaks.push_str(line);
            }
            _ => bail!("faults/{name}.patch: unknown line `{line}` in the header; see faults/README.md"),
        }
    }
    ensure!(!breaks.is_empty(), "faults/{name}.patch has no line `Breaks:`");
    ensure!(LANES.contains(&lane), "faults/{name}.patch: `Lane:` must be one of {}", LANES.join(", "));
    ensure!(
        !database.is_empty() && database.split(", ").all(|one| DATABASES.contains(&one)),
        "faults/{name}.patch: `Database:` must be PostgreSQL, SQLite or `PostgreSQL, SQLite`"
    );
    ensure!(!tests.is_empty(), "faults/{name}.patch has no line `Caught by:`");
    Ok(Patch { name, path, breaks, tests })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(header: &str) -> Result<Patch> {
        let text = format!("{header}\ndiff --git a/x b/x\nCaught by: nothing here\n");
        read("one".into(), "one.patch".into(), &text)
    }

    #[test]
    fn header_names_the_fault_and_its_tests() {
        let text = "Breaks: The sweeper\nforgets runs.\nLane: kernel\nDatabase: PostgreSQL, SQLite\n\
                    Caught by: conformance a::b\nCaught by: conformance a::c\nCaught by: queue d\n";
        let patch = parse(text).unwrap();
        assert_eq!(patch.breaks, "The sweeper forgets runs.");
        let tests: Vec<_> =
            patch.tests.iter().map(|(target, tests)| (target.as_str(), tests.len())).collect();
        assert_eq!(tests, [("conformance", 2), ("queue", 1)]);
    }

    #[test]
    fn incomplete_header_is_refused() {
        for text in [
            "Breaks: It.\nLane: kernel\nDatabase: SQLite\n",
            "Breaks: It.\nLane: other\nDatabase: SQLite\nCaught by: a b\n",
            "Breaks: It.\nLane: sync\nDatabase: MySQL\nCaught by: a b\n",
            "Lane: sync\nDatabase: SQLite\nCaught by: a b\n",
            "Breaks: It.\nLane: sync\nDatabase: SQLite\nCaught by: a\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
