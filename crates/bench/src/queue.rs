//! Claims stay flat: with many finished runs, with a blocked queue, and under an old transaction.

use crate::Plan;
use crate::ground::{Ground, Meter, Spent, Triggers, fill, open, tidy};
use crate::lifecycle::{Start, one_cycle, total};
use crate::report::{Pairs, Report, say};
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
/// Runs that are made ready at a time. A queue of which 99 % are blocked holds 99 times as many that are not.
const READY: i32 = 1_000;

/// One database to claim from.
struct Field {
    database: Database,
    engine: Engine,
    conn: PgConnection,
    spent: Spent,
}

impl Field {
    async fn new(ground: &Ground) -> Result<Self> {
        let database = ground.fresh().await?;
        let engine = open(&database.url, CONNECTIONS, Pooler::Session).await?;
        let conn = PgConnection::connect(&database.url).await?;
        Ok(Self { database, engine, conn, spent: Spent::default() })
    }

    /// Tidies up, and makes connections and plans.
    async fn settle(&mut self) -> Result<()> {
        tidy(&mut self.conn).await?;
        self.round(READY / 5).await?;
        Ok(())
    }

    /// Single claims and finishes per second, in rounds of as many as are made ready before.
    async fn rate(&mut self, time: Duration) -> Result<f64> {
        let (mut runs, mut taken) = (0.0, Duration::ZERO);
        while taken < time {
            taken += self.round(READY).await?;
            runs += f64::from(READY);
        }
        Ok(runs / taken.as_secs_f64())
    }

    /// The time in which so many runs are claimed and finished.
    async fn round(&mut self, runs: i32) -> Result<Duration> {
        fill(&mut self.conn, include_str!("../sql/fill_ready.sql"), runs, Triggers::On).await?;
        let before = Meter::read(&self.database.url).await?;
        let began = Instant::now();
        let left = Arc::new(AtomicI32::new(runs));
        let mut set = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (engine, left) = (self.engine.clone(), left.clone());
            set.spawn(async move {
                let worker = format!("worker-{number}");
                let mut done = 0;
                while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    while !one_cycle(&engine, &worker, Start::Implied).await? {}
                    done += 1;
                }
                anyhow::Ok(done)
            });
        }
        let done = total(set, began).await?;
        let taken = began.elapsed();
        self.spent.add(before, Meter::read(&self.database.url).await?, done.runs);
        Ok(taken)
    }
}

/// What stands in the way of a claim, or beside it.
struct Burden {
    what: &'static str,
    /// The text that makes it, and for how many rows.
    sql: &'static str,
    rows: i32,
    /// Runs that are ready all the time.
    queued: i32,
}

const BURDENS: [Burden; 4] = [
    Burden {
        what: "1,000,000 finished and 100,000 queued",
        sql: include_str!("../sql/fill_finished.sql"),
        rows: 1_000_000,
        queued: 100_000,
    },
    Burden {
        what: "99 % blocked by a key",
        sql: include_str!("../sql/fill_blocked_key.sql"),
        rows: 99 * READY,
        queued: 0,
    },
    Burden {
        what: "99 % blocked by a label",
        sql: include_str!("../sql/fill_blocked_label.sql"),
        rows: 99 * READY,
        queued: 0,
    },
    Burden {
        what: "99 % blocked by a future time",
        sql: include_str!("../sql/fill_blocked_time.sql"),
        rows: 99 * READY,
        queued: 0,
    },
];

/// The rate beside finished and blocked runs, against the rate on empty tables.
pub(crate) async fn flat(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    let scale = if plan.quick { 10 } else { 1 };
    let mut empty = Field::new(ground).await?;
    for burden in BURDENS {
        say(&format!("claims with {} (a tenth of it with --quick)", burden.what));
        let mut full = Field::new(ground).await?;
        fill(&mut full.conn, burden.sql, burden.rows / scale, Triggers::Off).await?;
        let queued = burden.queued / scale;
        fill(&mut full.conn, include_str!("../sql/fill_ready.sql"), queued, Triggers::Off).await?;
        full.settle().await?;
        let mut pairs = Pairs::default();
        for _ in 0..plan.pairs {
            empty.conn.execute(CLEAR).await?;
            empty.settle().await?;
            let alone = empty.rate(plan.time()).await?;
            pairs.add(alone, full.rate(plan.time()).await?);
        }
        report.add(pairs.line(format!("claims with {}", burden.what), 80.0, full.spent.per_run()));
        full.engine.store().close().await;
    }
    empty.engine.store().close().await;
    Ok(())
}

/// Empties the tables that are to be empty; the triggers would rightly refuse.
const CLEAR: &str = "
ALTER TABLE ops.runs DISABLE TRIGGER USER; ALTER TABLE ops.run_events DISABLE TRIGGER USER;
TRUNCATE ops.runs, ops.run_events;
ALTER TABLE ops.runs ENABLE TRIGGER USER; ALTER TABLE ops.run_events ENABLE TRIGGER USER";

/// The rate while an old transaction keeps every row version alive, against the rate in a database that has none.
pub(crate) async fn pinned(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    const SLICES: u32 = 6;
    let time = Duration::from_secs(if plan.quick { 6 } else { 60 });
    say(&format!("claims under a transaction that is open for {} s of them", time.as_secs()));
    let (mut free, mut pinned) = (Field::new(ground).await?, Field::new(ground).await?);
    free.settle().await?;
    pinned.settle().await?;
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
    let what = format!("claims under a {} s old transaction", time.as_secs());
    let mut line = pairs.line(what, 70.0, pinned.spent.per_run());
    line.target.push_str(", session named");
    line.ours.push_str(if is_named { ", session named" } else { ", session not named" });
    line.met = line.met.map(|met| met && (is_named || plan.quick));
    report.add(line);
    free.engine.store().close().await;
    pinned.engine.store().close().await;
    Ok(())
}
