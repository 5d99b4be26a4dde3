//! The consolidator: evaluates syncs whose partitions end, and consolidates those that are ready. Several replicas
//! share the work: one holds the message and completes the sync, the others help with the batches.
//!
//! A replica consolidates one sync at a time. Syncs that wait for a slow feed do not count, so that a hanging lookup
//! does not delay other feeds.

use super::circuit::{FeedAccessError, FeedWait};
use super::consolidate::{BatchOutcome, ConsolidationContext, ConsolidationSetupError};
use super::evaluate::fail;
use super::slots::FeedTasks;
use super::{CONSOLIDATOR_LABEL, Syncs, delta};
use crate::presence::{Identity, Presence};
use crate::retry_policy::chain;
use crate::trace::of_sync;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::alert::AlertKind;
use tidemill_core::message::Message;
use tidemill_core::queue::{CONSOLIDATE, DeadLetter, DeliveryCounting, ReceivedMessage, WORK_DONE};
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_store::{Class, Error, Queue as _, ReceiveRequest, RefusalCode, catch_panic};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

/// Settings of a consolidator.
#[derive(Debug, Clone)]
pub struct ConsolidatorOptions {
    /// Number of concurrent batches.
    pub concurrency: usize,
    /// Whether it ends when there is nothing to do.
    pub once: bool,
}

