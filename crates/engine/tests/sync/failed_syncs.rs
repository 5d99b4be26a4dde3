//! Syncs that fail permanently, are cancelled, and are retried.

use std::time::Duration;

use tidemill_core::run::{EndCause, QueueRun, RunFilter, RunState};
use tidemill_core::sync::{SYNC_LABEL, SyncState};
use tidemill_store::RefusalCode;
use tidemill_supplier::{Behaviour, Change, ChangeKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};

use crate::fixture::{
    alerts, consolidate, failed, number, open, partitions, plan, planned, reload, run, seed_status, until,
    watermark, with_one_failed, work,
};
use crate::pauses::pause;

/// The run, its alert and the sync name the first cause, not only the number of failed partitions.
pub(crate) async fn failed_sync_reports_its_first_cause(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = with_one_failed(&fixture, false).await;
    let broken = failed(&fixture, &sync).await;
    let (partition, cause) = (&broken[0].partition_id, broken[0].error.clone().unwrap_or_default());
    let message = format!(
        "1 of {} partitions failed; consolidation is skipped; first cause: {partition}: {cause}",
        sync.expected_workers
    );
    assert_eq!(sync.error.as_deref(), Some(message.as_str()));
    let ended = run(&fixture, &sync.ops_run_id).await;
    assert_eq!(ended.metadata["error"], message);
    let alerts = alerts(&fixture).await;
    assert!(alerts[0].starts_with("sync_failed: ") && alerts[0].contains(&message), "{alerts:?}");
    let why = fixture.syncs.engine().why(&sync.ops_run_id).await.expect("the reason is read").sentence();
    assert!(why.contains(&cause), "{why}");
}

/// A run with the label of syncs can name any feed. It starts a sync only of a feed of its own project, and the
/// owner of another feed gets neither a sync nor an alert. The run ends as if the feed did not exist, also while it is
/// paused.
pub(crate) async fn sync_run_naming_a_feed_of_another_project_fails(kind: Kind) {
    let fixture = open(kind, 100).await;
    let own = fixture.feed_of("bank", "bank-gems");
    fixture.syncs.put_feed(own).await.expect("the scheduler claims runs of projects with feeds");
    pause(&fixture, &format!("feed:{FEED}")).await;
    let mut records = Vec::new();
    for feed in [FEED, "none"] {
        let mut request = QueueRun::new("bank", "sync");
        request.metadata = serde_json::json!({"feed": feed, "run_type": "full"});
        request.labels = vec![SYNC_LABEL.to_owned()];
        let queued = fixture.syncs.engine().queue(request).await.expect("a run is queued").run_id;
        plan(&fixture).await;
        let ended = run(&fixture, &queued).await;
        let error = format!("feed `{feed}` does not exist");
        let found = (ended.status, ended.metadata["error"].as_str());
        assert_eq!(found, (RunState::Failed, Some(error.as_str())));
        let events = fixture.base.events(&queued).await.into_iter();
        records.push(events.map(|event| event.message.replace(feed, "…")).collect::<Vec<_>>());
    }
    assert_eq!(records[0], records[1], "the events reveal that the feed exists");
    assert_eq!(number(&fixture, "SELECT count(*) FROM run_metadata").await, 0, "no sync has started");
    let alerts = alerts(&fixture).await;
    assert!(alerts.iter().all(|alert| !alert.contains(FEED)), "{alerts:?}");
}

