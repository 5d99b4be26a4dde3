//! A feed that reads a folder of CSV files, for tests.
//!
//! It differs from Nivoda where the trait allows it: prices have a resolution of one cent, pages are large, the last
//! page is marked, and there is no lookup by id. Columns: `stone_id`, `offer_id`, `price` in dollars, `shape`,
//! `carats`, `lab_grown`, and the optional `updated_at`.

use crate::error::{FeedError, MapError};
use crate::feed::{Feed, FeedCount, FeedFuture, MappedRecord};
use crate::number::parse_scaled;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tidemill_core::Timestamp;
use tidemill_core::diamond::{ALL_PRICES, Cents, Diamond};
use tidemill_core::feed::{FeedPage, FeedQuery, FieldRange, FieldValue, Item, RejectedItem};
use tidemill_core::feed_definition::Place;

/// A row: values by column name.
type Row = BTreeMap<String, String>;

/// A folder whose CSV files form one list, ordered by file name and then by row.
#[derive(Debug, Clone)]
pub struct CsvFolder {
    folder: PathBuf,
}

impl CsvFolder {
    /// Creates the feed of a folder.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned() }
    }

    /// Reads the rows that match a query.
    async fn rows(&self, query: &FeedQuery) -> Result<Vec<Row>, FeedError> {
        let (folder, query) = (self.folder.clone(), query.clone());
        let read = tokio::task::spawn_blocking(move || read(&folder, &query)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        read.map_err(|reason| FeedError::Permanent { at: self.folder.display().to_string(), reason })
    }
}

impl Feed for CsvFolder {
    fn page_limit(&self) -> u32 {
        1_000
    }

    fn range(&self) -> FieldRange {
        ALL_PRICES
    }

    fn granularity(&self) -> FieldValue {
        1
    }

    fn mapper_version(&self) -> i32 {
        1
    }

    fn count<'a>(&'a self, query: &'a FeedQuery) -> FeedFuture<'a, FeedCount> {
        Box::pin(async move {
            let count = self.rows(query).await?.len() as u64;
            Ok(FeedCount { count, source_time: None })
        })
    }

    fn page<'a>(&'a self, query: &'a FeedQuery, place: &'a Place, limit: u32) -> FeedFuture<'a, FeedPage> {
        Box::pin(async move {
            if limit == 0 || limit > self.page_limit() {
                return Err(FeedError::InvalidQuery {
                    reason: format!("page size must be between 1 and 1000, but is {limit}"),
                });
            }
            let rows = self.rows(query).await?;
            let first = usize::try_from(place.offset).unwrap_or(usize::MAX).min(rows.len());
            let last = first.saturating_add(limit as usize).min(rows.len());
            let mut page = FeedPage { is_last: last == rows.len(), ..FeedPage::default() };
            for (position, row) in rows[first..last].iter().enumerate() {
                match record(row, position) {
                    Ok(item) => page.items.push(item),
                    Err(bad) => page.rejected.push(bad),
                }
            }
            Ok(page)
        })
    }

    fn lookup<'a>(&'a self, _ids: &'a [String]) -> Option<FeedFuture<'a, Vec<String>>> {
        None
    }

    fn map(&self, payload: &str) -> Result<MappedRecord, MapError> {
        let row: Row = serde_json::from_str(payload)
            .map_err(|error| MapError::new(format!("invalid record: {error}")))?;
        map(&row).map(|diamond| MappedRecord::Diamond(Box::new(diamond)))
    }

    fn set_rate(&self, _per_second: f64) {}
}

