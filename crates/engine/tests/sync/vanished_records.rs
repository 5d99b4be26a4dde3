//! Records that vanish and return, and feeds without a lookup.

use std::fmt::Write as _;

use tidemill_core::Json;
use tidemill_core::feed::{Feed, RunType};
use tidemill_core::reach::DefinedBy;
use tidemill_core::run::RunState;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::FeedChange;
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::{alerts, consolidate, number, open, planned, work};

/// Only sold or removed records are marked as deleted; returned ones are active again with their current data.
pub(crate) async fn vanished_record_is_deleted_and_returned_record_is_active(kind: Kind) {
    let fixture = open(kind, 900).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    let handle = &fixture.supplier.handle;
    let sold = handle.change(&Change::random(ChangeKind::Sell, 30, 1)).expect("records are sold").ids;
    let removed = handle.change(&Change::random(ChangeKind::Remove, 30, 2)).expect("records are removed").ids;
    let incremental = fixture.sync(false).await;
    assert_eq!((incremental.deleted, incremental.delete_note), (30, None), "the feed lists sold records");
    let deleted = fixture.rows("deleted").await;
    assert!(sold.iter().all(|record| deleted.contains_key(record)));
    let full = fixture.sync(true).await;
    let deleted = fixture.rows("deleted").await;
    assert!(sold.iter().chain(&removed).all(|record| deleted.contains_key(record)));
    assert_eq!((full.deleted, deleted.len()), (30, 60), "only a full sync detects removed records");
    let stamped = "SELECT count(*) FROM diamonds WHERE status = 'deleted' AND deleted_at IS NOT NULL";
    assert_eq!(number(&fixture, stamped).await, 60);
    fixture.check_equal().await;

    let back = handle.change(&Change::of_ids(ChangeKind::Return, sold)).expect("records return").ids;
    handle.change(&Change::of_ids(ChangeKind::Price, back[..10].to_vec())).expect("prices change");
    fixture.sync(false).await;
    roles.stop().await;
    fixture.check_equal().await;
    assert_eq!(fixture.rows("deleted").await.len(), 60 - back.len());
    let stamped = "SELECT count(*) FROM diamonds WHERE status = 'active' AND deleted_at IS NOT NULL";
    assert_eq!(number(&fixture, stamped).await, 0);
}

/// Records are sold and nothing else changes: the next incremental sync marks them, though it has no pages, and the one
/// after it has nothing to do. Over the limit nothing is deleted, and the sync reports it.
pub(crate) async fn incremental_sync_deletes_sold_records(kind: Kind) {
    let fixture = open(kind, 600).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    let handle = &fixture.supplier.handle;
    let sold = handle.change(&Change::random(ChangeKind::Sell, 30, 1)).expect("records are sold").ids;
    let held = handle.change(&Change::random(ChangeKind::Hold, 10, 2)).expect("records are held").ids;
    let sync = fixture.sync(false).await;
    assert_eq!((sync.run_type, sync.deleted), (RunType::Incremental, 40));
    fixture.check_equal().await;
    assert_eq!(fixture.sync(false).await.deleted, 0, "they are deleted already");

    handle.change(&Change::of_ids(ChangeKind::Return, held)).expect("records return");
    handle.change(&Change::of_ids(ChangeKind::Return, sold)).expect("records return");
    assert_eq!(fixture.sync(false).await.deleted, 0);
    fixture.check_equal().await;

    handle.change(&Change::random(ChangeKind::Sell, 180, 3)).expect("records are sold");
    let sync = fixture.sync(false).await;
    roles.stop().await;
    let note = sync.delete_note.unwrap_or_default();
    assert!(
        note.contains("180 of 600 records were withdrawn") && note.contains("no record was deleted"),
        "{note}"
    );
    assert_eq!((sync.deleted, fixture.rows("active").await.len()), (0, 600));
    let message = alerts(&fixture).await;
    assert!(
        message.len() == 1 && message[0].starts_with(&format!("delete_limit: feed {FEED}: ")),
        "{message:?}"
    );
}

/// A source without a list of sold records: its syncs continue, and a full one detects them.
pub(crate) async fn feed_without_sold_list_is_synced(kind: Kind) {
    let fixture = open(kind, 300).await;
    let mut feed = fixture.base.store.feed(FEED.to_owned()).await.expect("the feed is read").feed;
    feed.settings = serde_json::json!({"withdrawn": ["NO_SUCH_WORD"]});
    let change = FeedChange {
        feed,
        definition: None,
        copy_url: None,
        schedule: None,
        full_schedule: None,
        time_zone: "UTC".to_owned(),
    };
    fixture.syncs.put_feed(change).await.expect("the feed is changed");
    let roles = fixture.roles();
    fixture.sync(false).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Sell, 10, 1)).expect("records are sold");
    assert_eq!(fixture.sync(false).await.deleted, 0, "no page and no alert");
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 10, 2)).expect("prices change");
    assert_eq!(fixture.sync(false).await.deleted, 0);
    assert_eq!(fixture.sync(true).await.deleted, 10);
    roles.stop().await;
    fixture.check_equal().await;
}

