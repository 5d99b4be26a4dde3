//! The queue: messages that are leased to one worker at a time, in the same database as all other data.
//!
//! Sending and completing are statements of a larger transaction ([`Tx::send_messages`], [`Tx::complete_messages`] …).
//! So a page's rows, its next message and the end of its own message are one commit. [`Queue`] holds the operations
//! that need no larger transaction. Conformance tests define its contract, so that a broker could implement it.
//!
//! A broker cannot take part in our transaction. An outbox would feed it: `send_messages` writes to a table, and after
//! the commit a relay passes each row to the broker under the same id, with retries, and then deletes it. The
//! transaction that completes a message detects duplicates by (id, generation). The broker's acknowledgement follows
//! the commit. All guarantees stay; the relay adds a delay.

mod delivery;
mod maintenance;
mod rows;

use crate::sqlite::BoxFuture;
use crate::{Error, Store};
use chrono::TimeDelta;
use tidemill_core::queue::{
    DeadCursor, DeadLetter, DeadReason, Delivery, DeliveryCounting, Message, NewMessage, QueueDepth,
    QueueSettings, Receipt, ReceivedMessage, Replay, SendOutcome,
};
use tidemill_core::run::ChangeOutcome;
use tidemill_core::{Timestamp, WorkerId};

pub use maintenance::PurgeCounts;

/// The future of a queue operation.
pub type QueueFuture<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A request of a worker for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveRequest {
    pub queue: String,
    /// The worker process that will hold the messages.
    pub worker: WorkerId,
    /// Maximum number of messages.
    pub max: usize,
    /// Groups to skip: their messages wait, and no delivery is counted.
    pub except: Vec<String>,
}

impl ReceiveRequest {
    /// Requests messages of every group.
    pub fn new(queue: &str, worker: WorkerId, max: usize) -> Self {
        Self { queue: queue.to_owned(), worker, max, except: Vec::new() }
    }
}

