//! The `Feed` trait, and the function that opens a feed by its kind.

use crate::error::{FeedError, MapError};
use crate::nivoda::Nivoda;
use crate::{Network, Secret, Tuning};
use std::pin::Pin;
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::feed::{FeedPage, FeedQuery, FieldRange, FieldValue};

/// The pending answer of a feed.
pub type FeedFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FeedError>> + Send + 'a>>;

/// Number of records that match a query, with the source's time of the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCount {
    /// The authoritative number of records. Totals on a page are not reliable.
    pub count: u64,
    /// Time of the count by the source's clock, if the source reports it.
    pub source_time: Option<Timestamp>,
}

/// A source of records, which it counts, pages and maps.
///
/// `count` and `page` of equal queries cover the same records. Pages have a stable order: the offset of a record
/// changes only when a record before it disappears. Retries, login and the rate limit are internal to the feed; an
/// error is returned only after the retries are exhausted.
pub trait Feed: Send + Sync {
    /// Maximum number of records on a page.
    fn page_limit(&self) -> u32;

    /// The whole range of the partition field: every record is in it.
    fn range(&self) -> FieldRange;

    /// Resolution of the partition field: the boundaries of a range must be multiples of it.
    fn granularity(&self) -> FieldValue;

    /// Version of [`Feed::map`]. It changes whenever the same record may map to a different row.
    fn mapper_version(&self) -> i32;

    /// Counts the records that match a query.
    fn count<'a>(&'a self, query: &'a FeedQuery) -> FeedFuture<'a, FeedCount>;

    /// Reads at most `limit` records, starting at `offset`.
    fn page<'a>(&'a self, query: &'a FeedQuery, offset: u64, limit: u32) -> FeedFuture<'a, FeedPage>;

    /// Returns the subset of `ids` that the source still offers, including records that cannot be stored. `None` if the
    /// source cannot be queried by id.
    fn lookup<'a>(&'a self, ids: &'a [String]) -> Option<FeedFuture<'a, Vec<String>>>;

    /// Reads records that the source has withdrawn since `since` and still lists (sold ones, for example), starting at
    /// `offset`. `None` if the source does not list such records.
    fn withdrawn(&self, since: Timestamp, offset: u64, limit: u32) -> Option<FeedFuture<'_, FeedPage>> {
        let _ = (since, offset, limit);
        None
    }

    /// Maps a record to a row of the canonical table.
    fn map(&self, payload: &str) -> Result<Diamond, MapError>;

    /// Sets the request rate per second: this process's share of the feed's limit. 0 means unlimited.
    fn set_rate(&self, per_second: f64);
}

/// Host and port of a feed's endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, without brackets.
    pub host: String,
    pub port: u16,
}

/// Returns the endpoint that a feed connects to, as its client reads the URL.
pub fn endpoint_of(feed: &tidemill_core::feed::Feed) -> Result<Endpoint, FeedError> {
    crate::nivoda::endpoint(&feed.endpoint)
        .map_err(|reason| FeedError::InvalidEndpoint { feed: feed.feed.clone(), reason })
}

/// Opens a feed by its kind. Sends no request.
pub fn open(
    feed: &tidemill_core::feed::Feed,
    password: Option<Secret>,
    network: &Network,
    tuning: Tuning,
) -> Result<Arc<dyn Feed>, FeedError> {
    match feed.kind.as_str() {
        "nivoda" => Ok(Arc::new(Nivoda::new(feed, password, network, tuning)?)),
        #[cfg(any(test, feature = "csv"))]
        "csv" => Ok(Arc::new(crate::CsvFolder::new(&feed.endpoint))),
        other => Err(FeedError::UnknownKind { kind: other.chars().take(64).collect(), allowed: "nivoda" }),
    }
}
