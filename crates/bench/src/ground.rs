//! The ground on which everything is measured: a cluster of our own, with full durability, and folders on a disk.

use crate::report::{Cost, say};
use anyhow::{Context as _, Result};
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tidemill_engine::clock::host_now;
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_store::{Options, Pooler, Store};
use tidemill_testkit::cluster::{self, Cluster, Database, Durability};

/// The project and the environment of every run.
pub(crate) const PROJECT: &str = "bench";
pub(crate) const ENVIRONMENT: &str = "main";

/// The cluster.
pub(crate) struct Ground {
    cluster: Cluster,
}

impl Ground {
    /// Starts it, with settings beside the usual ones.
    pub(crate) fn prepare(settings: &[(&str, &str)]) -> Result<Self> {
        say("starting PostgreSQL with fsync and synchronous_commit on");
        // A checkpoint in the middle of one side of a pair would be charged to that side alone.
        let usual = [("max_wal_size", "4GB"), ("checkpoint_timeout", "30min")];
        let settings = usual.iter().chain(settings);
        let options = cluster::Options {
            durability: Durability::Full,
            settings: settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..cluster::Options::default()
        };
        Ok(Self { cluster: Cluster::start(&options)? })
    }

    /// A new database without tables.
    pub(crate) fn bare(&self) -> Result<Database> {
        Database::create(&self.cluster.url("postgres"))
    }

    /// A new database with our tables and one project.
    pub(crate) async fn fresh(&self) -> Result<Database> {
        let database = self.bare()?;
        let engine = open(&database.url, 2, Pooler::Session).await?;
        engine.store().migrate(None).await?;
        engine.store().create_project(PROJECT, vec![ENVIRONMENT.to_owned()], None).await?;
        let mut conn = PgConnection::connect(&database.url).await?;
        conn.execute(
            "INSERT INTO ops.shelves (project_id, labels) VALUES ('bench', '{}'), ('bench', '{gpu}')",
        )
        .await?;
        conn.close().await?;
        engine.store().close().await;
        Ok(database)
    }
}

/// The use cases on a database.
pub(crate) async fn open(url: &str, connections: u32, pooler: Pooler) -> Result<Engine> {
    let mut options = Options::new(url, host_now);
    options.connections = connections;
    options.pooler = pooler;
    Ok(Engine::new(Store::open(&options).await?, Clock::Database, Patience::None))
}

/// The use cases on a new SQLite file.
pub(crate) async fn open_sqlite(file: &Path) -> Result<Engine> {
    let engine = open(&file.display().to_string(), 1, Pooler::Session).await?;
    engine.store().migrate(None).await?;
    engine.store().create_project(PROJECT, vec![ENVIRONMENT.to_owned()], None).await?;
    Ok(engine)
}

/// A new folder on a disk: in memory, commits would be free.
pub(crate) fn folder() -> Result<TempDir> {
    let beside_the_build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let places = [std::env::temp_dir(), beside_the_build];
    let place = places
        .iter()
        .find(|place| !is_in_memory(place))
        .context("every folder for SQLite files is in memory; set TMPDIR to a folder on a disk")?;
    tempfile::tempdir_in(place).context("could not make a folder")
}

/// Whether the file system of this folder is kept in memory.
fn is_in_memory(place: &Path) -> bool {
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let kinds = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((PathBuf::from(fields.next()?), fields.next()?))
    });
    let nearest = kinds.filter(|(at, _)| place.starts_with(at)).max_by_key(|(at, _)| at.components().count());
    nearest.is_some_and(|(_, kind)| matches!(kind, "tmpfs" | "ramfs"))
}

/// A reading of the server's meters. They count for the whole server: nothing else may run beside what is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    wal_bytes: i64,
    transactions: i64,
}

impl Meter {
    pub(crate) async fn read(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        let (wal_bytes, transactions): (i64, i64) = sqlx::query_as(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_current_xact_id()::text::bigint",
        )
        .fetch_one(&mut conn)
        .await
        .context("could not read the meters")?;
        conn.close().await?;
        Ok(Self { wal_bytes, transactions })
    }
}

/// What several stretches of work cost the server together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    wal_bytes: f64,
    commits: f64,
    runs: f64,
}

impl Spent {
    /// Adds what was done between two readings; the first of them was a transaction itself.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub(crate) fn add(&mut self, before: Meter, after: Meter, runs: f64) {
        self.wal_bytes += (after.wal_bytes - before.wal_bytes) as f64;
        self.commits += (after.transactions - before.transactions - 1) as f64;
        self.runs += runs;
    }

    /// The cost of one run.
    pub(crate) fn per_run(self) -> Option<Cost> {
        (self.runs >= 1.0)
            .then(|| Cost { wal_bytes: self.wal_bytes / self.runs, commits: self.commits / self.runs })
    }
}

/// Whether rows are made with or without our triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Triggers {
    On,
    Off,
}

/// Runs a text of SQL with one number.
pub(crate) async fn fill(
    conn: &mut PgConnection,
    text: &'static str,
    rows: i32,
    triggers: Triggers,
) -> Result<()> {
    if triggers == Triggers::Off {
        conn.execute("ALTER TABLE ops.runs DISABLE TRIGGER USER").await?;
        conn.execute("ALTER TABLE ops.run_events DISABLE TRIGGER USER").await?;
    }
    sqlx::query(text).bind(rows).execute(&mut *conn).await?;
    if triggers == Triggers::Off {
        conn.execute("ALTER TABLE ops.runs ENABLE TRIGGER USER").await?;
        conn.execute("ALTER TABLE ops.run_events ENABLE TRIGGER USER").await?;
    }
    Ok(())
}

/// A database with so many runs to list, a few of them of a rare project, environment and branch. The database is there
/// for as long as the first of the three is held.
pub(crate) async fn listed(
    ground: &Ground,
    connections: u32,
    rows: i32,
) -> Result<(Database, Engine, PgConnection)> {
    let database = ground.fresh().await?;
    let engine = open(&database.url, connections, Pooler::Session).await?;
    let mut conn = PgConnection::connect(&database.url).await?;
    engine.store().create_project("rare", vec!["main".to_owned()], None).await?;
    engine.store().create_project(PROJECT, vec!["rare".to_owned()], None).await?;
    let shelf = "INSERT INTO ops.shelves (project_id, labels) VALUES ('rare', '{}') ON CONFLICT DO NOTHING";
    sqlx::query(shelf).execute(&mut conn).await?;
    fill(&mut conn, include_str!("../sql/runs_to_list.sql"), rows, Triggers::Off).await?;
    Ok((database, engine, conn))
}

/// Lets the server tidy up, so that two sides differ in nothing but what is compared.
pub(crate) async fn tidy(conn: &mut PgConnection) -> Result<()> {
    conn.execute("VACUUM ANALYZE ops.runs, ops.run_events, ops.run_marks, ops.run_ends").await?;
    Ok(())
}
