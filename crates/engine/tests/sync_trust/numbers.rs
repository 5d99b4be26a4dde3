//! Incremental syncs whose cursor is a number: no change is lost, and a watermark is never too high.

use super::fixture::{TOTAL, TrustFixture, record};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tidemill_core::feed::RunType;
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::ITEMS;

const COUNT: usize = 60;
const BY_NUMBER: &str = "incremental: {cursor_path: seq, start_param: seq_from, kind: number}";
const COLUMNS: &str = "    id: {nullable: false}\n    seq: {type: integer}\n    note: {}\n";

/// Returns records with the numbers `first`, `first + step` …
fn numbered(first: i64, step: i64) -> Vec<Value> {
    let numbers = (0..).map(|number| first + number * step);
    let all = (0..COUNT).map(record).zip(numbers).map(|(mut record, number)| {
        record["seq"] = json!(number);
        record
    });
    all.collect()
}

fn set(records: &mut [Value], index: usize, number: i64) {
    records[index]["seq"] = json!(number);
    records[index]["note"] = json!(format!("changed {number}"));
}

async fn opened(kind: Kind, records: Vec<Value>) -> TrustFixture {
    let fixture = TrustFixture::open(kind, records).await;
    apply(&fixture, BY_NUMBER).await;
    fixture
}

async fn apply(fixture: &TrustFixture, incremental: &str) {
    fixture.apply_text(&fixture.definition(&format!("{TOTAL}\n{incremental}"), "", COLUMNS)).await;
}

async fn watermark(fixture: &TrustFixture) -> Option<i64> {
    let feed = fixture.base.base.store.feed(ITEMS.to_owned()).await.expect("the feed is read");
    feed.watermark.map(|mark| mark.last_updated_at.timestamp_micros())
}

/// While the second page is read, a record of the first page changes, and then the last record, which is read later.
pub(crate) async fn change_behind_the_reader_is_not_lost(kind: Kind) {
    let fixture = opened(kind, numbered(1, 1)).await;
    for (number, run_type) in [(61, RunType::Full), (63, RunType::Full), (65, RunType::Incremental)] {
        let (api, calls) = (fixture.api.clone(), Arc::new(AtomicUsize::new(0)));
        fixture.api.answer_with(move |call| {
            if call.query.contains_key("offset") && calls.fetch_add(1, Ordering::Relaxed) == 1 {
                api.change(|all| {
                    set(all, 0, number);
                    set(all, COUNT - 1, number + 1);
                });
            }
            None
        });
        assert_eq!(fixture.sync(false).await.run_type, run_type);
        fixture.api.answer_normally();
    }
    fixture.sync(false).await;
    assert_eq!(fixture.rows("id = 'r0000' AND seq = 65 AND note = 'changed 65'").await, 1);
    assert_eq!(fixture.rows("id = 'r0059' AND seq = 66").await, 1);
    fixture.close().await;
}

/// The watermark is what the sync before has read: one window is read twice.
pub(crate) async fn number_watermark_follows_the_previous_sync(kind: Kind) {
    let fixture = opened(kind, numbered(1, 1)).await;
    assert_eq!((fixture.sync(false).await.run_type, watermark(&fixture).await), (RunType::Full, None));
    assert_eq!((fixture.sync(false).await.run_type, watermark(&fixture).await), (RunType::Full, Some(60)));
    fixture.api.change(|all| set(all, 7, 61));
    assert_eq!(
        (fixture.sync(false).await.run_type, watermark(&fixture).await),
        (RunType::Incremental, Some(60))
    );
    assert_eq!(fixture.rows("id = 'r0007' AND seq = 61").await, 1);
    fixture.sync(false).await;
    assert_eq!(watermark(&fixture).await, Some(61));
    fixture.close().await;
}

/// A source that was restored from a backup assigns lower numbers again.
pub(crate) async fn restored_source_lowers_the_watermark(kind: Kind) {
    let fixture = opened(kind, numbered(1, 1)).await;
    fixture.sync(true).await;
    fixture.sync(true).await;
    fixture.api.change(|all| *all = numbered(-20, 1));
    fixture.sync(true).await;
    assert_eq!(watermark(&fixture).await, None, "the list has no number 60");
    let changes =
        fixture.base.base.store.watermark_changes(ITEMS.to_owned(), 1).await.expect("changes are read");
    assert_eq!(changes[0].before.map(|at| at.timestamp_micros()), Some(60));
    assert!(changes[0].after.is_none() && changes[0].note.is_some(), "{changes:?}");
    assert_eq!(fixture.sync(false).await.run_type, RunType::Full);
    assert_eq!(watermark(&fixture).await, Some(39));
    fixture.api.change(|all| set(all, 7, 40));
    assert_eq!(fixture.sync(false).await.run_type, RunType::Incremental);
    assert_eq!(fixture.rows("id = 'r0007' AND seq = 40").await, 1);
    fixture.close().await;
}

/// A time, read as a number, would be higher than each number for centuries.
pub(crate) async fn watermark_of_another_cursor_is_replaced(kind: Kind) {
    let mut all = numbered(1, 1);
    for record in &mut all {
        record["changed"] = json!("2026-01-31T12:00:00Z");
    }
    let fixture = opened(kind, all).await;
    apply(&fixture, "incremental: {cursor_path: changed, start_param: changed_from}").await;
    fixture.sync(false).await;
    assert!(watermark(&fixture).await.is_some_and(|mark| mark > 1_000_000_000_000_000));
    apply(&fixture, BY_NUMBER).await;
    assert_eq!(fixture.sync(false).await.run_type, RunType::Full);
    assert_eq!(watermark(&fixture).await, None);
    fixture.sync(false).await;
    fixture.api.change(|all| set(all, 7, 61));
    assert_eq!(fixture.sync(false).await.run_type, RunType::Incremental);
    assert_eq!(fixture.rows("id = 'r0007' AND seq = 61").await, 1);
    fixture.close().await;
}

/// Ids that contain a time, and times in nanoseconds, are larger than the microseconds of the year 9999.
pub(crate) async fn large_number_is_a_watermark(kind: Kind) {
    let first = 1_800_000_000_000_000_001;
    let last = first + 1_000_000 * i64::try_from(COUNT - 1).expect("a small number");
    let fixture = opened(kind, numbered(first, 1_000_000)).await;
    fixture.sync(false).await;
    fixture.sync(false).await;
    assert_eq!(watermark(&fixture).await, Some(last));
    fixture.api.take_calls();
    let sync = fixture.sync(false).await;
    assert_eq!((sync.run_type, sync.consolidation_processed), (RunType::Incremental, 1));
    let asked = fixture.api.take_calls();
    assert!(asked.iter().all(|call| call.query["seq_from"] == last.to_string()), "{asked:?}");
    fixture.close().await;
}
