//! Fuzzing the API from its own document: no answer of 500 or more, and none that the document does not know.
//!
//! The fuzzer is schemathesis, in a virtual environment below `target/` with every package at one version. Its seed
//! and the number of its examples are fixed, so that a run takes the same time and a finding can be had again.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{out, workspace};

const REQUIREMENTS: &str = "xtask/fuzz/requirements.txt";
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// Examples for each operation and phase.
const EXAMPLES: &str = "15";
/// The time that all of it may take.
const SECONDS_MAX: &str = "75";
const SEED: &str = "20260214";

/// Fuzzes a server of its own, on a database of its own.
pub(crate) fn fuzz() -> Result<()> {
    let root = workspace::root();
    let schemathesis = install(&root)?;
    let folder = root.join("target/fuzz");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).context("could not make target/fuzz")?;
    let server = Server::start(&folder)?;
    out::line(format!("fuzzing {}", server.url));
    let status = Command::new(schemathesis)
        .current_dir(&folder)
        .arg("run")
        .arg(format!("{}/openapi.json", server.url))
        .args(["--checks", CHECKS, "--max-examples", EXAMPLES, "--seed", SEED, "--max-time", SECONDS_MAX])
        // A stream of events has no end that a fuzzer could wait for; it has tests of its own.
        .args(["--exclude-path-regex", "/stream$"])
        .args(["--phases", "examples,coverage,fuzzing", "--workers", "2", "--request-timeout", "70"])
        .args(["--generation-allow-x00", "true", "--warnings", "off", "--no-color", "--continue-on-failure"])
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", root.join("xtask/fuzz"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .status()
        .context("could not run schemathesis")?;
    ensure!(status.success(), "the API answers outside of its document; mend what schemathesis shows");
    Ok(())
}

/// The fuzzer, installed where it is missing or another version was asked for.
fn install(root: &Path) -> Result<PathBuf> {
    let place = root.join("target/fuzz-venv");
    let wanted = fs::read_to_string(root.join(REQUIREMENTS)).context("could not read the requirements")?;
    let noted = place.join("installed.txt");
    let program = place.join("bin/schemathesis");
    if program.exists() && fs::read_to_string(&noted).is_ok_and(|installed| installed == wanted) {
        return Ok(program);
    }
    out::line("installing schemathesis, which fuzzes the API");
    let run = |program: &Path, arguments: &[&str]| -> Result<()> {
        let status = Command::new(program).args(arguments).current_dir(root).stdin(Stdio::null()).status();
        let status = status.with_context(|| format!("could not run {}", program.display()))?;
        ensure!(status.success(), "`{} {}` failed", program.display(), arguments.join(" "));
        Ok(())
    };
    let text = place.to_string_lossy().into_owned();
    run(Path::new("python3"), &["-m", "venv", "--clear", &text])?;
    let pip =
        ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement", REQUIREMENTS];
    run(&place.join("bin/pip"), &pip)?;
    fs::write(&noted, wanted).context("could not note what was installed")?;
    Ok(program)
}

/// A server that ends with us.
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
        ensure!(built.success(), "the server that is fuzzed does not build");
        // Beside this program, wherever the builds of this workspace go.
        let ours = std::env::current_exe().context("could not tell where this program is")?;
        let builds = ours.parent().context("this program is in no folder")?;
        let mut child = Command::new(builds.join("examples/serve"))
            .arg(folder.join("tidemill.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("could not start the server that is fuzzed")?;
        let mut url = String::new();
        let output = child.stdout.take().context("the server has no output")?;
        BufReader::new(output).read_line(&mut url).context("the server does not say where it is")?;
        ensure!(url.starts_with("http://"), "the server that is fuzzed does not start");
        Ok(Self { child, url: url.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
