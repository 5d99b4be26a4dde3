//! A run from queued to done on PostgreSQL, one by one and in batches.

use crate::Plan;
use crate::floor::{self, Floor};
use crate::ground::{ENVIRONMENT, Ground, Meter, PROJECT, Spent, Triggers, fill, open, tidy};
use crate::report::{Pairs, Report, median, say};
use anyhow::{Context as _, Result};
use sqlx::{Connection as _, PgConnection};
use std::time::{Duration, Instant};
use tidemill_core::run::{Applied, Claim, FinalStatus, QueueRun};
use tidemill_engine::Engine;
use tidemill_store::{ClaimRuns, FinishRun, Holder, Pooler};
use tokio::task::JoinSet;

/// Queue, claim, start and finish, each its own commit, all events written.
pub(crate) async fn single(
    ground: &Ground,
    plan: &Plan,
    connections: u32,
    report: &mut Report,
) -> Result<()> {
    say(&format!("full lifecycle at {connections} connections"));
    let bare = ground.bare()?;
    let ours = ground.fresh().await?;
    let engine = open(&ours.url, connections, Pooler::Session).await?;
    lifecycles(&engine, connections, Duration::from_secs(1)).await?;
    let mut conn = PgConnection::connect(&ours.url).await?;
    let (mut pairs, mut spent) = (Pairs::default(), Spent::default());
    let time = plan.lasting(30);
    for _ in 0..plan.pairs {
        // The floor's table is new in each pair; ours is at least without what the pair before has left behind.
        tidy(&mut conn).await?;
        let floor = floor::SINGLE.rate(&bare, connections, time)?;
        let before = Meter::read(&ours.url).await?;
        let done = lifecycles(&engine, connections, time).await?;
        spent.add(before, Meter::read(&ours.url).await?, done.runs);
        pairs.add(floor, done.rate());
    }
    floor::SINGLE.warn(connections, median(&pairs.floors));
    report.add(pairs.line(format!("full lifecycle, {connections} connections"), 25.0, spent.per_run()));
    engine.store().close().await;
    Ok(())
}

/// Runs that were finished, and the time that it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) runs: f64,
    time: Duration,
}

impl Done {
    /// Runs per second.
    pub(crate) fn rate(self) -> f64 {
        self.runs / self.time.as_secs_f64()
    }
}

/// What a caller asks for: about as much to carry as a row of the floor.
pub(crate) fn request() -> QueueRun {
    let mut request = QueueRun::new(PROJECT, ENVIRONMENT);
    request.metadata = serde_json::json!({"payload": "x".repeat(86)});
    request
}

/// Carries runs from queued to done with so many tasks, each on its own connection.
pub(crate) async fn lifecycles(engine: &Engine, tasks: u32, time: Duration) -> Result<Done> {
    let began = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let engine = engine.clone();
        set.spawn(async move {
            let worker = format!("worker-{number}");
            let mut done = 0_u32;
            while began.elapsed() < time {
                engine.queue(request()).await?;
                done += u32::from(one_cycle(&engine, &worker, Start::Named).await?);
            }
            anyhow::Ok(done)
        });
    }
    total(set, began).await
}

/// Whether a run is started by name before it is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Named,
    Implied,
}

/// Claims one run and finishes it; false when there was none.
pub(crate) async fn one_cycle(engine: &Engine, worker: &str, start: Start) -> Result<bool> {
    let Some(claim) = engine.claim(ClaimRuns::one(worker)).await?.pop() else { return Ok(false) };
    if start == Start::Named {
        let holder = Holder { worker: Some(worker.to_owned()), epoch: Some(claim.epoch) };
        engine.start(&claim.run_id, &holder).await?;
    }
    let outcomes = engine.finish(vec![success(claim)], Some(worker)).await?;
    Ok(outcomes == [Applied::Applied])
}

fn success(claim: Claim) -> FinishRun {
    FinishRun {
        run_id: claim.run_id,
        status: FinalStatus::Success,
        metadata: serde_json::json!({"exit_code": 0}),
        epoch: Some(claim.epoch),
    }
}

/// Waits for every task, and adds up what they did.
pub(crate) async fn total(mut set: JoinSet<Result<u32>>, began: Instant) -> Result<Done> {
    let mut runs = 0.0;
    while let Some(done) = set.join_next().await {
        runs += f64::from(done.context("a task broke off")??);
    }
    Ok(Done { runs, time: began.elapsed() })
}

/// Claims and finishes in batches of 100, on a queue that was filled before.
pub(crate) async fn batched(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    const CONNECTIONS: u32 = 8;
    const FLOOR: Floor = floor::BATCH;
    say("claim and finish in batches of 100 at 8 connections");
    let bare = ground.bare()?;
    let ours = ground.fresh().await?;
    let engine = open(&ours.url, CONNECTIONS, Pooler::Session).await?;
    let mut conn = PgConnection::connect(&ours.url).await?;
    let time = plan.lasting(10);
    let ready = i32::try_from(40_000 * time.as_secs().max(1)).unwrap_or(i32::MAX);
    let (mut pairs, mut spent) = (Pairs::default(), Spent::default());
    for pair in 0..=plan.pairs {
        fill(&mut conn, include_str!("../sql/fill_ready.sql"), ready, Triggers::On).await?;
        tidy(&mut conn).await?;
        if pair == 0 {
            // The first round only makes connections and plans.
            batches(&engine, CONNECTIONS, Duration::from_secs(1)).await?;
            continue;
        }
        let floor = FLOOR.rate(&bare, CONNECTIONS, time)?;
        let before = Meter::read(&ours.url).await?;
        let done = batches(&engine, CONNECTIONS, time).await?;
        spent.add(before, Meter::read(&ours.url).await?, done.runs);
        pairs.add(floor, done.rate());
    }
    FLOOR.warn(CONNECTIONS, median(&pairs.floors));
    report.add(pairs.line("claim and finish 100 at once, 8 connections", 30.0, spent.per_run()));
    engine.store().close().await;
    Ok(())
}

async fn batches(engine: &Engine, tasks: u32, time: Duration) -> Result<Done> {
    let began = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let engine = engine.clone();
        set.spawn(async move {
            let worker = format!("worker-{number}");
            let mut done = 0_u32;
            while began.elapsed() < time {
                let claims = engine.claim(ClaimRuns { limit: 100, ..ClaimRuns::one(worker.clone()) }).await?;
                if claims.is_empty() {
                    break;
                }
                let ends = claims.into_iter().map(success).collect();
                let outcomes = engine.finish(ends, Some(&worker)).await?;
                let applied = outcomes.iter().filter(|outcome| **outcome == Applied::Applied).count();
                done += u32::try_from(applied)?;
            }
            anyhow::Ok(done)
        });
    }
    total(set, began).await
}
