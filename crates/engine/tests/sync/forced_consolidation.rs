//! Consolidation by command: with failed partitions, past them, and after it failed.

use tidemill_core::queue::CONSOLIDATE;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_store::{Queue as _, RefusalCode};
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::{
    alerts, consolidate, failed, open, plan, planned, reload, run, seed_status, watermark, with_one_failed,
    work,
};

/// Also refused without force if a partition failed.
pub(crate) async fn consolidation_with_an_open_partition_is_refused(kind: Kind) {
    let fixture = open(kind, 900).await;
    let sync = planned(&fixture, true).await;
    let id = sync.run_id.to_string();
    for (force, advance) in [(false, false), (true, false), (true, true)] {
        let refused =
            fixture.syncs.consolidate_sync(&id, force, advance, "ann").await.expect_err("pages are open");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable), "{refused}");
    }
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Created);
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    work(&fixture).await;
    let refused =
        fixture.syncs.consolidate_sync(&id, false, false, "ann").await.expect_err("a partition failed");
    assert!(refused.to_string().contains("1 of"), "{refused}");
    assert!(refused.hint().unwrap_or_default().contains("--force"), "{refused}");
    let unknown =
        fixture.syncs.consolidate_sync("00000000-0000-0000-0000-000000000000", true, false, "ann").await;
    assert_eq!(unknown.expect_err("no such sync").refusal_code(), Some(RefusalCode::UnknownSync));
}

/// The stored records reach the table, and the watermark stays; a retry then adds the rest.
pub(crate) async fn forced_consolidation_keeps_the_watermark(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = with_one_failed(&fixture, false).await;
    let id = sync.run_id.to_string();
    let ordered = fixture.syncs.consolidate_sync(&id, true, false, "ann").await.expect("it is ordered");
    assert!(ordered.forced && !ordered.advance);
    consolidate(&fixture).await;
    let after = reload(&fixture, &sync).await;
    assert_eq!((after.state, after.failed_workers, after.watermark_after), (SyncState::Failed, 1, None));
    assert!(after.error.unwrap_or_default().contains("the watermark is unmoved"));
    assert_eq!(seed_status(&fixture, &sync).await, "failed");
    assert_eq!(run(&fixture, &after.ops_run_id).await.status, RunState::Failed);
    assert_eq!(watermark(&fixture).await, None);
    assert!(fixture.base.store.gaps(None, true).await.expect("gaps are read").is_empty());
    let expected = fixture.expected();
    let rows = fixture.rows("active").await;
    assert!(rows.len() > 500 && rows.len() < 1_500, "{}", rows.len());
    assert!(
        rows.iter().all(|(record, row)| expected.get(record) == Some(row)),
        "the table equals the source"
    );

    fixture.syncs.retry_sync(&id, false, None, "ann").await.expect("the rest is tried again");
    plan(&fixture).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Completed);
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));
    fixture.check_equal().await;
}

/// Past failed partitions: the watermark moves, the gaps are recorded, the next incremental sync covers and closes
/// them, and then the table equals the source.
pub(crate) async fn forced_advance_leaves_gaps_that_the_next_sync_covers(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = with_one_failed(&fixture, false).await;
    let broken = failed(&fixture, &sync).await;
    let id = sync.run_id.to_string();
    let ordered = fixture.syncs.consolidate_sync(&id, true, true, "ann").await.expect("it is ordered");
    assert!(ordered.forced && ordered.advance);
    consolidate(&fixture).await;
    let after = reload(&fixture, &sync).await;
    assert_eq!((after.state, after.watermark_after), (SyncState::Completed, Some(sync.updated_to)));
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));
    assert!(fixture.rows("active").await.len() < 1_500);
    let gaps = fixture.base.store.gaps(Some(FEED.to_owned()), false).await.expect("gaps are read");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!((gaps[0].range, gaps[0].updated_from, gaps[0].left_by), (broken[0].range, None, sync.run_id));
    assert!(gaps[0].reason.contains("none has an id"), "{}", gaps[0].reason);

    // The next sync fails where it should cover the gap: the gap stays open, and the watermark unchanged.
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 40, 3)).expect("prices change");
    let next = planned(&fixture, false).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = u64::from(u16::MAX));
    work(&fixture).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 0);
    assert_eq!(reload(&fixture, &next).await.state, SyncState::Failed);
    assert_eq!(fixture.base.store.gaps(None, false).await.expect("gaps are read").len(), 1);
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));

    let roles = fixture.roles();
    let covering = fixture.sync(false).await;
    roles.stop().await;
    let left = fixture.base.store.gaps(None, false).await.expect("gaps are read");
    assert!(left.is_empty(), "{left:?}");
    let closed = fixture.base.store.gaps(None, true).await.expect("gaps are read");
    assert_eq!(closed[0].closed_by, Some(covering.run_id));
    fixture.check_equal().await;
}

