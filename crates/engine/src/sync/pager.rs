//! The page worker: receives messages, executes pages, and adapts its concurrency to the queue.

use super::circuit::{FeedAccessError, FeedWait, circuit_of};
use super::page::{NextPage, PageContext, PageOutcome, PageWorker};
use super::skip_reason::SkipReason;
use super::slots::{FeedTasks, Room};
use super::width::Width;
use super::{PAGES_LABEL, Syncs, delta};
use crate::presence::{Identity, Presence};
use crate::retry_policy::chain;
use crate::trace::of_sync;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::queue::{DeadLetter, DeliveryCounting, Receipt, ReceivedMessage, WORK_ITEMS};
use tidemill_feeds::{Admission, Circuit, ErrorClass, FeedError};
use tidemill_store::{Class, Error, Queue as _, ReceiveRequest};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;
use tracing::Instrument as _;

/// Settings of a page worker.
#[derive(Debug, Clone)]
pub struct PagerOptions {
    /// Minimum number of concurrent pages.
    pub pages_min: usize,
    /// Maximum number of concurrent pages.
    pub pages_max: usize,
    /// Whether the worker ends when there is nothing to do.
    pub once: bool,
}

impl Default for PagerOptions {
    fn default() -> Self {
        Self { pages_min: 1, pages_max: 8, once: false }
    }
}

/// Set when the worker must not start another page.
struct StopSignal {
    shutdown: watch::Receiver<bool>,
    drain: watch::Receiver<bool>,
}

impl StopSignal {
    fn is_set(&self) -> bool {
        *self.shutdown.borrow() || *self.drain.borrow()
    }
}

/// The outcome of one message, counted over all pages that were read for it.
#[derive(Debug, Default, Clone, Copy)]
struct MessageOutcome {
    pages: u64,
    /// The database did not answer, so a message may be locked for this worker without its knowledge.
    database_unreachable: bool,
}

impl MessageOutcome {
    /// Adds the outcome of a task. One that panicked may have left its message locked.
    fn add(&mut self, ended: Result<Self, JoinError>) {
        let Self { pages, database_unreachable } =
            ended.unwrap_or(Self { pages: 0, database_unreachable: true });
        self.pages += pages;
        self.database_unreachable |= database_unreachable;
    }
}

/// Shortest and longest pause of a worker without messages.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Wait before a page that failed by itself is retried.
const FAULT_DELAY: Duration = Duration::from_secs(2);
/// Time between two renewals of a lock. The shortest lock lasts a minute.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// Time for the database, added to the grace period of a shutdown.
const ENDING_MARGIN: Duration = Duration::from_secs(5);
/// Time between two updates of the rate shares.
const SHARE_EVERY: Duration = Duration::from_secs(5);

