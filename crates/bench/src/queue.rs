//! Claims stay flat: with many finished runs, with a blocked queue, and under an old transaction.

use crate::Plan;
use crate::ground::{Ground, Triggers, fill, open};
use crate::lifecycle::{Start, one_cycle, total};
use crate::report::{Line, Pairs, Report, say};
use anyhow::Result;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection};
use std::str::FromStr as _;
use std::time::{Duration, Instant};
use tidemill_engine::Engine;
use tidemill_store::Pooler;
use tidemill_testkit::cluster::Database;
use tokio::task::JoinSet;

const CONNECTIONS: u32 = 4;

/// One database to claim from.
struct Field {
    _database: Database,
    engine: Engine,
    conn: PgConnection,
}

impl Field {
    async fn new(ground: &Ground) -> Result<Self> {
        let database = ground.fresh().await?;
        let engine = open(&database.url, CONNECTIONS, Pooler::Session).await?;
        let conn = PgConnection::connect(&database.url).await?;
        Ok(Self { _database: database, engine, conn })
    }

    /// Makes runs ready, and lets the server tidy up, so that both sides are alike but for what is compared.
    async fn make_ready(&mut self, runs: i32) -> Result<()> {
        fill(&mut self.conn, include_str!("../sql/fill_ready.sql"), runs, Triggers::On).await?;
        self.conn.execute("VACUUM ANALYZE ops.runs").await?;
        self.conn.execute("VACUUM ANALYZE ops.run_events").await?;
        Ok(())
    }

    async fn rate(&self, time: Duration) -> Result<f64> {
        cycles(&self.engine, time).await
    }
}

/// Single claims and finishes per second.
async fn cycles(engine: &Engine, time: Duration) -> Result<f64> {
    let began = Instant::now();
    let mut set = JoinSet::new();
    for number in 0..CONNECTIONS {
        let engine = engine.clone();
        set.spawn(async move {
            let worker = format!("worker-{number}");
            let mut done = 0_u32;
            while began.elapsed() < time {
                if one_cycle(&engine, &worker, Start::Implied).await? {
                    done += 1;
                }
            }
            anyhow::Ok(done)
        });
    }
    total(set, began).await
}

/// The rate beside finished and blocked runs, against the rate on empty tables.
pub(crate) async fn flat(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    let scale = if plan.quick { 10 } else { 1 };
    let ready = i32::try_from(4_000 * plan.time.as_secs().max(1)).unwrap_or(i32::MAX);
    let mut empty = Field::new(ground).await?;
    let cases: [(&str, &'static str, i32); 4] = [
        ("1,000,000 finished, 100,000 queued", include_str!("../sql/fill_finished.sql"), 1_000_000 / scale),
        ("99 % blocked by a key", include_str!("../sql/fill_blocked_key.sql"), 100_000 / scale),
        ("99 % blocked by a label", include_str!("../sql/fill_blocked_label.sql"), 100_000 / scale),
        ("99 % blocked by a future time", include_str!("../sql/fill_blocked_time.sql"), 100_000 / scale),
    ];
    for (what, text, rows) in cases {
        say(&format!("claims with {what}"));
        let mut full = Field::new(ground).await?;
        fill(&mut full.conn, text, rows, Triggers::Off).await?;
        if what.starts_with("1,000,000") {
            fill(&mut full.conn, include_str!("../sql/fill_ready.sql"), 100_000 / scale, Triggers::Off)
                .await?;
        }
        let mut pairs = Pairs::default();
        for _ in 0..plan.pairs {
            empty.make_ready(ready).await?;
            full.make_ready(ready).await?;
            let alone = empty.rate(plan.time).await?;
            pairs.add(alone, full.rate(plan.time).await?);
            empty.conn.execute(CLEAR).await?;
        }
        report.add(pairs.line(format!("claims with {what}"), 80.0, "–".to_owned()));
        full.engine.store().close().await;
    }
    Ok(())
}

/// Empties the tables that are to be empty; the triggers would rightly refuse.
const CLEAR: &str = "
ALTER TABLE ops.runs DISABLE TRIGGER USER; ALTER TABLE ops.run_events DISABLE TRIGGER USER;
TRUNCATE ops.runs, ops.run_events;
ALTER TABLE ops.runs ENABLE TRIGGER USER; ALTER TABLE ops.run_events ENABLE TRIGGER USER";

/// The rate while an old transaction keeps every row version alive, against the rate before.
pub(crate) async fn pinned(ground: &Ground, plan: &Plan, report: &mut Report) -> Result<()> {
    let time = Duration::from_secs(if plan.quick { 10 } else { 60 });
    say(&format!("claims under a transaction that is held open for {} s", time.as_secs()));
    let mut field = Field::new(ground).await?;
    let ready = i32::try_from(3_000 * time.as_secs()).unwrap_or(i32::MAX);
    field.make_ready(ready).await?;
    let clean = field.rate(time / 3).await?;
    field.make_ready(ready).await?;
    let options = PgConnectOptions::from_str(&field._database.url)?.application_name("bench-pinner");
    let mut pinner = options.connect().await?;
    pinner.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    pinner.execute("SELECT count(*) FROM ops.projects").await?;
    let slices = 6;
    let mut rates = Vec::new();
    for _ in 0..slices {
        rates.push(field.rate(time / slices).await?);
    }
    let named = field.engine.store().health().await?.pinning;
    let is_named = named.iter().any(|session| session.what.contains("bench-pinner"));
    pinner.execute("ROLLBACK").await?;
    let mut pairs = Pairs::default();
    for rate in &rates {
        pairs.add(clean, *rate);
    }
    let last = rates.last().copied().unwrap_or(0.0);
    let cost = format!("last sixth {:.0} %; session named: {is_named}", 100.0 * last / clean);
    let mut line: Line =
        pairs.line(format!("claims under a {} s old transaction", time.as_secs()), 70.0, cost);
    line.met &= is_named;
    report.add(line);
    Ok(())
}