/// A permanent error fails its partition once and counts once; consolidation is skipped, the watermark stays, and an
/// alert is raised. A retry, requested twice within the duplicate window, finishes the same sync.
pub(crate) async fn retry_after_permanent_error_finishes_the_same_sync(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = with_one_failed(&fixture, false).await;
    assert_eq!(sync.state, SyncState::Failed);
    assert_eq!(sync.completed_workers, sync.expected_workers - 1);
    assert_eq!(seed_status(&fixture, &sync).await, "failed");
    let broken = failed(&fixture, &sync).await;
    assert_eq!(broken.len(), 1);
    let reason = broken[0].error.clone().unwrap_or_default();
    assert!(reason.contains("none has an id"), "{reason}");
    let message = alerts(&fixture).await;
    assert_eq!(message.len(), 1, "{message:?}");
    assert!(message[0].starts_with("sync_failed: ") && message[0].contains("1 of"), "{message:?}");
    let failed_runs = "SELECT count(*) FROM worker_runs WHERE status = 'failed'";
    assert_eq!(number(&fixture, failed_runs).await, 1);

    // There is no consolidation and no watermark change, even after every message was processed.
    assert_eq!(consolidate(&fixture).await, 0);
    fixture.syncs.repair().await.expect("repairs are done");
    fixture.syncs.evaluate(sync.run_id).await.expect("it is evaluated");
    assert_eq!(reload(&fixture, &sync).await.failed_workers, 1, "counted once");
    assert_eq!((watermark(&fixture).await, fixture.rows("active").await.len()), (None, 0));
    assert_eq!(alerts(&fixture).await.len(), 1, "one alert is raised");

    let id = sync.run_id.to_string();
    let first = fixture.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    let second =
        fixture.syncs.retry_sync(&id, false, None, "bob").await.expect("asking twice is asking once");
    assert!(first.created && !second.created && first.run_id == second.run_id, "{first:?} {second:?}");
    assert_eq!(plan(&fixture).await, 1);
    let third = fixture.syncs.retry_sync(&id, false, None, "cyd").await.expect("it is on its way");
    assert!(!third.created && third.run_id == first.run_id, "{third:?}");
    let opened: Vec<_> =
        partitions(&fixture, &sync).await.into_iter().filter(|part| part.state.is_open()).collect();
    assert_eq!(opened.len(), 1, "only failed partitions are read again");
    assert!(opened[0].next_offset >= broken[0].next_offset, "an offset never falls");
    work(&fixture).await;
    consolidate(&fixture).await;

    let done = reload(&fixture, &sync).await;
    assert_eq!((done.state, done.failed_workers), (SyncState::Completed, 0), "{done:?}");
    assert_eq!(done.completed_workers, done.expected_workers);
    assert_eq!(seed_status(&fixture, &sync).await, "completed");
    assert_eq!(number(&fixture, "SELECT count(*) FROM run_metadata").await, 1, "it is the same sync");
    assert_eq!(number(&fixture, failed_runs).await, 0);
    assert_eq!(run(&fixture, &first.run_id).await.status, RunState::Success);
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));
    fixture.check_equal().await;
    let message = alerts(&fixture).await;
    assert!(message.len() == 2 && message[1].starts_with("sync_recovered: "), "{message:?}");
    let lasting = "SELECT count(*) FROM {ops}.alerts WHERE resolved_at IS NULL";
    assert_eq!(number(&fixture, lasting).await, 0, "it has ended");

    let refused = fixture.syncs.retry_sync(&id, false, None, "ann").await.expect_err("it is completed");
    assert!(refused.to_string().contains("completed"), "{refused}");
}

/// The failed sync stored records that were not consolidated. The next sync finds no changes upstream, and the table
/// still equals the source.
pub(crate) async fn records_of_a_failed_sync_are_consolidated_by_the_next(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Payload, 700, 6)).expect("records change");
    let broken = with_one_failed(&fixture, false).await;
    assert_eq!(broken.run_type, tidemill_core::feed::RunType::Incremental);
    let roles = fixture.roles();
    let next = fixture.sync(false).await;
    roles.stop().await;
    assert_eq!(next.watermark_before, broken.watermark_before, "the watermark stayed");
    let fresh = format!(
        "SELECT CAST(coalesce(sum(changed), 0) AS bigint) FROM partition_progress \
                         WHERE run_id = '{}'",
        next.run_id
    );
    let left = failed(&fixture, &broken).await[0].predicted;
    assert!(number(&fixture, &fresh).await <= left, "what was stored is not new");
    fixture.check_equal().await;
}

