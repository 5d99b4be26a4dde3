//! Databases of the benchmarks: a PostgreSQL cluster with full durability, and SQLite files on a disk.

use crate::report::{Cost, log};
use anyhow::{Context as _, Result};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tidemill_engine::clock::host_now;
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_store::{Options, Pooler, Store};
use tidemill_testkit::cluster::{self, Cluster, Database, Durability, Shutdown};

/// Project and environment of every run.
pub(crate) const PROJECT: &str = "bench";
pub(crate) const ENVIRONMENT: &str = "main";

/// A PostgreSQL server for benchmarks.
pub(crate) struct BenchCluster {
    cluster: Cluster,
}

impl BenchCluster {
    /// Starts the server with additional settings.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Result<Self> {
        log("starting PostgreSQL with fsync and synchronous_commit on");
        let settings =
            frozen_settings(include_str!("../frozen/postgresql.conf")).chain(settings.iter().copied());
        let options = cluster::Options {
            durability: Durability::Full,
            settings: settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..cluster::Options::default()
        };
        Ok(Self { cluster: Cluster::start(&options)? })
    }

    /// Starts the server for comparisons of the hot path: no vacuum and no checkpoint starts by itself.
    pub(crate) fn start_for_runs() -> Result<Self> {
        let settings: Vec<_> = frozen_settings(include_str!("../frozen/runs.conf")).collect();
        Self::start(&settings)
    }

    /// Restarts the server under another program, such as a profiler.
    pub(crate) fn restart_under(&mut self, wrapper: Vec<OsString>) -> Result<()> {
        self.cluster.stop(Shutdown::Fast)?;
        self.cluster.run_under(wrapper);
        self.cluster.resume()
    }

    /// Returns the directory of the server, which is removed with it.
    pub(crate) fn directory(&self) -> &Path {
        self.cluster.directory()
    }

    /// Returns the process id of the server.
    pub(crate) fn process_id(&self) -> Result<u32> {
        self.cluster.process_id().context("the server does not run")
    }

    /// Returns the URL of the database `postgres`.
    pub(crate) fn url(&self) -> String {
        self.cluster.url("postgres")
    }

    /// Creates a copy of a database. The copy is in the server's cache and its pages are in the WAL, so that the first
    /// change of a page logs no page image.
    pub(crate) fn copy(&self, template: &Database) -> Result<Database> {
        Database::copy(&self.url(), &template.name)
    }

    /// Creates a database without tables.
    pub(crate) fn empty_database(&self) -> Result<Database> {
        Database::create(&self.url())
    }

    /// Creates a database with the tables of Tidemill and one project.
    pub(crate) async fn migrated_database(&self) -> Result<Database> {
        let database = self.empty_database()?;
        let engine = open(&database.url, 2, Pooler::Session).await?;
        engine.store().migrate(None).await?;
        engine.store().create_project(PROJECT, vec![ENVIRONMENT.to_owned()], None).await?;
        let mut conn = PgConnection::connect(&database.url).await?;
        conn.execute(
            "INSERT INTO ops.label_sets (project_id, labels) VALUES ('bench', '{}'), ('bench', '{gpu}')",
        )
        .await?;
        conn.close().await?;
        engine.store().close().await;
        Ok(database)
    }
}

/// Reads lines such as `fsync = on`.
fn frozen_settings(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "))
}

pub(crate) async fn open(url: &str, connections: u32, pooler: Pooler) -> Result<Engine> {
    let mut options = Options::new(url, host_now);
    options.connections = connections;
    options.pooler = pooler;
    Ok(Engine::new(Store::open(&options).await?, Clock::Database, RetryPolicy::None))
}

/// Creates a SQLite file with the tables of Tidemill and one project.
pub(crate) async fn open_sqlite(file: &Path) -> Result<Engine> {
    let engine = open(&file.display().to_string(), 1, Pooler::Session).await?;
    engine.store().migrate(None).await?;
    engine.store().create_project(PROJECT, vec![ENVIRONMENT.to_owned()], None).await?;
    Ok(engine)
}

