//! The ledger of a sync: the outcome of each record that the source listed.
//!
//! A record on a page counts as listed. The records with which a page overlaps the previous one do not count again: the
//! reader requested them, the source did not repeat them. Each listed record has one outcome, so the outcomes sum up to
//! the listed records. Each outcome is counted where it happens, and none is computed from the others, so that a
//! difference shows a record that was lost or counted twice.

use crate::records::Stage;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

/// The outcome of a listed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedOutcome {
    /// Its row was written: the record is new or changed, or the mapping has changed.
    Stored,
    /// Its row was up to date.
    Unchanged,
    /// The record says that it is deleted.
    Flagged,
    /// The record was rejected in this stage, and has no row of this version.
    Rejected(Stage),
}

/// Numbers of listed records by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct SyncLedger {
    /// Number of records on the pages of the source, without the overlap of two pages.
    pub listed: i64,
    /// Number of records whose rows were written.
    pub stored: i64,
    /// Number of records whose rows were up to date.
    pub unchanged: i64,
    /// Number of records that are flagged as deleted, whether they had a row or not.
    pub flagged: i64,
    /// Number of rejected records, by the stage that rejected them.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, i64>"))]
    pub rejected: BTreeMap<Stage, i64>,
    /// Number of times that the source listed a record again in the same sync.
    pub repeats: i64,
    /// Number of rows that the sync deleted because their records are flagged. It is no part of the sum: the records
    /// are among the flagged ones.
    pub deleted_by_flag: i64,
}

impl SyncLedger {
    /// Returns the number of rejected records.
    pub fn rejected_total(&self) -> i64 {
        self.rejected.values().sum()
    }

    /// Returns the number of listed records whose outcome is unknown. A negative number means that some were counted
    /// twice.
    pub fn difference(&self) -> i64 {
        let outcomes = self.stored + self.unchanged + self.flagged + self.rejected_total() + self.repeats;
        self.listed - outcomes
    }

    /// Adds records with an outcome.
    pub fn add(&mut self, outcome: ListedOutcome, records: i64) {
        *self.part(outcome) += records;
    }

    /// Adds the numbers of another ledger.
    pub fn merge(&mut self, other: &Self) {
        let Self { listed, stored, unchanged, flagged, rejected, repeats, deleted_by_flag } = other;
        self.listed += listed;
        self.stored += stored;
        self.unchanged += unchanged;
        self.flagged += flagged;
        for (stage, records) in rejected {
            self.add(ListedOutcome::Rejected(*stage), *records);
        }
        self.repeats += repeats;
        self.deleted_by_flag += deleted_by_flag;
    }

    /// Moves the repeats of records from the last outcome of these records to the repeats.
    ///
    /// Consolidation finds a repeated record up to date, unless the record is rejected or flagged.
    pub fn settle_repeats(&mut self, last: ListedOutcome, repeats: i64) {
        let mut left = repeats;
        for outcome in [last, ListedOutcome::Unchanged, ListedOutcome::Stored] {
            let part = self.part(outcome);
            let moved = left.min(*part).max(0);
            *part -= moved;
            left -= moved;
            self.repeats += moved;
        }
        self.tidy();
    }

    /// Moves rejected records to the stored ones if a later attempt wrote their rows. `standing` has the records that
    /// are still rejected, by stage.
    pub fn settle_resolved(&mut self, standing: &BTreeMap<Stage, i64>) {
        for (stage, records) in &mut self.rejected {
            // The reader does not try again: a record of these stages is read again by the next sync.
            if matches!(stage, Stage::Fetch | Stage::Store) {
                continue;
            }
            let resolved = (*records - standing.get(stage).copied().unwrap_or(0)).max(0);
            *records -= resolved;
            self.stored += resolved;
        }
        self.tidy();
    }

    fn part(&mut self, outcome: ListedOutcome) -> &mut i64 {
        match outcome {
            ListedOutcome::Stored => &mut self.stored,
            ListedOutcome::Unchanged => &mut self.unchanged,
            ListedOutcome::Flagged => &mut self.flagged,
            ListedOutcome::Rejected(stage) => self.rejected.entry(stage).or_default(),
        }
    }

    fn tidy(&mut self) {
        self.rejected.retain(|_, records| *records != 0);
    }

    /// Returns the outcomes as text, each with its number. `open` names the records without an outcome.
    fn text(&self, open: &str) -> String {
        let records = if self.listed == 1 { "record" } else { "records" };
        let stages: Vec<String> =
            self.rejected.iter().map(|(stage, records)| format!("{stage} {records}")).collect();
        let rejected = format!("rejected ({})", stages.join(", "));
        let difference = self.difference();
        let parts: Vec<String> = [
            (self.stored, "stored"),
            (self.unchanged, "unchanged"),
            (self.flagged, "flagged as deleted"),
            (self.rejected_total(), rejected.as_str()),
            (self.repeats, if self.repeats == 1 { "repeat" } else { "repeats" }),
            (difference.max(0), open),
            (-difference.min(0), "counted twice"),
        ]
        .into_iter()
        .filter(|(count, _)| *count != 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        let colon = if parts.is_empty() { "" } else { ": " };
        format!("{} {records} listed{colon}{}", self.listed, parts.join(", "))
    }
}

impl fmt::Display for SyncLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text("without an outcome"))
    }
}

/// The rows that a sync deleted, and those that it kept although their records were not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeletedRows {
    /// Number of deleted rows, of flagged and of absent records.
    pub deleted: i64,
    /// Number of rows that were kept, because nothing proved that their records are absent.
    pub absent_kept: i64,
}