/// A queue with leases. If `now` is `None`, the clock of the database decides.
pub trait Queue: Send + Sync {
    /// Sends messages and returns the outcome of each. Repeated messages are duplicates.
    fn send(&self, messages: Vec<NewMessage>, now: Option<Timestamp>) -> QueueFuture<'_, Vec<SendOutcome>>;
    /// Sends a message that `worker` holds from the start. Returns `None` for a duplicate.
    fn send_locked(
        &self,
        message: NewMessage,
        worker: WorkerId,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, Option<ReceivedMessage>>;
    /// Receives and locks messages. Groups take turns, and within a group the oldest message comes first. If the
    /// result has only dead letters, there may be more messages: call again.
    fn receive(&self, ask: ReceiveRequest, now: Option<Timestamp>) -> QueueFuture<'_, Delivery>;
    /// Completes processed messages. A lock that has expired but was not taken is still valid.
    fn complete(&self, receipts: Vec<Receipt>, now: Option<Timestamp>)
    -> QueueFuture<'_, Vec<ChangeOutcome>>;
    /// Returns a message to the queue: it can be received again after the delay.
    fn abandon(
        &self,
        receipt: Receipt,
        delay: TimeDelta,
        counts: DeliveryCounting,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, ChangeOutcome>;
    /// Renews locks and returns their new end, or `None` if the worker no longer holds the message.
    fn renew(
        &self,
        receipts: Vec<Receipt>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, Vec<Option<Timestamp>>>;
    /// Turns a message into a dead letter at once.
    fn kill(
        &self,
        receipt: Receipt,
        reason: DeadReason,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, ChangeOutcome>;
    /// Releases all locks of a dead worker process and returns their number.
    fn release_worker(&self, worker: WorkerId, now: Option<Timestamp>) -> QueueFuture<'_, u64>;
    /// Releases all locks of ended worker processes and returns their number.
    fn release_dead(&self, now: Option<Timestamp>) -> QueueFuture<'_, u64>;
    /// Lists the next messages, and those that are locked or delayed, without receiving them.
    fn peek(&self, queue: String, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, Vec<Message>>;
    /// Lists the messages that workers hold in all queues, by worker.
    fn held(&self, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, Vec<Message>>;
    /// Lists dead letters after a cursor, oldest first.
    fn dead(
        &self,
        queue: String,
        limit: usize,
        after: Option<DeadCursor>,
    ) -> QueueFuture<'_, Vec<DeadLetter>>;
    /// Sends dead letters again under the next generation and returns their number. Repeated calls send nothing twice.
    fn replay(&self, queue: String, which: Replay, now: Option<Timestamp>) -> QueueFuture<'_, u64>;
    /// Counts the messages of a queue by state.
    fn depth(&self, queue: String, now: Option<Timestamp>) -> QueueFuture<'_, QueueDepth>;
    /// Extends the expiry of the messages of some groups as if they were sent now. Returns the number that was close
    /// to its expiry.
    fn prolong(&self, groups: Vec<String>, now: Option<Timestamp>) -> QueueFuture<'_, u64>;
    /// Turns up to `limit` messages that expired without a receiver into dead letters.
    fn expire(&self, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, Vec<DeadLetter>>;
    /// Removes completed messages and dead letters after their retention, up to a limit per kind and queue.
    fn purge(&self, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, PurgeCounts>;
    /// Returns the settings of every queue.
    fn queues(&self) -> QueueFuture<'_, Vec<QueueSettings>>;
    /// Changes the settings of a queue, or creates it. Existing locks and expiries stay.
    fn set_queue(&self, settings: QueueSettings) -> QueueFuture<'_, ()>;
}

/// Runs an operation of [`Tx`]: as a single statement if possible, otherwise in a transaction.
macro_rules! verb {
    ($store:ident, $run:ident, |$tx:ident| $call:expr) => {
        Box::pin($store.$run(move |mut $tx| -> BoxFuture<'_, _> { Box::pin(async move { $call.await }) }))
    };
}

impl Queue for Store {
    fn send(&self, messages: Vec<NewMessage>, now: Option<Timestamp>) -> QueueFuture<'_, Vec<SendOutcome>> {
        verb!(self, step, |tx| tx.send_messages(&messages, now))
    }

    fn send_locked(
        &self,
        message: NewMessage,
        worker: WorkerId,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, Option<ReceivedMessage>> {
        verb!(self, step, |tx| tx.send_locked_message(&message, worker, now))
    }

    fn receive(&self, ask: ReceiveRequest, now: Option<Timestamp>) -> QueueFuture<'_, Delivery> {
        verb!(self, step, |tx| tx.receive_messages(&ask, now))
    }

    fn complete(
        &self,
        receipts: Vec<Receipt>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, Vec<ChangeOutcome>> {
        verb!(self, step, |tx| tx.complete_messages(&receipts, now))
    }

    fn abandon(
        &self,
        receipt: Receipt,
        delay: TimeDelta,
        counts: DeliveryCounting,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, ChangeOutcome> {
        verb!(self, write, |tx| tx.abandon_message(&receipt, delay, counts, error.as_deref(), now))
    }

    fn renew(
        &self,
        receipts: Vec<Receipt>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, Vec<Option<Timestamp>>> {
        verb!(self, step, |tx| tx.renew_messages(&receipts, now))
    }

    fn kill(
        &self,
        receipt: Receipt,
        reason: DeadReason,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> QueueFuture<'_, ChangeOutcome> {
        verb!(self, write, |tx| tx.kill_message(&receipt, reason, error.as_deref(), now))
    }

    fn release_worker(&self, worker: WorkerId, now: Option<Timestamp>) -> QueueFuture<'_, u64> {
        verb!(self, write, |tx| tx.release_messages(Some(worker), now))
    }

    fn release_dead(&self, now: Option<Timestamp>) -> QueueFuture<'_, u64> {
        verb!(self, write, |tx| tx.release_messages(None, now))
    }

    fn peek(&self, queue: String, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, Vec<Message>> {
        verb!(self, read, |tx| tx.peek_messages(&queue, limit, now))
    }

    fn held(&self, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, Vec<Message>> {
        verb!(self, read, |tx| tx.held_messages(limit, now))
    }

    fn dead(
        &self,
        queue: String,
        limit: usize,
        after: Option<DeadCursor>,
    ) -> QueueFuture<'_, Vec<DeadLetter>> {
        verb!(self, read, |tx| tx.dead_letters(&queue, limit, after.as_ref()))
    }

    fn replay(&self, queue: String, which: Replay, now: Option<Timestamp>) -> QueueFuture<'_, u64> {
        verb!(self, write, |tx| tx.replay_messages(&queue, &which, now))
    }

    fn depth(&self, queue: String, now: Option<Timestamp>) -> QueueFuture<'_, QueueDepth> {
        verb!(self, read, |tx| tx.queue_depth(&queue, now))
    }

    fn prolong(&self, groups: Vec<String>, now: Option<Timestamp>) -> QueueFuture<'_, u64> {
        verb!(self, write, |tx| tx.prolong_messages(groups, now))
    }

    fn expire(&self, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, Vec<DeadLetter>> {
        verb!(self, write, |tx| tx.expire_messages(limit, now))
    }

    fn purge(&self, limit: usize, now: Option<Timestamp>) -> QueueFuture<'_, PurgeCounts> {
        verb!(self, write, |tx| tx.purge_messages(limit, now))
    }

    fn queues(&self) -> QueueFuture<'_, Vec<QueueSettings>> {
        verb!(self, read, |tx| tx.queues())
    }

    fn set_queue(&self, settings: QueueSettings) -> QueueFuture<'_, ()> {
        verb!(self, write, |tx| tx.set_queue(&settings))
    }
}
