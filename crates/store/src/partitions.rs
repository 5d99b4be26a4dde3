//! Partitions: the progress of each range of a feed, advanced by compare-and-swap.

use crate::codec::{Columns, SqlJson, SqlTime, SqlUuid, from_json};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::feed::FieldRange;
use tidemill_core::records::Partition;
use tidemill_core::sync_ledger::SyncLedger;
use tidemill_core::{Json, Timestamp};
use uuid::Uuid;

impl FromColumns for Partition {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.uuid("run_id")?,
            partition_id: row.text("partition_id")?,
            state: row.parsed("state")?,
            range: FieldRange { from: row.long("range_from")?, to: row.long("range_to")? },
            updated_from: row.watermark_or_null("updated_from")?,
            predicted: row.long("predicted")?,
            next_offset: row.int("next_offset")?,
            next_token: row.text_or_null("next_token")?,
            cursor_max: row.long_or_null("cursor_max")?,
            evidence: row.text_or_null("evidence")?,
            shift: row.int("shift")?,
            pass: row.int("pass")?,
            recount: row.long_or_null("recount")?,
            fetched: row.long("fetched")?,
            stored: row.long("stored")?,
            changed: row.long("changed")?,
            rejected: row.long("rejected")?,
            consolidated_to: row.int("consolidated_to")?,
            consolidated: row.long("consolidated")?,
            refused: row.long("refused")?,
            ledger: SyncLedger { listed: row.long("listed")?, ..from_json("ledger", row.json("ledger")?)? },
            faults: row.int("faults")?,
            error: row.text_or_null("error")?,
            restart: row.truth("restart")?,
            gap_id: row.long_or_null("gap_id")?,
            first_page_at: row.time_or_null("first_page_at")?,
            ended_at: row.time_or_null("ended_at")?,
            updated_at: row.time("updated_at")?,
        })
    }
}

/// The content of a partition to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewPartition<'a> {
    pub run_id: Uuid,
    pub partition: &'a str,
    pub range: FieldRange,
    /// Number of records that the scan counted.
    pub predicted: i64,
    /// Lower bound of the update time; without it, all records are read.
    pub updated_from: Option<Timestamp>,
    /// Gap that the partition covers.
    pub gap: Option<i64>,
}

/// The position at which the caller expects a partition to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionPosition<'a> {
    pub run_id: Uuid,
    pub partition: &'a str,
    pub offset: i32,
    pub pass: i32,
}

/// Counts that a page adds to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advance<'a> {
    pub(crate) next_offset: i32,
    /// Token of the next page.
    pub(crate) next_token: Option<&'a str>,
    /// Largest number of the incremental cursor on the page.
    pub(crate) cursor_max: Option<i64>,
    /// Whether the page is linked to the page before it.
    pub(crate) is_linked: bool,
    /// Number of records by which the source's list has moved.
    pub(crate) shift: i32,
    /// Records that the source returned.
    pub(crate) fetched: i32,
    pub(crate) stored: i32,
    /// Records that were new or different.
    pub(crate) changed: i32,
    pub(crate) rejected: i32,
    /// Records on the page, without the overlap.
    pub(crate) listed: i32,
}

