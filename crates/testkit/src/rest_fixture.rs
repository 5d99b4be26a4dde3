//! A feed of a definition file for tests: the supplier's REST API, a table of the user, and the comparison of both.
#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be set up or read must end the test"
)]
#![expect(clippy::print_stdout, reason = "a choice is printed for the reader of the output")]

use std::collections::BTreeMap;

use tidemill_core::RunId;
use tidemill_core::feed::Feed;
use tidemill_core::feed_definition::{JsonPath, JsonValue};
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_engine::sync::{FeedChange, SyncSettings};
pub use tidemill_supplier::RestKind;
use tidemill_supplier::{Config, Handle, RestDefinition};

use crate::interface::{Fixture, Kind};
use crate::sync_fixture::{SyncFixture, quick};

/// Name of the feed of every fixture.
pub const ITEMS: &str = "items";
/// Table that receives the items.
pub const TABLE: &str = "public.items";
/// Columns that are compared, and where a record has their values.
const COMPARED: &[(&str, &str)] = &[
    ("id", "id"),
    ("sku", "sku"),
    ("status", "status"),
    ("price", "price"),
    ("quantity", "quantity"),
    ("brand", "brand"),
    ("warehouse", "warehouse.code"),
];

/// A fixture of syncs with a second feed, which a definition file describes.
pub struct RestFixture {
    pub base: SyncFixture,
}

impl RestFixture {
    /// Opens a fixture with a feed of this pagination and number of items.
    pub async fn open(kind: Kind, pagination: RestKind, items: u32) -> Self {
        Self::with(kind, pagination, Config { stones: items, ..SyncFixture::config() }, many()).await
    }

    /// Opens a fixture with these settings.
    pub async fn with(kind: Kind, pagination: RestKind, config: Config, settings: SyncSettings) -> Self {
        let fixture = Self { base: SyncFixture::with(kind, config, settings).await };
        let text = fixture.definition(pagination);
        fixture.apply(&text).await;
        fixture
    }

    /// Returns the definition of the feed, with 20 items per page.
    pub fn definition(&self, kind: RestKind) -> String {
        let base_url = &self.base.supplier.rest_url;
        RestDefinition { base_url, feed: ITEMS, table: TABLE, kind, page_size: 20 }.to_yaml()
    }

    /// Applies a definition and creates or extends its table.
    pub async fn apply(&self, text: &str) {
        self.base.syncs.put_feed(self.change(text)).await.expect("the definition is applied");
        let plan = self.base.syncs.create_table(ITEMS).await.expect("the table is created");
        assert!(plan.exists && plan.statements.is_empty() && plan.problems.is_empty(), "{plan:#?}");
    }

    /// Returns the change of the feed to a definition.
    pub fn change(&self, text: &str) -> FeedChange {
        let change = self.base.feed_of("default", ITEMS);
        let feed = Feed { kind: "rest".to_owned(), username: None, password_env: None, ..change.feed };
        FeedChange { feed, definition: Some(text.to_owned()), ..change }
    }

    /// Queues a sync of the feed.
    pub async fn queue(&self, full: bool) -> RunId {
        self.base.syncs.start(ITEMS, full, None).await.expect("the sync is queued").run_id
    }

    /// Runs a sync to its end, which must be a success; returns it.
    pub async fn sync(&self, full: bool) -> Sync {
        let run = self.queue(full).await;
        let ended = self.base.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        self.base.record(&run).await
    }

    /// Returns the rows of the table.
    pub async fn rows(&self) -> BTreeMap<String, String> {
        item_rows(&self.base.base).await
    }

    /// Returns the expected rows: the active items of the source.
    pub fn expected(&self) -> BTreeMap<String, String> {
        expected_items(&self.base.supplier.handle)
    }

    /// Checks that the table equals the source, row by row.
    pub async fn check_equal(&self) {
        let (mut found, mut expected) = (self.rows().await, self.expected());
        found.retain(|id, row| expected.get(id) != Some(row) || expected.remove(id).is_none());
        let (extra, missing): (Vec<_>, Vec<_>) =
            (found.values().take(3).collect(), expected.values().take(3).collect());
        assert!(
            found.is_empty() && expected.is_empty(),
            "{} rows are not the source's: {extra:#?}; {} of the source's are missing: {missing:#?}",
            found.len(),
            expected.len()
        );
    }
}

impl SyncFixture {
    /// Opens a fixture that syncs and compares the items of the REST API.
    pub async fn rest(kind: Kind, pagination: RestKind, config: Config, settings: SyncSettings) -> Self {
        let mut fixture = RestFixture::with(kind, pagination, config, settings).await.base;
        ITEMS.clone_into(&mut fixture.feed);
        fixture
    }
}

/// Returns the rows of the table of items by id.
pub(crate) async fn item_rows(base: &Fixture) -> BTreeMap<String, String> {
    let shown = |column: &str| format!("coalesce(CAST({column} AS text), 'NULL')");
    let columns: Vec<String> = COMPARED.iter().map(|(column, _)| shown(column)).collect();
    let table = match base.kind {
        Kind::Sqlite => "items",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => TABLE,
    };
    let text = format!("SELECT {} FROM {table}", columns.join(" || '|' || "));
    let lines = base.plain.texts(&text).await.expect("the table is read");
    let count = lines.len();
    let id_of = |line: &String| line.split('|').next().unwrap_or_default().to_owned();
    let rows: BTreeMap<String, String> = lines.into_iter().map(|line| (id_of(&line), line)).collect();
    assert_eq!(rows.len(), count, "each id has one row");
    rows
}

/// Returns the expected rows of the table of items by id: the active items of the source.
pub(crate) fn expected_items(supplier: &Handle) -> BTreeMap<String, String> {
    let row = |(id, record): (String, String)| {
        let record = JsonValue::parse(record.as_bytes(), 64).expect("the truth is JSON");
        let value = |path: &str| {
            let found = path.parse::<JsonPath>().expect("a path").select(&record).cloned();
            found.and_then(|value| value.scalar().map(str::to_owned)).unwrap_or("NULL".to_owned())
        };
        let values: Vec<String> = COMPARED.iter().map(|(_, path)| value(path)).collect();
        (id, values.join("|"))
    };
    supplier.rest_truth().into_iter().map(row).collect()
}

/// Kinds of pagination with several pages.
const PAGED: [RestKind; 10] = [
    RestKind::PageNumber,
    RestKind::Offset,
    RestKind::Cursor,
    RestKind::JsonLink,
    RestKind::HeaderCursor,
    RestKind::HeaderUrl,
    RestKind::HeaderLink,
    RestKind::Keyset,
    RestKind::GraphqlOffset,
    RestKind::GraphqlConnection,
];

/// Returns the kinds of pagination with several pages, except some.
pub fn paged_except(excluded: &[RestKind]) -> Vec<RestKind> {
    PAGED.into_iter().filter(|kind| !excluded.contains(kind)).collect()
}

/// Chooses one of some kinds of pagination at random, and prints it. `TIDEMILL_PAGINATION` repeats the choice.
pub fn any_of(kinds: &[RestKind]) -> RestKind {
    let wanted = std::env::var("TIDEMILL_PAGINATION").ok().and_then(|kind| kind.parse().ok());
    let chosen = wanted.or_else(|| fastrand::choice(kinds).copied()).expect("there is a kind");
    println!("pagination: TIDEMILL_PAGINATION={chosen}");
    chosen
}

/// Returns settings under which a few hundred items make several partitions.
pub fn many() -> SyncSettings {
    SyncSettings { unlimited: true, partition_target: 100, partition_min: 40, ..quick() }
}
