//! A run from queued to done on PostgreSQL, one by one and in batches.

use crate::Plan;
use crate::floor;
use crate::ground::{Ground, Meter, Triggers, fill, open};
use crate::report::{Pairs, Report, say};
use anyhow::{Context as _, Result};
use sqlx::{Connection as _, PgConnection};
use std::time::{Duration, Instant};
use tidemill_core::Json;
use tidemill_core::run::{Applied, FinalStatus, QueueRun};
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
    let mut pairs = Pairs::default();
    let mut cost = String::new();
    lifecycles(&engine, connections, Duration::from_secs(1)).await?;
    for _ in 0..plan.pairs {
        floor::fill(&bare.url, rows(plan, 8_000))?;
        let floor = floor::pgbench(&bare.url, "floor_single.sql", connections, plan.time.as_secs())?;
        let before = Meter::read(&ours.url).await?;
        let rate = lifecycles(&engine, connections, plan.time).await?;
        cost = Meter::read(&ours.url).await?.cost_since(before, rate * plan.time.as_secs_f64());
        pairs.add(floor, rate);
    }
    let usual = if connections == 8 { floor::SINGLE_8_USUAL } else { floor::SINGLE_16_USUAL };
    floor::warn("claim and finish", crate::report::median(&pairs.floors), usual);
    report.add(pairs.line(format!("full lifecycle, {connections} connections"), 25.0, cost));
    engine.store().close().await;
    Ok(())
}

/// Rows that a floor needs so that it does not run dry.
fn rows(plan: &Plan, per_second: u64) -> u32 {
    u32::try_from(per_second * plan.time.as_secs().max(1)).unwrap_or(u32::MAX)
}

/// Lifecycles per second with so many tasks, each on its own connection.
pub(crate) async fn lifecycles(engine: &Engine, tasks: u32, time: Duration) -> Result<f64> {
    let began = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..tasks {
        let engine = engine.clone();
        set.spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < time {
                engine.queue(QueueRun::new("bench", "main")).await?;
                if one_cycle(&engine, &format!("worker-{number}"), Start::Named).await? {
                    done += 1;
                }
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
    let end = FinishRun {
        run_id: claim.run_id,
        status: FinalStatus::Success,
        metadata: Json::Object(serde_json::Map::new()),
        epoch: Some(claim.epoch),
    };
    let outcome = engine.finish(vec![end], Some(worker)).await?;
    Ok(outcome == [Applied::Applied])
}

pub(crate) async fn total(mut set: JoinSet<Result<u32>>, began: Instant) -> Result<f64> {
    let mut total = 0_u32;
    while let Some(done) = set.join_next().await {
        total += done.context("a task broke off")??;
    }
    Ok(f64::from(total) / began.elapsed().as_secs_f64())
}

/// Claims and finishes in batches of 100, on a queue that was filled before.
pub(crate) async fn batched(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    const CONNECTIONS: u32 = 8;
    say("claim and finish in batches of 100 at 8 connections");
    let bare = ground.bare()?;
    let ours = ground.fresh().await?;
    let engine = open(&ours.url, CONNECTIONS, Pooler::Session).await?;
    let mut conn = PgConnection::connect(&ours.url).await?;
    let mut pairs = Pairs::default();
    let (mut spent, mut finished) = (None, 0.0);
    for _ in 0..plan.pairs {
        floor::fill(&bare.url, rows(plan, 70_000))?;
        let floor = 100.0 * floor::pgbench(&bare.url, "floor_batch.sql", CONNECTIONS, plan.time.as_secs())?;
        let ready = i32::try_from(rows(plan, 30_000)).unwrap_or(i32::MAX);
        fill(&mut conn, include_str!("../sql/fill_ready.sql"), ready, Triggers::On).await?;
        sqlx::raw_sql("VACUUM ANALYZE ops.runs, ops.run_events").execute(&mut conn).await?;
        let before = Meter::read(&ours.url).await?;
        let rate = batches(&engine, CONNECTIONS, plan.time).await?;
        let runs = rate * plan.time.as_secs_f64();
        spent = Some(Meter::read(&ours.url).await?.cost_since(before, runs));
        finished += runs;
        pairs.add(floor, rate);
    }
    floor::warn("batches", crate::report::median(&pairs.floors), floor::BATCH_8_USUAL);
    say(&format!("  {finished:.0} runs finished in batches"));
    report.add(pairs.line("claim and finish, batches of 100", 30.0, spent.unwrap_or_default()));
    engine.store().close().await;
    Ok(())
}

async fn batches(engine: &Engine, tasks: u32, time: Duration) -> Result<f64> {
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
                let ends: Vec<FinishRun> = claims
                    .into_iter()
                    .map(|claim| FinishRun {
                        run_id: claim.run_id,
                        status: FinalStatus::Success,
                        metadata: Json::Object(serde_json::Map::new()),
                        epoch: Some(claim.epoch),
                    })
                    .collect();
                let outcomes = engine.finish(ends, Some(&worker)).await?;
                let applied = outcomes.iter().filter(|outcome| **outcome == Applied::Applied).count();
                done += u32::try_from(applied)?;
            }
            anyhow::Ok(done)
        });
    }
    total(set, began).await
}
