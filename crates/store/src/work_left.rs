//! Counts the runs that a worker could still have to execute, for workers that end when there is none.

use crate::codec::{SqlTextList, SqlTime};
use crate::tx::Conn;
use crate::{Error, Store, Tx, catalog};
use sqlx::AssertSqlSafe;
use tidemill_core::Timestamp;

/// A run that becomes ready within this time is worth waiting for.
const SOON_SECS: i32 = 60;

impl Tx<'_> {
    async fn work_left(
        &mut self,
        labels: &[String],
        projects: Option<&[String]>,
        now: Option<Timestamp>,
    ) -> Result<i64, Error> {
        let moment = self.moment(now);
        let failed = |source| Error::database("count the remaining work", source);
        let (labels, projects) =
            (SqlTextList(labels.to_vec()), projects.map(|projects| SqlTextList(projects.to_vec())));
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = self.context.schema.render("SELECT {ops}.work_left($1, $2, $3, $4)");
                sqlx::query_scalar(AssertSqlSafe(text))
                    .bind(labels)
                    .bind(projects)
                    .bind(SOON_SECS)
                    .bind(now.map(SqlTime))
                    .persistent(self.context.named)
                    .fetch_one(&mut **conn)
                    .await
                    .map_err(failed)
            }
            Conn::Sqlite(conn) => sqlx::query_scalar(catalog::sqlite(catalog::WORK_LEFT))
                .bind(labels)
                .bind(projects)
                .bind(SOON_SECS)
                .bind(SqlTime(moment))
                .fetch_one(&mut **conn)
                .await
                .map_err(failed),
        }
    }
}

impl Store {
    /// Counts the runs that a worker with `labels` could still have to execute. At most 100, because only zero matters.
    pub async fn work_left(
        &self,
        labels: Vec<String>,
        projects: Option<Vec<String>>,
        now: Option<Timestamp>,
    ) -> Result<i64, Error> {
        self.step(move |mut tx| {
            Box::pin(async move { tx.work_left(&labels, projects.as_deref(), now).await })
        })
        .await
    }
}
