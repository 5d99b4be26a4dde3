//! Consolidation by order: in spite of failed partitions, past them, and after it was given up.

use tidemill_core::queue::CONSOLIDATE;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_store::{Queue as _, RefusalCode};
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::{
    again, alerts, consolidate, failed, open, plan, planned, run, seed_status, watermark, with_one_failed,
    work,
};

/// An order to consolidate is refused while a partition is open, and without force where one failed.
pub(crate) async fn an_order_is_refused_while_a_partition_is_open(kind: Kind) {
    let mill = open(kind, 900).await;
    let sync = planned(&mill, true).await;
    let id = sync.run_id.to_string();
    for (force, advance) in [(false, false), (true, false), (true, true)] {
        let refused =
            mill.syncs.consolidate_sync(&id, force, advance, "ann").await.expect_err("pages are open");
        assert_eq!(refused.refusal_code(), Some(RefusalCode::NotRetryable), "{refused}");
    }
    assert_eq!(again(&mill, &sync).await.state, SyncState::Created);
    mill.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 1);
    work(&mill).await;
    let refused =
        mill.syncs.consolidate_sync(&id, false, false, "ann").await.expect_err("a partition failed");
    assert!(refused.to_string().contains("1 of"), "{refused}");
    assert!(refused.hint().unwrap_or_default().contains("--force"), "{refused}");
    let unknown =
        mill.syncs.consolidate_sync("00000000-0000-0000-0000-000000000000", true, false, "ann").await;
    assert_eq!(unknown.expect_err("no such sync").refusal_code(), Some(RefusalCode::UnknownSync));
}

/// By force, what is there comes into the table, and the watermark stays; a retry then brings the rest.
pub(crate) async fn force_leaves_the_watermark(kind: Kind) {
    let mill = open(kind, 1_500).await;
    let sync = with_one_failed(&mill, false).await;
    let id = sync.run_id.to_string();
    let ordered = mill.syncs.consolidate_sync(&id, true, false, "ann").await.expect("it is ordered");
    assert!(ordered.forced && !ordered.advance);
    consolidate(&mill).await;
    let after = again(&mill, &sync).await;
    assert_eq!((after.state, after.failed_workers, after.watermark_after), (SyncState::Failed, 1, None));
    assert!(after.error.unwrap_or_default().contains("the watermark is unmoved"));
    assert_eq!(seed_status(&mill, &sync).await, "failed");
    assert_eq!(run(&mill, &after.ops_run_id).await.status, RunState::Failed);
    assert_eq!(watermark(&mill).await, None);
    assert!(mill.stage.store.gaps(None, true).await.expect("gaps are read").is_empty());
    let expected = mill.expected();
    let rows = mill.rows("active").await;
    assert!(rows.len() > 500 && rows.len() < 1_500, "{}", rows.len());
    assert!(
        rows.iter().all(|(stone, row)| expected.get(stone) == Some(row)),
        "what is there is the source's"
    );

    mill.syncs.retry_sync(&id, false, None, "ann").await.expect("the rest is tried again");
    plan(&mill).await;
    work(&mill).await;
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::Completed);
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));
    mill.check_equal().await;
}

/// Past failed partitions: the watermark moves, the gaps are on record, the next incremental sync covers and
/// closes them, and then the table equals the source.
pub(crate) async fn force_and_advance_leaves_gaps_that_the_next_sync_covers(kind: Kind) {
    let mill = open(kind, 1_500).await;
    let sync = with_one_failed(&mill, false).await;
    let broken = failed(&mill, &sync).await;
    let id = sync.run_id.to_string();
    let ordered = mill.syncs.consolidate_sync(&id, true, true, "ann").await.expect("it is ordered");
    assert!(ordered.forced && ordered.advance);
    consolidate(&mill).await;
    let after = again(&mill, &sync).await;
    assert_eq!((after.state, after.watermark_after), (SyncState::Completed, Some(sync.updated_to)));
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));
    assert!(mill.rows("active").await.len() < 1_500);
    let gaps = mill.stage.store.gaps(Some(FEED.to_owned()), false).await.expect("gaps are read");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(
        (gaps[0].prices, gaps[0].updated_from, gaps[0].left_by),
        (broken[0].prices, None, sync.run_id)
    );
    assert!(gaps[0].reason.contains("none has an id"), "{}", gaps[0].reason);

    // The next one fails where it should cover the gap: it stays open, and the watermark where it is.
    mill.supplier.handle.change(&Change::some(What::Price, 40, 3)).expect("prices change");
    let next = planned(&mill, false).await;
    mill.supplier.handle.behave(|behaviour| behaviour.without_ids_next = u64::from(u16::MAX));
    work(&mill).await;
    mill.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 0);
    assert_eq!(again(&mill, &next).await.state, SyncState::Failed);
    assert_eq!(mill.stage.store.gaps(None, false).await.expect("gaps are read").len(), 1);
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));

    let roles = mill.roles();
    let covering = mill.sync(false).await;
    roles.stop().await;
    let left = mill.stage.store.gaps(None, false).await.expect("gaps are read");
    assert!(left.is_empty(), "{left:?}");
    let closed = mill.stage.store.gaps(None, true).await.expect("gaps are read");
    assert_eq!(closed[0].closed_by, Some(covering.run_id));
    mill.check_equal().await;
}

