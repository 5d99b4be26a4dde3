//! Finds or installs the programs that the tests need.
//!
//! No test is skipped because a program is missing. As root on a system with apt-get it is installed; otherwise the run
//! ends with a list. The installation starts no service and creates no database cluster.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use tidemill_testkit::azurite::Azurite;
use tidemill_testkit::cluster::{ServerBinaries, find_on_path};
use tidemill_testkit::pgbouncer::Pgbouncer;

use crate::out;

/// A program that the tests run.
struct Need {
    name: &'static str,
    /// The Debian package that contains it.
    package: &'static str,
    is_installed: fn() -> bool,
}

const NEEDS: [Need; 13] = [
    Need {
        name: "PostgreSQL's server (15 or newer)",
        package: "postgresql",
        is_installed: || ServerBinaries::find().is_ok(),
    },
    Need { name: "psql", package: "postgresql-client", is_installed: || find_on_path("psql").is_some() },
    Need { name: "pgbouncer", package: "pgbouncer", is_installed: || Pgbouncer::find().is_ok() },
    Need { name: "bash", package: "bash", is_installed: || find_on_path("bash").is_some() },
    Need { name: "jq", package: "jq", is_installed: || find_on_path("jq").is_some() },
    Need { name: "curl", package: "curl", is_installed: || find_on_path("curl").is_some() },
    Need { name: "openssl", package: "openssl", is_installed: || find_on_path("openssl").is_some() },
    Need {
        name: "kubectl",
        package: "kubernetes-client",
        is_installed: || find_on_path("kubectl").is_some(),
    },
    Need { name: "dpkg-deb", package: "dpkg", is_installed: || find_on_path("dpkg-deb").is_some() },
    Need { name: "npm", package: "npm", is_installed: Azurite::can_run },
    Need { name: "chromium", package: "chromium", is_installed: || find_on_path("chromium").is_some() },
    Need {
        name: "chromium's driver",
        package: "chromium-driver",
        is_installed: || find_on_path("chromedriver").is_some(),
    },
    Need { name: "python3 with venv", package: "python3-venv", is_installed: has_venv },
];

/// Whether python3 can create a virtual environment with pip, which Debian packages separately.
fn has_venv() -> bool {
    let probe = Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}

/// Keeps Debian's packages from creating a cluster; read by `pg_createcluster`'s caller at installation.
const NO_CLUSTER: (&str, &str) =
    ("/etc/postgresql-common/createcluster.d/tidemill-tests.conf", "create_main_cluster = false\n");
/// Keeps Debian's packages from starting a service.
const NO_SERVICE: (&str, &str) = ("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n");

/// Installs the missing programs, or fails with a list of them.
pub(crate) fn ensure_programs() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let may_install = rustix::process::geteuid().is_root() && find_on_path("apt-get").is_some();
    if !may_install {
        bail!("{}", advice(&missing));
    }
    out::line(format!("installing {}, which the tests need", packages.join(", ")));
    install(&packages)?;
    let missing = self::missing();
    ensure!(missing.is_empty(), "{}", advice(&missing));
    Ok(())
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !(need.is_installed)()).collect()
}

fn advice(missing: &[&Need]) -> String {
    let names: Vec<&str> = missing.iter().map(|need| need.name).collect();
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    format!(
        "the tests need {}, which {} not installed; on Debian run as root \
         `apt-get install --no-install-recommends {}`",
        names.join(", "),
        if names.len() == 1 { "is" } else { "are" },
        packages.join(" ")
    )
}

fn install(packages: &[&str]) -> Result<()> {
    let _no_cluster = Temporary::create(NO_CLUSTER, 0o644)?;
    let _no_service = Temporary::create(NO_SERVICE, 0o755)?;
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .context("could not run apt-get")?;
    ensure!(status.success(), "`apt-get {}` failed; fix the error above and try again", arguments.join(" "));
    Ok(())
}

/// A file that exists while packages are installed. An existing file is left alone.
struct Temporary {
    created: Vec<PathBuf>,
}

impl Temporary {
    fn create((path, contents): (&str, &str), mode: u32) -> Result<Self> {
        let path = Path::new(path);
        let mut created = Vec::new();
        // New directories are removed later as well, if they are empty.
        for directory in path.ancestors().skip(1).take_while(|directory| !directory.exists()) {
            created.push(directory.to_owned());
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        match fs::File::options().write(true).create_new(true).mode(mode).open(path) {
            Ok(mut file) => {
                file.write_all(contents.as_bytes())?;
                created.insert(0, path.to_owned());
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("could not write {}", path.display())),
        }
        Ok(Self { created })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A package may have added its own files; such a directory is not empty and stays.
        for path in &self.created {
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_each_program_and_its_package() {
        let needs: Vec<&Need> = NEEDS.iter().skip(1).take(2).collect();
        let text = advice(&needs);
        assert!(text.contains("psql, pgbouncer, which are not installed"), "{text}");
        assert!(
            text.ends_with("`apt-get install --no-install-recommends postgresql-client pgbouncer`"),
            "{text}"
        );
    }

    #[test]
    fn temporary_file_is_removed_and_existing_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/file");
        let name = path.to_str().unwrap();
        let temporary = Temporary::create((name, "ours"), 0o755).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
        drop(temporary);
        assert!(!directory.path().join("a").exists());

        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "theirs").unwrap();
        drop(Temporary::create((name, "ours"), 0o755).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    }
}
