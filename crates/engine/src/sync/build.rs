//! Builds rows from open records: maps them, prices diamonds, and writes them to the table of the feed.

use super::consolidate::{ConsolidationContext, WriteCounts};
use super::ledger::Outcomes;
use super::lost_columns::AbsentColumns;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use tidemill_core::Timestamp;
use tidemill_core::event::Level;
use tidemill_core::feed_definition::ColumnValue;
use tidemill_core::feed_definition::target::ContractMode;
use tidemill_core::limits::READ_BYTES_MAX;
use tidemill_core::records::Stage;
use tidemill_core::sync_ledger::ListedOutcome;
use tidemill_feeds::rest::{ContractRow, MappedRow, Verdict, apply_contract};
use tidemill_feeds::{MapError, MappedRecord};
use tidemill_store::{Error, NewReject, OpenRecord, PricedDiamond, RefusalCode, TargetRow, Tx};

/// New keys of the source that one sync reports at most.
const NEW_KEYS_MAX: usize = 50;

type MappingResult = (OpenRecord, Result<MappedRecord, MapError>);

/// A row that is ready to be written.
pub(super) enum BuiltRow {
    Diamond(Box<PricedDiamond>),
    /// A row, and the optional columns whose field is absent from the record.
    Row(TargetRow, Vec<String>),
    Deleted(TargetRow),
}

/// Why a record has no row.
pub(super) enum BuildError {
    /// The record is rejected with a reason.
    Reject(String),
    /// The schema contract fails the sync.
    Freeze(String),
}

/// Records that were rejected.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) rejects: Vec<NewReject>,
    /// Those of them whose row a unique key refused.
    unique: Vec<String>,
}

impl ConsolidationContext {
    /// Maps, prices and writes the open records, in portions of limited size.
    pub(super) async fn write_open(
        &self,
        tx: &mut Tx<'_>,
        records: Vec<String>,
        partition: Option<&str>,
        upsert: usize,
        now: Option<Timestamp>,
    ) -> Result<WriteCounts, Error> {
        tx.hold_table(&self.tables).await?;
        let mut written = WriteCounts::default();
        let mut refused = BTreeSet::new();
        let mut outcomes = Outcomes::new();
        let mut left = records.clone();
        while !left.is_empty() {
            let open = tx.open_records(&self.tables, left, self.built, READ_BYTES_MAX).await?;
            written.bytes += open.bytes;
            left = open.left;
            let (mut diamonds, mut rows, mut refusals) = (Vec::new(), Vec::new(), Refusals::default());
            let mut absent = AbsentColumns::default();
            for (record, mapped) in self.map_all(open.read).await? {
                match self.build(&record, mapped) {
                    Ok(BuiltRow::Diamond(diamond)) => diamonds.push(*diamond),
                    Ok(BuiltRow::Row(row, missing)) => {
                        absent.add(missing);
                        rows.push(row);
                    }
                    Ok(BuiltRow::Deleted(row)) => rows.push(row),
                    Err(BuildError::Reject(reason)) => refusals.rejects.push(NewReject {
                        record_id: record.record_id,
                        stage: Stage::Map,
                        reason,
                        payload: record.payload,
                    }),
                    Err(BuildError::Freeze(reason)) => {
                        let message =
                            format!("record `{}` does not fit the table: {reason}", record.record_id);
                        return Err(Error::refused(RefusalCode::BadValue, message));
                    }
                }
            }
            self.keep_lost_columns(tx, absent, &mut rows, &mut refusals.rejects, now).await?;
            let flagged = self.flagged_with_rows(tx, &rows).await?;
            for chunk in diamonds.chunks(upsert.max(1)) {
                self.write_rows(tx, Rows::Diamonds(chunk), &mut refusals, now).await?;
            }
            for chunk in rows.chunks(upsert.max(1)) {
                self.write_rows(tx, Rows::Target(chunk), &mut refusals, now).await?;
            }
            let Refusals { rejects, unique } = refusals;
            for reject in &rejects {
                tx.reject(&self.tables.feed, self.sync, partition, reject, now).await?;
            }
            written.moved += unique.len();
            if !unique.is_empty() {
                tx.mark_unique_refusals(&self.tables.feed, unique).await?;
            }
            let stones = diamonds.into_iter().map(|diamond| (diamond.stone.stone_id, ListedOutcome::Stored));
            outcomes.extend(stones.chain(rows.into_iter().map(row_outcome)).map(|(id, of)| (id, Some(of))));
            for NewReject { record_id, stage, .. } in rejects {
                outcomes.insert(record_id.clone(), Some(ListedOutcome::Rejected(stage)));
                refused.insert(record_id);
            }
            written.deleted_by_flag += flagged.difference(&refused).count();
        }
        self.report_new_keys(tx, now).await?;
        if !self.sync.is_nil() {
            self.complete_outcomes(tx, &records, &mut outcomes).await?;
            written.outcomes = outcomes;
        }
        // This includes records that were not open: a record that reverted to its stored state needs no write.
        let accepted: Vec<String> = records.into_iter().filter(|id| !refused.contains(id)).collect();
        if !accepted.is_empty() {
            let seen_by = (!self.sync.is_nil()).then_some(self.sync);
            tx.accept(&self.tables.feed, accepted, seen_by).await?;
        }
        written.rejected = refused.len();
        Ok(written)
    }

