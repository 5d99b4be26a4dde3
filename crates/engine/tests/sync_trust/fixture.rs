//! A feed of a small API whose records and answers each test decides.

use serde_json::{Value, json};
use tidemill_core::RunId;
use tidemill_core::feed::Feed;
use tidemill_core::records::Sync;
use tidemill_core::run::{Run, RunState};
use tidemill_engine::sync::{FeedChange, SyncSettings};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::list_api::ListApi;
use tidemill_testkit::rest_fixture::{ITEMS, TABLE, many};
use tidemill_testkit::sync_fixture::{Roles, SyncFixture};

/// Partitions by ranges of the field `n`, from 0 to 1000.
pub(crate) const BY_RANGE: &str = "partition: {type: heatmap, field: n, kind: number, from: 0, to: 1000, \
     from_param: n_from, to_param: n_to, count: {total_path: total}}";
/// Partitions by the values of the field `region`.
pub(crate) const BY_VALUE: &str = "partition: {type: values, param: region_is, values: [east, west]}";
pub(crate) const TOTAL: &str = "trust: {total_path: total}";
/// Columns of the table.
pub(crate) const COLUMNS: &str = "    id: {nullable: false}\n    n: {type: decimal}\n    note: {}\n";

pub(crate) struct TrustFixture {
    pub(crate) base: SyncFixture,
    pub(crate) api: ListApi,
    roles: Option<Roles>,
}

/// Returns record `number` of a list.
pub(crate) fn record(number: usize) -> Value {
    let region = if number.is_multiple_of(2) { "east" } else { "west" };
    json!({ "id": format!("r{number:04}"), "n": number % 1_000, "region": region, "note": format!("note {number}") })
}

pub(crate) fn records(count: usize) -> Vec<Value> {
    (0..count).map(record).collect()
}

impl TrustFixture {
    /// Opens a fixture with these records and the roles of a pipeline; no definition is applied yet.
    pub(crate) async fn open(kind: Kind, records: Vec<Value>) -> Self {
        Self::with(kind, records, many()).await
    }

    pub(crate) async fn with(kind: Kind, records: Vec<Value>, settings: SyncSettings) -> Self {
        let config = tidemill_supplier::Config { stones: 1, ..SyncFixture::config() };
        let base = SyncFixture::with(kind, config, settings).await;
        let roles = base.roles();
        Self { base, api: ListApi::start(records).await, roles: Some(roles) }
    }

    /// Returns a definition with further sections, and with keys of `into` before its columns.
    pub(crate) fn definition(&self, sections: &str, into: &str, columns: &str) -> String {
        format!(
            "version: 1\nfeed: {ITEMS}\nclient: {{base_url: '{}', rate: 0}}\n\
             resource: {{path: /items, data_selector: data, primary_key: id}}\n\
             paginator: {{type: offset, offset_param: offset, limit: 20, limit_param: limit}}\n{sections}\n\
             into:\n  table: {TABLE}\n  primary_key: id\n{into}  columns:\n{columns}",
            self.api.base_url
        )
    }

    /// Applies a definition with these sections, and creates or extends its table.
    pub(crate) async fn apply(&self, sections: &str) {
        self.apply_text(&self.definition(sections, "", COLUMNS)).await;
    }

    pub(crate) async fn apply_text(&self, text: &str) {
        self.base.syncs.put_feed(self.change(text)).await.expect("the definition is applied");
        let plan = self.base.syncs.create_table(ITEMS).await.expect("the table is created");
        assert!(plan.exists && plan.statements.is_empty() && plan.problems.is_empty(), "{plan:#?}");
    }

    pub(crate) fn change(&self, text: &str) -> FeedChange {
        let change = self.base.feed_of("default", ITEMS);
        let feed = Feed { kind: "rest".to_owned(), username: None, password_env: None, ..change.feed };
        FeedChange { feed, definition: Some(text.to_owned()), ..change }
    }

    pub(crate) async fn queue(&self, full: bool) -> RunId {
        self.base.syncs.start(ITEMS, full, None).await.expect("the sync is queued").run_id
    }

    /// Runs a sync that must succeed.
    pub(crate) async fn sync(&self, full: bool) -> Sync {
        let run = self.queue(full).await;
        let ended = self.base.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        self.base.record(&run).await
    }

    /// Runs a full sync that must fail with these words.
    pub(crate) async fn fail(&self, words: &[&str]) -> Run {
        let run = self.queue(true).await;
        let ended = self.base.settle(&run).await;
        assert_eq!(ended.status, RunState::Failed, "{}", ended.metadata);
        let text = ended.metadata.to_string();
        for word in words {
            assert!(text.contains(word), "`{word}` is not in {text}");
        }
        ended
    }

    /// Returns the name of the table in plain SQL.
    pub(crate) fn table(&self) -> &'static str {
        match self.base.base.kind {
            Kind::Sqlite => "items",
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => TABLE,
        }
    }

    /// Counts the rows of the table that meet a condition.
    pub(crate) async fn rows(&self, condition: &str) -> i64 {
        let text = format!("SELECT count(*) FROM {} WHERE {condition}", self.table());
        self.base.base.plain.number(&text).await.expect("rows are counted")
    }

    /// Executes a statement in which `{table}` is the table.
    pub(crate) async fn execute(&self, text: &str) {
        let text = text.replace("{table}", self.table());
        self.base.base.plain.script(&text).await.expect("the statement runs");
    }

    pub(crate) async fn close(mut self) {
        if let Some(roles) = self.roles.take() {
            roles.stop().await;
        }
    }
}
