//! Columns that the source no longer fills. Their values are not overwritten with NULL: the schema contract decides
//! whether the sync fails, the records are rejected, or the rows keep their values.

use super::consolidate::ConsolidationContext;
use super::plan::record_event;
use std::collections::BTreeSet;
use std::sync::PoisonError;
use tidemill_core::Timestamp;
use tidemill_core::event::Level;
use tidemill_core::feed_definition::lost_column::ColumnUse;
use tidemill_core::feed_definition::target::ContractMode;
use tidemill_core::feed_definition::{ColumnSource, Target};
use tidemill_core::records::Stage;
use tidemill_store::{Error, NewReject, RefusalCode, TargetRow, Tx};

/// The columns whose field is absent from all records of a batch.
#[derive(Debug, Default)]
pub(super) struct AbsentColumns(Option<BTreeSet<String>>);

impl AbsentColumns {
    /// Adds a record with the columns whose field it lacks.
    pub(super) fn add(&mut self, absent: Vec<String>) {
        let absent: BTreeSet<String> = absent.into_iter().collect();
        match &mut self.0 {
            None => self.0 = Some(absent),
            Some(known) => known.retain(|column| absent.contains(column)),
        }
    }
}

impl ConsolidationContext {
    /// Applies the schema contract to columns that the source no longer fills.
    pub(super) async fn keep_lost_columns(
        &self,
        tx: &mut Tx<'_>,
        absent: AbsentColumns,
        rows: &mut Vec<TargetRow>,
        rejects: &mut Vec<NewReject>,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let (Some(definition), AbsentColumns(Some(absent))) = (self.source.definition(), absent) else {
            return Ok(());
        };
        let into = &definition.into;
        for column in absent.into_iter().filter(|column| !into.primary_key.contains(column)) {
            let live: Vec<TargetRow> = rows.iter().filter(|row| !row.is_deleted).cloned().collect();
            let found = tx.column_use(&self.tables, &live, &column).await?;
            if !found.is_lost() {
                continue;
            }
            let reason = describe(into, &column, live.len(), found);
            match into.schema_contract.columns {
                ContractMode::Evolve | ContractMode::Freeze => {
                    return Err(Error::refused(RefusalCode::BadValue, reason));
                }
                ContractMode::DiscardRow => {
                    let (deleted, live) = std::mem::take(rows).into_iter().partition(|row| row.is_deleted);
                    *rows = deleted;
                    rejects.extend(live.into_iter().map(|row: TargetRow| NewReject {
                        record_id: row.record_id,
                        stage: Stage::Map,
                        reason: reason.clone(),
                        payload: format!("{:?}", row.values),
                    }));
                    return Ok(());
                }
                ContractMode::DiscardValue => {
                    for row in rows.iter_mut() {
                        row.values.retain(|(name, _)| *name != column);
                    }
                    self.report_lost(tx, column, &reason, now).await?;
                }
            }
        }
        Ok(())
    }

    /// Adds an event to the run of the sync. Each process reports a column once per sync.
    async fn report_lost(
        &self,
        tx: &mut Tx<'_>,
        column: String,
        reason: &str,
        now: Option<Timestamp>,
    ) -> Result<(), Error> {
        let is_new = self.new_keys.lock().unwrap_or_else(PoisonError::into_inner).lost.insert(column);
        if !is_new || self.sync.is_nil() {
            return Ok(());
        }
        let Some(sync) = tx.sync(self.sync).await? else { return Ok(()) };
        record_event(tx, &sync, Level::Warn, reason, now).await
    }
}

fn describe(into: &Target, column: &str, records: usize, found: ColumnUse) -> String {
    let source = into.columns.iter().find(|known| known.name == column).map(|known| &known.source);
    let field = match source {
        Some(ColumnSource::Path(path)) => path.to_string(),
        Some(ColumnSource::Cel(_) | ColumnSource::Constant(_)) | None => column.to_owned(),
    };
    let ColumnUse { sample, sample_filled, .. } = found;
    format!(
        "the source no longer sends `{field}`: none of {records} changed records has it, and {sample_filled} of \
         {sample} rows of `{}` have a value in `{column}`, which was not overwritten; correct the path of `{column}` \
         in the definition, or remove the column if the field is gone",
        into.table
    )
}
