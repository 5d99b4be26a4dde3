//! Feeds and their progress. Passwords are never sent: requests name the environment variable.

use serde::{Deserialize, Serialize};
use tidemill_core::feed::{REST_KIND, Watermark};
#[cfg(feature = "schema")]
use tidemill_core::limits::FEED_DEFINITION_BYTES_MAX;
use tidemill_core::records::{FeedRecord, Gap, Partition, Sync, WatermarkChange};
use tidemill_core::{Json, limits};
use uuid::Uuid;

/// A feed to create or change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutFeed {
    /// Project of the feed's runs.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$"), example = &"default")
    )]
    pub project_id: String,
    /// Type of the feed. A definition has the type `rest`.
    #[serde(default = "nivoda")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64), example = &"nivoda"))]
    pub kind: String,
    /// Text of a definition file in YAML. Endpoint, account and settings are part of it and must be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = FEED_DEFINITION_BYTES_MAX)))]
    pub definition: Option<String>,
    /// URL of the source. Required without a definition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 1024), example = &"https://feed.example/graphql")
    )]
    pub endpoint: String,
    /// Account name at the source.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub username: Option<String>,
    /// Environment variable on the workers that contains the password. The password itself is not stored.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")))]
    pub password_env: Option<String>,
    /// Maximum requests per second, over all workers; 0 for no limit. A definition has a rate of its own.
    #[serde(default = "rate")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub rate: u32,
    /// Further settings of this type of feed, as an object.
    #[serde(default = "crate::runs::object")]
    pub settings: Json,
    /// Target for a copy of the watermark: a path, `s3://bucket/key` or `az://container/key`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub copy_url: Option<String>,
    /// Schedule of incremental syncs: a cron pattern with five fields.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub schedule: Option<String>,
    /// Schedule of full syncs, which detect deleted records: a cron pattern with five fields.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub full_schedule: Option<String>,
    /// IANA name of the time zone of both schedules; by default `UTC`.
    #[serde(default = "crate::schedules::utc")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub time_zone: String,
}

fn nivoda() -> String {
    "nivoda".to_owned()
}

const fn rate() -> u32 {
    limits::FEED_RATE
}

impl PutFeed {
    /// Makes the request for a definition file.
    pub fn of_definition(project_id: String, text: String) -> Self {
        Self {
            project_id,
            kind: REST_KIND.to_owned(),
            definition: Some(text),
            endpoint: String::new(),
            username: None,
            password_env: None,
            rate: rate(),
            settings: crate::runs::object(),
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: crate::schedules::utc(),
        }
    }
}

/// A feed and its last sync.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedSummary {
    /// Feed and its status.
    #[serde(flatten)]
    pub feed: FeedRecord,
    /// Last sync; null if there was none.
    pub last_sync: Option<Sync>,
}

/// A feed with its recent history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedDetail {
    /// Feed and its status.
    pub feed: FeedRecord,
    /// Last syncs, newest first.
    pub syncs: Vec<Sync>,
    pub gaps: Vec<Gap>,
    /// Last changes of the watermark, newest first.
    pub watermark_changes: Vec<WatermarkChange>,
}

/// A request to queue a sync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StartSync {
    /// Sync all records, ignoring the watermark.
    #[serde(default)]
    pub full: bool,
}

/// A request to set a watermark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetWatermark {
    /// New watermark; `null` to make the next sync read all records.
    pub watermark: Option<Watermark>,
    /// Reason, for other operators.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
}

/// A feed's watermark and its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatermarkDetail {
    pub watermark: Option<Watermark>,
    /// Last changes, newest first.
    pub changes: Vec<WatermarkChange>,
}

/// The heatmap of a feed's last scan and the partitions derived from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heatmap {
    /// Id of the sync.
    pub sync: Uuid,
    /// Number of records that the scan counted.
    pub predicted: i64,
    /// Number of count requests of the scan.
    pub count_calls: i32,
    /// Counts by range of the partition field.
    pub cells: Json,
    /// Partitions, sorted by range.
    pub partitions: Vec<Partition>,
}

/// Filter of the list of rejected records, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListRejects {
    /// Feed to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// Cursor: `next` of the previous page.
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub after: Option<String>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Filter of the list of gaps, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListGaps {
    /// Feed to filter by.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// Whether to include closed gaps.
    pub all: Option<bool>,
    /// Cursor: `next` of the previous page.
    pub after: Option<i64>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}
