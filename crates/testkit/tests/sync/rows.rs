//! Single rows: one that changes without its price, and those that cannot be stored, mapped or written.

use std::collections::BTreeSet;

use tidemill_core::pricing::PricingRule;
use tidemill_core::records::{Reject, Stage};
use tidemill_core::run::RunState;
use tidemill_engine::sync::Replaced;
use tidemill_supplier::{Change, Config, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::{many, number, open};

async fn rejects(mill: &Mill) -> Vec<Reject> {
    mill.stage.store.rejects(Some(FEED.to_owned()), 1_000).await.expect("the rejected rows are listed")
}

/// The table is the source but for exactly the stones that are listed as rejected; which these are.
async fn equal_but_for_rejects(mill: &Mill) -> BTreeSet<String> {
    let listed: BTreeSet<String> = rejects(mill).await.into_iter().map(|reject| reject.stone_id).collect();
    let (mut expected, found) = (mill.expected(), mill.rows("active").await);
    expected.retain(|stone, _| !listed.contains(stone));
    assert_eq!(expected.len(), found.len(), "{listed:?}");
    assert!(expected == found, "some row is not the source's");
    listed
}

/// Media changed, and the price did not: the row changes.
pub(crate) async fn media_changed_and_price_not(kind: Kind) {
    let mill = open(kind, 900).await;
    let roles = mill.roles();
    mill.sync(false).await;
    let before = mill.rows("active").await;
    let media = |stone: &str| {
        format!(
            "SELECT coalesce(image_url, '') || ' ' || coalesce(video_url, '') FROM diamonds \
             WHERE supplier_stone_id = '{stone}'"
        )
    };
    let changed = mill.supplier.handle.change(&Change::some(What::Media, 20, 4)).expect("media change").ids;
    let old = mill.stage.plain.texts(&media(&changed[0])).await.expect("the row is read");
    mill.sync(false).await;
    roles.stop().await;
    mill.check_equal().await;
    let after = mill.rows("active").await;
    for (stone, row) in &after {
        let was = &before[stone];
        assert_eq!((row.feed_price, row.retail_price), (was.feed_price, was.retail_price), "{stone}");
        assert_eq!(row.sha256 != was.sha256, changed.contains(stone), "{stone}");
    }
    let new = mill.stage.plain.texts(&media(&changed[0])).await.expect("the row is read");
    assert_ne!(old, new, "the pictures or the films are others now");
}

/// Rows that the feed spoils are rejected with their reason, the rest of the page and of the batch goes on,
/// and what was mended comes in with the next sync.
async fn spoiled_and_mended(kind: Kind, config: Config, stage: Stage, words: &str) {
    let mill = Mill::with(kind, config, many()).await;
    let roles = mill.roles();
    let sync = mill.sync(false).await;
    let listed = rejects(&mill).await;
    assert_eq!(listed.len(), 7, "{listed:?}");
    for reject in &listed {
        assert_eq!((reject.stage, reject.run_id), (stage, sync.run_id), "{reject:?}");
        assert!(reject.reason.contains(words), "{}", reject.reason);
        assert!(!reject.payload.is_empty() && !reject.payload.contains('\0'));
    }
    let stones = equal_but_for_rejects(&mill).await;
    let order = Change::these(What::Mend, stones.into_iter().collect());
    assert_eq!(mill.supplier.handle.change(&order).expect("the stones are mended").ids.len(), 7);
    mill.sync(false).await;
    roles.stop().await;
    assert_eq!(rejects(&mill).await, [], "what is in the table is not listed");
    mill.check_equal().await;
}

/// A row that cannot be mapped.
pub(crate) async fn a_row_that_cannot_be_mapped(kind: Kind) {
    let config = Config { stones: 900, uncertified_stones: 7, ..Mill::config() };
    spoiled_and_mended(kind, config, Stage::Map, "`diamond.certificate`").await;
}

/// A row with a NUL character.
pub(crate) async fn a_row_with_a_nul_character(kind: Kind) {
    let config = Config { stones: 900, nul_stones: 7, ..Mill::config() };
    spoiled_and_mended(kind, config, Stage::Fetch, "NUL character").await;
}

/// A stone that was in the table, was spoiled, and is again what it was: it is no longer listed.
pub(crate) async fn a_row_that_is_what_it_was_is_no_longer_listed(kind: Kind) {
    for what in [What::Nul, What::NoCertificate] {
        let mill = open(kind, 900).await;
        let roles = mill.roles();
        mill.sync(false).await;
        let before = mill.rows("active").await;
        let spoiled = mill.supplier.handle.change(&Change::some(what, 3, 4)).expect("they are spoiled").ids;
        let sync = mill.sync(false).await;
        let listed: Vec<String> = rejects(&mill).await.into_iter().map(|reject| reject.stone_id).collect();
        assert_eq!(BTreeSet::from_iter(listed), spoiled.iter().cloned().collect(), "{what:?}");
        assert_eq!(mill.rows("active").await, before, "the last good record stays in the table");
        let times = number(&mill, "SELECT count(*) FROM {ops}.rejected_rows WHERE times > 1").await;
        assert_eq!(times, 0, "{sync:?}");
        // Pricing anew writes the last good record once more, and mends nothing.
        let first = vec![PricingRule { priority: 1, ..usual_rule(&mill).await }];
        mill.syncs.add_rules(first, Replaced::Nothing, None).await.expect("a rule is added");
        mill.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
        assert_eq!(rejects(&mill).await.len(), 3, "{what:?}");
        mill.supplier.handle.change(&Change::these(What::Mend, spoiled)).expect("they are mended");
        mill.sync(false).await;
        roles.stop().await;
        assert_eq!(rejects(&mill).await, [], "{what:?}");
        mill.check_equal().await;
    }
}

/// The one rule that a new database has.
async fn usual_rule(mill: &Mill) -> PricingRule {
    mill.stage.store.rules().await.expect("the rules are listed").remove(0)
}

/// Makes a table refuse a stone, as a rule of somebody's own would.
async fn refuse(mill: &Mill, table: &str, stone: &str) {
    let text = match mill.stage.kind {
        Kind::Sqlite => format!(
            "CREATE TRIGGER house_rule BEFORE INSERT ON {table} WHEN NEW.supplier_stone_id = '{stone}' \
             BEGIN SELECT RAISE(ABORT, 'house rule'); END"
        ),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("ALTER TABLE {table} ADD CONSTRAINT house_rule CHECK (supplier_stone_id <> '{stone}')")
        }
    };
    mill.stage.plain.script(&text).await.expect("the rule is made");
}

