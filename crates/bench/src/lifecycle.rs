//! Lifecycles of runs through the engine.

use crate::bench_cluster::{ENVIRONMENT, PROJECT};
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};
use tidemill_core::run::{ChangeOutcome, Claim, FinalStatus, QueueRun};
use tidemill_engine::Engine;
use tidemill_store::{ClaimRuns, FinishRun, Holder};
use tokio::task::JoinSet;

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
pub(crate) fn request() -> Result<QueueRun> {
    let mut request = QueueRun::new(PROJECT, ENVIRONMENT);
    request.metadata = serde_json::from_str(include_str!("../frozen/row.json"))?;
    Ok(request)
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
                engine.queue(request()?).await?;
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
