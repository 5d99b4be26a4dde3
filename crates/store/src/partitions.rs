//! Partitions: how far each slice of a feed is, moved by compare-and-swap.

use crate::codec::{At, Bare, Columns, Doc};
use crate::tx::{FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use tidemill_core::feed::PriceRange;
use tidemill_core::records::Partition;
use tidemill_core::{Json, Timestamp};
use uuid::Uuid;

impl FromColumns for Partition {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            run_id: row.uuid("run_id")?,
            partition_id: row.text("partition_id")?,
            state: row.parsed("state")?,
            prices: PriceRange { from: row.long("price_from")?, to: row.long("price_to")? },
            updated_from: row.time_or_null("updated_from")?,
            predicted: row.long("predicted")?,
            next_offset: row.int("next_offset")?,
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

/// A partition to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewPartition<'a> {
    /// The sync.
    pub run_id: Uuid,
    /// Its name.
    pub partition: &'a str,
    /// Its prices.
    pub prices: PriceRange,
    /// Records that the scan counted.
    pub predicted: i64,
    /// What was updated since then is read; everything without it.
    pub updated_from: Option<Timestamp>,
    /// The gap that it covers.
    pub gap: Option<i64>,
}

/// What a step believes of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The sync.
    pub run_id: Uuid,
    /// The partition.
    pub partition: &'a str,
    /// Its next offset.
    pub offset: i32,
    /// Its pass.
    pub pass: i32,
}

