//! The verbs of a run. Each is one step: its rows, its events and its consequences are committed together.

mod claims;
mod failures;
mod list;
mod postgres;
mod sqlite;
mod waiting;

pub use claims::RunClaim;
pub use failures::Failures;

use crate::codec::Columns;
use crate::sqlite::BoxFuture;
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use std::collections::HashMap;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::limits::{BATCH_MAX, KEY_BYTES_MAX, KIND_BYTES_MAX, METADATA_BYTES_MAX};
use tidemill_core::run::{
    CancelOutcome, ChangeOutcome, Claim, ClaimRuns, FailOutcome, FailRun, FinishRun, Holder, QueueOutcome,
    QueueRun, RetryOutcome, Run, RunFilter,
};
use tidemill_core::worker::RunLease;
use tidemill_core::{RunId, Timestamp};

/// Maximum size of metadata that is read: the request, the report, and the spaces that PostgreSQL adds.
const METADATA_READ_MAX: usize = 4 * METADATA_BYTES_MAX;

impl FromColumns for Run {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.run_id("run_id")?,
            project_id: row.text("project_id")?,
            env_id: row.env_id("env_id")?,
            lane: row.parsed("lane")?,
            kind: row.text_within("kind", KIND_BYTES_MAX)?,
            status: row.parsed("status")?,
            gate: row.parsed_or_null("gate")?,
            git_sha: row.text_or_null_within("git_sha", KEY_BYTES_MAX)?,
            git_ref: row.text_or_null_within("git_ref", KEY_BYTES_MAX)?,
            metadata: row.json_within("metadata", METADATA_READ_MAX)?,
            idempotency_key: row.text_or_null("idempotency_key")?,
            priority: row.int("priority")?,
            labels: row.words("labels")?,
            concurrency_key: row.text_or_null("concurrency_key")?,
            available_at: row.time_or_null("available_at")?,
            expires_at: row.time_or_null("expires_at")?,
            timeout_secs: row.int_or_null("timeout_secs")?,
            attempt: row.int("attempt")?,
            failures: row.int("failures")?,
            losses: row.int("losses")?,
            max_attempts: row.int("max_attempts")?,
            max_losses: row.int("max_losses")?,
            backoff_secs: row.int("backoff_secs")?,
            retry_of: row.run_id_or_null("retry_of")?,
            claimed_by: row.text_or_null("claimed_by")?,
            worker_id: row.worker_or_null("worker_id")?,
            epoch: row.int("epoch")?,
            lease_until: row.time_or_null("lease_until")?,
            deadline_at: row.time_or_null("deadline_at")?,
            cancel_requested_at: row.time_or_null("cancel_requested_at")?,
            cancel_requested_by: row.text_or_null_within("cancel_requested_by", KEY_BYTES_MAX)?,
            cancel_reason: row.text_or_null_within("cancel_reason", KEY_BYTES_MAX)?,
            stalled_at: row.time_or_null("stalled_at")?,
            // A newer version may have written an unknown cause; the run is shown without it.
            end_cause: row.text_or_null("end_cause")?.and_then(|cause| cause.parse().ok()),
            queued_at: row.time("queued_at")?,
            started_at: row.time_or_null("started_at")?,
            finished_at: row.time_or_null("finished_at")?,
            created_at: row.time("created_at")?,
            updated_at: row.time("updated_at")?,
        })
    }
}

impl FromColumns for Claim {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.run_id("run_id")?,
            project_id: row.text("project_id")?,
            env_id: row.env_id("env_id")?,
            git_sha: row.text_or_null_within("git_sha", KEY_BYTES_MAX)?,
            git_ref: row.text_or_null_within("git_ref", KEY_BYTES_MAX)?,
            metadata: row.json_within("metadata", METADATA_READ_MAX)?,
            epoch: row.int("epoch")?,
            attempt: row.int("attempt")?,
            timeout_secs: row.int_or_null("timeout_secs")?,
            lease_until: row.time("lease_until")?,
            kind: row.text_within("kind", KIND_BYTES_MAX)?,
        })
    }
}

