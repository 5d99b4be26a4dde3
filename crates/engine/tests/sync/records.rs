//! Single records: one that changes without its price, and those that cannot be stored, mapped or written.

use std::collections::BTreeSet;

use tidemill_core::pricing::PricingRule;
use tidemill_core::records::{Reject, Stage};
use tidemill_core::run::RunState;
use tidemill_engine::sync::ReplaceScope;
use tidemill_supplier::{Change, ChangeKind, Config};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::{many, number, open};

async fn rejects(fixture: &SyncFixture) -> Vec<Reject> {
    fixture.base.store.rejects(Some(FEED.to_owned()), 1_000).await.expect("the rejected rows are listed")
}

/// Checks that the table equals the source except for exactly the rejected records; returns these.
async fn equal_but_for_rejects(fixture: &SyncFixture) -> BTreeSet<String> {
    let listed: BTreeSet<String> =
        rejects(fixture).await.into_iter().map(|reject| reject.record_id).collect();
    let (mut expected, found) = (fixture.expected(), fixture.rows("active").await);
    expected.retain(|record, _| !listed.contains(record));
    assert_eq!(expected.len(), found.len(), "{listed:?}");
    assert!(expected == found, "some row is not the source's");
    listed
}

pub(crate) async fn changed_media_with_equal_price_is_updated(kind: Kind) {
    let fixture = open(kind, 900).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    let before = fixture.rows("active").await;
    let media = |record: &str| {
        format!(
            "SELECT coalesce(image_url, '') || ' ' || coalesce(video_url, '') FROM diamonds \
             WHERE supplier_stone_id = '{record}'"
        )
    };
    let changed =
        fixture.supplier.handle.change(&Change::random(ChangeKind::Media, 20, 4)).expect("media change").ids;
    let old = fixture.base.plain.texts(&media(&changed[0])).await.expect("the row is read");
    fixture.sync(false).await;
    roles.stop().await;
    fixture.check_equal().await;
    let after = fixture.rows("active").await;
    for (record, row) in &after {
        let was = &before[record];
        assert_eq!((row.feed_price, row.retail_price), (was.feed_price, was.retail_price), "{record}");
        assert_eq!(row.sha256 != was.sha256, changed.contains(record), "{record}");
    }
    let new = fixture.base.plain.texts(&media(&changed[0])).await.expect("the row is read");
    assert_ne!(old, new, "the pictures or the films are others now");
}

/// Records that the feed corrupts are rejected with their reason, the rest of the page and of the batch continues, and
/// fixed records arrive with the next sync.
async fn check_reject_and_fix(kind: Kind, config: Config, stage: Stage, words: &str) {
    let fixture = SyncFixture::with(kind, config, many()).await;
    let roles = fixture.roles();
    let sync = fixture.sync(false).await;
    let listed = rejects(&fixture).await;
    assert_eq!(listed.len(), 7, "{listed:?}");
    for reject in &listed {
        assert_eq!((reject.stage, reject.run_id), (stage, sync.run_id), "{reject:?}");
        assert!(reject.reason.contains(words), "{}", reject.reason);
        assert!(!reject.payload.is_empty() && !reject.payload.contains('\0'));
    }
    let records = equal_but_for_rejects(&fixture).await;
    let order = Change::of_ids(ChangeKind::Repair, records.into_iter().collect());
    assert_eq!(fixture.supplier.handle.change(&order).expect("the records are mended").ids.len(), 7);
    fixture.sync(false).await;
    roles.stop().await;
    assert_eq!(rejects(&fixture).await, [], "what is in the table is not listed");
    fixture.check_equal().await;
}

pub(crate) async fn unmappable_record_is_rejected_until_fixed(kind: Kind) {
    let config = Config { stones: 900, uncertified_stones: 7, ..SyncFixture::config() };
    check_reject_and_fix(kind, config, Stage::Map, "`diamond.certificate`").await;
}

pub(crate) async fn record_with_nul_character_is_rejected_until_fixed(kind: Kind) {
    let config = Config { stones: 900, nul_stones: 7, ..SyncFixture::config() };
    check_reject_and_fix(kind, config, Stage::Fetch, "NUL character").await;
}

