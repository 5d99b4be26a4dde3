//! Ledgers of syncs: the outcomes of listed records, from the partitions, the pages and the records of the feed.

use crate::codec::{Columns, SqlTextList, SqlUuid};
use crate::rejects::stored_id;
use crate::tx::{FromColumns, Tx, on};
use crate::{Error, FeedTables, Store, catalog};
use std::collections::{BTreeMap, HashMap};
use tidemill_core::records::{RecordState, Stage};
use tidemill_core::sync_ledger::{ListedOutcome, SyncLedger};
use uuid::Uuid;

/// Repeats of the records in one state.
struct Repeats {
    stage: Option<Stage>,
    state: Option<RecordState>,
    extra: i64,
}

impl FromColumns for Repeats {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            stage: row.parsed_or_null("stage")?,
            state: row.parsed_or_null("state")?,
            extra: row.long("extra")?,
        })
    }
}

impl Repeats {
    fn outcome(&self) -> ListedOutcome {
        match (self.stage, self.state) {
            (Some(stage), _) => ListedOutcome::Rejected(stage),
            (None, Some(RecordState::Deleted)) => ListedOutcome::Flagged,
            (None, Some(RecordState::Active | RecordState::Absent) | None) => ListedOutcome::Unchanged,
        }
    }
}

/// A record that the page reader rejected.
struct ReaderReject(String, Stage);

impl FromColumns for ReaderReject {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text("record_id")?, row.parsed("stage")?))
    }
}

/// Number of rejected records of a stage.
struct Standing(Stage, i64);

impl FromColumns for Standing {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.parsed("stage")?, row.long("records")?))
    }
}

/// A record without an active row.
struct NotActive(String, Option<RecordState>);

impl FromColumns for NotActive {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(row.text("record_id")?, row.parsed_or_null("state")?))
    }
}

impl Tx<'_> {
    /// Returns those of the records that the page reader rejected in this sync, with the stage.
    pub async fn reader_rejects(
        &mut self,
        feed: &str,
        sync: Uuid,
        records: &[String],
    ) -> Result<HashMap<String, Stage>, Error> {
        // Long ids are stored cut off.
        let ids: HashMap<String, &String> = records.iter().map(|id| (stored_id(id), id)).collect();
        let stored = SqlTextList(ids.keys().cloned().collect());
        let found: Vec<ReaderReject> = on!(
            self,
            catalog::REJECT_OF_SYNC,
            [feed, SqlUuid(sync), stored.clone()],
            fetch_all,
            "read rejected records"
        )?
        .records("read rejected records")?;
        let named = |ReaderReject(id, stage)| ids.get(&id).map(|id| ((*id).clone(), stage));
        Ok(found.into_iter().filter_map(named).collect())
    }

    /// Returns those of the records that have no active row, with the state of the row; `None` without an entry.
    pub async fn records_not_active(
        &mut self,
        tables: &FeedTables,
        records: Vec<String>,
    ) -> Result<HashMap<String, Option<RecordState>>, Error> {
        let statement = tables.select(catalog::DIAMOND_NOT_ACTIVE, catalog::ROW_NOT_ACTIVE);
        let (feed, records) = (tables.feed.as_str(), SqlTextList(records));
        let found: Vec<NotActive> = on!(self, statement, [feed, records.clone()], fetch_all, "find records")?
            .records("find records")?;
        Ok(found.into_iter().map(|NotActive(id, state)| (id, state)).collect())
    }

    /// Returns the ledger of a sync whose pages are consolidated.
    pub async fn sync_ledger(&mut self, feed: &str, sync: Uuid) -> Result<SyncLedger, Error> {
        let mut ledger = SyncLedger::default();
        for partition in self.partitions(sync).await? {
            ledger.merge(&partition.ledger);
        }
        let repeats: Vec<Repeats> =
            on!(self, catalog::PAGE_REPEATS, [feed, SqlUuid(sync)], fetch_all, "count repeats")?
                .records("count repeats")?;
        for repeated in repeats {
            ledger.settle_repeats(repeated.outcome(), repeated.extra);
        }
        if ledger.rejected_total() > 0 {
            let binds = (SqlUuid(sync), SqlUuid(Uuid::nil()));
            let found: Vec<Standing> =
                on!(self, catalog::REJECT_COUNT, [feed, binds.0, binds.1], fetch_all, "count rejects")?
                    .records("count rejects")?;
            let standing: BTreeMap<Stage, i64> =
                found.into_iter().map(|Standing(stage, records)| (stage, records)).collect();
            ledger.settle_resolved(&standing);
        }
        Ok(ledger)
    }
}

impl Store {
    /// Returns the ledger of a sync whose pages are consolidated.
    pub async fn sync_ledger(&self, feed: &str, sync: Uuid) -> Result<SyncLedger, Error> {
        let feed = feed.to_owned();
        self.read(move |mut tx| Box::pin(async move { tx.sync_ledger(&feed, sync).await })).await
    }
}
