//! Fields that the source renames, and the schema contract in a sync.

use super::fixture::{COLUMNS, TOTAL, TrustFixture, records};
use serde_json::{Value, json};
use tidemill_core::records::Stage;
use tidemill_core::sync::SyncState;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::ITEMS;

/// Renames the field `note` of these records.
fn rename(records: &mut [Value]) {
    for record in records {
        let value = record.as_object_mut().and_then(|fields| fields.remove("note"));
        record["remark"] = value.unwrap_or_default();
    }
}

/// Opens a fixture with 60 synced records and this contract.
async fn synced(kind: Kind, mode: &str) -> TrustFixture {
    let fixture = TrustFixture::open(kind, records(60)).await;
    let contract = format!("  schema_contract: {{columns: {mode}}}\n");
    fixture.apply_text(&fixture.definition(TOTAL, &contract, COLUMNS)).await;
    fixture.sync(true).await;
    assert_eq!(fixture.rows("note IS NOT NULL").await, 60);
    fixture
}

pub(crate) async fn renamed_field_fails_the_sync_and_overwrites_nothing(kind: Kind) {
    for mode in ["evolve", "freeze"] {
        let fixture = synced(kind, mode).await;
        fixture.api.change(|all| rename(all));
        fixture.fail(&["no longer sends `note`", "60 of 60 rows", "was not overwritten"]).await;
        assert_eq!(fixture.rows("note IS NOT NULL").await, 60);
        // The corrected definition reads the new field.
        let columns = COLUMNS.replace("note: {}", "note: remark");
        fixture.apply_text(&fixture.definition(TOTAL, "", &columns)).await;
        fixture.sync(true).await;
        assert_eq!(fixture.rows("note IS NOT NULL").await, 60);
        fixture.close().await;
    }
}

pub(crate) async fn discard_row_rejects_records_without_the_field(kind: Kind) {
    let fixture = synced(kind, "discard_row").await;
    fixture.api.change(|all| {
        rename(all);
        for record in all.iter_mut() {
            record["n"] = json!(5);
        }
    });
    let sync = fixture.sync(true).await;
    assert_eq!((sync.state, sync.consolidation_errors), (SyncState::Completed, 60));
    assert_eq!(fixture.rows("note IS NOT NULL").await, 60);
    assert_eq!(fixture.rows("n = 5").await, 1);
    let rejects =
        fixture.base.base.store.rejects(Some(ITEMS.to_owned()), 100).await.expect("rejects are read");
    assert_eq!((rejects.len(), rejects[0].stage), (60, Stage::Map));
    assert!(rejects[0].reason.contains("no longer sends `note`"), "{}", rejects[0].reason);
    fixture.close().await;
}

pub(crate) async fn discard_value_keeps_the_old_value_and_writes_the_rest(kind: Kind) {
    let fixture = synced(kind, "discard_value").await;
    fixture.api.change(|all| {
        rename(all);
        for record in all.iter_mut() {
            record["n"] = json!(5);
        }
    });
    let sync = fixture.sync(true).await;
    assert_eq!((sync.state, sync.consolidation_errors), (SyncState::Completed, 0));
    assert_eq!(fixture.rows("note IS NOT NULL AND n = 5").await, 60);
    fixture.close().await;
}

/// The table lacks a column of the definition, and the contract does not add it.
pub(crate) async fn column_that_the_table_lacks_is_left_out(kind: Kind) {
    let fixture = synced(kind, "discard_value").await;
    let contract = "  schema_contract: discard_value\n";
    let columns = format!("{COLUMNS}    region: {{nullable: false}}\n    level: {{type: integer}}\n");
    fixture.apply_text(&fixture.definition(TOTAL, contract, &columns)).await;
    fixture.api.change(|all| {
        all[7]["n"] = json!(5);
        all[8]["level"] = json!("high");
        all.pop();
        all.push(json!({ "id": "r0099", "n": 1, "note": "without a region" }));
    });
    let sync = fixture.sync(true).await;
    assert_eq!((sync.state, sync.consolidation_errors), (SyncState::Completed, 0));
    assert_eq!(fixture.rows("id = 'r0007' AND n = 5").await, 1);
    assert_eq!(fixture.rows("id = 'r0099'").await, 1);
    fixture.close().await;
}