/// Whether the outcomes of a ledger are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerState {
    /// The sync is completed, so every record has its outcome.
    Final,
    /// Some records may still wait for consolidation.
    Running,
}

/// Returns the figures of a sync as one sentence, such as
/// `4 records listed: 1 stored, 3 rejected (fetch 3); 2 rows deleted (absent 2)`.
pub fn summary(ledger: &SyncLedger, state: LedgerState, rows: DeletedRows) -> String {
    let mut text = match state {
        LedgerState::Final => ledger.to_string(),
        LedgerState::Running => ledger.text("not consolidated"),
    };
    let noun = |count| if count == 1 { "row" } else { "rows" };
    let DeletedRows { deleted, absent_kept } = rows;
    if deleted != 0 {
        let flagged = ledger.deleted_by_flag;
        let absent = deleted - flagged;
        let causes: Vec<String> = [("flagged", flagged), ("absent", absent)]
            .into_iter()
            .filter(|(_, count)| *count != 0)
            .map(|(cause, count)| format!("{cause} {count}"))
            .collect();
        let _ = write!(text, "; {deleted} {} deleted ({})", noun(deleted), causes.join(", "));
    }
    if absent_kept != 0 {
        let _ = write!(text, "; {absent_kept} {} of absent records kept", noun(absent_kept));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ListedOutcome::{Flagged, Rejected, Stored, Unchanged};

    fn ledger(listed: i64, outcomes: &[(ListedOutcome, i64)]) -> SyncLedger {
        let mut ledger = SyncLedger { listed, ..SyncLedger::default() };
        for (outcome, records) in outcomes {
            ledger.add(*outcome, *records);
        }
        ledger
    }

    #[test]
    fn difference_is_what_no_outcome_explains() {
        let outcomes = [(Stored, 1), (Unchanged, 2), (Flagged, 3), (Rejected(Stage::Map), 4)];
        assert_eq!(ledger(10, &outcomes).difference(), 0);
        assert_eq!(ledger(12, &outcomes).difference(), 2);
        assert_eq!(ledger(9, &outcomes).difference(), -1);
    }

    #[test]
    fn repeats_leave_the_outcome_of_their_record() {
        let fetch = Rejected(Stage::Fetch);
        let mut sum = ledger(14, &[(Stored, 5), (Unchanged, 5), (fetch, 2), (Flagged, 2)]);
        sum.settle_repeats(Unchanged, 5);
        sum.settle_repeats(fetch, 1);
        sum.settle_repeats(Flagged, 1);
        assert_eq!((sum.stored, sum.unchanged, sum.flagged, sum.repeats), (5, 0, 1, 7));
        assert_eq!((sum.rejected[&Stage::Fetch], sum.difference()), (1, 0));
        // A record that was stored twice, because it changed between two consolidations.
        sum.settle_repeats(Unchanged, 1);
        assert_eq!((sum.stored, sum.repeats, sum.difference()), (4, 8, 0));
    }

    #[test]
    fn resolved_rejects_count_as_stored() {
        let outcomes = [(Stored, 1), (Rejected(Stage::Upsert), 3), (Rejected(Stage::Fetch), 2)];
        let mut sum = ledger(6, &outcomes);
        sum.settle_resolved(&BTreeMap::from([(Stage::Upsert, 1)]));
        assert_eq!((sum.stored, sum.difference()), (3, 0));
        assert_eq!(sum.rejected, BTreeMap::from([(Stage::Upsert, 1), (Stage::Fetch, 2)]));
    }

    #[test]
    fn merged_ledger_has_the_sums_of_both() {
        let mut sum = ledger(3, &[(Stored, 1), (Rejected(Stage::Map), 2)]);
        sum.merge(&ledger(4, &[(Unchanged, 3), (Rejected(Stage::Map), 1)]));
        assert_eq!(sum, ledger(7, &[(Stored, 1), (Unchanged, 3), (Rejected(Stage::Map), 3)]));
    }

    #[test]
    fn summary_names_each_figure_once() {
        let rows = |deleted, absent_kept| DeletedRows { deleted, absent_kept };
        let sum = ledger(4, &[(Stored, 1), (Rejected(Stage::Fetch), 3)]);
        let text = summary(&sum, LedgerState::Final, rows(0, 0));
        assert_eq!(text, "4 records listed: 1 stored, 3 rejected (fetch 3)");
        assert_eq!(summary(&ledger(0, &[]), LedgerState::Final, rows(0, 0)), "0 records listed");

        let outcomes = [(Unchanged, 6), (Flagged, 2), (Rejected(Stage::Map), 5), (Rejected(Stage::Fetch), 4)];
        let mut sum = ledger(18, &outcomes);
        (sum.repeats, sum.deleted_by_flag) = (1, 2);
        let text = summary(&sum, LedgerState::Final, rows(3, 1));
        let parts = "6 unchanged, 2 flagged as deleted, 9 rejected (fetch 4, map 5), 1 repeat";
        let deleted = "3 rows deleted (flagged 2, absent 1); 1 row of absent records kept";
        assert_eq!(text, format!("18 records listed: {parts}; {deleted}"));
    }

    #[test]
    fn records_without_an_outcome_are_named_by_state() {
        let sum = ledger(3, &[(Stored, 1)]);
        assert_eq!(sum.to_string(), "3 records listed: 1 stored, 2 without an outcome");
        let running = summary(&sum, LedgerState::Running, DeletedRows::default());
        assert_eq!(running, "3 records listed: 1 stored, 2 not consolidated");
        assert_eq!(ledger(1, &[(Stored, 2)]).to_string(), "1 record listed: 2 stored, 1 counted twice");
    }
}
