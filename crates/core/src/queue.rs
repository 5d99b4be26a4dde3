//! Message queues: messages are sent, received under a lock and completed once, or become dead letters.
//!
//! Queue, id and generation identify a message. Every delivery increases the epoch of the message, so that a call
//! with an older receipt changes nothing.

mod check;

pub use check::{check_batch, check_messages};

use crate::label::labelled;
use crate::{Json, Timestamp, WorkerId};
use chrono::TimeDelta;

/// Queue of pages to fetch.
pub const WORK_ITEMS: &str = "work-items";
/// Queue of partitions that have ended.
pub const WORK_DONE: &str = "work-done";
/// Queue of syncs to consolidate.
pub const CONSOLIDATE: &str = "consolidate";

/// Upper bound of all durations in queue settings and of message delays: 30 days.
pub const WAIT_SECS_MAX: i32 = 30 * 24 * 3_600;

labelled! {
    /// The state of a message.
    "message state" MessageState {
        Waiting = "waiting",
        /// Its delay has not elapsed.
        Delayed = "delayed",
        InFlight = "in_flight",
        /// Completed; only its id is remembered.
        Done = "done",
        /// A dead letter; not delivered until it is replayed.
        Dead = "dead",
    }
}

labelled! {
    /// The stored part of a message's state. The rest follows from its times and its lock.
    "stored message state" StoredState {
        /// Waiting, delayed or locked by a worker.
        Live = "live",
        Done = "done",
        Dead = "dead",
    }
}

impl StoredState {
    /// Returns the state of a message at `now`. A message whose lock has expired is waiting.
    pub fn state(self, locked_by: Option<WorkerId>, visible_at: Timestamp, now: Timestamp) -> MessageState {
        match self {
            Self::Done => MessageState::Done,
            Self::Dead => MessageState::Dead,
            Self::Live if visible_at <= now => MessageState::Waiting,
            Self::Live if locked_by.is_some() => MessageState::InFlight,
            Self::Live => MessageState::Delayed,
        }
    }
}

labelled! {
    /// The reason for which a message is a dead letter.
    "reason of a dead letter" DeadReason {
        /// It used up its deliveries without being completed.
        Deliveries = "deliveries",
        /// It was not completed before its expiry.
        Expired = "expired",
        /// Its worker reported an error that a retry would hit again.
        Permanent = "permanent",
        /// The work that it belongs to was cancelled.
        Cancelled = "cancelled",
    }
}

/// Returns the reason for which a message cannot be delivered again at `now`, or `None`. The SQL statements apply the
/// same rule.
pub fn dead_reason(
    deliveries: i32,
    deliveries_max: i32,
    expires_at: Timestamp,
    now: Timestamp,
) -> Option<DeadReason> {
    if expires_at <= now {
        Some(DeadReason::Expired)
    } else if deliveries >= deliveries_max {
        Some(DeadReason::Deliveries)
    } else {
        None
    }
}

/// The settings of a queue.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueSettings {
    /// Name of the queue.
    pub queue: String,
    /// Duration of a delivery's lock, unless it is renewed.
    pub lock_secs: i32,
    /// Number of deliveries before a message becomes a dead letter.
    pub deliveries_max: i32,
    /// Duration for which the id of a completed message is remembered; null if it is not.
    pub window_secs: Option<i32>,
    /// Lifetime of a message before it becomes a dead letter.
    pub expiry_secs: i32,
}

impl QueueSettings {
    /// Returns the built-in queues.
    pub fn defaults() -> Vec<Self> {
        let queue = |name: &str, lock_secs, deliveries_max, window_secs| Self {
            queue: name.to_owned(),
            lock_secs,
            deliveries_max,
            window_secs,
            expiry_secs: 24 * 3_600,
        };
        vec![
            queue(CONSOLIDATE, 300, 3, None),
            queue(WORK_DONE, 60, 3, None),
            queue(WORK_ITEMS, 120, 5, Some(600)),
        ]
    }
}

/// A message that is sent to a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    pub queue: String,
    /// Messages with the same id and generation are duplicates.
    pub message_id: String,
    /// Increased to repeat the same work deliberately.
    pub generation: i32,
    /// Group, for example a feed. Deliveries alternate between groups.
    pub group: String,
    pub body: Json,
    pub run_id: Option<String>,
    pub trace_id: Option<String>,
    /// Delay before the first delivery.
    pub delay: TimeDelta,
}

