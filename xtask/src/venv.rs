//! Python virtual environments below `target/`, with the packages of a committed list.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{out, workspace};

/// Installs the packages of `requirements`, a path in the repository, into a virtual environment, unless they are
/// there. `what` names them in the message.
pub(crate) fn install(folder: &Path, requirements: &str, what: &str) -> Result<()> {
    let root = workspace::root();
    let wanted = fs::read_to_string(root.join(requirements)).context("could not read the requirements")?;
    let record = folder.join("installed.txt");
    if fs::read_to_string(&record).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    out::line(format!("installing {what}"));
    let run = |program: &Path, arguments: &[&str]| -> Result<()> {
        let status = Command::new(program).args(arguments).current_dir(&root).stdin(Stdio::null()).status();
        let status = status.with_context(|| format!("could not run {}", program.display()))?;
        ensure!(status.success(), "`{} {}` failed", program.display(), arguments.join(" "));
        Ok(())
    };
    let text = folder.to_string_lossy().into_owned();
    run(Path::new("python3"), &["-m", "venv", "--clear", &text])?;
    let pip =
        ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement", requirements];
    run(&folder.join("bin/pip"), &pip)?;
    fs::write(&record, wanted).context("could not record the installed version")
}
