//! The parts of a definition that describe how the list is read: paginator, incremental, partition, trust, deletes.

use super::path::JsonPath;
use super::request::{ParamTarget, RequestSpec};
use serde::{Deserialize, Serialize};

/// How the pages of a list are requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Paginator {
    /// The answer contains the whole list.
    SinglePage,
    PageNumber {
        page: ParamTarget,
        /// Number of the first page.
        base_page: u32,
        page_size: u32,
        size: Option<ParamTarget>,
    },
    /// Position of the first record.
    Offset { offset: ParamTarget, limit: Option<ParamTarget>, page_size: u32 },
    /// A cursor in the body of the answer.
    Cursor { cursor_path: JsonPath, cursor: ParamTarget, limit: Option<ParamTarget>, page_size: u32 },
    /// The URL of the next page in the body of the answer.
    JsonLink { next_url_path: JsonPath, limit: Option<ParamTarget>, page_size: u32 },
    /// A cursor in a header of the answer.
    HeaderCursor { cursor_key: String, cursor: ParamTarget, limit: Option<ParamTarget>, page_size: u32 },
    /// The URL of the next page in a header of the answer.
    HeaderUrl { header: String, limit: Option<ParamTarget>, page_size: u32 },
    /// The URL of the next page in the header `Link`.
    HeaderLink { links_next_key: String, limit: Option<ParamTarget>, page_size: u32 },
    /// The key of the last record; the next page begins after it.
    Keyset { key_path: JsonPath, cursor: ParamTarget, limit: Option<ParamTarget>, page_size: u32 },
    /// GraphQL variables with the position of the first record.
    GraphqlOffset { offset_variable: String, limit_variable: String, page_size: u32 },
    /// A GraphQL connection with `pageInfo`.
    GraphqlConnection {
        /// Path of the connection, which contains `pageInfo`.
        connection_path: JsonPath,
        cursor_variable: String,
        limit_variable: String,
        page_size: u32,
    },
    /// Recognised from the first answer.
    Auto { page_size: u32 },
}

/// How pages of a paginator can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageAccess {
    /// Any offset and limit can be requested.
    Random,
    /// Offsets must be multiples of this page size.
    Aligned(u32),
    /// Each page is reached only from the one before it.
    Sequential,
}

impl Paginator {
    /// Returns the word of the definition.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::SinglePage => "single_page",
            Self::PageNumber { .. } => "page_number",
            Self::Offset { .. } => "offset",
            Self::Cursor { .. } => "cursor",
            Self::JsonLink { .. } => "json_link",
            Self::HeaderCursor { .. } => "header_cursor",
            Self::HeaderUrl { .. } => "header_url",
            Self::HeaderLink { .. } => "header_link",
            Self::Keyset { .. } => "keyset",
            Self::GraphqlOffset { .. } => "graphql_offset",
            Self::GraphqlConnection { .. } => "graphql_connection",
            Self::Auto { .. } => "auto",
        }
    }

    /// Returns the path of the key by which the list is read.
    pub const fn key_path(&self) -> Option<&JsonPath> {
        match self {
            Self::Keyset { key_path, .. } => Some(key_path),
            Self::SinglePage
            | Self::PageNumber { .. }
            | Self::Offset { .. }
            | Self::Cursor { .. }
            | Self::JsonLink { .. }
            | Self::HeaderCursor { .. }
            | Self::HeaderUrl { .. }
            | Self::HeaderLink { .. }
            | Self::GraphqlOffset { .. }
            | Self::GraphqlConnection { .. }
            | Self::Auto { .. } => None,
        }
    }

    /// Returns how pages can be reached.
    pub const fn access(&self) -> PageAccess {
        match self {
            Self::PageNumber { page_size, .. } => PageAccess::Aligned(*page_size),
            Self::Offset { limit: Some(_), .. } | Self::GraphqlOffset { .. } => PageAccess::Random,
            Self::SinglePage
            | Self::Offset { limit: None, .. }
            | Self::Cursor { .. }
            | Self::JsonLink { .. }
            | Self::HeaderCursor { .. }
            | Self::HeaderUrl { .. }
            | Self::HeaderLink { .. }
            | Self::Keyset { .. }
            | Self::GraphqlConnection { .. }
            | Self::Auto { .. } => PageAccess::Sequential,
        }
    }

    /// Returns the number of records per page; `None` for a single page.
    pub const fn page_size(&self) -> Option<u32> {
        match self {
            Self::SinglePage => None,
            Self::PageNumber { page_size, .. }
            | Self::Offset { page_size, .. }
            | Self::Cursor { page_size, .. }
            | Self::JsonLink { page_size, .. }
            | Self::HeaderCursor { page_size, .. }
            | Self::HeaderUrl { page_size, .. }
            | Self::HeaderLink { page_size, .. }
            | Self::Keyset { page_size, .. }
            | Self::GraphqlOffset { page_size, .. }
            | Self::GraphqlConnection { page_size, .. }
            | Self::Auto { page_size } => Some(*page_size),
        }
    }

    /// Returns whether requests name the number of records, so that a smaller page can be requested.
    pub const fn has_limit(&self) -> bool {
        match self {
            Self::SinglePage | Self::Auto { .. } => false,
            Self::PageNumber { size: limit, .. }
            | Self::Offset { limit, .. }
            | Self::Cursor { limit, .. }
            | Self::JsonLink { limit, .. }
            | Self::HeaderCursor { limit, .. }
            | Self::HeaderUrl { limit, .. }
            | Self::HeaderLink { limit, .. }
            | Self::Keyset { limit, .. } => limit.is_some(),
            Self::GraphqlOffset { .. } | Self::GraphqlConnection { .. } => true,
        }
    }
}

