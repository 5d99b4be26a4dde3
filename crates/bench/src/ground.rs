//! The ground on which everything is measured: a cluster of our own, with full durability.

use anyhow::{Context as _, Result};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tidemill_engine::clock::host_now;
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_store::{Options, Pooler, Store};
use tidemill_testkit::cluster::{self, Cluster, Database, Durability};

/// The cluster.
pub(crate) struct Ground {
    cluster: Cluster,
}

impl Ground {
    pub(crate) fn prepare() -> Result<Self> {
        crate::report::say("starting PostgreSQL with fsync and synchronous_commit on");
        let options = cluster::Options {
            durability: Durability::Full,
            settings: vec![("max_wal_size".to_owned(), "4GB".to_owned())],
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
        engine.store().create_project("bench", vec!["main".to_owned()], None).await?;
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

/// What a stretch of work cost the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    wal_bytes: f64,
    transactions: f64,
}

impl Meter {
    pub(crate) async fn read(url: &str) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        let (wal, xid): (i64, i64) = sqlx::query_as(
            "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint, pg_current_xact_id()::text::bigint",
        )
        .fetch_one(&mut conn)
        .await
        .context("could not read the meters")?;
        conn.close().await?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        Ok(Self { wal_bytes: wal as f64, transactions: xid as f64 })
    }

    /// The cost per run since an earlier reading.
    pub(crate) fn cost_since(self, before: Self, runs: f64) -> String {
        if runs < 1.0 {
            return "–".to_owned();
        }
        format!(
            "{:.0} B WAL, {:.2} commits per run",
            (self.wal_bytes - before.wal_bytes) / runs,
            (self.transactions - before.transactions) / runs
        )
    }
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

/// Whether rows are made with or without our triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Triggers {
    On,
    Off,
}
