//! One sweep: ends runs that no worker will end, and opens due ones.

mod sqlite;

use crate::Store;
use crate::codec::{Columns, SqlTime};
use crate::sqlite::BoxFuture;
use crate::tx::{Conn, FromColumns};
use crate::{Error, Tx};
use sqlx::AssertSqlSafe;
use tidemill_core::run::EndCause;
use tidemill_core::{RunId, Timestamp};

/// A run that the sweeper has ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SweptRun {
    pub run_id: RunId,
    pub action: EndCause,
    pub successor: Option<RunId>,
}

/// Logs that one run could not be swept. The others are swept, and this one is retried later.
fn report_failure(run: &str, error: &str) {
    tracing::error!(run.id = %run, "run {run} could not be swept: {error}");
}

impl FromColumns for SweptRun {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.run_id("run_id")?,
            action: row.parsed("action")?,
            successor: row.run_id_or_null("successor")?,
        })
    }
}

impl Tx<'_> {
    pub(crate) async fn sweep(
        &mut self,
        limit: usize,
        dead_after_secs: f64,
        now: Option<Timestamp>,
    ) -> Result<Vec<SweptRun>, Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("sweep", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = "SELECT run_id, action, successor, error FROM {ops}.sweep($1, $2, $3)";
                let rows = sqlx::query(AssertSqlSafe(self.context.schema.render(text)))
                    .bind(i32::try_from(limit).unwrap_or(i32::MAX))
                    .bind(dead_after_secs)
                    .bind(now.map(SqlTime))
                    .persistent(self.context.named)
                    .fetch_all(&mut **conn)
                    .await
                    .map_err(failed)?;
                let mut swept = Vec::with_capacity(rows.len());
                for row in &rows {
                    if let Some(error) = row.text_or_null("error").map_err(failed)? {
                        report_failure(&row.text("run_id").map_err(failed)?, &error);
                        continue;
                    }
                    match SweptRun::read(row) {
                        Ok(one) => swept.push(one),
                        Err(error) => report_failure("that was ended", &error.to_string()),
                    }
                }
                Ok(swept)
            }
            Conn::Sqlite(conn) => sqlite::sweep(conn, limit, dead_after_secs, moment).await,
        }
    }
}

impl Store {
    /// Sweeps once: marks silent workers as dead, and ends up to `limit` runs that need it.
    pub async fn sweep(
        &self,
        limit: usize,
        dead_after_secs: f64,
        now: Option<Timestamp>,
    ) -> Result<Vec<SweptRun>, Error> {
        self.step(move |mut tx| -> BoxFuture<'_, _> {
            Box::pin(async move { tx.sweep(limit, dead_after_secs, now).await })
        })
        .await
    }
}

impl Store {
    /// Repairs concurrency keys whose head is not a live run of the key, and waiting runs without a key row. Returns
    /// the number of repairs. Only statements that bypass the triggers, such as a restored backup, cause them.
    pub async fn repair_keys(&self, limit: usize) -> Result<u64, Error> {
        self.write(move |mut tx| Box::pin(async move { tx.repair_keys(limit).await })).await
    }
}

impl Tx<'_> {
    async fn repair_keys(&mut self, limit: usize) -> Result<u64, Error> {
        let failed = |source| Error::database("repair concurrency keys", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = self.context.schema.render("SELECT {ops}.repair_keys($1)");
                let repaired: i32 = sqlx::query_scalar(AssertSqlSafe(text))
                    .bind(i32::try_from(limit).unwrap_or(i32::MAX))
                    .persistent(self.context.named)
                    .fetch_one(&mut **conn)
                    .await
                    .map_err(failed)?;
                Ok(u64::try_from(repaired).unwrap_or(0))
            }
            Conn::Sqlite(conn) => sqlite::repair_keys(conn, limit).await,
        }
    }
}
