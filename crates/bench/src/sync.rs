//! Full syncs compared with their floor: the fetch alone, COPY into a raw table, and one statement into the canonical
//! table.
//!
//! Supplier and pipeline are separate processes, so that the CPU time of each is known.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, CostTotal, ServerCounters};
use crate::report::{Cost, Line, Report, log, median};
use crate::sync_processes::{Running, ServerCost, SyncProcesses, supplier};
use anyhow::{Context as _, Result, bail};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidemill_core::Json;
use tidemill_core::diamond::ALL_PRICES;
use tidemill_core::feed::{Feed, FeedQuery};
use tidemill_core::feed_definition::Place;
use tidemill_core::reach::DefinedBy;
use tidemill_feeds::{Budgets, Feed as Source, Network, Secret, Tuning};

/// Stones per page, and concurrent fetches.
const PAGE: u32 = 30;
const FETCHES: u64 = 8;

/// Seconds of the floor.
struct Floor {
    fetch: f64,
    copy: f64,
    canonical: f64,
}

/// Cost of one sync.
#[derive(Debug, Clone)]
struct SyncCosts {
    total: f64,
    consolidation: f64,
    calls: i64,
    largest: f64,
    wal: f64,
    commits: f64,
    engine_cpu: f64,
    supplier_cpu: f64,
    database_cpu: f64,
    database_busy: f64,
    database_pages: f64,
    page_ms: f64,
    peak_kb: u64,
}

/// Compares the first full sync, and one without changes, with their floor.
pub(crate) async fn all(cluster: &BenchCluster, plan: &Plan, stones: u32, report: &mut Report) -> Result<()> {
    let (supplier, endpoint) = supplier(stones)?;
    let (mut floors, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=plan.pairs {
        let floor = floor(cluster, &endpoint, stones).await?;
        log(&format!(
            "  floor: fetch {:.1} s, COPY {:.1} s, canonical {:.1} s",
            floor.fetch, floor.copy, floor.canonical
        ));
        let processes = SyncProcesses::new(cluster.migrated_database().await?, &endpoint)?;
        let first = sync(&processes, &supplier, stones).await?;
        log(&format!("  pair {pair}: first {first:.1?}"));
        let second = sync(&processes, &supplier, stones).await?;
        log(&format!("  pair {pair}: without changes {second:.1?}"));
        floors.push(floor);
        firsts.push(first);
        seconds.push(second);
    }
    report_lines(report, &floors, &firsts, &seconds, f64::from(stones));
    report_costs(report, &firsts, &seconds, f64::from(stones));
    Ok(())
}

/// Reports the cost of pages.
fn report_costs(report: &mut Report, firsts: &[SyncCosts], seconds: &[SyncCosts], stones: f64) {
    let of = |runs: &[SyncCosts], value: fn(&SyncCosts) -> f64| {
        median(&runs.iter().map(value).collect::<Vec<_>>())
    };
    for (what, runs) in [("the first sync", firsts), ("without changes", seconds)] {
        let what = format!("a page without its fetch, {what}, p50 in ms");
        report.add(ratio_line(&what, of(runs, |run| run.page_ms), "≤ 3", |value| value <= 3.0));
    }
    let shares: Vec<f64> = firsts
        .iter()
        .zip(seconds)
        .map(|(first, second)| second.database_pages / first.database_pages)
        .collect();
    let what = "database time per page, without changes compared with the first sync";
    report.add(ratio_line(what, median(&shares), "≤ 0.33", |value| value <= 1.0 / 3.0));
    for (what, runs) in [("the first sync", firsts), ("without changes", seconds)] {
        log(&format!(
            "CPU seconds of {what}: engine {:.1}, supplier {:.1}, database {:.1}; {:.1} s in total; the \
             database was active for {:.1} s, and stored a page in {:.2} ms",
            of(runs, |run| run.engine_cpu),
            of(runs, |run| run.supplier_cpu),
            of(runs, |run| run.database_cpu),
            of(runs, |run| run.total),
            of(runs, |run| run.database_busy),
            1e3 * of(runs, |run| run.database_pages) / (stones / f64::from(PAGE)),
        ));
    }
}

fn report_lines(
    report: &mut Report,
    floors: &[Floor],
    firsts: &[SyncCosts],
    seconds: &[SyncCosts],
    stones: f64,
) {
    let cost = |runs: &[SyncCosts]| {
        let of = |value: fn(&SyncCosts) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>()) / stones;
        Some(Cost { wal_bytes: of(|run| run.wal), commits: of(|run| run.commits), cpu_micros: None })
    };
    let totals: Vec<f64> = floors.iter().map(|floor| floor.fetch + floor.copy + floor.canonical).collect();
    let times: Vec<f64> = firsts.iter().zip(&totals).map(|(ours, floor)| ours.total / floor).collect();
    let rate = |seconds: f64| format!("{:.0}/s", stones / seconds);
    let ours = median(&firsts.iter().map(|run| run.total).collect::<Vec<_>>());
    report.add(Line {
        what: format!("full sync of {stones:.0} stones"),
        floor: rate(median(&totals)),
        ours: rate(ours),
        figure: format!("{:.2} × the floor's time ({})", median(&times), spread(&times)),
        values: values(&times),
        target: "≤ 2.5 ×".to_owned(),
        met: Some(median(&times) <= 2.5),
        cost: cost(firsts),
        ..Line::default()
    });
    let share: Vec<f64> = firsts
        .iter()
        .zip(floors)
        .map(|(ours, floor)| floor.canonical / ours.consolidation.max(0.001))
        .collect();
    report.add(ratio_line(
        "consolidation compared with one statement",
        median(&share),
        "≥ 0.5 ×",
        |value| value >= 0.5,
    ));
    let wal = median(&seconds.iter().map(|run| run.wal / stones).collect::<Vec<_>>());
    report.add(Line {
        what: "full sync without changes".to_owned(),
        floor: "–".to_owned(),
        ours: rate(median(&seconds.iter().map(|run| run.total).collect::<Vec<_>>())),
        figure: format!("{wal:.0} bytes of WAL per stone"),
        values: [wal; 3],
        target: "≤ 100".to_owned(),
        met: Some(wal <= 100.0),
        cost: cost(seconds),
        ..Line::default()
    });
    #[expect(clippy::cast_precision_loss, reason = "a count of calls")]
    let calls = firsts.iter().map(|run| run.calls).max().unwrap_or(0) as f64;
    report.add(ratio_line("count calls", calls, "≤ 60", |value| value <= 60.0));
    let largest = firsts.iter().map(|run| run.largest).fold(0.0, f64::max);
    report.add(ratio_line("largest partition divided by the mean", largest, "≤ 1.3", |value| value <= 1.3));
    #[expect(clippy::cast_precision_loss, reason = "an approximate size")]
    let peak = firsts.iter().map(|run| run.peak_kb).max().unwrap_or(0) as f64 / 1024.0;
    report.add(ratio_line("memory of all three roles, MB", peak, "< 300", |value| value < 300.0));
}

