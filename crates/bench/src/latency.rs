//! Latency between queue and claim with one waiting worker, and the cost of waiting and notifications.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, CostTotal, ServerCounters, directory, open, open_sqlite};
use crate::lifecycle::{lifecycles, request};
use crate::report::{Line, Report, log, percentile};
use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, PgConnection};
use std::io::Write as _;
use std::time::Duration;
use tidemill_core::Json;
use tidemill_core::run::{Claim, FinalStatus};
use tidemill_engine::clock::host_now;
use tidemill_engine::worker::{ExecutionOutcome, Executor, ExitCondition, RunLog, RunSignal, WorkerOptions};
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::Pooler;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::{mpsc, watch};

/// Run and time of its claim.
type ClaimTime = (String, DateTime<Utc>);

/// Sends the claim time of each run, and finishes it.
struct Stopwatch(mpsc::UnboundedSender<ClaimTime>);

impl Executor for Stopwatch {
    type Moment = ();

    fn moment(&self) {}

    async fn execute(
        &self,
        claim: Claim,
        _log: RunLog,
        _sign: watch::Receiver<RunSignal<()>>,
    ) -> ExecutionOutcome {
        let _ = self.0.send((claim.run_id.to_string(), host_now()));
        ExecutionOutcome::Finished(FinalStatus::Success, Json::Object(serde_json::Map::new()))
    }
}

fn worker_options() -> WorkerOptions {
    WorkerOptions {
        name: "idle".to_owned(),
        host: "bench".to_owned(),
        labels: Vec::new(),
        projects: None,
        slots: 1,
        exit_when: ExitCondition::Never,
        heartbeat_every: Duration::from_secs(5),
        poll_every: Duration::from_secs(1),
        shutdown_timeout: Duration::from_secs(5),
        upkeep: None,
    }
}

/// Measures the latency of each way to wait.
pub(crate) async fn all(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("queue to claim with one waiting worker");
    let samples = if plan.quick { 30 } else { 200 };
    let database = cluster.migrated_database().await?;
    let listening = open(&database.url, 4, Pooler::Session).await?;
    let times = in_process(&listening, samples).await?;
    report.add(line("queue to claim, PostgreSQL, LISTEN", &times, 10.0));
    report.add(idle_queries(&listening, &database.url, plan).await?);
    let polling = open(&database.url, 4, Pooler::Transaction).await?;
    report.add(line("queue to claim, PostgreSQL, polling", &in_process(&polling, samples / 3).await?, 250.0));

    let folder = directory()?;
    let file = folder.path().join("latency.db");
    let sqlite = open_sqlite(&file).await?;
    report.add(line("queue to claim, SQLite, one process", &in_process(&sqlite, samples).await?, 5.0));
    report.add(line(
        "queue to claim, SQLite, two processes",
        &across(&sqlite, &file.display().to_string(), samples / 3).await?,
        250.0,
    ));
    Ok(())
}

fn line(what: &str, millis: &[f64], limit: f64) -> Line {
    let values = [50, 0, 100].map(|percent| percentile(millis, percent));
    let [middle, min, max] = values;
    Line {
        what: what.to_owned(),
        ours: format!("p50 {middle:.1} ms, p99 {:.1} ms of {}", percentile(millis, 99), millis.len()),
        figure: format!("{middle:.1} ms ({min:.1}–{max:.1})"),
        values,
        target: format!("p50 ≤ {limit:.0} ms"),
        met: Some(middle <= limit),
        ..Line::default()
    }
}

/// Queues runs while a worker of this process waits, and returns the milliseconds from the call to the claim.
async fn in_process(engine: &Engine, samples: usize) -> Result<Vec<f64>> {
    let (sender, mut claimed) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let worker = engine.with_retry_policy(RetryPolicy::Endless);
    let work = tokio::spawn(async move { worker.work(worker_options(), Stopwatch(sender), stopped).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut times = Vec::new();
    for _ in 0..samples {
        tokio::time::sleep(Duration::from_millis(25)).await;
        times.push(measure_one(engine, &mut claimed).await?);
    }
    let _ = stop.send(true);
    work.await.context("the worker panicked")??;
    Ok(times)
}

async fn measure_one(engine: &Engine, claimed: &mut mpsc::UnboundedReceiver<ClaimTime>) -> Result<f64> {
    let queued = host_now();
    let run = engine.queue(request()?).await?.run_id;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), claimed.recv()).await;
        let (id, at) = next.context("the run was not claimed within 10 s")?.context("the worker ended")?;
        if id == run.as_str() {
            return Ok((at - queued).as_seconds_f64() * 1_000.0);
        }
    }
}

