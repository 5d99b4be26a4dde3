//! `test`, `soak`, `screenshots` and `bench`: run cargo's test and benchmark binaries with a database server.

use std::process::{Command, ExitCode};
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use tidemill_testkit::cluster::{Cluster, Options, SERVER_URL_VARIABLE, TEMPLATE_VARIABLE, Template};
use tidemill_testkit::interface::at;

use crate::{
    check, clients, deploy, deploy_files, faults, fuzz, out, setup, suites, venv, versions, workspace,
};

/// Duration of each long simulation in minutes.
const SOAK_MINUTES_VARIABLE: &str = "TIDEMILL_SOAK_MINUTES";

/// Runs every test of the workspace. Without a filter it also checks the files of `deploy/`, fuzzes the API, checks the
/// generated clients and injects faults.
pub(crate) fn test(libtest: &[&str]) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let server = Server::for_tests()?;
    let template = Template::create(&server.url, at(0))?;
    let variables = [(SERVER_URL_VARIABLE, server.url.as_str()), (TEMPLATE_VARIABLE, template.name())];
    if !suites::run(libtest, &variables)? {
        return Ok(ExitCode::FAILURE);
    }
    if libtest.is_empty() {
        deploy_files::compose()?;
        deploy_files::terraform()?;
        // The faults replace the binary of this server, so it starts before them.
        let api = clients::Server::start()?;
        // The fuzzer always uses its whole time limit and only one core, so the faults are built beside it.
        thread::scope(|scope| {
            let fuzzed = scope.spawn(fuzz::fuzz);
            let deployed = scope.spawn(deploy::check);
            let checked = scope.spawn(|| clients::check(&api));
            let caught = faults::check(&server.url, None);
            deployed.join().map_err(|_| anyhow!("the check of deploy/ panicked"))??;
            fuzzed.join().map_err(|_| anyhow!("the fuzzer panicked"))??;
            checked.join().map_err(|_| anyhow!("the check of the clients panicked"))??;
            caught
        })?;
    } else {
        out::line(
            "skipped fuzzing, generated clients, faults and the files of deploy/ because of the filter; run \
             `cargo xtask test` without one to include them",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the tests catch each fault, or the one called `name`.
pub(crate) fn faults(name: Option<&str>) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let server = Server::for_tests()?;
    faults::check(&server.url, name)?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the files of `deploy/` for Compose, Terraform, Kubernetes and Helm.
pub(crate) fn deploy() -> Result<ExitCode> {
    setup::ensure_programs()?;
    deploy_files::compose()?;
    deploy_files::terraform()?;
    deploy::check()?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the long simulations with the release profile, and the conformance suite on each version of PostgreSQL.
pub(crate) fn soak(minutes: u32) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let server = Server::for_tests()?;
    let status = workspace::cargo()
        .args(["test", "--workspace", "--release", "--no-fail-fast", "--", "--ignored", "soak"])
        .env(SERVER_URL_VARIABLE, &server.url)
        .env(SOAK_MINUTES_VARIABLE, minutes.to_string())
        .status()
        .context("could not run cargo")?;
    if !status.success() {
        return Ok(workspace::exit_code(status));
    }
    versions::test(&[])
}

/// Runs the browser tests that write a picture of each console page to a folder.
pub(crate) fn screenshots(folder: &str) -> Result<ExitCode> {
    setup::ensure_programs()?;
    let folder = std::path::absolute(folder).with_context(|| format!("invalid folder `{folder}`"))?;
    let status = workspace::cargo()
        .args(["test", "--package", "tidemill-console", "--test", "console", "--", "--include-ignored"])
        .args(["every_page_fits", "pages_of_graphs_fit", "a_failing_sync_is_seen"])
        .arg("documentation_screenshots_are_taken")
        .env("TIDEMILL_SCREENSHOTS", &folder)
        .status()
        .context("could not run cargo")?;
    Ok(workspace::exit_code(status))
}

/// Benchmarks that only count what the server does, so that the client need not be optimised.
const COUNTING: [&str; 1] = ["instructions"];

/// The workspace of other queues, and the package of each.
const PEERS_MANIFEST: &str = "crates/bench/peers/Cargo.toml";
const PEERS_TARGET: &str = "crates/bench/peers/target";
const PEERS: [&str; 3] = ["peer-graphile", "peer-river", "peer-awa"];

/// Builds the programs that drive other queues. The benchmark skips those that could not be built.
fn build_peers() -> Result<()> {
    let build = |packages: &[&str]| {
        let mut cargo = workspace::cargo();
        // The benchmark looks for the programs there, also if CARGO_TARGET_DIR is set.
        cargo.args(["build", "--release", "--locked", "--target-dir", PEERS_TARGET]);
        cargo.args(["--manifest-path", PEERS_MANIFEST]);
        cargo.args(packages).status().context("could not run cargo")
    };
    if build(&["--workspace"])?.success() {
        return Ok(());
    }
    for package in PEERS {
        if !build(&["--package", package])?.success() {
            out::line(format!("{package} could not be built, so this queue is skipped"));
        }
    }
    Ok(())
}

/// Packages of dlt, with which syncs of a REST API are compared.
const DLT_REQUIREMENTS: &str = "crates/bench/dlt/requirements.txt";

/// Installs dlt. The benchmark skips it if it could not be installed.
fn install_dlt() -> Result<()> {
    let folder = workspace::target()?.join("dlt-venv");
    if let Err(error) = venv::install(&folder, DLT_REQUIREMENTS, "dlt, with which syncs are compared") {
        out::line(format!("dlt could not be installed, so it is skipped: {error:#}"));
    }
    Ok(())
}

/// Runs one benchmark with the release profile, unless it only counts.
pub(crate) fn bench(name: &str, options: &[&str]) -> Result<ExitCode> {
    for finding in check::frozen::findings(&workspace::root())? {
        out::line(format!("warning: {finding}"));
    }
    if name == "peers" {
        build_peers()?;
    }
    if name == "sync" && options.windows(2).any(|pair| pair == ["--feed", "rest"]) {
        install_dlt()?;
    }
    // Some benchmarks start the binary. Built together, both share their dependencies; built separately, cargo would
    // compile them twice with different features.
    let both = ["--package", "tidemill", "--package", "tidemill-bench"];
    let (profile, folder): (&[&str], &str) =
        if COUNTING.contains(&name) { (&[], "debug") } else { (&["--release"], "release") };
    let built = workspace::cargo().arg("build").args(profile).args(both).status();
    let built = built.context("could not run cargo")?;
    if !built.success() {
        return Ok(workspace::exit_code(built));
    }
    let bench = workspace::target()?.join(folder).join("tidemill-bench");
    let status = Command::new(&bench)
        .arg(name)
        .args(options)
        .status()
        .with_context(|| format!("could not run {}", bench.display()))?;
    Ok(workspace::exit_code(status))
}

/// The PostgreSQL server of a test run: that of the user, or a throwaway one.
pub(crate) struct Server {
    url: String,
    /// Stops the throwaway server when it is dropped.
    _own: Option<Cluster>,
}

impl Server {
    /// Returns the environment variables that point the tests to the server.
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
