//! One bad row, one burst or one open transaction must not block others: the kernel on PostgreSQL, in plain SQL.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

#[path = "postgres_kernel/bursts.rs"]
mod bursts;
#[path = "postgres_kernel/decoding.rs"]
mod decoding;
#[path = "postgres_kernel/fast_paths.rs"]
mod fast_paths;
#[path = "postgres_kernel/keys.rs"]
mod keys;
#[path = "postgres_kernel/locks.rs"]
mod locks;
#[path = "postgres_kernel/refusals.rs"]
mod refusals;

use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tidemill_testkit::interface::{Fixture, Kind, PlainSql};

/// A migrated database with a project, and plain SQL on it.
struct Kernel {
    _fixture: Fixture,
    pool: PgPool,
}

impl Kernel {
    async fn open() -> Self {
        let fixture = Fixture::open_bare(Kind::Postgres).await;
        fixture.store.create_project("shop", vec!["staging".to_owned()], None).await.unwrap();
        let PlainSql::Postgres(pool) = fixture.plain.clone() else {
            panic!("these tests are about PostgreSQL")
        };
        Self { _fixture: fixture, pool }
    }

    /// Opens a session for a transaction that stays open.
    async fn session(&self) -> PgConnection {
        PgConnection::connect_with(&self.pool.connect_options()).await.unwrap()
    }

    async fn try_rows(&self, text: &str) -> sqlx::Result<Vec<PgRow>> {
        sqlx::query(AssertSqlSafe(text.to_owned())).persistent(false).fetch_all(&self.pool).await
    }

    async fn rows(&self, text: &str) -> Vec<PgRow> {
        self.try_rows(text).await.unwrap_or_else(|bad| panic!("{text}: {bad}"))
    }

    /// Returns the only value of a statement as text.
    async fn value(&self, text: &str) -> Option<String> {
        let rows = self.rows(&format!("SELECT (q.x)::text FROM ({text}) q (x)")).await;
        assert_eq!(rows.len(), 1, "{text}");
        rows[0].get(0)
    }

    async fn execute(&self, text: &str) {
        sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
            .execute(&self.pool)
            .await
            .unwrap_or_else(|bad| panic!("{text}: {bad}"));
    }

    /// Returns the SQLSTATE with which a statement is refused.
    async fn refusal(&self, text: &str) -> String {
        match sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&self.pool).await {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => sqlstate(&error).unwrap_or_else(|| panic!("{text}: {error}")),
        }
    }

    /// Queues a run with further arguments of `queue_run`; returns its id.
    async fn queue(&self, more: &str) -> String {
        let text = format!("SELECT run_id FROM ops.queue_run('shop', 'staging', NULL, NULL{more})");
        self.value(&text).await.unwrap()
    }

    async fn claim(&self, worker: &str, more: &str) -> Option<String> {
        let rows = self
            .rows(&format!("SELECT run_id FROM ops.claim_next_run(p_worker_id => '{worker}'{more})"))
            .await;
        rows.first().map(|row| row.get(0))
    }

    async fn of_run(&self, column: &str, run: &str) -> Option<String> {
        self.value(&format!("SELECT {column} FROM ops.runs WHERE run_id = '{run}'")).await
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned))
}
