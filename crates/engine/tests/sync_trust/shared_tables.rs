//! Tables that two feeds name: only feeds whose keys cannot meet write the same table.

use super::fixture::{TrustFixture, record, records};
use tidemill_core::feed::Feed;
use tidemill_core::run::RunState;
use tidemill_engine::sync::FeedChange;
use tidemill_store::{Error, RefusalCode};
use tidemill_testkit::interface::{Kind, PlainSql};
use tidemill_testkit::list_api::ListApi;
use tidemill_testkit::rest_fixture::{ITEMS, TABLE};

const OTHER: &str = "other";

/// Returns the definition of a feed that reads these records into a table. The key contains a region if there is one.
fn definition(api: &ListApi, feed: &str, table: &str, region: Option<&str>) -> String {
    let (key, column) = match region {
        Some(region) => ("[region, id]", format!("    region: {{constant: {region}}}\n")),
        None => ("id", String::new()),
    };
    format!(
        "version: 1\nfeed: {feed}\nclient: {{base_url: '{}', rate: 0}}\n\
         resource: {{path: /items, data_selector: data, primary_key: id}}\n\
         paginator: {{type: offset, offset_param: offset, limit: 20, limit_param: limit}}\n\
         trust: {{total_path: total}}\ndeletes: {{threshold: 1}}\n\
         into:\n  table: {table}\n  primary_key: {key}\n  columns:\n    id: {{nullable: false}}\n    \
         n: {{type: decimal}}\n{column}",
        api.base_url
    )
}

/// Two feeds of two sources.
struct TwoFeeds {
    fixture: TrustFixture,
    other: ListApi,
}

impl TwoFeeds {
    async fn open(kind: Kind) -> Self {
        Self { fixture: TrustFixture::open(kind, records(2)).await, other: ListApi::start(records(3)).await }
    }

    fn change(&self, project: &str, feed: &str, table: &str, region: Option<&str>) -> FeedChange {
        let api = if feed == OTHER { &self.other } else { &self.fixture.api };
        let change = self.fixture.base.feed_of(project, feed);
        let stored = Feed { kind: "rest".to_owned(), username: None, password_env: None, ..change.feed };
        FeedChange { feed: stored, definition: Some(definition(api, feed, table, region)), ..change }
    }

    /// Applies a definition, and creates its table.
    async fn apply(&self, feed: &str, table: &str, region: Option<&str>) {
        let syncs = &self.fixture.base.syncs;
        syncs.put_feed(self.change("default", feed, table, region)).await.expect("the definition is applied");
        let plan = syncs.create_table(feed).await.expect("the table is created");
        assert!(plan.exists && plan.problems.is_empty(), "{plan:#?}");
    }

    /// Applies a definition that must be refused; returns the message with its hint.
    async fn refusal(&self, change: FeedChange) -> String {
        match self.fixture.base.syncs.put_feed(change).await {
            Err(error @ Error::Refused(_)) => {
                assert_eq!(error.refusal_code(), Some(RefusalCode::KeyConflict), "{error}");
                format!("{error}; {}", error.hint().unwrap_or_default())
            }
            other => panic!("the definition is refused, and not {other:?}"),
        }
    }

    /// Runs a full sync; returns the metadata of its run.
    async fn sync(&self, feed: &str, status: RunState) -> String {
        let run = self.fixture.base.syncs.start(feed, true, None).await.expect("the sync is queued").run_id;
        let ended = self.fixture.base.settle(&run).await;
        assert_eq!(ended.status, status, "{}", ended.metadata);
        ended.metadata.to_string()
    }
}

