//! From queue to claim while one worker waits, and what waiting and waking cost.

use crate::Plan;
use crate::ground::{Ground, Meter, Spent, folder, open, open_sqlite};
use crate::lifecycle::{lifecycles, request};
use crate::report::{Line, Report, percentile, say};
use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, PgConnection};
use std::io::Write as _;
use std::time::Duration;
use tidemill_core::Json;
use tidemill_core::run::{Claim, FinalStatus};
use tidemill_engine::clock::host_now;
use tidemill_engine::worker::{Carrier, Ended, Ending, RunLog, Sign, WorkerOptions};
use tidemill_engine::{Engine, Patience};
use tidemill_store::Pooler;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::{mpsc, watch};

/// When a run was claimed, seen by its worker.
type Claimed = (String, DateTime<Utc>);

/// Says when each run was claimed, and ends it.
struct Stopwatch(mpsc::UnboundedSender<Claimed>);

impl Carrier for Stopwatch {
    type Moment = ();

    fn moment(&self) {}

    async fn carry(&self, claim: Claim, _log: RunLog, _sign: watch::Receiver<Sign<()>>) -> Ended {
        let _ = self.0.send((claim.run_id.to_string(), host_now()));
        Ended::With(FinalStatus::Success, Json::Object(serde_json::Map::new()))
    }
}

fn worker_options() -> WorkerOptions {
    WorkerOptions {
        name: "idle".to_owned(),
        host: "bench".to_owned(),
        labels: Vec::new(),
        projects: None,
        slots: 1,
        ending: Ending::Never,
        beat: Duration::from_secs(5),
        look: Duration::from_secs(1),
        ending_max: Duration::from_secs(5),
        upkeep: None,
    }
}

/// Every way in which a worker can wait.
pub(crate) async fn all(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("from queue to claim, idle, one worker waiting");
    let samples = if plan.quick { 30 } else { 200 };
    let database = ground.fresh().await?;
    let listening = open(&database.url, 4, Pooler::Session).await?;
    let times = in_process(&listening, samples).await?;
    report.add(line("queue to claim, PostgreSQL, LISTEN", &times, 10.0));
    report.add(idle_queries(&listening, &database.url, plan).await?);
    let polling = open(&database.url, 4, Pooler::Transaction).await?;
    report.add(line("queue to claim, PostgreSQL, polling", &in_process(&polling, samples / 3).await?, 250.0));

    let folder = folder()?;
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

fn line(what: &str, millis: &[f64], most: f64) -> Line {
    let values = [50, 0, 100].map(|percent| percentile(millis, percent));
    let [middle, least, largest] = values;
    Line {
        what: what.to_owned(),
        ours: format!("p50 {middle:.1} ms, p99 {:.1} ms of {}", percentile(millis, 99), millis.len()),
        figure: format!("{middle:.1} ms ({least:.1}–{largest:.1})"),
        values,
        target: format!("p50 ≤ {most:.0} ms"),
        met: Some(middle <= most),
        ..Line::default()
    }
}

/// Queues while a worker of this process waits; the time of each from before the call to the claim, in milliseconds.
async fn in_process(engine: &Engine, samples: usize) -> Result<Vec<f64>> {
    let (told, mut claimed) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let worker = engine.with_patience(Patience::Endless);
    let work = tokio::spawn(async move { worker.work(worker_options(), Stopwatch(told), stopped).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut times = Vec::new();
    for _ in 0..samples {
        tokio::time::sleep(Duration::from_millis(25)).await;
        times.push(one(engine, &mut claimed).await?);
    }
    let _ = stop.send(true);
    work.await.context("the worker broke off")??;
    Ok(times)
}

async fn one(engine: &Engine, claimed: &mut mpsc::UnboundedReceiver<Claimed>) -> Result<f64> {
    let asked = host_now();
    let run = engine.queue(request()).await?.run_id;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), claimed.recv()).await;
        let (id, at) = next.context("nobody claimed the run")?.context("the worker ended")?;
        if id == run.as_str() {
            return Ok((at - asked).as_seconds_f64() * 1_000.0);
        }
    }
}

/// The other process: a worker that prints when it claims.
pub(crate) async fn other_process(file: &str) -> Result<()> {
    let engine = open(file, 1, Pooler::Session).await?.with_patience(Patience::Endless);
    let (told, mut claimed) = mpsc::unbounded_channel::<Claimed>();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(async move { engine.work(worker_options(), Stopwatch(told), stopped).await });
    while let Some((run, at)) = claimed.recv().await {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{run} {}", at.timestamp_micros())?;
        out.flush()?;
    }
    Ok(())
}

/// Queues here while a worker of another process waits on the same file.
async fn across(engine: &Engine, file: &str, samples: usize) -> Result<Vec<f64>> {
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["worker", file])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let (told, mut claimed) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            let Some((run, micros)) = line.split_once(' ') else { continue };
            let at = micros.parse().ok().and_then(DateTime::from_timestamp_micros).unwrap_or_default();
            let _ = told.send((run.to_owned(), at));
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut times = Vec::new();
    for sample in 0..samples {
        // Not in step with the other process's looks.
        tokio::time::sleep(Duration::from_millis(60 + (sample as u64 * 37) % 90)).await;
        times.push(one(engine, &mut claimed).await?);
    }
    child.kill().await?;
    Ok(times)
}

/// What an idle worker asks of the server.
async fn idle_queries(engine: &Engine, url: &str, plan: &Plan) -> Result<Line> {
    let (told, _claimed) = mpsc::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let worker = engine.with_patience(Patience::Endless);
    let work = tokio::spawn(async move { worker.work(worker_options(), Stopwatch(told), stopped).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    let time = Duration::from_secs(if plan.quick { 3 } else { 20 });
    let before = transactions(url).await?;
    tokio::time::sleep(time).await;
    let after = transactions(url).await?;
    let _ = stop.send(true);
    work.await.context("the worker broke off")??;
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

/// Transactions that ended in this database so far, those of this question included.
async fn transactions(url: &str) -> Result<f64> {
    // Sessions tell the statistics what they did about once a second.
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

/// Notifications under load, with somebody listening and nobody declared to wait.
pub(crate) async fn notifications(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    say("notifications under load, nobody waiting");
    let database = ground.fresh().await?;
    let engine = open(&database.url, 8, Pooler::Session).await?;
    let mut listener = PgListener::connect(&database.url).await?;
    listener.listen("tidemill_ops").await?;
    let before = Meter::read(&database.url).await?;
    let done = lifecycles(&engine, 8, plan.time() * 2).await?;
    let mut spent = Spent::default();
    spent.add(before, Meter::read(&database.url).await?, done.runs);
    let mut heard = 0_u32;
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(200), listener.recv()).await {
        heard += 1;
    }
    let cost = spent.per_run();
    let commits = cost.map_or(0.0, |cost| cost.commits) * done.runs;
    let share = 100.0 * f64::from(heard) / f64::max(commits, 1.0);
    report.add(Line {
        what: "NOTIFY under load, nobody waiting".to_owned(),
        ours: format!("{heard} in {commits:.0} commits"),
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
