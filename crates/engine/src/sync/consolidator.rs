//! The consolidator: evaluates syncs whose partitions end, and consolidates those that are ready. Any number of
//! replicas share the work: one holds the message and completes, the others help with the batches.
//!
//! A replica consolidates one sync at a time. One that waits for a slow feed does not count, so that a lookup that
//! hangs holds up no other feed.

use super::circuit::{Asked, FeedWait};
use super::consolidate::{Batch, Bench, BenchFault};
use super::evaluate::fail;
use super::slots::FeedTasks;
use super::{CONSOLIDATOR_LABEL, Syncs, delta};
use crate::patience::chain;
use crate::presence::{Identity, Presence};
use crate::trace::of_sync;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::alert::AlertKind;
use tidemill_core::message::Message;
use tidemill_core::queue::{CONSOLIDATE, Counts, DeadLetter, Received, WORK_DONE};
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_store::{Class, Error, Queue as _, Receive, RefusalCode, catch_panic};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;
use uuid::Uuid;

/// How a consolidator behaves.
#[derive(Debug, Clone)]
pub struct ConsolidatorOptions {
    /// Batches at a time.
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
/// The wait before a consolidation that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest wait before a feed that is down is thought of again: a person may have said that it is up.
const DOWN_MAX: Duration = Duration::from_secs(30);
/// Messages of `work-done` in one go.
const DONE_MAX: usize = 64;

/// The outcomes of the consolidations of one process.
#[derive(Default)]
struct Outcomes {
    /// Syncs that were completed.
    completed: u64,
    /// The database did not answer, so a message may be locked for this process without its knowledge.
    database_unreachable: bool,
    /// The last error, for a caller who asked for one look.
    failure: Option<Error>,
}

impl Outcomes {
    fn add(&mut self, ended: Result<Result<bool, Error>, JoinError>) {
        match ended {
            Ok(Ok(is_completed)) => self.completed += u64::from(is_completed),
            Ok(Err(error)) => self.fail(error),
            // A panic outside of the consolidation itself, which catches its own.
            Err(error) => {
                tracing::error!("a consolidation was broken off: {error}");
                self.database_unreachable = true;
            }
        }
    }

    fn fail(&mut self, error: Error) {
        tracing::warn!("could not look for work: {}", chain(&error));
        self.database_unreachable = true;
        self.failure = Some(error);
    }
}

/// How a consolidation went.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// It may be tried again.
    #[error("{0}")]
    Again(String),
    /// The database did not answer, which is not the sync's fault.
    #[error("{0}")]
    Away(String),
    /// The feed is down, which is not the sync's fault either.
    #[error("{reason}")]
    Down {
        /// When it is asked again.
        until: Timestamp,
        /// The sentence.
        reason: String,
    },
    /// Somebody else has it.
    #[error("another consolidator has it")]
    Stale,
    /// The process is to end.
    #[error("the process was told to end")]
    Stopped,
    /// Somebody cancelled the sync.
    #[error("the sync was cancelled")]
    Cancelled,
}

impl From<Asked> for Fault {
    fn from(asked: Asked) -> Self {
        let told = asked.to_string();
        match asked {
            Asked::Store(error) => Self::from(error),
            Asked::Down { until, .. } => Self::Down { until, reason: told },
            Asked::Stopped => Self::Stopped,
            Asked::Cancelled => Self::Cancelled,
            Asked::Feed(_) | Asked::GivenUp { .. } => Self::Again(told),
        }
    }
}