async fn allow(mill: &Mill, table: &str) {
    let text = match mill.stage.kind {
        Kind::Sqlite => "DROP TRIGGER house_rule".to_owned(),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("ALTER TABLE {table} DROP CONSTRAINT house_rule")
        }
    };
    mill.stage.plain.script(&text).await.expect("the rule is taken back");
}

/// A row that the database refuses, in the raw table or in the canonical one: found among its page or its
/// batch, rejected alone, and in the table after the rule is gone.
pub(crate) async fn a_row_that_the_database_refuses(kind: Kind) {
    for (table, stage) in [("raw_diamonds_nivoda", Stage::Store), ("diamonds", Stage::Upsert)] {
        let mill = open(kind, 900).await;
        let stone = mill.expected().keys().nth(333).cloned().expect("there are so many");
        refuse(&mill, table, &stone).await;
        let roles = mill.roles();
        let sync = mill.sync(false).await;
        let listed = rejects(&mill).await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].stage, &listed[0].stone_id, listed[0].times), (stage, &stone, 1));
        assert!(listed[0].reason.contains("house"), "{}", listed[0].reason);
        assert_eq!(equal_but_for_rejects(&mill).await, BTreeSet::from([stone]));
        assert_eq!(sync.consolidation_errors, i64::from(stage == Stage::Upsert), "{sync:?}");
        allow(&mill, table).await;
        mill.sync(true).await;
        roles.stop().await;
        assert_eq!(rejects(&mill).await, []);
        mill.check_equal().await;
    }
}

/// The same stone twice in one page is one row.
pub(crate) async fn the_same_stone_twice_in_one_page(kind: Kind) {
    let mill = open(kind, 900).await;
    mill.supplier.handle.behave(|behaviour| behaviour.duplicate_next = 1_000);
    let roles = mill.roles();
    let run = mill.queue(false).await;
    let ended = mill.settle(&run).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    let left = mill.supplier.handle.behaviour().duplicate_next;
    assert!(left < 970, "{left} pages were left as they are");
    let same = "SELECT count(*) FROM (SELECT supplier_stone_id FROM diamonds GROUP BY supplier_stone_id \
                HAVING count(*) > 1) twice";
    assert_eq!(number(&mill, same).await, 0);
    assert_eq!(rejects(&mill).await, []);
    mill.check_equal().await;
}
