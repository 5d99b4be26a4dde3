//! `tidemill demo`: syncs from a simulated supplier into a new database.
//!
//! A full sync during which a worker is killed, an incremental sync, and a full sync that marks removed stones. After
//! each, the table is compared with the data of the supplier.

use super::DemoArgs;
use super::console::DemoConsole;
use crate::commands::sync::watch::{bar, describe_progress};
use crate::config::Config;
use crate::failure::Failure;
use crate::out::{Line, Out, Style};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidemill_core::feed::Feed;
use tidemill_core::reach::DefinedBy;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId, digest};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{FeedChange, SyncStatus, Syncs};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{Options, Store};
use tidemill_supplier::{Change, ChangeKind, RunningSupplier, Supplier};
use tokio::process::{Child, Command};

const FEED: &str = "demo";
const WORKERS: usize = 2;
/// Time limit of one sync.
const SYNC_TIMEOUT: Duration = Duration::from_mins(10);
/// Shorter intervals than the defaults, so that the death of the worker is detected soon.
const FAST_SETTINGS: &[(&str, &str)] = &[
    ("TIDEMILL_WORKER_BEAT", "500ms"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "3s"),
    ("TIDEMILL_UPKEEP_EVERY", "500ms"),
    ("TIDEMILL_UPKEEP_IDLE", "1s"),
    ("TIDEMILL_SYNC_UNLIMITED", "true"),
];

pub(super) async fn demo(args: DemoArgs, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let directory = super::create_directory()?;
    let result = Box::pin(run(&args, config, &directory, out)).await;
    match &args.keep {
        Some(path) => out.inform(format!("hint: tidemill --database {} sync list", path.display())),
        None => {
            let _ = std::fs::remove_dir_all(&directory);
        }
    }
    result
}

async fn run(args: &DemoArgs, config: &Config, directory: &Path, out: Out) -> Result<ExitCode, Failure> {
    let mut options = crate::commands::options(config);
    if config.database == Config::default().database {
        let file = args.keep.clone().unwrap_or_else(|| directory.join("demo.db"));
        if file.exists() {
            return Err(super::file_exists(&file));
        }
        options = Options::new(file.display().to_string(), host_now);
    }
    let mut demo = Demo::prepare(args.stones, options, config, directory, out).await?;
    let result = if args.serve {
        let console = DemoConsole::open(&demo.syncs, config, args, out).await?;
        console.run_beside(Box::pin(demo.run()), out).await
    } else {
        demo.run().await
    };
    demo.end().await;
    result
}

struct Demo {
    syncs: Syncs,
    supplier: RunningSupplier,
    database: String,
    directory: PathBuf,
    roles: Vec<(String, Child)>,
    started: Instant,
    stones: u32,
    out: Out,
}

/// Result of one sync.
struct SyncResult {
    sync: Sync,
    seconds: f64,
    digest: String,
    stones: usize,
}

impl Demo {
    async fn prepare(
        stones: u32,
        options: Options,
        config: &Config,
        directory: &Path,
        out: Out,
    ) -> Result<Self, Failure> {
        let started = Instant::now();
        let store = Store::open(&options).await?;
        store.migrate(None).await?;
        let settings = tidemill_engine::sync::SyncSettings {
            unlimited: true,
            heartbeat_every: Duration::from_millis(500),
            ..config.sync()
        };
        let engine = Engine::new(store, Clock::Database, RetryPolicy::For(Duration::from_secs(10)));
        let syncs = Syncs::new(engine, settings);
        let supplier =
            tidemill_supplier::Config { stones, seed: 2_026, ..tidemill_supplier::Config::default() };
        let supplier =
            Supplier::bind(supplier).await.map_err(|error| Failure::outage(error.to_string()))?.spawn();
        let feed = Feed {
            feed: FEED.to_owned(),
            project_id: "default".to_owned(),
            kind: "nivoda".to_owned(),
            endpoint: supplier.endpoint.clone(),
            username: Some("demo".to_owned()),
            password_env: Some("TIDEMILL_DEMO_PASSWORD".to_owned()),
            rate: 0,
            settings: Json::Object(serde_json::Map::new()),
            defined_by: DefinedBy::Operator,
            created_at: host_now(),
        };
        let change = FeedChange {
            feed,
            definition: None,
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: "UTC".to_owned(),
        };
        syncs.put_feed(change).await?;
        let directory = directory.to_owned();
        Ok(Self {
            syncs,
            supplier,
            database: options.url,
            directory,
            roles: Vec::new(),
            started,
            stones,
            out,
        })
    }

