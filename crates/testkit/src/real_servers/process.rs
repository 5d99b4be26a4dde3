//! The process of a server.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use serde_json::Value;

use super::http;
use crate::cluster::{Guard, end, free_port, tail};

const START_TIMEOUT: Duration = Duration::from_mins(2);
const STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of ports to try, because another program may take a port between the check and its use.
const START_ATTEMPTS_MAX: u32 = 4;

/// A request that succeeds as soon as the server is ready.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) body: Option<Value>,
}

/// A server process with a directory of its own. Dropping it kills the process and removes the directory.
#[derive(Debug)]
pub(super) struct ServerProcess {
    name: &'static str,
    child: Child,
    port: u16,
    log: PathBuf,
    /// Owns the directory, and ends the process if this process is killed.
    guard: Guard,
}

impl ServerProcess {
    /// Creates the directory of a server.
    pub(super) fn directory() -> Result<Guard> {
        Guard::new(&std::env::temp_dir(), None, Signal::KILL)
    }

    /// Starts a server, and returns when it answers the probe. `arrange` returns the command for a port.
    pub(super) async fn start(
        name: &'static str,
        guard: Guard,
        probe: &Probe,
        arrange: impl Fn(&Guard, u16) -> Command + Send,
    ) -> Result<Self> {
        let log = guard.directory().join("server.log");
        let port = free_port()?;
        let child = spawn(name, arrange(&guard, port), &log)?;
        let mut process = Self { name, child, port, log, guard };
        let mut attempt = 1;
        loop {
            process.guard.watch(Some(process.child.id()))?;
            match process.wait(probe).await {
                Ok(()) => return Ok(process),
                Err(error) if attempt == START_ATTEMPTS_MAX || !process.lost_its_port() => return Err(error),
                Err(_) => attempt += 1,
            }
            process.port = free_port()?;
            process.child = spawn(name, arrange(&process.guard, process.port), &process.log)?;
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the directory that is removed with the process.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.guard.directory().join(file)
    }

    async fn wait(&mut self, probe: &Probe) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let sent = http::send(self.port, probe.method, probe.path, probe.body.as_ref()).await;
            // Another program could have taken the port; its answer counts only while this process runs.
            if let Some(status) = self.child.try_wait()? {
                self.guard.watch(None)?;
                bail!("{} did not start ({status}); its log ends:\n{}", self.name, tail(&self.log));
            }
            if sent.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{} was not ready in time; its log ends:\n{}", self.name, tail(&self.log));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Returns whether the last start failed because another program uses the port.
    fn lost_its_port(&self) -> bool {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        ["EADDRINUSE", "address already in use"].iter().any(|words| log.contains(words))
    }
}

fn spawn(name: &str, mut command: Command, log: &PathBuf) -> Result<Child> {
    let log = File::create(log)?;
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("could not start {name}"))
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of {} ends:\n{}", self.name, tail(&self.log));
        }
        // The guard ends the remaining processes, so a failure here is ignored.
        if end(&mut self.child, Signal::KILL, STOP_TIMEOUT).is_ok() {
            let _ = self.guard.watch(None);
        }
    }
}