/// After a newer completed sync of the feed, retry and consolidation of the older one are refused.
pub(crate) async fn retry_after_a_newer_completed_sync_is_refused(kind: Kind) {
    let fixture = open(kind, 900).await;
    let old = with_one_failed(&fixture, true).await;
    let roles = fixture.roles();
    fixture.sync(true).await;
    roles.stop().await;
    fixture.check_equal().await;
    let id = old.run_id.to_string();
    let mark = watermark(&fixture).await;
    for refused in [
        fixture.syncs.retry_sync(&id, false, None, "ann").await.expect_err("it is superseded"),
        fixture.syncs.consolidate_sync(&id, true, true, "ann").await.expect_err("it is superseded"),
    ] {
        assert_eq!(refused.refusal_code(), Some(RefusalCode::Superseded), "{refused}");
        assert!(refused.to_string().contains("superseded"), "{refused}");
        assert_eq!(refused.hint().as_deref(), Some("tidemill feed sync nivoda-natural"));
    }
    assert_eq!(reload(&fixture, &old).await.state, SyncState::Failed);
    assert_eq!(watermark(&fixture).await, mark);
}

/// The retry was queued before the newer sync existed, so the kernel's own retry comes too late.
pub(crate) async fn scheduler_refuses_a_late_retry_of_the_run(kind: Kind) {
    let fixture = open(kind, 900).await;
    let old = with_one_failed(&fixture, true).await;
    let roles = fixture.roles();
    fixture.sync(true).await;
    let late = fixture.syncs.engine().retry(&old.ops_run_id, "ann").await.expect("the kernel knows no syncs");
    let ended = fixture.settle(&late.run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed, "{ended:?}");
    assert!(
        ended.metadata["error"].as_str().unwrap_or_default().contains("superseded"),
        "{}",
        ended.metadata
    );
    fixture.check_equal().await;
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    let failures = fixture.base.store.failures(filter).await.expect("failures are listed").items;
    assert_eq!(failures, [], "a newer sync is completed, and nobody is needed");
}

