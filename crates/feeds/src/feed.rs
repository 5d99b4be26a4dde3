//! The trait that every source fulfils, and the one place that knows the kinds by name.

use crate::error::{FeedError, MapFault};
use crate::nivoda::Nivoda;
use crate::{Secret, Tuning};
use std::pin::Pin;
use std::sync::Arc;
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::feed::{Cents, FeedPage, FeedQuery};

/// What a feed will answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, FeedError>> + Send + 'a>>;

/// How many records a question has, and when that was so by the source's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// How many records there are. This is the authority; nothing on a page is.
    pub count: u64,
    /// The source's time, where it tells it.
    pub source_time: Option<Timestamp>,
}

/// A source of stones.
///
/// The answers to `count` and `page` for equal queries speak of the same records. Pages are in a stable
/// order: a record keeps its place until one before it vanishes. Retries, login and the rate limit are
/// inside; an error that comes out has survived them.
pub trait Feed: Send + Sync {
    /// Most records on a page.
    fn page_limit(&self) -> u32;

    /// The steps in which prices can be told apart: the boundaries of a range are multiples of it.
    fn granularity(&self) -> Cents;

    /// The version of [`Feed::map`], with everything that its result depends on besides the record.
    fn mapper_version(&self) -> i32;

    /// How many records a question has.
    fn count<'a>(&'a self, query: &'a FeedQuery) -> Answer<'a, Counted>;

    /// The records from `offset` on, at most `limit` of them.
    fn page<'a>(&'a self, query: &'a FeedQuery, offset: u64, limit: u32) -> Answer<'a, FeedPage>;

    /// Those of the ids that the source still offers; `None` when it cannot be asked by id. Records that cannot be kept
    /// are there too.
    fn lookup<'a>(&'a self, ids: &'a [String]) -> Option<Answer<'a, Vec<String>>>;

    /// Stones that the source has stopped offering since then and still lists, from `offset` on: those that were sold,
    /// say. `None` when it does not list such stones.
    fn withdrawn(&self, since: Timestamp, offset: u64, limit: u32) -> Option<Answer<'_, FeedPage>> {
        let _ = (since, offset, limit);
        None
    }

    /// The stone that a record describes.
    fn map(&self, payload: &str) -> Result<Diamond, MapFault>;

    /// Requests per second from now on: this process's share of the feed's limit. 0 is no limit.
    fn set_rate(&self, per_second: f64);
}

/// A feed that can be asked, by its kind. Nothing is sent yet.
pub fn open(
    feed: &tidemill_core::feed::Feed,
    password: Option<Secret>,
    tuning: Tuning,
) -> Result<Arc<dyn Feed>, FeedError> {
    match feed.kind.as_str() {
        "nivoda" => Ok(Arc::new(Nivoda::new(feed, password, tuning)?)),
        #[cfg(any(test, feature = "csv"))]
        "csv" => Ok(Arc::new(crate::CsvFolder::new(&feed.endpoint))),
        other => Err(FeedError::UnknownKind { kind: other.chars().take(64).collect(), allowed: "nivoda" }),
    }
}