/// Dispatches a privileged verb. Its SQL function writes the audit entry, unless this transaction has one.
macro_rules! audited_verb {
    ($tx:ident, $now:ident, $name:ident($($argument:expr),*)) => {{
        let (moment, is_audited) = ($tx.moment($now), $tx.draft.is_some());
        let context = $tx.context;
        match &mut $tx.conn {
            Conn::Postgres(conn) => postgres::$name(conn, context, $($argument,)* is_audited, $now).await,
            Conn::Sqlite(conn) => sqlite::$name(conn, $($argument,)* moment).await,
        }
    }};
}

/// Dispatches a verb to the database of the transaction.
macro_rules! verb {
    ($tx:ident, $now:ident, $name:ident($($argument:expr),*)) => {{
        let moment = $tx.moment($now);
        let context = $tx.context;
        match &mut $tx.conn {
            Conn::Postgres(conn) => postgres::$name(conn, context, $($argument,)* $now).await,
            Conn::Sqlite(conn) => sqlite::$name(conn, $($argument,)* moment).await,
        }
    }};
}

impl Tx<'_> {
    /// Queues a run under an id of the caller, who can retry with it after a lost response.
    pub async fn queue_run(
        &mut self,
        request: &QueueRun,
        run_id: &RunId,
        now: Option<Timestamp>,
    ) -> Result<QueueOutcome, Error> {
        let queued: QueueOutcome = verb!(self, now, queue(request, run_id))?;
        if queued.created {
            self.annotate_audit(|line| {
                line.set_subject(queued.run_id.as_str());
            });
        } else {
            self.skip_audit();
        }
        Ok(queued)
    }

    /// Queues up to [`BATCH_MAX`] runs under ids of the caller, and returns one outcome for each, in order.
    ///
    /// A refused request refuses the whole call; the message names its position.
    pub async fn queue_runs(
        &mut self,
        requests: &[(QueueRun, RunId)],
        now: Option<Timestamp>,
    ) -> Result<Vec<QueueOutcome>, Error> {
        check_batch(requests)?;
        let queued: Vec<QueueOutcome> = verb!(self, now, queue_many(requests))?;
        let created = queued.iter().filter(|outcome| outcome.created);
        let Some(first) = created.clone().next() else {
            self.skip_audit();
            return Ok(queued);
        };
        self.annotate_audit(|line| {
            line.set_subject(first.run_id.as_str()).add_detail("runs", created.count());
        });
        Ok(queued)
    }

    /// Claims up to the requested number of runs.
    pub async fn claim_runs(&mut self, ask: &ClaimRuns, now: Option<Timestamp>) -> Result<Vec<Claim>, Error> {
        verb!(self, now, claim(ask))
    }

    /// Starts a claimed run.
    pub async fn start_run(
        &mut self,
        run: &RunId,
        holder: &Holder,
        now: Option<Timestamp>,
    ) -> Result<ChangeOutcome, Error> {
        verb!(self, now, start(run, holder))
    }

    /// Appends events in order and returns their ids, or `None` if the caller no longer holds the run.
    pub async fn append_events(
        &mut self,
        run: &RunId,
        events: &[NewEvent],
        holder: &Holder,
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<String>>, Error> {
        verb!(self, now, append(run, events, holder))
    }

    /// Renews a run's lease.
    pub async fn heartbeat(
        &mut self,
        run: &RunId,
        holder: &Holder,
        now: Option<Timestamp>,
    ) -> Result<RunLease, Error> {
        verb!(self, now, heartbeat(run, holder))
    }

    /// Finishes runs and returns the outcome of each.
    pub async fn finish_runs(
        &mut self,
        ends: &[FinishRun],
        worker: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<Vec<ChangeOutcome>, Error> {
        let outcomes: Vec<ChangeOutcome> = verb!(self, now, finish(ends, worker))?;
        if !outcomes.contains(&ChangeOutcome::Applied) {
            self.skip_audit();
        }
        Ok(outcomes)
    }

    /// Cancels a queued run, or requests the worker of a held run to stop.
    pub async fn cancel_run(
        &mut self,
        run: &RunId,
        by: &str,
        reason: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<CancelOutcome, Error> {
        let is_requested = self.writes_audit().await?
            && self.run(run).await?.is_some_and(|run| run.cancel_requested_at.is_some());
        let cancelled: CancelOutcome = audited_verb!(self, now, cancel(run, by, reason))?;
        if cancelled == CancelOutcome::Ended || (cancelled == CancelOutcome::Requested && is_requested) {
            self.skip_audit();
        }
        Ok(cancelled)
    }

    /// Queues a successor of an ended run. Refuses a graph: see [`Self::retry_graph_run`].
    pub async fn retry_run(
        &mut self,
        run: &RunId,
        by: &str,
        now: Option<Timestamp>,
    ) -> Result<RetryOutcome, Error> {
        audited_verb!(self, now, retry(run, by, false))
    }

    /// Queues a successor of an ended graph run. The caller creates its jobs in the same transaction.
    pub async fn retry_graph_run(
        &mut self,
        run: &RunId,
        by: &str,
        now: Option<Timestamp>,
    ) -> Result<RetryOutcome, Error> {
        audited_verb!(self, now, retry(run, by, true))
    }

    /// Fails a stalled run for an operator, and queues a successor if requested.
    pub async fn fail_run(&mut self, ask: &FailRun, now: Option<Timestamp>) -> Result<FailOutcome, Error> {
        let successor = if self.writes_audit().await? { self.successor(&ask.run_id).await? } else { None };
        let failed: FailOutcome = audited_verb!(self, now, fail(ask))?;
        // A repeated call that asks for a retry for the first time queues the successor.
        if failed.outcome != ChangeOutcome::Applied && failed.successor == successor {
            self.skip_audit();
        }
        Ok(failed)
    }

    /// Records an artifact and returns its id.
    pub async fn add_artifact(
        &mut self,
        run: &RunId,
        artifact: &NewArtifact,
        now: Option<Timestamp>,
    ) -> Result<String, Error> {
        verb!(self, now, add_artifact(run, artifact))
    }

    /// Returns a run, if it exists.
    pub async fn run(&mut self, run: &RunId) -> Result<Option<Run>, Error> {
        on!(self, catalog::RUN_GET, [run.as_str()], fetch_optional, "read a run")?.record("read a run")
    }

    /// Returns a run, if it exists and can be read, for loops that must not fail because of one run.
    pub async fn readable_run(&mut self, run: &RunId) -> Result<Option<Run>, Error> {
        let rows = on!(self, catalog::RUN_GET, [run.as_str()], fetch_all, "read a run")?;
        Ok(rows.readable("runs", "run_id").pop())
    }

    /// Returns the successor of a run.
    pub async fn successor(&mut self, run: &RunId) -> Result<Option<RunId>, Error> {
        let row = on!(self, catalog::RUN_SUCCESSOR, [run.as_str()], fetch_optional, "read a run")?;
        Ok(row.record::<String>("read a run")?.map(RunId::from_database))
    }
}

/// Refuses a batch that is too large or in which two requests have the same run id.
fn check_batch(requests: &[(QueueRun, RunId)]) -> Result<(), Error> {
    if requests.len() > BATCH_MAX {
        let message =
            format!("there are {} runs; at most {BATCH_MAX} can be queued in one call", requests.len());
        return Err(Error::refused(RefusalCode::TooLarge, message));
    }
    let mut first = HashMap::with_capacity(requests.len());
    for (position, (_, run_id)) in requests.iter().enumerate() {
        if let Some(other) = first.insert(run_id, position) {
            let message = format!("run id {run_id} is also the id of runs[{other}]");
            return Err(Error::refused(RefusalCode::BadValue, message).at_position(position));
        }
    }
    Ok(())
}

/// Defines a method of the store that runs a verb in its own transaction.
macro_rules! store_verb {
    ($(#[$meta:meta])* $name:ident($($argument:ident: $owned:ty => $pass:expr),*) -> $output:ty) => {
        impl Store {
            $(#[$meta])*
            pub async fn $name(&self, $($argument: $owned,)* now: Option<Timestamp>) -> Result<$output, Error> {
                self.step(move |mut tx| -> BoxFuture<'_, Result<$output, Error>> {
                    Box::pin(async move { tx.$name($($pass,)* now).await })
                }).await
            }
        }
    };
}

store_verb! {
    /// Queues a run. See [`Tx::queue_run`].
    queue_run(request: QueueRun => &request, run_id: RunId => &run_id) -> QueueOutcome
}
store_verb! {
    /// Queues several runs. See [`Tx::queue_runs`].
    queue_runs(requests: Vec<(QueueRun, RunId)> => &requests) -> Vec<QueueOutcome>
}
store_verb! {
    /// Claims runs. See [`Tx::claim_runs`].
    claim_runs(ask: ClaimRuns => &ask) -> Vec<Claim>
}
store_verb! {
    /// Starts a claimed run. See [`Tx::start_run`].
    start_run(run: RunId => &run, holder: Holder => &holder) -> ChangeOutcome
}
store_verb! {
    /// Appends events. See [`Tx::append_events`].
    append_events(run: RunId => &run, events: Vec<NewEvent> => &events, holder: Holder => &holder)
        -> Vec<Option<String>>
}
store_verb! {
    /// Renews a run's lease. See [`Tx::heartbeat`].
    heartbeat(run: RunId => &run, holder: Holder => &holder) -> RunLease
}
store_verb! {
    /// Finishes runs. See [`Tx::finish_runs`].
    finish_runs(ends: Vec<FinishRun> => &ends, worker: Option<String> => worker.as_deref()) -> Vec<ChangeOutcome>
}
store_verb! {
    /// Cancels a run, or requests its worker to stop. See [`Tx::cancel_run`].
    cancel_run(run: RunId => &run, by: String => &by, reason: Option<String> => reason.as_deref()) -> CancelOutcome
}
store_verb! {
    /// Fails a stalled run. See [`Tx::fail_run`].
    fail_run(ask: FailRun => &ask) -> FailOutcome
}
store_verb! {
    /// Records an artifact. See [`Tx::add_artifact`].
    add_artifact(run: RunId => &run, artifact: NewArtifact => &artifact) -> String
}

impl Store {
    /// Queues a successor. See [`Tx::retry_run`].
    pub async fn retry_run(
        &self,
        run: RunId,
        by: String,
        now: Option<Timestamp>,
    ) -> Result<RetryOutcome, Error> {
        self.step(move |mut tx| {
            Box::pin(async move {
                let retried = tx.retry_run(&run, &by, now).await?;
                if !retried.created {
                    tx.skip_audit();
                }
                Ok(retried)
            })
        })
        .await
    }

    /// Returns a run, if it exists.
    pub async fn run(&self, run: RunId) -> Result<Option<Run>, Error> {
        self.read_one(move |mut tx| Box::pin(async move { tx.run(&run).await })).await
    }

    /// Lists runs, newest first.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<Run>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.runs(&filter).await })).await
    }

    /// Lists all attempts of a run's request, in order.
    pub async fn tries(&self, run: RunId) -> Result<Vec<Run>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let mut tries = std::collections::VecDeque::new();
                let Some(asked) = tx.run(&run).await? else { return Ok(Vec::new()) };
                let mut earlier = asked.retry_of.clone();
                tries.push_back(asked);
                // Earlier attempts may have been pruned.
                while let Some(id) = earlier.take() {
                    let Some(found) = tx.run(&id).await? else { break };
                    earlier.clone_from(&found.retry_of);
                    tries.push_front(found);
                }
                while let Some(last) = tries.back().map(|run| run.run_id.clone()) {
                    let Some(next) = tx.successor(&last).await? else { break };
                    let Some(found) = tx.run(&next).await? else { break };
                    tries.push_back(found);
                }
                Ok(tries.into())
            })
        })
        .await
    }
}
