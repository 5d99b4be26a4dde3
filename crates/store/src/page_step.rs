//! Stores a page: rows, ledger, progress, the next message and the end of this one.
//!
//! On PostgreSQL one function does all of it, in one round trip and one commit. SQLite has no functions and no round
//! trips, so it runs the statements one by one within the transaction.

use crate::codec::{SqlTextList, SqlTime, SqlUuid, SqlWorkerId};
use crate::partitions::{Advance, PartitionPosition};
use crate::tx::{Conn, on};
use crate::{Error, RefusalCode, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::feed::{Item, RawTable};
use tidemill_core::queue::{NewMessage, Receipt, check_messages};
use tidemill_core::run::ChangeOutcome;
use uuid::Uuid;

/// A fetched page with everything that is stored for it.
#[derive(Debug, Clone)]
pub struct PageStep<'a> {
    /// Expected position of the partition.
    pub place: PartitionPosition<'a>,
    /// Offset of the next page.
    pub next_offset: i32,
    /// Token of the next page, for sources whose pages cannot be requested by offset.
    pub next_token: Option<&'a str>,
    /// Largest number of the incremental cursor on the page, for feeds whose cursor is a number.
    pub cursor_max: Option<i64>,
    /// Whether the page is linked to the page before it, so that no record lies between them.
    pub is_linked: bool,
    /// Distance by which the source's list has moved.
    pub shift: i32,
    /// Number of records that the source returned.
    pub fetched: i32,
    /// Number of records that cannot be stored.
    pub rejected: i32,
    /// Ledger entry of the page.
    pub hash: &'a [u8],
    /// Ids of the records on the page, in the feed's order.
    pub record_ids: &'a [String],
    pub feed: &'a str,
    pub raw: &'a RawTable,
    /// Records sorted by id, each id once.
    pub items: &'a [&'a Item],
    /// Receipt of the page's message, which is completed.
    pub receipt: &'a Receipt,
    /// Message of the next page, in the same queue, generation and group.
    pub next: &'a NewMessage,
    /// Whether the worker continues with the next page.
    pub keeps: bool,
    pub worker: &'a str,
}

