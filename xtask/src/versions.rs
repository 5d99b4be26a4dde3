//! `versions`: runs the conformance suite on each supported version of PostgreSQL.
//!
//! The servers are npm packages with the versions of a lock file. Their install scripts are not run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tidemill_testkit::cluster::{
    Cluster, Options, SERVER_URL_VARIABLE, ServerBinaries, TEMPLATE_VARIABLE, Template,
};
use tidemill_testkit::interface::at;

use crate::{out, setup, suites, workspace};

/// Folder of the package list and its lock file.
const PACKAGES: &str = "xtask/postgres-versions";
/// The supported versions; `postgres-15` is the package of version 15.
const MAJORS: [&str; 4] = ["15", "16", "17", "18"];

/// A link that the package contains as data, because npm packages have no links.
#[derive(Deserialize)]
struct Link {
    source: PathBuf,
    target: PathBuf,
}

/// Runs the suite on these versions, or on all.
pub(crate) fn test(majors: &[&str]) -> Result<ExitCode> {
    for major in majors {
        ensure!(
            MAJORS.contains(major),
            "`{major}` is not a supported version; the versions are {}",
            MAJORS.join(", ")
        );
    }
    setup::ensure_programs()?;
    let packages = install()?;
    let built = suites::build_with(workspace::cargo(), &["--test", "conformance"])?;
    let suite = built.iter().find(|suite| suite.name.ends_with("/conformance"));
    let suite = suite.context("the workspace has no conformance suite")?;
    let mut failed = Vec::new();
    for major in MAJORS.iter().filter(|major| majors.is_empty() || majors.contains(major)) {
        let binaries = server(&packages.join(format!("postgres-{major}")))?;
        let version = version(&binaries)?;
        let started = Instant::now();
        let has_passed = run(suite, binaries).with_context(|| version.clone())?;
        let result = if has_passed { "passed" } else { "failed" };
        out::line(format!("{version}: conformance {result} after {} s", started.elapsed().as_secs()));
        if !has_passed {
            failed.push(version);
        }
    }
    ensure!(failed.is_empty(), "the conformance suite failed on {}", failed.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Runs the suite on a throwaway server, without the cases of SQLite. Returns whether it passed.
fn run(suite: &suites::Suite, binaries: ServerBinaries) -> Result<bool> {
    let options = Options { connections_max: 300, binaries: Some(binaries), ..Options::default() };
    let cluster = Cluster::start(&options)?;
    let url = cluster.url("postgres");
    let template = Template::create(&url, at(0))?;
    let status = suite
        .command()
        .args(["--quiet", "--skip", "sqlite"])
        .env(SERVER_URL_VARIABLE, &url)
        .env(TEMPLATE_VARIABLE, template.name())
        .status()
        .context("could not run the conformance suite")?;
    Ok(status.success())
}

/// Installs the packages unless they are there, and returns their folder.
fn install() -> Result<PathBuf> {
    let folder = workspace::target()?.join("postgres-versions");
    let source = workspace::root().join(PACKAGES);
    let lock =
        fs::read_to_string(source.join("package-lock.json")).context("could not read the lock file")?;
    let record = folder.join("installed.json");
    let packages = folder.join("node_modules");
    if fs::read_to_string(&record).is_ok_and(|installed| installed == lock) {
        return Ok(packages);
    }
    out::line("installing PostgreSQL 15 to 18");
    fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(source.join(name), folder.join(name)).with_context(|| format!("could not copy {name}"))?;
    }
    let status = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .status()
        .context("could not run npm")?;
    ensure!(status.success(), "npm could not install the servers");
    for major in MAJORS {
        link(&packages.join(format!("postgres-{major}")))?;
    }
    fs::write(&record, lock).context("could not record the installed versions")?;
    Ok(packages)
}

/// Creates the links of the shared libraries of a package.
fn link(package: &Path) -> Result<()> {
    let list =
        fs::read_to_string(package.join("native/pg-symlinks.json")).context("the package has no links")?;
    let links: Vec<Link> = serde_json::from_str(&list).context("the links of the package are not valid")?;
    for Link { source, target } in links {
        ensure!(source.parent() == target.parent(), "{} links to another folder", target.display());
        let name = source.file_name().context("a link has no source")?;
        symlink(name, package.join(&target))
            .with_context(|| format!("could not link {}", target.display()))?;
    }
    Ok(())
}

/// Returns the programs of a package.
fn server(package: &Path) -> Result<ServerBinaries> {
    let directory = package.join("native/bin");
    ServerBinaries::in_directory(&directory)
        .with_context(|| format!("{} contains no PostgreSQL server that runs here", directory.display()))
}

/// Returns the exact version, such as `PostgreSQL 15.18`.
fn version(binaries: &ServerBinaries) -> Result<String> {
    let output =
        Command::new(&binaries.postgres).arg("--version").output().context("could not run postgres")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (_, version) = text.split_once('(').context("postgres printed no version")?;
    Ok(version.trim().replace(')', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_locked_without_a_registry() {
        let folder = workspace::root().join(PACKAGES);
        let lock = fs::read_to_string(folder.join("package-lock.json")).unwrap();
        assert!(!lock.contains("\"resolved\"") && !lock.contains("://"));
        let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
        for major in MAJORS {
            let package = &lock["packages"][format!("node_modules/postgres-{major}")];
            assert!(package["version"].as_str().unwrap().starts_with(&format!("{major}.")), "{package}");
            assert!(package["integrity"].as_str().unwrap().starts_with("sha512-"), "{package}");
        }
    }

    #[test]
    fn links_stay_in_their_folder() {
        let package = tempfile::tempdir().unwrap();
        fs::create_dir_all(package.path().join("native/lib")).unwrap();
        let list = package.path().join("native/pg-symlinks.json");
        fs::write(&list, r#"[{"source": "native/lib/a.so.1", "target": "native/lib/a.so"}]"#).unwrap();
        link(package.path()).unwrap();
        let created = fs::read_link(package.path().join("native/lib/a.so")).unwrap();
        assert_eq!(created, Path::new("a.so.1"));
        fs::write(&list, r#"[{"source": "native/lib/a", "target": "native/b"}]"#).unwrap();
        assert!(link(package.path()).unwrap_err().to_string().contains("links to another folder"));
    }

    #[test]
    fn unknown_version_is_refused() {
        let refusal = test(&["14"]).unwrap_err().to_string();
        assert_eq!(refusal, "`14` is not a supported version; the versions are 15, 16, 17, 18");
    }
}
