//! The processes of a sync: a supplier, and the roles of Tidemill, each apart, so that the cost of each is known.

use anyhow::{Context as _, Result, bail};
use sqlx::{Connection as _, PgConnection};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_core::Json;
use tidemill_testkit::cluster::Database;

/// Ticks of the kernel's clock in a second.
const TICKS: f64 = 100.0;

/// The program that is measured.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("tidemill");
    if !binary.exists() {
        bail!("{} is missing: cargo build --release --package tidemill", binary.display());
    }
    Ok(binary)
}

/// A process that ends with us.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Ends the process in good order; what it said last.
    pub(crate) fn end(mut self) -> Result<Json> {
        Command::new("kill").arg(self.0.id().to_string()).status()?;
        self.0.wait()?;
        let stdout = self.0.stdout.take().context("the process has an output")?;
        let last = BufReader::new(stdout).lines().map_while(Result::ok).last().unwrap_or_default();
        Ok(serde_json::from_str(&last).unwrap_or_default())
    }

    /// Processor seconds so far, and the most memory it had, in kB.
    pub(crate) fn cost(&self) -> (f64, u64) {
        let ticks = ticks(self.0.id());
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|text| text.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
        (ticks.map_or(0.0, |ticks| ticks.own) / TICKS, peak)
    }
}

/// What the kernel knows of a process: its parent, its own time, and that of its children that have ended.
struct Ticks {
    parent: u32,
    own: f64,
    ended: f64,
}

fn ticks(process: u32) -> Option<Ticks> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let parent = fields.get(1)?.parse().ok()?;
    Some(Ticks { parent, own: number(11) + number(12), ended: number(13) + number(14) })
}

/// What the database server has spent so far, with all of its processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    /// Processor seconds.
    pub(crate) cpu: f64,
    /// Seconds in which a session of this database was busy with a statement.
    pub(crate) active: f64,
    /// Seconds in the function that stores a page.
    pub(crate) pages: f64,
}

impl Server {
    /// Reads all of it. Sessions tell how long they were busy when they end: nobody else may be connected.
    pub(crate) async fn read(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        let (session, active, pages): (i32, f64, f64) = sqlx::query_as(
            "SELECT pg_backend_pid(), active_time, coalesce((SELECT sum(f.total_time) \
             FROM pg_stat_user_functions f WHERE f.funcname = 'store_page'), 0)::float8 \
             FROM pg_stat_database WHERE datname = current_database()",
        )
        .fetch_one(&mut conn)
        .await?;
        let session = ticks(session.unsigned_abs()).context("the server runs on this machine")?;
        let first = ticks(session.parent).context("the server runs on this machine")?;
        let mut all = first.own + first.ended;
        for entry in std::fs::read_dir("/proc")? {
            let process = entry?.file_name().to_string_lossy().parse::<u32>().ok();
            if let Some(child) = process.and_then(ticks).filter(|child| child.parent == session.parent) {
                all += child.own;
            }
        }
        conn.close().await?;
        Ok(Self { cpu: all / TICKS, active: active / 1e3, pages: pages / 1e3 })
    }
}

/// A supplier with so many stones, and where it is.
pub(crate) fn supplier(stones: u32) -> Result<(Running, String)> {
    let stones = stones.to_string();
    let mut child = Command::new(binary()?)
        .args(["supplier", "--listen", "127.0.0.1:0", "--seed", "5", "--json", "--stones", &stones])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("the supplier has an output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let said: Json = serde_json::from_str(&line).context("the supplier says where it is")?;
    let endpoint = said["endpoint"].as_str().context("the supplier says where it is")?.to_owned();
    Ok((Running(child), endpoint))
}

/// A database with one feed, and how the processes on it are set.
pub(crate) struct Mill {
    pub(crate) database: Database,
    /// Environment variables of every process.
    pub(crate) set: Vec<(&'static str, String)>,
}

impl Mill {
    /// Adds the feed.
    pub(crate) fn new(database: Database, endpoint: &str) -> Result<Self> {
        let mill = Self { database, set: Vec::new() };
        let added = mill
            .command()?
            .args(["feed", "add", "bench", "--endpoint", endpoint, "--username", "bench", "--password-env"])
            .args(["BENCH_PASSWORD", "--rate", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if added.success() { Ok(mill) } else { bail!("the feed could not be added") }
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command.env("TIDEMILL_DATABASE", &self.database.url).env("BENCH_PASSWORD", "bench");
        command.env("TIDEMILL_SYNC_UNLIMITED", "true").stdin(Stdio::null());
        command.envs(self.set.iter().map(|(name, value)| (*name, value.as_str())));
        Ok(command)
    }

    /// Starts a role, or all of them with `up`.
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

    /// One full sync, from the order to its end: the seconds that it took, and what it said.
    pub(crate) fn sync(&self, stones: u32) -> Result<(f64, Json)> {
        let began = Instant::now();
        let output =
            self.command()?.args(["feed", "sync", "bench", "--full", "--wait", "--json"]).output()?;
        let took = began.elapsed().as_secs_f64();
        if !output.status.success() {
            bail!("the sync failed: {}", String::from_utf8_lossy(&output.stdout));
        }
        let said: Json = serde_json::from_slice(&output.stdout).context("the sync says what it did")?;
        if said["sync"]["consolidation_processed"].as_i64() != Some(i64::from(stones)) {
            bail!("the sync consolidated {} stones", said["sync"]["consolidation_processed"]);
        }
        Ok((took, said))
    }
}
