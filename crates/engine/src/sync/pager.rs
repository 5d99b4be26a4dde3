//! The worker of pages: takes messages, carries out pages, and grows and shrinks with the queue.

use super::circuit::{Asked, FeedWait, circuit_of};
use super::page::{Hand, Keep, Paged, Reading};
use super::skip::Skip;
use super::slots::{FeedTasks, Room};
use super::width::Width;
use super::{PAGES_LABEL, Syncs, delta};
use crate::patience::chain;
use crate::presence::{Identity, Presence};
use crate::trace::of_sync;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::queue::{Counts, DeadLetter, Receipt, Received, WORK_ITEMS};
use tidemill_feeds::{Ask, Circuit, ErrorClass, FeedError};
use tidemill_store::{Class, Error, Queue as _, Receive};
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;
use tracing::Instrument as _;

/// How a worker of pages behaves.
#[derive(Debug, Clone)]
pub struct PagerOptions {
    /// Pages at a time, at the least.
    pub pages_min: usize,
    /// Pages at a time, at the most.
    pub pages_max: usize,
    /// Whether it ends when there is nothing to do.
    pub once: bool,
}

impl Default for PagerOptions {
    fn default() -> Self {
        Self { pages_min: 1, pages_max: 8, once: false }
    }
}

/// Whether a worker is to begin no other page.
struct Leave {
    /// Its process ends.
    stop: watch::Receiver<bool>,
    /// It drains.
    drain: watch::Receiver<bool>,
}

