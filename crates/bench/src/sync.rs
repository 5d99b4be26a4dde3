//! A whole sync beside its floor: fetching alone, COPY into a raw table, and one statement into the canonical one.
//!
//! Supplier and pipeline are processes of their own, so that the processor time of each is known apart.

use crate::Plan;
use crate::ground::Ground;
use crate::report::{Cost, Line, Report, median, say};
use anyhow::{Context as _, Result, bail};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_core::Json;
use tidemill_core::feed::{Feed, FeedQuery, PriceRange};
use tidemill_feeds::{Feed as Source, Secret, Tuning};
use tidemill_testkit::cluster::Database;

/// Stones per page, and fetches at a time.
const PAGE: u32 = 30;
const FETCHES: u64 = 8;
/// What the ingestion library of the field does at 30 per page on such a machine, in stones per second.
const PEER: f64 = 2_300.0;

/// A process that ends with us.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Ends the process in good order; what it said last.
    fn end(mut self) -> Result<Json> {
        Command::new("kill").arg(self.0.id().to_string()).status()?;
        self.0.wait()?;
        let stdout = self.0.stdout.take().context("the process has an output")?;
        let last = BufReader::new(stdout).lines().map_while(Result::ok).last().unwrap_or_default();
        serde_json::from_str(&last).context("the process says what it did")
    }

    /// Processor seconds so far, and the most memory it had, in kB.
    fn cost(&self) -> (f64, u64) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|text| text.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0);
        ((ticks(11) + ticks(12)) / 100.0, peak)
    }
}

/// What one side of a pair took.
struct Floor {
    fetch: f64,
    copy: f64,
    canonical: f64,
}

/// What a sync of ours took.
#[derive(Debug, Clone)]
struct Ours {
    whole: f64,
    consolidation: f64,
    calls: i64,
    largest: f64,
    wal: f64,
    commits: f64,
    engine_cpu: f64,
    supplier_cpu: f64,
    peak_kb: u64,
}

/// Measures full syncs, the first and one with nothing changed, beside their floor.
pub(crate) async fn all(ground: &Ground, plan: &Plan, stones: u32, report: &mut Report) -> Result<()> {
    let binary = std::env::current_exe()?.with_file_name("tidemill");
    if !binary.exists() {
        bail!("{} is missing: cargo build --release --package tidemill", binary.display());
    }
    let (supplier, endpoint) = supplier(&binary, stones)?;
    let (mut floors, mut firsts, mut seconds, mut steps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=plan.pairs {
        let floor = floor(ground, &endpoint, stones).await?;
        say(&format!(
            "  floor: fetch {:.1} s, COPY {:.1} s, canonical {:.1} s",
            floor.fetch, floor.copy, floor.canonical
        ));
        let database = ground.fresh().await?;
        let up = up(&binary, &database, &endpoint)?;
        let first = sync(&binary, &database, &up, &supplier, stones).await?;
        let second = sync(&binary, &database, &up, &supplier, stones).await?;
        say(&format!("  pair {pair}: first {first:.1?}"));
        say(&format!("  pair {pair}: nothing changed {second:.1?}"));
        steps.push(up.end()?["pages"]["p50_ms"].as_f64().context("the pages were timed")?);
        floors.push(floor);
        firsts.push(first);
        seconds.push(second);
    }
    lines(report, &floors, &firsts, &seconds, f64::from(stones));
    let target = "≤ 3";
    report.add(plain("a page but for its fetch, both syncs, p50 in ms", median(&steps), target, |value| {
        value <= 3.0
    }));
    Ok(())
}

fn lines(report: &mut Report, floors: &[Floor], firsts: &[Ours], seconds: &[Ours], stones: f64) {
    let cost = |runs: &[Ours]| {
        let of = |value: fn(&Ours) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>()) / stones;
        Some(Cost { wal_bytes: of(|run| run.wal), commits: of(|run| run.commits) })
    };
    let whole: Vec<f64> = floors.iter().map(|floor| floor.fetch + floor.copy + floor.canonical).collect();
    let times: Vec<f64> = firsts.iter().zip(&whole).map(|(ours, floor)| ours.whole / floor).collect();
    let rate = |seconds: f64| format!("{:.0}/s", stones / seconds);
    let ours = median(&firsts.iter().map(|run| run.whole).collect::<Vec<_>>());
    report.add(Line {
        what: format!("full sync of {stones:.0} stones"),
        floor: rate(median(&whole)),
        ours: rate(ours),
        figure: format!("{:.2} × the floor's time ({})", median(&times), spread(&times)),
        values: values(&times),
        target: "≤ 2.5 ×".to_owned(),
        met: Some(median(&times) <= 2.5),
        cost: cost(firsts),
    });
    report.add(plain("beside dlt at 30 per page", stones / ours / PEER, "≥ 3 ×", |value| value >= 3.0));
    let share: Vec<f64> = firsts
        .iter()
        .zip(floors)
        .map(|(ours, floor)| floor.canonical / ours.consolidation.max(0.001))
        .collect();
    report
        .add(plain("consolidation beside one statement", median(&share), "≥ 0.5 ×", |value| value >= 0.5));
    let wal = median(&seconds.iter().map(|run| run.wal / stones).collect::<Vec<_>>());
    report.add(Line {
        what: "full sync, nothing changed".to_owned(),
        floor: "–".to_owned(),
        ours: rate(median(&seconds.iter().map(|run| run.whole).collect::<Vec<_>>())),
        figure: format!("{wal:.0} bytes of WAL per stone"),
        values: [wal; 3],
        target: "≤ 100".to_owned(),
        met: Some(wal <= 100.0),
        cost: cost(seconds),
    });
    #[expect(clippy::cast_precision_loss, reason = "a count of calls")]
    let calls = firsts.iter().map(|run| run.calls).max().unwrap_or(0) as f64;
    report.add(plain("count calls", calls, "≤ 60", |value| value <= 60.0));
    let largest = firsts.iter().map(|run| run.largest).fold(0.0, f64::max);
    report.add(plain("largest partition by the mean", largest, "≤ 1.3", |value| value <= 1.3));
    #[expect(clippy::cast_precision_loss, reason = "a size for people")]
    let peak = firsts.iter().map(|run| run.peak_kb).max().unwrap_or(0) as f64 / 1024.0;
    report.add(plain("memory of all three roles, MB", peak, "< 300", |value| value < 300.0));
    let cpu = |value: fn(&Ours) -> f64| median(&firsts.iter().map(value).collect::<Vec<_>>());
    say(&format!(
        "processor seconds of the first sync: engine {:.1}, supplier {:.1}; {:.0} s in all",
        cpu(|run| run.engine_cpu),
        cpu(|run| run.supplier_cpu),
        ours
    ));
}

