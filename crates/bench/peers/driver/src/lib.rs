//! The work that each queue does, and the protocol with the benchmark that starts it.
//!
//! `peer-NAME insert|bulk|drain URL SECONDS` prepares its work and prints `ready`. After a line on standard input it
//! does the work and prints `{"jobs": …, "seconds": …}`.

use anyhow::{Context as _, Result, bail};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Concurrent callers that insert one job at a time.
pub const INSERT_CALLERS: usize = 16;
/// Concurrent callers that insert batches.
const BULK_CALLERS: usize = 4;
const BULK_SIZE: usize = 1_000;
/// Jobs per call that fills the queue before a drain.
const FILL_SIZE: usize = 5_000;

/// Returns the payload of a job: as long as the payload of a run.
pub fn payload() -> String {
    "x".repeat(86)
}

/// A queue that is measured.
pub trait Peer: Clone + Send + Sync + Sized + 'static {
    /// More jobs per second than this queue completes; a drain starts with as many for each second.
    const DRAIN_RATE_MAX: usize;

    /// Connects and creates the schema.
    fn open(url: &str) -> impl Future<Output = Result<Self>>;

    /// Inserts one job in a transaction of its own.
    fn insert(&self) -> impl Future<Output = Result<()>> + Send;

    /// Inserts jobs with the fastest call that the queue has.
    fn insert_many(&self, count: usize) -> impl Future<Output = Result<()>> + Send;

    /// Runs a worker, which adds each completed job to `done`, until the future is dropped.
    fn work(&self, done: Arc<AtomicU64>) -> impl Future<Output = Result<()>> + Send;
}

/// Runs the work of the command line.
pub fn main<P: Peer>() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, url, seconds] = arguments.as_slice() else { bail!("usage: insert|bulk|drain URL SECONDS") };
    let time = Duration::from_secs(seconds.parse().context("SECONDS must be a number")?);
    tokio::runtime::Runtime::new()?.block_on(async {
        let peer = P::open(url).await?;
        let (jobs, taken) = match work.as_str() {
            "insert" => {
                repeat(time, INSERT_CALLERS, 1, move || {
                    let peer = peer.clone();
                    async move { peer.insert().await }
                })
                .await?
            }
            "bulk" => {
                repeat(time, BULK_CALLERS, BULK_SIZE, move || {
                    let peer = peer.clone();
                    async move { peer.insert_many(BULK_SIZE).await }
                })
                .await?
            }
            "drain" => drain(peer, time).await?,
            other => bail!("unknown work `{other}`; use insert, bulk or drain"),
        };
        println!("{}", serde_json::json!({"jobs": jobs, "seconds": taken.as_secs_f64()}));
        // Workers and pools would take seconds to shut down.
        std::process::exit(0)
    })
}

/// Prints `ready`, and waits for a line.
fn wait_for_start() -> Result<()> {
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Repeats a call with concurrent callers, after one call of each as a warm-up.
async fn repeat<F, C>(time: Duration, callers: usize, jobs: usize, call: C) -> Result<(u64, Duration)>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let mut warm_up = JoinSet::new();
    for _ in 0..callers {
        let call = call.clone();
        warm_up.spawn(async move { call().await });
    }
    while let Some(result) = warm_up.join_next().await {
        result??;
    }
    wait_for_start()?;
    let started = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..callers {
        let call = call.clone();
        set.spawn(async move {
            let mut calls = 0_u64;
            while started.elapsed() < time {
                call().await?;
                calls += 1;
            }
            anyhow::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(result) = set.join_next().await {
        calls += result??;
    }
    Ok((calls * u64::try_from(jobs)?, started.elapsed()))
}

/// Fills the queue, and completes jobs until the time is over or the queue is empty.
async fn drain<P: Peer>(peer: P, time: Duration) -> Result<(u64, Duration)> {
    let mut left = P::DRAIN_RATE_MAX * usize::try_from(time.as_secs())?;
    let total = u64::try_from(left)?;
    while left > 0 {
        let count = left.min(FILL_SIZE);
        peer.insert_many(count).await?;
        left -= count;
    }
    wait_for_start()?;
    let done = Arc::new(AtomicU64::new(0));
    let counter = done.clone();
    let mut worker = tokio::spawn(async move { peer.work(counter).await });
    // A worker needs some time to start, which is not measured.
    let mut started = None;
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let jobs = done.load(Ordering::Relaxed);
        let start = match started {
            None if jobs == 0 => {
                if worker.is_finished() {
                    (&mut worker).await??;
                    bail!("the worker ended");
                }
                continue;
            }
            None => *started.insert(Instant::now()),
            Some(start) => start,
        };
        if jobs >= total || start.elapsed() >= time {
            return Ok((jobs, start.elapsed()));
        }
    }
}
