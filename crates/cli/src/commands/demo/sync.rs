//! `tidemill demo`: syncs from a simulated supplier into a new database.
//!
//! A full sync during which a worker is killed, an incremental sync, and a full sync that marks removed stones. After
//! each, the table is compared with the data of the supplier.

use super::DemoArgs;
use super::console::DemoConsole;
use super::source::{DemoFeed, PASSWORD_ENV, Proof};
use crate::commands::sync::watch::{bar, describe_progress};
use crate::config::Config;
use crate::failure::Failure;
use crate::out::{Line, Out, Style};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidemill_core::feed::PartitionField;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{SyncStatus, Syncs};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{Options, Store};
use tidemill_supplier::{Change, ChangeKind, RunningSupplier, Supplier};
use tokio::process::{Child, Command};

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
    let mut demo = Demo::prepare(args, options, config, directory, out).await?;
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
    feed: DemoFeed,
    stones: u32,
    out: Out,
}

/// Result of one sync.
struct SyncResult {
    feed: DemoFeed,
    sync: Sync,
    seconds: f64,
    table: Proof,
}

impl Demo {
    async fn prepare(
        args: &DemoArgs,
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
        let supplier = tidemill_supplier::Config {
            stones: args.stones,
            seed: 2_026,
            ..tidemill_supplier::Config::default()
        };
        let supplier =
            Supplier::bind(supplier).await.map_err(|error| Failure::outage(error.to_string()))?.spawn();
        args.feed.add(&syncs, &supplier).await?;
        let directory = directory.to_owned();
        Ok(Self {
            syncs,
            supplier,
            database: options.url,
            directory,
            roles: Vec::new(),
            started,
            feed: args.feed,
            stones: args.stones,
            out,
        })
    }

