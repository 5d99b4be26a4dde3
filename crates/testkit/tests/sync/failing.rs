//! Syncs that fail for good, are cancelled, and are tried again.

use std::time::Duration;

use tidemill_core::run::{EndCause, RunFilter, RunState};
use tidemill_core::sync::SyncState;
use tidemill_store::RefusalCode;
use tidemill_supplier::{Behaviour, Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles};

use crate::scene::{
    again, alerts, consolidate, failed, number, open, partitions, plan, planned, run, seed_status, until,
    watermark, with_one_failed, work,
};

/// The run, its alert and the sync all name the first cause, not only how many partitions failed.
pub(crate) async fn a_failed_sync_names_its_first_cause(kind: Kind) {
    let mill = open(kind, 1_500).await;
    let sync = with_one_failed(&mill, false).await;
    let broken = failed(&mill, &sync).await;
    let (partition, cause) = (&broken[0].partition_id, broken[0].error.clone().unwrap_or_default());
    let told = format!(
        "1 of {} partitions failed; consolidation is skipped; first cause: {partition}: {cause}",
        sync.expected_workers
    );
    assert_eq!(sync.error.as_deref(), Some(told.as_str()));
    let ended = run(&mill, &sync.ops_run_id).await;
    assert_eq!(ended.metadata["error"], told);
    let alerts = alerts(&mill).await;
    assert!(alerts[0].starts_with("sync_failed: ") && alerts[0].contains(&told), "{alerts:?}");
    let why = mill.syncs.engine().why(&sync.ops_run_id).await.expect("the reason is read").sentence();
    assert!(why.contains(&cause), "{why}");
}

/// A permanent error fails its partition once and counts once; consolidation is skipped, the watermark stays,
/// and people are told. A retry, pressed twice and within the duplicate window, finishes the same sync.
pub(crate) async fn a_permanent_error_fails_once_and_a_retry_finishes_the_same_sync(kind: Kind) {
    let mill = open(kind, 1_500).await;
    let sync = with_one_failed(&mill, false).await;
    assert_eq!(sync.state, SyncState::Failed);
    assert_eq!(sync.completed_workers, sync.expected_workers - 1);
    assert_eq!(seed_status(&mill, &sync).await, "failed");
    let broken = failed(&mill, &sync).await;
    assert_eq!(broken.len(), 1);
    let reason = broken[0].error.clone().unwrap_or_default();
    assert!(reason.contains("none has an id"), "{reason}");
    let told = alerts(&mill).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("sync_failed: ") && told[0].contains("1 of"), "{told:?}");
    let failed_runs = "SELECT count(*) FROM worker_runs WHERE status = 'failed'";
    assert_eq!(number(&mill, failed_runs).await, 1);

    // Nothing follows of it: no consolidation, no watermark, not even after every message was heard.
    assert_eq!(consolidate(&mill).await, 0);
    mill.syncs.repair().await.expect("repairs are done");
    mill.syncs.evaluate(sync.run_id).await.expect("it is evaluated");
    assert_eq!(again(&mill, &sync).await.failed_workers, 1, "counted once");
    assert_eq!((watermark(&mill).await, mill.rows("active").await.len()), (None, 0));
    assert_eq!(alerts(&mill).await.len(), 1, "people are told once");

    let id = sync.run_id.to_string();
    let first = mill.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    let second = mill.syncs.retry_sync(&id, false, None, "bob").await.expect("asking twice is asking once");
    assert!(first.created && !second.created && first.run_id == second.run_id, "{first:?} {second:?}");
    assert_eq!(plan(&mill).await, 1);
    let third = mill.syncs.retry_sync(&id, false, None, "cyd").await.expect("it is on its way");
    assert!(!third.created && third.run_id == first.run_id, "{third:?}");
    let opened: Vec<_> =
        partitions(&mill, &sync).await.into_iter().filter(|part| part.state.is_open()).collect();
    assert_eq!(opened.len(), 1, "only what failed is read again");
    assert!(opened[0].next_offset >= broken[0].next_offset, "an offset never falls");
    work(&mill).await;
    consolidate(&mill).await;

    let done = again(&mill, &sync).await;
    assert_eq!((done.state, done.failed_workers), (SyncState::Completed, 0), "{done:?}");
    assert_eq!(done.completed_workers, done.expected_workers);
    assert_eq!(seed_status(&mill, &sync).await, "completed");
    assert_eq!(number(&mill, "SELECT count(*) FROM run_metadata").await, 1, "it is the same sync");
    assert_eq!(number(&mill, failed_runs).await, 0);
    assert_eq!(run(&mill, &first.run_id).await.status, RunState::Success);
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));
    mill.check_equal().await;
    let told = alerts(&mill).await;
    assert!(told.len() == 2 && told[1].starts_with("sync_recovered: "), "{told:?}");
    let lasting = "SELECT count(*) FROM {ops}.alerts WHERE resolved_at IS NULL";
    assert_eq!(number(&mill, lasting).await, 0, "it is over");

    let refused = mill.syncs.retry_sync(&id, false, None, "ann").await.expect_err("it is completed");
    assert!(refused.to_string().contains("completed"), "{refused}");
}