/// A sync cancelled while it reads: its open partitions fail, its run is cancelled, the seeds' status is failed, and
/// pages in flight change nothing. A retry continues from there.
pub(crate) async fn cancelled_sync_is_failed_and_can_be_retried(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 20);
    let mut roles = Roles::none();
    roles.worker(&fixture.syncs, tidemill_engine::sync::PagerOptions::default());
    let sync = planned(&fixture, false).await;
    until("some pages are stored", || async {
        number(&fixture, "SELECT count(*) FROM {ops}.pages").await > 5
    })
    .await;
    let id = sync.run_id.to_string();
    let stopped = fixture.syncs.cancel_sync(&id, "ann", Some("wrong day")).await.expect("it is cancelled");
    assert!(stopped);
    let pages = number(&fixture, "SELECT count(*) FROM {ops}.pages").await;
    assert!(!fixture.syncs.cancel_sync(&id, "ann", None).await.expect("asking again is harmless"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(
        number(&fixture, "SELECT count(*) FROM {ops}.pages").await,
        pages,
        "a page in hand was stored"
    );

    let after = reload(&fixture, &sync).await;
    assert_eq!(after.state, SyncState::Failed);
    assert!(after.failed_workers > 0);
    assert_eq!(after.completed_workers + after.failed_workers, after.expected_workers);
    assert_eq!(after.error.as_deref(), Some("cancelled by ann: wrong day"));
    assert_eq!(seed_status(&fixture, &sync).await, "failed");
    let ended = run(&fixture, &sync.ops_run_id).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
    assert_eq!(watermark(&fixture).await, None);
    roles.stop().await;

    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let roles = fixture.roles();
    let retried = fixture.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    assert_eq!(fixture.settle(&retried.run_id).await.status, RunState::Success);
    roles.stop().await;
    let done = reload(&fixture, &sync).await;
    assert_eq!((done.state, done.failed_workers), (SyncState::Completed, 0));
    assert_eq!(seed_status(&fixture, &sync).await, "completed");
    fixture.check_equal().await;
}

pub(crate) async fn cancel_of_the_run_cancels_the_sync(kind: Kind) {
    let fixture = open(kind, 900).await;
    let sync = planned(&fixture, false).await;
    fixture
        .syncs
        .engine()
        .cancel(&sync.ops_run_id, "ann", Some("wrong day"))
        .await
        .expect("it is asked to stop");
    fixture.syncs.repair().await.expect("repairs are done");
    let ended = run(&fixture, &sync.ops_run_id).await;
    assert_eq!(ended.status, RunState::Cancelled, "{ended:?}");
    let after = reload(&fixture, &sync).await;
    assert_eq!((after.state, after.failed_workers), (SyncState::Failed, after.expected_workers));
    assert_eq!(seed_status(&fixture, &sync).await, "failed");
    assert_eq!(work(&fixture).await, 0, "its messages have nothing to say");
}

pub(crate) async fn run_ended_by_plain_sql_ends_the_sync(kind: Kind) {
    let fixture = open(kind, 900).await;
    let sync = planned(&fixture, false).await;
    let text = format!(
        "UPDATE {{ops}}.runs SET status = 'failed', finished_at = started_at WHERE run_id = '{}'",
        sync.ops_run_id
    );
    assert_eq!(fixture.base.plain.execute(&text).await.expect("an operator may"), 1);
    fixture.syncs.repair().await.expect("repairs are done");
    let after = reload(&fixture, &sync).await;
    assert_eq!((after.state, after.failed_workers), (SyncState::Failed, after.expected_workers));
    assert!(after.error.unwrap_or_default().contains("its run was ended as failed"));
    assert_eq!(watermark(&fixture).await, None);
}

/// A partition that stopped halfway continues from there. With `--restart` it is read from the start, the only case in
/// which an offset decreases.
pub(crate) async fn restarted_partition_reads_from_the_start(kind: Kind) {
    let fixture = SyncFixture::open(kind, 900).await;
    let sync = planned(&fixture, false).await;
    assert_eq!(sync.expected_workers, 1);
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 10);
    let mut roles = Roles::none();
    roles.worker(&fixture.syncs, tidemill_engine::sync::PagerOptions::default());
    until("some pages are stored", || async {
        number(&fixture, "SELECT count(*) FROM {ops}.pages").await > 3
    })
    .await;
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    fixture.settle(&sync.ops_run_id).await;
    roles.stop().await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let stopped_at = failed(&fixture, &sync).await[0].next_offset;
    assert!((90..900).contains(&stopped_at), "{stopped_at}");

    let id = sync.run_id.to_string();
    let unknown = fixture.syncs.retry_sync(&id, true, Some("partition-9".to_owned()), "ann").await;
    let unknown = unknown.expect_err("there is no such partition");
    assert!(unknown.to_string().contains("partition-9"), "{unknown}");

    fixture.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    plan(&fixture).await;
    assert_eq!(partitions(&fixture, &sync).await[0].next_offset, stopped_at, "it goes on where it stopped");
    fixture.syncs.cancel_sync(&id, "ann", None).await.expect("it is cancelled");

    let changed =
        fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 100, 5)).expect("prices change");
    assert_eq!(changed.ids.len(), 100);
    let before = fixture.supplier.handle.stats().stones;
    fixture
        .syncs
        .retry_sync(&id, true, Some("partition-0".to_owned()), "ann")
        .await
        .expect("it is tried again from its beginning");
    plan(&fixture).await;
    let part = partitions(&fixture, &sync).await.remove(0);
    assert_eq!((part.next_offset, part.pass, part.restart), (0, 1, false), "{part:?}");
    assert_eq!(number(&fixture, "SELECT count(*) FROM {ops}.pages").await, 0, "the ledger begins anew");
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Completed);
    assert!(fixture.supplier.handle.stats().stones - before >= 900, "everything was read again");
    fixture.check_equal().await;
    assert_eq!(fixture.base.store.gaps(Some(FEED.to_owned()), true).await.expect("gaps are read").len(), 0);
}

