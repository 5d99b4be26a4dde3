//! Graceful shutdown: current work is finished, leases and locks are released, and no other process has to wait for a
//! lock.

use std::time::{Duration, Instant};

use tidemill_core::queue::{CONSOLIDATE, WORK_DONE, WORK_ITEMS};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_store::Queue as _;
use tidemill_testkit::sync_fixture::SyncFixture;

use crate::fixture::{RoleSet, Subject, fixture, planned, stored, succeeded, until};

/// Time limit for a shutdown and the continuation on a busy machine. The lock of a page lasts two minutes, and the
/// lease of a run five.
const SOON: Duration = Duration::from_secs(110);

/// Checks that nothing is locked, no delivery is used up, and no process is registered.
async fn check_released(fixture: &SyncFixture) {
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        for message in fixture.base.store.peek(queue.to_owned(), 500, None).await.expect("the queue is read")
        {
            assert!(message.locked_by.is_none(), "still locked: {message:?}");
            assert_eq!(message.deliveries, 0, "a stop costs no delivery: {message:?}");
        }
    }
    let workers = fixture.base.store.workers().await.expect("the workers are read");
    assert!(workers.iter().all(|worker| worker.ended_at.is_some()), "{workers:?}");
}

pub(crate) async fn shutdown_finishes_the_current_page_and_releases_leases(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 30);
    let roles = RoleSet::full(&fixture.syncs);
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    until("some pages are stored", || async { stored(&fixture, &sync).await > 200 }).await;
    let before = stored(&fixture, &sync).await;
    let began = Instant::now();
    roles.stop().await;
    assert!(began.elapsed() < SOON, "a stop took {:?}", began.elapsed());
    let after = stored(&fixture, &sync).await;
    assert!((before..2_000).contains(&after), "{before} and then {after}: it stopped in the middle");
    check_released(&fixture).await;

    let roles = RoleSet::full(&fixture.syncs);
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 1);
    until("consolidation is under way", || async {
        let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        now.state == SyncState::Consolidating || now.state == SyncState::Completed
    })
    .await;
    roles.stop().await;
    check_released(&fixture).await;
    let roles = RoleSet::full(&fixture.syncs);
    succeeded(&fixture, &run).await;
    fixture.check_equal().await;
    roles.stop().await;
    assert!(began.elapsed() < SOON, "a process waited for a lock: {:?}", began.elapsed());
}

pub(crate) async fn shutdown_during_the_scan_passes_the_run_on(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 400);
    let roles = RoleSet::full(&fixture.syncs);
    let run = fixture.queue(true).await;
    until("a scheduler has it", || async {
        let found = fixture.base.store.run(run.clone()).await.expect("the run is read");
        found.is_some_and(|run| run.status != RunState::Queued)
    })
    .await;
    let began = Instant::now();
    roles.stop().await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let roles = RoleSet::full(&fixture.syncs);
    succeeded(&fixture, &run).await;
    fixture.check_equal().await;
    assert!(began.elapsed() < SOON, "the run waited for its lease: {:?}", began.elapsed());
    roles.stop().await;
}
