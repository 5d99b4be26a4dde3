//! What lane 3 keeps: feeds with how far they are, syncs, partitions, rejected rows, gaps.

use crate::feed::{Cents, Feed, PriceRange, RunType, Watermark};
use crate::label::labelled;
use crate::limits::CAUSE_BYTES_MAX;
use crate::partition::PartitionState;
use crate::sync::SyncState;
use crate::{Json, RunId, Timestamp};
use serde::Serialize;
use uuid::Uuid;

/// A feed, and how it stands.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedRecord {
    /// What was asked for.
    #[serde(flatten)]
    pub feed: Feed,
    /// How far it is consolidated.
    pub watermark: Option<Watermark>,
    /// Where a copy of the watermark goes.
    pub copy_url: Option<String>,
    /// The watermark that is there.
    pub copied_updated_at: Option<Timestamp>,
    /// What went wrong with the last copy.
    pub copy_error: Option<String>,
    /// Whether it answers, as its circuit says.
    pub circuit: Json,
    /// Which state of the circuit that is.
    pub circuit_rev: i32,
    /// What it said when it last did not answer.
    pub circuit_reason: Option<String>,
}

/// One pass over a feed's window.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sync {
    /// Its id: that of its first attempt, without the prefix.
    pub run_id: Uuid,
    /// The attempt that works on it now, or did last.
    pub ops_run_id: RunId,
    /// The feed.
    pub feed: String,
    /// Everything, or what has changed.
    pub run_type: RunType,
    /// Where it is.
    pub state: SyncState,
    /// Ties together what belongs to it in logs and messages.
    pub trace_id: String,
    /// Partitions.
    pub expected_workers: i32,
    /// Partitions that are read to the end.
    pub completed_workers: i32,
    /// Partitions that failed.
    pub failed_workers: i32,
    /// The watermark it began with.
    pub watermark_before: Option<Timestamp>,
    /// The watermark it left.
    pub watermark_after: Option<Timestamp>,
    /// What was updated since then is read; everything without it.
    pub updated_from: Option<Timestamp>,
    /// The sealed end of the window, and the next watermark.
    pub updated_to: Timestamp,
    /// Records per page.
    pub page_size: i32,
    /// The smallest price step that the feed's filter tells apart.
    pub granularity: Cents,
    /// Records that the scan counted.
    pub predicted: i64,
    /// Count calls of the scan.
    pub count_calls: i32,
    /// How long the scan took.
    pub scan_ms: i64,
    /// What the scan counted, range by range.
    pub heatmap: Json,
    /// Raised whenever work is given out again.
    pub generation: i32,
    /// The rules that it prices by.
    pub rules_version: Option<i32>,
    /// Whether it consolidates in spite of failed partitions.
    pub forced: bool,
    /// Whether it moves the watermark in spite of them.
    pub advance: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was completed.
    pub completed_at: Option<Timestamp>,
    /// When consolidation began.
    pub consolidation_started_at: Option<Timestamp>,
    /// When consolidation ended.
    pub consolidation_completed_at: Option<Timestamp>,
    /// Stones that consolidation has looked at.
    pub consolidation_processed: i64,
    /// Stones that it rejected.
    pub consolidation_errors: i64,
    /// Stones that it has to look at.
    pub consolidation_total: i64,
    /// Stones marked deleted.
    pub deleted: i64,
    /// Why nothing was deleted, where something would have been.
    pub delete_note: Option<String>,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A slice of a feed in one sync.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Partition {
    /// The sync.
    pub run_id: Uuid,
    /// Its name: `partition-N`.
    pub partition_id: String,
    /// Where it is.
    pub state: PartitionState,
    /// Its prices.
    pub prices: PriceRange,
    /// What was updated since then is read; everything without it.
    pub updated_from: Option<Timestamp>,
    /// Records that the scan counted.
    pub predicted: i64,
    /// The next page begins here. Never falls, except by a restart.
    pub next_offset: i32,
    /// How far the source's list has moved to the left under us.
    pub shift: i32,
    /// How often the list is being read from the start.
    pub pass: i32,
    /// What the source counted after the last page.
    pub recount: Option<i64>,
    /// Records that the source gave.
    pub fetched: i64,
    /// Records that were stored.
    pub stored: i64,
    /// Records that were new or different.
    pub changed: i64,
    /// Records that could not be stored.
    pub rejected: i64,
    /// Up to here its pages are in the canonical table.
    pub consolidated_to: i32,
    /// Stones on those pages.
    pub consolidated: i64,
    /// Stones on those pages that were rejected.
    pub refused: i64,
    /// Faults of its current page.
    pub faults: i32,
    /// What went wrong.
    pub error: Option<String>,
    /// Whether a retry asked for it to be read from its beginning.
    pub restart: bool,
    /// The gap that it covers.
    pub gap_id: Option<i64>,
    /// When its first page was stored.
    pub first_page_at: Option<Timestamp>,
    /// When it was completed or failed.
    pub ended_at: Option<Timestamp>,
    /// When it last moved.
    pub updated_at: Timestamp,
}

