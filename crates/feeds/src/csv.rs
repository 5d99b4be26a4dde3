//! A folder of CSV files as a feed: small, without a network, and unlike the other one. It is for tests.
//!
//! It tells prices apart by the cent, has large pages, says where the list ends, and cannot be asked by id.
//! Columns: `stone_id`, `offer_id`, `price` in dollars, `shape`, `carats`, `lab_grown`, and `updated_at`,
//! which may be missing.

use crate::error::{FeedError, MapFault};
use crate::feed::{Answer, Counted, Feed};
use crate::number::scaled;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tidemill_core::Timestamp;
use tidemill_core::diamond::Diamond;
use tidemill_core::feed::{BadItem, Cents, FeedPage, FeedQuery, Item};

/// A row by its columns.
type Row = BTreeMap<String, String>;

/// A folder whose CSV files together are the list: in the order of their names, and of the rows in them.
#[derive(Debug, Clone)]
pub struct CsvFolder {
    folder: PathBuf,
}

impl CsvFolder {
    /// The feed in a folder.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().to_owned() }
    }

    /// The rows that a query asks for.
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

    fn granularity(&self) -> Cents {
        1
    }

    fn mapper_version(&self) -> i32 {
        1
    }

    fn count<'a>(&'a self, query: &'a FeedQuery) -> Answer<'a, Counted> {
        Box::pin(async move {
            let count = self.rows(query).await?.len() as u64;
            Ok(Counted { count, source_time: None })
        })
    }

    fn page<'a>(&'a self, query: &'a FeedQuery, offset: u64, limit: u32) -> Answer<'a, FeedPage> {
        Box::pin(async move {
            if limit == 0 || limit > self.page_limit() {
                return Err(FeedError::BadQuery {
                    reason: format!("a page has 1 to 1000 records, not {limit}"),
                });
            }
            let rows = self.rows(query).await?;
            let first = usize::try_from(offset).unwrap_or(usize::MAX).min(rows.len());
            let last = first.saturating_add(limit as usize).min(rows.len());
            let mut page = FeedPage { is_last: last == rows.len(), ..FeedPage::default() };
            for (place, row) in rows[first..last].iter().enumerate() {
                match record(row, place) {
                    Ok(item) => page.items.push(item),
                    Err(bad) => page.bad.push(bad),
                }
            }
            Ok(page)
        })
    }

    fn lookup<'a>(&'a self, _ids: &'a [String]) -> Option<Answer<'a, Vec<String>>> {
        None
    }

    fn map(&self, payload: &str) -> Result<Diamond, MapFault> {
        let row: Row = serde_json::from_str(payload)
            .map_err(|error| MapFault::new(format!("the record cannot be read: {error}")))?;
        map(&row)
    }

    fn set_rate(&self, _per_second: f64) {}
}