/// A sync that failed has stored records that nobody consolidated; the next one finds nothing new upstream,
/// and the table equals the source all the same.
pub(crate) async fn what_a_failed_sync_stored_comes_in_with_the_next(kind: Kind) {
    let mill = open(kind, 1_500).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::some(What::Payload, 700, 6)).expect("stones change");
    let broken = with_one_failed(&mill, false).await;
    assert_eq!(broken.run_type, tidemill_core::feed::RunType::Incremental);
    let roles = mill.roles();
    let next = mill.sync(false).await;
    roles.stop().await;
    assert_eq!(next.watermark_before, broken.watermark_before, "the watermark stayed");
    let fresh = format!(
        "SELECT CAST(coalesce(sum(changed), 0) AS bigint) FROM partition_progress \
                         WHERE run_id = '{}'",
        next.run_id
    );
    let left = failed(&mill, &broken).await[0].predicted;
    assert!(number(&mill, &fresh).await <= left, "what was stored is not new");
    mill.check_equal().await;
}

/// After a newer sync of the feed was completed, a retry of the older one is refused, and so is its
/// consolidation.
pub(crate) async fn a_retry_is_refused_once_a_newer_sync_is_completed(kind: Kind) {
    let mill = open(kind, 900).await;
    let old = with_one_failed(&mill, true).await;
    let roles = mill.roles();
    mill.sync(true).await;
    roles.stop().await;
    mill.check_equal().await;
    let id = old.run_id.to_string();
    let mark = watermark(&mill).await;
    for refused in [
        mill.syncs.retry_sync(&id, false, None, "ann").await.expect_err("it is superseded"),
        mill.syncs.consolidate_sync(&id, true, true, "ann").await.expect_err("it is superseded"),
    ] {
        assert_eq!(refused.refusal_code(), Some(RefusalCode::Superseded), "{refused}");
        assert!(refused.to_string().contains("superseded"), "{refused}");
        assert_eq!(refused.hint().as_deref(), Some("tidemill feed sync nivoda-natural"));
    }
    assert_eq!(again(&mill, &old).await.state, SyncState::Failed);
    assert_eq!(watermark(&mill).await, mark);
}

/// The same, where the retry was queued before the newer sync was there: the kernel's own retry comes too
/// late.
pub(crate) async fn a_late_retry_of_the_run_is_refused_by_the_scheduler(kind: Kind) {
    let mill = open(kind, 900).await;
    let old = with_one_failed(&mill, true).await;
    let roles = mill.roles();
    mill.sync(true).await;
    let late = mill.syncs.engine().retry(&old.ops_run_id, "ann").await.expect("the kernel knows no syncs");
    let ended = mill.settle(&late.run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed, "{ended:?}");
    assert!(
        ended.metadata["error"].as_str().unwrap_or_default().contains("superseded"),
        "{}",
        ended.metadata
    );
    mill.check_equal().await;
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    let failures = mill.stage.store.failures(filter).await.expect("failures are listed").items;
    assert_eq!(failures, [], "a newer sync is completed, and nobody is needed");
}

