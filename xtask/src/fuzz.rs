//! Fuzzes the API from its OpenAPI document: no response of 500 or more, and none that the document does not describe.
//!
//! The fuzzer is schemathesis, in a virtual environment below `target/` with pinned packages. Its seed and the number
//! of examples are fixed, so that runs take the same time and findings can be reproduced.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{out, venv, workspace};

const REQUIREMENTS: &str = "xtask/fuzz/requirements.txt";
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// Examples for each operation and phase.
const EXAMPLES: &str = "15";
/// Time limit of the whole run.
const SECONDS_MAX: &str = "75";
const SEED: &str = "20260214";

/// Starts a server with its own database and fuzzes it.
pub(crate) fn fuzz() -> Result<()> {
    let root = workspace::root();
    let packages = root.join("target/fuzz-venv");
    venv::install(&packages, REQUIREMENTS, "schemathesis, which fuzzes the API")?;
    let schemathesis = packages.join("bin/schemathesis");
    let folder = root.join("target/fuzz");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).context("could not create target/fuzz")?;
    let server = Server::start(&folder)?;
    out::line(format!("fuzzing {}", server.url));
    let status = Command::new(schemathesis)
        .current_dir(&folder)
        .arg("run")
        .arg(format!("{}/openapi.json", server.url))
        .args(["--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", SEED, "--max-time", SECONDS_MAX])
        // An event stream has no end that a fuzzer could wait for; other tests cover it.
        .args(["--exclude-path-regex", "/stream$"])
        .args(["--phases", "examples,coverage,fuzzing", "--workers", "2", "--request-timeout", "70"])
        .args(["--generation-allow-x00", "true", "--warnings", "off", "--no-color", "--continue-on-failure"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", root.join("xtask/fuzz"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .status()
        .context("could not run schemathesis")?;
    ensure!(
        status.success(),
        "the API does not match its document; fix the failures that schemathesis reports"
    );
    Ok(())
}

/// The fuzzed server; it is killed when this is dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let built = workspace::cargo()
            .args(["build", "--workspace", "--example", "serve"])
            .status()
            .context("could not run cargo")?;
        ensure!(built.success(), "the fuzzed server does not compile");
        // The example is built into the folder of this program, for any target directory.
        let ours = std::env::current_exe().context("could not find the path of this program")?;
        let builds = ours.parent().context("the path of this program has no folder")?;
        let mut child = Command::new(builds.join("examples/serve"))
            .arg(folder.join("tidemill.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("could not start the fuzzed server")?;
        let mut url = String::new();
        let output = child.stdout.take().context("the server has no output")?;
        BufReader::new(output).read_line(&mut url).context("the fuzzed server did not print its address")?;
        ensure!(url.starts_with("http://"), "the fuzzed server did not start");
        Ok(Self { child, url: url.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
