//! Ledgers of diamonds: pages that are delivered twice, retries, restarts, and forced consolidations.

use crate::fixture::{
    alerts, consolidate, failed, open, partitions, plan, planned, reload, with_one_failed, work,
};
use std::collections::BTreeMap;
use tidemill_core::records::{Stage, Sync};
use tidemill_core::sync::SyncState;
use tidemill_core::sync_ledger::SyncLedger;
use tidemill_store::NewReject;
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::SyncFixture;

/// Returns the ledger of a completed sync. Its stored and unchanged records are the active stones.
async fn ledger(fixture: &SyncFixture, sync: &Sync) -> SyncLedger {
    let done = reload(fixture, sync).await;
    assert_eq!(done.state, SyncState::Completed, "{:?}", done.error);
    let ledger = done.ledger.expect("a completed sync has a ledger");
    assert_eq!(ledger.difference(), 0, "{ledger}");
    let stones = i64::try_from(fixture.rows("active").await.len()).expect("a small number");
    assert_eq!(ledger.stored + ledger.unchanged, stones, "{ledger}");
    ledger
}

async fn retried(fixture: &SyncFixture, sync: &Sync, restart: bool) {
    let id = sync.run_id.to_string();
    fixture.syncs.retry_sync(&id, restart, None, "ann").await.expect("it is tried again");
    assert_eq!(plan(fixture).await, 1);
    work(fixture).await;
    consolidate(fixture).await;
}

pub(crate) async fn retried_sync_lists_each_record_once(kind: Kind) {
    for restart in [false, true] {
        let fixture = open(kind, 1_500).await;
        let sync = with_one_failed(&fixture, true).await;
        retried(&fixture, &sync, restart).await;
        let ledger = ledger(&fixture, &sync).await;
        assert_eq!((ledger.listed - ledger.repeats, ledger.unchanged), (1_500, 0), "{ledger}");
        fixture.check_equal().await;
    }
}

/// The forced consolidation writes what was read; after the retry, the same sync lists all records.
pub(crate) async fn retry_after_forced_consolidation_adds_to_the_ledger(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = with_one_failed(&fixture, true).await;
    let id = sync.run_id.to_string();
    fixture.syncs.consolidate_sync(&id, true, false, "ann").await.expect("it is ordered");
    consolidate(&fixture).await;
    let forced = reload(&fixture, &sync).await;
    assert_eq!((forced.state, forced.ledger), (SyncState::Failed, None));
    let written: i64 = partitions(&fixture, &sync).await.iter().map(|part| part.ledger.stored).sum();
    assert_eq!(usize::try_from(written).ok(), Some(fixture.rows("active").await.len()));
    retried(&fixture, &sync, false).await;
    let ledger = ledger(&fixture, &sync).await;
    assert_eq!((ledger.listed - ledger.repeats, ledger.stored), (1_500, 1_500), "{ledger}");
}

/// An incremental sync lists the changed records and the overlap only.
pub(crate) async fn incremental_sync_lists_the_changes_only(kind: Kind) {
    let fixture = open(kind, 900).await;
    let full = planned(&fixture, true).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(ledger(&fixture, &full).await.stored, 900);
    let bad = Change::random(ChangeKind::NoCertificate, 2, 1);
    fixture.supplier.handle.change(&bad).expect("stones change");
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 30, 2)).expect("prices change");
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    let ledger = reload(&fixture, &sync).await.ledger.expect("a ledger");
    assert_eq!((ledger.difference(), ledger.rejected_total()), (0, 2), "{ledger}");
    assert!(ledger.stored >= 28 && ledger.stored <= 30 && ledger.listed < 900, "{ledger}");
    let raised = alerts(&fixture).await;
    assert!(raised.iter().any(|alert| alert.starts_with("records_rejected: ")), "{raised:?}");
}

/// A restarted partition reads all of its records again: the rejects of its first reading do not count.
pub(crate) async fn restart_forgets_the_rejects_of_the_first_reading(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = with_one_failed(&fixture, true).await;
    let partition = failed(&fixture, &sync).await.remove(0).partition_id;
    let record_id =
        fixture.base.store.first_records(sync.run_id, 1).await.expect("records are read").remove(0);
    // The failed partition had listed the record in a version that could not be read.
    let reason = "it was cut off".to_owned();
    let reject = NewReject { record_id, stage: Stage::Fetch, reason, payload: "{".to_owned() };
    let (feed, id) = (sync.feed.clone(), sync.run_id);
    let rejected = fixture.base.store.write(move |mut tx| {
        let (feed, partition, reject) = (feed.clone(), partition.clone(), reject.clone());
        Box::pin(async move { tx.reject(&feed, id, Some(&partition), &reject, None).await })
    });
    rejected.await.expect("it is rejected");
    retried(&fixture, &sync, true).await;
    let ledger = ledger(&fixture, &sync).await;
    assert_eq!((ledger.rejected, ledger.stored), (BTreeMap::new(), 1_500));
    assert!(fixture.base.store.rejects(None, 1).await.expect("rejects are read").is_empty());
}