/// An honest source: its field is optional, and some records lose it.
pub(crate) async fn optional_field_that_some_records_lose_is_emptied(kind: Kind) {
    let mut all = records(60);
    rename(&mut all[..30]);
    let fixture = TrustFixture::open(kind, all).await;
    fixture.apply_text(&fixture.definition(TOTAL, "  schema_contract: {columns: freeze}\n", COLUMNS)).await;
    fixture.sync(true).await;
    assert_eq!(fixture.rows("note IS NOT NULL").await, 30);
    fixture.api.change(|all| {
        rename(&mut all[58..]);
    });
    fixture.sync(true).await;
    assert_eq!(fixture.rows("note IS NOT NULL").await, 28);
    fixture.close().await;
}

/// A value that does not fit its column.
async fn misfit(kind: Kind, mode: &str) -> TrustFixture {
    let fixture = synced(kind, mode).await;
    fixture.api.change(|all| {
        all[7]["n"] = json!("many");
        all[8]["n"] = json!(5);
    });
    fixture
}

pub(crate) async fn frozen_contract_fails_the_sync_with_the_value(kind: Kind) {
    let fixture = misfit(kind, "freeze").await;
    let run = fixture.fail(&["record `r0007` does not fit the table", "`n`", "`many`"]).await;
    assert!(!run.metadata.to_string().contains("given up"), "{}", run.metadata);
    assert_eq!(fixture.rows("true").await, 60);
    // The corrected source is synced.
    fixture.api.change(|all| all[7]["n"] = json!(5));
    fixture.sync(true).await;
    assert_eq!(fixture.rows("n = 5").await, 3);
    fixture.close().await;
}

pub(crate) async fn value_that_does_not_fit_is_discarded_as_the_contract_says(kind: Kind) {
    for (mode, errors, old, empty) in
        [("evolve", 1, 1, 0), ("discard_row", 1, 1, 0), ("discard_value", 0, 0, 1)]
    {
        let fixture = misfit(kind, mode).await;
        let sync = fixture.sync(true).await;
        assert_eq!((sync.state, sync.consolidation_errors), (SyncState::Completed, errors), "{mode}");
        assert_eq!(fixture.rows("id = 'r0007' AND n = 7").await, old, "{mode}");
        assert_eq!(fixture.rows("id = 'r0007' AND n IS NULL").await, empty, "{mode}");
        assert_eq!(fixture.rows("id = 'r0008' AND n = 5").await, 1, "{mode}");
        fixture.close().await;
    }
}

/// Columns are inferred, and the source adds a field: the unchanged definition adds its column when applied again.
pub(crate) async fn new_field_of_inferred_columns_is_added_by_the_same_definition(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(60)).await;
    let text = fixture.definition("", "", "").replace("  columns:\n", "");
    fixture.apply_text(&text).await;
    fixture.sync(true).await;
    fixture.api.change(|all| {
        for record in all.iter_mut() {
            record["remark"] = json!("new");
        }
    });
    let sync = fixture.sync(true).await;
    assert_eq!(sync.state, SyncState::Completed);
    // A known field that the first page lacks keeps its column.
    fixture.api.change(|all| {
        for record in &mut all[..20] {
            record.as_object_mut().and_then(|fields| fields.remove("region"));
        }
    });
    let hints = "SELECT CAST(count(*) AS bigint) FROM {ops}.run_events \
                 WHERE message LIKE '%without a column: remark; apply the unchanged definition again%'";
    assert_ne!(fixture.base.base.plain.number(hints).await.expect("events are counted"), 0);

    let syncs = &fixture.base.syncs;
    let plan = syncs.plan_feed(fixture.change(&text)).await.expect("the table is planned");
    assert!(plan.statements.len() == 1 && plan.statements[0].contains("remark"), "{plan:#?}");
    let stored = syncs.table_plan(ITEMS).await.expect("the table is planned");
    assert_eq!(stored.statements, Vec::<String>::new(), "a plan changes nothing");
    fixture.apply_text(&text).await;
    fixture.api.change(|all| *all = records(60));
    fixture.api.change(|all| all.iter_mut().for_each(|record| record["remark"] = json!("new")));
    fixture.sync(true).await;
    assert_eq!(fixture.rows("remark = 'new' AND region IS NOT NULL").await, 60);
    // Without a further field, the same definition changes nothing.
    let read = async || fixture.base.base.store.feed(ITEMS.to_owned()).await.expect("the feed is read").feed;
    let before = read().await;
    fixture.apply_text(&text).await;
    assert_eq!(read().await, before);
    fixture.close().await;
}
