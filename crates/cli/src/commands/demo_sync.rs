//! The demo: a supplier on this machine, a fresh database, a full sync with a worker killed in the middle, an
//! incremental one, and one that marks what vanished. After each, the table is compared with the supplier's own truth.

use super::demo_shown::Shown;
use super::watch_sync::{bar, progress};
use crate::args_sync::Demo as Order;
use crate::config::Config;
use crate::fail::Failure;
use crate::out::{Out, Style};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tidemill_core::feed::Feed;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::{Json, RunId, digest};
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::{FeedChange, SyncStatus, Syncs};
use tidemill_engine::{Engine, Patience};
use tidemill_store::{Options, Store};
use tidemill_supplier::{Change, Running, Supplier, What};
use tokio::process::{Child, Command};

/// The feed of the demo, and how many processes carry out its pages.
const FEED: &str = "demo";
const WORKERS: usize = 2;
/// The longest that one sync may take.
const LONGEST: Duration = Duration::from_mins(10);
/// Quicker than the defaults, so that nobody waits twenty seconds for a worker to be found dead.
const HASTE: &[(&str, &str)] = &[
    ("TIDEMILL_WORKER_BEAT", "500ms"),
    ("TIDEMILL_WORKER_DEAD_AFTER", "3s"),
    ("TIDEMILL_UPKEEP_EVERY", "500ms"),
    ("TIDEMILL_UPKEEP_IDLE", "1s"),
    ("TIDEMILL_SYNC_UNLIMITED", "true"),
];