pub(crate) async fn second_feed_of_a_table_is_refused(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    feeds.apply(ITEMS, TABLE, None).await;
    let text = feeds.refusal(feeds.change("default", OTHER, TABLE, None)).await;
    for words in ["feed `items` already writes the table `public.items`", "feed `other`", "`into.table`"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(feeds.fixture.base.base.store.feed(OTHER.to_owned()).await.is_err(), "nothing is stored");
    // A constant in one key only, or the same constant, keeps no rows apart.
    feeds.refusal(feeds.change("default", OTHER, TABLE, Some("eu"))).await;
    let planned = feeds.fixture.base.syncs.plan_feed(feeds.change("default", OTHER, TABLE, None)).await;
    let problems = planned.expect("the table is planned").problems;
    assert!(problems.len() == 1 && text.starts_with(&problems[0]), "{problems:?}");
    // The owner applies its definition again.
    feeds.apply(ITEMS, TABLE, None).await;
    // PostgreSQL keeps the case of a quoted name, and SQLite ignores it.
    if kind == Kind::Sqlite {
        feeds.refusal(feeds.change("default", OTHER, "main.ITEMS", None)).await;
    } else {
        feeds.apply(OTHER, "public.ITEMS", None).await;
    }
    feeds.fixture.close().await;
}

pub(crate) async fn refusal_does_not_name_a_feed_of_another_project(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    feeds.apply(ITEMS, TABLE, None).await;
    let text = feeds.refusal(feeds.change("shop", OTHER, TABLE, None)).await;
    assert!(text.contains("a feed of another project already writes"), "{text}");
    assert!(!text.contains("`items`"), "{text}");
    feeds.fixture.close().await;
}

/// The rows of both feeds stay apart, also when records vanish and a constant moves to the other feed.
pub(crate) async fn feeds_with_different_constants_share_a_table(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    feeds.apply(ITEMS, TABLE, Some("eu")).await;
    feeds.refusal(feeds.change("default", OTHER, TABLE, Some("EU"))).await;
    feeds.apply(OTHER, TABLE, Some("us")).await;
    feeds.sync(ITEMS, RunState::Success).await;
    feeds.sync(OTHER, RunState::Success).await;
    let rows = async |condition: &str| feeds.fixture.rows(condition).await;
    assert_eq!((rows("region = 'eu'").await, rows("region = 'us'").await), (2, 3));
    feeds.other.change(|all| drop(all.drain(..2)));
    feeds.sync(OTHER, RunState::Success).await;
    feeds.sync(OTHER, RunState::Success).await;
    assert_eq!((rows("region = 'eu'").await, rows("region = 'us'").await), (2, 1));
    // The other feed writes `eu` before the first one has moved its rows.
    feeds.apply(ITEMS, TABLE, Some("uk")).await;
    feeds.other.change(|all| *all = vec![record(0), record(1)]);
    feeds.apply(OTHER, TABLE, Some("eu")).await;
    feeds.sync(OTHER, RunState::Success).await;
    feeds.sync(ITEMS, RunState::Success).await;
    assert_eq!((rows("region = 'eu'").await, rows("region = 'uk'").await), (2, 2));
    // The second full sync in a row without it deletes the last record of `us`.
    feeds.sync(OTHER, RunState::Success).await;
    assert_eq!(rows("true").await, 4);
    feeds.fixture.close().await;
}

pub(crate) async fn changed_definition_releases_its_table(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    feeds.apply(ITEMS, TABLE, None).await;
    feeds.sync(ITEMS, RunState::Success).await;
    feeds.apply(ITEMS, "public.moved", None).await;
    feeds.other.change(|all| *all = vec![record(0), record(1), record(5)]);
    feeds.apply(OTHER, TABLE, None).await;
    feeds.sync(OTHER, RunState::Success).await;
    // The first feed loses its records, and touches only its new table.
    feeds.fixture.api.change(Vec::clear);
    for _ in 0..2 {
        feeds.sync(ITEMS, RunState::Success).await;
    }
    assert_eq!(feeds.fixture.rows("true").await, 3);
    feeds.refusal(feeds.change("default", ITEMS, TABLE, None)).await;
    feeds.fixture.close().await;
}

/// Owners can conflict if they were written by hand or by another version.
pub(crate) async fn sync_into_the_table_of_another_feed_fails(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    feeds.apply(ITEMS, TABLE, None).await;
    feeds.apply(OTHER, "public.others", None).await;
    let table = if kind == Kind::Sqlite { "items" } else { TABLE };
    let claim = format!("UPDATE {{ops}}.feed_tables SET table_name = '{table}' WHERE feed = '{OTHER}'");
    let plain = &feeds.fixture.base.base.plain;
    plain.script(&claim).await.expect("the owner is changed");
    let text = feeds.sync(ITEMS, RunState::Failed).await;
    assert!(text.contains("feed `other` already writes the table `public.items`"), "{text}");
    assert_eq!((feeds.fixture.rows("true").await, feeds.fixture.api.take_calls().len()), (0, 0));
    // The sync of the other feed corrects its row.
    feeds.sync(OTHER, RunState::Success).await;
    feeds.sync(ITEMS, RunState::Success).await;
    // A feed without an owner's row becomes the owner.
    plain.script("DELETE FROM {ops}.feed_tables").await.expect("the owners are removed");
    feeds.sync(ITEMS, RunState::Success).await;
    feeds.refusal(feeds.change("default", OTHER, TABLE, None)).await;
    feeds.fixture.close().await;
}

/// Another feed gets the table while a sync reads its pages.
pub(crate) async fn sync_that_loses_its_table_writes_no_row(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    feeds.apply(ITEMS, TABLE, None).await;
    feeds.fixture.api.hold();
    let run = feeds.fixture.queue(true).await;
    let began = tokio::time::Instant::now();
    while feeds.fixture.api.take_calls().is_empty() {
        assert!(began.elapsed().as_secs() < 60, "the sync calls the source within a minute");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let moved = "UPDATE {ops}.feed_tables SET table_name = 'elsewhere'";
    feeds.fixture.base.base.plain.script(moved).await.expect("the owner is changed");
    feeds.apply(OTHER, TABLE, None).await;
    feeds.fixture.api.release();
    let ended = feeds.fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Failed, "{}", ended.metadata);
    let text = ended.metadata.to_string();
    assert!(text.contains("no longer writes the table `public.items`"), "{text}");
    assert_eq!(feeds.fixture.rows("true").await, 0);
    feeds.fixture.close().await;
}

/// Holds the owners of tables back until two transactions wait for them. SQLite has one writer at a time.
struct HeldOwners(Option<sqlx::Transaction<'static, sqlx::Postgres>>);

impl HeldOwners {
    async fn hold(plain: &PlainSql) -> Self {
        let PlainSql::Postgres(pool) = plain else { return Self(None) };
        let mut tx = pool.begin().await.expect("a transaction");
        let locked = sqlx::raw_sql("LOCK TABLE ops.feed_tables IN SHARE MODE").execute(&mut *tx).await;
        locked.expect("the table is locked");
        Self(Some(tx))
    }

    async fn release_together(self, plain: &PlainSql) {
        let Some(tx) = self.0 else { return };
        let waiting =
            "SELECT count(*) FROM pg_locks WHERE relation = 'ops.feed_tables'::regclass AND NOT granted";
        let began = tokio::time::Instant::now();
        while plain.number(waiting).await.expect("locks are counted") < 2 {
            assert!(began.elapsed().as_secs() < 60, "two transactions wait within a minute");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        tx.commit().await.expect("the lock is released");
    }
}

pub(crate) async fn one_of_two_simultaneous_feeds_gets_the_table(kind: Kind) {
    let feeds = TwoFeeds::open(kind).await;
    let (syncs, plain) = (&feeds.fixture.base.syncs, &feeds.fixture.base.base.plain);
    let held = HeldOwners::hold(plain).await;
    let (one, other, ()) = tokio::join!(
        syncs.put_feed(feeds.change("default", ITEMS, TABLE, None)),
        syncs.put_feed(feeds.change("default", OTHER, TABLE, None)),
        held.release_together(plain),
    );
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let refused = one.err().or(other.err()).and_then(|error| error.refusal_code());
    assert_eq!(refused, Some(RefusalCode::KeyConflict));
    feeds.fixture.close().await;
}