impl Tx<'_> {
    /// Writes a new partition.
    pub async fn insert_partition(
        &mut self,
        new: NewPartition<'_>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        on!(
            self,
            catalog::PARTITION_INSERT,
            [
                SqlUuid(new.run_id),
                new.partition,
                new.range.from,
                new.range.to,
                new.predicted,
                new.updated_from.map(SqlTime),
                new.gap,
                now,
            ],
            execute,
            "write a partition"
        )?;
        Ok(())
    }

    pub async fn partition(&mut self, sync: Uuid, partition: &str) -> Result<Option<Partition>, Error> {
        on!(self, catalog::PARTITION_GET, [SqlUuid(sync), partition], fetch_optional, "read a partition")?
            .record("read a partition")
    }

    /// Returns the partitions of a sync, by price.
    pub async fn partitions(&mut self, sync: Uuid) -> Result<Vec<Partition>, Error> {
        on!(self, catalog::PARTITION_LIST, [SqlUuid(sync)], fetch_all, "list partitions")?
            .records("list partitions")
    }

    /// Moves a partition past a page. Returns false if it was not at the expected position.
    pub(crate) async fn advance_partition(
        &mut self,
        position: PartitionPosition<'_>,
        by: Advance<'_>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(
            self,
            catalog::PARTITION_ADVANCE,
            [
                SqlUuid(position.run_id),
                position.partition,
                position.offset,
                position.pass,
                by.next_offset,
                by.shift,
                i64::from(by.fetched),
                i64::from(by.stored),
                i64::from(by.changed),
                i64::from(by.rejected),
                now,
                by.next_token,
                by.cursor_max,
                i64::from(by.listed),
                by.is_linked,
            ],
            execute,
            "move a partition"
        )?;
        Ok(moved.count() > 0)
    }

    /// Records that a worker has received a partition's first page.
    pub async fn receive_partition(
        &mut self,
        sync: Uuid,
        partition: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        on!(
            self,
            catalog::PARTITION_RECEIVE,
            [SqlUuid(sync), partition, now],
            execute,
            "record the start of a partition"
        )?;
        Ok(())
    }

    /// Completes a partition. `evidence` is the word for how it is shown that the pass read every record. Returns false
    /// if the partition was not at the expected position.
    pub async fn end_partition(
        &mut self,
        position: PartitionPosition<'_>,
        recount: Option<i64>,
        evidence: Option<&str>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let binds = (SqlUuid(position.run_id), position.partition, position.offset, position.pass);
        let ended = on!(
            self,
            catalog::PARTITION_END,
            [binds.0, binds.1, binds.2, binds.3, recount, now, evidence],
            execute,
            "complete a partition"
        )?;
        Ok(ended.count() > 0)
    }

    /// Records the count of the source before the first page of a pass. Returns false if the partition has moved on.
    pub async fn record_first_count(
        &mut self,
        position: PartitionPosition<'_>,
        count: i64,
        at: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let binds = (SqlUuid(position.run_id), position.partition, position.offset, position.pass);
        let recorded = on!(
            self,
            catalog::PARTITION_COUNTED,
            [binds.0, binds.1, binds.2, binds.3, count, at.map(SqlTime)],
            execute,
            "record a count"
        )?;
        Ok(recorded.count() > 0)
    }

    /// Starts another pass over a partition. Returns false if it was not at the expected position.
    pub async fn start_next_pass(
        &mut self,
        position: PartitionPosition<'_>,
        recount: Option<i64>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let binds = (SqlUuid(position.run_id), position.partition, position.offset, position.pass);
        let moved = on!(
            self,
            catalog::PARTITION_AGAIN,
            [binds.0, binds.1, binds.2, binds.3, recount, now],
            execute,
            "start another pass"
        )?;
        Ok(moved.count() > 0)
    }

    /// Counts a failed attempt of the current page; returns the number of failures, or `None` if the partition has
    /// moved on.
    pub async fn record_fault(
        &mut self,
        sync: Uuid,
        partition: &str,
        offset: i32,
        error: &str,
        now: Option<Timestamp>,
    ) -> Result<Option<i64>, Error> {
        let now = self.time(now);
        on!(
            self,
            catalog::PARTITION_FAULT,
            [SqlUuid(sync), partition, offset, error, now],
            fetch_optional,
            "record a fault"
        )?
        .record("record a fault")
    }

    /// Fails a partition that is open at this offset. Returns false if it was not.
    pub async fn fail_partition(
        &mut self,
        sync: Uuid,
        partition: &str,
        offset: i32,
        error: &str,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let binds = (SqlUuid(sync), partition, error);
        let failed = on!(
            self,
            catalog::PARTITION_FAIL,
            [binds.0, binds.1, binds.2, now, offset],
            execute,
            "fail a partition"
        )?;
        if failed.count() == 0 {
            return Ok(false);
        }
        on!(
            self,
            catalog::WORKER_RUN_END,
            [binds.0, binds.1, "failed", Some(error), now],
            execute,
            "fail a partition"
        )?;
        Ok(true)
    }

    /// Fails every open partition; returns how many.
    pub async fn fail_open_partitions(
        &mut self,
        sync: Uuid,
        error: &str,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let now = self.time(now);
        let failed =
            on!(self, catalog::PARTITION_FAIL_OPEN, [SqlUuid(sync), error, now], execute, "fail partitions")?;
        on!(self, catalog::WORKER_RUN_END_ALL, [SqlUuid(sync), error, now], execute, "fail partitions")?;
        Ok(failed.count())
    }

    /// Marks failed partitions to be read from the start when they are retried; returns how many.
    pub async fn request_restart(&mut self, sync: Uuid, partition: Option<&str>) -> Result<u64, Error> {
        let marked =
            on!(self, catalog::PARTITION_RESTART, [SqlUuid(sync), partition], execute, "request a restart")?;
        Ok(marked.count())
    }

    /// Reopens the failed partitions of a sync; returns how many.
    pub async fn reopen_partitions(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<u64, Error> {
        let now = self.time(now);
        on!(self, catalog::PARTITION_FORGET, [SqlUuid(sync)], execute, "delete pages")?;
        on!(self, catalog::PARTITION_FORGET_REJECTS, [SqlUuid(sync)], execute, "delete rejected records")?;
        let opened =
            on!(self, catalog::PARTITION_REOPEN, [SqlUuid(sync), now], execute, "reopen partitions")?;
        Ok(opened.count())
    }

    /// Returns a partition with unconsolidated pages, locked until the transaction ends.
    pub async fn open_partition(&mut self, sync: Uuid) -> Result<Option<Partition>, Error> {
        on!(self, catalog::PARTITION_OPEN, [SqlUuid(sync)], fetch_optional, "find open pages")?
            .record("find open pages")
    }

    /// Records how far a partition's pages are consolidated. Returns false if another process did.
    pub async fn consolidate_partition(
        &mut self,
        (sync, partition): (Uuid, &str),
        (from, to): (i32, i32),
        (records, refused): (i64, i64),
        ledger: &SyncLedger,
    ) -> Result<bool, Error> {
        let ledger = SqlJson(serde_json::to_value(ledger).unwrap_or_default());
        let moved = on!(
            self,
            catalog::PARTITION_CONSOLIDATED,
            [SqlUuid(sync), partition, from, to, records, refused, ledger.clone()],
            execute,
            "record consolidated pages"
        )?;
        Ok(moved.count() > 0)
    }

    /// Lowers the number of rejected records of a partition, because their rows were written after all.
    pub async fn lower_refused(&mut self, sync: Uuid, partition: &str, count: i64) -> Result<(), Error> {
        on!(
            self,
            catalog::PARTITION_REFUSED_LESS,
            [SqlUuid(sync), partition, count],
            execute,
            "count rejected records"
        )?;
        Ok(())
    }

    /// Records which worker reads a partition, and the message that it received.
    pub async fn begin_worker_run(
        &mut self,
        id: Uuid,
        sync: Uuid,
        partition: &str,
        worker: &str,
        message: &Json,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        on!(
            self,
            catalog::WORKER_RUN_BEGIN,
            [SqlUuid(id), SqlUuid(sync), partition, worker, SqlJson(message.clone()), now],
            execute,
            "begin a worker run"
        )?;
        Ok(())
    }

    /// Records how much of its partition a worker has read.
    pub async fn count_worker_run(&mut self, sync: Uuid, partition: &str, worker: &str) -> Result<(), Error> {
        on!(self, catalog::WORKER_RUN_COUNT, [SqlUuid(sync), partition, worker], execute, "count pages")?;
        Ok(())
    }

    /// Records that a partition was read completely.
    pub async fn complete_worker_run(
        &mut self,
        sync: Uuid,
        partition: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        on!(
            self,
            catalog::WORKER_RUN_END,
            [SqlUuid(sync), partition, "completed", None::<&str>, now],
            execute,
            "end a worker run"
        )?;
        Ok(())
    }
}

impl Store {
    /// Returns the partitions of a sync, by price.
    pub async fn partitions(&self, sync: Uuid) -> Result<Vec<Partition>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.partitions(sync).await })).await
    }
}
