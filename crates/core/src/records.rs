//! Stored records of the sync lane: feeds, syncs, partitions, rejected records and gaps.

use crate::feed::{Feed, FieldRange, FieldValue, RunType, Watermark};
use crate::label::labelled;
use crate::limits::CAUSE_BYTES_MAX;
use crate::partition::PartitionState;
use crate::sync::SyncState;
use crate::sync_ledger::{DeletedRows, LedgerState, SyncLedger, summary};
use crate::{Json, RunId, Timestamp};
use serde::Serialize;
use uuid::Uuid;

/// A feed and its status.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedRecord {
    /// Configuration of the feed.
    #[serde(flatten)]
    pub feed: Feed,
    /// Source time up to which it is consolidated.
    pub watermark: Option<Watermark>,
    /// URL to which the watermark is copied.
    pub copy_url: Option<String>,
    /// Watermark in the copy.
    pub copied_updated_at: Option<Timestamp>,
    /// Error of the last copy.
    pub copy_error: Option<String>,
    /// State of the circuit breaker.
    pub circuit: Json,
    /// Revision of the circuit breaker's state.
    pub circuit_rev: i32,
    /// Last error of the feed.
    pub circuit_reason: Option<String>,
    /// Reason for which a process with a narrower configuration refused to reach the feed; null after an answer.
    pub refusal: Option<String>,
}

/// A sync: one pass over the window of a feed.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sync {
    /// Id of the sync: that of its first run, without the prefix `run-`.
    pub run_id: Uuid,
    /// Current or last run of the sync.
    pub ops_run_id: RunId,
    /// Name of the feed.
    pub feed: String,
    pub run_type: RunType,
    /// State of the sync.
    pub state: SyncState,
    /// Trace id in logs and messages.
    pub trace_id: String,
    pub expected_workers: i32,
    /// Number of completed partitions.
    pub completed_workers: i32,
    /// Number of failed partitions.
    pub failed_workers: i32,
    /// Watermark at the start.
    pub watermark_before: Option<Timestamp>,
    /// Watermark at the end.
    pub watermark_after: Option<Timestamp>,
    /// Start of the window; null if all records are read.
    pub updated_from: Option<Timestamp>,
    /// Fixed end of the window, which becomes the next watermark.
    pub updated_to: Timestamp,
    pub page_size: i32,
    /// Smallest step of the partition field that the feed's filter supports; for a price in cents.
    pub granularity: FieldValue,
    /// Number of records that the scan counted.
    pub predicted: i64,
    /// Number of count requests of the scan.
    pub count_calls: i32,
    /// Duration of the scan in milliseconds.
    pub scan_ms: i64,
    /// Counts of the scan by range of the partition field.
    pub heatmap: Json,
    /// Generation of its messages; increased when work is sent again.
    pub generation: i32,
    /// Version of the pricing rules.
    pub rules_version: Option<i32>,
    /// Digest of the feed definition with which it reads; null for feeds without one.
    #[serde(default)]
    pub definition: Option<String>,
    /// Whether it is consolidated in spite of failed partitions.
    pub forced: bool,
    /// Whether it advances the watermark in spite of failed partitions.
    pub advance: bool,
    /// Error, if it failed.
    pub error: Option<String>,
    /// Time of the start.
    pub started_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    /// Start of the consolidation.
    pub consolidation_started_at: Option<Timestamp>,
    /// End of the consolidation.
    pub consolidation_completed_at: Option<Timestamp>,
    /// Number of records that the consolidation has processed.
    pub consolidation_processed: i64,
    /// Number of records that the consolidation rejected.
    pub consolidation_errors: i64,
    /// Number of records to consolidate.
    pub consolidation_total: i64,
    /// Number of rows that it deleted, of flagged and of absent records. Until it is completed, of absent records only.
    pub deleted: i64,
    /// Reason for which missing records were not deleted.
    pub delete_note: Option<String>,
    /// How it is shown that a full sync read every record; null if it is not.
    #[serde(default)]
    pub absence_evidence: Option<String>,
    /// Number of rows that it kept although their records were not listed.
    #[serde(default)]
    pub absent_kept: i32,
    /// Outcomes of the listed records; null until it is completed.
    #[serde(default)]
    pub ledger: Option<SyncLedger>,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

impl Sync {
    /// Returns how many rows it deleted, and how many it kept although their records were not listed.
    pub fn deleted_rows(&self) -> DeletedRows {
        DeletedRows { deleted: self.deleted, absent_kept: self.absent_kept.into() }
    }
}