impl Leave {
    fn is_wanted(&self) -> bool {
        *self.stop.borrow() || *self.drain.borrow()
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

/// The shortest and the longest pause of a worker that found nothing.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// The wait before a page that failed for a reason of its own is tried again.
const FAULT_DELAY: Duration = Duration::from_secs(2);
/// Time between two renewals of a lock. The shortest lock is a minute.
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// How much longer than its grace a worker that is to end waits for the database.
const ENDING_MARGIN: Duration = Duration::from_secs(5);
/// Time between two looks at who else is there.
const SHARE_EVERY: Duration = Duration::from_secs(5);

impl Syncs {
    /// Carries out pages until told to stop; how many. The page in hand is finished first.
    pub async fn work_pages(
        &self,
        identity: Identity,
        options: &PagerOptions,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64, Error> {
        let identity = Identity { labels: vec![PAGES_LABEL.to_owned()], ..identity };
        let presence =
            Presence::begin(&self.engine, identity, self.settings.process, self.settings.beat).await?;
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
                // Nothing is in hand: what is locked for this worker is what it was never told of.
                let released = self.engine.store().release_worker(presence.worker(), self.now()).await;
                total.database_unreachable = released.is_err();
            }
            // Pages that wait for a slow feed may take minutes; the lock of an unknown message ends by itself before.
            let is_sure = !total.database_unreachable || (!tasks.is_empty() && tasks.quick() == 0);
            let wanted = if is_sure && !presence.is_draining() { width.wanted() } else { 0 };
            let room = tasks.room(wanted, width.max());
            let asked = room.pages;
            let received = match self.receive_pages(&presence, room).await {
                Ok(received) => received,
                // Whoever asked for one look hears that there was none.
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
                let wait = Arc::<FeedWait>::default();
                let (worker, name) = (presence.worker(), presence.name().to_owned());
                let hand = Hand { worker, name, wait: wait.clone() };
                let (syncs, leave) = (self.clone(), Leave { stop: stop.clone(), drain: presence.draining() });
                tasks.start(message.group.clone(), wait, async move {
                    Box::pin(syncs.carry_pages(message, hand, leave)).await
                });
            }
            width.learn(asked, found, tasks.quick(), self.engine.store().waits());
            if found > 0 {
                pause = PAUSE_MIN;
                continue;
            }
            if tasks.is_empty() && (options.once || presence.is_drained().await) {
                break;
            }
            tokio::select! {
                _ = stop.changed() => {}
                () = self.bell.notified() => pause = PAUSE_MIN,
                Some(ended) = tasks.next() => { total.add(ended); pause = PAUSE_MIN; }
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
        self.leave_pages(&presence, &mut tasks, &mut total).await;
        presence.end().await;
        Ok(total.pages)
    }

    /// Waits for the pages in hand. A page that the feed leaves unanswered is given back after the grace; the margin is
    /// for the database.
    async fn leave_pages(
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
            tracing::warn!("the pages in hand could not be given back in time");
            tasks.abort().await;
            if let Err(error) = self.engine.store().release_worker(presence.worker(), self.now()).await {
                tracing::warn!("could not let go of pages: {}", chain(&error));
            }
        }
    }

    /// Receives messages of feeds that answer, are not paused, and have room. Those of the others wait, and no delivery
    /// is counted.
    async fn receive_pages(&self, presence: &Presence, room: Room) -> Result<Vec<Received>, Error> {
        if room.pages == 0 {
            return Ok(Vec::new());
        }
        let mut ask = Receive::new(WORK_ITEMS, presence.worker(), room.pages);
        ask.except = self.feeds_at_rest().await?;
        ask.except.extend(room.full_feeds);
        let delivery = self.engine.store().receive(ask, self.now()).await?;
        for dead in &delivery.dead {
            metrics::counter!("tidemill_dead_letters_total", "queue" => WORK_ITEMS).increment(1);
            self.bury_page(dead, presence).await?;
        }
        Ok(delivery.received)
    }

    /// A page that was delivered as often as it may be, or expired: its partition fails.
    async fn bury_page(&self, dead: &DeadLetter, presence: &Presence) -> Result<(), Error> {
        let Ok(tidemill_core::message::Message::WorkItem(item)) = serde_json::from_value(dead.body.clone())
        else {
            return Ok(());
        };
        let (worker, name) = (presence.worker(), presence.name().to_owned());
        let hand = Hand { worker, name, wait: Arc::default() };
        let last = dead.last_error.as_deref().unwrap_or("its workers were lost");
        let reason = format!("the page at offset {} was given up ({}): {last}", item.offset, dead.reason);
        self.fail_partition(&item, None, &reason, &hand).await?;
        self.evaluate(item.run_id).await?;
        Ok(())
    }

    /// Carries out a page, and those that follow it for as long as this worker may keep them.
    async fn carry_pages(&self, message: Received, hand: Hand, leave: Leave) -> MessageOutcome {
        let mut receipt = message.receipt.clone();
        let began = Instant::now();
        let mut pages = 0;
        let sure = |pages| MessageOutcome { pages, database_unreachable: false };
        let mut reading = match self.open_page(&message, &hand).await {
            Ok(Some(reading)) => reading,
            Ok(None) => {
                self.settle(&receipt, "skip a page").await;
                return sure(0);
            }
            Err(error) => {
                self.give_back(&message.receipt, &error).await;
                let database_unreachable = error.class() == Class::Transient;
                return MessageOutcome { pages: 0, database_unreachable };
            }
        };
        loop {
            let keeps = pages + 1 < u64::from(self.settings.hold_pages)
                && began.elapsed() < self.settings.hold_time
                && !leave.is_wanted();
            let keep = if keeps { Keep::Next } else { Keep::Release };
            let (item, at) = (reading.item.clone(), receipt.clone());
            let span = of_sync!("page", item.trace_id, item.run_id, partition = item.partition_id);
            let carried = self.carry_one(reading, &receipt, keep, &hand);
            let held = Instant::now();
            let mut carried = Box::pin(self.while_renewing(&at, carried).instrument(span));
            let outcome = tokio::select! {
                outcome = &mut carried => outcome,
                () = grace_over(leave.stop.clone(), self.settings.grace) => Err(Asked::Stopped),
            };
            drop(carried);
            metrics::histogram!("tidemill_message_hold_seconds", "queue" => WORK_ITEMS)
                .record(held.elapsed());
            match outcome {
                Ok(Paged::Stored(Some(next), _)) if leave.is_wanted() => {
                    let database_unreachable = !self.hand_over(&next).await;
                    return MessageOutcome { pages: pages + 1, database_unreachable };
                }
                Ok(Paged::Stored(Some(next), following)) => {
                    pages += 1;
                    (receipt, reading) = (next, *following);
                }
                Ok(Paged::Stored(None, _)) => return sure(pages + 1),
                Ok(Paged::Skipped) => {
                    Skip::Overtaken.note(&item);
                    self.settle(&at, "skip a page").await;
                    return sure(pages);
                }
                Ok(Paged::Completed(sync) | Paged::Failed(sync)) => {
                    if let Err(error) = self.evaluate(sync).await {
                        // The message on work-done leads to the same.
                        tracing::warn!(sync.id = %sync, "could not evaluate: {}", chain(&error));
                    }
                    return sure(pages);
                }
                Err(asked) => {
                    let is_cut_off =
                        matches!(&asked, Asked::Store(error) if error.class() == Class::Transient);
                    let is_back = self.page_failed(&item, &at, &hand, asked).await;
                    return MessageOutcome { pages, database_unreachable: is_cut_off || !is_back };
                }
            }
        }
    }

    /// Does something that may take longer than a message is locked.
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

    async fn carry_one(
        &self,
        reading: Reading,
        receipt: &Receipt,
        keep: Keep,
        hand: &Hand,
    ) -> Result<Paged, Asked> {
        let name = reading.item.feed.clone();
        let record = self.feed_record(&name).await?;
        if !self.feeds.is_open(&name) {
            self.share_rates().await;
        }
        let source = self.feeds.open(&record.feed)?;
        let circuit = circuit_of(&record);
        if !matches!(circuit, Circuit::Closed { .. }) {
            self.give_up(&name).await?;
            if let Ask::Wait(_) = self.may_ask(&name).await? {
                let reason = record.circuit_reason.clone().unwrap_or_default();
                return Err(FeedError::Outage { at: name, reason, retry_after: None }.into());
            }
        }
        let paged = self.carry_page(&source, reading, receipt, keep, hand).await?;
        if circuit != circuit.answered() {
            self.answered(&name).await?;
        }
        Ok(paged)
    }

    /// The feed, read at most once a second per process: it is asked for at every page.
    async fn feed_record(&self, name: &str) -> Result<Arc<tidemill_core::records::FeedRecord>, Error> {
        self.feeds.recent(name, || self.engine.store().feed(name.to_owned())).await
    }

    /// What a page's error means for its partition; whether the database took it.
    async fn page_failed(
        &self,
        item: &tidemill_core::message::WorkItem,
        receipt: &Receipt,
        hand: &Hand,
        asked: Asked,
    ) -> bool {
        let told = asked.to_string();
        let result = match asked {
            Asked::Feed(error) if error.class() == ErrorClass::Outage => {
                let noted = self.outage(&item.feed, &error).await;
                self.feeds.forget(&item.feed);
                // As long as the circuit would wait, and no longer.
                let asked = error.retry_after().unwrap_or(Duration::from_millis(200));
                let delay = asked.min(self.settings.circuit.backoff_max);
                let counts = Counts::Forgiven;
                noted.and(self.abandon(receipt, delay, counts, &told).await)
            }
            Asked::Feed(error) if error.class() == ErrorClass::Transient => {
                let asked = error.retry_after().unwrap_or(FAULT_DELAY.min(self.settings.tuning.backoff_max));
                let delay = asked.min(self.settings.circuit.backoff_max);
                self.page_fault(item, receipt, delay, &told, hand).await
            }
            Asked::Feed(_) | Asked::GivenUp { .. } => {
                let failed = self.fail_partition(item, Some(receipt), &told, hand).await;
                match failed {
                    Ok(_) => self.evaluate(item.run_id).await.map(|_| ()),
                    Err(error) => Err(error),
                }
            }
            Asked::Store(error) if error.class() == Class::Transient => {
                self.abandon(receipt, FAULT_DELAY, Counts::Forgiven, &chain(&error)).await
            }
            Asked::Store(error) => self.page_fault(item, receipt, FAULT_DELAY, &chain(&error), hand).await,
            Asked::Down { .. } => self.abandon(receipt, Duration::ZERO, Counts::Forgiven, &told).await,
            // The message goes with the sync, once somebody has ended it.
            Asked::Cancelled => self.abandon(receipt, FAULT_DELAY, Counts::Forgiven, &told).await,
            Asked::Stopped => {
                let left = self.leave_probe(&item.feed).await;
                left.and(self.abandon(receipt, Duration::ZERO, Counts::Forgiven, &told).await)
            }
        };
        if let Err(error) = result {
            // The lock ends by itself, and the page is carried out again.
            tracing::warn!(sync.id = %item.run_id, "could not give a page back: {}", chain(&error));
            return false;
        }
        true
    }

    /// A page that failed for a reason of its own: tried again a few times, and then its partition fails.
    async fn page_fault(
        &self,
        item: &tidemill_core::message::WorkItem,
        receipt: &Receipt,
        delay: Duration,
        reason: &str,
        hand: &Hand,
    ) -> Result<(), Error> {
        tracing::warn!(sync.id = %item.run_id, "{} at {}: {reason}", item.partition_id, item.offset);
        let (sync, partition, told, now) =
            (item.run_id, item.partition_id.clone(), reason.to_owned(), self.now());
        let offset = i32::try_from(item.offset).unwrap_or(i32::MAX);
        let faults = self
            .engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move { tx.fault_partition(sync, &partition, offset, &told, now).await })
            })
            .await?;
        if faults.is_some_and(|faults| faults >= self.settings.page_faults_max) {
            self.fail_partition(item, Some(receipt), reason, hand).await?;
            self.evaluate(item.run_id).await?;
            return Ok(());
        }
        // The partition counts its faults itself: the deliveries of the message are kept for workers that die.
        self.abandon(receipt, delay, Counts::Forgiven, reason).await
    }

    async fn abandon(
        &self,
        receipt: &Receipt,
        delay: Duration,
        counts: Counts,
        reason: &str,
    ) -> Result<(), Error> {
        let reason = Some(reason.to_owned());
        let store = self.engine.store();
        store.abandon(receipt.clone(), delta(delay), counts, reason, self.now()).await?;
        Ok(())
    }

    /// Lets go of a page that was not begun, so that somebody takes it at once; whether the database took it.
    async fn hand_over(&self, receipt: &Receipt) -> bool {
        let (none, store) = (chrono::TimeDelta::zero(), self.engine.store());
        let left = store.abandon(receipt.clone(), none, Counts::Forgiven, None, self.now()).await;
        if let Err(error) = &left {
            tracing::warn!("could not hand a page over: {}", chain(error));
        }
        self.ring();
        left.is_ok()
    }

    async fn give_back(&self, receipt: &Receipt, error: &Error) {
        let counts = if error.class() == Class::Transient { Counts::Forgiven } else { Counts::Counted };
        if let Err(error) = self.abandon(receipt, FAULT_DELAY, counts, &chain(error)).await {
            tracing::warn!("could not give a message back: {}", chain(&error));
        }
    }

    /// Ends a message that has nothing to say.
    async fn settle(&self, receipt: &Receipt, what: &'static str) {
        if let Err(error) = self.engine.store().complete(vec![receipt.clone()], self.now()).await {
            tracing::warn!("could not {what}: {}", chain(&error));
        }
    }
}

/// Waits until the process was told to end, and its grace is over.
async fn grace_over(mut stop: watch::Receiver<bool>, grace: Duration) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        // Nobody is left who could tell.
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(grace).await;
}
