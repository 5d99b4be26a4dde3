//! Messages: what is sent, received under a lock, completed once, and kept when nobody could carry it out.
//!
//! A message is known by its queue, its id and its generation. A lock is fenced by an epoch that every delivery
//! raises: a receipt that is not the latest one changes nothing.

mod check;

pub use check::{check_batch, check_messages};

use crate::label::labelled;
use crate::{Json, Timestamp, WorkerId};
use chrono::TimeDelta;

/// The queue of pages to fetch.
pub const WORK_ITEMS: &str = "work-items";
/// The queue of partitions that have ended.
pub const WORK_DONE: &str = "work-done";
/// The queue of syncs to consolidate.
pub const CONSOLIDATE: &str = "consolidate";

/// Longest time that a setting of a queue, or the delay of a message, may name: thirty days.
pub const WAIT_SECS_MAX: i32 = 30 * 24 * 3_600;

labelled! {
    /// Where a message is.
    "message state" MessageState {
        /// The next worker that asks may get it.
        Waiting = "waiting",
        /// Its time has not come.
        Delayed = "delayed",
        /// A worker holds it.
        InFlight = "in_flight",
        /// It was completed; only its id is remembered.
        Done = "done",
        /// Nobody gets it any more, until it is replayed.
        Dead = "dead",
    }
}

labelled! {
    /// What is written in a message's row: whether it lives. The rest follows from its times and its lock.
    "kept state" Kept {
        /// It waits, or a worker holds it.
        Live = "live",
        /// It was completed.
        Done = "done",
        /// It is a dead letter.
        Dead = "dead",
    }
}

impl Kept {
    /// Where a message is at `now`. A lock that has ended leaves the message waiting, whoever held it.
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
    /// Why a message is a dead letter.
    "reason of a dead letter" DeadReason {
        /// It was delivered as often as its queue allows, and never completed.
        Deliveries = "deliveries",
        /// Nobody completed it before its time was over.
        Expired = "expired",
        /// Its worker found an error that another try would meet again.
        Permanent = "permanent",
        /// Somebody stopped the work that it belongs to.
        Cancelled = "cancelled",
    }
}

/// Whether a message may be delivered once more at `now`, or why it ends. The statements decide the same.
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

/// How a queue treats its messages.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueSettings {
    /// Its name.
    pub queue: String,
    /// How long a delivery is locked, unless it is renewed.
    pub lock_secs: i32,
    /// How often a message is delivered before it becomes a dead letter.
    pub deliveries_max: i32,
    /// How long the id of a completed message is remembered. `None`: it is not.
    pub window_secs: Option<i32>,
    /// How long a message waits in all before it becomes a dead letter.
    pub expiry_secs: i32,
}

impl QueueSettings {
    /// The queues that exist from the start.
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

/// A message to send.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// The queue.
    pub queue: String,
    /// Its id. The same id and generation are the same message.
    pub message_id: String,
    /// Raised by whoever means to do the same work again.
    pub generation: i32,
    /// Whose it is, for example a feed. Groups take turns.
    pub group: String,
    /// What it says: a JSON object.
    pub body: Json,
    /// The run that it belongs to.
    pub run_id: Option<String>,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// How long it is not to be received.
    pub delay: TimeDelta,
}

impl NewMessage {
    /// A message of the first generation, to be received at once.
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

/// What became of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is in the queue.
    Sent,
    /// A message of this id and generation is there, or was completed within the window.
    Duplicate,
}

/// One delivery of one message: what a worker shows to change it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The queue.
    pub queue: String,
    /// The message.
    pub message_id: String,
    /// Its generation.
    pub generation: i32,
    /// Which delivery.
    pub epoch: i32,
    /// To which worker process.
    pub worker: WorkerId,
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// What to show for it.
    pub receipt: Receipt,
    /// Whose it is.
    pub group: String,
    /// What it says.
    pub body: Json,
    /// The run that it belongs to.
    pub run_id: Option<String>,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// When it was sent.
    pub enqueued_at: Timestamp,
    /// When it becomes a dead letter.
    pub expires_at: Timestamp,
    /// Until when nobody else gets it.
    pub locked_until: Timestamp,
    /// How often it was delivered, this time included.
    pub deliveries: i32,
    /// How often it may be.
    pub deliveries_max: i32,
}

impl Received {
    /// Whether it becomes a dead letter unless this delivery completes it.
    pub const fn is_last(&self) -> bool {
        self.deliveries >= self.deliveries_max
    }
}

/// What a receive gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delivery {
    /// The messages, the oldest first.
    pub received: Vec<Received>,
    /// Those that became dead letters instead: whoever received them decides what that means for their work.
    pub dead: Vec<DeadLetter>,
}