/// Creates a directory on a disk, because commits in memory would cost nothing.
pub(crate) fn directory() -> Result<TempDir> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let candidates = [std::env::temp_dir(), target];
    let parent = candidates
        .iter()
        .find(|path| !is_in_memory(path))
        .context("all directories for SQLite files are in memory; set TMPDIR to a directory on a disk")?;
    tempfile::tempdir_in(parent).context("could not create a directory")
}

/// Returns whether the file system of this path is in memory.
fn is_in_memory(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let kinds = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((PathBuf::from(fields.next()?), fields.next()?))
    });
    let nearest = kinds.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.components().count());
    nearest.is_some_and(|(_, kind)| matches!(kind, "tmpfs" | "ramfs"))
}

/// Counters of the server. They include all databases, so only the measured work may run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerCounters {
    wal_bytes: i64,
    transactions: i64,
}

impl ServerCounters {
    pub(crate) async fn read(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        let (wal_bytes, transactions): (i64, i64) = sqlx::query_as(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_current_xact_id()::text::bigint",
        )
        .fetch_one(&mut conn)
        .await
        .context("could not read the counters of the server")?;
        conn.close().await?;
        Ok(Self { wal_bytes, transactions })
    }
}

/// Total cost of several measurements.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CostTotal {
    wal_bytes: f64,
    commits: f64,
    runs: f64,
}

impl CostTotal {
    /// Adds the difference of two readings, without the transaction of the first one.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn add(&mut self, before: ServerCounters, after: ServerCounters, runs: f64) {
        self.wal_bytes += (after.wal_bytes - before.wal_bytes) as f64;
        self.commits += (after.transactions - before.transactions - 1) as f64;
        self.runs += runs;
    }

    /// Returns the cost per run.
    pub(crate) fn per_run(self) -> Option<Cost> {
        (self.runs >= 1.0).then(|| Cost {
            wal_bytes: self.wal_bytes / self.runs,
            commits: self.commits / self.runs,
            cpu_micros: None,
        })
    }
}

/// Whether the triggers of Tidemill run during a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Triggers {
    On,
    Off,
}

/// Runs an SQL text with the number of rows as its parameter.
pub(crate) async fn fill(
    conn: &mut PgConnection,
    text: &'static str,
    rows: i32,
    triggers: Triggers,
) -> Result<()> {
    if triggers == Triggers::Off {
        conn.execute("ALTER TABLE ops.runs DISABLE TRIGGER USER").await?;
        conn.execute("ALTER TABLE ops.run_log DISABLE TRIGGER USER").await?;
    }
    sqlx::query(text).bind(rows).execute(&mut *conn).await?;
    if triggers == Triggers::Off {
        conn.execute("ALTER TABLE ops.runs ENABLE TRIGGER USER").await?;
        conn.execute("ALTER TABLE ops.run_log ENABLE TRIGGER USER").await?;
    }
    Ok(())
}

/// Creates a database with `rows` runs, a few of them of a rare project, environment and branch.
///
/// The database is dropped with the first returned value.
pub(crate) async fn database_with_runs(
    cluster: &BenchCluster,
    connections: u32,
    rows: i32,
) -> Result<(Database, Engine, PgConnection)> {
    let database = cluster.migrated_database().await?;
    let engine = open(&database.url, connections, Pooler::Session).await?;
    let mut conn = PgConnection::connect(&database.url).await?;
    engine.store().create_project("rare", vec!["main".to_owned()], None).await?;
    engine.store().create_project(PROJECT, vec!["rare".to_owned()], None).await?;
    let label_set =
        "INSERT INTO ops.label_sets (project_id, labels) VALUES ('rare', '{}') ON CONFLICT DO NOTHING";
    sqlx::query(label_set).execute(&mut conn).await?;
    fill(&mut conn, include_str!("../sql/runs_to_list.sql"), rows, Triggers::Off).await?;
    Ok((database, engine, conn))
}

/// Vacuums the tables, so that both sides start in the same state.
pub(crate) async fn vacuum(conn: &mut PgConnection) -> Result<()> {
    conn.execute(
        "VACUUM ANALYZE ops.runs, ops.run_steps, ops.run_log, ops.run_lookup, ops.unsuccessful_runs",
    )
    .await?;
    Ok(())
}
