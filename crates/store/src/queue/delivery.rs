//! Operations of workers on messages, as parts of a transaction.

use super::ReceiveRequest;
use super::rows::{Key, Last, Taken, Touched, delay_micros, messages_json, receipts_json};
use crate::catalog::Statement;
use crate::codec::{SqlTextList, SqlTime, SqlWorkerId};
use crate::tx::{Conn, EitherDatabase, on};
use crate::{Error, RefusalCode, Tx, catalog};
use chrono::TimeDelta;
use std::collections::{HashMap, HashSet};
use tidemill_core::limits::{BATCH_MAX, MESSAGE_BYTES_MAX};
use tidemill_core::queue::{
    DeadReason, Delivery, DeliveryCounting, NewMessage, QueueSettings, Receipt, ReceivedMessage, SendOutcome,
    StoredState, WAIT_SECS_MAX, check_batch, check_messages,
};
use tidemill_core::run::ChangeOutcome;
use tidemill_core::time::later;
use tidemill_core::{Timestamp, WorkerId};

/// Number of retries of a receive that found only dead letters.
const ROUNDS_MAX: usize = 16;

impl Tx<'_> {
    /// Sends messages in this transaction and returns the outcome of each, in order.
    pub async fn send_messages(
        &mut self,
        messages: &[NewMessage],
        now: Option<Timestamp>,
    ) -> Result<Vec<SendOutcome>, Error> {
        let mut touched: HashSet<Key> =
            self.insert(messages, None, now).await?.into_iter().map(|row| row.key).collect();
        // Within a batch, the first of two equal messages is sent.
        Ok(messages
            .iter()
            .map(
                |message| {
                    if touched.remove(&key_of(message)) { SendOutcome::Sent } else { SendOutcome::Duplicate }
                },
            )
            .collect())
    }

    /// Sends a message that `worker` holds from the start, as its first delivery. Returns `None` for a duplicate.
    pub async fn send_locked_message(
        &mut self,
        message: &NewMessage,
        worker: WorkerId,
        now: Option<Timestamp>,
    ) -> Result<Option<ReceivedMessage>, Error> {
        let settings = self.queue_settings(&message.queue).await?;
        let rows = self.insert(std::slice::from_ref(message), Some(worker), now).await?;
        Ok(rows.into_iter().next().map(|row| {
            let enqueued_at = later(row.visible_at, -TimeDelta::seconds(i64::from(settings.lock_secs)));
            ReceivedMessage {
                receipt: Receipt {
                    queue: message.queue.clone(),
                    message_id: message.message_id.clone(),
                    generation: message.generation,
                    epoch: row.epoch,
                    worker,
                },
                group: message.group.clone(),
                body: message.body.clone(),
                run_id: message.run_id.clone(),
                trace_id: message.trace_id.clone(),
                enqueued_at,
                expires_at: later(enqueued_at, TimeDelta::seconds(i64::from(settings.expiry_secs))),
                locked_until: row.visible_at,
                deliveries: 1,
                deliveries_max: settings.deliveries_max,
            }
        }))
    }

    /// Sends a message that its worker processes at once, and returns only the receipt.
    pub async fn continue_message(
        &mut self,
        message: &NewMessage,
        worker: WorkerId,
        now: Option<Timestamp>,
    ) -> Result<Option<Receipt>, Error> {
        let rows = self.insert(std::slice::from_ref(message), Some(worker), now).await?;
        Ok(rows.into_iter().next().map(|row| Receipt {
            queue: message.queue.clone(),
            message_id: message.message_id.clone(),
            generation: message.generation,
            epoch: row.epoch,
            worker,
        }))
    }

    /// Inserts the new messages of a batch, sorted, so that concurrent batches take their locks in one order.
    async fn insert(
        &mut self,
        messages: &[NewMessage],
        worker: Option<WorkerId>,
        now: Option<Timestamp>,
    ) -> Result<Vec<Touched>, Error> {
        check_messages(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let mut sorted: Vec<&NewMessage> = messages.iter().collect();
        sorted.sort_by_key(|message| (&message.queue, &message.message_id, message.generation));
        sorted.dedup_by_key(|message| (&message.queue, &message.message_id, message.generation));
        let action = "send messages";
        let (sql, named, moment) = (self.sql(catalog::MESSAGE_SEND), self.context.named, self.moment(now));
        let rows: Vec<Touched> = match &mut self.conn {
            Conn::Postgres(conn) => sqlx::query(sql)
                .bind(now.map(SqlTime))
                .bind(sorted.iter().map(|one| one.queue.as_str()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.message_id.as_str()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.generation).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.group.as_str()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| sqlx::types::Json(&one.body)).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.run_id.as_deref()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.trace_id.as_deref()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| delay_micros(one)).collect::<Vec<_>>())
                .bind(worker.map(SqlWorkerId))
                .persistent(named)
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Postgres),
            Conn::Sqlite(conn) => sqlx::query(sql)
                .bind(SqlTime(moment))
                .bind(messages_json(&sorted))
                .bind(worker.map(SqlWorkerId))
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Sqlite),
        }
        .map_err(|source| Error::database(action, source))?
        .records(action)?;
        if rows.len() < sorted.len() {
            // The rest are duplicates, unless a queue does not exist.
            sorted.dedup_by_key(|message| &message.queue);
            for message in sorted {
                self.queue_settings(&message.queue).await?;
            }
        }
        Ok(rows)
    }

    /// Receives and locks messages in this transaction.
    pub async fn receive_messages(
        &mut self,
        ask: &ReceiveRequest,
        now: Option<Timestamp>,
    ) -> Result<Delivery, Error> {
        let mut delivery = Delivery::default();
        let max = i64::try_from(ask.max.min(BATCH_MAX)).unwrap_or(i64::MAX);
        for _ in 0..ROUNDS_MAX {
            let taken = self.take(ask, max, now).await?;
            let found_only_dead = !taken.is_empty();
            for one in taken {
                match one {
                    Taken::Received(received) => delivery.received.push(*received),
                    Taken::Dead(letter) => delivery.dead.push(*letter),
                }
            }
            if !delivery.received.is_empty() || !found_only_dead {
                break;
            }
        }
        if delivery.received.is_empty() && delivery.dead.is_empty() {
            self.queue_settings(&ask.queue).await?;
        }
        let key =
            |one: &ReceivedMessage| (one.enqueued_at, one.receipt.message_id.clone(), one.receipt.generation);
        delivery.received.sort_by_cached_key(key);
        Ok(delivery)
    }

    async fn take(
        &mut self,
        ask: &ReceiveRequest,
        max: i64,
        now: Option<Timestamp>,
    ) -> Result<Vec<Taken>, Error> {
        let action = "receive messages";
        let (sql, named, moment) = (self.sql(catalog::MESSAGE_RECEIVE), self.context.named, self.moment(now));
        // The order of groups in the same position is random: a stored count of turns would make all receivers wait
        // for each other.
        let turn = i64::from(uuid::Uuid::new_v4().as_fields().1);
        let rows = match &mut self.conn {
            Conn::Postgres(conn) => sqlx::query(sql)
                .bind(&ask.queue)
                .bind(SqlWorkerId(ask.worker))
                .bind(max)
                .bind(now.map(SqlTime))
                .bind(&ask.except)
                .bind(turn)
                .persistent(named)
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Postgres),
            Conn::Sqlite(conn) => sqlx::query(sql)
                .bind(&ask.queue)
                .bind(SqlWorkerId(ask.worker))
                .bind(max)
                .bind(SqlTime(moment))
                .bind(SqlTextList(ask.except.clone()))
                .bind(turn)
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Sqlite),
        }
        .map_err(|source| Error::database(action, source))?;
        // A skipped message stays locked, is delivered again, and becomes a dead letter in the end.
        Ok(rows.readable("messages", "message_id"))
    }

    /// Completes messages in this transaction and returns the outcome of each, in order.
    ///
    /// A repeated report is a duplicate while the message is stored. After that it cannot be recognised and is stale.
    pub async fn complete_messages(
        &mut self,
        receipts: &[Receipt],
        now: Option<Timestamp>,
    ) -> Result<Vec<ChangeOutcome>, Error> {
        let touched = self.touch(catalog::MESSAGE_COMPLETE, receipts, now, "complete messages").await?;
        let mut outcomes = Vec::with_capacity(receipts.len());
        for (receipt, touched) in receipts.iter().zip(touched) {
            outcomes.push(match touched {
                Some(_) => ChangeOutcome::Applied,
                None => self.refusal(receipt, StoredState::Done, Some(receipt.worker)).await?,
            });
        }
        Ok(outcomes)
    }

    /// Renews locks and returns their new end, or `None` if the worker no longer holds the message.
    pub async fn renew_messages(
        &mut self,
        receipts: &[Receipt],
        now: Option<Timestamp>,
    ) -> Result<Vec<Option<Timestamp>>, Error> {
        self.touch(catalog::MESSAGE_RENEW, receipts, now, "renew messages").await
    }

    /// Updates the messages of a batch that their receipts still hold. Returns when each becomes visible.
    async fn touch(
        &mut self,
        statement: Statement,
        receipts: &[Receipt],
        now: Option<Timestamp>,
        action: &'static str,
    ) -> Result<Vec<Option<Timestamp>>, Error> {
        check_batch("receipts", receipts.len())?;
        if receipts.is_empty() {
            return Ok(Vec::new());
        }
        let mut sorted: Vec<&Receipt> = receipts.iter().collect();
        sorted.sort_by_key(|receipt| (&receipt.queue, &receipt.message_id, receipt.generation));
        let (sql, named, moment) = (self.sql(statement), self.context.named, self.moment(now));
        let rows: Vec<Touched> = match &mut self.conn {
            Conn::Postgres(conn) => sqlx::query(sql)
                .bind(now.map(SqlTime))
                .bind(sorted.iter().map(|one| one.queue.as_str()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.message_id.as_str()).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.generation).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.epoch).collect::<Vec<_>>())
                .bind(sorted.iter().map(|one| one.worker.0).collect::<Vec<_>>())
                .persistent(named)
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Postgres),
            Conn::Sqlite(conn) => sqlx::query(sql)
                .bind(SqlTime(moment))
                .bind(receipts_json(&sorted))
                .fetch_all(&mut **conn)
                .await
                .map(EitherDatabase::Sqlite),
        }
        .map_err(|source| Error::database(action, source))?
        .records(action)?;
        let mut touched: HashMap<(Key, i32), Timestamp> =
            rows.into_iter().map(|row| ((row.key, row.epoch), row.visible_at)).collect();
        let key = |one: &Receipt| (one.queue.clone(), one.message_id.clone(), one.generation);
        Ok(receipts.iter().map(|receipt| touched.remove(&(key(receipt), receipt.epoch))).collect())
    }

    /// Returns a message to the queue: it can be received again after the delay.
    pub async fn abandon_message(
        &mut self,
        receipt: &Receipt,
        delay: TimeDelta,
        counts: DeliveryCounting,
        error: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<ChangeOutcome, Error> {
        // A delay may come from outside, for example from a feed, so it is limited like the delay of a sent message.
        let delay = delay.clamp(TimeDelta::zero(), TimeDelta::seconds(i64::from(WAIT_SECS_MAX)));
        let visible_at = later(self.database_now(now).await?, delay);
        let given_back = match counts {
            DeliveryCounting::Counted => 0,
            DeliveryCounting::Forgiven => 1,
        };
        let changed = on!(
            self,
            catalog::MESSAGE_ABANDON,
            [
                receipt.queue.as_str(),
                receipt.message_id.as_str(),
                receipt.generation,
                receipt.epoch,
                SqlWorkerId(receipt.worker),
                SqlTime(visible_at),
                given_back,
                error.map(cut),
            ],
            execute,
            "give a message back"
        )?;
        if changed.count() > 0 {
            return Ok(ChangeOutcome::Applied);
        }
        self.refusal(receipt, StoredState::Live, None).await
    }

    /// Turns a message into a dead letter at once.
    pub async fn kill_message(
        &mut self,
        receipt: &Receipt,
        reason: DeadReason,
        error: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<ChangeOutcome, Error> {
        let moment = self.database_now(now).await?;
        let changed = on!(
            self,
            catalog::MESSAGE_KILL,
            [
                receipt.queue.as_str(),
                receipt.message_id.as_str(),
                receipt.generation,
                receipt.epoch,
                SqlWorkerId(receipt.worker),
                SqlTime(moment),
                reason.as_str(),
                error.map(cut),
            ],
            execute,
            "make a dead letter"
        )?;
        if changed.count() > 0 {
            return Ok(ChangeOutcome::Applied);
        }
        self.refusal(receipt, StoredState::Dead, Some(receipt.worker)).await
    }

    /// Releases the locks of one worker process, or of all ended ones, and returns their number.
    pub async fn release_messages(
        &mut self,
        worker: Option<WorkerId>,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let now = self.time(now);
        let released = on!(
            self,
            catalog::MESSAGE_RELEASE,
            [now, worker.map(SqlWorkerId)],
            execute,
            "release the messages of a worker"
        )?;
        Ok(released.count())
    }

    /// Determines why a receipt changed nothing: it repeats an earlier report, or the worker no longer holds the
    /// message.
    async fn refusal(
        &mut self,
        receipt: &Receipt,
        kept: StoredState,
        locked_by: Option<WorkerId>,
    ) -> Result<ChangeOutcome, Error> {
        let action = "read a message";
        let last: Option<Last> = on!(
            self,
            catalog::MESSAGE_GET,
            [receipt.queue.as_str(), receipt.message_id.as_str(), receipt.generation],
            fetch_optional,
            "read a message"
        )?
        .record(action)?;
        let same = last.is_some_and(|last| {
            last.kept == kept && last.epoch == receipt.epoch && last.locked_by == locked_by
        });
        Ok(if same { ChangeOutcome::Duplicate } else { ChangeOutcome::Stale })
    }

    /// Returns the settings of a queue, or a refusal if it does not exist.
    pub(super) async fn queue_settings(&mut self, queue: &str) -> Result<QueueSettings, Error> {
        on!(self, catalog::QUEUE_LIST, [queue], fetch_optional, "read a queue")?
            .record("read a queue")?
            .ok_or_else(|| Error::refused(RefusalCode::BadValue, format!("queue `{queue}` does not exist")))
    }
}

fn key_of(message: &NewMessage) -> Key {
    (message.queue.clone(), message.message_id.clone(), message.generation)
}

/// Shortens an error text to the length of an event message. PostgreSQL cannot store NUL characters.
fn cut(error: &str) -> String {
    let mut end = error.len().min(MESSAGE_BYTES_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error[..end].replace('\0', " ")
}