impl Default for ConsolidatorOptions {
    fn default() -> Self {
        Self { concurrency: 2, once: false }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Wait before a failed consolidation is retried.
const RETRY_WAIT: Duration = Duration::from_secs(5);
/// Longest wait before a sync of a feed that is down is tried again: an operator may have reset the outage.
const DOWN_MAX: Duration = Duration::from_secs(30);
/// Most `work-done` messages that are received at once.
const DONE_MAX: usize = 64;

/// The outcomes of the consolidations of one process.
#[derive(Default)]
struct Outcomes {
    completed: u64,
    /// The database did not answer, so a message may be locked for this process without its knowledge.
    database_unreachable: bool,
    /// The last error, for a caller that asked for one pass.
    failure: Option<Error>,
}

impl Outcomes {
    fn add(&mut self, ended: Result<Result<bool, Error>, JoinError>) {
        match ended {
            Ok(Ok(is_completed)) => self.completed += u64::from(is_completed),
            Ok(Err(error)) => self.fail(error),
            // A panic outside of the consolidation itself, which catches its own.
            Err(error) => {
                tracing::error!("the task of a consolidation broke off: {error}");
                self.database_unreachable = true;
            }
        }
    }

    fn fail(&mut self, error: Error) {
        tracing::warn!("consolidator pass failed: {}", chain(&error));
        self.database_unreachable = true;
        self.failure = Some(error);
    }
}

/// Why a consolidation did not complete.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConsolidationError {
    /// It failed and is retried; the delivery counts.
    #[error("{0}")]
    Retry(String),
    /// A retry would fail again: the sync fails with this reason.
    #[error("{0}")]
    Permanent(String),
    /// The database did not answer; the delivery does not count.
    #[error("{0}")]
    DatabaseUnreachable(String),
    /// The feed is down; the delivery does not count.
    #[error("{reason}")]
    Down { until: Timestamp, reason: String },
    /// Another consolidator holds the message.
    #[error("another consolidator holds the message")]
    Stale,
    #[error("the process is shutting down")]
    Stopped,
    #[error("the sync was cancelled")]
    Cancelled,
}

impl From<FeedAccessError> for ConsolidationError {
    fn from(error: FeedAccessError) -> Self {
        let text = error.to_string();
        match error {
            FeedAccessError::Store(error) => Self::from(error),
            FeedAccessError::Down { until, .. } => Self::Down { until, reason: text },
            FeedAccessError::Stopped => Self::Stopped,
            FeedAccessError::Cancelled => Self::Cancelled,
            FeedAccessError::Feed(_) | FeedAccessError::GivenUp { .. } => Self::Retry(text),
        }
    }
}

impl From<ConsolidationSetupError> for ConsolidationError {
    fn from(error: ConsolidationSetupError) -> Self {
        match error {
            ConsolidationSetupError::Store(error) => error.into(),
            ConsolidationSetupError::Refused(reason) => Self::Retry(reason),
        }
    }
}

impl From<Error> for ConsolidationError {
    fn from(error: Error) -> Self {
        match error.class() {
            _ if error.refusal_code() == Some(RefusalCode::Stale) => Self::Stale,
            // The table or its contract refuses the records.
            _ if error.refusal_code() == Some(RefusalCode::BadValue) => Self::Permanent(chain(&error)),
            Class::Transient => Self::DatabaseUnreachable(chain(&error)),
            Class::Permanent => Self::Retry(chain(&error)),
        }
    }
}

impl Syncs {
    /// Consolidates until `stop` is set, and returns the number of completed syncs.
    pub async fn consolidate(
        &self,
        identity: Identity,
        options: &ConsolidatorOptions,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64, Error> {
        let identity = Identity { labels: vec![CONSOLIDATOR_LABEL.to_owned()], ..identity };
        let presence =
            Presence::begin(&self.engine, identity, self.settings.process, self.settings.heartbeat_every)
                .await?;
        let (mut tasks, mut outcomes, mut pause) = (FeedTasks::new(), Outcomes::default(), PAUSE_MIN);
        while !*stop.borrow() {
            while let Some(ended) = tasks.try_next() {
                outcomes.add(ended);
            }
            if outcomes.database_unreachable && tasks.is_empty() {
                // No task is running, so any message that is locked for this process was received without its
                // knowledge.
                let released = self.engine.store().release_worker(presence.worker(), self.now()).await;
                outcomes.database_unreachable = released.is_err();
            }
            let turn = catch_panic(Box::pin(self.consolidator_turn(&presence, options, &stop, &mut tasks)));
            let found = turn.await.unwrap_or_else(|panic| Err(Error::Panicked { panic }));
            let found = found.unwrap_or_else(|error| {
                outcomes.fail(error);
                false
            });
            // A caller that asked for one pass gets the error.
            if let (true, Some(error)) = (options.once, outcomes.failure.take()) {
                presence.end().await;
                return Err(error);
            }
            if found {
                pause = PAUSE_MIN;
                continue;
            }
            if tasks.is_empty() && (options.once || presence.is_drained().await) {
                break;
            }
            tokio::select! {
                _ = stop.changed() => {}
                () = self.wakeup.notified() => pause = PAUSE_MIN,
                Some(ended) = tasks.next() => { outcomes.add(ended); pause = PAUSE_MIN; }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
        // Each task ends soon: it checks `stop` between two steps, and stops waiting for a feed's answer.
        while let Some(ended) = tasks.next().await {
            outcomes.add(ended);
        }
        presence.end().await;
        Ok(outcomes.completed)
    }

    /// Runs one pass over all duties of a consolidator. Returns whether there was any work.
    async fn consolidator_turn(
        &self,
        presence: &Presence,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
        tasks: &mut FeedTasks<Result<bool, Error>>,
    ) -> Result<bool, Error> {
        if presence.is_draining() {
            return Ok(false);
        }
        let mut found = self.evaluate_done(presence).await?;
        if !tasks.has_room() {
            return Ok(found);
        }
        let mut request = ReceiveRequest::new(CONSOLIDATE, presence.worker(), 1);
        request.except = tasks.feeds();
        let delivery = self.engine.store().receive(request, self.now()).await?;
        for dead in &delivery.dead {
            metrics::counter!("tidemill_dead_letters_total", "queue" => CONSOLIDATE).increment(1);
            self.fail_dead_consolidation(dead).await?;
            found = true;
        }
        for message in delivery.received {
            found = true;
            let (syncs, options, stop) = (self.clone(), options.clone(), stop.clone());
            let (feed, wait) = (message.group.clone(), Arc::<FeedWait>::default());
            tasks.start(feed, wait.clone(), async move {
                Box::pin(syncs.execute_consolidation(message, &options, &stop, &wait)).await
            });
        }
        Ok(found || self.help(options, stop).await?)
    }

    /// Consolidates the sync of one message and handles the outcome. Returns whether the sync was completed.
    async fn execute_consolidation(
        &self,
        message: ReceivedMessage,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
        wait: &Arc<FeedWait>,
    ) -> Result<bool, Error> {
        let held = Instant::now();
        let trace = message.trace_id.clone().unwrap_or_default();
        let span = of_sync!("consolidate", trace, message.run_id.as_deref().unwrap_or_default());
        // A panic affects only this sync: its message is released, and the delivery counts.
        let executed = async {
            let executed = catch_panic(Box::pin(self.run_consolidation(&message, options, stop, wait))).await;
            executed.unwrap_or_else(|panic| Err(ConsolidationError::Retry(panic.to_string())))
        };
        let outcome = self.while_renewing(&message.receipt, executed).instrument(span).await;
        metrics::histogram!("tidemill_message_hold_seconds", "queue" => CONSOLIDATE).record(held.elapsed());
        self.consolidation_ended(&message, outcome).await
    }

    /// Evaluates the syncs of ended partitions.
    async fn evaluate_done(&self, presence: &Presence) -> Result<bool, Error> {
        let request = ReceiveRequest::new(WORK_DONE, presence.worker(), DONE_MAX);
        let delivery = self.engine.store().receive(request, self.now()).await?;
        let sync_of = |message: &ReceivedMessage| match serde_json::from_value(message.body.clone()) {
            Ok(Message::WorkDone(done)) => Some(done.run_id),
            Ok(Message::WorkItem(_) | Message::Consolidate(_)) | Err(_) => None,
        };
        let syncs: BTreeSet<Uuid> = delivery.received.iter().filter_map(sync_of).collect();
        let mut failed = BTreeSet::new();
        for sync in syncs {
            // Its message is delivered again when the lock expires. The other syncs continue.
            if let Err(error) = self.evaluate(sync).await {
                tracing::warn!(sync.id = %sync, "could not evaluate sync {sync}: {}", chain(&error));
                failed.insert(sync);
            }
        }
        let is_done =
            |message: &&ReceivedMessage| sync_of(message).is_none_or(|sync| !failed.contains(&sync));
        let receipts: Vec<_> =
            delivery.received.iter().filter(is_done).map(|message| message.receipt.clone()).collect();
        if receipts.is_empty() {
            return Ok(false);
        }
        self.engine.store().complete(receipts, self.now()).await?;
        Ok(true)
    }

    /// Consolidates one sync completely.
    async fn run_consolidation(
        &self,
        message: &ReceivedMessage,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
        wait: &Arc<FeedWait>,
    ) -> Result<bool, ConsolidationError> {
        let Ok(Message::Consolidate(order)) = serde_json::from_value(message.body.clone()) else {
            return Err(ConsolidationError::Retry("the message is not a consolidation order".to_owned()));
        };
        let (id, now) = (order.run_id, self.now());
        let begun = self
            .engine
            .store()
            .write(move |mut tx| Box::pin(async move { tx.consume_sync(id, now).await }))
            .await?;
        if !begun {
            return Ok(false);
        }
        let feed = self.engine.store().sync(id.to_string()).await?.feed;
        tracing::info!(sync.id = %id, "consolidating sync {id} of feed {feed}");
        self.share_rates().await;
        let mut evidence = None;
        loop {
            if *stop.borrow() {
                return Err(ConsolidationError::Stopped);
            }
            // Read in each round: it may have been cancelled, or other rules may have been applied.
            let sync = self.engine.store().sync(id.to_string()).await?;
            if sync.state != SyncState::Consolidating {
                return Ok(false);
            }
            let context = ConsolidationContext { wait: wait.clone(), ..self.context(&sync).await? };
            self.batches(&context, options, stop).await?;
            let decided = match evidence {
                Some(decided) => decided,
                None => *evidence.insert(self.sync_evidence(&sync, &context, stop).await?),
            };
            let is_clean = Box::pin(self.delete_vanished(&sync, &context, decided, stop)).await?;
            if is_clean {
                self.write_moved(&context).await?;
            }
            // Complete only when no page is open, including those in the batches of other replicas.
            if is_clean && self.complete(id, &message.receipt).await? {
                return Ok(true);
            }
            tokio::time::sleep(PAUSE_MAX).await;
        }
    }

    /// Runs concurrent batches until none is left.
    async fn batches(
        &self,
        context: &ConsolidationContext,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), ConsolidationError> {
        let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
        for _ in 0..options.concurrency.max(1) {
            let (syncs, context, stop) = (self.clone(), context.clone(), stop.clone());
            let work = async move {
                while !*stop.borrow() {
                    match syncs.consolidate_batch(&context).await? {
                        BatchOutcome::Done { records_read, rejected } => {
                            tracing::debug!(sync.id = %context.sync, records_read, rejected, "batch written");
                        }
                        BatchOutcome::Nothing => return Ok(()),
                    }
                }
                Ok(())
            };
            tasks.spawn(work.in_current_span());
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|error| ConsolidationError::Retry(error.to_string()))??;
        }
        Ok(())
    }

    /// Helps with the batches of a sync that another replica consolidates.
    async fn help(&self, options: &ConsolidatorOptions, stop: &watch::Receiver<bool>) -> Result<bool, Error> {
        let mut helped = false;
        for sync in self.engine.store().live_syncs(16).await? {
            if sync.state != SyncState::Consolidating {
                continue;
            }
            let Ok(context) = self.context(&sync).await else { continue };
            for _ in 0..options.concurrency.max(1) * 4 {
                if *stop.borrow() {
                    return Ok(helped);
                }
                match self.consolidate_batch(&context).await {
                    Ok(BatchOutcome::Done { .. }) => helped = true,
                    Ok(BatchOutcome::Nothing) => break,
                    // The replica that holds the message fails the sync.
                    Err(error) if error.refusal_code() == Some(RefusalCode::BadValue) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(helped)
    }

    /// Handles the message after a consolidation. Returns whether the sync was completed.
    async fn consolidation_ended(
        &self,
        message: &ReceivedMessage,
        outcome: Result<bool, ConsolidationError>,
    ) -> Result<bool, Error> {
        let store = self.engine.store();
        let give_back = |delay, counts, reason: String| {
            store.abandon(message.receipt.clone(), delta(delay), counts, Some(reason), self.now())
        };
        match outcome {
            Ok(true) => return Ok(true),
            // The message is a duplicate, or the sync was cancelled.
            Ok(false) | Err(ConsolidationError::Cancelled) => {
                store.complete(vec![message.receipt.clone()], self.now()).await?;
            }
            Err(ConsolidationError::Stale) => {}
            Err(ConsolidationError::Stopped) => {
                give_back(
                    Duration::ZERO,
                    DeliveryCounting::Forgiven,
                    ConsolidationError::Stopped.to_string(),
                )
                .await?;
            }
            Err(ConsolidationError::DatabaseUnreachable(reason)) => {
                tracing::warn!("consolidation was interrupted and continues: {reason}");
                give_back(PAUSE_MAX, DeliveryCounting::Forgiven, reason).await?;
            }
            Err(ConsolidationError::Down { until, reason }) => {
                let wait = (until - store.now(self.now()).await?).to_std().unwrap_or_default();
                give_back(wait.clamp(PAUSE_MAX, DOWN_MAX), DeliveryCounting::Forgiven, reason).await?;
            }
            Err(ConsolidationError::Permanent(reason)) => {
                if let Ok(Message::Consolidate(order)) = serde_json::from_value(message.body.clone()) {
                    self.fail_consolidation(order.run_id, reason).await?;
                }
                store.complete(vec![message.receipt.clone()], self.now()).await?;
            }
            Err(ConsolidationError::Retry(reason)) => {
                tracing::warn!("consolidation failed, retrying: {reason}");
                give_back(
                    RETRY_WAIT.min(self.settings.tuning.backoff_max),
                    DeliveryCounting::Counted,
                    reason,
                )
                .await?;
            }
        }
        Ok(false)
    }

    /// Fails the sync of a consolidation that used up its deliveries.
    async fn fail_dead_consolidation(&self, dead: &DeadLetter) -> Result<(), Error> {
        let Ok(Message::Consolidate(order)) = serde_json::from_value(dead.body.clone()) else {
            return Ok(());
        };
        let last = dead.last_error.clone().unwrap_or_else(|| "its consolidators were lost".to_owned());
        let reason = format!("consolidation was given up ({}): {last}", dead.reason);
        self.fail_consolidation(order.run_id, reason).await
    }

    /// Fails a sync that is being consolidated.
    async fn fail_consolidation(&self, id: Uuid, reason: String) -> Result<(), Error> {
        let now = self.now();
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move {
                    let Some(found) = tx.sync(id).await? else { return Ok(()) };
                    tx.lock_run(&found.ops_run_id).await?;
                    let Some(sync) = tx.lock_sync(id).await? else { return Ok(()) };
                    if is_consolidating(&sync) {
                        fail(&mut tx, &sync, AlertKind::ConsolidationFailed, &reason, now).await?;
                    }
                    Ok(())
                })
            })
            .await
    }
}

fn is_consolidating(sync: &Sync) -> bool {
    matches!(sync.state, SyncState::ConsolidationTriggered | SyncState::Consolidating)
}
