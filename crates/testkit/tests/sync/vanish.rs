//! Stones that vanish and return, and feeds that cannot be asked about them.

use std::fmt::Write as _;

use tidemill_core::Json;
use tidemill_core::feed::{Feed, RunType};
use tidemill_core::run::RunState;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::FeedChange;
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::{alerts, consolidate, number, open, planned, work};

/// What was sold or removed is marked deleted, and nothing else; what returns is active again, as it is now.
pub(crate) async fn what_vanished_is_deleted_and_what_returns_is_active(kind: Kind) {
    let mill = open(kind, 900).await;
    let roles = mill.roles();
    mill.sync(false).await;
    let handle = &mill.supplier.handle;
    let sold = handle.change(&Change::some(What::Sell, 30, 1)).expect("stones are sold").ids;
    let removed = handle.change(&Change::some(What::Remove, 30, 2)).expect("stones are removed").ids;
    let incremental = mill.sync(false).await;
    assert_eq!((incremental.deleted, incremental.delete_note), (30, None), "the feed tells what was sold");
    let deleted = mill.rows("deleted").await;
    assert!(sold.iter().all(|stone| deleted.contains_key(stone)));
    let full = mill.sync(true).await;
    let deleted = mill.rows("deleted").await;
    assert!(sold.iter().chain(&removed).all(|stone| deleted.contains_key(stone)));
    assert_eq!((full.deleted, deleted.len()), (30, 60), "only a full sync can tell what was removed");
    let stamped = "SELECT count(*) FROM diamonds WHERE status = 'deleted' AND deleted_at IS NOT NULL";
    assert_eq!(number(&mill, stamped).await, 60);
    mill.check_equal().await;

    let back = handle.change(&Change::these(What::Return, sold)).expect("stones return").ids;
    handle.change(&Change::these(What::Price, back[..10].to_vec())).expect("prices change");
    mill.sync(false).await;
    roles.stop().await;
    mill.check_equal().await;
    assert_eq!(mill.rows("deleted").await.len(), 60 - back.len());
    let stamped = "SELECT count(*) FROM diamonds WHERE status = 'active' AND deleted_at IS NOT NULL";
    assert_eq!(number(&mill, stamped).await, 0);
}

/// Nothing changes but that stones are sold: the next incremental sync marks them, though it has nothing to read, and
/// the one after it has nothing to do. Beyond the limit nothing is deleted, and the sync says so.
pub(crate) async fn what_was_sold_is_deleted_by_an_incremental_sync(kind: Kind) {
    let mill = open(kind, 600).await;
    let roles = mill.roles();
    mill.sync(false).await;
    let handle = &mill.supplier.handle;
    let sold = handle.change(&Change::some(What::Sell, 30, 1)).expect("stones are sold").ids;
    let held = handle.change(&Change::some(What::Hold, 10, 2)).expect("stones are held").ids;
    let sync = mill.sync(false).await;
    assert_eq!((sync.run_type, sync.deleted), (RunType::Incremental, 40));
    mill.check_equal().await;
    assert_eq!(mill.sync(false).await.deleted, 0, "they are deleted already");

    handle.change(&Change::these(What::Return, held)).expect("stones return");
    handle.change(&Change::these(What::Return, sold)).expect("stones return");
    assert_eq!(mill.sync(false).await.deleted, 0);
    mill.check_equal().await;

    handle.change(&Change::some(What::Sell, 180, 3)).expect("stones are sold");
    let sync = mill.sync(false).await;
    roles.stop().await;
    let note = sync.delete_note.unwrap_or_default();
    assert!(
        note.contains("180 of 600 stones were withdrawn") && note.contains("nothing was deleted"),
        "{note}"
    );
    assert_eq!((sync.deleted, mill.rows("active").await.len()), (0, 600));
    let told = alerts(&mill).await;
    assert!(told.len() == 1 && told[0].starts_with(&format!("delete_limit: feed {FEED}: ")), "{told:?}");
}

/// A source that does not understand the question what was sold: its syncs go on, and a full one finds out.
pub(crate) async fn a_feed_that_does_not_tell_what_was_sold_is_synced(kind: Kind) {
    let mill = open(kind, 300).await;
    let mut feed = mill.stage.store.feed(FEED.to_owned()).await.expect("the feed is read").feed;
    feed.settings = serde_json::json!({"withdrawn": ["NO_SUCH_WORD"]});
    let change =
        FeedChange { feed, copy_url: None, schedule: None, full_schedule: None, time_zone: "UTC".to_owned() };
    mill.syncs.put_feed(change).await.expect("the feed is changed");
    let roles = mill.roles();
    mill.sync(false).await;
    mill.supplier.handle.change(&Change::some(What::Sell, 10, 1)).expect("stones are sold");
    assert_eq!(mill.sync(false).await.deleted, 0, "nothing to read, and nothing told");
    mill.supplier.handle.change(&Change::some(What::Price, 10, 2)).expect("prices change");
    assert_eq!(mill.sync(false).await.deleted, 0);
    assert_eq!(mill.sync(true).await.deleted, 10);
    roles.stop().await;
    mill.check_equal().await;
}