/// Why a partition failed, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionFailure<'a> {
    /// When it failed.
    pub at: Timestamp,
    /// Its name.
    pub partition_id: &'a str,
    /// What went wrong.
    pub error: &'a str,
}

impl Partition {
    /// Why it failed, where it did.
    pub fn failure(&self) -> Option<PartitionFailure<'_>> {
        let error = self.error.as_deref().filter(|_| self.state.failed())?;
        let at = self.ended_at.unwrap_or(self.updated_at);
        Some(PartitionFailure { at, partition_id: &self.partition_id, error })
    }
}

/// The reason of a sync of which partitions failed. It ends with the first cause: the others often follow from it.
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
    /// Where a record was rejected.
    "stage" Stage {
        /// It could not be read out of the page.
        Fetch = "fetch",
        /// The database cannot hold it.
        Store = "store",
        /// It is no stone that we understand.
        Map = "map",
        /// The canonical table refused it.
        Upsert = "upsert",
    }
}

/// A record that is not in the canonical table, and why.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reject {
    /// The feed.
    pub feed: String,
    /// The stone; `page OFFSET/N` where it has no name.
    pub stone_id: String,
    /// The sync that met it last.
    pub run_id: Uuid,
    /// The partition that met it.
    pub partition_id: Option<String>,
    /// Where it was rejected.
    pub stage: Stage,
    /// Why.
    pub reason: String,
    /// The record, cut to a bounded length.
    pub payload: String,
    /// How often it was met.
    pub times: i32,
    /// When it was first met.
    pub first_at: Timestamp,
    /// When it was last met.
    pub last_at: Timestamp,
}

/// A range that the watermark passed without covering it.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Its number.
    pub gap_id: i64,
    /// The feed.
    pub feed: String,
    /// Its prices.
    pub prices: PriceRange,
    /// From when on changes are missing; everything without it.
    pub updated_from: Option<Timestamp>,
    /// Up to when.
    pub updated_to: Timestamp,
    /// The sync that left it.
    pub left_by: Uuid,
    /// Why.
    pub reason: String,
    /// When.
    pub created_at: Timestamp,
    /// The sync that closed it.
    pub closed_by: Option<Uuid>,
    /// When.
    pub closed_at: Option<Timestamp>,
}

/// One change of a feed's watermark.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatermarkChange {
    /// When.
    pub changed_at: Timestamp,
    /// What it was.
    pub before: Option<Timestamp>,
    /// What it became.
    pub after: Option<Timestamp>,
    /// The sync that moved it.
    pub run_id: Option<Uuid>,
    /// Who moved it.
    pub by: String,
    /// What they said.
    pub note: Option<String>,
}

/// A sync with its partitions.
#[derive(Debug, Clone, serde::Serialize, PartialEq, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SyncStatus {
    /// The sync.
    pub sync: Sync,
    /// Its partitions, by price.
    pub partitions: Vec<Partition>,
    /// A newer sync of the feed that was completed: this one can no longer be tried again, nor be consolidated.
    #[serde(default)]
    pub newer: Option<Uuid>,
}

/// What a retry did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetriedSync {
    /// The sync.
    pub sync: Uuid,
    /// The next try of it.
    pub run_id: RunId,
    /// Whether this call made it.
    pub created: bool,
}

/// What an order to consolidate did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Consolidated {
    /// The sync.
    pub sync: Uuid,
    /// Whether it goes on in spite of failed partitions.
    pub forced: bool,
    /// Whether the watermark will move past them.
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
