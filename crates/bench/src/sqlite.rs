//! Lifecycle of runs on a SQLite file, compared with a minimal table with the same durability.

use crate::Plan;
use crate::bench_cluster::{directory, open_sqlite};
use crate::floor::WARM_UP;
use crate::lifecycle::{Throughput, lifecycles, total};
use crate::report::{Line, Pairs, Report, log};
use anyhow::Result;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const TASKS: u32 = 8;

/// Measures the full lifecycle with eight tasks in one process.
pub(crate) async fn lifecycle(plan: &Plan, report: &mut Report) -> Result<()> {
    log("full lifecycle on SQLite, 8 tasks");
    let folder = directory()?;
    let engine = open_sqlite(&folder.path().join("ours.db")).await?;
    let floor = Arc::new(Mutex::new(floor_file(&folder.path().join("floor.db")).await?));
    floor_cycles(&floor, WARM_UP).await?;
    lifecycles(&engine, TASKS, WARM_UP).await?;
    let time = plan.time_or(10);
    let mut pairs = Pairs::default();
    let (mut steps, mut commits) = (0.0, 0.0);
    for _ in 0..plan.pairs {
        let bare = floor_cycles(&floor, time).await?;
        let before = engine.store().sqlite_commits();
        let done = lifecycles(&engine, TASKS, time).await?;
        steps += 4.0 * done.runs;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let shared = (engine.store().sqlite_commits() - before) as f64;
        commits += shared;
        pairs.add(bare.rate(), done.rate());
    }
    let per_step = commits / f64::max(steps, 1.0);
    report.add(pairs.line("full lifecycle on SQLite, 8 tasks", 40.0, None));
    report.add(Line {
        what: "commits of concurrent steps on SQLite".to_owned(),
        floor: "1 per step".to_owned(),
        ours: format!("{per_step:.2} per step"),
        figure: format!("{:.2} per run", 4.0 * per_step),
        values: [per_step; 3],
        target: "< 1 per step".to_owned(),
        met: Some(per_step < 1.0),
        ..Line::default()
    });
    engine.store().close().await;
    Ok(())
}

async fn floor_file(path: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut conn = SqliteConnection::connect_with(&options).await?;
    conn.execute(include_str!("../frozen/floor_sqlite_fill.sql")).await?;
    Ok(conn)
}

/// Claims and finishes with two commits, from eight tasks that share the connection: a SQLite file has one writer.
async fn floor_cycles(floor: &Arc<Mutex<SqliteConnection>>, time: Duration) -> Result<Throughput> {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..TASKS {
        let floor = floor.clone();
        set.spawn(async move {
            let mut done = 0_u32;
            while started.elapsed() < time {
                let id: i64 = {
                    let mut conn = floor.lock().await;
                    sqlx::query_scalar(include_str!("../frozen/floor_sqlite_claim.sql"))
                        .fetch_one(&mut *conn)
                        .await?
                };
                let mut conn = floor.lock().await;
                sqlx::query(include_str!("../frozen/floor_sqlite_finish.sql"))
                    .bind(id)
                    .execute(&mut *conn)
                    .await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    total(set, started).await
}
