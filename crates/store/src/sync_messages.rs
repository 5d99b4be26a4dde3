//! Messages of syncs, as `status` and `why` show them.

use crate::codec::Columns;
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::records::Sync;

/// A live or dead message of a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncMessage {
    pub queue: String,
    pub message_id: String,
    pub generation: i32,
    pub is_dead: bool,
    pub dead_reason: String,
    pub last_error: Option<String>,
    /// Process that received it last and did not release it.
    pub locked_by: Option<tidemill_core::WorkerId>,
    /// When it can be received; the end of the lock while it is locked.
    pub visible_at: Timestamp,
}

impl SyncMessage {
    /// Returns the process that holds the message.
    pub fn holder(&self, now: Timestamp) -> Option<tidemill_core::WorkerId> {
        self.locked_by.filter(|_| self.visible_at > now)
    }

    /// Returns the partition that the message names.
    pub fn partition(&self) -> Option<&str> {
        self.message_id.split(':').nth(1)
    }
}

impl FromColumns for SyncMessage {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            queue: row.text("queue")?,
            message_id: row.text("message_id")?,
            generation: row.int("generation")?,
            is_dead: row.int("dead")? != 0,
            dead_reason: row.text_or_null("dead_reason")?.unwrap_or_default(),
            last_error: row.text_or_null("last_error")?,
            locked_by: row.worker_or_null("locked_by")?,
            visible_at: row.time("visible_at")?,
        })
    }
}

impl Tx<'_> {
    /// Returns the live and dead messages of a sync.
    pub async fn messages_of_sync(&mut self, sync: &Sync) -> Result<Vec<SyncMessage>, Error> {
        let id = sync.run_id.to_string();
        on!(self, catalog::MESSAGE_OF_RUN, [id.as_str(), sync.feed.as_str()], fetch_all, "list messages")?
            .records("list messages")
    }
}

impl Store {
    /// Returns the live and dead messages of a sync.
    pub async fn messages_of_sync(&self, sync: Sync) -> Result<Vec<SyncMessage>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.messages_of_sync(&sync).await })).await
    }
}