pub(crate) fn ratio_line(what: &str, value: f64, target: &str, met: fn(f64) -> bool) -> Line {
    Line {
        what: what.to_owned(),
        floor: "–".to_owned(),
        ours: "–".to_owned(),
        figure: format!("{value:.2}"),
        values: [value; 3],
        target: target.to_owned(),
        met: Some(met(value)),
        ..Line::default()
    }
}

fn values(all: &[f64]) -> [f64; 3] {
    let min = all.iter().copied().fold(f64::MAX, f64::min);
    let max = all.iter().copied().fold(f64::MIN, f64::max);
    [median(all), min, max]
}

fn spread(all: &[f64]) -> String {
    let [_, min, max] = values(all);
    format!("{min:.2}–{max:.2}")
}

/// Runs a full sync, and measures its cost.
async fn sync(processes: &SyncProcesses, supplier: &Running, stones: u32) -> Result<SyncCosts> {
    let url = processes.database.url.as_str();
    let before = (ServerCounters::read(url).await?, ServerCost::read(url).await?, supplier.cost().0);
    let up = processes.start(&["up", "--no-server"])?;
    let started = up.cost().0;
    let (total, output) = processes.sync(stones)?;
    let (engine_cpu, peak_kb) = up.cost();
    let pages = up.stop()?;
    let mut costs = CostTotal::default();
    costs.add(before.0, ServerCounters::read(url).await?, 1.0);
    let cost = costs.per_run().context("one sync was counted")?;
    let server = ServerCost::read(url).await?;
    let mut conn = PgConnection::connect(url).await?;
    let (consolidation, largest): (f64, f64) = sqlx::query_as(
        "SELECT extract(epoch FROM m.consolidation_completed_at - m.consolidation_started_at)::float8, \
         (max(p.stored) / avg(p.stored))::float8 FROM run_metadata m JOIN partition_progress p USING (run_id) \
         GROUP BY m.run_id ORDER BY m.started_at DESC LIMIT 1",
    )
    .fetch_one(&mut conn)
    .await?;
    conn.close().await?;
    Ok(SyncCosts {
        total,
        consolidation,
        calls: output["sync"]["count_calls"].as_i64().unwrap_or(0),
        largest,
        wal: cost.wal_bytes,
        commits: cost.commits,
        engine_cpu: engine_cpu - started,
        supplier_cpu: supplier.cost().0 - before.2,
        database_cpu: server.cpu - before.1.cpu,
        database_busy: server.active - before.1.active,
        database_pages: server.pages - before.1.pages,
        page_ms: pages["pages"]["p50_ms"].as_f64().context("the output has the time of pages")?,
        peak_kb,
    })
}

