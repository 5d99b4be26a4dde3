//! Syncs: one row per sync of a feed, and the transitions between its states.

use crate::codec::{Columns, SqlJson, SqlTextList, SqlTime, SqlUuid, from_json};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::absence::ListEvidence;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_core::sync_ledger::SyncLedger;
use tidemill_core::{RunId, Timestamp};
use uuid::Uuid;

impl FromColumns for Sync {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.uuid("run_id")?,
            ops_run_id: row.run_id("ops_run_id")?,
            feed: row.text("feed")?,
            run_type: row.parsed("run_type")?,
            state: row.parsed("state")?,
            trace_id: row.text("trace_id")?,
            expected_workers: row.int("expected_workers")?,
            completed_workers: row.int_or_null("completed_workers")?.unwrap_or(0),
            failed_workers: row.int_or_null("failed_workers")?.unwrap_or(0),
            watermark_before: row.watermark_or_null("watermark_before")?,
            watermark_after: row.watermark_or_null("watermark_after")?,
            updated_from: row.watermark_or_null("updated_from")?,
            updated_to: row.time("updated_to")?,
            page_size: row.int("page_size")?,
            granularity: row.long("granularity")?,
            predicted: row.long("predicted")?,
            count_calls: row.int("count_calls")?,
            scan_ms: row.long("scan_ms")?,
            heatmap: row.json("heatmap")?,
            generation: row.int("generation")?,
            rules_version: row.int_or_null("rules_version")?,
            definition: row.text_or_null("definition")?,
            forced: row.truth("forced")?,
            advance: row.truth("advance")?,
            error: row.text_or_null("error")?,
            started_at: row.time("started_at")?,
            completed_at: row.time_or_null("completed_at")?,
            consolidation_started_at: row.time_or_null("consolidation_started_at")?,
            consolidation_completed_at: row.time_or_null("consolidation_completed_at")?,
            consolidation_processed: row.long("consolidation_processed")?,
            consolidation_errors: row.long("consolidation_errors")?,
            consolidation_total: row.long("consolidation_total")?,
            deleted: row.long("deleted")?,
            delete_note: row.text_or_null("delete_note")?,
            absence_evidence: row.text_or_null("absence_evidence")?,
            absent_kept: row.int("absent_kept")?,
            ledger: row.json_or_null("ledger")?.map(|json| from_json("ledger", json)).transpose()?,
            updated_at: row.time("updated_at")?,
        })
    }
}

/// A full sync that read every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeSync {
    pub run_id: Uuid,
    /// Evidence that it did.
    pub evidence: ListEvidence,
}

impl FromColumns for WholeSync {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let evidence = ListEvidence::parse(row.text_or_null("absence_evidence")?.as_deref());
        Ok(Self { run_id: row.parsed("run_id")?, evidence })
    }
}

/// Number of partitions of a sync, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionCounts {
    pub expected: i64,
    pub completed: i64,
    pub failed: i64,
    /// Partitions with pages that are not in the canonical table yet.
    pub unconsolidated: i64,
}

impl FromColumns for PartitionCounts {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            expected: row.long("expected")?,
            completed: row.long("completed")?,
            failed: row.long("failed")?,
            unconsolidated: row.long("unconsolidated")?,
        })
    }
}