/// A partition: a range of the partition field of a feed in one sync.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Partition {
    /// Id of the sync.
    pub run_id: Uuid,
    /// Name of the partition: `partition-N`.
    pub partition_id: String,
    /// State of the partition.
    pub state: PartitionState,
    /// Range of the partition field.
    pub range: FieldRange,
    /// Start of the window; null if all records are read.
    pub updated_from: Option<Timestamp>,
    /// Number of records that the scan counted.
    pub predicted: i64,
    /// Offset of the next page. It decreases only by a restart.
    pub next_offset: i32,
    /// Token of the next page, for sources whose pages cannot be requested by offset. It is not shown: a next URL can
    /// repeat the credentials of the request.
    #[serde(skip)]
    pub next_token: Option<String>,
    /// Largest number of the incremental cursor that it has read, for feeds whose cursor is a number.
    #[serde(default)]
    pub cursor_max: Option<i64>,
    /// How it is shown that every record was read, or why it is not; null before the end.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Number of positions by which the source's list has moved to the left.
    pub shift: i32,
    /// Number of the current pass over the list.
    pub pass: i32,
    /// Count of the source after the last page.
    pub recount: Option<i64>,
    /// Number of fetched records.
    pub fetched: i64,
    /// Number of stored records.
    pub stored: i64,
    /// Number of new or changed records.
    pub changed: i64,
    /// Number of records that could not be stored.
    pub rejected: i64,
    /// Offset up to which its pages are consolidated.
    pub consolidated_to: i32,
    /// Number of consolidated records.
    pub consolidated: i64,
    /// Number of records that the consolidation rejected.
    pub refused: i64,
    /// Outcomes of its records, as far as they are consolidated.
    #[serde(default)]
    pub ledger: SyncLedger,
    /// Number of failures of the current page.
    pub faults: i32,
    pub error: Option<String>,
    /// Whether a retry restarts it from the beginning.
    pub restart: bool,
    /// Gap that it covers.
    pub gap_id: Option<i64>,
    /// Time at which its first page was stored.
    pub first_page_at: Option<Timestamp>,
    /// Time at which it completed or failed.
    pub ended_at: Option<Timestamp>,
    /// Time of the last progress.
    pub updated_at: Timestamp,
}

/// The failure of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionFailure<'a> {
    pub at: Timestamp,
    pub partition_id: &'a str,
    pub error: &'a str,
}

impl Partition {
    /// Returns the failure, if the partition failed.
    pub fn failure(&self) -> Option<PartitionFailure<'_>> {
        let error = self.error.as_deref().filter(|_| self.state.failed())?;
        let at = self.ended_at.unwrap_or(self.updated_at);
        Some(PartitionFailure { at, partition_id: &self.partition_id, error })
    }
}

/// Returns the error of a sync with failed partitions. It ends with the earliest failure, which often caused the
/// others.
pub fn failure_reason<'a>(
    failed: i64,
    expected: i64,
    failures: impl IntoIterator<Item = PartitionFailure<'a>>,
) -> String {
    let reason = format!("{failed} of {expected} partitions failed; consolidation is skipped");
    let first = failures.into_iter().min_by_key(|failure| (failure.at, failure.partition_id));
    let Some(PartitionFailure { partition_id, error, .. }) = first else { return reason };
    let line = error.lines().next().unwrap_or_default();
    let cut = &line[..line.floor_char_boundary(CAUSE_BYTES_MAX)];
    let more = if cut.len() < error.trim_end().len() { " …" } else { "" };
    format!("{reason}; first cause: {partition_id}: {cut}{more}")
}

labelled! {
    /// The processing stage that rejected a record.
    "stage" Stage {
        /// The page reader could not parse it.
        Fetch = "fetch",
        /// The database cannot store it.
        Store = "store",
        /// The mapper cannot make a canonical row of it.
        Map = "map",
        /// The canonical table rejected it.
        Upsert = "upsert",
        /// The table refused to delete its row.
        Delete = "delete",
    }
}

labelled! {
    /// The state of a record in the table of a feed with a definition.
    "record state" RecordState {
        /// The row was built from the record.
        Active = "active",
        /// The record itself says that it is deleted.
        Deleted = "deleted",
        /// The source no longer has the record.
        Absent = "absent",
    }
}

/// A record that was rejected: the canonical table does not have its current state.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reject {
    /// Name of the feed.
    pub feed: String,
    /// Id of the record; a derived name if it has none.
    pub record_id: String,
    /// Last sync that rejected it.
    pub run_id: Uuid,
    /// Partition of that sync.
    pub partition_id: Option<String>,
    /// Stage that rejected it.
    pub stage: Stage,
    /// Reason of the rejection.
    pub reason: String,
    /// The record, truncated.
    pub payload: String,
    pub times: i32,
    /// Time of the first rejection.
    pub first_at: Timestamp,
    /// Time of the last rejection.
    pub last_at: Timestamp,
}

