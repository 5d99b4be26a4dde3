//! The tables of feeds: a raw table per feed, and the user's table that a definition fills.
#![expect(clippy::unwrap_used, reason = "a set-up that fails ends the test")]

#[path = "feed_tables/deletes.rs"]
mod deletes;
#[path = "feed_tables/other_keys.rs"]
mod other_keys;
#[path = "feed_tables/plan.rs"]
mod plan;
#[path = "feed_tables/raw.rs"]
mod raw;
#[path = "feed_tables/refusals.rs"]
mod refusals;
#[path = "feed_tables/rows.rs"]
mod rows;

use sqlx::ConnectOptions as _;
use std::sync::Arc;
use tidemill_core::absence::{AbsentRecords, LookupControl};
use tidemill_core::digest::sha256;
use tidemill_core::feed::{Feed, Item, REST_KIND, RawTable};
use tidemill_core::feed_definition::path::JsonPath;
use tidemill_core::feed_definition::target::{
    Column, ColumnSource, ColumnType, SchemaContract, TableName, Target, WriteDisposition,
};
use tidemill_core::feed_definition::{ColumnValue, cast};
use tidemill_core::reach::DefinedBy;
use tidemill_core::{Json, Timestamp};
use tidemill_engine::clock::host_now;
use tidemill_store::{BuildVersions, Error, FeedTables, OpenRecords, Options, Store, TargetRow, Tx};
use tidemill_testkit::interface::{Fixture, Kind, PlainSql, TestRoles, at};
use uuid::Uuid;

const BOTH: [Kind; 2] = [Kind::Postgres, Kind::Sqlite];
const FEED: &str = "orders";
const BUILT: BuildVersions = BuildVersions { mapper_version: 1, rules_version: 0 };

/// A feed with a definition, on a database of its own.
struct Shop {
    fixture: Fixture,
    into: Target,
    tables: FeedTables,
}

impl Shop {
    /// Creates the table of a definition as its plan says.
    async fn open(kind: Kind, into: Target) -> Self {
        let fixture = Fixture::open(kind).await;
        let plan = fixture.store.plan_table(&into).await.unwrap();
        assert_eq!(plan.problems, Vec::<String>::new());
        fixture.store.create_target(&plan).await.unwrap();
        Self::over(fixture, into).await
    }

    /// Uses a table that this SQL creates.
    async fn existing(kind: Kind, into: Target, sql: &str) -> Self {
        let fixture = Fixture::open(kind).await;
        fixture.plain.script(&in_dialect(kind, sql)).await.unwrap();
        Self::over(fixture, into).await
    }

    async fn over(fixture: Fixture, into: Target) -> Self {
        let raw = add_feed(&fixture, FEED, REST_KIND).await;
        let target = fixture.store.target_table(&into).await.unwrap().unwrap();
        let tables = FeedTables { feed: FEED.to_owned(), raw, target: Some(Arc::new(target)) };
        Self { fixture, into, tables }
    }

    /// Reads the description of the table again.
    async fn reload(&mut self) {
        let target = self.fixture.store.target_table(&self.into).await.unwrap().unwrap();
        self.tables.target = Some(Arc::new(target));
    }

    async fn write(&self, rows: &[TargetRow]) -> Result<u64, Error> {
        self.write_as(rows, BUILT).await
    }

    async fn write_as(&self, rows: &[TargetRow], built: BuildVersions) -> Result<u64, Error> {
        let (tables, rows) = (self.tables.clone(), rows.to_vec());
        self.step(move |mut tx| {
            Box::pin(async move { tx.upsert_rows(&tables, &rows, built, Some(at(60))).await })
        })
        .await
    }