impl Tx<'_> {
    /// Writes a new sync. Returns false if it exists.
    pub async fn insert_sync(&mut self, sync: &Sync, now: Option<Timestamp>) -> Result<bool, Error> {
        let now = self.time(now);
        let written = on!(
            self,
            catalog::SYNC_INSERT,
            [
                SqlUuid(sync.run_id),
                sync.ops_run_id.as_str(),
                sync.feed.as_str(),
                sync.run_type.as_str(),
                sync.state.as_str(),
                sync.trace_id.as_str(),
                sync.expected_workers,
                sync.watermark_before.map(SqlTime),
                sync.updated_from.map(SqlTime),
                SqlTime(sync.updated_to),
                sync.page_size,
                sync.granularity,
                sync.predicted,
                sync.count_calls,
                sync.scan_ms,
                SqlJson(sync.heatmap.clone()),
                now,
                sync.definition.as_deref(),
            ],
            execute,
            "write a sync"
        )?;
        Ok(written.count() > 0)
    }

    pub async fn sync(&mut self, sync: Uuid) -> Result<Option<Sync>, Error> {
        on!(self, catalog::SYNC_GET, [SqlUuid(sync)], fetch_optional, "read a sync")?.record("read a sync")
    }

    /// Returns the sync whose last attempt is this run.
    pub async fn sync_of_run(&mut self, run: &RunId) -> Result<Option<Sync>, Error> {
        on!(self, catalog::SYNC_OF_RUN, [run.as_str()], fetch_optional, "read a sync")?.record("read a sync")
    }

    /// Returns syncs that are neither completed nor failed, oldest first.
    pub async fn live_syncs(&mut self, limit: usize) -> Result<Vec<Sync>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Ok(on!(self, catalog::SYNC_LIVE, [limit], fetch_all, "list syncs")?
            .readable("run_metadata", "run_id"))
    }

    /// Locks a sync until the transaction ends, and reads it. No other transaction can count its partitions meanwhile.
    pub async fn lock_sync(&mut self, sync: Uuid) -> Result<Option<Sync>, Error> {
        let _: Option<String> =
            on!(self, catalog::SYNC_LOCK, [SqlUuid(sync)], fetch_optional, "lock a sync")?
                .record("lock a sync")?;
        self.sync(sync).await
    }

    /// Counts the partitions of a sync.
    pub async fn count_partitions(&mut self, sync: Uuid) -> Result<PartitionCounts, Error> {
        let counts = on!(self, catalog::SYNC_COUNT, [SqlUuid(sync)], fetch_optional, "count partitions")?
            .record("count partitions")?;
        Ok(counts.unwrap_or(PartitionCounts { expected: 0, completed: 0, failed: 0, unconsolidated: 0 }))
    }

    /// Writes the counts of the partitions into the sync.
    pub async fn write_counts(
        &mut self,
        sync: Uuid,
        counts: PartitionCounts,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        let int = |count: i64| i32::try_from(count).unwrap_or(i32::MAX);
        let (completed, failed) = (int(counts.completed), int(counts.failed));
        on!(self, catalog::SYNC_COUNTED, [SqlUuid(sync), completed, failed, now], execute, "write counts")?;
        Ok(())
    }

    /// Moves a sync from an expected state to another. Returns false if it was in another state.
    pub async fn move_sync(
        &mut self,
        sync: Uuid,
        from: SyncState,
        to: SyncState,
        error: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(
            self,
            catalog::SYNC_STATE,
            [SqlUuid(sync), from.as_str(), to.as_str(), error, now],
            execute,
            "move a sync"
        )?;
        Ok(moved.count() > 0)
    }

    /// Hands a sync to the consolidators; returns the generation of its message.
    pub async fn trigger_sync(
        &mut self,
        sync: Uuid,
        from: SyncState,
        forced: bool,
        advance: bool,
        rules_version: i32,
        now: Option<Timestamp>,
    ) -> Result<Option<i32>, Error> {
        let now = self.time(now);
        let generation: Option<i64> = on!(
            self,
            catalog::SYNC_TRIGGER,
            [SqlUuid(sync), from.as_str(), forced, advance, rules_version, now],
            fetch_optional,
            "trigger consolidation"
        )?
        .record("trigger consolidation")?;
        Ok(generation.map(|generation| i32::try_from(generation).unwrap_or(i32::MAX)))
    }

    /// Switches a consolidation to other rules and restarts it. Returns false if the sync is not being consolidated.
    pub async fn repin_sync(
        &mut self,
        sync: Uuid,
        rules_version: i32,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved =
            on!(self, catalog::SYNC_REPIN, [SqlUuid(sync), rules_version, now], execute, "pin other rules")?;
        if moved.count() > 0 {
            self.restart_consolidation(sync).await?;
        }
        Ok(moved.count() > 0)
    }

    /// Makes a consolidation process every record again.
    pub async fn restart_consolidation(&mut self, sync: Uuid) -> Result<(), Error> {
        on!(self, catalog::PARTITION_ANEW, [SqlUuid(sync)], execute, "restart a consolidation")?;
        Ok(())
    }

    /// Records that a consolidator has started. Returns false if there is nothing to consolidate.
    pub async fn consume_sync(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(self, catalog::SYNC_CONSUME, [SqlUuid(sync), now], execute, "begin consolidation")?;
        Ok(moved.count() > 0)
    }

    /// Adds to the count of deleted records. Returns false if the sync is no longer being consolidated.
    pub async fn add_deleted(
        &mut self,
        sync: Uuid,
        deleted: i64,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let written =
            on!(self, catalog::SYNC_PROGRESS, [SqlUuid(sync), deleted, now], execute, "count records")?;
        Ok(written.count() > 0)
    }

    /// Records why nothing was deleted.
    pub async fn record_delete_note(&mut self, sync: Uuid, note: Option<&str>) -> Result<(), Error> {
        on!(self, catalog::SYNC_DELETE_NOTE, [SqlUuid(sync), note], execute, "record a deletion note")?;
        Ok(())
    }

    /// Records how many rows of records that were not listed are kept.
    pub async fn set_absent_kept(&mut self, sync: Uuid, records: i32) -> Result<(), Error> {
        on!(self, catalog::SYNC_ABSENT_KEPT, [SqlUuid(sync), records], execute, "count kept records")?;
        Ok(())
    }

    /// Completes a sync with its ledger. Returns false if it was not in the expected state.
    pub async fn complete_sync(
        &mut self,
        sync: Uuid,
        from: SyncState,
        watermark: Option<Timestamp>,
        ledger: &SyncLedger,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let json = SqlJson(serde_json::to_value(ledger).unwrap_or_default());
        let by_flag = ledger.deleted_by_flag;
        let moved = on!(
            self,
            catalog::SYNC_COMPLETE,
            [SqlUuid(sync), watermark.map(SqlTime), now, from.as_str(), json.clone(), by_flag],
            execute,
            "complete a sync"
        )?;
        Ok(moved.count() > 0)
    }

    /// Assigns a failed sync to another attempt; returns the generation of its messages.
    pub async fn resume_sync(
        &mut self,
        sync: Uuid,
        run: &RunId,
        now: Option<Timestamp>,
    ) -> Result<Option<i32>, Error> {
        let now = self.time(now);
        let generation: Option<i64> = on!(
            self,
            catalog::SYNC_RESUME,
            [SqlUuid(sync), run.as_str(), now],
            fetch_optional,
            "resume a sync"
        )?
        .record("resume a sync")?;
        Ok(generation.map(|generation| i32::try_from(generation).unwrap_or(i32::MAX)))
    }

    /// Returns a newer completed sync of the same feed, if there is one.
    pub async fn newer_sync(&mut self, sync: Uuid) -> Result<Option<String>, Error> {
        on!(self, catalog::SYNC_NEWER, [SqlUuid(sync)], fetch_optional, "find a newer sync")?
            .record("find a newer sync")
    }

    /// Returns the last sync of the same feed that was completed before this one started.
    pub async fn sync_before(&mut self, sync: &Sync) -> Result<Option<Sync>, Error> {
        let (feed, started) = (sync.feed.as_str(), SqlTime(sync.started_at));
        on!(
            self,
            catalog::SYNC_BEFORE,
            [feed, SqlUuid(sync.run_id), started],
            fetch_optional,
            "find the previous sync"
        )?
        .record("find the previous sync")
    }

    /// Returns the last full sync of a feed that completed before this one and read every record.
    pub async fn whole_sync_before(&mut self, feed: &str, sync: Uuid) -> Result<Option<WholeSync>, Error> {
        on!(self, catalog::SYNC_FULL_BEFORE, [feed, SqlUuid(sync)], fetch_optional, "find a full sync")?
            .record("find a full sync")
    }

    /// Records how it is shown that a sync read every record; `None` if it is not.
    pub async fn record_evidence(&mut self, sync: Uuid, evidence: Option<&str>) -> Result<(), Error> {
        on!(self, catalog::SYNC_EVIDENCE, [SqlUuid(sync), evidence], execute, "record evidence")?;
        Ok(())
    }
}