/// A sync that is cancelled while it reads: its open partitions fail, its run is cancelled, the seeds' status
/// says failed, pages in hand change nothing more; a retry goes on from there.
pub(crate) async fn a_cancelled_sync_reads_as_failed_and_can_be_retried(kind: Kind) {
    let mill = open(kind, 1_500).await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 20);
    let mut roles = Roles::none();
    roles.worker(&mill.syncs, tidemill_engine::sync::PagerOptions::default());
    let sync = planned(&mill, false).await;
    until("some pages are stored", || async { number(&mill, "SELECT count(*) FROM {ops}.pages").await > 5 })
        .await;
    let id = sync.run_id.to_string();
    let stopped = mill.syncs.cancel_sync(&id, "ann", Some("wrong day")).await.expect("it is cancelled");
    assert!(stopped);
    let pages = number(&mill, "SELECT count(*) FROM {ops}.pages").await;
    assert!(!mill.syncs.cancel_sync(&id, "ann", None).await.expect("asking again is harmless"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.pages").await, pages, "a page in hand was stored");

    let after = again(&mill, &sync).await;
    assert_eq!(after.state, SyncState::Failed);
    assert!(after.failed_workers > 0);
    assert_eq!(after.completed_workers + after.failed_workers, after.expected_workers);
    assert_eq!(after.error.as_deref(), Some("cancelled by ann: wrong day"));
    assert_eq!(seed_status(&mill, &sync).await, "failed");
    let ended = run(&mill, &sync.ops_run_id).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
    assert_eq!(watermark(&mill).await, None);
    roles.stop().await;

    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let roles = mill.roles();
    let retried = mill.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    assert_eq!(mill.settle(&retried.run_id).await.status, RunState::Success);
    roles.stop().await;
    let done = again(&mill, &sync).await;
    assert_eq!((done.state, done.failed_workers), (SyncState::Completed, 0));
    assert_eq!(seed_status(&mill, &sync).await, "completed");
    mill.check_equal().await;
}

/// Cancelling the run of a sync, as one cancels any run, cancels the sync too.
pub(crate) async fn cancelling_the_run_cancels_the_sync(kind: Kind) {
    let mill = open(kind, 900).await;
    let sync = planned(&mill, false).await;
    mill.syncs
        .engine()
        .cancel(&sync.ops_run_id, "ann", Some("wrong day"))
        .await
        .expect("it is asked to stop");
    mill.syncs.repair().await.expect("repairs are done");
    let ended = run(&mill, &sync.ops_run_id).await;
    assert_eq!(ended.status, RunState::Cancelled, "{ended:?}");
    let after = again(&mill, &sync).await;
    assert_eq!((after.state, after.failed_workers), (SyncState::Failed, after.expected_workers));
    assert_eq!(seed_status(&mill, &sync).await, "failed");
    assert_eq!(work(&mill).await, 0, "its messages have nothing to say");
}

/// A run that was ended by plain SQL takes its sync with it.
pub(crate) async fn a_run_ended_by_hand_ends_the_sync(kind: Kind) {
    let mill = open(kind, 900).await;
    let sync = planned(&mill, false).await;
    let text = format!(
        "UPDATE {{ops}}.runs SET status = 'failed', finished_at = started_at WHERE run_id = '{}'",
        sync.ops_run_id
    );
    assert_eq!(mill.stage.plain.execute(&text).await.expect("an operator may"), 1);
    mill.syncs.repair().await.expect("repairs are done");
    let after = again(&mill, &sync).await;
    assert_eq!((after.state, after.failed_workers), (SyncState::Failed, after.expected_workers));
    assert!(after.error.unwrap_or_default().contains("its run was ended as failed"));
    assert_eq!(watermark(&mill).await, None);
}

/// A partition that stopped half-way goes on from there; with `--restart` it is read from its beginning,
/// which is the only thing that lets an offset fall.
pub(crate) async fn a_restart_reads_from_the_beginning(kind: Kind) {
    let mill = Mill::open(kind, 900).await;
    let sync = planned(&mill, false).await;
    assert_eq!(sync.expected_workers, 1);
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 10);
    let mut roles = Roles::none();
    roles.worker(&mill.syncs, tidemill_engine::sync::PagerOptions::default());
    until("some pages are stored", || async { number(&mill, "SELECT count(*) FROM {ops}.pages").await > 3 })
        .await;
    mill.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    mill.settle(&sync.ops_run_id).await;
    roles.stop().await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let stopped_at = failed(&mill, &sync).await[0].next_offset;
    assert!((90..900).contains(&stopped_at), "{stopped_at}");

    let id = sync.run_id.to_string();
    let unknown = mill.syncs.retry_sync(&id, true, Some("partition-9".to_owned()), "ann").await;
    let unknown = unknown.expect_err("there is no such partition");
    assert!(unknown.to_string().contains("partition-9"), "{unknown}");

    mill.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    plan(&mill).await;
    assert_eq!(partitions(&mill, &sync).await[0].next_offset, stopped_at, "it goes on where it stopped");
    mill.syncs.cancel_sync(&id, "ann", None).await.expect("it is cancelled");

    let changed = mill.supplier.handle.change(&Change::some(What::Price, 100, 5)).expect("prices change");
    assert_eq!(changed.ids.len(), 100);
    let before = mill.supplier.handle.stats().stones;
    mill.syncs
        .retry_sync(&id, true, Some("partition-0".to_owned()), "ann")
        .await
        .expect("it is tried again from its beginning");
    plan(&mill).await;
    let part = partitions(&mill, &sync).await.remove(0);
    assert_eq!((part.next_offset, part.pass, part.restart), (0, 1, false), "{part:?}");
    assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.pages").await, 0, "the ledger begins anew");
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::Completed);
    assert!(mill.supplier.handle.stats().stones - before >= 900, "everything was read again");
    mill.check_equal().await;
    assert_eq!(mill.stage.store.gaps(Some(FEED.to_owned()), true).await.expect("gaps are read").len(), 0);
}

