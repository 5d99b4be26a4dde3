//! The feed of a definition file: converts between the engine's queries and pages and those of the REST source.

use super::{RestError, RestPage, RestSource};
use crate::feed::{Feed, FeedCount, FeedFuture, MappedRecord, Reading};
use crate::{Budgets, FeedError, MapError, Network, Secret, Tuning};
use std::time::Duration;
use tidemill_core::Timestamp;
use tidemill_core::absence::{ListTraits, PageLinks};
use tidemill_core::digest::{sha256, sha256_hex};
use tidemill_core::feed::{FeedPage, FeedQuery, FieldRange, FieldValue, Item, RejectedItem};
use tidemill_core::feed_definition::paging::CursorKind;
use tidemill_core::feed_definition::request::Auth;
use tidemill_core::feed_definition::target::WriteDisposition;
use tidemill_core::feed_definition::{
    CursorValue, EndRule, FeedDefinition, PageAccess, Partition, Place, QueryRange, RecordQuery,
};
use tidemill_core::page::RepeatedPage;

/// A feed that a definition file describes.
pub(crate) struct RestFeed {
    source: RestSource,
    mapper_version: i32,
    digest: String,
}

impl RestFeed {
    /// Creates the client of a stored feed. Sends no request.
    pub(crate) fn open(
        feed: &tidemill_core::feed::Feed,
        secrets: &dyn Fn(&str) -> Option<Secret>,
        network: &Network,
        tuning: Tuning,
        budgets: &Budgets,
    ) -> Result<Self, FeedError> {
        let invalid = |reason| FeedError::InvalidSettings { feed: feed.feed.clone(), reason };
        let definition = feed.definition().ok_or_else(|| invalid("the feed has no definition".to_owned()))?;
        let definition = definition.map_err(invalid)?;
        let (mapper_version, digest) = (mapper_version(&definition), digest(&definition));
        let mut source = RestSource::new(definition, secrets, network, tuning)
            .map_err(|error| error.into_feed_error(&feed.endpoint))?;
        source.share_budget(&feed.project_id, budgets);
        Ok(Self { source, mapper_version, digest })
    }

    fn spec(&self) -> &FeedDefinition {
        self.source.definition()
    }

    /// Converts a query of the engine to the filters of the definition.
    fn query(&self, query: &FeedQuery) -> Result<RecordQuery, FeedError> {
        let spec = self.spec();
        let mut filters = self.whole(query.updated_from);
        match &spec.partition {
            Partition::None => {}
            Partition::Heatmap { .. } | Partition::TimeWindows { .. } => {
                filters.range = Some(QueryRange { from: query.range.from, to: query.range.to });
            }
            Partition::Values { values, .. } => {
                let index = usize::try_from(query.range.from).ok();
                let value = index.and_then(|index| values.get(index)).cloned();
                let missing = || FeedError::InvalidQuery {
                    reason: format!("`partition.values` has no entry {}", query.range.from),
                };
                filters.value = Some(value.ok_or_else(missing)?);
            }
        }
        Ok(filters)
    }

    /// Returns the query without the filter of a partition.
    fn whole(&self, updated_from: Option<Timestamp>) -> RecordQuery {
        let cursor = self.spec().incremental.as_ref().zip(updated_from);
        let updated_from = cursor.map(|(incremental, from)| match incremental.kind {
            CursorKind::Time { .. } => CursorValue::Time(from),
            CursorKind::Number { .. } => CursorValue::Number(number_of(from)),
        });
        RecordQuery { updated_from, ..RecordQuery::default() }
    }

    async fn count_of(&self, query: RecordQuery) -> Result<FeedCount, FeedError> {
        let counted = self.source.count(&query).await.map_err(|error| self.error(error))?;
        counted.ok_or_else(|| FeedError::InvalidQuery { reason: "the definition has no count".to_owned() })
    }

    fn error(&self, error: RestError) -> FeedError {
        error.into_feed_error(self.source.at())
    }
}

impl Feed for RestFeed {
    fn page_limit(&self) -> u32 {
        self.source.page_limit()
    }

