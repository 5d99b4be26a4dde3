//! Values of a unique column that move between rows: the table equals the source after the same sync.

use super::fixture::{COLUMNS, TOTAL, TrustFixture, records};
use serde_json::Value;
use tidemill_core::records::{Reject, Stage};
use tidemill_engine::sync::SyncSettings;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::{ITEMS, many};

/// Opens a fixture whose table has these columns, with 60 synced records. Two rows are written per statement, so that
/// values move between statements.
async fn synced(kind: Kind, note: &str) -> TrustFixture {
    let settings = SyncSettings { upsert: 2, ..many() };
    let fixture = TrustFixture::with(kind, records(60), settings).await;
    fixture.execute(&format!("CREATE TABLE {{table}} (id text PRIMARY KEY, n numeric, note {note})")).await;
    fixture
        .apply_text(&fixture.definition(&format!("{TOTAL}\ndeletes: {{threshold: 1}}"), "", COLUMNS))
        .await;
    fixture.sync(true).await;
    // These rows are deleted with the items to which they refer.
    let children = format!("item text REFERENCES {} (id) ON DELETE CASCADE", fixture.table());
    fixture.execute(&format!("CREATE TABLE orders ({children})")).await;
    fixture.execute("INSERT INTO orders SELECT id FROM {table}").await;
    fixture
}

/// Gives each of these records the note of the next one, and the last one that of the first.
fn rotate(all: &mut [Value], places: &[usize]) {
    let first = all[places[0]]["note"].clone();
    for pair in places.windows(2) {
        all[pair[0]]["note"] = all[pair[1]]["note"].clone();
    }
    all[places[places.len() - 1]]["note"] = first;
}

async fn rejects(fixture: &TrustFixture) -> Vec<Reject> {
    let mut found =
        fixture.base.base.store.rejects(Some(ITEMS.to_owned()), 100).await.expect("rejects are read");
    found.sort_by(|one, other| one.record_id.cmp(&other.record_id));
    found
}

/// Checks that the row of each record has its note, and that no row was deleted in between.
async fn check_notes(fixture: &TrustFixture, all: &[Value]) {
    let text = format!("SELECT id || ' ' || note FROM {} ORDER BY id", fixture.table());
    let found = fixture.base.base.plain.texts(&text).await.expect("the rows are read");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let expected: Vec<String> =
        all.iter().map(|record| format!("{} {}", text(&record["id"]), text(&record["note"]))).collect();
    assert_eq!(found, expected);
    let orders = fixture.base.base.plain.number("SELECT count(*) FROM orders").await;
    assert_eq!(orders.expect("rows are counted"), 60, "the rows that refer to items are there");
}

async fn moves_values(kind: Kind, note: &str) {
    let fixture = synced(kind, note).await;
    let mut all = records(60);
    rotate(&mut all, &[3, 4]);
    rotate(&mut all, &[10, 50, 30]);
    all[20]["n"] = 999.into();
    fixture.api.change(|list| list.clone_from(&all));
    let sync = fixture.sync(true).await;
    assert_eq!((sync.consolidation_errors, rejects(&fixture).await), (0, vec![]));
    check_notes(&fixture, &all).await;
    assert_eq!(fixture.rows("n = 999").await, 1);
    fixture.close().await;
}

pub(crate) async fn values_of_a_nullable_column_swap_rows(kind: Kind) {
    Box::pin(moves_values(kind, "text UNIQUE")).await;
}

/// SQLite has no deferrable unique constraints.
pub(crate) async fn values_of_a_deferrable_constraint_swap_rows(kind: Kind) {
    if kind != Kind::Sqlite {
        Box::pin(moves_values(kind, "text NOT NULL UNIQUE DEFERRABLE")).await;
    }
}

pub(crate) async fn rebuild_writes_values_that_moved(kind: Kind) {
    let fixture = synced(kind, "text UNIQUE").await;
    for (id, note) in [("r0003", "x"), ("r0004", "note 3"), ("r0003", "note 4")] {
        fixture.execute(&format!("UPDATE {{table}} SET note = '{note}' WHERE id = '{id}'")).await;
    }
    let rebuilt = fixture.base.syncs.apply_rules(ITEMS, |_| {}).await.expect("rows are built again");
    assert_eq!((rebuilt.stones, rebuilt.rejected, rejects(&fixture).await), (60, 0, vec![]));
    check_notes(&fixture, &records(60)).await;
    // A rebuild counts the rows that it cannot write.
    fixture.execute("INSERT INTO {table} (id, note) VALUES ('mine', 'note of mine')").await;
    fixture.execute("UPDATE {table} SET note = 'y' WHERE id = 'r0003'").await;
    fixture.execute("UPDATE {table} SET note = 'note 3' WHERE id = 'mine'").await;
    let rebuilt = fixture.base.syncs.apply_rules(ITEMS, |_| {}).await.expect("rows are built again");
    assert_eq!((rebuilt.stones, rebuilt.rejected), (59, 1));
    assert_eq!(fixture.rows("id = 'r0003' AND note = 'y'").await, 1);
    fixture.close().await;
}

