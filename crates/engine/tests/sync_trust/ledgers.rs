//! Ledgers: each listed record has one outcome, and the summaries of a sync show it.

use super::fixture::{BY_RANGE, BY_VALUE, COLUMNS, TOTAL, TrustFixture, record, records};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tidemill_core::records::{Stage, Sync};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_core::sync_ledger::SyncLedger;
use tidemill_engine::sync::{LedgerCheck, SyncSettings};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::many;

const PAGES: &str = "SELECT count(*) FROM {ops}.pages";

/// Returns the ledger of a completed sync, which must add up.
fn ledger(sync: &Sync) -> SyncLedger {
    let ledger = sync.ledger.clone().expect("a completed sync has a ledger");
    assert_eq!(ledger.difference(), 0, "{ledger}");
    ledger
}

/// Returns the figures of a completed sync as its run shows them.
async fn summary(fixture: &TrustFixture, sync: &Sync) -> String {
    let run = fixture.base.base.store.run(sync.ops_run_id.clone()).await.expect("the run is read");
    let metadata = run.expect("the run exists").metadata;
    let ledger = ledger(sync);
    assert_eq!(metadata["rejected"], json!(ledger.rejected_total()), "{metadata}");
    assert_eq!(metadata["deleted"], json!(sync.deleted), "{metadata}");
    assert_eq!(metadata["ledger"], serde_json::to_value(&ledger).expect("a ledger is JSON"), "{metadata}");
    metadata["summary"].as_str().expect("a summary").to_owned()
}

async fn alert_times(fixture: &TrustFixture, kind: &str) -> i64 {
    let open = format!("SELECT coalesce(sum(times), 0) AS n FROM {{ops}}.alerts WHERE kind = '{kind}'");
    let text = format!("{open} AND resolved_at IS NULL");
    fixture.base.base.plain.number(&text).await.expect("the alerts are counted")
}

/// One good record, two without an id, and one with a character that no database stores.
fn mixed() -> Vec<Value> {
    let nul = json!({"id": "nul", "n": 1, "note": "a\u{0}b"});
    vec![record(1), json!({"n": 2}), json!({"n": 3}), nul]
}

pub(crate) async fn records_rejected_by_the_reader_are_counted(kind: Kind) {
    let fixture = TrustFixture::open(kind, mixed()).await;
    fixture.apply("").await;
    let first = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &first).await, "4 records listed: 1 stored, 3 rejected (fetch 3)");
    assert_eq!(ledger(&first).rejected, BTreeMap::from([(Stage::Fetch, 3)]));
    assert_eq!((fixture.rows("true").await, alert_times(&fixture, "records_rejected").await), (1, 1));
    // A record that is still rejected counts in each sync that lists it.
    let second = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &second).await, "4 records listed: 1 unchanged, 3 rejected (fetch 3)");
    assert_eq!(alert_times(&fixture, "records_rejected").await, 2);
    fixture.api.change(|all| all.truncate(1));
    let third = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &third).await, "1 record listed: 1 unchanged");
    assert_eq!(alert_times(&fixture, "records_rejected").await, 0, "the alert is resolved");
    fixture.close().await;
}

pub(crate) async fn record_rejected_in_its_new_version_is_not_unchanged(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(3)).await;
    fixture.apply("").await;
    fixture.sync(true).await;
    fixture.api.change(|all| all[1]["note"] = json!("\u{0}"));
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, "3 records listed: 2 unchanged, 1 rejected (fetch 1)");
    fixture.api.change(|all| all[1]["n"] = json!("no number"));
    fixture.api.change(|all| all[1]["note"] = json!("fine"));
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, "3 records listed: 2 unchanged, 1 rejected (map 1)");
    fixture.close().await;
}

pub(crate) async fn flagged_records_are_counted_as_deleted(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(5)).await;
    fixture.apply("deletes: {flag: {path: note, equals: gone}, absence: false}").await;
    fixture.sync(true).await;
    fixture.api.change(|all| {
        all[0]["note"] = json!("gone");
        all[3]["note"] = json!("gone");
        // This record has never had a row.
        let mut late = record(9);
        late["note"] = json!("gone");
        all.push(late);
    });
    let sync = fixture.sync(true).await;
    let text = summary(&fixture, &sync).await;
    assert_eq!(text, "6 records listed: 3 unchanged, 3 flagged as deleted; 2 rows deleted (flagged 2)");
    assert_eq!((sync.deleted, fixture.rows("true").await), (2, 3));
    let next = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &next).await, "6 records listed: 3 unchanged, 3 flagged as deleted");
    assert_eq!(next.deleted, 0, "the rows were deleted by the sync before");
    fixture.close().await;
}