/// The second process: a worker that prints its claim times.
pub(crate) async fn other_process(file: &str) -> Result<()> {
    let engine = open(file, 1, Pooler::Session).await?.with_retry_policy(RetryPolicy::Endless);
    let (sender, mut claimed) = mpsc::unbounded_channel::<ClaimTime>();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(async move { engine.work(worker_options(), Stopwatch(sender), stopped).await });
    while let Some((run, at)) = claimed.recv().await {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{run} {}", at.timestamp_micros())?;
        out.flush()?;
    }
    Ok(())
}

/// Queues runs while a worker of another process waits on the same file.
async fn across(engine: &Engine, file: &str, samples: usize) -> Result<Vec<f64>> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["worker", file])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let (sender, mut claimed) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let Some((run, micros)) = line.split_once(' ') else { continue };
            let at = micros.parse().ok().and_then(DateTime::from_timestamp_micros).unwrap_or_default();
            let _ = sender.send((run.to_owned(), at));
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut times = Vec::new();
    for sample in 0..samples {
        // Not synchronous with the polling of the other process.
        tokio::time::sleep(Duration::from_millis(60 + (sample as u64 * 37) % 90)).await;
        times.push(measure_one(engine, &mut claimed).await?);
    }
    child.kill().await?;
    Ok(times)
}

/// Measures the queries of an idle worker.
async fn idle_queries(engine: &Engine, url: &str, plan: &Plan) -> Result<Line> {
    let (sender, _claimed) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let worker = engine.with_retry_policy(RetryPolicy::Endless);
    let work = tokio::spawn(async move { worker.work(worker_options(), Stopwatch(sender), stopped).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let time = Duration::from_secs(if plan.quick { 3 } else { 20 });
    let before = transactions(url).await?;
    tokio::time::sleep(time).await;
    let after = transactions(url).await?;
    let _ = stop.send(true);
    work.await.context("the worker panicked")??;
    let rate = (after - before) / time.as_secs_f64();
    Ok(Line {
        what: "queries of an idle worker process".to_owned(),
        ours: format!("{rate:.1}/s"),
        figure: format!("{rate:.1}/s"),
        values: [rate; 3],
        target: "< 5/s".to_owned(),
        met: Some(rate < 5.0),
        ..Line::default()
    })
}

/// Transactions of this database so far, including this query.
async fn transactions(url: &str) -> Result<f64> {
    // Sessions report their statistics about once a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut conn = PgConnection::connect(url).await?;
    let count: i64 = sqlx::query_scalar(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(&mut conn)
    .await?;
    conn.close().await?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(count as f64)
}

/// Measures notifications under load, with a listener and without a waiting worker.
pub(crate) async fn notifications(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    log("notifications under load, no worker waiting");
    let database = cluster.migrated_database().await?;
    let engine = open(&database.url, 8, Pooler::Session).await?;
    let mut listener = PgListener::connect(&database.url).await?;
    listener.listen("tidemill_ops").await?;
    let before = ServerCounters::read(&database.url).await?;
    let done = lifecycles(&engine, 8, plan.time() * 2).await?;
    let mut costs = CostTotal::default();
    costs.add(before, ServerCounters::read(&database.url).await?, done.runs);
    let mut received = 0_u32;
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(200), listener.recv()).await {
        received += 1;
    }
    let cost = costs.per_run();
    let commits = cost.map_or(0.0, |cost| cost.commits) * done.runs;
    let share = 100.0 * f64::from(received) / f64::max(commits, 1.0);
    report.add(Line {
        what: "NOTIFY under load, no worker waiting".to_owned(),
        ours: format!("{received} in {commits:.0} commits"),
        figure: format!("{share:.2} per 100"),
        values: [share; 3],
        target: "< 1 per 100 commits".to_owned(),
        met: Some(share < 1.0),
        cost,
        ..Line::default()
    });
    engine.store().close().await;
    Ok(())
}
