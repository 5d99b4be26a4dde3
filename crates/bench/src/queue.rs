//! Claim rates with many finished runs, with a blocked queue, and during an old transaction.

use crate::Plan;
use crate::bench_cluster::{BenchCluster, CostTotal, ServerCounters, Triggers, fill, open, vacuum};
use crate::lifecycle::{Start, one_cycle, total};
use crate::report::{Pairs, Report, log};
use anyhow::Result;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tidemill_engine::Engine;
use tidemill_store::Pooler;
use tidemill_testkit::cluster::Database;
use tokio::task::JoinSet;

const CONNECTIONS: u32 = 4;
/// Claimable runs per round. A queue with 99 % blocked runs has 99 times as many blocked ones.
const READY: i32 = 1_000;

/// A database to claim from.
struct ClaimDatabase {
    database: Database,
    engine: Engine,
    conn: PgConnection,
    costs: CostTotal,
}

impl ClaimDatabase {
    async fn new(cluster: &BenchCluster) -> Result<Self> {
        let database = cluster.migrated_database().await?;
        let engine = open(&database.url, CONNECTIONS, Pooler::Session).await?;
        let conn = PgConnection::connect(&database.url).await?;
        Ok(Self { database, engine, conn, costs: CostTotal::default() })
    }

    /// Vacuums, and creates connections and query plans.
    async fn warm_up(&mut self) -> Result<()> {
        vacuum(&mut self.conn).await?;
        self.round(READY / 5).await?;
        Ok(())
    }

    /// Measures claims and finishes per second, in rounds.
    async fn rate(&mut self, time: Duration) -> Result<f64> {
        let (mut runs, mut taken) = (0.0, Duration::ZERO);
        while taken < time {
            taken += self.round(READY).await?;
            runs += f64::from(READY);
        }
        Ok(runs / taken.as_secs_f64())
    }

    /// Creates runs, and returns the time to claim and finish them.
    async fn round(&mut self, runs: i32) -> Result<Duration> {
        fill(&mut self.conn, include_str!("../sql/fill_ready.sql"), runs, Triggers::On).await?;
        let before = ServerCounters::read(&self.database.url).await?;
        let started = Instant::now();
        let left = Arc::new(AtomicI32::new(runs));
        let mut set = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (engine, left) = (self.engine.clone(), left.clone());
            set.spawn(async move {
                let worker = format!("worker-{number}");
                let mut done = 0;
                while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    while !one_cycle(&engine, &worker, Start::Implicit).await? {}
                    done += 1;
                }
                anyhow::Ok(done)
            });
        }
        let done = total(set, started).await?;
        let taken = started.elapsed();
        self.costs.add(before, ServerCounters::read(&self.database.url).await?, done.runs);
        Ok(taken)
    }
}

/// Rows that must not slow claims down.
struct Load {
    what: &'static str,
    /// SQL that creates the rows.
    sql: &'static str,
    rows: i32,
    queued: i32,
}

const LOADS: [Load; 4] = [
    Load {
        what: "1,000,000 finished and 100,000 queued",
        sql: include_str!("../sql/fill_finished.sql"),
        rows: 1_000_000,
        queued: 100_000,
    },
    Load {
        what: "99 % blocked by a key",
        sql: include_str!("../sql/fill_blocked_key.sql"),
        rows: 99 * READY,
        queued: 0,
    },
    Load {
        what: "99 % blocked by a label",
        sql: include_str!("../sql/fill_blocked_label.sql"),
        rows: 99 * READY,
        queued: 0,
    },
    Load {
        what: "99 % blocked by a future time",
        sql: include_str!("../sql/fill_blocked_time.sql"),
        rows: 99 * READY,
        queued: 0,
    },
];

/// Compares the rate with finished and blocked runs with the rate on empty tables.
pub(crate) async fn flat(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    let scale = if plan.quick { 10 } else { 1 };
    let mut empty = ClaimDatabase::new(cluster).await?;
    for load in LOADS {
        log(&format!("claims with {} (a tenth of it with --quick)", load.what));
        let mut full = ClaimDatabase::new(cluster).await?;
        fill(&mut full.conn, load.sql, load.rows / scale, Triggers::Off).await?;
        let queued = load.queued / scale;
        fill(&mut full.conn, include_str!("../sql/fill_ready.sql"), queued, Triggers::Off).await?;
        full.warm_up().await?;
        let mut pairs = Pairs::default();
        for _ in 0..plan.pairs {
            empty.conn.execute(CLEAR).await?;
            empty.warm_up().await?;
            let alone = empty.rate(plan.time()).await?;
            pairs.add(alone, full.rate(plan.time()).await?);
        }
        report.add(pairs.line(format!("claims with {}", load.what), 80.0, full.costs.per_run()));
        full.engine.store().close().await;
    }
    empty.engine.store().close().await;
    Ok(())
}

/// Empties the tables without the triggers, which would refuse it.
const CLEAR: &str = "
ALTER TABLE ops.runs DISABLE TRIGGER USER; ALTER TABLE ops.run_steps DISABLE TRIGGER USER;
TRUNCATE ops.runs, ops.run_steps;
ALTER TABLE ops.runs ENABLE TRIGGER USER; ALTER TABLE ops.run_steps ENABLE TRIGGER USER";

/// Compares the rate during an old transaction with the rate without one.
pub(crate) async fn pinned(cluster: &BenchCluster, plan: &Plan, report: &mut Report) -> Result<()> {
    const SLICES: u32 = 6;
    let time = Duration::from_secs(if plan.quick { 6 } else { 60 });
    log(&format!("claims during a transaction that is open for {} s", time.as_secs()));
    let (mut free, mut pinned) = (ClaimDatabase::new(cluster).await?, ClaimDatabase::new(cluster).await?);
    free.warm_up().await?;
    pinned.warm_up().await?;
    let options = PgConnectOptions::from_str(&pinned.database.url)?.application_name("bench-pinner");
    let mut holder = options.connect().await?;
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    holder.execute("SELECT count(*) FROM ops.projects").await?;
    let mut pairs = Pairs::default();
    for _ in 0..SLICES {
        let alone = free.rate(time / SLICES / 2).await?;
        pairs.add(alone, pinned.rate(time / SLICES).await?);
    }
    let sessions = pinned.engine.store().health().await?.pinning;
    let is_named = sessions.iter().any(|session| session.what.contains("bench-pinner"));
    holder.execute("ROLLBACK").await?;
    let what = format!("claims during a {} s old transaction", time.as_secs());
    let mut line = pairs.line(what, 70.0, pinned.costs.per_run());
    line.target.push_str(", session named");
    line.ours.push_str(if is_named { ", session named" } else { ", session not named" });
    line.met = line.met.map(|met| met && (is_named || plan.quick));
    report.add(line);
    free.engine.store().close().await;
    pinned.engine.store().close().await;
    Ok(())
}