/// A full sync whose partitions are wider than the gaps covers all of them.
pub(crate) async fn a_full_sync_closes_every_gap(kind: Kind) {
    let mill = open(kind, 1_500).await;
    let sync = planned(&mill, true).await;
    mill.supplier.handle.behave(|behaviour| behaviour.without_ids_next = 3);
    work(&mill).await;
    let broken = failed(&mill, &sync).await.len();
    assert!(broken > 1, "{broken}");
    mill.syncs.consolidate_sync(&sync.run_id.to_string(), true, true, "ann").await.expect("it is ordered");
    consolidate(&mill).await;
    assert_eq!(mill.stage.store.gaps(None, false).await.expect("gaps are read").len(), broken);
    // One partition over all prices.
    let wide = Mill {
        syncs: tidemill_testkit::mill::syncs(
            &mill.stage,
            tidemill_engine::sync::SyncSettings { partition_target: 100_000, ..crate::scene::many() },
        ),
        stage: mill.stage.clone(),
        supplier: mill.supplier,
    };
    let roles = wide.roles();
    let full = wide.sync(true).await;
    roles.stop().await;
    assert!(full.expected_workers < i32::try_from(broken).unwrap_or(i32::MAX), "{full:?}");
    wide.check_equal().await;
    let left = wide.stage.store.gaps(None, false).await.expect("gaps are read");
    assert!(left.is_empty(), "{left:?}");
}

/// A consolidation that fails as often as it may is a dead letter, a failed run and an alert; when the reason
/// is gone, an order goes on where it stopped.
pub(crate) async fn a_consolidation_that_keeps_failing_is_given_up_and_resumed(kind: Kind) {
    let mill = open(kind, 900).await;
    let sync = planned(&mill, true).await;
    work(&mill).await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::ConsolidationTriggered);
    let set_kind = |kind: &str| format!("UPDATE {{ops}}.feeds SET kind = '{kind}' WHERE feed = '{FEED}'");
    mill.stage.plain.execute(&set_kind("fax")).await.expect("a row is broken by hand");
    let roles = mill.roles();
    let ended = mill.settle(&sync.ops_run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed);
    let reason = ended.metadata["error"].as_str().unwrap_or_default();
    assert!(reason.contains("consolidation was given up") && reason.contains("`fax`"), "{reason}");
    let after = again(&mill, &sync).await;
    assert_eq!((after.state, after.completed_at, after.watermark_after), (SyncState::Failed, None, None));
    assert_eq!(after.failed_workers, 0, "no partition failed");
    let told = alerts(&mill).await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("consolidation_failed: "), "{told:?}");
    let dead = mill.stage.store.dead(CONSOLIDATE.to_owned(), 10, None).await.expect("dead letters are read");
    assert_eq!((dead.len(), dead[0].deliveries), (1, 3));
    assert_eq!(watermark(&mill).await, None);

    mill.stage.plain.execute(&set_kind("nivoda")).await.expect("and mended");
    let ordered = mill.syncs.consolidate_sync(&sync.run_id.to_string(), false, false, "ann").await;
    let ordered = ordered.expect("it goes on");
    assert!(!ordered.forced && !ordered.advance);
    consolidate(&mill).await;
    let done = again(&mill, &sync).await;
    assert_eq!(done.state, SyncState::Completed);
    assert_eq!(run(&mill, &done.ops_run_id).await.status, RunState::Success);
    assert_eq!(watermark(&mill).await, Some(sync.updated_to));
    mill.check_equal().await;
}
