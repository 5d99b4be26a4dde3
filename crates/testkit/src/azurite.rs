//! A throwaway Azurite: Microsoft's Azure Blob Storage emulator, installed from npm with the versions of a lock file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use uuid::Uuid;

use crate::cluster::{Guard, end, find_on_path, tail};

const PACKAGE: &str = include_str!("../azurite/package.json");
const LOCK: &str = include_str!("../azurite/package-lock.json");
const CONTAINER: &str = include_str!("../azurite/container.mjs");

const ACCOUNT: &str = "tidemill";
const START_TIMEOUT: Duration = Duration::from_mins(1);
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
const LISTENS: &str = "successfully listens on http://127.0.0.1:";

/// An Azurite process that stores everything in memory. Dropping it stops the process.
#[derive(Debug)]
pub struct Azurite {
    process: Child,
    port: u16,
    key: String,
    /// Owns the directory, and ends the process if this process is killed.
    guard: Guard,
}

impl Azurite {
    /// Returns whether the programs that install and run Azurite exist.
    pub fn can_run() -> bool {
        find_on_path("npm").is_some() && find_on_path("node").is_some()
    }

    /// Installs Azurite below `cache` unless it is there, starts it on a free port of 127.0.0.1, and returns when it
    /// listens. Its only account has a random key.
    pub fn start(cache: &Path) -> Result<Self> {
        let installed = install(cache)?;
        // A key is 64 bytes in Base64. A text of that length needs no encoder.
        let key = format!("{}{}{}==", Uuid::new_v4().simple(), Uuid::new_v4().simple(), "A".repeat(22));
        let mut guard = Guard::new(&std::env::temp_dir(), None, Signal::KILL)?;
        let log_path = guard.directory().join("azurite.log");
        let log = File::create(&log_path)?;
        let process = guard
            .command(&node()?, None)
            .arg(installed.join("node_modules/azurite/dist/src/blob/main.js"))
            .args(["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"])
            .args(["--blobHost", "127.0.0.1", "--blobPort", "0"])
            .env("AZURITE_ACCOUNTS", format!("{ACCOUNT}:{key}"))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("could not start node")?;
        guard.watch(Some(process.id()))?;
        let mut azurite = Self { process, port: 0, key, guard };
        azurite.port = azurite.wait_for_port(&log_path)?;
        Ok(azurite)
    }

    /// Returns the environment variables that a client needs.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
            ("AZURITE_BLOB_STORAGE_URL", self.url()),
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", self.key.clone()),
        ]
    }

    /// Creates a container in the account.
    pub fn create_container(&self, name: &str) -> Result<()> {
        let script = self.guard.directory().join("container.mjs");
        fs::write(&script, CONTAINER)?;
        let made = Command::new(node()?)
            .arg(&script)
            .args([&self.url(), name])
            .envs(self.environment())
            .stdin(Stdio::null())
            .output()
            .context("could not run node")?;
        let returned = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "could not make the container `{name}`: {returned}");
        Ok(())
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn wait_for_port(&mut self, log: &Path) -> Result<u16> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let text = fs::read_to_string(log).unwrap_or_default();
            if let Some(port) = port(&text) {
                return Ok(port);
            }
            if let Some(status) = self.process.try_wait()? {
                self.guard.watch(None)?;
                bail!("Azurite did not start ({status}); its log ends:\n{}", tail(log));
            }
            ensure!(Instant::now() < deadline, "Azurite was not ready in time; its log ends:\n{}", tail(log));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // The guard ends the remaining processes, so a failure here is ignored.
        if end(&mut self.process, Signal::KILL, STOP_TIMEOUT).is_ok() {
            let _ = self.guard.watch(None);
        }
    }
}

fn node() -> Result<PathBuf> {
    find_on_path("node").context("`node` was not found; on Debian run `apt-get install npm`")
}

/// Parses the port from a complete line of the log.
fn port(log: &str) -> Option<u16> {
    let (_, rest) = log.split_once(LISTENS)?;
    let (port, _) = rest.split_once('\n')?;
    port.trim().parse().ok()
}

/// Returns the directory with Azurite as the lock file describes it. Concurrent callers wait for the first one.
fn install(cache: &Path) -> Result<PathBuf> {
    let folder = cache.join("azurite");
    fs::create_dir_all(&folder)?;
    let turn = File::create(folder.join("turn"))?;
    turn.lock().context("could not wait for another installation of Azurite")?;
    let done = folder.join("installed.json");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == LOCK) {
        return Ok(folder);
    }
    let npm = find_on_path("npm").context("`npm` was not found; on Debian run `apt-get install npm`")?;
    fs::write(folder.join("package.json"), PACKAGE)?;
    fs::write(folder.join("package-lock.json"), LOCK)?;
    let output = Command::new(npm)
        .args(["ci", "--omit=dev", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .context("could not run npm")?;
    let returned = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`npm ci` could not install Azurite: {returned}");
    fs::write(&done, LOCK)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_a_whole_line_only() {
        assert_eq!(port("Azurite Blob service successfully listens on http://127.0.0.1:4280"), None);
        assert_eq!(
            port("Azurite Blob service successfully listens on http://127.0.0.1:42809\n"),
            Some(42809)
        );
    }

    #[test]
    fn the_lock_file_names_no_registry() {
        assert!(!LOCK.contains("\"resolved\""));
        assert!(LOCK.contains("\"integrity\""));
    }
}