/// Partitions of the full sync that are wider than the gaps cover all of them.
pub(crate) async fn full_sync_closes_every_gap(kind: Kind) {
    let fixture = open(kind, 1_500).await;
    let sync = planned(&fixture, true).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 3);
    work(&fixture).await;
    let broken = failed(&fixture, &sync).await.len();
    assert!(broken > 1, "{broken}");
    fixture.syncs.consolidate_sync(&sync.run_id.to_string(), true, true, "ann").await.expect("it is ordered");
    consolidate(&fixture).await;
    assert_eq!(fixture.base.store.gaps(None, false).await.expect("gaps are read").len(), broken);
    // One partition over all prices.
    let wide = SyncFixture {
        syncs: tidemill_testkit::sync_fixture::syncs(
            &fixture.base,
            tidemill_engine::sync::SyncSettings { partition_target: 100_000, ..crate::fixture::many() },
        ),
        base: fixture.base.clone(),
        supplier: fixture.supplier,
        feed: fixture.feed,
    };
    let roles = wide.roles();
    let full = wide.sync(true).await;
    roles.stop().await;
    assert!(full.expected_workers < i32::try_from(broken).unwrap_or(i32::MAX), "{full:?}");
    wide.check_equal().await;
    let left = wide.base.store.gaps(None, false).await.expect("gaps are read");
    assert!(left.is_empty(), "{left:?}");
}

/// A consolidation that fails up to its limit is a dead letter, a failed run and an alert. Once the cause is fixed, a
/// command continues it.
pub(crate) async fn repeatedly_failing_consolidation_fails_and_can_resume(kind: Kind) {
    let fixture = open(kind, 900).await;
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::ConsolidationTriggered);
    let set_kind = |kind: &str| format!("UPDATE {{ops}}.feeds SET kind = '{kind}' WHERE feed = '{FEED}'");
    fixture.base.plain.execute(&set_kind("fax")).await.expect("a row is broken by plain SQL");
    let roles = fixture.roles();
    let ended = fixture.settle(&sync.ops_run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed);
    let reason = ended.metadata["error"].as_str().unwrap_or_default();
    assert!(reason.contains("consolidation was given up") && reason.contains("`fax`"), "{reason}");
    let after = reload(&fixture, &sync).await;
    assert_eq!((after.state, after.completed_at, after.watermark_after), (SyncState::Failed, None, None));
    assert_eq!(after.failed_workers, 0, "no partition failed");
    let message = alerts(&fixture).await;
    assert_eq!(message.len(), 1, "{message:?}");
    assert!(message[0].starts_with("consolidation_failed: "), "{message:?}");
    let dead =
        fixture.base.store.dead(CONSOLIDATE.to_owned(), 10, None).await.expect("dead letters are read");
    assert_eq!((dead.len(), dead[0].deliveries), (1, 3));
    assert_eq!(watermark(&fixture).await, None);

    fixture.base.plain.execute(&set_kind("nivoda")).await.expect("and fixed");
    let ordered = fixture.syncs.consolidate_sync(&sync.run_id.to_string(), false, false, "ann").await;
    let ordered = ordered.expect("it continues");
    assert!(!ordered.forced && !ordered.advance);
    consolidate(&fixture).await;
    let done = reload(&fixture, &sync).await;
    assert_eq!(done.state, SyncState::Completed);
    assert_eq!(run(&fixture, &done.ops_run_id).await.status, RunState::Success);
    assert_eq!(watermark(&fixture).await, Some(sync.updated_to));
    fixture.check_equal().await;
}