    fn range(&self) -> FieldRange {
        let whole = FieldRange { from: 0, to: 1 };
        match &self.spec().partition {
            Partition::None => whole,
            Partition::Values { values, .. } => {
                FieldRange { from: 0, to: FieldValue::try_from(values.len()).unwrap_or(FieldValue::MAX) }
            }
            Partition::Heatmap { range, .. } | Partition::TimeWindows { range, .. } => {
                FieldRange { from: range.min, to: range.max.unwrap_or(FieldValue::MAX) }
            }
        }
    }

    fn granularity(&self) -> FieldValue {
        self.spec().partition.range().map_or(1, |range| range.granularity.max(1))
    }

    fn reading(&self) -> Reading {
        let spec = self.spec();
        let counts = matches!(spec.partition, Partition::Heatmap { .. }) || spec.trust.total.is_some();
        Reading {
            access: spec.paginator.access(),
            page_size: spec.paginator.page_size(),
            repeated: if spec.trust.repeats { RepeatedPage::Fails } else { RepeatedPage::Ends },
            counts,
            recounts: counts && spec.trust.recount,
            list: list_traits(spec, counts && spec.trust.recount),
        }
    }

    fn fixed_ranges(&self, now: Timestamp) -> Option<Vec<FieldRange>> {
        let queries = self.spec().partition.fixed_queries(now)?;
        let ranges = queries.iter().enumerate().map(|(index, query)| {
            let index = FieldValue::try_from(index).unwrap_or(FieldValue::MAX - 1);
            query.range.map_or(FieldRange { from: index, to: index + 1 }, |range| FieldRange {
                from: range.from,
                to: range.to,
            })
        });
        Some(ranges.collect())
    }

    fn changes_since(&self, watermark: Timestamp, _overlap: Duration) -> Option<Timestamp> {
        let incremental = self.spec().incremental.as_ref()?;
        let mark = match incremental.kind {
            CursorKind::Time { .. } => CursorValue::Time(watermark),
            CursorKind::Number { .. } => CursorValue::Number(number_of(watermark)),
        };
        Some(match incremental.start_after(mark) {
            CursorValue::Time(time) => time,
            CursorValue::Number(number) => time_of(number),
        })
    }

    fn definition(&self) -> Option<&FeedDefinition> {
        Some(self.spec())
    }

    fn digest(&self) -> Option<String> {
        Some(self.digest.clone())
    }

    fn mapper_version(&self) -> i32 {
        self.mapper_version
    }

    fn count<'a>(&'a self, query: &'a FeedQuery) -> FeedFuture<'a, FeedCount> {
        Box::pin(async move { self.count_of(self.query(query)?).await })
    }

    fn is_one_range(&self, range: FieldRange) -> bool {
        let whole = self.range();
        match self.spec().partition {
            Partition::None => true,
            // Even a single value is a filter.
            Partition::Values { .. } => false,
            Partition::Heatmap { .. } | Partition::TimeWindows { .. } => {
                range.from <= whole.from && range.to >= whole.to
            }
        }
    }

    fn count_whole(&self, updated_from: Option<Timestamp>) -> Option<FeedFuture<'_, FeedCount>> {
        // Without `recount`, the counts of the source are not compared with its lists.
        let is_proof = self.reading().recounts && self.spec().partition != Partition::None;
        is_proof.then(|| Box::pin(self.count_of(self.whole(updated_from))) as FeedFuture<'_, FeedCount>)
    }

    fn page<'a>(&'a self, query: &'a FeedQuery, place: &'a Place, limit: u32) -> FeedFuture<'a, FeedPage> {
        Box::pin(async move {
            let page = self.source.page(&self.query(query)?, place, limit).await;
            page.map(page_of).map_err(|error| self.error(error))
        })
    }

    fn lookup<'a>(&'a self, ids: &'a [String]) -> Option<FeedFuture<'a, Vec<String>>> {
        self.spec().deletes.lookup.as_ref()?;
        Some(Box::pin(async move {
            let found = self.source.lookup(ids).await.map_err(|error| self.error(error))?;
            Ok(found.unwrap_or_else(|| ids.to_vec()))
        }))
    }

    fn map(&self, payload: &str) -> Result<MappedRecord, MapError> {
        let row = self.source.map(payload).map_err(|error| MapError::new(error.to_string()))?;
        Ok(if row.is_deleted { MappedRecord::Deleted(row) } else { MappedRecord::Row(row) })
    }

    fn set_rate(&self, per_second: f64) {
        self.source.set_rate(per_second);
    }
}