/// A stone that no page showed, and that the feed still offers when it is asked: it stays, although the pages that
/// answer are short.
pub(crate) async fn a_stone_that_was_only_missed_stays(kind: Kind) {
    let mill = open(kind, 900).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    let gone = mill.supplier.handle.change(&Change::some(What::Vanish, 5, 3)).expect("stones vanish").ids;
    let sync = planned(&mill, true).await;
    work(&mill).await;
    // The ledger forgets some stones, as if they had moved from one partition to the other while it was
    // read.
    let missed: Vec<String> =
        mill.rows("active").await.into_keys().filter(|stone| !gone.contains(stone)).take(45).collect();
    for stone in &missed {
        let text = match kind {
            Kind::Sqlite => {
                format!("UPDATE pages SET stone_ids = replace(stone_ids, '{stone}', 'x-{stone}')")
            }
            Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
                format!("UPDATE {{ops}}.pages SET stone_uuids = array_remove(stone_uuids, '{stone}')")
            }
        };
        mill.stage.plain.execute(&text).await.expect("the ledger forgets");
    }
    let unseen = mill.stage.store.unseen(sync.feed.clone(), sync.run_id).await.expect("they are counted");
    assert_eq!(unseen.unseen, 50);
    mill.supplier.handle.behave(|behaviour| behaviour.short_percent = 100);
    let asked = mill.supplier.handle.stats().requests;
    consolidate(&mill).await;
    assert!(mill.supplier.handle.stats().requests > asked, "the feed was asked");
    assert_eq!(mill.rows("deleted").await.into_keys().collect::<Vec<_>>(), {
        let mut gone = gone;
        gone.sort();
        gone
    });
    mill.check_equal().await;
}

/// So many vanished that it cannot be true: nothing is deleted, the sync says so, and people are told.
pub(crate) async fn beyond_the_limit_nothing_is_deleted(kind: Kind) {
    let mill = open(kind, 600).await;
    let roles = mill.roles();
    mill.sync(false).await;
    let gone = mill.supplier.handle.change(&Change::some(What::Vanish, 180, 3)).expect("stones vanish").ids;
    assert_eq!(gone.len(), 180);
    let full = mill.sync(true).await;
    let note = full.delete_note.clone().unwrap_or_default();
    assert!(note.contains("180 of 600") && note.contains("nothing was deleted"), "{note}");
    assert_eq!(
        (full.deleted, mill.rows("active").await.len(), mill.rows("deleted").await.len()),
        (0, 600, 0)
    );
    let told = alerts(&mill).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let named = format!("delete_limit: feed {FEED}: ");
    assert!(told[0].starts_with(&named) && told[0].contains("180 of 600"), "{told:?}");
    assert!(full.watermark_after.is_some(), "the sync itself is good");
    // Most of them are back: what is left below the limit is believed.
    mill.supplier.handle.change(&Change::these(What::Return, gone[..100].to_vec())).expect("stones return");
    let full = mill.sync(true).await;
    roles.stop().await;
    assert_eq!((full.deleted, full.delete_note), (80, None));
    mill.check_equal().await;
}

/// Writes the folder of a feed: these stones, a dollar and some cents each.
fn write(folder: &tempfile::TempDir, stones: impl Iterator<Item = u32>) {
    let mut text = "stone_id,offer_id,price,shape,carats,lab_grown,updated_at\n".to_owned();
    for stone in stones {
        let _ = writeln!(text, "S-{stone:03},O-{stone},{}.{:02},round,1.01,,", 1 + stone / 100, stone % 100);
    }
    std::fs::write(folder.path().join("stones.csv"), text).expect("the folder is written");
}

/// A feed that cannot be asked by id: two full syncs in a row must have missed a stone.
pub(crate) async fn a_feed_without_lookup_needs_two_full_syncs(kind: Kind) {
    let mill = Mill::open(kind, 1).await;
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
        created_at: host_now(),
    };
    let change =
        FeedChange { feed, copy_url: None, schedule: None, full_schedule: None, time_zone: "UTC".to_owned() };
    mill.syncs.put_feed(change).await.expect("the feed is added");
    let roles = mill.roles();
    let full = || async {
        let run = mill.syncs.start("folder", true, None).await.expect("the sync is queued").run_id;
        let ended = mill.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        let count = |status: &str| {
            format!("SELECT count(*) FROM diamonds WHERE feed = 'folder' AND status = '{status}'")
        };
        (number(&mill, &count("active")).await, number(&mill, &count("deleted")).await)
    };
    assert_eq!(full().await, (300, 0));
    // By hand: S-250 costs $3.50, and 15 % more is $4.025, which is 403 cents with halves up.
    let price = "SELECT retail_price_cents FROM diamonds WHERE supplier_stone_id = 'S-250'";
    assert_eq!(number(&mill, price).await, 403);
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