pub(super) async fn demo(order: Order, config: &Config, out: Out) -> Result<ExitCode, Failure> {
    let folder = std::env::temp_dir().join(format!("tidemill-demo-{}", std::process::id()));
    // Not one that somebody else has prepared under this name.
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|error| Failure::outage(format!("could not make a folder for the demo: {error}")))?;
    let result = Box::pin(run(&order, config, &folder, out)).await;
    match &order.keep {
        Some(path) => out.say(format!("look around: tidemill --database {} sync list", path.display())),
        None => {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
    result
}

async fn run(order: &Order, config: &Config, folder: &Path, out: Out) -> Result<ExitCode, Failure> {
    let mut options = super::options(config);
    if config.database == Config::default().database {
        let file = order.keep.clone().unwrap_or_else(|| folder.join("demo.db"));
        if file.exists() {
            return Err(Failure::refused(format!(
                "`{}` exists; the demo wants a fresh file",
                file.display()
            )));
        }
        options = Options::new(file.display().to_string(), host_now);
    }
    let mut demo = Demo::prepare(order.stones, options, config, folder, out).await?;
    let played = if order.serve {
        let shown = Shown::open(&demo.syncs, config, order, out).await?;
        shown.beside(Box::pin(demo.play()), out).await
    } else {
        demo.play().await
    };
    demo.end().await;
    played
}

struct Demo {
    syncs: Syncs,
    supplier: Running,
    database: String,
    folder: PathBuf,
    roles: Vec<(String, Child)>,
    began: Instant,
    stones: u32,
    out: Out,
}

/// What is said of one sync at the end.
struct Told {
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
        folder: &Path,
        out: Out,
    ) -> Result<Self, Failure> {
        let began = Instant::now();
        let store = Store::open(&options).await?;
        store.migrate(None).await?;
        let settings = tidemill_engine::sync::SyncSettings {
            unlimited: true,
            beat: Duration::from_millis(500),
            ..config.sync()
        };
        let engine = Engine::new(store, Clock::Database, Patience::For(Duration::from_secs(10)));
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
            created_at: host_now(),
        };
        let change = FeedChange {
            feed,
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: "UTC".to_owned(),
        };
        syncs.put_feed(change).await?;
        let folder = folder.to_owned();
        Ok(Self { syncs, supplier, database: options.url, folder, roles: Vec::new(), began, stones, out })
    }

    async fn play(&mut self) -> Result<ExitCode, Failure> {
        let place = self.syncs.engine().store().place();
        self.tell(
            &format!("a supplier with {} stones is at {}", self.stones, self.supplier.endpoint),
            Style::Bold,
        );
        self.tell(&format!("the table is in {place}, and empty"), Style::Bold);
        for number in 1..=WORKERS {
            self.start(&format!("worker-{number}"), &["worker", "--pages-min", "2", "--pages-max", "4"])?;
        }
        self.start("scheduler", &["scheduler"])?;
        self.start("consolidator", &["consolidator"])?;
        self.tell(
            &format!("{WORKERS} workers, a scheduler and a consolidator run as processes"),
            Style::Bold,
        );

        self.tell("1. a full sync; one worker is killed in the middle", Style::Bold);
        let (full, killed) = self.sync(false, true).await?;
        let mut equal = self.check(&full, true);
        self.summary(&full).await?;

        let few = (self.stones / 100).max(1);
        self.tell(
            &format!("2. {few} stones change price or picture; an incremental sync brings them"),
            Style::Bold,
        );
        self.change(What::Price, few / 2 + 1, 11)?;
        self.change(What::Media, few / 2 + 1, 12)?;
        let (changed, _) = self.sync(false, false).await?;
        equal &= self.check(&changed, true);

        self.tell(&format!("3. {few} stones vanish; a full sync finds them gone"), Style::Bold);
        self.change(What::Vanish, few, 13)?;
        let (vanished, _) = self.sync(true, false).await?;
        equal &= self.check(&vanished, true);

        let seconds = self.began.elapsed().as_secs_f64();
        let style = if equal { Style::Good } else { Style::Bad };
        let verdict =
            if equal { "the table equals the source, three times over" } else { "the table differs" };
        self.tell(&format!("{verdict}; {seconds:.1} s in all"), style);
        if self.out.is_json() {
            let one = |told: &Told| {
                serde_json::json!({
                    "sync": told.sync.run_id, "run_type": told.sync.run_type.as_str(), "seconds": told.seconds,
                    "partitions": told.sync.expected_workers, "count_calls": told.sync.count_calls,
                    "records": told.sync.consolidation_processed, "deleted": told.sync.deleted,
                    "stones": told.stones, "checksum": told.digest, "watermark": told.sync.watermark_after,
                })
            };
            self.out.json(&serde_json::json!({
                "equal": equal, "stones": self.stones, "seconds": seconds, "killed": killed,
                "full": one(&full), "incremental": one(&changed), "deleted": one(&vanished),
            }));
        }
        Ok(if equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    /// A role in a process of its own, which can be killed.
    fn start(&mut self, name: &str, role: &[&str]) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::outage(format!("could not start {name}: {error}"));
        let log = std::fs::File::create(self.folder.join(format!("{name}.log"))).map_err(failed)?;
        let child = Command::new("/proc/self/exe")
            .args(role)
            .envs(HASTE.iter().copied())
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

    /// One sync, followed live; the name of the worker that was killed meanwhile.
    async fn sync(&mut self, full: bool, kill: bool) -> Result<(Told, Option<String>), Failure> {
        let began = Instant::now();
        let run = self.syncs.start(FEED, full, None).await?.run_id;
        let mut killed = None;
        let mut said = 0;
        loop {
            let status = self.syncs.status(run.as_str()).await.ok();
            if let Some(status) = &status {
                self.show(&progress(status));
                self.milestones(status, &mut said);
                let read: i64 = status.partitions.iter().map(|one| i64::from(one.next_offset)).sum();
                if kill && killed.is_none() && read * 3 > status.sync.predicted {
                    killed = self.kill_worker();
                }
            }
            let found = self.syncs.engine().run(&run).await?;
            if found.status.is_terminal() {
                self.show("");
                return self.told(&run, found.status, began).await.map(|told| (told, killed));
            }
            if began.elapsed() > LONGEST {
                return Err(Failure::outage(format!("the sync took longer than {} s", LONGEST.as_secs())));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The few moments that are worth a line each.
    fn milestones(&self, status: &SyncStatus, said: &mut u8) {
        use tidemill_core::sync::SyncState as S;
        let sync = &status.sync;
        if *said == 0 {
            self.tell(
                &format!(
                    "   scanned: {} records in {} partitions, {} count calls",
                    sync.predicted, sync.expected_workers, sync.count_calls
                ),
                Style::Plain,
            );
            *said = 1;
        }
        if *said == 1 && matches!(sync.state, S::ConsolidationTriggered | S::Consolidating | S::Completed) {
            self.tell(&format!("   fetched: {} every partition is read to its end", bar(1, 1)), Style::Plain);
            *said = 2;
        }
    }

    fn kill_worker(&mut self) -> Option<String> {
        let (name, child) = self.roles.first_mut()?;
        child.start_kill().ok()?;
        let name = name.clone();
        self.tell(
            &format!("   {name} was killed (SIGKILL) with pages in hand; the others carry on"),
            Style::Odd,
        );
        Some(name)
    }

    /// What a sync did, and what the table holds now.
    async fn told(&self, run: &RunId, status: RunState, began: Instant) -> Result<Told, Failure> {
        if status != RunState::Success {
            let found = self.syncs.engine().run(run).await?;
            let error = found.metadata.get("error").and_then(Json::as_str).unwrap_or("it says no more");
            return Err(Failure::outage(format!("the sync ended as {status}: {error}")));
        }
        let sync = self.syncs.engine().store().sync(run.to_string()).await?;
        let seconds = began.elapsed().as_secs_f64();
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
        Ok(Told { sync, seconds, digest: digest::sha256_hex(lines.as_bytes()), stones })
    }

    /// The same from the supplier's side, with prices worked out here: 15 % on top, halves up.
    fn check(&self, told: &Told, speak: bool) -> bool {
        let mut truth = self.supplier.handle.truth();
        truth.retain(|stone| stone.available);
        truth.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        let mut lines = String::new();
        for stone in &truth {
            let price = i64::from(stone.price);
            line(&mut lines, &stone.id, &stone.sha256, price, (price * 115 + 50) / 100);
        }
        let digest = digest::sha256_hex(lines.as_bytes());
        let equal = digest == told.digest && truth.len() == told.stones;
        if speak {
            let style = if equal { Style::Good } else { Style::Bad };
            let (ours, theirs) = (&told.digest[..12], &digest[..12]);
            self.tell(
                &format!(
                    "   proof: {} stones in the table, {} at the supplier; checksums {ours} and {theirs}",
                    told.stones,
                    truth.len()
                ),
                style,
            );
            self.tell(
                &format!(
                    "   {:.1} s, {} records read, {} deleted, watermark {}",
                    told.seconds,
                    told.sync.consolidation_processed,
                    told.sync.deleted,
                    told.sync.watermark_after.map_or_else(String::new, |at| at.to_rfc3339())
                ),
                Style::Dim,
            );
        }
        equal
    }

    /// How evenly the full sync was divided, and how fast it went.
    async fn summary(&self, told: &Told) -> Result<(), Failure> {
        let partitions = self.syncs.engine().store().partitions(told.sync.run_id).await?;
        let (least, most) = (
            partitions.iter().map(|partition| partition.stored).min().unwrap_or(0),
            partitions.iter().map(|partition| partition.stored).max().unwrap_or(0),
        );
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = told.stones as f64 / told.seconds.max(0.001);
        self.tell(
            &format!("   {rate:.0} stones/s; {} partitions of {least} to {most} stones", partitions.len()),
            Style::Dim,
        );
        Ok(())
    }

    fn change(&self, what: What, count: u32, seed: u64) -> Result<(), Failure> {
        self.supplier.handle.change(&Change::some(what, count, seed)).map_err(Failure::outage)?;
        Ok(())
    }

    fn tell(&self, text: &str, style: Style) {
        if self.out.is_json() {
            return;
        }
        self.show("");
        let at = self.began.elapsed().as_secs_f64();
        self.out.line(format!("{at:5.1} s  {}", self.out.paint(text, style)));
    }

    /// A line that is written over, on a terminal.
    fn show(&self, line: &str) {
        if self.out.is_live() {
            let mut terminal = std::io::stdout().lock();
            let _ = write!(terminal, "\r\x1b[2K{line}");
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