/// A stored record becomes unreadable and then reverts to its old payload.
pub(crate) async fn reverted_record_is_removed_from_the_rejects(kind: Kind) {
    for what in [ChangeKind::Nul, ChangeKind::NoCertificate] {
        let fixture = open(kind, 900).await;
        let roles = fixture.roles();
        fixture.sync(false).await;
        let before = fixture.rows("active").await;
        let spoiled =
            fixture.supplier.handle.change(&Change::random(what, 3, 4)).expect("they are spoiled").ids;
        let sync = fixture.sync(false).await;
        let listed: Vec<String> =
            rejects(&fixture).await.into_iter().map(|reject| reject.record_id).collect();
        assert_eq!(BTreeSet::from_iter(listed), spoiled.iter().cloned().collect(), "{what:?}");
        assert_eq!(fixture.rows("active").await, before, "the last good record stays in the table");
        let times = number(&fixture, "SELECT count(*) FROM {ops}.rejected_rows WHERE times > 1").await;
        assert_eq!(times, 0, "{sync:?}");
        // Repricing writes the last good record again, and does not clear the reject.
        let first = vec![PricingRule { priority: 1, ..usual_rule(&fixture).await }];
        fixture.syncs.add_rules(first, ReplaceScope::Nothing, None).await.expect("a rule is added");
        fixture.syncs.apply_rules(FEED, |_| {}).await.expect("the rules are applied");
        assert_eq!(rejects(&fixture).await.len(), 3, "{what:?}");
        fixture
            .supplier
            .handle
            .change(&Change::of_ids(ChangeKind::Repair, spoiled))
            .expect("they are mended");
        fixture.sync(false).await;
        roles.stop().await;
        assert_eq!(rejects(&fixture).await, [], "{what:?}");
        fixture.check_equal().await;
    }
}

/// Returns the only rule of a new database.
async fn usual_rule(fixture: &SyncFixture) -> PricingRule {
    fixture.base.store.rules().await.expect("the rules are listed").remove(0)
}

/// Makes a table refuse a record, like a user's own constraint.
async fn refuse(fixture: &SyncFixture, table: &str, record: &str) {
    let text = match fixture.base.kind {
        Kind::Sqlite => format!(
            "CREATE TRIGGER house_rule BEFORE INSERT ON {table} WHEN NEW.supplier_stone_id = '{record}' \
             BEGIN SELECT RAISE(ABORT, 'house rule'); END"
        ),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("ALTER TABLE {table} ADD CONSTRAINT house_rule CHECK (supplier_stone_id <> '{record}')")
        }
    };
    fixture.base.plain.script(&text).await.expect("the rule is made");
}

async fn allow(fixture: &SyncFixture, table: &str) {
    let text = match fixture.base.kind {
        Kind::Sqlite => "DROP TRIGGER house_rule".to_owned(),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("ALTER TABLE {table} DROP CONSTRAINT house_rule")
        }
    };
    fixture.base.plain.script(&text).await.expect("the rule is taken back");
}

/// In the raw table or in the canonical one: it is found within its page or batch, rejected alone, and stored once the
/// constraint is gone.
pub(crate) async fn record_refused_by_the_database_is_rejected(kind: Kind) {
    for (table, stage) in [("raw_diamonds_nivoda_natural", Stage::Store), ("diamonds", Stage::Upsert)] {
        let fixture = open(kind, 900).await;
        let record = fixture.expected().keys().nth(333).cloned().expect("there are so many");
        refuse(&fixture, table, &record).await;
        let roles = fixture.roles();
        let sync = fixture.sync(false).await;
        let listed = rejects(&fixture).await;
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!((listed[0].stage, &listed[0].record_id, listed[0].times), (stage, &record, 1));
        assert!(listed[0].reason.contains("house"), "{}", listed[0].reason);
        assert_eq!(equal_but_for_rejects(&fixture).await, BTreeSet::from([record]));
        assert_eq!(sync.consolidation_errors, i64::from(stage == Stage::Upsert), "{sync:?}");
        allow(&fixture, table).await;
        fixture.sync(true).await;
        roles.stop().await;
        assert_eq!(rejects(&fixture).await, []);
        fixture.check_equal().await;
    }
}

pub(crate) async fn record_twice_in_one_page_is_stored_once(kind: Kind) {
    let fixture = open(kind, 900).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.duplicate_next = 1_000);
    let roles = fixture.roles();
    let run = fixture.queue(false).await;
    let ended = fixture.settle(&run).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    let left = fixture.supplier.handle.behaviour().duplicate_next;
    assert!(left < 970, "{left} pages were left as they are");
    let same = "SELECT count(*) FROM (SELECT supplier_stone_id FROM diamonds GROUP BY supplier_stone_id \
                HAVING count(*) > 1) twice";
    assert_eq!(number(&fixture, same).await, 0);
    assert_eq!(rejects(&fixture).await, []);
    fixture.check_equal().await;
}