    /// Maps records outside the threads of the runtime, because expressions may take long over large records.
    pub(super) async fn map_all(&self, records: Vec<OpenRecord>) -> Result<Vec<MappingResult>, Error> {
        let source = self.source.clone();
        let map = move || {
            let mapped = records.into_iter().map(|record| {
                let mapped = source.map(&record.payload);
                (record, mapped)
            });
            mapped.collect()
        };
        let failed =
            |error| Error::refused(RefusalCode::BadValue, format!("the records were not mapped: {error}"));
        tokio::task::spawn_blocking(map).await.map_err(failed)
    }

    pub(super) fn build(
        &self,
        record: &OpenRecord,
        mapped: Result<MappedRecord, MapError>,
    ) -> Result<BuiltRow, BuildError> {
        match mapped.map_err(|error| BuildError::Reject(error.to_string()))? {
            MappedRecord::Diamond(mut stone) => {
                stone.stone_id.clone_from(&record.record_id);
                let priced = self.rules.price(&self.tables.feed, &stone);
                let payload_hash = record.payload_hash.clone();
                Ok(BuiltRow::Diamond(Box::new(PricedDiamond { stone: *stone, priced, payload_hash })))
            }
            MappedRecord::Row(mut row) => {
                self.leave_out(&mut row);
                let absent = std::mem::take(&mut row.absent);
                self.fit(row).map(|values| BuiltRow::Row(target_row(record, values, false), absent))
            }
            MappedRecord::Deleted(mut row) => {
                self.leave_out(&mut row);
                Ok(BuiltRow::Deleted(target_row(record, row.values, true)))
            }
        }
    }

    /// Removes the columns that the user's table lacks, if the contract discards values. Under another contract the
    /// sync has not begun.
    fn leave_out(&self, row: &mut MappedRow) {
        let (Some(definition), Some(table)) = (self.source.definition(), &self.tables.target) else { return };
        if definition.into.schema_contract.columns != ContractMode::DiscardValue {
            return;
        }
        row.values.retain(|(name, _)| table.column(name).is_some());
        row.absent.retain(|name| table.column(name).is_some());
        row.errors.retain(|error| table.column(error.column()).is_some());
    }

    /// Applies the contract of the table to a mapped record.
    fn fit(&self, row: MappedRow) -> Result<Vec<(String, ColumnValue)>, BuildError> {
        let Some(definition) = self.source.definition() else { return Ok(row.values) };
        match apply_contract(&definition.into, self.columns_are_inferred, row) {
            Verdict::Row(ContractRow { values, new_keys }) => {
                let mut known = self.new_keys.lock().unwrap_or_else(PoisonError::into_inner);
                let room = NEW_KEYS_MAX.saturating_sub(known.found.len());
                known.found.extend(new_keys.into_iter().take(room));
                Ok(values)
            }
            Verdict::Reject(reason) => Err(BuildError::Reject(reason)),
            Verdict::Freeze(reason) => Err(BuildError::Freeze(reason)),
        }
    }