/// Returns what shows that the lists of a definition are read whole. `recounts`: its counts are trusted.
fn list_traits(spec: &FeedDefinition, recounts: bool) -> ListTraits {
    // Another key than the primary one can change while the list is read, so that its record moves past the reader.
    let is_by_key = spec.paginator.key_path().is_some_and(|key| spec.resource.primary_key == [key.clone()]);
    let links = match spec.paginator.access() {
        PageAccess::Random => PageLinks::Overlap,
        PageAccess::Aligned(_) | PageAccess::Sequential if is_by_key => PageLinks::Keys,
        PageAccess::Aligned(_) | PageAccess::Sequential => PageLinks::Nothing,
    };
    let has_time = spec.incremental.as_ref().is_some_and(|one| matches!(one.kind, CursorKind::Time { .. }));
    let replaces = spec.into.write_disposition == WriteDisposition::Replace;
    ListTraits {
        links,
        counts_changes: recounts && has_time,
        ends_with_short_page: spec.trust.end == EndRule::ShortPage,
        is_declared: spec.trust.complete,
        decides_deletes: replaces || (spec.deletes.absence && spec.deletes.lookup.is_none()),
    }
}

fn page_of(page: RestPage) -> FeedPage {
    let numbers = page.items.iter().filter_map(|item| match item.cursor {
        Some(CursorValue::Number(number)) => Some(number),
        Some(CursorValue::Time(_)) | None => None,
    });
    let cursor_max = numbers.max();
    let items = page.items.into_iter().map(|item| Item {
        record_id: item.record_id,
        offer_id: None,
        payload: item.payload,
        payload_hash: item.payload_hash,
    });
    let rejected = page.rejected.into_iter().map(|rejection| RejectedItem {
        record_id: rejection.record_id,
        place: rejection.place,
        reason: rejection.reason,
        payload: rejection.payload,
        digest: rejection.digest,
    });
    FeedPage {
        items: items.collect(),
        rejected: rejected.collect(),
        is_last: page.is_last,
        next: page.next,
        cursor_max,
        keys_rise: page.keys_rise,
    }
}

/// Returns the number that a watermark stands for. Watermarks of feeds whose cursor is a number are stored as that many
/// microseconds after the beginning of 1970.
const fn number_of(watermark: Timestamp) -> i64 {
    watermark.timestamp_micros()
}

/// Returns the watermark that stands for a number; the nearest one if the number is out of range.
pub fn time_of(number: i64) -> Timestamp {
    tidemill_core::time::watermark_from_micros(number)
}

/// Derives the version of the mapping from everything that determines a row.
fn mapper_version(definition: &FeedDefinition) -> i32 {
    let parts = (&definition.into, &definition.deletes.flag, &definition.resource.primary_key);
    let hash = sha256(serde_json::to_string(&parts).unwrap_or_default().as_bytes());
    let [a, b, c, d, ..] = hash;
    i32::from_be_bytes([a & 0x7f, b, c, d])
}

/// Derives the digest of what is read. Time limits, rates, headers and credentials may change between two syncs or
/// within one.
pub(crate) fn digest(definition: &FeedDefinition) -> String {
    let mut read = definition.clone();
    read.client.auth = Auth::None;
    read.client.headers.clear();
    (read.client.timeout_secs, read.client.rate, read.client.budget) = (0, 0, None);
    let mut digest = sha256_hex(serde_json::to_string(&read).unwrap_or_default().as_bytes());
    digest.truncate(32);
    digest
}
