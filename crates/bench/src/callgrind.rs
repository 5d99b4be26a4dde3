//! A PostgreSQL server under valgrind, whose instructions are counted.
//!
//! Each server process writes its counts to a file when it ends. A session is measured by the files that appear while
//! it runs, so no other session may run at the same time.

use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tidemill_testkit::cluster::find_on_path;

/// Time limit for a session to end after its client has disconnected.
const END_TIMEOUT: Duration = Duration::from_mins(2);
const PREFIX: &str = "callgrind.";

/// Returns the command that counts the instructions of a server and of each of its processes.
pub(crate) fn wrapper(directory: &Path) -> Result<Vec<OsString>> {
    let valgrind = find_on_path("valgrind").context(
        "valgrind is not installed; on Debian run as root `apt-get install --no-install-recommends valgrind`",
    )?;
    let mut out = OsString::from("--callgrind-out-file=");
    out.push(directory.join(format!("{PREFIX}%p")));
    let options = ["--tool=callgrind", "--trace-children=yes", "--vgdb=no", "--quiet"].map(OsString::from);
    Ok([valgrind.into_os_string()].into_iter().chain(options).chain([out]).collect())
}

/// Counts of the sessions that ran during one measurement.
#[derive(Debug)]
pub(crate) struct Counts {
    files: Vec<PathBuf>,
    pub(crate) instructions: u64,
}

/// Runs sessions, and returns the instructions of their server processes.
pub(crate) fn count(directory: &Path, sessions: impl FnOnce() -> Result<()>) -> Result<Counts> {
    let before: BTreeSet<PathBuf> = files(directory)?.into_iter().collect();
    sessions()?;
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let new: Vec<PathBuf> = files(directory)?.into_iter().filter(|file| !before.contains(file)).collect();
        let totals: Option<Vec<u64>> = new.iter().map(|file| total(file)).collect();
        // pgbench opens a session of its own before that of its client.
        if let Some(totals) = totals.filter(|totals| totals.len() >= 2) {
            return Ok(Counts { files: new, instructions: totals.iter().sum() });
        }
        if Instant::now() > deadline {
            bail!("the server wrote no counts to {} after the session ended", directory.display());
        }
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Returns the total of a complete file.
fn total(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// Whether the functions that a function calls are part of its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Exclusive,
    Inclusive,
}

impl Counts {
    /// Returns the instructions of each function.
    pub(crate) fn by_function(&self, scope: Scope) -> Result<BTreeMap<String, u64>> {
        let annotate = find_on_path("callgrind_annotate")
            .context("callgrind_annotate is not installed; it is part of the package valgrind")?;
        let mut functions = BTreeMap::new();
        for file in &self.files {
            let mut command = Command::new(&annotate);
            command.args(["--threshold=100", "--auto=no"]);
            command.arg(match scope {
                Scope::Exclusive => "--inclusive=no",
                Scope::Inclusive => "--inclusive=yes",
            });
            let output = command.arg(file).output().context("could not run callgrind_annotate")?;
            for (name, count) in String::from_utf8_lossy(&output.stdout).lines().filter_map(function) {
                // Callgrind counts recursive calls apart. Only exclusive counts of both may be added.
                let name = match scope {
                    Scope::Exclusive => name.replace("'2", ""),
                    Scope::Inclusive => name,
                };
                *functions.entry(name).or_default() += count;
            }
        }
        Ok(functions)
    }
}

/// Reads a line such as `1,234 (5.67%)  file.c:name [/usr/lib/postgresql/15/bin/postgres]`.
fn function(line: &str) -> Option<(String, u64)> {
    let line = line.trim_start();
    let (count, rest) = line.split_once(' ')?;
    let count = count.replace(',', "").parse().ok()?;
    let rest = rest.trim_start().strip_prefix('(')?.split_once(')')?.1.trim_start();
    let (place, object) = rest.split_once(" [").map_or((rest, ""), |(place, object)| (place, object));
    let name = place.split_once(':').map_or(place, |(_, name)| name);
    let object = object.trim_end_matches(']').rsplit('/').next().unwrap_or_default();
    let name = if object == "postgres" || object.is_empty() {
        name.to_owned()
    } else {
        format!("{name} [{object}]")
    };
    (!name.is_empty() && !name.starts_with("PROGRAM TOTALS")).then_some((name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_line_is_read_as_name_and_count() {
        let line = "  1,234,567 (12.34%)  ???:ExecInitExpr [/usr/lib/postgresql/15/bin/postgres]";
        assert_eq!(function(line), Some(("ExecInitExpr".to_owned(), 1_234_567)));
        let line = "9 ( 0.00%)  ./string/x.S:memcpy [/usr/lib/x86_64-linux-gnu/libc.so.6]";
        assert_eq!(function(line), Some(("memcpy [libc.so.6]".to_owned(), 9)));
        assert_eq!(function("12,345 (100.0%)  PROGRAM TOTALS"), None);
        assert_eq!(function("Profile data file 'callgrind.1'"), None);
    }
}