    async fn run(&mut self) -> Result<ExitCode, Failure> {
        self.introduce();
        for number in 1..=WORKERS {
            self.start(&format!("worker-{number}"), &["worker", "--pages-min", "2", "--pages-max", "4"])?;
        }
        self.start("scheduler", &["scheduler"])?;
        self.start("consolidator", &["consolidator"])?;
        self.log(&format!("{WORKERS} workers, a scheduler and a consolidator run as processes"), Style::Bold);

        let records = self.feed.records();
        self.log("1. a full sync; one worker is killed during it", Style::Bold);
        let (full, killed) = self.sync(false, true).await?;
        let mut equal = self.check(&full);
        self.log_rate(&full).await?;

        let count = (self.stones / 100).max(1);
        self.log(
            &format!("2. {count} {records} change their price or picture; an incremental sync fetches them"),
            Style::Bold,
        );
        self.change(ChangeKind::Price, count / 2 + 1, 11)?;
        self.change(ChangeKind::Media, count / 2 + 1, 12)?;
        let (changed, _) = self.sync(false, false).await?;
        equal &= self.check(&changed);

        let outcome =
            if self.feed == DemoFeed::Nivoda { "marks them as deleted" } else { "deletes their rows" };
        self.log(&format!("3. {count} {records} are removed; a full sync {outcome}"), Style::Bold);
        self.change(ChangeKind::Vanish, count, 13)?;
        let (removed, _) = self.sync(true, false).await?;
        equal &= self.check(&removed);

        let beside = if self.feed == DemoFeed::Rest { Some(self.sync_beside().await?) } else { None };
        equal &= beside.as_ref().is_none_or(|beside| beside.iter().all(|(_, is_equal)| *is_equal));
        self.print_summary(equal, killed.as_deref(), [&full, &changed, &removed], beside.as_ref());
        Ok(if equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn introduce(&self) {
        let (records, table) = (self.feed.records(), self.feed.table());
        let at = match self.feed {
            DemoFeed::Nivoda => &self.supplier.endpoint,
            DemoFeed::Rest => &self.supplier.rest_url,
        };
        self.log(&format!("a supplier with {} {records} is at {at}", self.stones), Style::Bold);
        let location = self.syncs.engine().store().location();
        match self.feed {
            DemoFeed::Nivoda => self.log(&format!("the table is in {location}, and empty"), Style::Bold),
            DemoFeed::Rest => self.log(
                &format!(
                    "a definition file fills the table {table} in {location}, page by page with a cursor"
                ),
                Style::Bold,
            ),
        }
    }

    /// Syncs the diamonds of the same supplier and the items at the same time, with the same processes.
    async fn sync_beside(&mut self) -> Result<[(SyncResult, bool); 2], Failure> {
        let (items, diamonds) = (DemoFeed::Rest, DemoFeed::Nivoda);
        self.log(
            "4. the diamonds of the same supplier are added; both feeds sync at the same time",
            Style::Bold,
        );
        diamonds.add(&self.syncs, &self.supplier).await?;
        self.change(ChangeKind::Price, (self.stones / 100).max(1), 14)?;
        let started = Instant::now();
        let mut runs = Vec::new();
        for feed in [diamonds, items] {
            runs.push(self.syncs.start(feed.name(), false, None).await?.run_id);
        }
        let mut results = Vec::new();
        for (feed, run) in [diamonds, items].into_iter().zip(runs) {
            let (result, _) = self.follow(feed, &run, started, false).await?;
            let is_equal = self.check(&result);
            results.push((result, is_equal));
        }
        results.try_into().map_err(|_| Failure::outage("a sync has no result".to_owned()))
    }

    fn print_summary(
        &self,
        equal: bool,
        killed: Option<&str>,
        syncs: [&SyncResult; 3],
        beside: Option<&[(SyncResult, bool); 2]>,
    ) {
        let seconds = self.started.elapsed().as_secs_f64();
        let style = if equal { Style::Success } else { Style::Error };
        let summary = match (equal, beside) {
            (true, None) => "the table matched the supplier after each sync",
            (true, Some(_)) => "both tables matched the supplier after each sync",
            (false, _) => "the table does not match the supplier",
        };
        self.log(&format!("{summary}; {seconds:.1} s in total"), style);
        if !self.out.is_json() {
            return;
        }
        let entry = |result: &SyncResult| {
            let records = result.feed.records();
            serde_json::json!({
                "sync": result.sync.run_id, "run_type": result.sync.run_type.as_str(), "seconds": result.seconds,
                "partitions": result.sync.expected_workers, "count_calls": result.sync.count_calls,
                "records": result.sync.consolidation_processed, "deleted": result.sync.deleted,
                records: result.table.rows, "checksum": result.table.digest,
                "watermark": result.sync.watermark_after,
            })
        };
        let [full, changed, removed] = syncs.map(entry);
        let mut printed = serde_json::json!({
            "equal": equal, self.feed.records(): self.stones, "seconds": seconds, "killed": killed,
            "full": full, "incremental": changed, "deleted": removed,
        });
        if let Some([(diamonds, _), (items, _)]) = beside {
            printed["beside"] = serde_json::json!({"diamonds": entry(diamonds), "items": entry(items)});
        }
        self.out.print_json(&printed);
    }

    /// Starts a role as a process of its own, which can be killed.
    fn start(&mut self, name: &str, role: &[&str]) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::outage(format!("could not start {name}: {error}"));
        let log = std::fs::File::create(self.directory.join(format!("{name}.log"))).map_err(failed)?;
        let child = Command::new("/proc/self/exe")
            .args(role)
            .envs(FAST_SETTINGS.iter().copied())
            .env("TIDEMILL_DATABASE", &self.database)
            .env(PASSWORD_ENV, "demo")
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
        let run = self.syncs.start(self.feed.name(), full, None).await?.run_id;
        self.follow(self.feed, &run, started, kill).await
    }

    async fn follow(
        &mut self,
        feed: DemoFeed,
        run: &RunId,
        started: Instant,
        kill: bool,
    ) -> Result<(SyncResult, Option<String>), Failure> {
        let field = self.syncs.engine().store().feed(feed.name().to_owned()).await?.feed.partition_field();
        let mut killed = None;
        let mut step = 0;
        loop {
            let status = self.syncs.status(run.as_str()).await.ok();
            if let Some(status) = &status {
                self.show(&describe_progress(status));
                self.log_milestones(status, &field, &mut step);
                let read: i64 = status.partitions.iter().map(|one| i64::from(one.next_offset)).sum();
                if kill && killed.is_none() && read * 3 > status.sync.predicted {
                    killed = self.kill_worker();
                }
            }
            let found = self.syncs.engine().run(run).await?;
            if found.status.is_terminal() {
                self.show("");
                return self
                    .read_result(feed, run, found.status, started)
                    .await
                    .map(|result| (result, killed));
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
    fn log_milestones(&self, status: &SyncStatus, field: &PartitionField, step: &mut u8) {
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
            if self.feed == DemoFeed::Rest {
                let labels: Vec<String> =
                    status.partitions.iter().take(3).map(|partition| field.label(partition.range)).collect();
                self.log(&format!("   the first partitions: {}", labels.join("; ")), Style::Dim);
            }
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
        feed: DemoFeed,
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
        let table = feed.table_proof(&self.syncs).await?;
        Ok(SyncResult { feed, sync, seconds, table })
    }

    /// Compares the result with the supplier.
    fn check(&self, result: &SyncResult) -> bool {
        let source = result.feed.source_proof(&self.supplier);
        let equal = source.digest == result.table.digest && source.rows == result.table.rows;
        let style = if equal { Style::Success } else { Style::Error };
        let (ours, theirs) = (&result.table.digest[..12], &source.digest[..12]);
        self.log(
            &format!(
                "   check: {} {} in the table, {} at the supplier; checksums {ours} and {theirs}",
                result.table.rows,
                result.feed.records(),
                source.rows
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
        let rate = result.table.rows as f64 / result.seconds.max(0.001);
        let records = result.feed.records();
        self.log(
            &format!("   {rate:.0} {records}/s; {} partitions of {min} to {max} {records}", partitions.len()),
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
