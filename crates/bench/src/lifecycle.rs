//! Lifecycle of runs on PostgreSQL, one by one and in batches.

use crate::Plan;
use crate::bench_cluster::{
    BenchCluster, CostTotal, ENVIRONMENT, PROJECT, ServerCounters, Triggers, fill, open, vacuum,
};
use crate::floor::{self, Floor};
use crate::report::{Pairs, Report, log, median};
use anyhow::{Context as _, Result};
use sqlx::{Connection as _, PgConnection};
use std::time::{Duration, Instant};
use tidemill_core::run::{ChangeOutcome, Claim, FinalStatus, QueueRun};
use tidemill_engine::Engine;
use tidemill_store::{ClaimRuns, FinishRun, Holder, Pooler};
use tokio::task::JoinSet;

/// Measures queue, claim, start and finish, each with its own commit and all events.
pub(crate) async fn single(
    cluster: &BenchCluster,
    plan: &Plan,
    connections: u32,
    report: &mut Report,
) -> Result<()> {
    log(&format!("full lifecycle at {connections} connections"));
    let bare = cluster.empty_database()?;
    let ours = cluster.migrated_database().await?;
    let engine = open(&ours.url, connections, Pooler::Session).await?;
    lifecycles(&engine, connections, Duration::from_secs(1)).await?;
    let mut conn = PgConnection::connect(&ours.url).await?;
    let (mut pairs, mut costs) = (Pairs::default(), CostTotal::default());
    let time = plan.time_or(30);
    for _ in 0..plan.pairs {
        // The table of the floor is new in each pair. The tables of Tidemill are vacuumed.
        vacuum(&mut conn).await?;
        let floor = floor::SINGLE.rate(&bare, connections, time)?;
        let before = ServerCounters::read(&ours.url).await?;
        let done = lifecycles(&engine, connections, time).await?;
        costs.add(before, ServerCounters::read(&ours.url).await?, done.runs);
        pairs.add(floor, done.rate());
    }
    floor::SINGLE.warn(connections, median(&pairs.floors));
    report.add(pairs.line(format!("full lifecycle, {connections} connections"), 25.0, costs.per_run()));
    engine.store().close().await;
    Ok(())
}

/// Finished runs, and the time that they took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Throughput {
    pub(crate) runs: f64,
    time: Duration,
}

impl Throughput {
    pub(crate) fn rate(self) -> f64 {
        self.runs / self.time.as_secs_f64()
    }
}

/// A request of about the size of a row of the floor.
pub(crate) fn request() -> QueueRun {
    let mut request = QueueRun::new(PROJECT, ENVIRONMENT);
    request.metadata = serde_json::json!({"payload": "x".repeat(86)});
    request
}

/// Runs the full lifecycle with concurrent tasks, each with its own connection.
pub(crate) async fn lifecycles(engine: &Engine, tasks: u32, time: Duration) -> Result<Throughput> {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let engine = engine.clone();
        set.spawn(async move {
            let worker = format!("worker-{number}");
            let mut done = 0_u32;
            while started.elapsed() < time {
                engine.queue(request()).await?;
                done += u32::from(one_cycle(&engine, &worker, Start::Explicit).await?);
            }
            anyhow::Ok(done)
        });
    }
    total(set, started).await
}

/// Whether a run is started explicitly before it is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Explicit,
    Implicit,
}

/// Claims one run and finishes it. Returns false if there was none.
pub(crate) async fn one_cycle(engine: &Engine, worker: &str, start: Start) -> Result<bool> {
    let Some(claim) = engine.claim(ClaimRuns::one(worker)).await?.pop() else { return Ok(false) };
    if start == Start::Explicit {
        let holder = Holder { worker: Some(worker.to_owned()), epoch: Some(claim.epoch) };
        engine.start(&claim.run_id, &holder).await?;
    }
    let outcomes = engine.finish(vec![success(claim)], Some(worker)).await?;
    Ok(outcomes == [ChangeOutcome::Applied])
}

fn success(claim: Claim) -> FinishRun {
    FinishRun {
        run_id: claim.run_id,
        status: FinalStatus::Success,
        metadata: serde_json::json!({"exit_code": 0}),
        epoch: Some(claim.epoch),
    }
}

/// Waits for all tasks, and adds up their runs.
pub(crate) async fn total(mut set: JoinSet<Result<u32>>, started: Instant) -> Result<Throughput> {
    let mut runs = 0.0;
    while let Some(done) = set.join_next().await {
        runs += f64::from(done.context("a task panicked")??);
    }
    Ok(Throughput { runs, time: started.elapsed() })
}

/// Compares claims and finishes in batches of 100 with the floor, on a filled queue.
pub(crate) async fn batched(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    const CONNECTIONS: u32 = 8;
    const FLOOR: Floor = floor::BATCH;
    log("claim and finish in batches of 100 at 8 connections");
    let bare = cluster.empty_database()?;
    let ours = cluster.migrated_database().await?;
    let engine = open(&ours.url, CONNECTIONS, Pooler::Session).await?;
    let mut conn = PgConnection::connect(&ours.url).await?;
    let time = plan.time_or(10);
    let ready = i32::try_from(40_000 * time.as_secs().max(1)).unwrap_or(i32::MAX);
    let (mut pairs, mut costs) = (Pairs::default(), CostTotal::default());
    for pair in 0..=plan.pairs {
        fill(&mut conn, include_str!("../sql/fill_ready.sql"), ready, Triggers::On).await?;
        vacuum(&mut conn).await?;
        if pair == 0 {
            // The first round only creates connections and query plans.
            batches(&engine, CONNECTIONS, Duration::from_secs(1)).await?;
            continue;
        }
        let floor = FLOOR.rate(&bare, CONNECTIONS, time)?;
        let before = ServerCounters::read(&ours.url).await?;
        let done = batches(&engine, CONNECTIONS, time).await?;
        costs.add(before, ServerCounters::read(&ours.url).await?, done.runs);
        pairs.add(floor, done.rate());
    }
    FLOOR.warn(CONNECTIONS, median(&pairs.floors));
    report.add(pairs.line("claim and finish 100 at once, 8 connections", 30.0, costs.per_run()));
    engine.store().close().await;
    Ok(())
}

async fn batches(engine: &Engine, tasks: u32, time: Duration) -> Result<Throughput> {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let engine = engine.clone();
        set.spawn(async move {
            let worker = format!("worker-{number}");
            let mut done = 0_u32;
            while started.elapsed() < time {
                let claims = engine.claim(ClaimRuns { limit: 100, ..ClaimRuns::one(worker.clone()) }).await?;
                if claims.is_empty() {
                    break;
                }
                let ends = claims.into_iter().map(success).collect();
                let outcomes = engine.finish(ends, Some(&worker)).await?;
                let applied = outcomes.iter().filter(|outcome| **outcome == ChangeOutcome::Applied).count();
                done += u32::try_from(applied)?;
            }
            anyhow::Ok(done)
        });
    }
    total(set, started).await
}
