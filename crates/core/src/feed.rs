//! Feeds: external sources of records, the queries to them and their pages.

mod field;
mod watermark;

pub use field::{CursorUnit, FieldUnit, PartitionField, dollars};
pub use watermark::number_watermark;

use crate::feed_definition::{FeedDefinition, Place};
use crate::label::labelled;
use crate::limits::{IDENTIFIER_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::reach::DefinedBy;
use crate::{Json, Timestamp};
use serde::Deserialize as _;
use std::borrow::Cow;

/// A value of an ordered field, in units that the feed defines: cents for a price.
pub type FieldValue = i64;

/// A half-open range of an ordered field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FieldRange {
    /// Lowest value, inclusive; for a price in cents.
    pub from: FieldValue,
    /// Highest value, exclusive; for a price in cents.
    pub to: FieldValue,
}

impl FieldRange {
    /// Returns whether the range contains a value.
    pub const fn contains(self, value: FieldValue) -> bool {
        self.from <= value && value < self.to
    }

    /// Returns the width in units of the field.
    pub const fn width(self) -> FieldValue {
        self.to - self.from
    }
}

/// The filter of a count or a page.
///
/// There is no upper bound of the update time: a record that is updated during the sync would leave the list and shift
/// other records past the reader.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedQuery {
    /// Range of the partition field.
    pub range: FieldRange,
    /// Earliest update time of the records; null for all records.
    pub updated_from: Option<Timestamp>,
}

/// A record of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Id of the record, unique within the feed.
    pub record_id: String,
    /// Id of the offer.
    pub offer_id: Option<String>,
    /// The record as JSON text.
    pub payload: String,
    /// SHA-256 of the payload.
    pub payload_hash: [u8; 32],
}

impl Item {
    /// Makes a record and computes its hash.
    pub fn new(record_id: impl Into<String>, offer_id: Option<String>, payload: String) -> Self {
        let payload_hash = crate::digest::sha256(payload.as_bytes());
        Self { record_id: record_id.into(), offer_id, payload, payload_hash }
    }
}

/// A record that could not be read. It is stored with the reason, and the rest of the page is processed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RejectedItem {
    /// Id of the record, if it has one.
    pub record_id: Option<String>,
    /// Index within the page, counted from 0.
    pub place: usize,
    /// Reason of the rejection.
    pub reason: String,
    /// The record as JSON text, truncated.
    pub payload: String,
    /// SHA-256 of the complete text.
    pub digest: [u8; 32],
}

/// Prefix of the names of records without an id.
pub const NAMELESS: &str = "#no-id/";

impl RejectedItem {
    /// Makes a rejected record; truncates the payload and computes its digest.
    pub fn new(record_id: Option<String>, place: usize, reason: String, payload: &str) -> Self {
        let digest = crate::digest::sha256(payload.as_bytes());
        let payload = payload[..payload.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned();
        Self { record_id, place, reason, payload, digest }
    }

    /// Returns the id, or a name derived from the text, so that the same record has the same name in every sync.
    pub fn name(&self) -> Cow<'_, str> {
        if let Some(id) = &self.record_id {
            return Cow::Borrowed(id);
        }
        let digits = self.digest[..16].iter().map(|byte| format!("{byte:02x}"));
        Cow::Owned(format!("{NAMELESS}{}", digits.collect::<String>()))
    }
}

/// One page of a feed, in the feed's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedPage {
    /// Readable records in the feed's order, including repeats.
    pub items: Vec<Item>,
    /// Records that could not be read.
    pub rejected: Vec<RejectedItem>,
    /// Whether the feed reported that this is the last page. A short page is not a sign of the end.
    pub is_last: bool,
    /// Place of the next page, for feeds whose pages cannot be requested at any position. `None` at the end.
    pub next: Option<Place>,
    /// Largest number of the incremental cursor, for feeds whose cursor is a number.
    pub cursor_max: Option<i64>,
    /// Whether the primary keys rise strictly, from the last key of the page before.
    pub keys_rise: bool,
}

impl FeedPage {
    /// Returns the number of records, including repeats and rejected records.
    pub fn record_count(&self) -> usize {
        self.items.len() + self.rejected.len()
    }

    /// Returns all records in the feed's order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let (mut items, mut rejected) = (self.items.iter(), self.rejected.iter().peekable());
        (0..self.record_count()).filter_map(move |index| {
            let is_rejected = items.len() == 0 || rejected.peek().is_some_and(|item| item.place <= index);
            if is_rejected {
                rejected.next().map(Record::Rejected)
            } else {
                items.next().map(Record::Accepted)
            }
        })
    }

    /// Returns the names of all records in the feed's order.
    pub fn names(&self) -> Vec<Cow<'_, str>> {
        self.records().map(Record::name).collect()
    }
}

