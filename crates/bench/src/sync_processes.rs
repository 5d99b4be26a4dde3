//! Processes of a sync: a supplier and the roles of Tidemill, so that the cost of each is known.

use crate::cpu_time::{CpuTime, server_secs};
use anyhow::{Context as _, Result, bail};
use sqlx::{Connection as _, PgConnection};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_core::Json;
use tidemill_testkit::cluster::Database;

/// Path of the measured binary.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("tidemill");
    if !binary.exists() {
        bail!("{} does not exist; build it with cargo build --release --package tidemill", binary.display());
    }
    Ok(binary)
}

/// A process that is killed when it is dropped.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Stops the process with SIGTERM, and returns its last line of output.
    pub(crate) fn stop(mut self) -> Result<Json> {
        Command::new("kill").arg(self.0.id().to_string()).status()?;
        self.0.wait()?;
        let stdout = self.0.stdout.take().context("standard output is a pipe")?;
        let last = BufReader::new(stdout).lines().map_while(Result::ok).last().unwrap_or_default();
        Ok(serde_json::from_str(&last).unwrap_or_default())
    }

    /// CPU seconds so far, and peak memory in kB.
    pub(crate) fn cost(&self) -> (f64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|text| text.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
        (CpuTime::of(self.0.id()).map_or(0.0, |time| time.own_secs()), peak)
    }
}

/// CPU and activity of the database server with all of its processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerCost {
    pub(crate) cpu: f64,
    /// Seconds during which sessions of this database executed statements.
    pub(crate) active: f64,
    /// Seconds in the function that stores a page.
    pub(crate) pages: f64,
}

impl ServerCost {
    /// Reads the counters. Sessions report their activity when they end, so no other session may be connected.
    pub(crate) async fn read(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        let (session, active, pages): (i32, f64, f64) = sqlx::query_as(
            "SELECT pg_backend_pid(), active_time, coalesce((SELECT sum(f.total_time) \
             FROM pg_stat_user_functions f WHERE f.funcname = 'store_page'), 0)::float8 \
             FROM pg_stat_database WHERE datname = current_database()",
        )
        .fetch_one(&mut conn)
        .await?;
        let session = CpuTime::of(session.unsigned_abs()).context("the server must run on this machine")?;
        let cpu = server_secs(session.parent)?;
        conn.close().await?;
        Ok(Self { cpu, active: active / 1e3, pages: pages / 1e3 })
    }
}

/// Starts a supplier, and returns its address.
pub(crate) fn supplier(stones: u32) -> Result<(Running, String)> {
    let stones = stones.to_string();
    let mut child = Command::new(binary()?)
        .args(["supplier", "--listen", "127.0.0.1:0", "--seed", "5", "--json", "--stones", &stones])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("standard output is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let output: Json = serde_json::from_str(&line).context("the supplier prints its address")?;
    let endpoint = output["endpoint"].as_str().context("the supplier prints its address")?.to_owned();
    Ok((Running(child), endpoint))
}

/// A database with one feed, and the settings of its processes.
pub(crate) struct SyncProcesses {
    pub(crate) database: Database,
    /// Environment variables of every process.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl SyncProcesses {
    pub(crate) fn new(database: Database, endpoint: &str) -> Result<Self> {
        let processes = Self { database, environment: Vec::new() };
        let added = processes
            .command()?
            .args(["feed", "add", "bench", "--endpoint", endpoint, "--username", "bench", "--password-env"])
            .args(["BENCH_PASSWORD", "--rate", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if added.success() { Ok(processes) } else { bail!("could not add the feed") }
    }

    /// Applies a feed definition, whose feed must be `bench`, and creates its table.
    pub(crate) fn with_definition(database: Database, definition: &str) -> Result<Self> {
        let processes = Self { database, environment: Vec::new() };
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(definition.as_bytes())?;
        let mut apply = processes.command()?;
        let applied = apply.args(["feed", "apply", "--yes"]).arg(file.path()).output()?;
        if !applied.status.success() {
            bail!("could not apply the definition: {}", String::from_utf8_lossy(&applied.stderr));
        }
        Ok(processes)
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.env("TIDEMILL_DATABASE", &self.database.url).env("BENCH_PASSWORD", "bench");
        command.env("TIDEMILL_SYNC_UNLIMITED", "true").stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (*name, value.as_str())));
        Ok(command)
    }

    /// Starts a role, or all roles with `up`.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Running> {
        let child = self
            .command()?
            .args(arguments)
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(Running(child))
    }

    /// Runs a full sync, and returns its duration in seconds and its output.
    pub(crate) fn sync(&self, stones: u32) -> Result<(f64, Json)> {
        let started = Instant::now();
        let ended = self.command()?.args(["feed", "sync", "bench", "--full", "--wait", "--json"]).output()?;
        let took = started.elapsed().as_secs_f64();
        if !ended.status.success() {
            bail!("the sync failed: {}", String::from_utf8_lossy(&ended.stdout));
        }
        let output: Json = serde_json::from_slice(&ended.stdout).context("the output of the sync is JSON")?;
        if output["sync"]["consolidation_processed"].as_i64() != Some(i64::from(stones)) {
            bail!("the sync consolidated {} stones", output["sync"]["consolidation_processed"]);
        }
        Ok((took, output))
    }
}
