//! The queue: messages that are leased to one worker at a time, in the same database as everything else.
//!
//! Sending and completing are statements of the step that they belong to ([`Tx::send_messages`],
//! [`Tx::complete_messages`] …), so that a page's rows, its next message and the end of its message are one commit.
//! [`Queue`] is what needs no step: what workers and people ask for by itself. Its contract is tested, so that a
//! broker can stand behind it.
//!
//! A broker cannot take part in our transaction. Behind this trait it would be fed by an outbox: `send_messages` in a
//! step writes to a table; after the commit a relay hands each row to the broker under the same id, as often as it
//! takes, and then deletes it. What the broker delivers twice is met as here, by (id, generation) in the step that
//! completes it; the broker's own acknowledgement follows the commit. So a step keeps its guarantees, and what is
//! added is the relay's delay.

mod keep;
mod rows;
mod verbs;

use crate::sqlite::Boxed;
use crate::{Error, Store};
use chrono::TimeDelta;
use tidemill_core::queue::{
    DeadCursor, DeadLetter, DeadReason, Delivery, DeliveryCounting, Message, NewMessage, QueueDepth,
    QueueSettings, Receipt, ReceivedMessage, Replay, SendOutcome,
};
use tidemill_core::run::ChangeOutcome;
use tidemill_core::{Timestamp, WorkerId};

pub use keep::Purged;

/// What a queue answers, later.
pub type Answer<'a, T> = Boxed<'a, Result<T, Error>>;

/// What a worker asks a queue for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receive {
    /// The queue.
    pub queue: String,
    /// The worker process that will hold the messages.
    pub worker: WorkerId,
    /// How many it wants.
    pub max: usize,
    /// Groups that it wants nothing of: their messages wait, and no delivery is counted.
    pub except: Vec<String>,
}

impl Receive {
    /// Messages of every group.
    pub fn new(queue: &str, worker: WorkerId, max: usize) -> Self {
        Self { queue: queue.to_owned(), worker, max, except: Vec::new() }
    }
}

/// A queue with leases, whatever stands behind it. The time is the database's own where `now` is `None`.
pub trait Queue: Send + Sync {
    /// Sends messages; what became of each. Asked again, they are duplicates.
    fn send(&self, messages: Vec<NewMessage>, now: Option<Timestamp>) -> Answer<'_, Vec<SendOutcome>>;
    /// Sends a message that `worker` holds from the start. `None`: it is a duplicate.
    fn send_locked(
        &self,
        message: NewMessage,
        worker: WorkerId,
        now: Option<Timestamp>,
    ) -> Answer<'_, Option<ReceivedMessage>>;
    /// Receives messages, and locks them. Groups take turns, and within a group the oldest comes first. Where nothing
    /// but dead letters comes back, there may be more: ask again.
    fn receive(&self, ask: Receive, now: Option<Timestamp>) -> Answer<'_, Delivery>;
    /// Ends messages that were carried out. A lock that has expired but was not taken is still valid.
    fn complete(&self, receipts: Vec<Receipt>, now: Option<Timestamp>) -> Answer<'_, Vec<ChangeOutcome>>;
    /// Gives a message back: it can be received again after the delay.
    fn abandon(
        &self,
        receipt: Receipt,
        delay: TimeDelta,
        counts: DeliveryCounting,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> Answer<'_, ChangeOutcome>;
    /// Locks messages anew; until when each is locked, or `None` where the worker no longer holds it.
    fn renew(&self, receipts: Vec<Receipt>, now: Option<Timestamp>) -> Answer<'_, Vec<Option<Timestamp>>>;
    /// Makes a message a dead letter at once.
    fn kill(
        &self,
        receipt: Receipt,
        reason: DeadReason,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> Answer<'_, ChangeOutcome>;
    /// Ends all locks of a worker process that is gone; how many.
    fn release_worker(&self, worker: WorkerId, now: Option<Timestamp>) -> Answer<'_, u64>;
    /// Ends all locks of worker processes whose end is on record; how many.
    fn release_dead(&self, now: Option<Timestamp>) -> Answer<'_, u64>;
    /// The next messages, and those that are locked or delayed, without receiving them.
    fn peek(&self, queue: String, limit: usize, now: Option<Timestamp>) -> Answer<'_, Vec<Message>>;
    /// The messages that workers hold, of every queue, by their workers.
    fn held(&self, limit: usize, now: Option<Timestamp>) -> Answer<'_, Vec<Message>>;
    /// Dead letters, the oldest first, from after a place on.
    fn dead(&self, queue: String, limit: usize, after: Option<DeadCursor>) -> Answer<'_, Vec<DeadLetter>>;
    /// Sends dead letters again under the next generation; how many. Asked twice, nothing is sent twice.
    fn replay(&self, queue: String, which: Replay, now: Option<Timestamp>) -> Answer<'_, u64>;
    /// What is in a queue.
    fn depth(&self, queue: String, now: Option<Timestamp>) -> Answer<'_, QueueDepth>;
    /// Keeps the messages of some groups for as long as if they were sent now; how many were near their end.
    fn prolong(&self, groups: Vec<String>, now: Option<Timestamp>) -> Answer<'_, u64>;
    /// Makes dead letters of what expired while nobody received it, at most as many.
    fn expire(&self, limit: usize, now: Option<Timestamp>) -> Answer<'_, Vec<DeadLetter>>;
    /// Removes what need not be remembered any longer, at most as many rows of each kind and queue.
    fn purge(&self, limit: usize, now: Option<Timestamp>) -> Answer<'_, Purged>;
    /// The settings of every queue.
    fn queues(&self) -> Answer<'_, Vec<QueueSettings>>;
    /// Changes how a queue treats its messages, or makes a queue. Locks and expiries that exist stay as they are.
    fn set_queue(&self, settings: QueueSettings) -> Answer<'_, ()>;
}

/// Runs one verb of the transaction: as one statement where it is one, and otherwise in a transaction.
macro_rules! verb {
    ($store:ident, $run:ident, |$tx:ident| $call:expr) => {
        Box::pin($store.$run(move |mut $tx| -> Boxed<'_, _> { Box::pin(async move { $call.await }) }))
    };
}

impl Queue for Store {
    fn send(&self, messages: Vec<NewMessage>, now: Option<Timestamp>) -> Answer<'_, Vec<SendOutcome>> {
        verb!(self, step, |tx| tx.send_messages(&messages, now))
    }

    fn send_locked(
        &self,
        message: NewMessage,
        worker: WorkerId,
        now: Option<Timestamp>,
    ) -> Answer<'_, Option<ReceivedMessage>> {
        verb!(self, step, |tx| tx.send_locked_message(&message, worker, now))
    }

    fn receive(&self, ask: Receive, now: Option<Timestamp>) -> Answer<'_, Delivery> {
        verb!(self, step, |tx| tx.receive_messages(&ask, now))
    }

    fn complete(&self, receipts: Vec<Receipt>, now: Option<Timestamp>) -> Answer<'_, Vec<ChangeOutcome>> {
        verb!(self, step, |tx| tx.complete_messages(&receipts, now))
    }

