//! Finds PostgreSQL's server programs on this machine.
//!
//! Distributions keep `initdb` and `postgres` off the `PATH`, so the usual directories are searched too.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

/// The oldest supported PostgreSQL version.
pub const POSTGRES_MAJOR_MIN: u32 = 15;

/// The programs of one PostgreSQL installation.
#[derive(Clone, Debug)]
pub struct ServerBinaries {
    pub initdb: PathBuf,
    pub postgres: PathBuf,
    /// Major version of the server.
    pub version_major: u32,
}

impl ServerBinaries {
    /// Finds the first installation that is new enough: on the `PATH`, from Debian packages, or by `pg_config`.
    pub fn find() -> Result<Self> {
        let mut too_old = None;
        for directory in candidates() {
            let Some(binaries) = Self::in_directory(&directory) else { continue };
            if binaries.version_major >= POSTGRES_MAJOR_MIN {
                return Ok(binaries);
            }
            too_old.get_or_insert(binaries.version_major);
        }
        match too_old {
            Some(major) => bail!(
                "PostgreSQL {major} is installed, and {POSTGRES_MAJOR_MIN} or newer is needed; \
                 on Debian run `apt-get install postgresql`"
            ),
            None => bail!(
                "PostgreSQL's server programs `initdb` and `postgres` were not found; \
                 on Debian run `apt-get install postgresql`"
            ),
        }
    }

    /// Returns the programs in a directory, if both are there and run.
    pub fn in_directory(directory: &Path) -> Option<Self> {
        let postgres = executable(&directory.join("postgres"))?;
        // A link on the `PATH` may name only one of the two programs, so the link is resolved.
        let home = fs::canonicalize(&postgres).ok()?.parent()?.to_owned();
        let initdb = executable(&home.join("initdb"))?;
        let output = Command::new(&postgres).arg("--version").output().ok()?;
        let version_major = major(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { initdb, postgres: home.join("postgres"), version_major })
    }
}

/// Returns the first program of this name on the `PATH`.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    path_directories().iter().find_map(|directory| executable(&directory.join(name)))
}

fn path_directories() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

fn candidates() -> Vec<PathBuf> {
    let mut directories = path_directories();
    let mut packaged: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    packaged.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    directories.extend(packaged.into_iter().map(|(_, directory)| directory));
    if let Some(output) = find_on_path("pg_config")
        .and_then(|pg_config| Command::new(pg_config).arg("--bindir").output().ok())
        .filter(|output| output.status.success())
    {
        directories.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    directories
}

/// Returns the path if it is an executable file.
pub(crate) fn executable(path: &Path) -> Option<PathBuf> {
    let metadata = fs::metadata(path).ok()?;
    (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then(|| path.to_owned())
}

/// Returns the first number in the version output of a program.
fn major(text: &str) -> Option<u32> {
    let digits = text.trim_start_matches(|character: char| !character.is_ascii_digit());
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major("postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major("nonsense"), None);
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_found() {
        assert!(find_on_path("sh").is_some());
        assert!(find_on_path("no-such-program-anywhere").is_none());
    }
}