impl NewMessage {
    /// Makes a message of the first generation without a delay.
    pub fn new(queue: &str, message_id: impl Into<String>, group: impl Into<String>, body: Json) -> Self {
        Self {
            queue: queue.to_owned(),
            message_id: message_id.into(),
            generation: 0,
            group: group.into(),
            body,
            run_id: None,
            trace_id: None,
            delay: TimeDelta::zero(),
        }
    }
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// The message is in the queue.
    Sent,
    /// A message with this id and generation exists, or was completed within the window.
    Duplicate,
}

/// Identifies one delivery of a message; a worker presents it to complete, renew or return the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    pub queue: String,
    pub message_id: String,
    pub generation: i32,
    /// Number of the delivery.
    pub epoch: i32,
    pub worker: WorkerId,
}

/// A message that is delivered to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedMessage {
    pub receipt: Receipt,
    pub group: String,
    pub body: Json,
    pub run_id: Option<String>,
    pub trace_id: Option<String>,
    pub enqueued_at: Timestamp,
    /// Time at which it becomes a dead letter.
    pub expires_at: Timestamp,
    pub locked_until: Timestamp,
    /// Number of deliveries, including this one.
    pub deliveries: i32,
    pub deliveries_max: i32,
}

impl ReceivedMessage {
    /// Returns whether this is the last delivery before the message becomes a dead letter.
    pub const fn is_last(&self) -> bool {
        self.deliveries >= self.deliveries_max
    }
}

/// The result of receiving messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delivery {
    /// Messages, oldest first.
    pub received: Vec<ReceivedMessage>,
    /// Messages that became dead letters instead. The receiver must handle the consequences for their work.
    pub dead: Vec<DeadLetter>,
}

/// Whether a returned delivery counts towards the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryCounting {
    /// It counts: the message itself may be the cause.
    Counted,
    /// It does not count: an outage or the end of the worker was the cause.
    Forgiven,
}

/// A message in a listing.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// Queue of the message.
    pub queue: String,
    /// Id of the message.
    pub message_id: String,
    /// Generation; it is increased to repeat the same work deliberately.
    pub generation: i32,
    /// Group, for example a feed. Deliveries alternate between groups.
    pub group: String,
    /// State of the message.
    pub state: MessageState,
    /// Content of the message.
    pub body: Json,
    /// Run that the message belongs to.
    pub run_id: Option<String>,
    /// Trace id of the message.
    pub trace_id: Option<String>,
    pub enqueued_at: Timestamp,
    /// Earliest time of the next delivery: the end of its delay or of its lock.
    pub visible_at: Timestamp,
    /// Time at which it becomes a dead letter.
    pub expires_at: Timestamp,
    /// Worker process that holds it.
    pub locked_by: Option<WorkerId>,
    /// Number of the last delivery.
    pub epoch: i32,
    /// Number of counted deliveries.
    pub deliveries: i32,
    /// Error of the last delivery.
    pub last_error: Option<String>,
}

/// A message that is no longer delivered until it is replayed.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadLetter {
    /// Queue of the message.
    pub queue: String,
    /// Id of the message.
    pub message_id: String,
    /// Generation; it is increased to repeat the same work deliberately.
    pub generation: i32,
    /// Group, for example a feed. Deliveries alternate between groups.
    pub group: String,
    /// Content of the message.
    pub body: Json,
    /// Run that the message belongs to.
    pub run_id: Option<String>,
    /// Trace id of the message.
    pub trace_id: Option<String>,
    pub enqueued_at: Timestamp,
    /// Number of counted deliveries.
    pub deliveries: i32,
    /// Reason for which it is a dead letter.
    pub reason: DeadReason,
    /// Time at which it became a dead letter.
    pub dead_at: Timestamp,
    /// Error of the last delivery.
    pub last_error: Option<String>,
}

impl DeadLetter {
    /// Returns the cursor of the list position after this dead letter.
    pub fn cursor(&self) -> DeadCursor {
        DeadCursor { dead_at: self.dead_at, message_id: self.message_id.clone(), generation: self.generation }
    }
}

/// A cursor in the list of dead letters: the last one that was read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadCursor {
    /// Time at which it became a dead letter.
    pub dead_at: Timestamp,
    /// Id of the message.
    pub message_id: String,
    /// Generation of the message.
    pub generation: i32,
}

