//! Operations on messages for operators and maintenance: list, replay, expire and purge.

use super::rows::Live;
use crate::codec::{SqlTextList, SqlTime};
use crate::tx::on;
use crate::{Error, Tx, catalog};
use chrono::TimeDelta;
use tidemill_core::Timestamp;
use tidemill_core::limits::{BATCH_MAX, DEAD_LETTER_DAYS};
use tidemill_core::queue::{
    DeadCursor, DeadLetter, Message, QueueDepth, QueueSettings, Replay, StoredState, check_batch,
};
use tidemill_core::time::later;

/// The numbers of rows that a purge removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PurgeCounts {
    /// Completed messages after their deduplication window.
    pub done: u64,
    /// Dead letters after their retention.
    pub dead: u64,
}

impl Tx<'_> {
    /// Lists the next messages, and those that are locked or delayed.
    pub async fn peek_messages(
        &mut self,
        queue: &str,
        limit: usize,
        now: Option<Timestamp>,
    ) -> Result<Vec<Message>, Error> {
        self.queue_settings(queue).await?;
        let moment = self.database_now(now).await?;
        let rows: Vec<Live> =
            on!(self, catalog::MESSAGE_PEEK, [queue, bounded(limit)], fetch_all, "peek at messages")?
                .readable("messages", "message_id");
        Ok(rows.into_iter().map(|row| row.at(moment)).collect())
    }

    /// Lists the messages that workers hold in all queues, by worker.
    pub async fn held_messages(
        &mut self,
        limit: usize,
        now: Option<Timestamp>,
    ) -> Result<Vec<Message>, Error> {
        let moment = self.database_now(now).await?;
        let rows: Vec<Live> = on!(
            self,
            catalog::MESSAGE_HELD,
            [SqlTime(moment), bounded(limit)],
            fetch_all,
            "look at held messages"
        )?
        .readable("messages", "message_id");
        Ok(rows.into_iter().map(|row| row.at(moment)).collect())
    }

    /// Lists dead letters after a cursor, oldest first.
    pub async fn dead_letters(
        &mut self,
        queue: &str,
        limit: usize,
        after: Option<&DeadCursor>,
    ) -> Result<Vec<DeadLetter>, Error> {
        self.queue_settings(queue).await?;
        let first = DeadCursor { dead_at: Timestamp::UNIX_EPOCH, message_id: String::new(), generation: -1 };
        let after = after.unwrap_or(&first);
        Ok(on!(
            self,
            catalog::MESSAGE_DEAD,
            [queue, SqlTime(after.dead_at), after.message_id.as_str(), after.generation, bounded(limit)],
            fetch_all,
            "list dead letters"
        )?
        .readable("messages", "message_id"))
    }

    /// Sends dead letters again under the next generation and returns their number.
    ///
    /// If that generation already exists, another caller was faster: nothing is sent, and the dead letter is removed.
    pub async fn replay_messages(
        &mut self,
        queue: &str,
        which: &Replay,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let settings = self.queue_settings(queue).await?;
        let moment = self.database_now(now).await?;
        let ids: Vec<Option<&str>> = match which {
            Replay::All => vec![None],
            Replay::Ids(ids) => {
                check_batch("message ids", ids.len())?;
                ids.iter().map(|id| Some(id.as_str())).collect()
            }
        };
        let expires_at = later(moment, TimeDelta::seconds(i64::from(settings.expiry_secs)));
        let mut replayed = 0;
        for id in ids {
            let sent = on!(
                self,
                catalog::MESSAGE_REPLAY_COPY,
                [queue, id, SqlTime(moment), SqlTime(expires_at)],
                execute,
                "replay dead letters"
            )?;
            replayed += sent.count();
            on!(
                self,
                catalog::MESSAGE_REPLAY_DONE,
                [queue, id, SqlTime(moment)],
                execute,
                "replay dead letters"
            )?;
        }
        if replayed == 0 {
            self.skip_audit();
        }
        Ok(replayed)
    }

    /// Counts the messages of a queue by state.
    pub async fn queue_depth(&mut self, queue: &str, now: Option<Timestamp>) -> Result<QueueDepth, Error> {
        self.queue_settings(queue).await?;
        let moment = self.database_now(now).await?;
        let parts = on!(self, catalog::MESSAGE_DEPTH, [queue, SqlTime(moment)], fetch_all, "count messages")?
            .records("count messages")?;
        Ok(QueueDepth::of(parts))
    }

    /// Extends the expiry of the messages of some groups as if they were sent now. Returns the number that was close
    /// to its expiry.
    pub async fn prolong_messages(
        &mut self,
        groups: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let moment = self.database_now(now).await?;
        let groups = SqlTextList(groups);
        let mut prolonged = 0;
        for settings in self.queues().await? {
            let whole = TimeDelta::seconds(i64::from(settings.expiry_secs));
            let (near, later) = (SqlTime(moment + whole / 2), SqlTime(moment + whole));
            let queue = settings.queue.as_str();
            let kept = on!(
                self,
                catalog::MESSAGE_PROLONG,
                [queue, groups.clone(), near, later],
                execute,
                "keep messages"
            )?;
            prolonged += kept.count();
        }
        Ok(prolonged)
    }

    /// Turns up to `limit` messages that expired without a receiver into dead letters.
    pub async fn expire_messages(
        &mut self,
        limit: usize,
        now: Option<Timestamp>,
    ) -> Result<Vec<DeadLetter>, Error> {
        let moment = self.database_now(now).await?;
        Ok(on!(
            self,
            catalog::MESSAGE_EXPIRE,
            [SqlTime(moment), bounded(limit)],
            fetch_all,
            "expire messages"
        )?
        .readable("messages", "message_id"))
    }

    /// Removes completed messages and dead letters after their retention, up to a limit per kind and queue.
    pub async fn purge_messages(
        &mut self,
        limit: usize,
        now: Option<Timestamp>,
    ) -> Result<PurgeCounts, Error> {
        let moment = self.database_now(now).await?;
        let dead_before = later(moment, -TimeDelta::days(i64::from(DEAD_LETTER_DAYS)));
        let mut purged = PurgeCounts::default();
        for settings in self.queues().await? {
            let window = TimeDelta::seconds(i64::from(settings.window_secs.unwrap_or(0)));
            purged.done +=
                self.purge_kept(&settings, StoredState::Done, later(moment, -window), limit).await?;
            purged.dead += self.purge_kept(&settings, StoredState::Dead, dead_before, limit).await?;
        }
        Ok(purged)
    }

    async fn purge_kept(
        &mut self,
        settings: &QueueSettings,
        kept: StoredState,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, Error> {
        let gone = on!(
            self,
            catalog::MESSAGE_PURGE,
            [settings.queue.as_str(), kept.as_str(), SqlTime(before), bounded(limit)],
            execute,
            "purge messages"
        )?;
        Ok(gone.count())
    }

    /// Returns the settings of every queue.
    pub async fn queues(&mut self) -> Result<Vec<QueueSettings>, Error> {
        Ok(on!(self, catalog::QUEUE_LIST, [None::<&str>], fetch_all, "list queues")?
            .readable("queues", "queue"))
    }

    /// Changes the settings of a queue, or creates it.
    pub async fn set_queue(&mut self, settings: &QueueSettings) -> Result<(), Error> {
        settings.check()?;
        on!(
            self,
            catalog::QUEUE_PUT,
            [
                settings.queue.as_str(),
                settings.lock_secs,
                settings.deliveries_max,
                settings.window_secs,
                settings.expiry_secs,
            ],
            execute,
            "change a queue"
        )?;
        Ok(())
    }
}

/// Limits the number of rows that one call may read or remove.
fn bounded(limit: usize) -> i64 {
    i64::try_from(limit.min(BATCH_MAX)).unwrap_or(i64::MAX)
}
