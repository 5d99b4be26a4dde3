//! Messages between schedulers, workers and consolidators: the JSON of the queues `work-items`, `work-done` and
//! `consolidate`.
//!
//! The field names are a contract. Unknown fields are ignored, so that a newer sender can talk to an older reader.

use crate::Timestamp;
use crate::diamond::{Cents, PRICE_CEILING};
use crate::feed::{FieldRange, FieldValue};
use crate::label::labelled;
use uuid::Uuid;

/// A message of one of the queues.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Message {
    WorkItem(WorkItem),
    WorkDone(WorkDone),
    Consolidate(Consolidate),
}

/// An order to fetch one page of a partition.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkItem {
    /// Id of the sync.
    pub run_id: Uuid,
    /// Trace id, the same for all messages of the sync.
    pub trace_id: String,
    pub partition_id: String,
    /// Lowest price of the partition, inclusive; in dollars in the JSON.
    #[serde(with = "dollars")]
    pub min_price: Cents,
    /// Highest price of the partition, inclusive; in dollars in the JSON.
    #[serde(with = "dollars")]
    pub max_price: Cents,
    /// Range of the partition field, for feeds whose field is not a price. Both prices are then 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<FieldRange>,
    /// Estimated number of records in the partition; informational.
    pub total_records: u64,
    /// Start of the partition. Unused; older readers expect it.
    #[serde(default)]
    pub offset_start: u64,
    /// Estimated end of the partition. Unused; older readers expect it.
    #[serde(default)]
    pub offset_end: u64,
    /// The `next_offset` of the partition for which this message is valid.
    pub offset: u64,
    pub limit: u32,
    /// Earliest update time of the records; omitted in a full sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_from: Option<Timestamp>,
    /// Fixed end of the sync's window.
    pub updated_to: Timestamp,
    pub feed: String,
}

labelled! {
    /// The outcome of a partition.
    "work status" WorkStatus {
        /// The partition was read to its end.
        Success = "success",
        /// The partition failed or was cancelled.
        Failed = "failed",
    }
}

/// The report that a partition has ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkDone {
    /// Id of the sync.
    pub run_id: Uuid,
    /// Trace id, the same for all messages of the sync.
    pub trace_id: String,
    /// Worker that processed its last page.
    pub worker_id: String,
    pub partition_id: String,
    /// Number of stored records.
    pub records_processed: u64,
    pub status: WorkStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub feed: String,
}

/// An order to consolidate a sync.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Consolidate {
    /// Id of the sync.
    pub run_id: Uuid,
    /// Trace id, the same for all messages of the sync.
    pub trace_id: String,
    /// Consolidate in spite of failed partitions; omitted otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// Fixed end of the sync's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_to: Option<Timestamp>,
    pub feed: String,
}

impl Message {
    /// Returns the id by which the queue detects duplicates.
    pub fn id(&self) -> String {
        match self {
            Self::WorkItem(item) => item.id(),
            Self::WorkDone(done) => done.id(),
            Self::Consolidate(consolidate) => consolidate.id(),
        }
    }
}

impl WorkItem {
    /// Returns the message id, `run:partition:offset`.
    pub fn id(&self) -> String {
        format!("{}:{}:{}", self.run_id, self.partition_id, self.offset)
    }

    /// Sets the lowest and the highest price from a range whose bounds are multiples of `granularity`.
    pub fn set_prices(&mut self, range: FieldRange, granularity: FieldValue) {
        self.min_price = range.from;
        self.max_price = range.to - granularity;
    }

    /// Returns the range of the partition field.
    pub const fn range(&self, granularity: FieldValue) -> FieldRange {
        match self.range {
            Some(range) => range,
            None => FieldRange { from: self.min_price, to: self.max_price + granularity },
        }
    }

    /// Returns the same order for the page at `offset`.
    #[must_use]
    pub fn at(&self, offset: u64) -> Self {
        Self { offset, ..self.clone() }
    }
}

impl WorkDone {
    /// Returns the message id, `work-done:run:partition`.
    pub fn id(&self) -> String {
        format!("work-done:{}:{}", self.run_id, self.partition_id)
    }
}

impl Consolidate {
    /// Returns the message id, `consolidate:run`.
    pub fn id(&self) -> String {
        format!("consolidate:{}", self.run_id)
    }
}

/// Converts cents to a JSON number of dollars. The conversion is exact, because a price below [`PRICE_CEILING`] has
/// fewer digits than a double can represent.
mod dollars {
    use super::{Cents, PRICE_CEILING};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(cents: &Cents, serializer: S) -> Result<S::Ok, S::Error> {
        if cents % 100 == 0 {
            return serializer.serialize_i64(cents / 100);
        }
        #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^53 cents")]
        serializer.serialize_f64(*cents as f64 / 100.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cents, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        let cents = (dollars * 100.0).round();
        #[expect(clippy::cast_precision_loss, reason = "the ceiling is far below 2^53 cents")]
        let ceiling = PRICE_CEILING as f64;
        if !(0.0..=ceiling).contains(&cents) {
            return Err(D::Error::custom(format!("{dollars} dollars is not a price")));
        }
        if (dollars * 100.0 - cents).abs() > 1e-4 {
            return Err(D::Error::custom(format!("{dollars} dollars has fractions of a cent")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within the bounds checked above")]
        Ok(cents as Cents)
    }
}

const _: () = assert!(PRICE_CEILING < 1 << 53);
