//! Rows that the table refuses to delete, because other rows refer to them: each costs its own record only.

use super::fixture::{COLUMNS, TOTAL, TrustFixture, records};
use serde_json::Value;
use tidemill_core::records::{Reject, Stage};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::ITEMS;

/// Opens a fixture with 60 synced records, and a table with rows that refer to some of them.
async fn referenced(kind: Kind, sections: &str, references: &str, ids: &[&str]) -> TrustFixture {
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply_text(&fixture.definition(&format!("{TOTAL}\n{sections}"), "", COLUMNS)).await;
    fixture.sync(true).await;
    let rows: Vec<String> = ids.iter().map(|id| format!("('{id}')")).collect();
    let table = fixture.table();
    fixture.execute(&format!("CREATE TABLE orders (item text REFERENCES {table} (id) {references})")).await;
    fixture.execute(&format!("INSERT INTO orders VALUES {}", rows.join(", "))).await;
    fixture
}

async fn rejects(fixture: &TrustFixture) -> Vec<Reject> {
    fixture.base.base.store.rejects(Some(ITEMS.to_owned()), 100).await.expect("rejects are read")
}

/// Checks that exactly these records are rejected, because `orders` refers to them.
async fn check_rejected(fixture: &TrustFixture, ids: &[&str]) {
    let mut found = rejects(fixture).await;
    found.sort_by(|one, other| one.record_id.cmp(&other.record_id));
    assert_eq!(found.iter().map(|reject| reject.record_id.as_str()).collect::<Vec<_>>(), ids, "{found:#?}");
    for reject in found {
        assert_eq!(reject.stage, Stage::Delete, "{reject:?}");
        let (reason, id) = (&reject.reason, &reject.record_id);
        assert!(reason.contains("orders"), "{reason}");
        let names_key = fixture.base.base.kind == Kind::Sqlite || reason.contains(&format!("(id)=({id})"));
        assert!(names_key, "{reason}");
        assert!(reject.payload.contains(id.as_str()), "{reject:?}");
    }
}

async fn deletes_all_but_the_referenced(kind: Kind, references: &str) {
    let fixture = referenced(kind, "", references, &["r0011", "r0040"]).await;
    fixture.api.change(|all| drop(all.drain(10..14)));
    assert_eq!(fixture.sync(true).await.deleted, 0, "one sync proves nothing");
    let sync = fixture.sync(true).await;
    assert_eq!((sync.deleted, fixture.rows("true").await), (3, 57));
    let note = sync.delete_note.expect("a note");
    assert!(note.contains("refused to delete") && note.contains("tidemill feed rejects items"), "{note}");
    check_rejected(&fixture, &["r0011"]).await;
    assert_eq!(rejects(&fixture).await[0].times, 1);
    // A rebuild writes the row again, and it is still there without a record.
    fixture.base.syncs.apply_rules(ITEMS, |_| {}).await.expect("rows are built again");
    check_rejected(&fixture, &["r0011"]).await;
    // The record stays active, so the next full syncs try again.
    assert_eq!(fixture.sync(true).await.deleted, 0);
    check_rejected(&fixture, &["r0011"]).await;
    fixture.execute("DELETE FROM orders WHERE item = 'r0011'").await;
    let sync = fixture.sync(true).await;
    assert_eq!((sync.deleted, sync.delete_note, fixture.rows("true").await), (1, None, 56));
    assert_eq!(rejects(&fixture).await, []);
    fixture.close().await;
}

pub(crate) async fn foreign_key_keeps_its_row_and_no_other(kind: Kind) {
    Box::pin(deletes_all_but_the_referenced(kind, "")).await;
}

/// A constraint that is checked by the commit would fail all rows of the transaction. SQLite has no such tables.
pub(crate) async fn deferred_foreign_key_keeps_its_row_and_no_other(kind: Kind) {
    if kind != Kind::Sqlite {
        Box::pin(deletes_all_but_the_referenced(kind, "DEFERRABLE INITIALLY DEFERRED")).await;
    }
}

pub(crate) async fn record_with_a_kept_row_that_returns_is_accepted(kind: Kind) {
    let fixture = referenced(kind, "", "", &["r0011"]).await;
    fixture.api.change(|all| drop(all.drain(10..14)));
    fixture.sync(true).await;
    fixture.sync(true).await;
    check_rejected(&fixture, &["r0011"]).await;
    fixture.api.change(|all| *all = records(60));
    fixture.sync(true).await;
    assert_eq!((rejects(&fixture).await, fixture.rows("true").await), (vec![], 60));
    fixture.close().await;
}

/// A row and the rows that refer to it vanish together, while another deletion is refused.
pub(crate) async fn rows_that_refer_to_each_other_are_deleted(kind: Kind) {
    let linked = || {
        let mut all = records(60);
        for record in &mut all {
            record["note"] = Value::Null;
        }
        all[11]["note"] = "r0010".into();
        all[12]["note"] = "r0011".into();
        all
    };
    let fixture = TrustFixture::open(kind, linked()).await;
    let table = fixture.table();
    let columns = format!("id text PRIMARY KEY, n numeric, note text REFERENCES {table} (id)");
    fixture.execute(&format!("CREATE TABLE {table} ({columns})")).await;
    fixture.apply(TOTAL).await;
    fixture.sync(true).await;
    fixture.execute(&format!("CREATE TABLE orders (item text REFERENCES {table} (id))")).await;
    fixture.execute("INSERT INTO orders VALUES ('r0014')").await;
    fixture.api.change(|all| drop(all.drain(10..16)));
    fixture.sync(true).await;
    assert_eq!(fixture.sync(true).await.deleted, 5);
    check_rejected(&fixture, &["r0014"]).await;
    fixture.close().await;
}

pub(crate) async fn flagged_record_with_a_foreign_key_is_rejected_alone(kind: Kind) {
    let flag = "deletes: {flag: {path: region, equals: gone}}";
    let fixture = referenced(kind, flag, "", &["r0011"]).await;
    fixture.api.change(|all| all[10..14].iter_mut().for_each(|record| record["region"] = "gone".into()));
    fixture.api.change(|all| all[20]["n"] = 999.into());
    let sync = fixture.sync(true).await;
    assert_eq!(sync.consolidation_errors, 1);
    assert_eq!((fixture.rows("true").await, fixture.rows("n = 999").await), (57, 1));
    check_rejected(&fixture, &["r0011"]).await;
    fixture.execute("DELETE FROM orders").await;
    fixture.sync(true).await;
    assert_eq!((rejects(&fixture).await, fixture.rows("true").await), (vec![], 56));
    fixture.close().await;
}