/// No page listed the record, but the lookup still finds it, although the lookup pages are short.
pub(crate) async fn missed_record_that_still_exists_stays_active(kind: Kind) {
    let fixture = open(kind, 900).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    let gone = fixture
        .supplier
        .handle
        .change(&Change::random(ChangeKind::Vanish, 5, 3))
        .expect("records vanish")
        .ids;
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    // Some records are removed from the page log, as if they had moved between partitions while it was read.
    let missed: Vec<String> =
        fixture.rows("active").await.into_keys().filter(|record| !gone.contains(record)).take(45).collect();
    for record in &missed {
        let text = match kind {
            Kind::Sqlite => {
                format!("UPDATE pages SET record_ids = replace(record_ids, '{record}', 'x-{record}')")
            }
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
                format!("UPDATE {{ops}}.pages SET record_uuids = array_remove(record_uuids, '{record}')")
            }
        };
        fixture.base.plain.execute(&text).await.expect("the ledger forgets");
    }
    let unseen =
        fixture.base.store.count_unseen(&fixture.tables(), sync.run_id).await.expect("they are counted");
    assert_eq!(unseen.unseen, 50);
    fixture.supplier.handle.behave(|behaviour| behaviour.short_percent = 100);
    let requests = fixture.supplier.handle.stats().requests;
    consolidate(&fixture).await;
    assert!(fixture.supplier.handle.stats().requests > requests, "the feed got a request");
    assert_eq!(fixture.rows("deleted").await.into_keys().collect::<Vec<_>>(), {
        let mut gone = gone;
        gone.sort();
        gone
    });
    fixture.check_equal().await;
}

/// Too many records vanished to be plausible: nothing is deleted, the sync reports it, and an alert is raised.
pub(crate) async fn deletions_over_the_limit_are_skipped(kind: Kind) {
    let fixture = open(kind, 600).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    let gone = fixture
        .supplier
        .handle
        .change(&Change::random(ChangeKind::Vanish, 180, 3))
        .expect("records vanish")
        .ids;
    assert_eq!(gone.len(), 180);
    let full = fixture.sync(true).await;
    let note = full.delete_note.clone().unwrap_or_default();
    assert!(note.contains("180 of 600") && note.contains("no record was deleted"), "{note}");
    assert_eq!(
        (full.deleted, fixture.rows("active").await.len(), fixture.rows("deleted").await.len()),
        (0, 600, 0)
    );
    let message = alerts(&fixture).await;
    assert_eq!(message.len(), 1, "{message:?}");
    let named = format!("delete_limit: feed {FEED}: ");
    assert!(message[0].starts_with(&named) && message[0].contains("180 of 600"), "{message:?}");
    assert!(full.watermark_after.is_some(), "the sync itself is good");
    // Most of them are back: the rest is below the limit and is deleted.
    fixture
        .supplier
        .handle
        .change(&Change::of_ids(ChangeKind::Return, gone[..100].to_vec()))
        .expect("records return");
    let full = fixture.sync(true).await;
    roles.stop().await;
    assert_eq!((full.deleted, full.delete_note), (80, None));
    fixture.check_equal().await;
}

/// Writes the directory of a feed with these records, a dollar and some cents each.
fn write(folder: &tempfile::TempDir, records: impl Iterator<Item = u32>) {
    let mut text = "stone_id,offer_id,price,shape,carats,lab_grown,updated_at\n".to_owned();
    for record in records {
        let _ =
            writeln!(text, "S-{record:03},O-{record},{}.{:02},round,1.01,,", 1 + record / 100, record % 100);
    }
    std::fs::write(folder.path().join("stones.csv"), text).expect("the folder is written");
}

/// A feed without lookup by id: two consecutive full syncs must have missed a record.
pub(crate) async fn feed_without_lookup_deletes_after_two_full_syncs(kind: Kind) {
    let fixture = SyncFixture::open(kind, 1).await;
    let folder = tempfile::tempdir().expect("a folder is made");
    write(&folder, 0..300);
    let feed = Feed {
        feed: "folder".to_owned(),
        project_id: "default".to_owned(),
        kind: "csv".to_owned(),
        endpoint: folder.path().display().to_string(),
        username: None,
        password_env: None,
        rate: 0,
        settings: Json::Object(serde_json::Map::new()),
        defined_by: DefinedBy::Operator,
        created_at: host_now(),
    };
    let change = FeedChange {
        feed,
        definition: None,
        copy_url: None,
        schedule: None,
        full_schedule: None,
        time_zone: "UTC".to_owned(),
    };
    fixture.syncs.put_feed(change).await.expect("the feed is added");
    let roles = fixture.roles();
    let full = || async {
        let run = fixture.syncs.start("folder", true, None).await.expect("the sync is queued").run_id;
        let ended = fixture.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        let count = |status: &str| {
            format!("SELECT count(*) FROM diamonds WHERE feed = 'folder' AND status = '{status}'")
        };
        (number(&fixture, &count("active")).await, number(&fixture, &count("deleted")).await)
    };
    assert_eq!(full().await, (300, 0));
    // By hand: S-250 costs $3.50, and 15 % more is $4.025, rounded half up to 403 cents.
    let price = "SELECT retail_price_cents FROM diamonds WHERE supplier_stone_id = 'S-250'";
    assert_eq!(number(&fixture, price).await, 403);
    write(&folder, 20..300);
    assert_eq!(full().await, (300, 0), "missed once");
    // Ten of them are back, and ten others are missing for the first time.
    write(&folder, 10..290);
    assert_eq!(full().await, (290, 10), "missed twice: S-000 to S-009");
    assert_eq!(full().await, (280, 20));
    write(&folder, 0..300);
    assert_eq!(full().await, (300, 0), "all of them are back");
    roles.stop().await;
}