    async fn run(&mut self) -> Result<ExitCode, Failure> {
        let location = self.syncs.engine().store().location();
        self.log(
            &format!("a supplier with {} stones is at {}", self.stones, self.supplier.endpoint),
            Style::Bold,
        );
        self.log(&format!("the table is in {location}, and empty"), Style::Bold);
        for number in 1..=WORKERS {
            self.start(&format!("worker-{number}"), &["worker", "--pages-min", "2", "--pages-max", "4"])?;
        }
        self.start("scheduler", &["scheduler"])?;
        self.start("consolidator", &["consolidator"])?;
        self.log(&format!("{WORKERS} workers, a scheduler and a consolidator run as processes"), Style::Bold);

        self.log("1. a full sync; one worker is killed during it", Style::Bold);
        let (full, killed) = self.sync(false, true).await?;
        let mut equal = self.check(&full);
        self.log_rate(&full).await?;

        let count = (self.stones / 100).max(1);
        self.log(
            &format!("2. {count} stones change their price or picture; an incremental sync fetches them"),
            Style::Bold,
        );
        self.change(ChangeKind::Price, count / 2 + 1, 11)?;
        self.change(ChangeKind::Media, count / 2 + 1, 12)?;
        let (changed, _) = self.sync(false, false).await?;
        equal &= self.check(&changed);

        self.log(&format!("3. {count} stones are removed; a full sync marks them as deleted"), Style::Bold);
        self.change(ChangeKind::Vanish, count, 13)?;
        let (removed, _) = self.sync(true, false).await?;
        equal &= self.check(&removed);

        let seconds = self.started.elapsed().as_secs_f64();
        let style = if equal { Style::Success } else { Style::Error };
        let summary = if equal {
            "the table matched the supplier after each sync"
        } else {
            "the table does not match the supplier"
        };
        self.log(&format!("{summary}; {seconds:.1} s in total"), style);
        if self.out.is_json() {
            let entry = |result: &SyncResult| {
                serde_json::json!({
                    "sync": result.sync.run_id, "run_type": result.sync.run_type.as_str(), "seconds": result.seconds,
                    "partitions": result.sync.expected_workers, "count_calls": result.sync.count_calls,
                    "records": result.sync.consolidation_processed, "deleted": result.sync.deleted,
                    "stones": result.stones, "checksum": result.digest, "watermark": result.sync.watermark_after,
                })
            };
            self.out.print_json(&serde_json::json!({
                "equal": equal, "stones": self.stones, "seconds": seconds, "killed": killed,
                "full": entry(&full), "incremental": entry(&changed), "deleted": entry(&removed),
            }));
        }
        Ok(if equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// Starts a role as a process of its own, which can be killed.
    fn start(&mut self, name: &str, role: &[&str]) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::outage(format!("could not start {name}: {error}"));
        let log = std::fs::File::create(self.directory.join(format!("{name}.log"))).map_err(failed)?;
        let child = Command::new("/proc/self/exe")
            .args(role)
            .envs(FAST_SETTINGS.iter().copied())
            .env("TIDEMILL_DATABASE", &self.database)
            .env("TIDEMILL_DEMO_PASSWORD", "demo")
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        self.roles.push((name.to_owned(), child));
        Ok(())
    }

    /// Follows a sync until it ends. Returns the name of the worker that was killed during it.
    async fn sync(&mut self, full: bool, kill: bool) -> Result<(SyncResult, Option<String>), Failure> {
        let started = Instant::now();
        let run = self.syncs.start(FEED, full, None).await?.run_id;
        let mut killed = None;
        let mut step = 0;
        loop {
            let status = self.syncs.status(run.as_str()).await.ok();
            if let Some(status) = &status {
                self.show(&describe_progress(status));
                self.log_milestones(status, &mut step);
                let read: i64 = status.partitions.iter().map(|one| i64::from(one.next_offset)).sum();
                if kill && killed.is_none() && read * 3 > status.sync.predicted {
                    killed = self.kill_worker();
                }
            }
            let found = self.syncs.engine().run(&run).await?;
            if found.status.is_terminal() {
                self.show("");
                return self.read_result(&run, found.status, started).await.map(|result| (result, killed));
            }
            if started.elapsed() > SYNC_TIMEOUT {
                return Err(Failure::outage(format!(
                    "the sync did not end within {} s",
                    SYNC_TIMEOUT.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Logs the end of the scan and of the fetch.
    fn log_milestones(&self, status: &SyncStatus, step: &mut u8) {
        use tidemill_core::sync::SyncState as S;
        let sync = &status.sync;
        if *step == 0 {
            self.log(
                &format!(
                    "   scanned: {} records in {} partitions, {} count calls",
                    sync.predicted, sync.expected_workers, sync.count_calls
                ),
                Style::Plain,
            );
            *step = 1;
        }
        if *step == 1 && matches!(sync.state, S::ConsolidationTriggered | S::Consolidating | S::Completed) {
            self.log(&format!("   fetched: {} all partitions", bar(1, 1)), Style::Plain);
            *step = 2;
        }
    }

    fn kill_worker(&mut self) -> Option<String> {
        let (name, child) = self.roles.first_mut()?;
        child.start_kill().ok()?;
        let name = name.clone();
        self.log(
            &format!("   {name} was killed (SIGKILL) while it fetched pages; the other worker continues"),
            Style::Warning,
        );
        Some(name)
    }

    /// Reads the result of a sync and the checksum of the table.
    async fn read_result(
        &self,
        run: &RunId,
        status: RunState,
        started: Instant,
    ) -> Result<SyncResult, Failure> {
        if status != RunState::Success {
            let found = self.syncs.engine().run(run).await?;
            let error = found.metadata.get("error").and_then(Json::as_str).unwrap_or("no error message");
            return Err(Failure::outage(format!("the sync ended as {status}: {error}")));
        }
        let sync = self.syncs.engine().store().sync(run.to_string()).await?;
        let seconds = started.elapsed().as_secs_f64();
        let mut lines = String::new();
        let (mut after, mut stones) = (String::new(), 0);
        loop {
            let rows = self.syncs.engine().store().proof_rows(FEED.to_owned(), after.clone(), 5_000).await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(&last.stone_id);
            for row in &rows {
                line(&mut lines, &row.stone_id, &hex(&row.payload_hash), row.feed_price, row.retail_price);
            }
            stones += rows.len();
        }
        Ok(SyncResult { sync, seconds, digest: digest::sha256_hex(lines.as_bytes()), stones })
    }

    /// Compares the result with the supplier, with prices computed here: 15 % markup, rounded half up.
    fn check(&self, result: &SyncResult) -> bool {
        let mut source = self.supplier.handle.truth();
        source.retain(|stone| stone.available);
        source.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        let mut lines = String::new();
        for stone in &source {
            let price = i64::from(stone.price);
            line(&mut lines, &stone.id, &stone.sha256, price, (price * 115 + 50) / 100);
        }
        let digest = digest::sha256_hex(lines.as_bytes());
        let equal = digest == result.digest && source.len() == result.stones;
        let style = if equal { Style::Success } else { Style::Error };
        let (ours, theirs) = (&result.digest[..12], &digest[..12]);
        self.log(
            &format!(
                "   check: {} stones in the table, {} at the supplier; checksums {ours} and {theirs}",
                result.stones,
                source.len()
            ),
            style,
        );
        self.log(
            &format!(
                "   {:.1} s, {} records read, {} deleted, watermark {}",
                result.seconds,
                result.sync.consolidation_processed,
                result.sync.deleted,
                result.sync.watermark_after.map_or_else(String::new, |at| at.to_rfc3339())
            ),
            Style::Dim,
        );
        equal
    }

    /// Logs the rate and the sizes of the partitions.
    async fn log_rate(&self, result: &SyncResult) -> Result<(), Failure> {
        let partitions = self.syncs.engine().store().partitions(result.sync.run_id).await?;
        let (min, max) = (
            partitions.iter().map(|partition| partition.stored).min().unwrap_or(0),
            partitions.iter().map(|partition| partition.stored).max().unwrap_or(0),
        );
        #[expect(clippy::cast_precision_loss, reason = "an approximate rate")]
        let rate = result.stones as f64 / result.seconds.max(0.001);
        self.log(
            &format!("   {rate:.0} stones/s; {} partitions of {min} to {max} stones", partitions.len()),
            Style::Dim,
        );
        Ok(())
    }

    fn change(&self, what: ChangeKind, count: u32, seed: u64) -> Result<(), Failure> {
        self.supplier.handle.change(&Change::random(what, count, seed)).map_err(Failure::outage)?;
        Ok(())
    }

    fn log(&self, text: &str, style: Style) {
        if self.out.is_json() {
            return;
        }
        self.show("");
        let at = self.started.elapsed().as_secs_f64();
        self.out.print(Line::from(format!("{at:5.1} s  ")).and(self.out.paint(text, style)));
    }

    /// Prints a progress line that the next one replaces. Without a terminal it prints nothing.
    fn show(&self, line: &str) {
        if self.out.is_live() {
            let mut terminal = std::io::stdout().lock();
            let _ = write!(terminal, "\r\x1b[2K{}", Line::from(line).as_str());
            let _ = terminal.flush();
        }
    }

    async fn end(mut self) {
        for (_, child) in &mut self.roles {
            let _ = child.kill().await;
        }
        self.supplier.stop().await;
        self.syncs.engine().store().close().await;
    }
}

fn line(lines: &mut String, stone: &str, hash: &str, price: i64, retail: i64) {
    use std::fmt::Write as _;
    let _ = writeln!(lines, "{stone} {hash} {price} {retail}");
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