/// A range that the watermark passed without covering it.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Number of the gap.
    pub gap_id: i64,
    /// Name of the feed.
    pub feed: String,
    /// Range of the partition field.
    pub range: FieldRange,
    /// Start of the missing changes; null if all records are missing.
    pub updated_from: Option<Timestamp>,
    /// End of the missing changes.
    pub updated_to: Timestamp,
    /// Sync that left the gap.
    pub left_by: Uuid,
    /// Reason of the gap.
    pub reason: String,
    pub created_at: Timestamp,
    /// Sync that closed the gap.
    pub closed_by: Option<Uuid>,
    /// Time at which it was closed.
    pub closed_at: Option<Timestamp>,
}

/// The table of a feed, and the statements that make it fit the feed's definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedTablePlan {
    /// Name of the feed.
    pub feed: String,
    /// Name of the table, with its schema.
    pub table: String,
    /// Whether the table exists.
    pub exists: bool,
    /// SQL statements that create the table or add columns; empty if the table fits.
    pub statements: Vec<String>,
    /// Reasons for which the feed cannot fill the table.
    pub problems: Vec<String>,
    /// Warnings about the columns that the statements create.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A change of a feed's watermark.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatermarkChange {
    /// Time of the change.
    pub changed_at: Timestamp,
    pub before: Option<Timestamp>,
    pub after: Option<Timestamp>,
    /// Sync that changed it.
    pub run_id: Option<Uuid>,
    /// Name of the caller or process that changed it.
    pub by: String,
    /// Reason of the change.
    pub note: Option<String>,
}

/// A sync with its partitions.
#[derive(Debug, Clone, serde::Serialize, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SyncStatus {
    pub sync: Sync,
    /// Partitions, sorted by range.
    pub partitions: Vec<Partition>,
    /// Newer completed sync of the feed, because of which this one can no longer be retried or consolidated.
    #[serde(default)]
    pub newer: Option<Uuid>,
}

impl SyncStatus {
    /// Returns the outcomes of the listed records: of all, or of those that are consolidated so far.
    pub fn ledger(&self) -> SyncLedger {
        self.sync.ledger.clone().unwrap_or_else(|| {
            let mut sum = SyncLedger::default();
            for partition in &self.partitions {
                sum.merge(&partition.ledger);
            }
            sum
        })
    }

    /// Returns the figures of the sync as one sentence.
    pub fn summary(&self) -> String {
        let (ledger, rows) = (self.ledger(), self.sync.deleted_rows());
        if self.sync.ledger.is_some() {
            return summary(&ledger, LedgerState::Final, rows);
        }
        // The completion adds the deleted rows of flagged records to those of absent ones.
        let deleted = rows.deleted + ledger.deleted_by_flag;
        summary(&ledger, LedgerState::Running, DeletedRows { deleted, ..rows })
    }
}

/// The outcome of retrying a sync.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SyncRetry {
    /// Id of the sync.
    pub sync: Uuid,
    /// New run of the sync.
    pub run_id: RunId,
    /// Whether this call created the run.
    pub created: bool,
}

/// The outcome of an order to consolidate a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConsolidationOrder {
    /// Id of the sync.
    pub sync: Uuid,
    /// Whether it continues in spite of failed partitions.
    pub forced: bool,
    /// Whether the watermark advances past the failed partitions.
    pub advance: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_reason_ends_with_the_earliest_cause() {
        let at = |secs| Timestamp::from_timestamp(secs, 0).unwrap();
        let failure = |secs, partition_id, error| PartitionFailure { at: at(secs), partition_id, error };
        let long = "é".repeat(CAUSE_BYTES_MAX);
        let cut = format!("p-1: {} …", "é".repeat(CAUSE_BYTES_MAX / 2));
        for (failures, tail) in [
            (vec![], ""),
            (
                vec![failure(9, "p-1", "late"), failure(3, "p-2", "feed answered 500")],
                "p-2: feed answered 500",
            ),
            (vec![failure(3, "p-2", "other"), failure(3, "p-1", "same moment")], "p-1: same moment"),
            (vec![failure(3, "p-1", "answered 500\n<html>")], "p-1: answered 500 …"),
            (vec![failure(3, "p-1", &long)], &cut),
        ] {
            let tail = if tail.is_empty() { String::new() } else { format!("; first cause: {tail}") };
            let reason = format!("2 of 4 partitions failed; consolidation is skipped{tail}");
            assert_eq!(failure_reason(2, 4, failures), reason);
        }
    }
}
