//! Deletions: the threshold, `absence`, `deleted_at`, tables that are replaced, and tables that change meanwhile.

use super::fixture::{COLUMNS, TOTAL, TrustFixture, record, records};
use std::time::Duration;
use tidemill_core::run::RunState;
use tidemill_testkit::interface::Kind;

/// Opens a fixture with 60 synced records.
async fn synced(kind: Kind, sections: &str, into: &str) -> TrustFixture {
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply_text(&fixture.definition(&format!("{TOTAL}\n{sections}"), into, COLUMNS)).await;
    fixture.sync(true).await;
    assert_eq!(fixture.rows("true").await, 60);
    fixture
}

pub(crate) async fn replaced_table_equals_the_list_even_if_it_is_empty(kind: Kind) {
    let fixture = synced(kind, "", "  write_disposition: replace\n").await;
    fixture.api.change(|all| drop(all.drain(1..)));
    assert_eq!(fixture.sync(true).await.deleted, 59);
    assert_eq!(fixture.rows("id = 'r0000'").await, 1);
    fixture.api.change(Vec::clear);
    assert_eq!(fixture.sync(true).await.deleted, 1);
    assert_eq!(fixture.rows("true").await, 0);
    fixture.api.change(|all| all.push(record(3)));
    fixture.sync(true).await;
    assert_eq!(fixture.rows("id = 'r0003'").await, 1);
    fixture.close().await;
}

pub(crate) async fn threshold_keeps_all_rows_until_it_allows_the_deletion(kind: Kind) {
    let fixture = synced(kind, "", "").await;
    fixture.api.change(|all| drop(all.drain(10..30)));
    for _ in 0..2 {
        let sync = fixture.sync(true).await;
        let note = sync.delete_note.expect("a note");
        assert!(note.contains("20 of 60 records") && note.contains("limit of 20 %"), "{note}");
    }
    assert_eq!(fixture.rows("true").await, 60);
    let sections = format!("{TOTAL}\ndeletes: {{threshold: 0.4}}");
    fixture.apply_text(&fixture.definition(&sections, "", COLUMNS)).await;
    let sync = fixture.sync(true).await;
    assert_eq!((sync.deleted, sync.delete_note), (20, None));
    assert_eq!(fixture.rows("true").await, 40);
    fixture.close().await;
}

pub(crate) async fn absence_deletes_nothing_if_it_is_switched_off(kind: Kind) {
    let fixture = synced(kind, "deletes: {absence: false}", "").await;
    fixture.api.change(|all| drop(all.drain(10..13)));
    for _ in 0..3 {
        let sync = fixture.sync(true).await;
        assert_eq!((sync.deleted, sync.delete_note), (0, None));
    }
    assert_eq!(fixture.rows("true").await, 60);
    fixture.close().await;
}

pub(crate) async fn deleted_row_is_marked_until_its_record_returns(kind: Kind) {
    let fixture = synced(kind, "", "  deleted_at: removed_at\n").await;
    fixture.api.change(|all| drop(all.drain(10..13)));
    fixture.sync(true).await;
    assert_eq!(fixture.rows("removed_at IS NOT NULL").await, 0, "one sync proves nothing");
    fixture.sync(true).await;
    assert_eq!(fixture.rows("true").await, 60);
    assert_eq!(fixture.rows("removed_at IS NOT NULL AND id IN ('r0010', 'r0011', 'r0012')").await, 3);
    assert_eq!(fixture.rows("removed_at IS NOT NULL").await, 3);
    fixture.api.change(|all| all.push(record(11)));
    fixture.sync(true).await;
    assert_eq!(fixture.rows("removed_at IS NOT NULL").await, 2);
    fixture.close().await;
}

/// A record is younger than the earlier full sync, which therefore could not contain it.
pub(crate) async fn record_that_an_incremental_sync_read_is_missed_once(kind: Kind) {
    let mut all = records(60);
    for record in &mut all {
        record["seq"] = 1.into();
    }
    let fixture = TrustFixture::open(kind, all).await;
    let incremental = "incremental: {cursor_path: seq, start_param: seq_from, kind: number}";
    fixture.apply(&format!("{TOTAL}\n{incremental}")).await;
    fixture.sync(true).await;
    fixture.sync(true).await;
    fixture.api.change(|all| {
        all.push(record(60));
        all[60]["seq"] = 2.into();
    });
    fixture.sync(false).await;
    assert_eq!(fixture.rows("id = 'r0060'").await, 1);
    fixture.api.change(|all| drop(all.pop()));
    assert_eq!(fixture.sync(true).await.deleted, 0, "one full sync proves nothing");
    assert_eq!(fixture.sync(true).await.deleted, 1);
    fixture.close().await;
}

/// A full sync that was consolidated in spite of failed partitions has not read the whole list.
pub(crate) async fn full_sync_with_failed_partitions_proves_no_absence(kind: Kind) {
    let fixture = synced(kind, "", "").await;
    fixture.api.change(|all| drop(all.drain(10..13)));
    let sync = fixture.sync(true).await;
    fixture
        .execute(&format!("UPDATE run_metadata SET failed_workers = 1 WHERE run_id = '{}'", sync.run_id))
        .await;
    assert_eq!(fixture.sync(true).await.deleted, 0);
    assert_eq!(fixture.sync(true).await.deleted, 3);
    fixture.close().await;
}

/// The table changes after the plan, while the pages are read.
async fn changed_meanwhile(kind: Kind, statement: &str, words: &[&str]) {
    let fixture = synced(kind, "", "").await;
    // Every record changes: rows of unchanged records are filled by a rebuild only.
    fixture.api.change(|all| all.iter_mut().for_each(|record| record["n"] = 500.into()));
    fixture.api.take_calls();
    fixture.api.hold();
    let run = fixture.queue(true).await;
    let began = tokio::time::Instant::now();
    while fixture.api.take_calls().is_empty() {
        assert!(began.elapsed() < Duration::from_mins(1), "the sync calls the source within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fixture.execute(statement).await;
    fixture.api.release();
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Failed, "{}", ended.metadata);
    for word in words {
        assert!(ended.metadata.to_string().contains(word), "{}", ended.metadata);
    }
    let created = fixture.base.syncs.create_table(tidemill_testkit::rest_fixture::ITEMS).await;
    created.expect("the table is created");
    fixture.sync(true).await;
    assert_eq!(fixture.rows("n = 500").await, 60);
    fixture.close().await;
}

pub(crate) async fn table_that_is_dropped_meanwhile_is_filled_by_the_next_sync(kind: Kind) {
    Box::pin(changed_meanwhile(kind, "DROP TABLE {table}", &["items", "does not exist"])).await;
}

pub(crate) async fn column_that_is_dropped_meanwhile_is_filled_by_the_next_sync(kind: Kind) {
    Box::pin(changed_meanwhile(kind, "ALTER TABLE {table} DROP COLUMN n", &["items", "lacks columns"])).await;
}