    fn abandon(
        &self,
        receipt: Receipt,
        delay: TimeDelta,
        counts: DeliveryCounting,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> Answer<'_, ChangeOutcome> {
        verb!(self, write, |tx| tx.abandon_message(&receipt, delay, counts, error.as_deref(), now))
    }

    fn renew(&self, receipts: Vec<Receipt>, now: Option<Timestamp>) -> Answer<'_, Vec<Option<Timestamp>>> {
        verb!(self, step, |tx| tx.renew_messages(&receipts, now))
    }

    fn kill(
        &self,
        receipt: Receipt,
        reason: DeadReason,
        error: Option<String>,
        now: Option<Timestamp>,
    ) -> Answer<'_, ChangeOutcome> {
        verb!(self, write, |tx| tx.kill_message(&receipt, reason, error.as_deref(), now))
    }

    fn release_worker(&self, worker: WorkerId, now: Option<Timestamp>) -> Answer<'_, u64> {
        verb!(self, write, |tx| tx.release_messages(Some(worker), now))
    }

    fn release_dead(&self, now: Option<Timestamp>) -> Answer<'_, u64> {
        verb!(self, write, |tx| tx.release_messages(None, now))
    }

    fn peek(&self, queue: String, limit: usize, now: Option<Timestamp>) -> Answer<'_, Vec<Message>> {
        verb!(self, read, |tx| tx.peek_messages(&queue, limit, now))
    }

    fn held(&self, limit: usize, now: Option<Timestamp>) -> Answer<'_, Vec<Message>> {
        verb!(self, read, |tx| tx.held_messages(limit, now))
    }

    fn dead(&self, queue: String, limit: usize, after: Option<DeadCursor>) -> Answer<'_, Vec<DeadLetter>> {
        verb!(self, read, |tx| tx.dead_letters(&queue, limit, after.as_ref()))
    }

    fn replay(&self, queue: String, which: Replay, now: Option<Timestamp>) -> Answer<'_, u64> {
        verb!(self, write, |tx| tx.replay_messages(&queue, &which, now))
    }

    fn depth(&self, queue: String, now: Option<Timestamp>) -> Answer<'_, QueueDepth> {
        verb!(self, read, |tx| tx.queue_depth(&queue, now))
    }

    fn prolong(&self, groups: Vec<String>, now: Option<Timestamp>) -> Answer<'_, u64> {
        verb!(self, write, |tx| tx.prolong_messages(groups, now))
    }

    fn expire(&self, limit: usize, now: Option<Timestamp>) -> Answer<'_, Vec<DeadLetter>> {
        verb!(self, write, |tx| tx.expire_messages(limit, now))
    }

    fn purge(&self, limit: usize, now: Option<Timestamp>) -> Answer<'_, Purged> {
        verb!(self, write, |tx| tx.purge_messages(limit, now))
    }

    fn queues(&self) -> Answer<'_, Vec<QueueSettings>> {
        verb!(self, read, |tx| tx.queues())
    }

    fn set_queue(&self, settings: QueueSettings) -> Answer<'_, ()> {
        verb!(self, write, |tx| tx.set_queue(&settings))
    }
}