async fn keeps_duplicates(kind: Kind, note: &str) {
    let fixture = synced(kind, note).await;
    let mut all = records(60);
    rotate(&mut all, &[3, 30]);
    // Record 5 gets the value that record 6 keeps, so record 7 cannot get the value of record 5.
    all[5]["note"] = "note 6".into();
    all[7]["note"] = "note 5".into();
    fixture.api.change(|list| list.clone_from(&all));
    for _ in 0..2 {
        let sync = fixture.sync(true).await;
        let ids: Vec<String> = rejects(&fixture).await.into_iter().map(|reject| reject.record_id).collect();
        assert_eq!((sync.consolidation_errors, ids), (2, vec!["r0005".to_owned(), "r0007".to_owned()]));
        let mut expected = all.clone();
        expected[5]["note"] = "note 5".into();
        expected[7]["note"] = "note 7".into();
        check_notes(&fixture, &expected).await;
    }
    fixture.close().await;
}

pub(crate) async fn duplicate_value_stays_rejected_and_others_move(kind: Kind) {
    Box::pin(keeps_duplicates(kind, "text UNIQUE")).await;
}

pub(crate) async fn duplicate_value_of_a_deferrable_constraint_stays_rejected(kind: Kind) {
    if kind != Kind::Sqlite {
        Box::pin(keeps_duplicates(kind, "text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED")).await;
    }
}

pub(crate) async fn required_column_is_rejected_with_the_statement_that_helps(kind: Kind) {
    let fixture = synced(kind, "text NOT NULL UNIQUE").await;
    let mut all = records(60);
    rotate(&mut all, &[3, 40]);
    fixture.api.change(|list| list.clone_from(&all));
    assert_eq!(fixture.sync(true).await.consolidation_errors, 2);
    check_notes(&fixture, &records(60)).await;
    let found = rejects(&fixture).await;
    assert_eq!(found.len(), 2, "{found:?}");
    for reject in &found {
        assert_eq!(reject.stage, Stage::Upsert);
        assert!(reject.reason.contains("(\"note\") can move between rows"), "{}", reject.reason);
    }
    if kind != Kind::Sqlite {
        let (_, statement) = found[0].reason.split_once("after: ").expect("a statement");
        fixture.execute(statement).await;
        assert_eq!(fixture.sync(true).await.consolidation_errors, 0);
        check_notes(&fixture, &all).await;
    }
    fixture.close().await;
}

/// NULL would reach the rows that refer to the column, and stay there.
pub(crate) async fn column_whose_changes_cascade_is_never_emptied(kind: Kind) {
    let fixture = synced(kind, "text UNIQUE").await;
    let reference = format!("note text REFERENCES {} (note) ON UPDATE CASCADE", fixture.table());
    fixture.execute(&format!("CREATE TABLE labels ({reference})")).await;
    fixture.execute("INSERT INTO labels VALUES ('note 3'), ('note 4')").await;
    let mut all = records(60);
    rotate(&mut all, &[3, 40]);
    fixture.api.change(|list| list.clone_from(&all));
    assert_eq!(fixture.sync(true).await.consolidation_errors, 2);
    check_notes(&fixture, &records(60)).await;
    let labels = "SELECT count(*) FROM labels WHERE note IN ('note 3', 'note 4')";
    assert_eq!(fixture.base.base.plain.number(labels).await.expect("rows are counted"), 2);
    fixture.close().await;
}

/// The deletion frees the value of the vanished record in the sync that proves its absence.
pub(crate) async fn value_of_a_vanished_record_is_free_after_its_deletion(kind: Kind) {
    let fixture = synced(kind, "text NOT NULL UNIQUE").await;
    let mut all = records(61);
    all[60]["note"] = "note 10".into();
    all.remove(10);
    fixture.api.change(|list| list.clone_from(&all));
    assert_eq!(fixture.sync(true).await.consolidation_errors, 1);
    let sync = fixture.sync(true).await;
    assert_eq!((sync.consolidation_errors, sync.deleted, rejects(&fixture).await), (0, 1, vec![]));
    assert_eq!(fixture.rows("id = 'r0060' AND note = 'note 10'").await, 1);
    fixture.close().await;
}

/// A record that was refused and then left the source gets no row when its value is free.
pub(crate) async fn refused_record_that_left_the_source_gets_no_row(kind: Kind) {
    let fixture = synced(kind, "text UNIQUE").await;
    let mut all = records(61);
    all[60]["note"] = "note 10".into();
    fixture.api.change(|list| list.clone_from(&all));
    assert_eq!(fixture.sync(true).await.consolidation_errors, 1);
    all.remove(60);
    all[10]["note"] = "another note".into();
    fixture.api.change(|list| list.clone_from(&all));
    fixture.sync(true).await;
    check_notes(&fixture, &all).await;
    fixture.close().await;
}