fn plain(what: &str, value: f64, target: &str, met: fn(f64) -> bool) -> Line {
    Line {
        what: what.to_owned(),
        floor: "–".to_owned(),
        ours: "–".to_owned(),
        figure: format!("{value:.2}"),
        values: [value; 3],
        target: target.to_owned(),
        met: Some(met(value)),
        cost: None,
    }
}

fn values(all: &[f64]) -> [f64; 3] {
    let least = all.iter().copied().fold(f64::MAX, f64::min);
    let most = all.iter().copied().fold(f64::MIN, f64::max);
    [median(all), least, most]
}

fn spread(all: &[f64]) -> String {
    let [_, least, most] = values(all);
    format!("{least:.2}–{most:.2}")
}

fn supplier(binary: &PathBuf, stones: u32) -> Result<(Running, String)> {
    let mut child = Command::new(binary)
        .args([
            "supplier",
            "--listen",
            "127.0.0.1:0",
            "--seed",
            "5",
            "--json",
            "--stones",
            &stones.to_string(),
        ])
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

/// Every role in one process, and a feed for it.
fn up(binary: &PathBuf, database: &Database, endpoint: &str) -> Result<Running> {
    let run = |arguments: &[&str]| -> Result<()> {
        let done =
            command(binary, database).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if done.success() { Ok(()) } else { bail!("tidemill {} failed", arguments.join(" ")) }
    };
    run(&[
        "feed",
        "add",
        "bench",
        "--endpoint",
        endpoint,
        "--username",
        "bench",
        "--password-env",
        "BENCH_PASSWORD",
        "--rate",
        "0",
    ])?;
    let child = command(binary, database)
        .args(["up", "--no-server", "--json", "--pages-min", "4", "--pages-max", "8"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    Ok(Running(child))
}

fn command(binary: &PathBuf, database: &Database) -> Command {
    let mut command = Command::new(binary);
    command.env("TIDEMILL_DATABASE", &database.url).env("BENCH_PASSWORD", "bench");
    command.env("TIDEMILL_SYNC_UNLIMITED", "true").stdin(Stdio::null());
    command
}

/// One full sync, from the order to its end.
async fn sync(
    binary: &PathBuf,
    database: &Database,
    up: &Running,
    supplier: &Running,
    stones: u32,
) -> Result<Ours> {
    let before = (crate::ground::Meter::read(&database.url).await?, up.cost().0, supplier.cost().0);
    let began = Instant::now();
    let arguments = ["feed", "sync", "bench", "--full", "--wait", "--json"];
    let output = command(binary, database).args(arguments).output()?;
    let whole = began.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("the sync failed: {}", String::from_utf8_lossy(&output.stdout));
    }
    let mut spent = crate::ground::Spent::default();
    spent.add(before.0, crate::ground::Meter::read(&database.url).await?, 1.0);
    let cost = spent.per_run().context("one sync was counted")?;
    let said: Json = serde_json::from_slice(&output.stdout).context("the sync says what it did")?;
    let sync = &said["sync"];
    if sync["consolidation_processed"].as_i64() != Some(i64::from(stones)) {
        bail!("the sync consolidated {} stones", sync["consolidation_processed"]);
    }
    let mut conn = PgConnection::connect(&database.url).await?;
    let (consolidation, largest): (f64, f64) = sqlx::query_as(
        "SELECT extract(epoch FROM m.consolidation_completed_at - m.consolidation_started_at)::float8, \
         (max(p.stored) / avg(p.stored))::float8 FROM run_metadata m JOIN partition_progress p USING (run_id) \
         GROUP BY m.run_id ORDER BY m.started_at DESC LIMIT 1",
    )
    .fetch_one(&mut conn)
    .await?;
    conn.close().await?;
    Ok(Ours {
        whole,
        consolidation,
        calls: sync["count_calls"].as_i64().unwrap_or(0),
        largest,
        wal: cost.wal_bytes,
        commits: cost.commits,
        engine_cpu: up.cost().0 - before.1,
        supplier_cpu: supplier.cost().0 - before.2,
        peak_kb: up.cost().1,
    })
}

/// The floor: a drain of all pages, COPY into a raw table with the same key, one statement into the canonical table.
async fn floor(ground: &Ground, endpoint: &str, stones: u32) -> Result<Floor> {
    let began = Instant::now();
    drain(endpoint, stones, None).await?;
    let fetch = began.elapsed().as_secs_f64();
    let file = Arc::new(std::sync::Mutex::new(std::io::BufWriter::new(tempfile::tempfile()?)));
    drain(endpoint, stones, Some(file.clone())).await?;
    let file =
        Arc::into_inner(file).context("everybody is done with the file")?.into_inner()?.into_inner()?;
    let database = ground.fresh().await?;
    let mut conn = PgConnection::connect(&database.url).await?;
    conn.execute(include_str!("../sql/sync_raw_floor.sql")).await?;
    let began = Instant::now();
    copy(&mut conn, file).await?;
    let copied = began.elapsed().as_secs_f64();
    conn.execute("ANALYZE raw_floor").await?;
    let began = Instant::now();
    conn.execute(include_str!("../sql/sync_canonical_floor.sql")).await?;
    let canonical = began.elapsed().as_secs_f64();
    conn.close().await?;
    Ok(Floor { fetch, copy: copied, canonical })
}

async fn copy(conn: &mut PgConnection, mut file: std::fs::File) -> Result<()> {
    use std::io::{Read as _, Seek as _};
    file.rewind()?;
    let mut sink = conn.copy_in_raw("COPY raw_floor (feed, stone, payload) FROM STDIN").await?;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        sink.send(&buffer[..read]).await?;
    }
    sink.finish().await?;
    Ok(())
}

type Lines = Arc<std::sync::Mutex<std::io::BufWriter<std::fs::File>>>;

/// Fetches every page once, several at a time; into a file as COPY reads it, where there is one.
async fn drain(endpoint: &str, stones: u32, lines: Option<Lines>) -> Result<()> {
    let feed = Feed {
        feed: "bench".to_owned(),
        project_id: "default".to_owned(),
        kind: "nivoda".to_owned(),
        endpoint: endpoint.to_owned(),
        username: Some("bench".to_owned()),
        password_env: None,
        rate: 0,
        settings: Json::Object(serde_json::Map::new()),
        created_at: tidemill_engine::clock::host_now(),
    };
    let source = tidemill_feeds::open(&feed, Some(Secret::new("bench")), Tuning::default())?;
    source.set_rate(0.0);
    let (next, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..FETCHES {
        let (source, next, seen, lines) = (source.clone(), next.clone(), seen.clone(), lines.clone());
        tasks.spawn(async move { drain_some(source, &next, &seen, lines, stones).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    if seen.load(Ordering::SeqCst) != u64::from(stones) {
        bail!("the drain saw {} stones", seen.load(Ordering::SeqCst));
    }
    Ok(())
}

async fn drain_some(
    source: Arc<dyn Source>,
    next: &AtomicU64,
    seen: &AtomicU64,
    lines: Option<Lines>,
    stones: u32,
) -> Result<()> {
    use std::io::Write as _;
    let query = FeedQuery { prices: PriceRange::ALL, updated_from: None };
    loop {
        let offset = next.fetch_add(u64::from(PAGE), Ordering::SeqCst);
        if offset >= u64::from(stones) {
            return Ok(());
        }
        let page = source.page(&query, offset, PAGE).await?;
        seen.fetch_add(page.items.len() as u64, Ordering::SeqCst);
        if let Some(lines) = &lines {
            let mut file = lines.lock().map_err(|_| anyhow::anyhow!("another fetch failed"))?;
            for item in &page.items {
                writeln!(file, "bench\t{}\t{}", item.stone_id, item.payload.replace('\\', "\\\\"))?;
            }
        }
    }
}