    /// Adds an event to the run of the sync if the source has new fields. Each process reports a field once per sync.
    async fn report_new_keys(&self, tx: &mut Tx<'_>, now: Option<Timestamp>) -> Result<(), Error> {
        let new: Vec<String> = {
            let mut known = self.new_keys.lock().unwrap_or_else(PoisonError::into_inner);
            let new: Vec<String> = known.found.difference(&known.reported).cloned().collect();
            known.reported.extend(new.iter().cloned());
            new
        };
        if new.is_empty() || self.sync.is_nil() {
            return Ok(());
        }
        let Some(sync) = tx.sync(self.sync).await? else { return Ok(()) };
        let text = format!(
            "the source has fields without a column: {}; apply the unchanged definition again to add columns",
            new.join(", ")
        );
        super::plan::record_event(tx, &sync, Level::Warn, &text, now).await
    }

    /// Writes rows. If the database refuses one, it is found by bisection and rejected, and the rest is written.
    pub(super) async fn write_rows(
        &self,
        tx: &mut Tx<'_>,
        rows: Rows<'_>,
        refusals: &mut Refusals,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let mut spans = vec![(0, rows.len())];
        while let Some((from, to)) = spans.pop() {
            tx.savepoint().await?;
            let written = match rows {
                Rows::Diamonds(all) => {
                    tx.upsert_diamonds(&self.tables.feed, &all[from..to], self.built, now).await
                }
                Rows::Target(all) => tx.upsert_rows(&self.tables, &all[from..to], self.built, now).await,
            };
            match written {
                Ok(_) => tx.release_savepoint().await?,
                Err(error) if error.is_bad_value() => {
                    tx.rollback_to_savepoint().await?;
                    if to - from == 1 {
                        let mut reject = rows.reject(from, &error);
                        if reject.stage == Stage::Delete {
                            reject.reason = tx.describe_refusal(&self.tables, &error).await?;
                        }
                        if self.tables.target.is_some() && error.is_unique_violation() {
                            refusals.unique.push(reject.record_id.clone());
                        }
                        refusals.rejects.push(reject);
                    } else {
                        let middle = from.midpoint(to);
                        spans.extend([(middle, to), (from, middle)]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Rows of one table.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Diamonds(&'a [PricedDiamond]),
    Target(&'a [TargetRow]),
}

impl Rows<'_> {
    const fn len(self) -> usize {
        match self {
            Self::Diamonds(all) => all.len(),
            Self::Target(all) => all.len(),
        }
    }

    /// Describes a row that the database refused.
    fn reject(self, index: usize, error: &Error) -> NewReject {
        let (record_id, payload, stage) = match self {
            Self::Diamonds(all) => {
                let stone = &all[index].stone;
                (stone.stone_id.clone(), serde_json::to_string(stone).unwrap_or_default(), Stage::Upsert)
            }
            Self::Target(all) => {
                let row = &all[index];
                let stage = if row.is_deleted { Stage::Delete } else { Stage::Upsert };
                (row.record_id.clone(), format!("{:?}", row.values), stage)
            }
        };
        NewReject { record_id, stage, reason: error.reason(), payload }
    }
}

/// Returns the outcome of a record whose row was written.
fn row_outcome(row: TargetRow) -> (String, ListedOutcome) {
    (row.record_id, if row.is_deleted { ListedOutcome::Flagged } else { ListedOutcome::Stored })
}

fn target_row(record: &OpenRecord, values: Vec<(String, ColumnValue)>, is_deleted: bool) -> TargetRow {
    TargetRow {
        record_id: record.record_id.clone(),
        payload_hash: record.payload_hash.clone(),
        values,
        is_deleted,
    }
}