impl From<BenchFault> for Fault {
    fn from(fault: BenchFault) -> Self {
        match fault {
            BenchFault::Store(error) => error.into(),
            BenchFault::Refused(reason) => Self::Again(reason),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.class() {
            _ if error.refusal_code() == Some(RefusalCode::Stale) => Self::Stale,
            Class::Transient => Self::Away(chain(&error)),
            Class::Permanent => Self::Again(chain(&error)),
        }
    }
}

impl Syncs {
    /// Consolidates until told to stop; how many syncs it completed.
    pub async fn consolidate(
        &self,
        identity: Identity,
        options: &ConsolidatorOptions,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64, Error> {
        let identity = Identity { labels: vec![CONSOLIDATOR_LABEL.to_owned()], ..identity };
        let presence =
            Presence::begin(&self.engine, identity, self.settings.process, self.settings.beat).await?;
        let (mut tasks, mut outcomes, mut pause) = (FeedTasks::new(), Outcomes::default(), PAUSE_MIN);
        while !*stop.borrow() {
            while let Some(ended) = tasks.try_next() {
                outcomes.add(ended);
            }
            if outcomes.database_unreachable && tasks.is_empty() {
                // Nothing is in hand: what is locked for this process is what it was never told of.
                let released = self.engine.store().release_worker(presence.worker(), self.now()).await;
                outcomes.database_unreachable = released.is_err();
            }
            let turn = catch_panic(Box::pin(self.consolidator_turn(&presence, options, &stop, &mut tasks)));
            let found = turn.await.unwrap_or_else(|panic| Err(Error::Panicked { panic }));
            let found = found.unwrap_or_else(|error| {
                outcomes.fail(error);
                false
            });
            // Whoever asked for one look hears that there was none.
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
                () = self.bell.notified() => pause = PAUSE_MIN,
                Some(ended) = tasks.next() => { outcomes.add(ended); pause = PAUSE_MIN; }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
        // Each of them ends soon: it sees the stop between two steps, and lets a question go that a feed leaves open.
        while let Some(ended) = tasks.next().await {
            outcomes.add(ended);
        }
        presence.end().await;
        Ok(outcomes.completed)
    }

    /// One look at everything that a consolidator does; whether there was anything.
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
        let mut found = self.hear_done(presence).await?;
        if !tasks.has_room() {
            return Ok(found);
        }
        let mut ask = Receive::new(CONSOLIDATE, presence.worker(), 1);
        ask.except = tasks.feeds();
        let delivery = self.engine.store().receive(ask, self.now()).await?;
        for dead in &delivery.dead {
            metrics::counter!("tidemill_dead_letters_total", "queue" => CONSOLIDATE).increment(1);
            self.bury_consolidation(dead).await?;
            found = true;
        }
        for message in delivery.received {
            found = true;
            let (syncs, options, stop) = (self.clone(), options.clone(), stop.clone());
            let (feed, wait) = (message.group.clone(), Arc::<FeedWait>::default());
            tasks.start(feed, wait.clone(), async move {
                Box::pin(syncs.hold_consolidation(message, &options, &stop, &wait)).await
            });
        }
        Ok(found || self.help(options, stop).await?)
    }

    /// Consolidates the sync of one message, and settles the message; whether the sync was completed.
    async fn hold_consolidation(
        &self,
        message: Received,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
        wait: &Arc<FeedWait>,
    ) -> Result<bool, Error> {
        let held = Instant::now();
        let trace = message.trace_id.clone().unwrap_or_default();
        let span = of_sync!("consolidate", trace, message.run_id.as_deref().unwrap_or_default());
        // A panic costs this sync alone: its message is given back, and counts.
        let carried = async {
            let carried =
                catch_panic(Box::pin(self.carry_consolidation(&message, options, stop, wait))).await;
            carried.unwrap_or_else(|panic| Err(Fault::Again(panic.to_string())))
        };
        let outcome = self.while_renewing(&message.receipt, carried).instrument(span).await;
        metrics::histogram!("tidemill_message_hold_seconds", "queue" => CONSOLIDATE).record(held.elapsed());
        self.consolidation_ended(&message, outcome).await
    }

    /// Partitions that have ended: their syncs are evaluated.
    async fn hear_done(&self, presence: &Presence) -> Result<bool, Error> {
        let ask = Receive::new(WORK_DONE, presence.worker(), DONE_MAX);
        let delivery = self.engine.store().receive(ask, self.now()).await?;
        let sync_of = |message: &Received| match serde_json::from_value(message.body.clone()) {
            Ok(Message::WorkDone(done)) => Some(done.run_id),
            Ok(Message::WorkItem(_) | Message::Consolidate(_)) | Err(_) => None,
        };
        let syncs: BTreeSet<Uuid> = delivery.received.iter().filter_map(sync_of).collect();
        let mut failed = BTreeSet::new();
        for sync in syncs {
            // Its message comes back when its lock ends. Until then the other syncs go on.
            if let Err(error) = self.evaluate(sync).await {
                tracing::warn!(sync.id = %sync, "could not evaluate: {}", chain(&error));
                failed.insert(sync);
            }
        }
        let is_done = |message: &&Received| sync_of(message).is_none_or(|sync| !failed.contains(&sync));
        let receipts: Vec<_> =
            delivery.received.iter().filter(is_done).map(|message| message.receipt.clone()).collect();
        if receipts.is_empty() {
            return Ok(false);
        }
        self.engine.store().complete(receipts, self.now()).await?;
        Ok(true)
    }

    /// Consolidates one sync to its end.
    async fn carry_consolidation(
        &self,
        message: &Received,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
        wait: &Arc<FeedWait>,
    ) -> Result<bool, Fault> {
        let Ok(Message::Consolidate(order)) = serde_json::from_value(message.body.clone()) else {
            return Err(Fault::Again("the message is no order to consolidate".to_owned()));
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
        tracing::info!(sync.id = %id, "sync {id} of feed {feed} is being consolidated");
        loop {
            if *stop.borrow() {
                return Err(Fault::Stopped);
            }
            // Read each time: somebody may have stopped it, or applied other rules.
            let sync = self.engine.store().sync(id.to_string()).await?;
            if sync.state != SyncState::Consolidating {
                return Ok(false);
            }
            let bench = Bench { wait: wait.clone(), ..self.bench(&sync).await? };
            self.batches(&bench, options, stop).await?;
            let is_whole = Box::pin(self.delete_vanished(&sync, &bench, stop)).await?;
            // Done means that no page is open, those that another replica has at hand included.
            if is_whole && self.complete(id, &message.receipt).await? {
                return Ok(true);
            }
            tokio::time::sleep(PAUSE_MAX).await;
        }
    }

    /// Runs batches side by side until none is left.
    async fn batches(
        &self,
        bench: &Bench,
        options: &ConsolidatorOptions,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), Fault> {
        let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
        for _ in 0..options.concurrency.max(1) {
            let (syncs, bench, stop) = (self.clone(), bench.clone(), stop.clone());
            let work = async move {
                while !*stop.borrow() {
                    match syncs.consolidate_batch(&bench).await? {
                        Batch::Done { looked_at, rejected } => {
                            tracing::debug!(sync.id = %bench.sync, looked_at, rejected, "a batch is in the table");
                        }
                        Batch::Nothing => return Ok(()),
                    }
                }
                Ok(())
            };
            tasks.spawn(work.in_current_span());
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|error| Fault::Again(error.to_string()))??;
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
            let Ok(bench) = self.bench(&sync).await else { continue };
            for _ in 0..options.concurrency.max(1) * 4 {
                if *stop.borrow() {
                    return Ok(helped);
                }
                match self.consolidate_batch(&bench).await? {
                    Batch::Done { .. } => helped = true,
                    Batch::Nothing => break,
                }
            }
        }
        Ok(helped)
    }

    /// What the outcome of a consolidation means for its message; whether the sync was completed.
    async fn consolidation_ended(
        &self,
        message: &Received,
        outcome: Result<bool, Fault>,
    ) -> Result<bool, Error> {
        let store = self.engine.store();
        let give_back = |delay, counts, reason: String| {
            store.abandon(message.receipt.clone(), delta(delay), counts, Some(reason), self.now())
        };
        match outcome {
            Ok(true) => return Ok(true),
            // There is nothing to consolidate: a duplicate, or a sync that was stopped.
            Ok(false) | Err(Fault::Cancelled) => {
                store.complete(vec![message.receipt.clone()], self.now()).await?;
            }
            Err(Fault::Stale) => {}
            Err(Fault::Stopped) => {
                give_back(Duration::ZERO, Counts::Forgiven, Fault::Stopped.to_string()).await?;
            }
            Err(Fault::Away(reason)) => {
                tracing::warn!("consolidation was cut off, and goes on: {reason}");
                give_back(PAUSE_MAX, Counts::Forgiven, reason).await?;
            }
            Err(Fault::Down { until, reason }) => {
                let wait = (until - store.now(self.now()).await?).to_std().unwrap_or_default();
                give_back(wait.clamp(PAUSE_MAX, DOWN_MAX), Counts::Forgiven, reason).await?;
            }
            Err(Fault::Again(reason)) => {
                tracing::warn!("consolidation failed, and is tried again: {reason}");
                give_back(AGAIN.min(self.settings.tuning.backoff_max), Counts::Counted, reason).await?;
            }
        }
        Ok(false)
    }

    /// A consolidation that failed as often as it may: the sync fails, with a command to go on.
    async fn bury_consolidation(&self, dead: &DeadLetter) -> Result<(), Error> {
        let Ok(Message::Consolidate(order)) = serde_json::from_value(dead.body.clone()) else {
            return Ok(());
        };
        let last = dead.last_error.clone().unwrap_or_else(|| "its consolidators were lost".to_owned());
        let reason = format!("consolidation was given up ({}): {last}", dead.reason);
        let (id, now) = (order.run_id, self.now());
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
