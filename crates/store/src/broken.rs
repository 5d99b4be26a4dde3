//! The fault [`Break::CommitThenSend`], put in on purpose: the next try is queued after the end of the one before was
//! committed, and so by a process that may be gone by then. The suite must catch it. Never part of a product.

use crate::FinishRun;
use crate::codec::At;
use crate::sqlite::{Boxed, Sqlite};
use crate::tx::Conn;
use crate::{Error, Store, Swept, Tx};
use sqlx::AssertSqlSafe;
use tidemill_core::broken::Break;
use tidemill_core::retry::{RetryDecision, Successor, decide_retry};
use tidemill_core::run::{ChangeOutcome, Run};
use tidemill_core::{RunId, Timestamp};

/// The text of a function that ends runs, without the calls that queue what follows.
pub(crate) fn without_follow(text: &str) -> String {
    if !Break::CommitThenSend.is_on() {
        return text.to_owned();
    }
    text.replace("successor := {ops}.follow_run(", "successor := NULL; PERFORM num_nulls(")
        .replace("PERFORM {ops}.follow_run(", "PERFORM num_nulls(")
}

impl Store {
    /// Finishes runs, and with the fault queues what follows only then.
    pub async fn finish_runs(
        &self,
        ends: Vec<FinishRun>,
        worker: Option<String>,
        now: Option<Timestamp>,
    ) -> Result<Vec<ChangeOutcome>, Error> {
        let runs: Vec<RunId> = ends.iter().map(|end| end.run_id.clone()).collect();
        let step = self.step(move |mut tx| -> Boxed<'_, _> {
            Box::pin(async move { tx.finish_runs(&ends, worker.as_deref(), now).await })
        });
        let outcomes = step.await?;
        for (run, outcome) in runs.into_iter().zip(&outcomes) {
            if Break::CommitThenSend.is_on() && *outcome == ChangeOutcome::Applied {
                self.send(run, now).await?;
            }
        }
        Ok(outcomes)
    }

    /// Sweeps once, and with the fault queues what follows only then.
    pub async fn sweep(
        &self,
        limit: usize,
        dead_after_secs: f64,
        now: Option<Timestamp>,
    ) -> Result<Vec<Swept>, Error> {
        let step = self.step(move |mut tx| -> Boxed<'_, _> {
            Box::pin(async move { tx.sweep(limit, dead_after_secs, now).await })
        });
        let mut swept = step.await?;
        for one in swept.iter_mut().filter(|_| Break::CommitThenSend.is_on()) {
            one.successor = self.send(one.run_id.clone(), now).await?;
        }
        Ok(swept)
    }

    async fn send(&self, run: RunId, now: Option<Timestamp>) -> Result<Option<RunId>, Error> {
        self.write(move |mut tx| Box::pin(async move { tx.send(&run, now).await })).await
    }
}

impl Tx<'_> {
    async fn send(&mut self, run: &RunId, now: Option<Timestamp>) -> Result<Option<RunId>, Error> {
        let now = self.database_now(now).await?;
        let Some(run) = self.run(run).await? else { return Ok(None) };
        let Some(cause) = run.end_cause else { return Ok(None) };
        match decide_retry(&run, run.status, cause, now) {
            RetryDecision::Successor(successor) => {
                self.queue_successor(&run, &successor, now).await.map(Some)
            }
            RetryDecision::Nothing | RetryDecision::Quarantine => Ok(None),
        }
    }

    async fn queue_successor(
        &mut self,
        run: &Run,
        successor: &Successor,
        now: Timestamp,
    ) -> Result<RunId, Error> {
        let action = "queue what follows";
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let text = self.context.schema.render("SELECT {ops}.follow_run($1, $2, $3, $4, $5)");
                let next: String = sqlx::query_scalar(AssertSqlSafe(text))
                    .bind(run.run_id.as_str())
                    .bind(successor.failures)
                    .bind(successor.losses)
                    .bind(successor.available_at.map(At))
                    .bind(At(now))
                    .fetch_one(&mut **conn)
                    .await
                    .map_err(|source| Error::database(action, source))?;
                next.parse().map_err(|bad| Error::database(action, sqlx::Error::Decode(Box::new(bad))))
            }
            Conn::Sqlite(conn) => Sqlite::follow_run(conn, run, successor, now, action).await,
        }
    }
}
