//! Encodes messages and receipts for both databases, and decodes rows.

use crate::codec::Columns;
use crate::tx::FromColumns;
use tidemill_core::queue::{
    DeadLetter, GroupDepth, Message, MessageState, NewMessage, QueueSettings, Receipt, ReceivedMessage,
    StoredState,
};
use tidemill_core::{Json, Timestamp, WorkerId};

/// The primary key of a message.
pub(super) type Key = (String, String, i32);

/// A row that a batch statement has changed.
pub(super) struct Touched {
    pub(super) key: Key,
    pub(super) epoch: i32,
    pub(super) visible_at: Timestamp,
}

impl FromColumns for Touched {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            key: (row.text("queue")?, row.text("message_id")?, row.int("generation")?),
            epoch: row.int("epoch")?,
            visible_at: row.time("visible_at")?,
        })
    }
}

/// The result of a receive for one row.
pub(super) enum Taken {
    Received(Box<ReceivedMessage>),
    Dead(Box<DeadLetter>),
}

impl FromColumns for Taken {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        if row.parsed::<StoredState>("state")? == StoredState::Dead {
            return Ok(Self::Dead(Box::new(DeadLetter::read(row)?)));
        }
        let worker = row.worker_or_null("locked_by")?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Self::Received(Box::new(ReceivedMessage {
            receipt: Receipt {
                queue: row.text("queue")?,
                message_id: row.text("message_id")?,
                generation: row.int("generation")?,
                epoch: row.int("epoch")?,
                worker,
            },
            group: row.text("grp")?,
            body: row.json("body")?,
            run_id: row.text_or_null("run_id")?,
            trace_id: row.text_or_null("trace_id")?,
            enqueued_at: row.time("enqueued_at")?,
            expires_at: row.time("expires_at")?,
            locked_until: row.time("visible_at")?,
            deliveries: row.int("deliveries")?,
            deliveries_max: row.int("deliveries_max")?,
        })))
    }
}

impl FromColumns for DeadLetter {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            queue: row.text("queue")?,
            message_id: row.text("message_id")?,
            generation: row.int("generation")?,
            group: row.text("grp")?,
            body: row.json("body")?,
            run_id: row.text_or_null("run_id")?,
            trace_id: row.text_or_null("trace_id")?,
            enqueued_at: row.time("enqueued_at")?,
            deliveries: row.int("deliveries")?,
            reason: row.parsed("dead_reason")?,
            dead_at: row.time("ended_at")?,
            last_error: row.text_or_null("last_error")?,
        })
    }
}

/// A live message as it is stored. Its state depends on the time and is computed by [`Self::at`].
pub(super) struct Live(Message);

impl Live {
    /// Returns the message with its state at `now`.
    pub(super) fn at(self, now: Timestamp) -> Message {
        let state = StoredState::Live.state(self.0.locked_by, self.0.visible_at, now);
        Message { state, ..self.0 }
    }
}

impl FromColumns for Live {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(Message {
            queue: row.text("queue")?,
            message_id: row.text("message_id")?,
            generation: row.int("generation")?,
            group: row.text("grp")?,
            state: MessageState::Waiting,
            body: row.json("body")?,
            run_id: row.text_or_null("run_id")?,
            trace_id: row.text_or_null("trace_id")?,
            enqueued_at: row.time("enqueued_at")?,
            visible_at: row.time("visible_at")?,
            expires_at: row.time("expires_at")?,
            locked_by: row.worker_or_null("locked_by")?,
            epoch: row.int("epoch")?,
            deliveries: row.int("deliveries")?,
            last_error: row.text_or_null("last_error")?,
        }))
    }
}

/// The stored last delivery of a message, which is enough to recognise a repeated report.
pub(super) struct Last {
    pub(super) kept: StoredState,
    pub(super) epoch: i32,
    pub(super) locked_by: Option<WorkerId>,
}

impl FromColumns for Last {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            kept: row.parsed("state")?,
            epoch: row.int("epoch")?,
            locked_by: row.worker_or_null("locked_by")?,
        })
    }
}

impl FromColumns for GroupDepth {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            group: row.text("grp")?,
            waiting: row.long("waiting")?,
            delayed: row.long("delayed")?,
            in_flight: row.long("in_flight")?,
            dead: row.long("dead")?,
            oldest_at: row.time_or_null("oldest_at")?,
        })
    }
}

impl FromColumns for QueueSettings {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            queue: row.text("queue")?,
            lock_secs: row.int("lock_secs")?,
            deliveries_max: row.int("deliveries_max")?,
            window_secs: row.int_or_null("window_secs")?,
            expiry_secs: row.int("expiry_secs")?,
        })
    }
}

/// Encodes messages for SQLite as one JSON text. A body is a string in it, so that its spelling is preserved.
pub(super) fn messages_json(messages: &[&NewMessage]) -> String {
    let rows = messages.iter().map(|message| {
        serde_json::json!([
            message.queue,
            message.message_id,
            message.generation,
            message.group,
            message.body.to_string(),
            message.run_id,
            message.trace_id,
            delay_micros(message),
        ])
    });
    Json::Array(rows.collect()).to_string()
}

/// Encodes receipts for SQLite as one JSON text.
pub(super) fn receipts_json(receipts: &[&Receipt]) -> String {
    let rows = receipts.iter().map(|receipt| {
        let Receipt { queue, message_id, generation, epoch, worker } = receipt;
        serde_json::json!([queue, message_id, generation, epoch, worker])
    });
    Json::Array(rows.collect()).to_string()
}

/// Returns the delay of a message in the precision that both databases store.
pub(super) fn delay_micros(message: &NewMessage) -> i64 {
    message.delay.num_microseconds().unwrap_or(i64::MAX)
}
