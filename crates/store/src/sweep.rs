//! One sweep: everything that no worker will decide any more.

mod sqlite;

#[cfg(not(feature = "broken"))]
use crate::Store;
use crate::codec::{At, Columns};
#[cfg(not(feature = "broken"))]
use crate::sqlite::Boxed;
use crate::tx::{Conn, FromColumns};
use crate::{Error, Tx};
use sqlx::AssertSqlSafe;
use tidemill_core::run::EndCause;
use tidemill_core::{RunId, Timestamp};

/// What the sweeper did to a run: why it ended it.
pub type SweptAction = EndCause;

/// One decision of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Swept {
    /// The run.
    pub run_id: RunId,
    /// Why it was ended.
    pub action: SweptAction,
    /// The try that follows it.
    pub successor: Option<RunId>,
}

impl FromColumns for Swept {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.parsed("run_id")?,
            action: row.parsed("action")?,
            successor: row.parsed_or_null("successor")?,
        })
    }
}

impl Tx<'_> {
    pub(crate) async fn sweep(
        &mut self,
        limit: usize,
        dead_after_secs: f64,
        now: Option<Timestamp>,
    ) -> Result<Vec<Swept>, Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("sweep", source);
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = "SELECT run_id, action, successor FROM {ops}.sweep($1, $2, $3)";
                let rows = sqlx::query(AssertSqlSafe(self.context.schema.render(text)))
                    .bind(i32::try_from(limit).unwrap_or(i32::MAX))
                    .bind(dead_after_secs)
                    .bind(now.map(At))
                    .persistent(self.context.named)
                    .fetch_all(&mut **conn)
                    .await
                    .map_err(failed)?;
                rows.iter().map(Swept::read).collect::<sqlx::Result<_>>().map_err(failed)
            }
            Conn::Sqlite(conn) => sqlite::sweep(conn, limit, dead_after_secs, moment).await,
        }
    }
}

#[cfg(not(feature = "broken"))]
impl Store {
    /// Sweeps once: finds dead workers, and ends what they and others left behind. At most `limit` runs.
    pub async fn sweep(
        &self,
        limit: usize,
        dead_after_secs: f64,
        now: Option<Timestamp>,
    ) -> Result<Vec<Swept>, Error> {
        self.step(move |mut tx| -> Boxed<'_, _> {
            Box::pin(async move { tx.sweep(limit, dead_after_secs, now).await })
        })
        .await
    }
}
