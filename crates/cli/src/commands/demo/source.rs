//! The feeds of the demo, and the comparison of each table with the data of the supplier.

use crate::failure::Failure;
use clap::ValueEnum;
use std::collections::BTreeMap;
use tidemill_core::feed::Feed;
use tidemill_core::feed_definition::{JsonPath, JsonValue, TableName};
use tidemill_core::reach::DefinedBy;
use tidemill_core::{Json, digest};
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{FeedChange, Syncs};
use tidemill_supplier::{RestDefinition, RestKind, RunningSupplier};

/// Variable with the password of the supplier's account, which the roles get.
pub(super) const PASSWORD_ENV: &str = "TIDEMILL_DEMO_PASSWORD";
/// Rows that are read at a time.
const PROOF_ROWS: usize = 20_000;
/// Number of items on a page of the REST API.
const PAGE_SIZE: u32 = 100;
const JSON_DEPTH_MAX: usize = 32;

/// Columns of the table of items that are compared, and where an item has their values.
const COMPARED: [(&str, &str); 8] = [
    ("id", "id"),
    ("sku", "sku"),
    ("name", "name"),
    ("status", "status"),
    ("price", "price"),
    ("quantity", "quantity"),
    ("warehouse", "warehouse.code"),
    ("image_url", "image_url"),
];

/// Feed that the demo syncs
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoFeed {
    /// Diamonds with prices, which a preset reads from a GraphQL API
    Nivoda,
    /// Items of a paged REST API, which a definition file describes; then the diamonds beside them
    Rest,
}

/// The rows of one side.
pub(super) struct Proof {
    pub(super) digest: String,
    pub(super) rows: usize,
}

impl Proof {
    fn of(rows: usize, lines: &str) -> Self {
        Self { digest: digest::sha256_hex(lines.as_bytes()), rows }
    }
}

impl DemoFeed {
    /// Returns the name of the feed.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nivoda => "demo",
            Self::Rest => "items",
        }
    }

    /// Returns the word for its records.
    pub(super) const fn records(self) -> &'static str {
        match self {
            Self::Nivoda => "stones",
            Self::Rest => "items",
        }
    }

    /// Returns the name of the table as a message shows it.
    pub(super) const fn table(self) -> &'static str {
        match self {
            Self::Nivoda => "diamonds",
            Self::Rest => "public.items",
        }
    }

    /// Adds the feed, and creates its table.
    pub(super) async fn add(self, syncs: &Syncs, supplier: &RunningSupplier) -> Result<(), Failure> {
        let feed = Feed {
            feed: self.name().to_owned(),
            project_id: "default".to_owned(),
            kind: "nivoda".to_owned(),
            endpoint: supplier.endpoint.clone(),
            username: Some("demo".to_owned()),
            password_env: Some(PASSWORD_ENV.to_owned()),
            rate: 0,
            settings: Json::Object(serde_json::Map::new()),
            defined_by: DefinedBy::Operator,
            created_at: host_now(),
        };
        let mut change = FeedChange {
            feed,
            definition: None,
            copy_url: None,
            schedule: None,
            full_schedule: None,
            time_zone: "UTC".to_owned(),
        };
        match self {
            Self::Nivoda => {
                syncs.put_feed(change).await?;
            }
            Self::Rest => {
                let definition = RestDefinition {
                    base_url: &supplier.rest_url,
                    feed: self.name(),
                    table: self.table(),
                    kind: RestKind::Cursor,
                    page_size: PAGE_SIZE,
                };
                "rest".clone_into(&mut change.feed.kind);
                (change.feed.username, change.feed.password_env) = (None, None);
                change.definition = Some(definition.to_yaml());
                syncs.put_feed(change).await?;
                syncs.create_table(self.name()).await?;
            }
        }
        Ok(())
    }

    /// Reads the rows of the feed's table.
    pub(super) async fn table_proof(self, syncs: &Syncs) -> Result<Proof, Failure> {
        let store = syncs.engine().store();
        let (mut lines, mut after, mut count) = (String::new(), String::new(), 0);
        match self {
            Self::Nivoda => loop {
                let rows = store.proof_rows(self.name().to_owned(), after.clone(), PROOF_ROWS).await?;
                let Some(last) = rows.last() else { break };
                after.clone_from(&last.stone_id);
                for row in &rows {
                    stone(
                        &mut lines,
                        &row.stone_id,
                        &hex(&row.payload_hash),
                        row.feed_price,
                        row.retail_price,
                    );
                }
                count += rows.len();
            },
            Self::Rest => {
                let table = TableName { schema: "public".to_owned(), table: "items".to_owned() };
                let columns = COMPARED.map(|(column, _)| column);
                loop {
                    let rows = store.target_proof_rows(&table, "id", &columns, &after, PROOF_ROWS).await?;
                    let Some((last, _)) = rows.last() else { break };
                    after.clone_from(last);
                    for (_, row) in &rows {
                        line(&mut lines, row);
                    }
                    count += rows.len();
                }
            }
        }
        Ok(Proof::of(count, &lines))
    }

    /// Reads the data of the supplier: diamonds with prices computed here, 15 % markup rounded half up, or items.
    pub(super) fn source_proof(self, supplier: &RunningSupplier) -> Proof {
        let mut lines = String::new();
        let count = match self {
            Self::Nivoda => {
                let mut source = supplier.handle.truth();
                source.retain(|stone| stone.available);
                source.sort_unstable_by(|one, other| one.id.cmp(&other.id));
                for found in &source {
                    let price = i64::from(found.price);
                    stone(&mut lines, &found.id, &found.sha256, price, (price * 115 + 50) / 100);
                }
                source.len()
            }
            Self::Rest => {
                let items: BTreeMap<String, String> = supplier.handle.rest_truth();
                let paths = COMPARED.map(|(_, path)| path.parse::<JsonPath>().ok());
                for item in items.values() {
                    line(&mut lines, &item_row(item, &paths));
                }
                items.len()
            }
        };
        Proof::of(count, &lines)
    }
}

/// Returns the expected row of an item.
fn item_row(item: &str, paths: &[Option<JsonPath>]) -> String {
    let item = JsonValue::parse(item.as_bytes(), JSON_DEPTH_MAX).ok();
    let value = |path: &Option<JsonPath>| {
        let found = path.as_ref()?.select(item.as_ref()?)?;
        found.scalar().map(str::to_owned)
    };
    let values = paths.iter().map(|path| value(path).unwrap_or_else(|| "NULL".to_owned()));
    values.collect::<Vec<_>>().join("|")
}

fn stone(lines: &mut String, id: &str, hash: &str, price: i64, retail: i64) {
    line(lines, &format!("{id} {hash} {price} {retail}"));
}

fn line(lines: &mut String, row: &str) {
    lines.push_str(row);
    lines.push('\n');
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
