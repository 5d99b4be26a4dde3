//! The repository on disk: its root, its files, and cargo.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context as _, Result};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // The variable is right even if the repository was moved after this program was compiled.
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().map(Path::to_owned).unwrap_or_default()
}

/// Variables that `cargo run` sets for a program. Some build scripts depend on them and would be rebuilt at each change
/// between a call from here and a call by a person.
const PACKAGE_VARIABLES: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_NAME"];

/// Returns a command for the cargo that runs this program, at the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if PACKAGE_VARIABLES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the target directory of cargo: two folders above this program.
pub(crate) fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("could not find the target directory")?;
    program.ancestors().nth(2).map(Path::to_owned).context("the target directory has no name")
}

/// Converts the exit status of a program to an exit code; a program that was killed by a signal has none.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    }
}

/// Returns every file below `directory`, sorted, without hidden directories and `target`.
pub(crate) fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        let entries =
            fs::read_dir(&directory).with_context(|| format!("could not read {}", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if kind.is_file() {
                found.push(entry.path());
            } else if kind.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                pending.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

/// Returns the last part of a path.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