/// The dead letters to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    Ids(Vec<String>),
    All,
}

/// Numbers of messages in a queue, in total and by group.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueDepth {
    /// Number of messages that are ready for delivery.
    pub waiting: i64,
    /// Number of delayed messages.
    pub delayed: i64,
    /// Number of messages that workers hold.
    pub in_flight: i64,
    /// Number of dead letters.
    pub dead: i64,
    /// Time at which the oldest waiting message was sent.
    pub oldest_at: Option<Timestamp>,
    pub groups: Vec<GroupDepth>,
}

/// Numbers of messages of one group in a queue.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupDepth {
    /// Name of the group.
    pub group: String,
    /// Number of messages that are ready for delivery.
    pub waiting: i64,
    /// Number of delayed messages.
    pub delayed: i64,
    /// Number of messages that workers hold.
    pub in_flight: i64,
    /// Number of dead letters.
    pub dead: i64,
    /// Time at which the oldest waiting message was sent.
    pub oldest_at: Option<Timestamp>,
}

impl QueueDepth {
    /// Sums up the groups; several parts of one group are merged.
    pub fn of(parts: Vec<GroupDepth>) -> Self {
        let mut depth = Self::default();
        for part in parts {
            depth.waiting += part.waiting;
            depth.delayed += part.delayed;
            depth.in_flight += part.in_flight;
            depth.dead += part.dead;
            depth.oldest_at = earlier(depth.oldest_at, part.oldest_at);
            match depth.groups.iter_mut().find(|group| group.group == part.group) {
                Some(group) => {
                    group.waiting += part.waiting;
                    group.delayed += part.delayed;
                    group.in_flight += part.in_flight;
                    group.dead += part.dead;
                    group.oldest_at = earlier(group.oldest_at, part.oldest_at);
                }
                None => depth.groups.push(part),
            }
        }
        depth
    }

    /// Returns the age of the oldest waiting message at `now`.
    pub fn oldest_age(&self, now: Timestamp) -> Option<TimeDelta> {
        self.oldest_at.map(|at| (now - at).max(TimeDelta::zero()))
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeZone, Utc};

    fn at(secs: i64) -> Timestamp {
        Utc.timestamp_opt(secs, 0).unwrap()
    }

    #[test]
    fn message_dies_at_expiry_or_after_its_last_delivery() {
        assert_eq!(dead_reason(4, 5, at(10), at(9)), None);
        assert_eq!(dead_reason(5, 5, at(10), at(9)), Some(DeadReason::Deliveries));
        assert_eq!(dead_reason(0, 5, at(10), at(10)), Some(DeadReason::Expired));
        assert_eq!(dead_reason(9, 5, at(10), at(10)), Some(DeadReason::Expired));
    }

    #[test]
    fn expired_lock_leaves_the_message_waiting() {
        let worker = Some(WorkerId(uuid::Uuid::nil()));
        assert_eq!(StoredState::Live.state(worker, at(10), at(9)), MessageState::InFlight);
        assert_eq!(StoredState::Live.state(worker, at(10), at(10)), MessageState::Waiting);
        assert_eq!(StoredState::Live.state(None, at(10), at(9)), MessageState::Delayed);
        assert_eq!(StoredState::Dead.state(worker, at(10), at(9)), MessageState::Dead);
        assert_eq!(StoredState::Done.state(worker, at(10), at(9)), MessageState::Done);
    }

    #[test]
    fn queue_depth_is_the_sum_of_its_groups() {
        let part = |group: &str, waiting, dead, oldest| GroupDepth {
            group: group.to_owned(),
            waiting,
            delayed: 1,
            in_flight: 2,
            dead,
            oldest_at: oldest,
        };
        let depth = QueueDepth::of(vec![
            part("a", 3, 0, Some(at(5))),
            part("a", 0, 4, None),
            part("b", 1, 0, Some(at(2))),
        ]);
        assert_eq!((depth.waiting, depth.delayed, depth.in_flight, depth.dead), (4, 3, 6, 4));
        assert_eq!(depth.oldest_age(at(7)), Some(TimeDelta::seconds(5)));
        assert_eq!(depth.groups.len(), 2);
        assert_eq!((depth.groups[0].waiting, depth.groups[0].dead), (3, 4));
    }
}
