//! What is sent between scheduler, workers and consolidators: the JSON of the queues `work-items`, `work-done` and
//! `consolidate`.
//!
//! The names of the fields are a contract. Fields that we do not know are passed over, so that a newer sender can
//! talk to an older reader.

use crate::Timestamp;
use crate::feed::{Cents, PRICE_CEILING, PriceRange};
use crate::label::labelled;
use uuid::Uuid;

/// Any message.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Message {
    /// Fetch one page.
    WorkItem(WorkItem),
    /// A partition has ended.
    WorkDone(WorkDone),
    /// Consolidate a sync.
    Consolidate(Consolidate),
}

/// Fetch one page of a partition.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkItem {
    /// The sync.
    pub run_id: Uuid,
    /// The trace that all messages of the sync carry.
    pub trace_id: String,
    /// The partition.
    pub partition_id: String,
    /// The lowest price of the partition, in dollars.
    #[serde(with = "dollars")]
    pub min_price: Cents,
    /// The highest price of the partition, in dollars: still inside it.
    #[serde(with = "dollars")]
    pub max_price: Cents,
    /// How many stones the partition is thought to hold; for people.
    pub total_records: u64,
    /// Kept for readers that expect it: where the partition begins.
    #[serde(default)]
    pub offset_start: u64,
    /// Kept for readers that expect it: where the partition is thought to end.
    #[serde(default)]
    pub offset_end: u64,
    /// The `next_offset` of the partition that this message is for.
    pub offset: u64,
    /// Stones per page.
    pub limit: u32,
    /// Only stones updated at this time or later. Left out in a full sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_from: Option<Timestamp>,
    /// The sealed end of the window.
    pub updated_to: Timestamp,
    /// The feed.
    pub feed: String,
}

labelled! {
    /// How a partition ended.
    "work status" WorkStatus {
        /// Read to its end.
        Success = "success",
        /// Stopped.
        Failed = "failed",
    }
}

/// A partition has ended.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkDone {
    /// The sync.
    pub run_id: Uuid,
    /// The trace that all messages of the sync carry.
    pub trace_id: String,
    /// The worker that ended it.
    pub worker_id: String,
    /// The partition.
    pub partition_id: String,
    /// Stones stored.
    pub records_processed: u64,
    /// How it ended.
    pub status: WorkStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The feed.
    pub feed: String,
}

/// Consolidate a sync.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Consolidate {
    /// The sync.
    pub run_id: Uuid,
    /// The trace that all messages of the sync carry.
    pub trace_id: String,
    /// Consolidate although partitions failed. Left out where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// The sealed end of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_to: Option<Timestamp>,
    /// The feed.
    pub feed: String,
}

impl Message {
    /// The name by which a queue recognises the same message again.
    pub fn id(&self) -> String {
        match self {
            Self::WorkItem(item) => item.id(),
            Self::WorkDone(done) => done.id(),
            Self::Consolidate(consolidate) => consolidate.id(),
        }
    }
}

impl WorkItem {
    /// `run:partition:offset`.
    pub fn id(&self) -> String {
        format!("{}:{}:{}", self.run_id, self.partition_id, self.offset)
    }

    /// Sets the prices from a range of a feed whose prices are multiples of `granularity`.
    pub fn set_range(&mut self, range: PriceRange, granularity: Cents) {
        self.min_price = range.from;
        self.max_price = range.to - granularity;
    }

    /// The range that the prices stand for: the inverse of [`WorkItem::set_range`].
    pub const fn range(&self, granularity: Cents) -> PriceRange {
        PriceRange { from: self.min_price, to: self.max_price + granularity }
    }

    /// The message for the next page.
    #[must_use]
    pub fn at(&self, offset: u64) -> Self {
        Self { offset, ..self.clone() }
    }
}

impl WorkDone {
    /// `work-done:run:partition`.
    pub fn id(&self) -> String {
        format!("work-done:{}:{}", self.run_id, self.partition_id)
    }
}

impl Consolidate {
    /// `consolidate:run`.
    pub fn id(&self) -> String {
        format!("consolidate:{}", self.run_id)
    }
}

/// Cents inside, a JSON number of dollars outside; exact, because a price below [`PRICE_CEILING`] has fewer
/// digits than a double holds.
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