    async fn step<T: Send + 'static>(
        &self,
        step: impl for<'c> FnOnce(Tx<'c>) -> Pinned<'c, T> + Send + 'static,
    ) -> Result<T, Error> {
        self.fixture.store.write(step).await
    }

    /// Stores raw records of one page.
    async fn store(&self, items: Vec<Item>) -> u64 {
        let tables = self.tables.clone();
        self.step(move |mut tx| {
            Box::pin(async move {
                let items: Vec<&Item> = items.iter().collect();
                tx.store_records(&tables, Uuid::nil(), &items, Some(at(0))).await
            })
        })
        .await
        .unwrap()
    }

    /// Returns the ids of those records that have to be built.
    async fn open_records(&self, ids: &[&str]) -> Vec<String> {
        let (tables, ids) = (self.tables.clone(), texts(ids));
        let open: OpenRecords = self
            .step(move |mut tx| {
                Box::pin(async move { tx.open_records(&tables, ids, BUILT, usize::MAX >> 1).await })
            })
            .await
            .unwrap();
        open.read.into_iter().map(|record| record.record_id).collect()
    }

    async fn delete(&self, ids: &[&str]) -> u64 {
        let tables = self.tables.clone();
        let ids = AbsentRecords::not_found(LookupControl::Found, texts(ids));
        self.step(move |mut tx| Box::pin(async move { tx.delete_records(&tables, ids, Some(at(90))).await }))
            .await
            .unwrap()
    }

    /// Runs plain SQL as the owner of the table.
    async fn sql(&self, sql: &str) {
        self.fixture.plain.script(&in_dialect(self.fixture.kind, sql)).await.unwrap();
    }

    async fn read(&self, sql: &str) -> Vec<String> {
        self.fixture.plain.texts(&in_dialect(self.fixture.kind, sql)).await.unwrap()
    }

    /// Returns the rows of the table as `id amount note`.
    async fn rows(&self) -> Vec<String> {
        self.read(
            "SELECT id || ' ' || coalesce(CAST(amount AS text), '-') || ' ' || coalesce(note, '-') \
             FROM {main}.orders ORDER BY 1",
        )
        .await
    }

    /// Returns the lines of the records as `record key state`.
    async fn lines(&self) -> Vec<String> {
        self.read(
            "SELECT record_id || ' ' || coalesce(row_key, '-') || ' ' || state FROM {ops}.feed_records \
             ORDER BY record_id",
        )
        .await
    }
}

/// Opens the database as a new login, to which only these rights are granted. `{login}` is its name.
async fn as_login(fixture: &Fixture, roles: &mut TestRoles, grants: &str) -> Store {
    let PlainSql::Postgres(pool) = &fixture.plain else { panic!("SQLite has no roles") };
    let login = roles.login("server", &[], pool.connect_options().as_ref());
    fixture.plain.script(&grants.replace("{login}", login.get_username())).await.unwrap();
    Store::open(&Options::new(login.to_url_lossy(), host_now)).await.unwrap()
}

type Pinned<'c, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'c>>;

/// Writes `{main}` as the schema of users' tables.
fn in_dialect(kind: Kind, sql: &str) -> String {
    sql.replace("{main}", if kind == Kind::Sqlite { "main" } else { "public" })
}

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

async fn add_feed(fixture: &Fixture, name: &str, kind: &str) -> RawTable {
    let feed = Feed {
        feed: name.to_owned(),
        project_id: "shop".to_owned(),
        kind: kind.to_owned(),
        endpoint: "http://127.0.0.1:9".to_owned(),
        username: None,
        password_env: None,
        rate: 1,
        settings: Json::Object(serde_json::Map::new()),
        defined_by: DefinedBy::Operator,
        created_at: at(0),
    };
    let raw = feed.raw_table();
    let added = fixture
        .store
        .write(move |mut tx| Box::pin(async move { tx.put_feed(&feed, None, Some(at(0))).await }))
        .await;
    assert!(added.unwrap());
    raw
}

fn column(name: &str, column_type: ColumnType) -> Column {
    Column {
        name: name.to_owned(),
        source: ColumnSource::Path(JsonPath::key(name)),
        column_type,
        format: None,
        default: None,
        nullable: true,
    }
}

/// The definition of the table `orders`: `id`, `amount`, `note`, merged by `id`.
fn orders() -> Target {
    Target {
        table: TableName { schema: "public".to_owned(), table: "orders".to_owned() },
        primary_key: vec!["id".to_owned()],
        columns: vec![
            Column { nullable: false, ..column("id", ColumnType::Text) },
            column("amount", ColumnType::Decimal),
            column("note", ColumnType::Text),
        ],
        write_disposition: WriteDisposition::Merge,
        deleted_at: None,
        schema_contract: SchemaContract::default(),
    }
}

fn with(change: impl FnOnce(&mut Target)) -> Target {
    let mut into = orders();
    change(&mut into);
    into
}

fn text(text: &str) -> ColumnValue {
    ColumnValue::Text(text.to_owned())
}

/// A row of `orders`, of a record that has another id than its row.
fn row(record: &str, id: &str, amount: &str, note: &str) -> TargetRow {
    TargetRow {
        record_id: record.to_owned(),
        payload_hash: sha256(format!("{id} {amount} {note}").as_bytes()).to_vec(),
        values: vec![
            ("id".to_owned(), text(id)),
            ("amount".to_owned(), ColumnValue::Decimal(amount.to_owned())),
            ("note".to_owned(), text(note)),
        ],
        is_deleted: false,
    }
}

fn gone(record: &str) -> TargetRow {
    TargetRow {
        record_id: record.to_owned(),
        payload_hash: sha256(b"gone").to_vec(),
        values: Vec::new(),
        is_deleted: true,
    }
}

fn time(text: &str) -> Timestamp {
    cast::timestamp(text, None).unwrap()
}
