//! A run from queued to done on one SQLite file, beside the bare file at the same durability.

use crate::lifecycle::lifecycles;
use crate::report::{Line, Pairs, Report, say};
use crate::{Plan, ground};
use anyhow::{Context as _, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_store::Pooler;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const TASKS: u32 = 8;

/// The full lifecycle with eight tasks in one process.
pub(crate) async fn lifecycle(plan: &Plan, report: &mut Report) -> Result<()> {
    say("full lifecycle on SQLite, 8 tasks");
    // Beside the sources, on a real disk: a folder in memory would make commits free.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).context("could not make a folder")?;
    let bare = folder.path().join("floor.db");
    let ours = folder.path().join("ours.db");
    let engine = ground::open(&ours.display().to_string(), 1, Pooler::Session).await?;
    engine.store().migrate(None).await?;
    engine.store().create_project("bench", vec!["main".to_owned()], None).await?;
    let floor = Arc::new(Mutex::new(floor_file(&bare).await?));
    let mut pairs = Pairs::default();
    let (mut steps, mut commits) = (0.0, 0.0);
    for _ in 0..plan.pairs {
        let bare_rate = floor_rate(&floor, plan.time).await?;
        let before = engine.store().sqlite_commits();
        let rate = lifecycles(&engine, TASKS, plan.time).await?;
        steps += 4.0 * rate * plan.time.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let shared = (engine.store().sqlite_commits() - before) as f64;
        commits += shared;
        pairs.add(bare_rate, rate);
    }
    let per_step = commits / steps.max(1.0);
    report.add(pairs.line(
        "full lifecycle on SQLite, 8 tasks",
        25.0,
        format!("{:.2} commits per run", 4.0 * per_step),
    ));
    report.add(Line {
        what: "steps on SQLite share commits".to_owned(),
        floor: "1 per step".to_owned(),
        ours: format!("{per_step:.2} per step"),
        figure: format!("{per_step:.2}"),
        target: "< 1".to_owned(),
        met: per_step < 1.0,
        cost: "–".to_owned(),
    });
    Ok(())
}

async fn floor_file(path: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let mut conn = SqliteConnection::connect_with(&options).await?;
    conn.execute(
        "CREATE TABLE floor (id INTEGER PRIMARY KEY, status TEXT NOT NULL, payload TEXT NOT NULL);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
         INSERT INTO floor SELECT i, 'queued', printf('%.100c', 'x') FROM n;
         CREATE INDEX floor_ready ON floor (id) WHERE status = 'queued'",
    )
    .await?;
    Ok(conn)
}

/// Claim and finish, two commits, from eight tasks that take turns: a bare file has one writer.
async fn floor_rate(floor: &Arc<Mutex<SqliteConnection>>, time: Duration) -> Result<f64> {
    let began = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..TASKS {
        let floor = floor.clone();
        set.spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < time {
                let claim = "UPDATE floor SET status = 'claimed' WHERE id = \
                             (SELECT id FROM floor WHERE status = 'queued' ORDER BY id LIMIT 1) RETURNING id";
                let id: i64 = {
                    let mut conn = floor.lock().await;
                    sqlx::query_scalar(claim).fetch_one(&mut *conn).await?
                };
                let mut conn = floor.lock().await;
                sqlx::query("UPDATE floor SET status = 'done' WHERE id = $1")
                    .bind(id)
                    .execute(&mut *conn)
                    .await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    crate::lifecycle::total(set, began).await
}