/// Format of times in requests and records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeFormat {
    /// A time with its offset, such as `2026-01-31T12:00:00Z`.
    #[default]
    Rfc3339,
    /// A day, such as `2026-01-31`.
    Date,
    /// Whole seconds since the year 1970.
    Unix,
    /// Whole milliseconds since the year 1970.
    UnixMs,
}

/// The value that grows with each change of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Incremental {
    /// Path of the value in a record.
    pub cursor_path: JsonPath,
    /// Parameter with the smallest value.
    pub start: ParamTarget,
    pub kind: CursorKind,
    /// Start value of a feed that has no watermark yet, in the format of the parameter.
    pub initial_value: Option<String>,
}

/// Type of an incremental cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CursorKind {
    Time {
        format: TimeFormat,
        /// Time before the watermark that is read again.
        overlap_secs: u32,
    },
    Number {
        /// Difference to the watermark that is read again.
        overlap: u64,
    },
}

/// How a sync is divided into partitions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Partition {
    #[default]
    None,
    /// Ranges of an ordered field with similar numbers of records, found by counting.
    Heatmap { range: RangeSpec, count: CountSpec },
    /// Windows of time of the same length.
    TimeWindows { range: RangeSpec, window_secs: u32 },
    /// One partition for each value of a parameter.
    Values { param: ParamTarget, values: Vec<String> },
}

/// An ordered field and the parameters that filter it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RangeSpec {
    /// Path of the field in a record.
    pub field: Option<JsonPath>,
    pub kind: RangeKind,
    pub from: ParamTarget,
    pub to: ParamTarget,
    pub to_bound: Bound,
    /// Lowest boundary, in the unit of the kind. Lower values belong to the first partition.
    pub min: i64,
    /// Highest boundary, in the unit of the kind. Higher values belong to the last partition. `None` for times: now.
    pub max: Option<i64>,
    /// Boundaries are multiples of it, in the unit of the kind.
    pub granularity: i64,
}

/// Unit of a range: how an integer is written in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RangeKind {
    /// Money in its smallest unit, written with this number of decimals.
    Money {
        decimals: u32,
    },
    Number,
    /// The values of a range are seconds since the year 1970.
    Time {
        format: TimeFormat,
    },
}

/// Whether the source includes the upper boundary of a filter. Partitions are half-open, so an inclusive boundary is
/// one unit of its format below the next partition. Values with more digits than the format are in no partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    #[default]
    Exclusive,
    Inclusive,
}

/// How the records of a query are counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountSpec {
    pub total: TotalLocation,
    /// A request of its own. Without it, the smallest page is requested.
    pub request: Option<RequestSpec>,
}

/// Where an answer contains a total.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TotalLocation {
    Path(JsonPath),
    Header(String),
}

/// The sign of the end of a list, and the checks of the source's totals and pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trust {
    pub end: EndRule,
    /// Total of each answer, compared with the records that were read.
    pub total: Option<TotalLocation>,
    /// Whether a partition is counted again after it was read.
    pub recount: bool,
    /// Whether a page that repeats the previous one fails the partition.
    pub repeats: bool,
    /// Whether the list, read to its end, contains every record, even if the client sees no evidence.
    #[serde(default)]
    pub complete: bool,
}

/// The sign of the end of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndRule {
    EmptyPage,
    /// A page with fewer records than requested.
    ShortPage,
    /// A flag in the answer is false.
    HasMore(JsonPath),
    /// As many records as the total were read.
    Total,
    /// The answer has no cursor or next URL.
    NoNext,
}

/// How deleted records are found. Several ways may be combined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deletes {
    pub lookup: Option<Lookup>,
    pub flag: Option<DeleteFlag>,
    /// Whether a record that a full sync does not contain counts as deleted.
    pub absence: bool,
    /// Fraction of the records that one sync may delete, in permille.
    pub threshold_permille: u32,
}

/// A request for records by id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Lookup {
    /// Several ids in one parameter of the list.
    Ids {
        param: ParamTarget,
        /// Separator of the ids in a query parameter. Without it, the parameter is repeated.
        separator: Option<String>,
        /// Ids in one request.
        ids_max: u32,
    },
    /// One request per record; these statuses mean that it is gone.
    GoneStatus {
        /// Path in which `{id}` stands for the id of the record.
        path: String,
        statuses: Vec<u16>,
    },
}

/// A value in a record that marks it as deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeleteFlag {
    pub path: JsonPath,
    /// Value of a deleted record. Without it, any value except null and false marks the record.
    pub equals: Option<String>,
}
