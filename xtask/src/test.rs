//! `test`, `soak` and `bench`: cargo's own runners, with a database server set up for them.

use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use tidemill_testkit::cluster::{Cluster, Options, SERVER_URL_VARIABLE, TEMPLATE_VARIABLE, Template};
use tidemill_testkit::door::at;

use crate::{broken, fuzz, out, setup, suites, workspace};

/// How long each long simulation runs.
const SOAK_MINUTES_VARIABLE: &str = "TIDEMILL_SOAK_MINUTES";

/// Runs every test of the workspace, fuzzes the API, then puts faults in and sees that the tests notice.
pub(crate) fn test(libtest: &[&str]) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let server = Server::for_tests()?;
    let template = Template::create(&server.url, at(0))?;
    let variables = [(SERVER_URL_VARIABLE, server.url.as_str()), (TEMPLATE_VARIABLE, template.name())];
    if !suites::run(libtest, &variables)? {
        return Ok(ExitCode::FAILURE);
    }
    if libtest.is_empty() {
        // The fuzzer takes as long as it may, whatever else is done, and leaves a processor to the build of the faults.
        thread::scope(|scope| {
            let fuzzed = scope.spawn(fuzz::fuzz);
            let caught = broken::faults(&server.url);
            fuzzed.join().map_err(|_| anyhow!("the fuzzing broke off"))??;
            caught
        })?;
    } else {
        out::line("the API is fuzzed, and faults are put in, only by `cargo xtask test` without a filter");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the long simulations, optimised.
pub(crate) fn soak(minutes: u32) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let server = Server::for_tests()?;
    let status = workspace::cargo()
        .args(["test", "--workspace", "--release", "--no-fail-fast", "--", "--ignored", "soak"])
        .env(SERVER_URL_VARIABLE, &server.url)
        .env(SOAK_MINUTES_VARIABLE, minutes.to_string())
        .status()
        .context("could not run cargo")?;
    Ok(workspace::exit_code(status))
}

/// Has the browser tests of the console leave a picture of each page in a folder.
pub(crate) fn screenshots(folder: &str) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let folder = std::path::absolute(folder).with_context(|| format!("`{folder}` is no folder"))?;
    let status = workspace::cargo()
        .args(["test", "--package", "tidemill-console", "--test", "console", "--", "--include-ignored"])
        .args(["every_page_fits", "pages_of_graphs_fit", "a_failing_sync_is_seen"])
        .arg("the_documentation_has_a_picture")
        .env("TIDEMILL_SCREENSHOTS", &folder)
        .status()
        .context("could not run cargo")?;
    Ok(workspace::exit_code(status))
}

/// Runs one benchmark, optimised.
pub(crate) fn bench(name: &str, options: &[&str]) -> Result<ExitCode> {
    // Some benchmarks drive the binary itself, in processes of its own. Built together, both share their libraries;
    // apart, each would have them built anew with features of its own.
    let both = ["--package", "tidemill", "--package", "tidemill-bench"];
    let built = workspace::cargo().args(["build", "--release"]).args(both).status();
    let built = built.context("could not run cargo")?;
    if !built.success() {
        return Ok(workspace::exit_code(built));
    }
    let bench = workspace::target()?.join("release/tidemill-bench");
    let status = Command::new(&bench)
        .arg(name)
        .args(options)
        .status()
        .with_context(|| format!("could not run {}", bench.display()))?;
    Ok(workspace::exit_code(status))
}

/// The PostgreSQL server of one run: the user's, or one that ends with us.
pub(crate) struct Server {
    url: String,
    /// Held for its drop.
    _own: Option<Cluster>,
}

impl Server {
    /// The variables by which tests find it.
    pub(crate) fn variables(&self) -> [(&'static str, &str); 1] {
        [(SERVER_URL_VARIABLE, &self.url)]
    }

    pub(crate) fn for_tests() -> Result<Self> {
        if let Ok(url) = std::env::var(SERVER_URL_VARIABLE) {
            out::line(format!("the tests use the PostgreSQL server of {SERVER_URL_VARIABLE}"));
            return Ok(Self { url, _own: None });
        }
        let cluster = Cluster::start(&Options { connections_max: 300, ..Options::default() })?;
        out::line(format!(
            "the tests use a throwaway PostgreSQL {} on port {}",
            cluster.version_major(),
            cluster.port()
        ));
        Ok(Self { url: cluster.url("postgres"), _own: Some(cluster) })
    }
}
