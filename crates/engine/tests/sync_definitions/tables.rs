//! Syncs into a user's table that is dropped, that refuses a row, or that keeps every version of a record.

use tidemill_core::records::Stage;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_supplier::{Change, ChangeKind, RestKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::{ITEMS, RestFixture, TABLE};

/// Returns the name of the table in plain SQL.
fn table(kind: Kind) -> &'static str {
    match kind {
        Kind::Sqlite => "items",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => TABLE,
    }
}

async fn execute(fixture: &RestFixture, text: &str) {
    fixture.base.base.plain.script(text).await.expect("the statement runs");
}

async fn count(fixture: &RestFixture, condition: &str) -> i64 {
    let text = format!("SELECT count(*) FROM {} WHERE {condition}", table(fixture.base.base.kind));
    fixture.base.base.plain.number(&text).await.expect("rows are counted")
}

/// The sync fails with a sentence, the watermark stays, and the next full sync fills the new table.
pub(crate) async fn dropped_table_fails_the_sync_and_is_filled_again(kind: Kind) {
    let fixture = RestFixture::open(kind, RestKind::Cursor, 150).await;
    let roles = fixture.base.roles();
    fixture.sync(false).await;
    let before = fixture.base.base.store.feed(ITEMS.to_owned()).await.expect("the feed is read").watermark;
    execute(&fixture, &format!("DROP TABLE {}", table(kind))).await;
    fixture.base.supplier.handle.change(&Change::random(ChangeKind::Price, 20, 1)).expect("a change");
    let run = fixture.queue(false).await;
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Failed, "{}", ended.metadata);
    let text = ended.metadata.to_string();
    assert!(text.contains("items") && text.contains("does not exist"), "{text}");
    let after = fixture.base.base.store.feed(ITEMS.to_owned()).await.expect("the feed is read").watermark;
    assert_eq!(after, before);
    fixture.base.syncs.create_table(ITEMS).await.expect("the table is created");
    fixture.sync(true).await;
    fixture.check_equal().await;
    roles.stop().await;
}

/// The row is rejected with the reason of the database; the others are written.
pub(crate) async fn row_that_the_table_refuses_is_rejected_alone(kind: Kind) {
    let fixture = RestFixture::open(kind, RestKind::Offset, 150).await;
    let id = fixture.expected().into_keys().nth(70).expect("an item");
    let name = table(kind);
    let refuse = match kind {
        Kind::Sqlite => format!(
            "CREATE TRIGGER house BEFORE INSERT ON {name} WHEN NEW.id = '{id}' \
             BEGIN SELECT RAISE(ABORT, 'house rule'); END"
        ),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            format!("ALTER TABLE {name} ADD CONSTRAINT house CHECK (id <> '{id}')")
        }
    };
    execute(&fixture, &refuse).await;
    let roles = fixture.base.roles();
    let sync = fixture.sync(false).await;
    assert_eq!((sync.state, sync.consolidation_errors), (SyncState::Completed, 1));
    let rejects =
        fixture.base.base.store.rejects(Some(ITEMS.to_owned()), 10).await.expect("rejects are read");
    assert_eq!(rejects.len(), 1, "{rejects:?}");
    assert_eq!((rejects[0].stage, rejects[0].record_id.as_str()), (Stage::Upsert, id.as_str()));
    assert!(rejects[0].reason.contains("house"), "{}", rejects[0].reason);
    assert_eq!(count(&fixture, "true").await, 149);
    let allow = match kind {
        Kind::Sqlite => "DROP TRIGGER house".to_owned(),
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => format!("ALTER TABLE {name} DROP CONSTRAINT house"),
    };
    execute(&fixture, &allow).await;
    let rebuilt = fixture.base.syncs.apply_rules(ITEMS, |_| {}).await.expect("rows are built again");
    assert_eq!((rebuilt.stones, rebuilt.rejected), (150, 0));
    fixture.check_equal().await;
    let left = fixture.base.base.store.rejects(Some(ITEMS.to_owned()), 10).await.expect("rejects are read");
    assert_eq!(left, []);
    roles.stop().await;
}

/// Each version of an item is one row, also after a sync that brings nothing new.
pub(crate) async fn append_keeps_every_version_once(kind: Kind) {
    let fixture = RestFixture::open(kind, RestKind::Keyset, 120).await;
    execute(&fixture, &format!("DROP TABLE {}", table(kind))).await;
    let text = fixture.definition(RestKind::Keyset);
    let (head, deletes) = text.split_once("deletes:\n").expect("the definition has deletes");
    let (_, into) = deletes.split_once("into:\n").expect("and a table");
    let into = into.replacen("  primary_key: id\n", "  write_disposition: append\n", 1);
    fixture.apply(&format!("{head}into:\n{into}")).await;
    let roles = fixture.base.roles();
    fixture.sync(true).await;
    assert_eq!(count(&fixture, "true").await, 120);
    fixture.sync(true).await;
    assert_eq!(count(&fixture, "true").await, 120);
    fixture.base.supplier.handle.change(&Change::random(ChangeKind::Price, 30, 1)).expect("a change");
    fixture.sync(false).await;
    assert_eq!(count(&fixture, "true").await, 150);
    roles.stop().await;
}

/// A sync reads with one definition: a change while it runs fails it, and the next one reads all records.
pub(crate) async fn changed_definition_ends_a_running_sync(kind: Kind) {
    let fixture = RestFixture::open(kind, RestKind::Cursor, 120).await;
    let roles = fixture.base.roles();
    fixture.sync(false).await;
    fixture.base.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300);
    let run = fixture.queue(true).await;
    while fixture.base.base.store.sync(run.to_string()).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let text = fixture.definition(RestKind::Cursor).replace("    notes: {type: text}\n", "");
    fixture.apply(&text).await;
    fixture.base.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Failed, "{}", ended.metadata);
    assert!(ended.metadata.to_string().contains("the definition of the feed changed"), "{}", ended.metadata);
    let sync = fixture.sync(false).await;
    assert_eq!(sync.run_type, tidemill_core::feed::RunType::Full);
    roles.stop().await;
}