/// Measures the floor: a fetch of all pages, COPY into a raw table with the same key, and one statement.
async fn floor(cluster: &BenchCluster, endpoint: &str, stones: u32) -> Result<Floor> {
    let started = Instant::now();
    fetch_all(endpoint, stones, None).await?;
    let fetch = started.elapsed().as_secs_f64();
    let file = Arc::new(std::sync::Mutex::new(std::io::BufWriter::new(tempfile::tempfile()?)));
    fetch_all(endpoint, stones, Some(file.clone())).await?;
    let file = Arc::into_inner(file).context("all fetches have ended")?.into_inner()?.into_inner()?;
    let database = cluster.migrated_database().await?;
    let mut conn = PgConnection::connect(&database.url).await?;
    conn.execute(include_str!("../sql/sync_raw_floor.sql")).await?;
    let started = Instant::now();
    copy(&mut conn, file).await?;
    let copied = started.elapsed().as_secs_f64();
    conn.execute("ANALYZE raw_floor").await?;
    let started = Instant::now();
    conn.execute(include_str!("../sql/sync_canonical_floor.sql")).await?;
    let canonical = started.elapsed().as_secs_f64();
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

/// Fetches every page once, and writes it to a file in the format of COPY, if one is given.
async fn fetch_all(endpoint: &str, stones: u32, lines: Option<Lines>) -> Result<()> {
    let feed = Feed {
        feed: "bench".to_owned(),
        project_id: "default".to_owned(),
        kind: "nivoda".to_owned(),
        endpoint: endpoint.to_owned(),
        username: Some("bench".to_owned()),
        password_env: Some("BENCH".to_owned()),
        rate: 0,
        settings: Json::Object(serde_json::Map::new()),
        defined_by: DefinedBy::Operator,
        created_at: tidemill_engine::clock::host_now(),
    };
    let source = tidemill_feeds::open(
        &feed,
        &|_| Some(Secret::new("bench")),
        &Network::Unrestricted,
        Tuning::default(),
        &Budgets::default(),
    )?;
    source.set_rate(0.0);
    let (next, fetched) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..FETCHES {
        let (source, next, fetched, lines) = (source.clone(), next.clone(), fetched.clone(), lines.clone());
        tasks.spawn(async move { fetch_pages(source, &next, &fetched, lines, stones).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    if fetched.load(Ordering::SeqCst) != u64::from(stones) {
        bail!("{} stones were fetched", fetched.load(Ordering::SeqCst));
    }
    Ok(())
}

async fn fetch_pages(
    source: Arc<dyn Source>,
    next: &AtomicU64,
    fetched: &AtomicU64,
    lines: Option<Lines>,
    stones: u32,
) -> Result<()> {
    use std::io::Write as _;
    let query = FeedQuery { range: ALL_PRICES, updated_from: None };
    loop {
        let offset = next.fetch_add(u64::from(PAGE), Ordering::SeqCst);
        if offset >= u64::from(stones) {
            return Ok(());
        }
        let page = source.page(&query, &Place { offset, token: None }, PAGE).await?;
        fetched.fetch_add(page.items.len() as u64, Ordering::SeqCst);
        if let Some(lines) = &lines {
            let mut file = lines.lock().map_err(|_| anyhow::anyhow!("another fetch failed"))?;
            for item in &page.items {
                writeln!(file, "bench\t{}\t{}", item.record_id, item.payload.replace('\\', "\\\\"))?;
            }
        }
    }
}
