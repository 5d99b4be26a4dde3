//! The `Feed` trait, and the function that opens a feed by its kind.

use crate::error::{FeedError, MapError};
use crate::nivoda::Nivoda;
use crate::rest::{MappedRow, RestFeed, endpoints_of};
use crate::{Budgets, Network, Secret, Tuning};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::absence::{ListTraits, PageLinks};
use tidemill_core::diamond::Diamond;
use tidemill_core::feed::{FeedPage, FeedQuery, FieldRange, FieldValue, REST_KIND};
use tidemill_core::feed_definition::{FeedDefinition, PageAccess, Place};
use tidemill_core::page::RepeatedPage;

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

/// How the pages of a feed are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// How pages can be reached.
    pub access: PageAccess,
    /// Number of records per page, if the feed prescribes it.
    pub page_size: Option<u32>,
    /// The meaning of a page that repeats the previous one.
    pub repeated: RepeatedPage,
    /// Whether the feed counts the records of a query.
    pub counts: bool,
    /// Whether a partition is counted again after its last page.
    pub recounts: bool,
    /// Properties of a list by which it is shown that it was read whole.
    pub list: ListTraits,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            access: PageAccess::Random,
            page_size: None,
            repeated: RepeatedPage::Fails,
            counts: true,
            recounts: true,
            list: ListTraits {
                links: PageLinks::Overlap,
                counts_changes: false,
                ends_with_short_page: false,
                is_declared: false,
                decides_deletes: true,
            },
        }
    }
}

/// The result of mapping a record.
#[derive(Debug, Clone, PartialEq)]
pub enum MappedRecord {
    /// A row of the table `diamonds`.
    Diamond(Box<Diamond>),
    /// A row of the table of a definition.
    Row(MappedRow),
    /// The record itself says that it is deleted. The row contains at least the columns of its key.
    Deleted(MappedRow),
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

    /// Resolution of the partition field: the boundaries of a range must be multiples of it, counted from the beginning
    /// of the range.
    fn granularity(&self) -> FieldValue;

    /// How the pages are read.
    fn reading(&self) -> Reading {
        Reading::default()
    }

    /// The partitions of a sync that starts now, for feeds that are not divided by counts.
    fn fixed_ranges(&self, now: Timestamp) -> Option<Vec<FieldRange>> {
        let _ = now;
        None
    }

    /// Beginning of the time window of an incremental sync; `None` if every sync reads all records. `overlap` is the
    /// default overlap with the previous sync.
    fn changes_since(&self, watermark: Timestamp, overlap: Duration) -> Option<Timestamp> {
        Some(chrono::TimeDelta::from_std(overlap).map_or(watermark, |overlap| watermark - overlap))
    }

    /// The definition of a feed that a file describes.
    fn definition(&self) -> Option<&FeedDefinition> {
        None
    }

    /// Digest of everything in the definition that determines which records are read. A sync reads with one digest.
    fn digest(&self) -> Option<String> {
        None
    }

    /// Version of [`Feed::map`]. It changes whenever the same record may map to a different row.
    fn mapper_version(&self) -> i32;

    /// Counts the records that match a query.
    fn count<'a>(&'a self, query: &'a FeedQuery) -> FeedFuture<'a, FeedCount>;

    /// Whether this range is the only one, so that no record can lie between two ranges.
    fn is_one_range(&self, range: FieldRange) -> bool {
        range == self.range()
    }

    /// Counts the records of the whole list, without the filter of a partition. `None` if the counts of the source
    /// cannot show whether the partitions contain every record.
    fn count_whole(&self, updated_from: Option<Timestamp>) -> Option<FeedFuture<'_, FeedCount>> {
        let _ = updated_from;
        None
    }

    /// Reads at most `limit` records, starting at a place.
    fn page<'a>(&'a self, query: &'a FeedQuery, place: &'a Place, limit: u32) -> FeedFuture<'a, FeedPage>;

    /// Returns the subset of `ids` that the source still offers, including records that cannot be stored. `None` if the
    /// source cannot be queried by id.
    fn lookup<'a>(&'a self, ids: &'a [String]) -> Option<FeedFuture<'a, Vec<String>>>;

    /// Reads records that the source has withdrawn since `since` and still lists (sold ones, for example), starting at
    /// `offset`. `None` if the source does not list such records.
    fn withdrawn(&self, since: Timestamp, offset: u64, limit: u32) -> Option<FeedFuture<'_, FeedPage>> {
        let _ = (since, offset, limit);
        None
    }

    /// Maps a record to a row.
    fn map(&self, payload: &str) -> Result<MappedRecord, MapError>;

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

/// Returns the endpoints that a feed connects to, as its client reads the URLs.
pub fn endpoints(feed: &tidemill_core::feed::Feed) -> Result<Vec<Endpoint>, FeedError> {
    let invalid = |reason| FeedError::InvalidEndpoint { feed: feed.feed.clone(), reason };
    match feed.definition() {
        Some(definition) => {
            let definition = definition.map_err(invalid)?;
            endpoints_of(&definition).map_err(|error| error.into_feed_error(&feed.endpoint))
        }
        None => crate::nivoda::endpoint(&feed.endpoint).map(|endpoint| vec![endpoint]).map_err(invalid),
    }
}

/// Returns the environment variables whose values a feed uses.
pub fn variables(feed: &tidemill_core::feed::Feed) -> Vec<String> {
    let defined = feed.definition().and_then(Result::ok);
    let named = defined.as_ref().map(FeedDefinition::secret_names).unwrap_or_default();
    feed.password_env.iter().cloned().chain(named.into_iter().map(str::to_owned)).collect()
}

/// Returns the digest of a stored feed, see [`Feed::digest`].
pub fn digest(feed: &tidemill_core::feed::Feed) -> Option<String> {
    feed.definition()?.ok().map(|definition| crate::rest::digest(&definition))
}

/// Opens a feed by its kind. `secrets` returns the values of environment variables. Sends no request.
pub fn open(
    feed: &tidemill_core::feed::Feed,
    secrets: &dyn Fn(&str) -> Option<Secret>,
    network: &Network,
    tuning: Tuning,
    budgets: &Budgets,
) -> Result<Arc<dyn Feed>, FeedError> {
    match feed.kind.as_str() {
        "nivoda" => {
            let password = feed.password_env.as_deref().and_then(secrets);
            Ok(Arc::new(Nivoda::new(feed, password, network, tuning)?))
        }
        REST_KIND => Ok(Arc::new(RestFeed::open(feed, secrets, network, tuning, budgets)?)),
        #[cfg(any(test, feature = "csv"))]
        "csv" => Ok(Arc::new(crate::CsvFolder::new(&feed.endpoint))),
        other => {
            Err(FeedError::UnknownKind { kind: other.chars().take(64).collect(), allowed: "nivoda, rest" })
        }
    }
}