/// A record of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    Accepted(&'a Item),
    Rejected(&'a RejectedItem),
}

impl<'a> Record<'a> {
    /// Returns the id of the record, or a derived name if it has none.
    pub fn name(self) -> Cow<'a, str> {
        match self {
            Self::Accepted(item) => Cow::Borrowed(&item.record_id),
            Self::Rejected(item) => item.name(),
        }
    }
}

labelled! {
    /// The extent of a sync.
    "run type" RunType {
        Full = "full",
        /// Records updated since the watermark.
        Incremental = "incremental",
    }
}

/// The source time up to which a feed is consolidated.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Watermark {
    /// All records updated before this time are in the table.
    pub last_updated_at: Timestamp,
    /// Sync that set the watermark.
    pub last_run_id: Option<String>,
    /// Time at which that sync completed.
    pub last_run_completed_at: Option<Timestamp>,
}

/// The configuration of a feed.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feed {
    /// Name of the feed.
    pub feed: String,
    /// Project of the feed's runs.
    pub project_id: String,
    /// Type of the feed: `nivoda`, …
    pub kind: String,
    /// URL of the source.
    pub endpoint: String,
    /// Account name at the source.
    pub username: Option<String>,
    /// Environment variable that contains the password. The password itself is not stored.
    pub password_env: Option<String>,
    /// Maximum requests per second, over all workers.
    pub rate: u32,
    /// Further settings of this type of feed.
    pub settings: Json,
    /// Author of this definition. The lists of the section `reach` apply to definitions of projects.
    pub defined_by: DefinedBy,
    pub created_at: Timestamp,
}

/// Kind of the feeds that a definition file describes.
pub const REST_KIND: &str = "rest";

/// Table that holds the last version of each record of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawTable {
    /// Name, without the schema.
    pub table: String,
    /// Column with the id of the record.
    pub id_column: &'static str,
}

impl RawTable {
    /// Returns the raw table of a feed. Names of feeds contain no underscore, so two feeds never share a table. A name
    /// that is too long for PostgreSQL ends with a digest.
    pub fn of(kind: &str, feed: &str) -> Self {
        let (prefix, id_column) = if kind == REST_KIND {
            ("raw_records_", "record_id")
        } else {
            ("raw_diamonds_", "supplier_stone_id")
        };
        let mut table = format!("{prefix}{}", feed.replace('-', "_"));
        if table.len() > IDENTIFIER_BYTES_MAX {
            let digest = &crate::digest::sha256_hex(feed.as_bytes())[..16];
            table.truncate(table.floor_char_boundary(IDENTIFIER_BYTES_MAX - digest.len() - 1));
            table = format!("{table}_{digest}");
        }
        Self { table, id_column }
    }
}

impl Feed {
    /// Returns the feed's raw table.
    pub fn raw_table(&self) -> RawTable {
        RawTable::of(&self.kind, &self.feed)
    }

    /// Returns the feed's definition, or why it cannot be read. `None` for feeds of another kind.
    pub fn definition(&self) -> Option<Result<FeedDefinition, String>> {
        if self.kind != REST_KIND {
            return None;
        }
        let stored = self.settings.get("definition").unwrap_or(&Json::Null);
        let read = FeedDefinition::deserialize(stored);
        Some(
            read.map_err(|error| {
                format!("the stored definition of feed `{}` is invalid: {error}", self.feed)
            }),
        )
    }

    /// Returns the name of the rate limit that the feed shares with others of its project.
    pub fn budget(&self) -> Option<&str> {
        self.settings.get("definition")?.get("client")?.get("budget")?.as_str()
    }

    /// Returns the text of the feed's definition file.
    pub fn definition_text(&self) -> Option<&str> {
        self.settings.get("text")?.as_str()
    }

    /// Returns whether another definition reaches the same outside the database, in the same way.
    pub fn has_same_reach(&self, other: &Self) -> bool {
        let Self {
            feed: _,
            project_id,
            kind,
            endpoint,
            username,
            password_env,
            rate: _,
            settings,
            defined_by: _,
            created_at: _,
        } = self;
        (project_id, kind, endpoint) == (&other.project_id, &other.kind, &other.endpoint)
            && (username, password_env, settings) == (&other.username, &other.password_env, &other.settings)
    }
}
