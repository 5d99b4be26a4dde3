//! Pages: the raw rows that a page brings, and the ledger that remembers it.

use crate::codec::{At, Bare, Columns, Words};
use crate::partitions::Place;
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::feed::Item;
use uuid::Uuid;

/// One page, as the ledger remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRow {
    /// Where it began.
    pub offset: i32,
    /// What it was, to find out that the source gives the same page again.
    pub hash: Vec<u8>,
    /// The stones on it, in the feed's order.
    pub stone_ids: Vec<String>,
}

impl FromColumns for PageRow {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            offset: row.int("page_offset")?,
            hash: row.bytes("page_hash")?,
            stone_ids: row.words("stone_ids")?,
        })
    }
}

/// What a page brought.
#[derive(Debug, Clone)]
pub struct NewPage<'a> {
    /// Records that the source gave.
    pub fetched: i32,
    /// Records that were stored.
    pub stored: i32,
    /// Records that were new or different.
    pub changed: i32,
    /// What it was.
    pub hash: &'a [u8],
    /// The stones on it, in the feed's order.
    pub stone_ids: &'a [String],
}

impl Tx<'_> {
    /// Which of these records are new, or differ from what is kept. SQLite finds out as it writes.
    pub async fn differing(&mut self, feed: &str, items: &[Item]) -> Result<Option<Vec<String>>, Error> {
        let sql = self.sql(catalog::RAW_DIFFER);
        let Conn::Postgres(conn) = &mut self.conn else { return Ok(None) };
        let ids: Vec<&str> = items.iter().map(|item| item.stone_id.as_str()).collect();
        let hashes: Vec<&[u8]> = items.iter().map(|item| item.payload_hash.as_slice()).collect();
        sqlx::query_scalar(sql)
            .bind(feed)
            .bind(ids)
            .bind(hashes)
            .persistent(self.context.named)
            .fetch_all(&mut **conn)
            .await
            .map(Some)
            .map_err(|source| Error::database("compare records", source))
    }

    /// Keeps the records of a page, sorted by stone so that two pages never wait for each other; how many changed.
    pub async fn keep_records(
        &mut self,
        feed: &str,
        sync: Uuid,
        items: &[Item],
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if items.is_empty() {
            return Ok(0);
        }
        let failed = |source| Error::database("keep records", source);
        let (sql, now) = (self.sql(catalog::RAW_UPSERT), self.time(now));
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let ids: Vec<&str> = items.iter().map(|item| item.stone_id.as_str()).collect();
                let offers: Vec<Option<&str>> = items.iter().map(|item| item.offer_id.as_deref()).collect();
                let payloads: Vec<&str> = items.iter().map(|item| item.payload.as_str()).collect();
                let hashes: Vec<&[u8]> = items.iter().map(|item| item.payload_hash.as_slice()).collect();
                let query = sqlx::query(sql).bind(feed).bind(Bare(sync)).bind(ids).bind(offers);
                let query = query.bind(payloads).bind(hashes).bind(now).persistent(self.context.named);
                Ok(query.execute(&mut **conn).await.map_err(failed)?.rows_affected())
            }
            Conn::Sqlite(conn) => {
                let mut changed = 0;
                for item in items {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.0.clone()))
                        .bind(feed)
                        .bind(Bare(sync))
                        .bind(item.stone_id.as_str())
                        .bind(item.offer_id.as_deref())
                        .bind(item.payload.as_str())
                        .bind(item.payload_hash.as_slice())
                        .bind(now);
                    changed += query.execute(&mut **conn).await.map_err(failed)?.rows_affected();
                }
                Ok(changed)
            }
        }
    }

    /// Writes a page into the ledger.
    pub async fn insert_page(
        &mut self,
        place: Place<'_>,
        page: &NewPage<'_>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let (sql, now) = (self.sql(catalog::PAGE_INSERT), self.time(now));
        /// The values that both databases take in the same form.
        macro_rules! values {
            () => {
                sqlx::query(sql)
                    .bind(Bare(place.run_id))
                    .bind(place.partition)
                    .bind(place.offset)
                    .bind(place.pass)
                    .bind(page.fetched)
                    .bind(page.stored)
                    .bind(page.changed)
                    .bind(page.hash)
            };
        }
        match &mut self.conn {
            Conn::Postgres(conn) => {
                let uuids = as_uuids(page.stone_ids);
                let words = uuids.is_none().then(|| Words(page.stone_ids.to_vec()));
                let query = values!().bind(words).bind(now).bind(uuids).persistent(self.context.named);
                query.execute(&mut **conn).await.map(|_| ())
            }
            Conn::Sqlite(conn) => {
                let query = values!().bind(Words(page.stone_ids.to_vec())).bind(now);
                query.execute(&mut **conn).await.map(|_| ())
            }
        }
        .map_err(|source| Error::database("write a page", source))
    }

    /// The pages before an offset, in the same pass, the last one first.
    pub async fn pages_before(&mut self, place: Place<'_>, limit: usize) -> Result<Vec<PageRow>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(
            self,
            catalog::PAGE_LAST,
            [Bare(place.run_id), place.partition, place.pass, place.offset, limit],
            fetch_all,
            "read pages"
        )?
        .records("read pages")
    }

    /// How many stones a partition has seen, each once.
    pub async fn seen_stones(&mut self, sync: Uuid, partition: &str) -> Result<i64, Error> {
        let seen: Option<i64> =
            on!(self, catalog::PAGE_SEEN, [Bare(sync), partition], fetch_optional, "count stones")?
                .record("count stones")?;
        Ok(seen.unwrap_or(0))
    }

    /// Pages of a partition from an offset on.
    pub async fn pages_from(
        &mut self,
        sync: Uuid,
        partition: &str,
        offset: i32,
        limit: usize,
    ) -> Result<Vec<PageRow>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        on!(self, catalog::PAGE_RANGE, [Bare(sync), partition, offset, limit], fetch_all, "read pages")?
            .records("read pages")
    }
}

impl Store {
    /// How many stones a partition has seen, each once.
    pub async fn seen_stones(&self, sync: Uuid, partition: String) -> Result<i64, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.seen_stones(sync, &partition).await })).await
    }
}

impl Tx<'_> {
    /// The time to bind: the caller's; where there is none, PostgreSQL's own clock tells it, and SQLite has none.
    pub(crate) fn time(&self, now: Option<Timestamp>) -> Option<At> {
        match &self.conn {
            Conn::Postgres(_) => now.map(At),
            Conn::Sqlite(_) => Some(At(self.moment(now))),
        }
    }
}

/// The names as UUIDs, where each of them is one and is written as one is.
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
        for other in [name.to_uppercase(), name.replace('-', ""), "stone-1".to_owned(), format!("{{{name}}}")]
        {
            assert_eq!(as_uuids(&[name.clone(), other.clone()]), None, "{other}");
        }
    }
}