/// Whether a delivery that was given back counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// It does: the message itself may be at fault.
    Counted,
    /// It does not: an outage, or the end of the worker, is not the message's fault.
    Forgiven,
}

/// A message as a person sees it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// The queue.
    pub queue: String,
    /// Its id.
    pub message_id: String,
    /// Its generation.
    pub generation: i32,
    /// Whose it is.
    pub group: String,
    /// Where it is.
    pub state: MessageState,
    /// What it says.
    pub body: Json,
    /// The run that it belongs to.
    pub run_id: Option<String>,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// When it was sent.
    pub enqueued_at: Timestamp,
    /// When it may be received: after its delay, or when its lock ends.
    pub visible_at: Timestamp,
    /// When it becomes a dead letter.
    pub expires_at: Timestamp,
    /// The worker process that holds it.
    pub locked_by: Option<WorkerId>,
    /// Which delivery was the last.
    pub epoch: i32,
    /// How often it was delivered.
    pub deliveries: i32,
    /// What went wrong the last time.
    pub last_error: Option<String>,
}

/// A message that nobody gets any more, until it is replayed.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadLetter {
    /// The queue.
    pub queue: String,
    /// Its id.
    pub message_id: String,
    /// Its generation.
    pub generation: i32,
    /// Whose it is.
    pub group: String,
    /// What it says.
    pub body: Json,
    /// The run that it belongs to.
    pub run_id: Option<String>,
    /// The trace that it belongs to.
    pub trace_id: Option<String>,
    /// When it was sent.
    pub enqueued_at: Timestamp,
    /// How often it was delivered.
    pub deliveries: i32,
    /// Why it is a dead letter.
    pub reason: DeadReason,
    /// Since when.
    pub dead_at: Timestamp,
    /// What went wrong the last time.
    pub last_error: Option<String>,
}

impl DeadLetter {
    /// Where a list of dead letters goes on after this one.
    pub fn cursor(&self) -> DeadCursor {
        DeadCursor { dead_at: self.dead_at, message_id: self.message_id.clone(), generation: self.generation }
    }
}

/// A place in the list of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeadCursor {
    /// When the last one that was seen became a dead letter.
    pub dead_at: Timestamp,
    /// Its id.
    pub message_id: String,
    /// Its generation.
    pub generation: i32,
}

/// Which dead letters to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// Those of these ids.
    Ids(Vec<String>),
    /// All of the queue.
    All,
}

/// What is in a queue, in all and by group.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueDepth {
    /// Messages that the next worker may get.
    pub waiting: i64,
    /// Messages whose time has not come.
    pub delayed: i64,
    /// Messages that a worker holds.
    pub in_flight: i64,
    /// Dead letters.
    pub dead: i64,
    /// When the oldest of those that wait was sent.
    pub oldest_at: Option<Timestamp>,
    /// The same by group.
    pub groups: Vec<GroupDepth>,
}

/// What a group has in a queue.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GroupDepth {
    /// The group.
    pub group: String,
    /// Messages that the next worker may get.
    pub waiting: i64,
    /// Messages whose time has not come.
    pub delayed: i64,
    /// Messages that a worker holds.
    pub in_flight: i64,
    /// Dead letters.
    pub dead: i64,
    /// When the oldest of those that wait was sent.
    pub oldest_at: Option<Timestamp>,
}

impl QueueDepth {
    /// Adds the groups up. Parts of one group are joined.
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

    /// How long the oldest message has waited at `now`.
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
    fn a_message_ends_when_its_time_is_over_or_its_deliveries_are_used_up() {
        assert_eq!(dead_reason(4, 5, at(10), at(9)), None);
        assert_eq!(dead_reason(5, 5, at(10), at(9)), Some(DeadReason::Deliveries));
        assert_eq!(dead_reason(0, 5, at(10), at(10)), Some(DeadReason::Expired));
        assert_eq!(dead_reason(9, 5, at(10), at(10)), Some(DeadReason::Expired));
    }

    #[test]
    fn a_lock_that_has_ended_leaves_the_message_waiting() {
        let worker = Some(WorkerId(uuid::Uuid::nil()));
        assert_eq!(Kept::Live.state(worker, at(10), at(9)), MessageState::InFlight);
        assert_eq!(Kept::Live.state(worker, at(10), at(10)), MessageState::Waiting);
        assert_eq!(Kept::Live.state(None, at(10), at(9)), MessageState::Delayed);
        assert_eq!(Kept::Dead.state(worker, at(10), at(9)), MessageState::Dead);
        assert_eq!(Kept::Done.state(worker, at(10), at(9)), MessageState::Done);
    }

    #[test]
    fn the_depth_of_a_queue_is_the_sum_of_its_groups() {
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
