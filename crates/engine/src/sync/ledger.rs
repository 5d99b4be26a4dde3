//! The ledger of a sync: counts the outcome of each listed record per batch, and closes the ledger with the sync.

use super::Syncs;
use super::consolidate::ConsolidationContext;
use super::plan::record_event;
use std::collections::{BTreeSet, HashMap};
use tidemill_core::Timestamp;
use tidemill_core::alert::{AlertKind, feed_subject};
use tidemill_core::event::Level;
use tidemill_core::feed_definition::target::WriteDisposition;
use tidemill_core::records::{RecordState, Sync};
use tidemill_core::sync_ledger::{ListedOutcome, SyncLedger};
use tidemill_store::{Error, TargetRow, Tx};

/// The reaction to a ledger that does not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerCheck {
    /// An alert is raised, and the sync completes.
    Alerts,
    /// The consolidation panics, so that a test fails.
    Panics,
}

/// Outcomes of records that were not found up to date. `None` stands for a record without an outcome.
pub(super) type Outcomes = HashMap<String, Option<ListedOutcome>>;

/// Returns the ledger of a batch: of its records, and of their repeats on its pages.
pub(super) fn batch_ledger(records: &BTreeSet<String>, repeats: &[String], known: &Outcomes) -> SyncLedger {
    let mut ledger = SyncLedger::default();
    for id in records {
        if let Some(outcome) = known.get(id).copied().unwrap_or(Some(ListedOutcome::Unchanged)) {
            ledger.add(outcome, 1);
        }
    }
    for id in repeats {
        // The row of a stored record is up to date when its repeat is read.
        let outcome = match known.get(id) {
            Some(None) => continue,
            Some(Some(outcome @ (ListedOutcome::Flagged | ListedOutcome::Rejected(_)))) => *outcome,
            Some(Some(ListedOutcome::Stored | ListedOutcome::Unchanged)) | None => ListedOutcome::Unchanged,
        };
        ledger.add(outcome, 1);
    }
    ledger
}

impl ConsolidationContext {
    /// Adds the outcomes of the records that were not written: rejected by the page reader, up to date, or unknown.
    pub(super) async fn complete_outcomes(
        &self,
        tx: &mut Tx<'_>,
        records: &[String],
        outcomes: &mut Outcomes,
    ) -> Result<(), Error> {
        for (id, stage) in tx.reader_rejects(&self.tables.feed, self.sync, records).await? {
            // The mapper or the table may have rejected an earlier version of the record.
            let known = outcomes.entry(id).or_insert(None);
            if !matches!(known, Some(ListedOutcome::Rejected(_))) {
                *known = Some(ListedOutcome::Rejected(stage));
            }
        }
        let kept: Vec<String> = records.iter().filter(|id| !outcomes.contains_key(*id)).cloned().collect();
        if kept.is_empty() {
            return Ok(());
        }
        for (id, state) in tx.records_not_active(&self.tables, kept).await? {
            let is_flagged = state == Some(RecordState::Deleted);
            outcomes.insert(id, is_flagged.then_some(ListedOutcome::Flagged));
        }
        Ok(())
    }

    /// Returns the flagged records among these rows that have a row, which the table will delete.
    pub(super) async fn flagged_with_rows(
        &self,
        tx: &mut Tx<'_>,
        rows: &[TargetRow],
    ) -> Result<BTreeSet<String>, Error> {
        let mut flagged: BTreeSet<String> =
            rows.iter().filter(|row| row.is_deleted).map(|row| row.record_id.clone()).collect();
        let definition = self.source.definition();
        let is_appended =
            definition.is_some_and(|known| known.into.write_disposition == WriteDisposition::Append);
        if flagged.is_empty() || is_appended {
            return Ok(BTreeSet::new());
        }
        for id in tx.records_not_active(&self.tables, flagged.iter().cloned().collect()).await?.keys() {
            flagged.remove(id);
        }
        Ok(flagged)
    }
}

impl Syncs {
    /// Returns the ledger of a consolidated sync.
    pub(super) async fn closed_ledger(&self, sync: &Sync) -> Result<SyncLedger, Error> {
        let ledger = self.engine.store().sync_ledger(&sync.feed, sync.run_id).await?;
        if self.settings.ledger_check == LedgerCheck::Panics {
            assert!(ledger.difference() == 0, "the ledger of sync {} does not add up: {ledger}", sync.run_id);
        }
        Ok(ledger)
    }
}

/// Raises or resolves the alerts of a completed sync about its ledger.
pub(super) async fn alert_ledger(
    tx: &mut Tx<'_>,
    sync: &Sync,
    ledger: &SyncLedger,
    now: Option<Timestamp>,
) -> Result<(), Error> {
    let (feed, run) = (&sync.feed, Some(&sync.ops_run_id));
    let difference = ledger.difference();
    for (kind, is_raised, what) in [
        (AlertKind::RecordsRejected, ledger.rejected_total() > 0, "rejected records"),
        (AlertKind::LedgerDifference, difference != 0, "could not account for all records"),
    ] {
        if is_raised {
            let text = format!("sync {} of feed {feed} {what}: {ledger}", sync.run_id);
            tx.alert_feed(kind, feed, run, &text, now).await?;
        } else {
            tx.resolve_alert(kind, &feed_subject(feed), now).await?;
        }
    }
    if difference != 0 {
        let text = format!("the outcomes of {} records are unknown: {ledger}", difference.abs());
        tracing::error!(sync.id = %sync.run_id, feed, "{text}");
        record_event(tx, sync, Level::Error, &text, now).await?;
    }
    Ok(())
}
