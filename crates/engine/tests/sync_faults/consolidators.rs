//! Two consolidators of one sync: frozen, replaced, late. One of them completes it, once.

use std::time::Duration;

use tidemill_core::queue::CONSOLIDATE;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, RetryPolicy};
use tidemill_store::{Options, Queue as _, Store};
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::proxy::{Fault, Proxy};
use tidemill_testkit::sync_fixture::SyncFixture;
use tokio::time::sleep;

use crate::fixture::{
    Role, RoleSet, Subject, change_queue, drained, fixture, planned, settings, succeeded, until,
};

/// Sets lock times shorter than a consolidation.
async fn with_short_locks(fixture: &SyncFixture) {
    change_queue(fixture, CONSOLIDATE, |queue| (queue.lock_secs, queue.deliveries_max) = (1, 50)).await;
}

/// Waits until a sync is ready for consolidation, without consolidators.
async fn until_ordered(fixture: &SyncFixture) {
    until("consolidation is ordered", || async {
        let depth = fixture.base.store.depth(CONSOLIDATE.to_owned(), None).await.expect("the depth is read");
        depth.waiting == 1
    })
    .await;
}

/// Returns the sync operations on connections through the proxy.
async fn through(fixture: &SyncFixture, proxy: &Proxy) -> Syncs {
    let database = fixture.base.url.rsplit('/').next().expect("the address names a database");
    let store = Store::open(&Options::new(proxy.url(database), host_now)).await.expect("the store opens");
    Syncs::new(Engine::new(store, Clock::Database, RetryPolicy::None), settings())
}

/// Waits until this many partitions have unconsolidated pages.
async fn until_open(fixture: &SyncFixture, sync: &Sync, open: i64) {
    until("the batches are as far", || async {
        let counts = fixture.base.store.read_counts(sync.run_id).await.expect("the counts are read");
        counts.unconsolidated == open
    })
    .await;
}

pub(crate) async fn consolidation_longer_than_its_lock_completes_once(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let mut roles = RoleSet::full(&fixture.syncs);
    let first = fixture.queue(true).await;
    succeeded(&fixture, &first).await;
    with_short_locks(&fixture).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 50, 3)).expect("records vanish");
    for _ in 0..2 {
        roles.kill_first(Role::Consolidator);
    }
    let run = fixture.queue(true).await;
    planned(&fixture, &run).await;
    until_ordered(&fixture).await;
    // Every unseen record is looked up, which alone takes longer than the lock.
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 2_500);
    for _ in 0..2 {
        roles.start(Role::Consolidator);
    }
    until("the other one gets the message too", || async {
        let orders = fixture.base.store.peek(CONSOLIDATE.to_owned(), 10, None).await;
        orders.expect("the queue is read").iter().any(|order| order.epoch > 1)
    })
    .await;
    let done = succeeded(&fixture, &run).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    assert_eq!(done.deleted, 50, "each record is deleted once");
    assert_eq!(done.consolidation_processed, 1_950);
    drained(&fixture, CONSOLIDATE).await;
    // The other one also ends, and finds nothing to complete.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(succeeded(&fixture, &run).await, done);
    fixture.check_equal().await;
    assert_eq!(fixture.rows("deleted").await.len(), 50);
    roles.stop().await;
}

/// One process is frozen in the middle of a batch, with its transaction open and its lock expired. The other does
/// everything else, and waits for that batch: until it is released, or until the database ends the transaction.
pub(crate) async fn frozen_consolidator_does_not_stop_the_other() {
    let fixture = SyncFixture::with(Kind::Postgres, crate::fixture::slow(2_000, 0), settings()).await;
    let proxy = Proxy::in_front_of(&fixture.base.url).await.expect("the proxy starts");
    let frozen = through(&fixture, &proxy).await;
    with_short_locks(&fixture).await;
    for is_ended_by_the_database in [false, true] {
        let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler, Role::Worker]);
        let run = fixture.queue(true).await;
        let sync = planned(&fixture, &run).await;
        until_ordered(&fixture).await;
        let held = proxy.arm(Fault::stall("INTO public.diamonds AS d"));
        roles.start_on(&frozen, Role::Consolidator);
        held.wait_fired(1).await;
        roles.start(Role::Consolidator);
        until_open(&fixture, &sync, 1).await;
        sleep(Duration::from_millis(1_500)).await;
        let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        assert_eq!(
            now.state,
            SyncState::Consolidating,
            "a sync does not complete while a batch is processed"
        );
        if is_ended_by_the_database {
            let end = "SELECT CAST(count(pg_terminate_backend(pid)) AS bigint) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event = 'ClientRead' \
                         AND xact_start < now() - interval '1 second'";
            assert!(fixture.base.plain.number(end).await.expect("it is ended") > 0);
        } else {
            held.release();
        }
        let done = succeeded(&fixture, &run).await;
        held.release();
        assert_eq!(done.consolidation_processed, 2_000, "no batch is counted twice");
        fixture.check_equal().await;
        drained(&fixture, CONSOLIDATE).await;
        roles.stop().await;
        assert_eq!(succeeded(&fixture, &run).await, done);
        fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 2_000, 9)).expect("prices change");
    }
}

/// A helper processes the last batch while the holder of the message looks for vanished records, and finishes when the
/// holder completes: the sync must not complete before the vanished records are found.
pub(crate) async fn vanished_records_are_deleted_despite_a_slow_helper() {
    let fixture = SyncFixture::with(Kind::Postgres, crate::fixture::slow(1_000, 0), settings()).await;
    let (slow, late) =
        (Proxy::in_front_of(&fixture.base.url).await, Proxy::in_front_of(&fixture.base.url).await);
    let (slow, late) = (slow.expect("the proxy starts"), late.expect("the proxy starts"));
    let (helper, holder) = (through(&fixture, &slow).await, through(&fixture, &late).await);
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler, Role::Worker, Role::Consolidator]);
    let first = fixture.queue(true).await;
    succeeded(&fixture, &first).await;
    roles.kill_first(Role::Consolidator);
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 40, 5)).expect("records vanish");
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 900, 5)).expect("prices change");
    let run = fixture.queue(true).await;
    let sync = planned(&fixture, &run).await;
    until_ordered(&fixture).await;
    // The helper must not get the message: it starts while the holder has it, and takes the batch that the holder is
    // kept from.
    let holder_stall = late.arm(Fault::stall("FOR UPDATE SKIP LOCKED").times(2));
    roles.start_on(&holder, Role::Consolidator);
    holder_stall.wait_fired(1).await;
    let helper_stall = slow.arm(Fault::stall("INTO public.diamonds AS d"));
    roles.start_on(&helper, Role::Consolidator);
    helper_stall.wait_fired(1).await;
    holder_stall.release();
    until_open(&fixture, &sync, 1).await;
    // The next lock on the run is taken in order to complete it.
    let completing = late.arm(Fault::stall("FOR NO KEY UPDATE"));
    let _ = tokio::time::timeout(Duration::from_secs(1), completing.wait_fired(1)).await;
    helper_stall.release();
    until_open(&fixture, &sync, 0).await;
    completing.release();
    let done = succeeded(&fixture, &run).await;
    assert_eq!(done.deleted, 40);
    fixture.check_equal().await;
    roles.stop().await;
}