/// A restart requested while a plain retry is queued is applied; once the attempt has started, it is refused.
pub(crate) async fn restart_request_applies_to_a_queued_retry(kind: Kind) {
    let fixture = open(kind, 900).await;
    let sync = with_one_failed(&fixture, false).await;
    let id = sync.run_id.to_string();
    let plain = fixture.syncs.retry_sync(&id, false, None, "ann").await.expect("it is tried again");
    let reload = fixture.syncs.retry_sync(&id, true, None, "bob").await.expect("it is the same try");
    assert_eq!((plain.created, reload.created, &reload.run_id), (true, false, &plain.run_id));
    assert!(
        failed(&fixture, &sync).await.iter().all(|partition| partition.restart),
        "the restart was dropped"
    );
    plan(&fixture).await;
    let refused = fixture.syncs.retry_sync(&id, true, None, "cyd").await.expect_err("it is on its way");
    assert!(refused.to_string().contains("still running"), "{refused}");
    work(&fixture).await;
    consolidate(&fixture).await;
    fixture.check_equal().await;
}

/// An operator deleted the message.
pub(crate) async fn lost_consolidation_message_is_sent_again(kind: Kind) {
    let fixture = open(kind, 600).await;
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::ConsolidationTriggered);
    let lose = "DELETE FROM {ops}.messages WHERE queue = 'consolidate'";
    fixture.base.plain.execute(lose).await.expect("the order is lost");
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    assert_eq!(fixture.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    fixture.check_equal().await;
}

/// A worker that no longer holds its page cannot fail the partition.
pub(crate) async fn stale_page_cannot_fail_its_partition(kind: Kind) {
    let fixture = open(kind, 300).await;
    let sync = planned(&fixture, true).await;
    fixture.supplier.handle.behave(|behaviour| {
        behaviour.latency_ms = 10_000;
        behaviour.without_ids_next = 100;
    });
    let taken = async {
        let free = "SELECT count(*) FROM {ops}.messages \
                    WHERE queue = 'work-items' AND state = 'live' AND locked_by IS NULL";
        until("every page is in hand", || async { number(&fixture, free).await == 0 }).await;
        // As if the locks had expired and another worker had received the pages.
        let text =
            "UPDATE {ops}.messages SET epoch = epoch + 1 WHERE queue = 'work-items' AND state = 'live'";
        fixture.base.plain.execute(text).await.expect("the pages are taken")
    };
    let (pages, taken) = tokio::join!(work(&fixture), taken);
    assert!(pages == 0 && taken > 0, "{pages} pages were stored, {taken} were taken");
    assert_eq!(failed(&fixture, &sync).await, [], "nobody held the pages that were called bad");

    fixture.supplier.handle.behave(|behaviour| *behaviour = Behaviour::default());
    let moment = if kind == Kind::Sqlite { "0" } else { "now()" };
    let free = format!("UPDATE {{ops}}.messages SET visible_at = {moment} WHERE state = 'live'");
    fixture.base.plain.execute(&free).await.expect("the locks end");
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Completed);
    fixture.check_equal().await;
}

/// The transitions are enforced for plain SQL too; a completed sync cannot change.
pub(crate) async fn transitions_outside_the_diagram_are_refused(kind: Kind) {
    let fixture = open(kind, 300).await;
    let roles = fixture.roles();
    let sync = fixture.sync(true).await;
    roles.stop().await;
    for (table, change) in [
        ("run_metadata", "state = 'failed', completed_at = NULL"),
        ("partition_progress", "state = 'pending', completed = false"),
        ("worker_runs", "status = 'running'"),
    ] {
        let text = format!("UPDATE {table} SET {change} WHERE run_id = '{}'", sync.run_id);
        let refused = fixture.base.plain.execute(&text).await.expect_err("it is refused");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::Frozen), "{table}: {refused:?}");
    }
    fixture.check_equal().await;
}
