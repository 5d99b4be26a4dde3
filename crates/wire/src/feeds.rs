//! Feeds: where records come from, and how far they are. A password never travels: its variable is named.

use serde::{Deserialize, Serialize};
use tidemill_core::feed::Watermark;
use tidemill_core::records::{FeedRecord, Gap, Partition, Sync, WatermarkChange};
use tidemill_core::{Json, limits};
use uuid::Uuid;

/// A feed to add, or to change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutFeed {
    /// The project that its runs belong to.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$"), example = &"default")
    )]
    pub project_id: String,
    /// How it is spoken to.
    #[serde(default = "nivoda")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64), example = &"nivoda"))]
    pub kind: String,
    /// Where it is.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 1024), example = &"https://feed.example/graphql")
    )]
    pub endpoint: String,
    /// The account.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 256)))]
    pub username: Option<String>,
    /// The environment variable that holds the password, wherever workers run. The password itself is never kept.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")))]
    pub password_env: Option<String>,
    /// Requests per second, over all workers; 0 for no limit.
    #[serde(default = "rate")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub rate: u32,
    /// What else the kind understands: an object.
    #[serde(default = "crate::runs::object")]
    pub settings: Json,
    /// Where a copy of the watermark goes: a path, `s3://bucket/key` or `az://container/key`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub copy_url: Option<String>,
    /// When it is brought in by itself: five or six fields of cron.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub schedule: Option<String>,
    /// When all of it is read by itself, so that what it no longer offers is marked as deleted: five or six fields of
    /// cron.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub full_schedule: Option<String>,
    /// On which wall clock.
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

/// A feed, and the last sync of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedLine {
    /// The feed.
    #[serde(flatten)]
    pub feed: FeedRecord,
    /// The last sync of it, if there was one.
    pub last_sync: Option<Sync>,
}

/// A feed with what happened lately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedDetail {
    /// The feed.
    pub feed: FeedRecord,
    /// Its last syncs, newest first.
    pub syncs: Vec<Sync>,
    /// The gaps that are open.
    pub gaps: Vec<Gap>,
    /// The last changes of its watermark, newest first.
    pub watermark_changes: Vec<WatermarkChange>,
}

/// A sync to queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StartSync {
    /// Everything, and not only what has changed.
    #[serde(default)]
    pub full: bool,
}

/// A watermark to set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetWatermark {
    /// How far the feed counts as consolidated; `null`: not at all, so that the next sync reads everything.
    pub watermark: Option<Watermark>,
    /// Why, for the others.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
}

/// A feed's watermark, and how it got there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WatermarkNow {
    /// How far the feed is consolidated.
    pub watermark: Option<Watermark>,
    /// Its last changes, newest first.
    pub changes: Vec<WatermarkChange>,
}

/// What the last scan of a feed counted, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heatmap {
    /// The sync whose scan it was.
    pub sync: Uuid,
    /// Records that the scan counted.
    pub predicted: i64,
    /// Count calls of the scan.
    pub count_calls: i32,
    /// What was counted, range by range.
    pub cells: Json,
    /// The partitions that were made of it, by price.
    pub partitions: Vec<Partition>,
}

/// Which rejected rows to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListRejects {
    /// Of this feed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// The cursor of the page before.
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub after: Option<String>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Which gaps to list, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListGaps {
    /// Of this feed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub feed: Option<String>,
    /// The closed ones too.
    pub all: Option<bool>,
    /// The cursor of the page before.
    pub after: Option<i64>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}