fn read(folder: &Path, query: &FeedQuery) -> Result<Vec<Row>, String> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("cannot be read ({error}); check the directory"))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        let unreadable =
            |error: ::csv::Error| format!("contains a file that is not CSV: {} ({error})", file.display());
        let mut reader = ::csv::Reader::from_path(&file).map_err(unreadable)?;
        for row in reader.deserialize::<Row>() {
            let row = row.map_err(unreadable)?;
            if fits(&row, query) {
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Whether a row matches a query. A row with an unreadable price counts as price 0, so that it appears on a page and is
/// reported as a bad record.
fn fits(row: &Row, query: &FeedQuery) -> bool {
    let updated_at = row.get("updated_at").and_then(|text| text.parse::<Timestamp>().ok());
    let is_new = match (query.updated_from, updated_at) {
        (Some(from), Some(at)) => at >= from,
        _ => true,
    };
    is_new && query.range.contains(price(row).unwrap_or(0))
}

fn price(row: &Row) -> Option<Cents> {
    parse_scaled(row.get("price")?, 2).filter(|cents| *cents >= 0)
}

fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column).map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn record(row: &Row, position: usize) -> Result<Item, RejectedItem> {
    let payload = serde_json::to_string(row).unwrap_or_default();
    // The id is not trimmed: ids that differ only in a space are different stones.
    let Some(stone_id) = row.get("stone_id").filter(|id| !id.trim().is_empty()).cloned() else {
        return Err(RejectedItem::new(None, position, "`stone_id` is missing".to_owned(), &payload));
    };
    if row.values().any(|value| value.contains('\0')) {
        let reason = "the record contains a NUL character, which databases cannot store".to_owned();
        return Err(RejectedItem::new(Some(stone_id), position, reason, &payload));
    }
    Ok(Item::new(stone_id, text(row, "offer_id"), payload))
}

fn map(row: &Row) -> Result<Diamond, MapError> {
    let missing = |column: &str| MapError::new(format!("`{column}` is missing or unreadable"));
    let stone_id = text(row, "stone_id").ok_or_else(|| missing("stone_id"))?;
    let feed_price = price(row).ok_or_else(|| missing("price"))?;
    let shape = text(row, "shape").ok_or_else(|| missing("shape"))?.to_uppercase();
    let points =
        row.get("carats").and_then(|carats| parse_scaled(carats, 2)).ok_or_else(|| missing("carats"))?;
    Ok(Diamond {
        offer_id: text(row, "offer_id"),
        lab_grown: text(row, "lab_grown").is_some_and(|text| text.eq_ignore_ascii_case("true")),
        ..Diamond::new(stone_id, feed_price, shape, points)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorClass, Tuning, open};
    use std::sync::Arc;
    use tidemill_core::diamond::PRICE_CEILING;

    const ONE: &str = "stone_id,offer_id,price,shape,carats,lab_grown,updated_at\n\
        S-1,O-1,10.00,round,1.005,true,2026-01-01T00:00:00Z\n\
        S-2,,10.01,pear,0.5,,2026-01-02T00:00:00Z\n\
        ,O-3,10.02,pear,0.5,,2026-01-02T00:00:00Z\n";
    const TWO: &str = "stone_id,price,shape,carats\nS-4,99.99,oval,2\nS-5,what,oval,2\n";

    /// A folder with two CSV files and another file, opened through the trait.
    fn folder() -> (tempfile::TempDir, Arc<dyn Feed>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.csv", TWO), ("a.csv", ONE), ("read.me", "no CSV")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let feed = tidemill_core::feed::Feed {
            feed: "csv-folder".into(),
            project_id: "p".into(),
            kind: "csv".into(),
            endpoint: folder.path().display().to_string(),
            username: None,
            password_env: None,
            rate: 0,
            settings: serde_json::json!(null),
            defined_by: tidemill_core::reach::DefinedBy::Operator,
            created_at: Timestamp::UNIX_EPOCH,
        };
        let (network, budgets) = (crate::Network::Unrestricted, crate::Budgets::default());
        (folder, open(&feed, &|_| None, &network, Tuning::default(), &budgets).unwrap())
    }

    fn at(offset: u64) -> Place {
        Place { offset, token: None }
    }

    fn query(from: Cents, to: Cents) -> FeedQuery {
        FeedQuery { range: FieldRange { from, to }, updated_from: None }
    }

    #[tokio::test]
    async fn pages_add_up_to_the_count_in_a_stable_order() {
        let (_folder, feed) = folder();
        let query = query(1, PRICE_CEILING);
        let (mut names, mut bad, mut offset) = (Vec::new(), 0, 0);
        loop {
            let page = feed.page(&query, &at(offset), 2).await.unwrap();
            offset += (page.items.len() + page.rejected.len()) as u64;
            bad += page.rejected.len();
            names.extend(page.items.into_iter().map(|item| item.record_id));
            if page.is_last {
                break;
            }
        }
        assert_eq!((names, bad), (vec!["S-1".to_owned(), "S-2".into(), "S-4".into()], 1));
        assert_eq!(feed.count(&query).await.unwrap(), FeedCount { count: offset, source_time: None });
    }

    #[tokio::test]
    async fn query_filters_by_price_in_cents_and_by_time() {
        let (_folder, feed) = folder();
        let mut query = query(1_000, 10_02);
        assert_eq!(feed.count(&query).await.unwrap().count, 2);
        query.updated_from = Some("2026-01-02T00:00:00Z".parse().unwrap());
        let page = feed.page(&query, &at(0), 10).await.unwrap();
        assert_eq!(page.items[0].record_id, "S-2");
        assert_eq!((page.items.len(), page.is_last), (1, true));
    }

    #[tokio::test]
    async fn row_is_mapped_or_reports_the_missing_column() {
        let (_folder, feed) = folder();
        let page = feed.page(&query(0, 10_01), &at(0), 10).await.unwrap();
        let stones: Vec<_> = page.items.iter().map(|item| feed.map(&item.payload)).collect();
        let Ok(MappedRecord::Diamond(stone)) = &stones[0] else { panic!("{stones:?}") };
        assert_eq!(
            (stone.feed_price, stone.points, stone.shape.as_str(), stone.lab_grown),
            (1_000, 101, "ROUND", true)
        );
        assert_eq!(stones[1].as_ref().unwrap_err().reason(), "`price` is missing or unreadable");
    }

    #[tokio::test]
    async fn lookup_is_unsupported_and_missing_folder_is_permanent() {
        let (folder, feed) = folder();
        assert!(feed.lookup(&["S-1".to_owned()]).is_none());
        drop(folder);
        let error = feed.count(&query(0, 1)).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Permanent);
    }
}
