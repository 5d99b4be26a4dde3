//! Writes rows again that a unique key refused, after the deletes of a sync and at the end of a rebuild.
//!
//! A value of a unique column can move from one row to another, for example if two rows swap it. Row by row, the
//! database refuses it. Here all of these rows are written in one transaction, in which their unique values are first
//! released. A row that is still refused stays rejected and as it was.

use super::Syncs;
use super::build::{BuiltRow, Refusals};
use super::consolidate::{ConsolidationContext, IDLE_SECS, LOCK_WAIT_SECS};
use std::collections::{BTreeMap, BTreeSet};
use tidemill_core::Timestamp;
use tidemill_core::feed::RunType;
use tidemill_core::feed_definition::target::ContractMode;
use tidemill_core::limits::{READ_BYTES_MAX, UNIQUE_ROWS_MAX};
use tidemill_core::sync::SyncState;
use tidemill_store::{Error, TargetRow, Tx, UniqueKeys, UniqueRefusal};

/// Most attempts to write the rows of one call. Each leaves out the rows that the one before could not write, because
/// they keep their old values.
const ATTEMPTS_MAX: usize = 8;

/// Number of rows that a unique key had refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MovedCounts {
    /// Rows that were written now.
    pub(super) written: u64,
    /// Rows that are still rejected.
    pub(super) left: u64,
}

impl Syncs {
    /// Writes the rows again that a unique key refused.
    pub(super) async fn write_moved(&self, context: &ConsolidationContext) -> Result<MovedCounts, Error> {
        if context.tables.target.is_none() {
            return Ok(MovedCounts::default());
        }
        let (context, now, upsert) = (context.clone(), self.now(), self.settings.upsert);
        let write = self.engine.store().write(move |mut tx| {
            Box::pin(async move {
                tx.limit_idle(IDLE_SECS).await?;
                tx.limit_locks(LOCK_WAIT_SECS).await?;
                tx.skip_audit();
                let feed = context.tables.feed.clone();
                let mut of_run = None;
                if context.sync.is_nil() {
                    tx.lock_feed(&feed).await?;
                } else {
                    let locked = tx.lock_sync(context.sync).await?;
                    let Some(sync) = locked.filter(|sync| sync.state == SyncState::Consolidating) else {
                        return Ok(MovedCounts::default());
                    };
                    // A full sync lists all records of the source: others must not get a row.
                    of_run = (sync.run_type == RunType::Full).then_some(sync.run_id);
                }
                let refused = tx.unique_refusals(&feed, of_run, UNIQUE_ROWS_MAX).await?;
                let written = context.write_group(&mut tx, refused, upsert, now).await?;
                let left = tx.count_unique_refusals(&feed).await?;
                Ok(MovedCounts { written, left: left.unsigned_abs() })
            })
        });
        write.await
    }
}

impl ConsolidationContext {
    /// Writes the rows of these records together, and returns how many were written.
    async fn write_group(
        &self,
        tx: &mut Tx<'_>,
        refused: Vec<UniqueRefusal>,
        upsert: usize,
        now: Option<Timestamp>,
    ) -> Result<u64, Error> {
        if refused.is_empty() {
            return Ok(0);
        }
        tx.hold_table(&self.tables).await?;
        let records = refused.iter().map(|refusal| refusal.record_id.clone()).collect();
        let mut rows = self.rows_of(tx, records, now).await?;
        let keys = tx.unique_keys(&self.tables, &rows).await?;
        for _ in 0..ATTEMPTS_MAX {
            if rows.is_empty() {
                break;
            }
            tx.savepoint().await?;
            let stuck = self.try_write(tx, &keys, &rows, upsert, now).await?;
            if stuck.is_empty() {
                tx.release_savepoint().await?;
                break;
            }
            tx.rollback_to_savepoint().await?;
            rows.retain(|row| !stuck.contains(&row.record_id));
        }
        let written: BTreeSet<&str> = rows.iter().map(|row| row.record_id.as_str()).collect();
        self.settle(tx, &refused, &written, &keys).await?;
        Ok(written.len() as u64)
    }

    /// Builds the rows of records that are not written yet.
    async fn rows_of(
        &self,
        tx: &mut Tx<'_>,
        records: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<Vec<TargetRow>, Error> {
        let open = tx.open_records(&self.tables, records, self.built, READ_BYTES_MAX).await?;
        let (mut rows, mut absent) = (Vec::new(), super::lost_columns::AbsentColumns::default());
        for (record, mapped) in self.map_all(open.read).await? {
            if let Ok(BuiltRow::Row(row, missing)) = self.build(&record, mapped) {
                absent.add(missing);
                rows.push(row);
            }
        }
        // Under the other contracts, a lost column has failed the sync or rejected its records.
        let contract = self.source.definition().map(|definition| definition.into.schema_contract.columns);
        if contract == Some(ContractMode::DiscardValue) {
            self.keep_lost_columns(tx, absent, &mut rows, &mut Vec::new(), now).await?;
        }
        Ok(rows)
    }

    /// Writes rows after their unique values were released. Returns the records whose rows cannot be written; then the
    /// caller rolls back to its savepoint.
    async fn try_write(
        &self,
        tx: &mut Tx<'_>,
        keys: &UniqueKeys,
        rows: &[TargetRow],
        upsert: usize,
        now: Option<Timestamp>,
    ) -> Result<BTreeSet<String>, Error> {
        let all = || rows.iter().map(|row| row.record_id.clone()).collect();
        match tx.release_unique(&self.tables, keys, rows).await {
            Ok(()) => {}
            Err(error) if error.is_bad_value() => return Ok(all()),
            Err(error) => return Err(error),
        }
        let mut refusals = Refusals::default();
        for chunk in rows.chunks(upsert.max(1)) {
            self.write_rows(tx, super::build::Rows::Target(chunk), &mut refusals, now).await?;
        }
        let mut stuck: BTreeSet<String> =
            refusals.rejects.into_iter().map(|reject| reject.record_id).collect();
        match tx.check_deferred(&self.tables, keys, rows).await {
            Ok(places) => stuck.extend(places.into_iter().map(|place| rows[place].record_id.clone())),
            Err(error) if error.is_bad_value() => return Ok(all()),
            Err(error) => return Err(error),
        }
        Ok(stuck)
    }

    /// Removes the rejections of the written rows, also from the counts of the sync, and says in the others what helps.
    async fn settle(
        &self,
        tx: &mut Tx<'_>,
        refused: &[UniqueRefusal],
        written: &BTreeSet<&str>,
        keys: &UniqueKeys,
    ) -> Result<(), Error> {
        let mut partitions: BTreeMap<&str, i64> = BTreeMap::new();
        let (mut accepted, mut left) = (Vec::new(), Vec::new());
        for refusal in refused {
            let list = if written.contains(refusal.record_id.as_str()) { &mut accepted } else { &mut left };
            list.push(refusal.record_id.clone());
            if written.contains(refusal.record_id.as_str())
                && refusal.run_id == self.sync
                && let Some(partition) = &refusal.partition_id
            {
                *partitions.entry(partition).or_default() += 1;
            }
        }
        for (partition, count) in partitions {
            tx.lower_refused(self.sync, partition, count).await?;
        }
        if !accepted.is_empty() {
            let seen_by = (!self.sync.is_nil()).then_some(self.sync);
            tx.accept(&self.tables.feed, accepted, seen_by).await?;
        }
        if let Some(advice) = keys.advice()
            && !left.is_empty()
        {
            tx.add_advice(&self.tables.feed, left, &advice).await?;
        }
        Ok(())
    }
}