/// Batches of one page: each repeat is in another batch than its record.
pub(crate) async fn repeated_records_have_one_outcome_each(kind: Kind) {
    let settings = SyncSettings { batch: 20, upsert: 20, ..many() };
    let mut all = records(60);
    all[7]["n"] = json!("no number");
    all[9]["note"] = json!("gone");
    all[11]["note"] = json!("a\u{0}b");
    for repeat in [3, 3, 7, 9, 11] {
        all.push(all[repeat].clone());
    }
    let fixture = TrustFixture::with(kind, all, settings).await;
    fixture.apply("deletes: {flag: {path: note, equals: gone}}").await;
    let parts = "1 flagged as deleted, 2 rejected (fetch 1, map 1), 5 repeats";
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, format!("65 records listed: 57 stored, {parts}"));
    assert!(fixture.base.base.plain.number(PAGES).await.expect("pages are counted") > 3);
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, format!("65 records listed: 57 unchanged, {parts}"));
    fixture.close().await;
}

/// Records of several partitions, of which some are absent in two full syncs, and one is in two partitions.
pub(crate) async fn partitions_are_summed_up_in_one_ledger(kind: Kind) {
    for partition in [BY_RANGE, BY_VALUE] {
        let fixture = TrustFixture::open(kind, records(240)).await;
        fixture.apply(&format!("{partition}\n{TOTAL}")).await;
        let sync = fixture.sync(true).await;
        assert!(sync.expected_workers > 1, "{} partitions", sync.expected_workers);
        assert_eq!(summary(&fixture, &sync).await, "240 records listed: 240 stored");
        fixture.api.change(|all| drop(all.drain(50..60)));
        fixture.sync(true).await;
        let sync = fixture.sync(true).await;
        let text = "230 records listed: 230 unchanged; 10 rows deleted (absent 10)";
        assert_eq!(summary(&fixture, &sync).await, text);
        fixture.close().await;
    }
    let fixture = TrustFixture::open(kind, records(60)).await;
    fixture.apply(BY_VALUE).await;
    // The same record with another region is in the other partition, too.
    fixture.api.change(|all| {
        let mut twin = all[4].clone();
        twin["region"] = json!("west");
        all.push(twin);
    });
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, "61 records listed: 60 stored, 1 repeat");
    fixture.close().await;
}

/// Appended rows, with an incremental sync that lists some records again.
pub(crate) async fn appended_records_are_stored_or_unchanged(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(30)).await;
    let text = fixture.definition("deletes: {absence: false}", "  write_disposition: append\n", COLUMNS);
    fixture.apply_text(&text.replacen("  primary_key: id\n", "", 1)).await;
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, "30 records listed: 30 stored");
    fixture.api.change(|all| all[4]["note"] = json!("new"));
    let sync = fixture.sync(true).await;
    assert_eq!(summary(&fixture, &sync).await, "30 records listed: 1 stored, 29 unchanged");
    assert_eq!(fixture.rows("true").await, 31);
    fixture.close().await;
}

/// A ledger that does not add up: the sync completes with an alert, and the rows are kept.
pub(crate) async fn ledger_difference_raises_an_alert(kind: Kind) {
    let settings = SyncSettings { ledger_check: LedgerCheck::Alerts, ..many() };
    let fixture = TrustFixture::with(kind, records(30), settings).await;
    fixture.apply("").await;
    lose_records(&fixture).await;
    let sync = fixture.sync(true).await;
    assert_eq!((sync.state, fixture.rows("true").await), (SyncState::Completed, 30));
    let ledger = sync.ledger.expect("a ledger");
    assert_eq!(
        (ledger.listed, ledger.stored, ledger.difference() > 0),
        (ledger.listed, 30, true),
        "{ledger}"
    );
    assert_eq!(alert_times(&fixture, "ledger_difference").await, 1);
    find_records(&fixture).await;
    fixture.sync(true).await;
    assert_eq!(alert_times(&fixture, "ledger_difference").await, 0, "the alert is resolved");
    fixture.close().await;
}

/// The settings of tests turn a difference into a failure.
pub(crate) async fn ledger_difference_fails_every_test(kind: Kind) {
    let fixture = TrustFixture::open(kind, records(30)).await;
    fixture.apply("").await;
    lose_records(&fixture).await;
    let run = fixture.queue(true).await;
    let ended = fixture.base.settle(&run).await;
    assert_eq!(ended.status, RunState::Failed, "{}", ended.metadata);
    assert!(ended.metadata.to_string().contains("does not add up"), "{}", ended.metadata);
    fixture.close().await;
}

/// Makes each partition count one record that it does not consolidate.
async fn lose_records(fixture: &TrustFixture) {
    let text = match fixture.base.base.kind {
        Kind::Sqlite => {
            "CREATE TRIGGER lose AFTER INSERT ON partition_progress BEGIN UPDATE partition_progress SET listed = 1 \
             WHERE run_id = NEW.run_id AND partition_id = NEW.partition_id; END"
        }
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "ALTER TABLE partition_progress ALTER COLUMN listed SET DEFAULT 1"
        }
    };
    fixture.base.base.plain.script(text).await.expect("the statement runs");
}

async fn find_records(fixture: &TrustFixture) {
    let text = match fixture.base.base.kind {
        Kind::Sqlite => "DROP TRIGGER lose",
        Kind::Postgres | Kind::Pgbouncer | Kind::Sql => {
            "ALTER TABLE partition_progress ALTER COLUMN listed SET DEFAULT 0"
        }
    };
    fixture.base.base.plain.script(text).await.expect("the statement runs");
}
