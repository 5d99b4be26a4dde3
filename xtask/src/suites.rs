//! Builds and runs every test suite of the workspace, several at a time: most suites wait more than they compute.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{out, workspace};

const AT_ONCE: usize = 2;
/// The longest suites. They start first, so that none runs alone at the end.
const LONG: [&str; 11] = [
    "e2e",
    "console/console",
    "conformance",
    "sync",
    "graph",
    "sync_faults",
    "sync_servers",
    "sync_trust",
    "agent/agent",
    "live",
    "supervisor/supervisor",
];

/// Suites whose tests mostly wait for real processes, and the number of their tests that run at the same time.
const WAITING: [&str; 1] = ["e2e"];
const WAITING_AT_ONCE: &str = "4";

/// A test binary that cargo has built.
pub(crate) struct Suite {
    pub(crate) name: String,
    package: String,
    program: PathBuf,
    directory: PathBuf,
    /// The root source file of the suite.
    pub(crate) source: PathBuf,
}

impl Suite {
    /// Returns the command that runs the suite in the environment that cargo would give it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if WAITING.iter().any(|name| self.name.ends_with(name))
            && std::env::var_os("RUST_TEST_THREADS").is_none()
        {
            command.env("RUST_TEST_THREADS", WAITING_AT_ONCE);
        }
        command
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("CARGO_PKG_NAME", &self.package)
            .stdin(Stdio::null());
        command
    }
}

/// Builds and runs every suite. Returns whether all tests passed.
pub(crate) fn run(libtest: &[&str], variables: &[(&str, &str)]) -> Result<bool> {
    let mut suites = build()?;
    suites.sort_by_key(|suite| LONG.iter().position(|name| suite.name.ends_with(name)).unwrap_or(LONG.len()));
    let pending = Mutex::new(VecDeque::from(suites));
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = pending.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(suite) = next else { break };
                    if !run_suite(&suite, libtest, variables) {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(suite.name);
                    }
                }
            });
        }
    });
    let documented = workspace::cargo().args(["test", "--workspace", "--doc", "--quiet"]).status();
    let documented = documented.context("could not run cargo")?.success();
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        out::line(format!("these suites failed: {}", failed.join(", ")));
    }
    Ok(failed.is_empty() && documented)
}

/// Builds all test binaries and returns them.
pub(crate) fn build() -> Result<Vec<Suite>> {
    build_with(workspace::cargo(), &[])
}

/// Builds the tests that the arguments select, with a cargo of the caller.
pub(crate) fn build_with(mut cargo: Command, arguments: &[&str]) -> Result<Vec<Suite>> {
    let mut cargo = cargo
        .args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .context("could not run cargo")?;
    let mut suites = Vec::new();
    let output = cargo.stdout.take().context("cargo has no standard output")?;
    for line in BufReader::new(output).lines() {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        suites.extend(suite(&message));
    }
    ensure!(cargo.wait()?.success(), "the tests do not compile");
    Ok(suites)
}

/// Returns the suite of a cargo message about a test binary.
fn suite(message: &Value) -> Option<Suite> {
    let program = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let directory = manifest.parent()?.to_owned();
    let folder = directory.file_name()?.to_string_lossy().into_owned();
    // `path+file:///…/crates/cli#tidemill@0.1.0`; the name is omitted if it equals that of the folder.
    let (_, id) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = id.split_once('@').map_or(folder.as_str(), |(name, _)| name).to_owned();
    let name = format!("{folder}/{}", message["target"]["name"].as_str()?);
    let source = PathBuf::from(message["target"]["src_path"].as_str()?);
    Some(Suite { name, package, program: program.into(), directory, source })
}

/// Runs one suite, prints its output at the end, and returns whether all tests passed.
fn run_suite(suite: &Suite, libtest: &[&str], variables: &[(&str, &str)]) -> bool {
    let started = Instant::now();
    let output = suite.command().args(libtest).envs(variables.iter().copied()).output();
    let seconds = started.elapsed().as_secs();
    match output {
        Ok(output) => {
            let outcome = if output.status.success() { "passed" } else { "failed" };
            let stdout = String::from_utf8_lossy(&output.stdout);
            let stderr = String::from_utf8_lossy(&output.stderr);
            out::line(format!(
                "{}\n{}suite {}: {outcome} after {seconds} s",
                stdout.trim_end(),
                stderr,
                suite.name
            ));
            output.status.success()
        }
        Err(error) => {
            out::line(format!("suite {} could not be run: {error}", suite.name));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_test_binaries_are_suites() {
        let message = json!({
            "reason": "compiler-artifact", "manifest_path": "/w/crates/cli/Cargo.toml", "executable": "/t/e2e-1",
            "profile": {"test": true}, "target": {"name": "e2e", "src_path": "/w/crates/cli/tests/e2e/main.rs"},
            "package_id": "path+file:///w/crates/cli#tidemill@0.1.0",
        });
        let found = suite(&message).expect("a test binary is a suite");
        assert_eq!((found.name.as_str(), found.package.as_str()), ("cli/e2e", "tidemill"));
        assert_eq!(found.directory, PathBuf::from("/w/crates/cli"));
        let mut binary = message.clone();
        binary["profile"]["test"] = json!(false);
        assert!(suite(&binary).is_none());
        assert!(suite(&json!({"reason": "build-finished"})).is_none());
    }
}
