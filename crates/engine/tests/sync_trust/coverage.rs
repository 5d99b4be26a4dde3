//! Partitions that do not contain every record of the source.

use super::fixture::{BY_RANGE, BY_VALUE, TOTAL, TrustFixture, records};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tidemill_core::sync::SyncState;
use tidemill_testkit::interface::Kind;

const COUNT: usize = 240;

/// Returns records of which some are damaged.
fn with(change: impl Fn(usize, &mut Value)) -> Vec<Value> {
    let mut all = records(COUNT);
    all.iter_mut().enumerate().for_each(|(number, record)| change(number, record));
    all
}

/// Fills the table without partitions, then checks that partitions with a gap fail and delete nothing.
async fn check_gap(kind: Kind, records: Vec<Value>, partition: &str, words: &[&str]) {
    let fixture = TrustFixture::open(kind, records).await;
    fixture.apply("").await;
    fixture.sync(true).await;
    assert_eq!(fixture.rows("true").await, 240);
    fixture.apply(&format!("{partition}\n{TOTAL}")).await;
    for _ in 0..2 {
        fixture.fail(words).await;
    }
    assert_eq!(fixture.rows("true").await, 240);
    fixture.close().await;
}

pub(crate) async fn record_without_the_partition_field_fails_the_plan(kind: Kind) {
    let damaged = with(|number, record| {
        if number % 80 == 7 {
            record["n"] = Value::Null;
        }
    });
    let words =
        ["the source counts 240 records", "contain 237", "3 records are in no partition", "`n` may be empty"];
    check_gap(kind, damaged, BY_RANGE, &words).await;
}

pub(crate) async fn value_that_is_not_listed_fails_the_plan(kind: Kind) {
    let damaged = with(|number, record| {
        if number == 100 {
            record["region"] = json!("north");
        }
    });
    let words = ["its 2 partitions contain 239", "1 records are in no partition", "`partition.values`"];
    check_gap(kind, damaged, BY_VALUE, &words).await;
}

/// The source has values with decimals, and its upper boundary is inclusive.
pub(crate) async fn fraction_between_inclusive_boundaries_fails_the_plan(kind: Kind) {
    let damaged =
        with(|number, record| record["n"] = json!(f64::from(u32::try_from(number).unwrap_or(0)) + 0.5));
    let partition = BY_RANGE.replace("to_param: n_to", "to_param: n_last, to_bound: inclusive");
    check_gap(kind, damaged, &partition, &["are in no partition", "more decimals than the boundaries"]).await;
}

/// The records leave their partitions after these were planned. The source still has them.
pub(crate) async fn gap_that_opens_during_a_sync_deletes_nothing(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(COUNT)).await;
    fixture.apply(&format!("{BY_RANGE}\n{TOTAL}")).await;
    fixture.sync(true).await;
    let (api, is_changed) = (fixture.api.clone(), Arc::new(AtomicBool::new(false)));
    fixture.api.answer_with({
        let is_changed = is_changed.clone();
        move |call| {
            // Counts ask for one record, pages for more.
            let is_page = call.query.get("limit").is_some_and(|limit| limit != "1");
            if is_page && call.is_filtered() && !is_changed.swap(true, Ordering::Relaxed) {
                api.change(|all| {
                    all.iter_mut().skip(10).step_by(25).for_each(|record| record["n"] = Value::Null);
                });
            }
            None
        }
    });
    fixture.fail(&["10 records are in no partition"]).await;
    assert!(is_changed.load(Ordering::Relaxed), "the records were not changed during the sync");
    assert_eq!(fixture.rows("true").await, 240);
    fixture.close().await;
}

/// An honest source: removed records are deleted after the second full sync without them, and all others stay.
pub(crate) async fn covered_records_are_synced_and_deleted(kind: Kind) {
    let inclusive = BY_RANGE.replace("to_param: n_to", "to_param: n_last, to_bound: inclusive");
    for partition in [BY_RANGE, BY_VALUE, &inclusive] {
        let fixture = TrustFixture::open(kind, records(COUNT)).await;
        fixture.apply(&format!("{partition}\n{TOTAL}")).await;
        let first = fixture.sync(true).await;
        assert!(first.expected_workers > 1, "{} partitions", first.expected_workers);
        assert_eq!(fixture.rows("true").await, 240);
        fixture.api.change(|all| drop(all.drain(50..60)));
        fixture.sync(true).await;
        let last = fixture.sync(true).await;
        assert_eq!((last.state, last.deleted, last.delete_note), (SyncState::Completed, 10, None));
        assert_eq!(fixture.rows("true").await, 230);
        fixture.close().await;
    }
}

/// Without counts, a record that no page contains may be in no partition.
pub(crate) async fn uncounted_partitions_delete_only_what_a_lookup_confirms(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply(BY_VALUE).await;
    fixture.sync(true).await;
    fixture.api.change(|all| {
        all.remove(5);
        all[20]["region"] = json!("north");
    });
    for _ in 0..3 {
        let sync = fixture.sync(true).await;
        let note = sync.delete_note.expect("a note");
        assert!(note.contains("2 of 60 records were not seen") && note.contains("deletes.lookup"), "{note}");
    }
    assert_eq!(fixture.rows("true").await, 60);
    fixture.apply(&format!("{BY_VALUE}\ndeletes: {{lookup: {{param: id_is, ids_max: 1}}}}")).await;
    let sync = fixture.sync(true).await;
    assert_eq!((sync.deleted, sync.delete_note), (1, None));
    assert_eq!(fixture.rows("true").await, 59);
    fixture.close().await;
}

/// A source that gets a record with every count is larger at the end than its partitions were.
pub(crate) async fn growing_source_is_no_gap(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(COUNT)).await;
    fixture.apply(&format!("{BY_RANGE}\n{TOTAL}")).await;
    let (api, next) = (fixture.api.clone(), AtomicUsize::new(COUNT));
    fixture.api.answer_with(move |call| {
        if call.query.get("limit").is_some_and(|limit| limit == "1") {
            let number = next.fetch_add(1, Ordering::Relaxed);
            api.change(|all| all.push(super::fixture::record(number)));
        }
        None
    });
    let sync = fixture.sync(true).await;
    assert_eq!(sync.state, SyncState::Completed);
    fixture.close().await;
}