/// What a page adds to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advance {
    /// Where the next page begins.
    pub(crate) next_offset: i32,
    /// How far the source's list has moved.
    pub(crate) shift: i32,
    /// Records that the source gave.
    pub(crate) fetched: i32,
    /// Records that were stored.
    pub(crate) stored: i32,
    /// Records that were new or different.
    pub(crate) changed: i32,
    /// Records that could not be stored.
    pub(crate) rejected: i32,
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
                Bare(new.run_id),
                new.partition,
                new.prices.from,
                new.prices.to,
                new.predicted,
                new.updated_from.map(At),
                new.gap,
                now,
            ],
            execute,
            "write a partition"
        )?;
        Ok(())
    }

    /// A partition.
    pub async fn partition(&mut self, sync: Uuid, partition: &str) -> Result<Option<Partition>, Error> {
        on!(self, catalog::PARTITION_GET, [Bare(sync), partition], fetch_optional, "read a partition")?
            .record("read a partition")
    }

    /// The partitions of a sync, by price.
    pub async fn partitions(&mut self, sync: Uuid) -> Result<Vec<Partition>, Error> {
        on!(self, catalog::PARTITION_LIST, [Bare(sync)], fetch_all, "list partitions")?
            .records("list partitions")
    }

    /// Moves a partition past a page. False: it was not where the caller believes.
    pub(crate) async fn advance_partition(
        &mut self,
        place: Place<'_>,
        by: Advance,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let moved = on!(
            self,
            catalog::PARTITION_ADVANCE,
            [
                Bare(place.run_id),
                place.partition,
                place.offset,
                place.pass,
                by.next_offset,
                by.shift,
                i64::from(by.fetched),
                i64::from(by.stored),
                i64::from(by.changed),
                i64::from(by.rejected),
                now,
            ],
            execute,
            "move a partition"
        )?;
        Ok(moved.count() > 0)
    }

    /// Notes that a worker has taken a partition's first page.
    pub async fn receive_partition(
        &mut self,
        sync: Uuid,
        partition: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let now = self.time(now);
        on!(self, catalog::PARTITION_RECEIVE, [Bare(sync), partition, now], execute, "take a partition")?;
        Ok(())
    }

    /// Completes a partition. False: it was not where the caller believes.
    pub async fn end_partition(
        &mut self,
        place: Place<'_>,
        recount: Option<i64>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        self.at_place(catalog::PARTITION_END, place, recount, now).await
    }

    /// Begins another pass over a partition. False: it was not where the caller believes.
    pub async fn repeat_partition(
        &mut self,
        place: Place<'_>,
        recount: Option<i64>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        self.at_place(catalog::PARTITION_AGAIN, place, recount, now).await
    }

    async fn at_place(
        &mut self,
        statement: catalog::Statement,
        place: Place<'_>,
        recount: Option<i64>,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let binds = (Bare(place.run_id), place.partition, place.offset, place.pass);
        let moved = on!(
            self,
            statement,
            [binds.0, binds.1, binds.2, binds.3, recount, now],
            execute,
            "move a partition"
        )?;
        Ok(moved.count() > 0)
    }

    /// Counts a fault of the current page; how many there are, or `None` where the partition has moved on.
    pub async fn fault_partition(
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
            [Bare(sync), partition, offset, error, now],
            fetch_optional,
            "note a fault"
        )?
        .record("note a fault")
    }

    /// Fails a partition that is open at this offset. False: it was not.
    pub async fn fail_partition(
        &mut self,
        sync: Uuid,
        partition: &str,
        offset: i32,
        error: &str,
        now: Option<Timestamp>,
    ) -> Result<bool, Error> {
        let now = self.time(now);
        let binds = (Bare(sync), partition, error);
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

    /// Fails every partition that is open; how many.
    pub async fn fail_open_partitions(
        &mut self,
        sync: Uuid,
        error: &str,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        let now = self.time(now);
        let failed =
            on!(self, catalog::PARTITION_FAIL_OPEN, [Bare(sync), error, now], execute, "fail partitions")?;
        on!(self, catalog::WORKER_RUN_END_ALL, [Bare(sync), error, now], execute, "fail partitions")?;
        Ok(failed.count())
    }

    /// Marks failed partitions to be read from their beginning when they are tried again; how many.
    pub async fn ask_restart(&mut self, sync: Uuid, partition: Option<&str>) -> Result<u64, Error> {
        let asked =
            on!(self, catalog::PARTITION_RESTART, [Bare(sync), partition], execute, "ask for a restart")?;
        Ok(asked.count())
    }

    /// Opens the failed partitions of a sync again; how many.
    pub async fn reopen_partitions(&mut self, sync: Uuid, now: Option<Timestamp>) -> Result<u64, Error> {
        let now = self.time(now);
        on!(self, catalog::PARTITION_FORGET, [Bare(sync)], execute, "forget pages")?;
        let opened = on!(self, catalog::PARTITION_REOPEN, [Bare(sync), now], execute, "reopen partitions")?;
        Ok(opened.count())
    }

    /// A partition with pages that are not in the canonical table, locked until the step ends.
    pub async fn open_partition(&mut self, sync: Uuid) -> Result<Option<Partition>, Error> {
        on!(self, catalog::PARTITION_OPEN, [Bare(sync)], fetch_optional, "find open pages")?
            .record("find open pages")
    }

    /// Notes up to where a partition's pages are in the canonical table. False: somebody else did.
    pub async fn consolidate_partition(
        &mut self,
        sync: Uuid,
        partition: &str,
        from: i32,
        to: i32,
        stones: i64,
        refused: i64,
    ) -> Result<bool, Error> {
        let moved = on!(
            self,
            catalog::PARTITION_CONSOLIDATED,
            [Bare(sync), partition, from, to, stones, refused],
            execute,
            "note pages"
        )?;
        Ok(moved.count() > 0)
    }

    /// Notes which worker reads a partition, and the message that told it to.
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
            [Bare(id), Bare(sync), partition, worker, Doc(message.clone()), now],
            execute,
            "begin a worker run"
        )?;
        Ok(())
    }

    /// Notes how much a worker has read of its partition.
    pub async fn count_worker_run(&mut self, sync: Uuid, partition: &str, worker: &str) -> Result<(), Error> {
        on!(self, catalog::WORKER_RUN_COUNT, [Bare(sync), partition, worker], execute, "count pages")?;
        Ok(())
    }

    /// Notes that a partition was read to its end.
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
            [Bare(sync), partition, "completed", None::<&str>, now],
            execute,
            "end a worker run"
        )?;
        Ok(())
    }
}

impl Store {
    /// The partitions of a sync, by price.
    pub async fn partitions(&self, sync: Uuid) -> Result<Vec<Partition>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.partitions(sync).await })).await
    }
}