/// Which syncs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncFilter {
    pub feed: Option<String>,
    /// Restricts the list to feeds of this project.
    pub project: Option<String>,
    /// Last sync of the previous page.
    pub before: Option<Uuid>,
    pub limit: usize,
}

impl Store {
    /// Returns a sync by its id or by the id of its last attempt.
    pub async fn sync(&self, id: String) -> Result<Sync, Error> {
        let wanted = id.clone();
        let found = self
            .read(move |mut tx| {
                Box::pin(async move {
                    if let Ok(run) = wanted.parse::<RunId>()
                        && let Some(sync) = tx.sync_of_run(&run).await?
                    {
                        return Ok(Some(sync));
                    }
                    match wanted.strip_prefix("run-").unwrap_or(&wanted).parse::<Uuid>() {
                        Ok(uuid) => tx.sync(uuid).await,
                        Err(_) => Ok(None),
                    }
                })
            })
            .await?;
        found.ok_or_else(|| Error::unknown_sync(&id))
    }

    /// Counts the partitions of a sync.
    pub async fn read_counts(&self, sync: Uuid) -> Result<PartitionCounts, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.count_partitions(sync).await })).await
    }

    /// Returns the last full sync of a feed that completed before this one and read every record.
    pub async fn whole_sync_before(&self, feed: String, sync: Uuid) -> Result<Option<WholeSync>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.whole_sync_before(&feed, sync).await })).await
    }

    /// Returns those of the records that neither this sync nor a later one of its feed has seen.
    pub async fn filter_unseen_since(&self, sync: Uuid, records: Vec<String>) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let records = SqlTextList(records);
                let binds = (SqlUuid(sync), records.clone());
                on!(tx, catalog::RECORD_UNSEEN, [binds.0, binds.1.clone()], fetch_all, "find records")?
                    .records("find records")
            })
        })
        .await
    }

    /// Returns the last syncs, newest first.
    pub async fn syncs(&self, feed: Option<String>, limit: usize) -> Result<Vec<Sync>, Error> {
        self.list_syncs(SyncFilter { feed, limit, ..SyncFilter::default() }).await
    }

    /// Returns a newer completed sync of the same feed, if there is one.
    pub async fn newer_sync(&self, sync: Uuid) -> Result<Option<Uuid>, Error> {
        let newer = self.read(move |mut tx| Box::pin(async move { tx.newer_sync(sync).await })).await?;
        Ok(newer.and_then(|id| id.parse().ok()))
    }

    /// Lists syncs, newest first.
    pub async fn list_syncs(&self, filter: SyncFilter) -> Result<Vec<Sync>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
                Ok(on!(
                    tx,
                    catalog::SYNC_LIST,
                    [filter.feed.as_deref(), limit, filter.project.as_deref(), filter.before.map(SqlUuid)],
                    fetch_all,
                    "list syncs"
                )?
                .readable("run_metadata", "run_id"))
            })
        })
        .await
    }

    /// Returns syncs that are neither completed nor failed, oldest first.
    pub async fn live_syncs(&self, limit: usize) -> Result<Vec<Sync>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.live_syncs(limit).await })).await
    }
}
