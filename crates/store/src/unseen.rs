//! Active records of a feed, and those that a sync has not seen: diamonds, or rows of a definition.

use crate::codec::{Columns, SqlTextList, SqlUuid};
use crate::tx::{FromColumns, Tx, on};
use crate::{Error, FeedTables, Store, catalog};
use tidemill_core::Timestamp;
use tidemill_core::absence::AbsentRecords;
use uuid::Uuid;

/// Number of active records of a feed, and of those that a sync has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnseenCounts {
    pub active: i64,
    pub unseen: i64,
}

impl FromColumns for UnseenCounts {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { active: row.long("active")?, unseen: row.long("unseen")? })
    }
}

impl Tx<'_> {
    /// Deletes the rows of records that the source no longer has; returns how many records were active.
    pub async fn delete_records(
        &mut self,
        tables: &FeedTables,
        absent: AbsentRecords,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let records = absent.into_ids();
        if tables.target.is_some() {
            self.delete_rows(tables, records, now).await
        } else {
            self.delete_diamonds(&tables.feed, records, now).await
        }
    }
}

impl Store {
    /// Counts the active records of a feed that a sync has not seen.
    pub async fn count_unseen(&self, tables: &FeedTables, sync: Uuid) -> Result<UnseenCounts, Error> {
        let statement = tables.select(catalog::DIAMOND_UNSEEN_COUNT, catalog::ROW_UNSEEN_COUNT);
        let feed = tables.feed.clone();
        self.read(move |mut tx| {
            Box::pin(async move {
                let binds = (feed.as_str(), SqlUuid(sync));
                let found = on!(tx, statement, [binds.0, binds.1], fetch_optional, "count unseen records")?;
                Ok(found.record("count unseen records")?.unwrap_or_default())
            })
        })
        .await
    }

    /// Returns those of the records that are active.
    pub async fn active_records(
        &self,
        tables: &FeedTables,
        records: Vec<String>,
    ) -> Result<Vec<String>, Error> {
        let statement = tables.select(catalog::DIAMOND_ACTIVE, catalog::ROW_ACTIVE);
        let feed = tables.feed.clone();
        self.read(move |mut tx| {
            Box::pin(async move {
                let binds = (feed.as_str(), SqlTextList(records));
                on!(tx, statement, [binds.0, binds.1.clone()], fetch_all, "find records")?
                    .records("find records")
            })
        })
        .await
    }

    /// Counts the active records of a feed.
    pub async fn count_active(&self, tables: &FeedTables) -> Result<i64, Error> {
        let statement = tables.select(catalog::DIAMOND_ACTIVE_COUNT, catalog::ROW_ACTIVE_COUNT);
        let feed = tables.feed.clone();
        self.read(move |mut tx| {
            Box::pin(async move {
                let found: Option<i64> =
                    on!(tx, statement, [feed.as_str()], fetch_optional, "count records")?
                        .record("count records")?;
                Ok(found.unwrap_or(0))
            })
        })
        .await
    }

    /// Returns the next active records of a feed, after one, that a sync has not seen.
    pub async fn unseen_after(
        &self,
        tables: &FeedTables,
        sync: Uuid,
        after: String,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        let statement = tables.select(catalog::DIAMOND_UNSEEN, catalog::ROW_UNSEEN);
        let feed = tables.feed.clone();
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let binds = (feed.as_str(), SqlUuid(sync), after.as_str());
                on!(tx, statement, [binds.0, binds.1, binds.2, limit], fetch_all, "read unseen records")?
                    .records("read unseen records")
            })
        })
        .await
    }
}
