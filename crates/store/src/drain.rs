//! Whether a worker that ends when nothing is left may end.

use crate::codec::{At, Words};
use crate::tx::Conn;
use crate::{Error, Store, Tx};
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
        let failed = |source| Error::database("count what is left", source);
        let (labels, projects) = (Words(labels.to_vec()), projects.map(|projects| Words(projects.to_vec())));
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = self.context.schema.render("SELECT {ops}.work_left($1, $2, $3, $4)");
                sqlx::query_scalar(AssertSqlSafe(text))
                    .bind(labels)
                    .bind(projects)
                    .bind(SOON_SECS)
                    .bind(now.map(At))
                    .persistent(self.context.named)
                    .fetch_one(&mut **conn)
                    .await
                    .map_err(failed)
            }
            Conn::Sqlite(conn) => sqlx::query_scalar(SQLITE)
                .bind(labels)
                .bind(projects)
                .bind(SOON_SECS)
                .bind(At(moment))
                .fetch_one(&mut **conn)
                .await
                .map_err(failed),
        }
    }
}

/// The same question as the SQL function asks on PostgreSQL.
pub(crate) const SQLITE: &str = "
SELECT count(*) FROM (
    SELECT 1 FROM (
        SELECT shelf_id FROM runs WHERE gate = 'open'
        UNION ALL
        SELECT shelf_id FROM runs WHERE gate = 'key' AND lane <> 'graph'
        UNION ALL
        SELECT shelf_id FROM runs WHERE gate = 'time' AND available_at <= $4 + $3 * 1000000
        UNION ALL
        SELECT shelf_id FROM runs WHERE status IN ('claimed', 'running') AND lane <> 'graph') waiting
      JOIN shelves s ON s.shelf_id = waiting.shelf_id
     WHERE NOT EXISTS (SELECT 1 FROM json_each(s.labels) need
                        WHERE need.value NOT IN (SELECT offer.value FROM json_each($1) offer))
       AND ($2 IS NULL OR s.project_id IN (SELECT p.value FROM json_each($2) p))
       AND NOT EXISTS (SELECT 1 FROM flags f
                        WHERE f.flag = 'paused' AND f.scope IN
                              (CASE WHEN 'tidemill.sync' IN (SELECT l.value FROM json_each(s.labels) l)
                                    THEN 'lane:sync' ELSE 'lane:ops' END, 'project:' || s.project_id)
                          AND (f.until_at IS NULL OR f.until_at > $4))
     LIMIT 100)";

impl Store {
    /// What a worker that offers `labels` could still have to do; at most 100, since only zero matters.
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