impl Syncs {
    /// Executes pages until `stop` is set, and returns their number. Pages in progress are finished first.
    pub async fn work_pages(
        &self,
        identity: Identity,
        options: &PagerOptions,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64, Error> {
        let identity = Identity { labels: vec![PAGES_LABEL.to_owned()], ..identity };
        let presence =
            Presence::begin(&self.engine, identity, self.settings.process, self.settings.heartbeat_every)
                .await?;
        let (mut tasks, mut total) = (FeedTasks::new(), MessageOutcome::default());
        let (mut pause, mut shared_at) = (PAUSE_MIN, None::<Instant>);
        let mut width = Width::new(options, self.engine.store().waits());
        while !*stop.borrow() {
            if shared_at.is_none_or(|at| at.elapsed() > SHARE_EVERY) {
                self.share_rates().await;
                shared_at = Some(Instant::now());
            }
            while let Some(ended) = tasks.try_next() {
                total.add(ended);
            }
            if total.database_unreachable && tasks.is_empty() {
                // No task is running, so any message that is locked for this worker was received without its knowledge.
                let released = self.engine.store().release_worker(presence.worker(), self.now()).await;
                total.database_unreachable = released.is_err();
            }
            // Pages that wait for a slow feed may take minutes; the lock of an unknown message expires before that.
            let is_sure = !total.database_unreachable || (!tasks.is_empty() && tasks.quick() == 0);
            let wanted = if is_sure && !presence.is_draining() { width.wanted() } else { 0 };
            let room = tasks.room(wanted, width.max());
            let requested = room.pages;
            let received = match self.receive_pages(&presence, room).await {
                Ok(received) => received,
                // A caller that requested for one pass gets the error.
                Err(error) if options.once && tasks.is_empty() => {
                    presence.end().await;
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!("could not receive pages: {}", chain(&error));
                    total.database_unreachable = true;
                    Vec::new()
                }
            };
            let found = received.len();
            for message in received {
                self.start_message(message, &presence, &stop, &mut tasks);
            }
            width.learn(requested, found, tasks.quick(), self.engine.store().waits());
            if found > 0 {
                pause = PAUSE_MIN;
                continue;
            }
            if tasks.is_empty() && (options.once || presence.is_drained().await) {
                break;
            }
            tokio::select! {
                _ = stop.changed() => {}
                () = self.wakeup.notified() => pause = PAUSE_MIN,
                Some(ended) = tasks.next() => { total.add(ended); pause = PAUSE_MIN; }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
        self.finish_pages(&presence, &mut tasks, &mut total).await;
        presence.end().await;
        Ok(total.pages)
    }

    /// Starts a task that executes the pages of one message.
    fn start_message(
        &self,
        message: ReceivedMessage,
        presence: &Presence,
        stop: &watch::Receiver<bool>,
        tasks: &mut FeedTasks<MessageOutcome>,
    ) {
        let wait = Arc::<FeedWait>::default();
        let (worker, name) = (presence.worker(), presence.name().to_owned());
        let worker = PageWorker { worker, name, wait: wait.clone() };
        let signal = StopSignal { shutdown: stop.clone(), drain: presence.draining() };
        let syncs = self.clone();
        tasks.start(message.group.clone(), wait, async move {
            Box::pin(syncs.execute_pages(message, worker, signal)).await
        });
    }

    /// Waits for the pages in progress. After the grace period, pages without an answer of the feed are
    /// released; the margin is for the database.
    async fn finish_pages(
        &self,
        presence: &Presence,
        tasks: &mut FeedTasks<MessageOutcome>,
        total: &mut MessageOutcome,
    ) {
        let ending = async {
            while let Some(ended) = tasks.next().await {
                total.add(ended);
            }
        };
        if tokio::time::timeout(self.settings.grace + ENDING_MARGIN, ending).await.is_err() {
            tracing::warn!("could not release the pages in progress in time");
            tasks.abort().await;
            if let Err(error) = self.engine.store().release_worker(presence.worker(), self.now()).await {
                tracing::warn!("could not release pages: {}", chain(&error));
            }
        }
    }

    /// Receives messages of feeds that are up, not paused, and below their limit. Messages of other feeds stay in the
    /// queue, and no delivery is counted for them.
    async fn receive_pages(&self, presence: &Presence, room: Room) -> Result<Vec<ReceivedMessage>, Error> {
        if room.pages == 0 {
            return Ok(Vec::new());
        }
        let mut request = ReceiveRequest::new(WORK_ITEMS, presence.worker(), room.pages);
        request.except = self.unavailable_feeds().await?;
        request.except.extend(room.full_feeds);
        let delivery = self.engine.store().receive(request, self.now()).await?;
        for dead in &delivery.dead {
            metrics::counter!("tidemill_dead_letters_total", "queue" => WORK_ITEMS).increment(1);
            self.fail_dead_page(dead, presence).await?;
        }
        Ok(delivery.received)
    }

    /// Fails the partition of a page that expired or used up its deliveries.
    async fn fail_dead_page(&self, dead: &DeadLetter, presence: &Presence) -> Result<(), Error> {
        let Ok(tidemill_core::message::Message::WorkItem(item)) = serde_json::from_value(dead.body.clone())
        else {
            return Ok(());
        };
        let (worker, name) = (presence.worker(), presence.name().to_owned());
        let worker = PageWorker { worker, name, wait: Arc::default() };
        let last = dead.last_error.as_deref().unwrap_or("its workers were lost");
        let reason = format!("the page at offset {} was given up ({}): {last}", item.offset, dead.reason);
        self.fail_partition(&item, None, &reason, &worker).await?;
        self.evaluate(item.run_id).await?;
        Ok(())
    }

    /// Executes a page and the following ones, for as long as this worker may hold the partition.
    async fn execute_pages(
        &self,
        message: ReceivedMessage,
        worker: PageWorker,
        signal: StopSignal,
    ) -> MessageOutcome {
        let mut receipt = message.receipt.clone();
        let began = Instant::now();
        let mut pages = 0;
        let sure = |pages| MessageOutcome { pages, database_unreachable: false };
        let mut context = match self.open_page(&message, &worker).await {
            Ok(Some(context)) => context,
            Ok(None) => {
                self.complete_message(&receipt, "skip a page").await;
                return sure(0);
            }
            Err(error) => {
                self.release_message(&message.receipt, &error).await;
                let database_unreachable = error.class() == Class::Transient;
                return MessageOutcome { pages: 0, database_unreachable };
            }
        };
        loop {
            let keeps = pages + 1 < u64::from(self.settings.hold_pages)
                && began.elapsed() < self.settings.hold_time
                && !signal.is_set();
            let keep = if keeps { NextPage::Keep } else { NextPage::Release };
            let (item, at) = (context.item.clone(), receipt.clone());
            let span = of_sync!("page", item.trace_id, item.run_id, partition = item.partition_id);
            let executed = self.execute_with_circuit(context, &receipt, keep, &worker);
            let held = Instant::now();
            let mut executed = Box::pin(self.while_renewing(&at, executed).instrument(span));
            let outcome = tokio::select! {
                outcome = &mut executed => outcome,
                () = grace_over(signal.shutdown.clone(), self.settings.grace) => Err(FeedAccessError::Stopped),
            };
            drop(executed);
            metrics::histogram!("tidemill_message_hold_seconds", "queue" => WORK_ITEMS)
                .record(held.elapsed());
            match outcome {
                Ok(PageOutcome::Stored(Some(next), _)) if signal.is_set() => {
                    let database_unreachable = !self.release_page(&next).await;
                    return MessageOutcome { pages: pages + 1, database_unreachable };
                }
                Ok(PageOutcome::Stored(Some(next), following)) => {
                    pages += 1;
                    (receipt, context) = (next, *following);
                }
                Ok(PageOutcome::Stored(None, _)) => return sure(pages + 1),
                Ok(PageOutcome::Skipped) => {
                    SkipReason::Overtaken.record(&item);
                    self.complete_message(&at, "skip a page").await;
                    return sure(pages);
                }
                Ok(PageOutcome::Completed(sync) | PageOutcome::Failed(sync)) => {
                    if let Err(error) = self.evaluate(sync).await {
                        // The work-done message leads to the same evaluation.
                        tracing::warn!(sync.id = %sync, "could not evaluate sync {sync}: {}", chain(&error));
                    }
                    return sure(pages);
                }
                Err(failure) => {
                    let is_transient = |error: &Error| error.class() == Class::Transient;
                    let is_cut_off = matches!(&failure, FeedAccessError::Store(error) if is_transient(error));
                    let is_released = self.page_failed(&item, &at, &worker, failure).await;
                    return MessageOutcome { pages, database_unreachable: is_cut_off || !is_released };
                }
            }
        }
    }

    /// Does work that may take longer than the lock of its message.
    pub(super) async fn while_renewing<T>(&self, receipt: &Receipt, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(RENEW_EVERY) => {
                    let renewed = self.engine.store().renew(vec![receipt.clone()], self.now()).await;
                    if let Err(error) = renewed {
                        tracing::warn!("could not renew a lock: {}", chain(&error));
                    }
                }
            }
        }
    }

    async fn execute_with_circuit(
        &self,
        context: PageContext,
        receipt: &Receipt,
        keep: NextPage,
        worker: &PageWorker,
    ) -> Result<PageOutcome, FeedAccessError> {
        let name = context.item.feed.clone();
        let mut record = self.feed_record(&name).await?;
        if !self.feeds.is_open(&name) {
            self.share_rates().await;
        }
        let mut source = self.open_feed(&record.feed).await?;
        if source.digest() != context.sync.definition {
            // The cached record may be older than the sync.
            self.feeds.forget(&name);
            record = self.feed_record(&name).await?;
            source = self.open_feed(&record.feed).await?;
        }
        let circuit = circuit_of(&record);
        if !matches!(circuit, Circuit::Closed { .. }) {
            self.check_outage_limit(&name).await?;
            if let Admission::Wait(_) = self.admit_request(&name).await? {
                let reason = record.circuit_reason.clone().unwrap_or_default();
                return Err(FeedError::Outage { at: name, reason, retry_after: None }.into());
            }
        }
        let paged = self.execute_page(&source, context, receipt, keep, worker).await?;
        if circuit != circuit.answered() {
            self.record_answer(&name).await?;
        }
        Ok(paged)
    }

    /// Returns the feed's record. It is read at most once a second per process, because every page needs it.
    pub(super) async fn feed_record(
        &self,
        name: &str,
    ) -> Result<Arc<tidemill_core::records::FeedRecord>, Error> {
        self.feeds.recent(name, || self.engine.store().feed(name.to_owned())).await
    }

    /// Handles the error of a page. Returns whether the database recorded the result.
    async fn page_failed(
        &self,
        item: &tidemill_core::message::WorkItem,
        receipt: &Receipt,
        worker: &PageWorker,
        failure: FeedAccessError,
    ) -> bool {
        let text = failure.to_string();
        let result = match failure {
            FeedAccessError::Feed(error) if error.class() == ErrorClass::Outage => {
                let recorded = self.record_outage(&item.feed, &error).await;
                self.feeds.forget(&item.feed);
                // Capped by the circuit's own back-off.
                let requested = error.retry_after().unwrap_or(Duration::from_millis(200));
                let delay = requested.min(self.settings.circuit.backoff_max);
                let counts = DeliveryCounting::Forgiven;
                recorded.and(self.abandon(receipt, delay, counts, &text).await)
            }
            FeedAccessError::Feed(error) if error.class() == ErrorClass::Transient => {
                let requested =
                    error.retry_after().unwrap_or(FAULT_DELAY.min(self.settings.tuning.backoff_max));
                let delay = requested.min(self.settings.circuit.backoff_max);
                self.page_fault(item, receipt, delay, &text, worker).await
            }
            FeedAccessError::Feed(_) | FeedAccessError::GivenUp { .. } => {
                if let FeedAccessError::Feed(error) = &failure
                    && let Err(error) = self.record_refusal(&item.feed, error).await
                {
                    tracing::warn!(sync.id = %item.run_id, "could not record a refusal: {}", chain(&error));
                }
                let failed = self.fail_partition(item, Some(receipt), &text, worker).await;
                match failed {
                    Ok(_) => self.evaluate(item.run_id).await.map(|_| ()),
                    Err(error) => Err(error),
                }
            }
            FeedAccessError::Store(error) if error.class() == Class::Transient => {
                self.abandon(receipt, FAULT_DELAY, DeliveryCounting::Forgiven, &chain(&error)).await
            }
            FeedAccessError::Store(error) => {
                self.page_fault(item, receipt, FAULT_DELAY, &chain(&error), worker).await
            }
            FeedAccessError::Down { .. } => {
                self.abandon(receipt, Duration::ZERO, DeliveryCounting::Forgiven, &text).await
            }
            // The message is removed with the sync when the cancellation is processed.
            FeedAccessError::Cancelled => {
                self.abandon(receipt, FAULT_DELAY, DeliveryCounting::Forgiven, &text).await
            }
            FeedAccessError::Stopped => {
                let left = self.release_probe(&item.feed).await;
                left.and(self.abandon(receipt, Duration::ZERO, DeliveryCounting::Forgiven, &text).await)
            }
        };
        if let Err(error) = result {
            // The lock expires by itself, and the page is executed again.
            tracing::warn!(sync.id = %item.run_id, "could not release a page: {}", chain(&error));
            return false;
        }
        true
    }

    /// Retries a page that failed by itself a few times, and then fails its partition.
    async fn page_fault(
        &self,
        item: &tidemill_core::message::WorkItem,
        receipt: &Receipt,
        delay: Duration,
        reason: &str,
        worker: &PageWorker,
    ) -> Result<(), Error> {
        tracing::warn!(sync.id = %item.run_id, "{} at {}: {reason}", item.partition_id, item.offset);
        let (sync, partition, text, now) =
            (item.run_id, item.partition_id.clone(), reason.to_owned(), self.now());
        let offset = i32::try_from(item.offset).unwrap_or(i32::MAX);
        let faults = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move { tx.record_fault(sync, &partition, offset, &text, now).await })
            })
            .await?;
        if faults.is_some_and(|faults| faults >= self.settings.page_faults_max) {
            self.fail_partition(item, Some(receipt), reason, worker).await?;
            self.evaluate(item.run_id).await?;
            return Ok(());
        }
        // The partition counts its errors itself. The delivery count of the message only detects dying workers.
        self.abandon(receipt, delay, DeliveryCounting::Forgiven, reason).await
    }

    async fn abandon(
        &self,
        receipt: &Receipt,
        delay: Duration,
        counts: DeliveryCounting,
        reason: &str,
    ) -> Result<(), Error> {
        let reason = Some(reason.to_owned());
        let store = self.engine.store();
        store.abandon(receipt.clone(), delta(delay), counts, reason, self.now()).await?;
        Ok(())
    }

    /// Releases a page that was not started, so that another worker can take it at once. Returns whether that
    /// succeeded.
    async fn release_page(&self, receipt: &Receipt) -> bool {
        let (none, store) = (chrono::TimeDelta::zero(), self.engine.store());
        let left = store.abandon(receipt.clone(), none, DeliveryCounting::Forgiven, None, self.now()).await;
        if let Err(error) = &left {
            tracing::warn!("could not release a page: {}", chain(error));
        }
        self.wake();
        left.is_ok()
    }

    async fn release_message(&self, receipt: &Receipt, error: &Error) {
        let counts = if error.class() == Class::Transient {
            DeliveryCounting::Forgiven
        } else {
            DeliveryCounting::Counted
        };
        if let Err(error) = self.abandon(receipt, FAULT_DELAY, counts, &chain(error)).await {
            tracing::warn!("could not release a message: {}", chain(&error));
        }
    }

    /// Completes a message that needs no work.
    async fn complete_message(&self, receipt: &Receipt, what: &'static str) {
        if let Err(error) = self.engine.store().complete(vec![receipt.clone()], self.now()).await {
            tracing::warn!("could not {what}: {}", chain(&error));
        }
    }
}

/// Waits until the process was told to stop and the grace period is over.
async fn grace_over(mut stop: watch::Receiver<bool>, grace: Duration) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // The sender is gone, so no stop can come.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(grace).await;
}
