//! The repository on disk: its root, its files, and cargo.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context as _, Result};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    // What cargo says now holds even when the repository has moved since we were compiled.
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().map(Path::to_owned).unwrap_or_default()
}

/// What `cargo run` tells a program about its package. Some build scripts look at these, and would be built
/// anew each time we call cargo and each time people do.
const OF_OUR_PACKAGE: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_NAME", "CARGO_BIN_NAME"];

/// The same cargo that runs us, at the root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        if OF_OUR_PACKAGE.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Where cargo puts what it builds: two folders above us, whatever it was told.
pub(crate) fn target() -> Result<PathBuf> {
    let ourselves = std::env::current_exe().context("could not find the folder of what is built")?;
    ourselves.ancestors().nth(2).map(Path::to_owned).context("the folder of what is built has no name")
}

/// The exit code of a program as ours; a program that a signal ended has none.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    }
}

/// Every file below `directory`, sorted; hidden directories and `target` are left out.
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

/// Whether a file has this extension.
pub(crate) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

/// The last part of a path, for comparing names.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