/// A restart that is asked for while a plain retry waits is not dropped; once the try has begun, it is refused.
pub(crate) async fn a_restart_is_heard_while_a_retry_is_queued(kind: Kind) {
    let mill = open(kind, 900).await;
    let sync = with_one_failed(&mill, false).await;
    let id = sync.run_id.to_string();
    let plain = mill.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    let again = mill.syncs.retry_sync(&id, true, None, "bob").await.expect("it is the same try");
    assert_eq!((plain.created, again.created, &again.run_id), (true, false, &plain.run_id));
    assert!(failed(&mill, &sync).await.iter().all(|partition| partition.restart), "the restart was dropped");
    plan(&mill).await;
    let refused = mill.syncs.retry_sync(&id, true, None, "cyd").await.expect_err("it is on its way");
    assert!(refused.to_string().contains("on its way"), "{refused}");
    work(&mill).await;
    consolidate(&mill).await;
    mill.check_equal().await;
}

/// Somebody's hand takes the order to consolidate away: it is given anew.
pub(crate) async fn a_lost_order_to_consolidate_is_given_anew(kind: Kind) {
    let mill = open(kind, 600).await;
    let sync = planned(&mill, false).await;
    work(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::ConsolidationTriggered);
    let lose = "DELETE FROM {ops}.messages WHERE queue = 'consolidate'";
    mill.stage.plain.execute(lose).await.expect("the order is lost");
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    assert_eq!(mill.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    mill.check_equal().await;
}

/// A worker that no longer holds its page has nothing to say about its partition, whatever the feed told it.
pub(crate) async fn a_page_that_was_taken_away_cannot_fail_its_partition(kind: Kind) {
    let mill = open(kind, 300).await;
    let sync = planned(&mill, true).await;
    mill.supplier.handle.behave(|behaviour| {
        behaviour.latency_ms = 10_000;
        behaviour.without_ids_next = 100;
    });
    let taken = async {
        let free = "SELECT count(*) FROM {ops}.messages \
                    WHERE queue = 'work-items' AND state = 'live' AND locked_by IS NULL";
        until("every page is in hand", || async { number(&mill, free).await == 0 }).await;
        // As if the locks had ended, and somebody else had received the pages.
        let text =
            "UPDATE {ops}.messages SET epoch = epoch + 1 WHERE queue = 'work-items' AND state = 'live'";
        mill.stage.plain.execute(text).await.expect("the pages are taken")
    };
    let (pages, taken) = tokio::join!(work(&mill), taken);
    assert!(pages == 0 && taken > 0, "{pages} pages were stored, {taken} were taken");
    assert_eq!(failed(&mill, &sync).await, [], "nobody held the pages that were called bad");

    mill.supplier.handle.behave(|behaviour| *behaviour = Behaviour::default());
    let moment = if kind == Kind::Sqlite { "0" } else { "now()" };
    let free = format!("UPDATE {{ops}}.messages SET visible_at = {moment} WHERE state = 'live'");
    mill.stage.plain.execute(&free).await.expect("the locks end");
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::Completed);
    mill.check_equal().await;
}

/// The arrows of the lifecycles hold against plain SQL, too; what is completed stays so.
pub(crate) async fn the_database_refuses_arrows_that_do_not_exist(kind: Kind) {
    let mill = open(kind, 300).await;
    let roles = mill.roles();
    let sync = mill.sync(true).await;
    roles.stop().await;
    for (table, change) in [
        ("run_metadata", "state = 'failed', completed_at = NULL"),
        ("partition_progress", "state = 'pending', completed = false"),
        ("worker_runs", "status = 'running'"),
    ] {
        let text = format!("UPDATE {table} SET {change} WHERE run_id = '{}'", sync.run_id);
        let refused = mill.stage.plain.execute(&text).await.expect_err("it is refused");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::Frozen), "{table}: {refused:?}");
    }
    mill.check_equal().await;
}
