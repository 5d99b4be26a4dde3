//! Checks of the database for `doctor`.

use crate::store::Backend;
use crate::{Error, Store};
use tidemill_core::Timestamp;

/// State of the database.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Health {
    /// Server or library with its version.
    pub version: String,
    /// Database clock minus host clock, in seconds. `None` if both are the same clock.
    pub clock_skew_secs: Option<f64>,
    /// Sessions that prevent the removal of old row versions, oldest first.
    pub pinning: Vec<PinningSession>,
    /// Whether commits wait for the disk.
    pub durable: bool,
    /// Output of SQLite's integrity check, if it is not `ok`.
    pub damage: Option<String>,
}

/// A session that prevents the removal of old row versions, which slows down every queue.
#[derive(Debug, Clone, serde::Serialize)]
pub struct PinningSession {
    /// Process id on the server; 0 for a prepared transaction or a replication slot.
    pub pid: i32,
    /// Application, user and state, or the name of the slot.
    pub what: String,
    /// Age of its transaction in seconds.
    pub open_secs: f64,
    /// Number of transactions that began since.
    pub transactions: i64,
}

impl Store {
    /// Checks the state of the database.
    pub async fn health(&self) -> Result<Health, Error> {
        let failed = |source| Error::database("report its state", source);
        match &self.backend {
            Backend::Postgres(postgres) => {
                let mut conn = postgres.acquire().await.map_err(failed)?;
                let before = (self.context.clock)();
                let theirs: Timestamp = sqlx::query_scalar("SELECT clock_timestamp()")
                    .persistent(false)
                    .fetch_one(&mut *conn)
                    .await
                    .map_err(failed)?;
                let after = (self.context.clock)();
                let middle = before + (after - before) / 2;
                let (version, durable): (String, bool) = sqlx::query_as(
                    "SELECT current_setting('server_version'), \
                     current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off'",
                )
                .persistent(false)
                .fetch_one(&mut *conn)
                .await
                .map_err(failed)?;
                let rows: Vec<(i32, String, f64, i64)> =
                    sqlx::query_as(PINNING).persistent(false).fetch_all(&mut *conn).await.map_err(failed)?;
                conn.cache();
                let pinning = rows
                    .into_iter()
                    .map(|(pid, what, open_secs, transactions)| PinningSession {
                        pid,
                        what,
                        open_secs,
                        transactions,
                    })
                    .collect();
                #[expect(clippy::cast_precision_loss, reason = "a skew that matters is small")]
                let skew = (theirs - middle).num_milliseconds() as f64 / 1_000.0;
                let version = format!("PostgreSQL {version}");
                Ok(Health { version, clock_skew_secs: Some(skew), pinning, durable, damage: None })
            }
            Backend::Sqlite(sqlite) => {
                let mut conn = sqlite.readers().acquire().await.map_err(failed)?;
                let version: String = sqlx::query_scalar("SELECT sqlite_version()")
                    .fetch_one(&mut *conn)
                    .await
                    .map_err(failed)?;
                let report: String =
                    sqlx::query_scalar("PRAGMA quick_check").fetch_one(&mut *conn).await.map_err(failed)?;
                Ok(Health {
                    version: format!("SQLite {version}"),
                    clock_skew_secs: None,
                    pinning: Vec::new(),
                    durable: true,
                    damage: (report != "ok").then_some(report),
                })
            }
        }
    }
}

/// Finds everything that prevents the removal of old row versions: sessions, prepared transactions, replication slots.
const PINNING: &str = "
SELECT * FROM (
    SELECT a.pid, coalesce(nullif(a.application_name, ''), 'no name') || ', user ' || coalesce(a.usename, '?')
               || ', ' || coalesce(a.state, '?') AS what,
           extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, a.query_start))::float8 AS open_secs,
           greatest(age(a.backend_xmin), coalesce(age(a.backend_xid), 0))::bigint AS transactions
      FROM pg_stat_activity a
     WHERE a.pid <> pg_backend_pid() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
    UNION ALL
    SELECT 0, 'prepared transaction ' || p.gid, extract(epoch FROM clock_timestamp() - p.prepared)::float8,
           age(p.transaction)::bigint
      FROM pg_prepared_xacts p WHERE p.database = current_database()
    UNION ALL
    SELECT 0, 'replication slot ' || s.slot_name, 0::float8, age(coalesce(s.xmin, s.catalog_xmin))::bigint
      FROM pg_replication_slots s WHERE s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
) pins WHERE open_secs > 10 OR transactions > 10000
ORDER BY transactions DESC, open_secs DESC LIMIT 10";