fn read(folder: &Path, query: &FeedQuery) -> Result<Vec<Row>, String> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("cannot be read ({error}); check the folder"))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    let mut rows = Vec::new();
    for file in files {
        let unreadable =
            |error: ::csv::Error| format!("has a file that is no CSV, {} ({error})", file.display());
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

/// Whether a query asks for a row. A row without a price that can be read costs nothing, so that somebody
/// sees it.
fn fits(row: &Row, query: &FeedQuery) -> bool {
    let updated_at = row.get("updated_at").and_then(|text| text.parse::<Timestamp>().ok());
    let is_new = match (query.updated_from, updated_at) {
        (Some(from), Some(at)) => at >= from,
        _ => true,
    };
    is_new && query.prices.contains(price(row).unwrap_or(0))
}

fn price(row: &Row) -> Option<Cents> {
    scaled(row.get("price")?, 2).filter(|cents| *cents >= 0)
}

fn text(row: &Row, column: &str) -> Option<String> {
    row.get(column).map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn record(row: &Row, place: usize) -> Result<Item, BadItem> {
    let payload = serde_json::to_string(row).unwrap_or_default();
    // As it came: ids that differ in a space are two stones.
    let Some(stone_id) = row.get("stone_id").filter(|id| !id.trim().is_empty()).cloned() else {
        return Err(BadItem::new(None, place, "`stone_id` is missing".to_owned(), &payload));
    };
    if row.values().any(|value| value.contains('\0')) {
        let reason = "the record has a NUL character, which a database cannot hold".to_owned();
        return Err(BadItem::new(Some(stone_id), place, reason, &payload));
    }
    Ok(Item::new(stone_id, text(row, "offer_id"), payload))
}

fn map(row: &Row) -> Result<Diamond, MapFault> {
    let missing = |column: &str| MapFault::new(format!("`{column}` is missing, or cannot be read"));
    let stone_id = text(row, "stone_id").ok_or_else(|| missing("stone_id"))?;
    let feed_price = price(row).ok_or_else(|| missing("price"))?;
    let shape = text(row, "shape").ok_or_else(|| missing("shape"))?.to_uppercase();
    let points = row.get("carats").and_then(|carats| scaled(carats, 2)).ok_or_else(|| missing("carats"))?;
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
    use tidemill_core::feed::PriceRange;

    const ONE: &str = "stone_id,offer_id,price,shape,carats,lab_grown,updated_at\n\
        S-1,O-1,10.00,round,1.005,true,2026-01-01T00:00:00Z\n\
        S-2,,10.01,pear,0.5,,2026-01-02T00:00:00Z\n\
        ,O-3,10.02,pear,0.5,,2026-01-02T00:00:00Z\n";
    const TWO: &str = "stone_id,price,shape,carats\nS-4,99.99,oval,2\nS-5,what,oval,2\n";

    /// A folder with two files and something else, and the feed in it, behind the trait.
    fn folder() -> (tempfile::TempDir, Arc<dyn Feed>) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("b.csv", TWO), ("a.csv", ONE), ("read.me", "no CSV")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let feed = tidemill_core::feed::Feed {
            feed: "shelf".into(),
            project_id: "p".into(),
            kind: "csv".into(),
            endpoint: folder.path().display().to_string(),
            username: None,
            password_env: None,
            rate: 0,
            settings: serde_json::json!(null),
            created_at: Timestamp::UNIX_EPOCH,
        };
        (folder, open(&feed, None, Tuning::default()).unwrap())
    }

    fn query(from: Cents, to: Cents) -> FeedQuery {
        FeedQuery { prices: PriceRange { from, to }, updated_from: None }
    }

    #[tokio::test]
    async fn pages_together_are_the_count_in_one_order() {
        let (_folder, feed) = folder();
        let query = query(1, tidemill_core::feed::PRICE_CEILING);
        let (mut names, mut bad, mut offset) = (Vec::new(), 0, 0);
        loop {
            let page = feed.page(&query, offset, 2).await.unwrap();
            offset += (page.items.len() + page.bad.len()) as u64;
            bad += page.bad.len();
            names.extend(page.items.into_iter().map(|item| item.stone_id));
            if page.is_last {
                break;
            }
        }
        assert_eq!((names, bad), (vec!["S-1".to_owned(), "S-2".into(), "S-4".into()], 1));
        assert_eq!(feed.count(&query).await.unwrap(), Counted { count: offset, source_time: None });
    }

    #[tokio::test]
    async fn prices_are_told_apart_by_the_cent_and_times_are_heeded() {
        let (_folder, feed) = folder();
        let mut query = query(1_000, 10_02);
        assert_eq!(feed.count(&query).await.unwrap().count, 2);
        query.updated_from = Some("2026-01-02T00:00:00Z".parse().unwrap());
        let page = feed.page(&query, 0, 10).await.unwrap();
        assert_eq!(page.items[0].stone_id, "S-2");
        assert_eq!((page.items.len(), page.is_last), (1, true));
    }

    #[tokio::test]
    async fn a_row_is_mapped_or_says_what_it_lacks() {
        let (_folder, feed) = folder();
        let page = feed.page(&query(0, 10_01), 0, 10).await.unwrap();
        let stones: Vec<_> = page.items.iter().map(|item| feed.map(&item.payload)).collect();
        let stone = stones[0].as_ref().unwrap();
        assert_eq!(
            (stone.feed_price, stone.points, stone.shape.as_str(), stone.lab_grown),
            (1_000, 101, "ROUND", true)
        );
        assert_eq!(stones[1].as_ref().unwrap_err().reason(), "`price` is missing, or cannot be read");
    }

    #[tokio::test]
    async fn it_cannot_be_asked_by_id_nor_where_it_is_not() {
        let (folder, feed) = folder();
        assert!(feed.lookup(&["S-1".to_owned()]).is_none());
        drop(folder);
        let error = feed.count(&query(0, 1)).await.unwrap_err();
        assert_eq!(error.class(), ErrorClass::Permanent);
    }
}