impl Tx<'_> {
    /// Stores a page. Returns the receipt of the next message if the worker continues with it. Refuses a page that
    /// another worker has already stored.
    pub async fn store_page(
        &mut self,
        step: &PageStep<'_>,
        now: Option<Timestamp>,
    ) -> Result<Option<Receipt>, Error> {
        check_messages(std::slice::from_ref(step.next))?;
        match &self.conn {
            Conn::Postgres(_) => self.store_page_at_once(step, now).await,
            Conn::Sqlite(_) => self.store_page_by_statements(step, now).await,
        }
    }

    async fn store_page_at_once(
        &mut self,
        step: &PageStep<'_>,
        now: Option<Timestamp>,
    ) -> Result<Option<Receipt>, Error> {
        let sql = self.sql(catalog::PAGE_STORE);
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(None) };
        let uuids = as_uuids(step.record_ids);
        let words = uuids.is_none().then_some(step.record_ids);
        let (receipt, next, items) = (step.receipt, step.next, step.items);
        let epoch: Option<i32> = sqlx::query_scalar(sql)
            .bind(SqlUuid(step.place.run_id))
            .bind(step.place.partition)
            .bind(step.place.offset)
            .bind(step.place.pass)
            .bind(step.next_offset)
            .bind(step.shift)
            .bind(step.fetched)
            .bind(step.stored())
            .bind(step.rejected)
            .bind(step.hash)
            .bind(words)
            .bind(uuids)
            .bind(step.feed)
            .bind(items.iter().map(|item| item.record_id.as_str()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.offer_id.as_deref()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.payload.as_str()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.payload_hash.as_slice()).collect::<Vec<_>>())
            .bind(&receipt.queue)
            .bind(&receipt.message_id)
            .bind(receipt.generation)
            .bind(receipt.epoch)
            .bind(SqlWorkerId(receipt.worker))
            .bind(&next.message_id)
            .bind(sqlx::types::Json(&next.body))
            .bind(next.run_id.as_deref())
            .bind(next.trace_id.as_deref())
            .bind(step.keeps)
            .bind(step.worker)
            .bind(&step.raw.table)
            .bind(step.raw.id_column)
            .bind(step.next_token)
            .bind(step.cursor_max)
            .bind(step.is_linked)
            .bind(now.map(SqlTime))
            .persistent(self.context.named)
            .fetch_one(&mut **conn)
            .await
            .map_err(|source| Error::database("store a page", source))?;
        Ok(epoch.map(|epoch| step.shown(epoch)))
    }

    async fn store_page_by_statements(
        &mut self,
        step: &PageStep<'_>,
        now: Option<Timestamp>,
    ) -> Result<Option<Receipt>, Error> {
        let place = step.place;
        let changed = self.store_raw(step.raw, place.run_id, step.items, now).await?;
        let advance = Advance {
            next_offset: step.next_offset,
            next_token: step.next_token,
            cursor_max: step.cursor_max,
            is_linked: step.is_linked,
            shift: step.shift,
            fetched: step.fetched,
            stored: step.stored(),
            changed: i32::try_from(changed).unwrap_or(i32::MAX),
            rejected: step.rejected,
            listed: i32::try_from(step.record_ids.len()).unwrap_or(i32::MAX),
        };
        if !self.advance_partition(place, advance, now).await? {
            return Err(stale());
        }
        self.insert_page(step, advance, now).await?;
        match self.complete_messages(std::slice::from_ref(step.receipt), now).await?.first() {
            Some(ChangeOutcome::Applied) => {}
            _ => return Err(stale()),
        }
        if step.keeps {
            return self.continue_message(step.next, step.receipt.worker, now).await;
        }
        self.count_worker_run(place.run_id, place.partition, step.worker).await?;
        self.send_messages(std::slice::from_ref(step.next), now).await?;
        Ok(None)
    }

    /// Inserts the ledger row of a page.
    async fn insert_page(
        &mut self,
        step: &PageStep<'_>,
        by: Advance<'_>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let (place, now) = (step.place, self.time(now));
        let (hash, records) = (step.hash, SqlTextList(step.record_ids.to_vec()));
        on!(
            self,
            catalog::PAGE_INSERT,
            [
                SqlUuid(place.run_id),
                place.partition,
                place.offset,
                place.pass,
                by.fetched,
                by.stored,
                by.changed,
                hash,
                records.clone(),
                now,
            ],
            execute,
            "write a page"
        )?;
        Ok(())
    }
}

impl PageStep<'_> {
    fn stored(&self) -> i32 {
        i32::try_from(self.items.len()).unwrap_or(i32::MAX)
    }

    fn shown(&self, epoch: i32) -> Receipt {
        Receipt {
            queue: self.next.queue.clone(),
            message_id: self.next.message_id.clone(),
            generation: self.next.generation,
            epoch,
            worker: self.receipt.worker,
        }
    }
}

fn stale() -> Error {
    Error::refused(RefusalCode::Stale, "another worker has already stored the page")
}

/// Parses the ids as UUIDs, if all of them are UUIDs in canonical form.
fn as_uuids(names: &[String]) -> Option<Vec<Uuid>> {
    let mut buffer = Uuid::encode_buffer();
    let mut uuid = |name: &String| {
        let uuid = Uuid::try_parse(name).ok()?;
        (*uuid.hyphenated().encode_lower(&mut buffer) == *name).then_some(uuid)
    };
    names.iter().map(&mut uuid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_back_as_it_went_in_is_kept_as_a_uuid() {
        let name = "0190b7a4-5a3c-7c9e-8d4f-0123456789ab".to_owned();
        assert_eq!(
            as_uuids(std::slice::from_ref(&name)).map(|uuids| uuids[0].to_string()),
            Some(name.clone())
        );
        for other in
            [name.to_uppercase(), name.replace('-', ""), "record-1".to_owned(), format!("{{{name}}}")]
        {
            assert_eq!(as_uuids(&[name.clone(), other.clone()]), None, "{other}");
        }
    }
}
