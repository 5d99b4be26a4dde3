//! Two consolidators at one sync: frozen, overtaken, late. One of them completes it, once.

use std::time::Duration;

use tidemill_core::queue::CONSOLIDATE;
use tidemill_core::records::Sync;
use tidemill_core::sync::SyncState;
use tidemill_engine::clock::{Clock, host_now};
use tidemill_engine::sync::Syncs;
use tidemill_engine::{Engine, Patience};
use tidemill_store::{Options, Queue as _, Store};
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::Mill;
use tidemill_testkit::proxy::{Fault, Proxy};
use tokio::time::sleep;

use crate::ground::{Crew, Role, change_queue, drained, good, mill, planned, settings, until};

/// Messages that are locked so shortly that a consolidation outlasts them.
async fn with_short_locks(mill: &Mill) {
    change_queue(mill, CONSOLIDATE, |queue| (queue.lock_secs, queue.deliveries_max) = (1, 50)).await;
}

/// Waits until a sync is ready to be consolidated, while nobody consolidates.
async fn until_ordered(mill: &Mill) {
    until("consolidation is ordered", || async {
        let depth = mill.stage.store.depth(CONSOLIDATE.to_owned(), None).await.expect("the depth is read");
        depth.waiting == 1
    })
    .await;
}

/// The use cases on connections that can be held up.
async fn through(mill: &Mill, proxy: &Proxy) -> Syncs {
    let database = mill.stage.url.rsplit('/').next().expect("the address names a database");
    let store = Store::open(&Options::new(proxy.url(database), host_now)).await.expect("the store opens");
    Syncs::new(Engine::new(store, Clock::Database, Patience::None), settings())
}

/// Waits until so many partitions have pages that are not in the table.
async fn until_open(mill: &Mill, sync: &Sync, open: i64) {
    until("the batches are as far", || async {
        let counts = mill.stage.store.read_counts(sync.run_id).await.expect("the counts are read");
        counts.unconsolidated == open
    })
    .await;
}

pub(crate) async fn a_consolidation_longer_than_its_lock_completes_once(kind: Kind) {
    let mill = mill(kind).await;
    let mut crew = Crew::whole(&mill.syncs);
    let first = mill.queue(true).await;
    good(&mill, &first).await;
    with_short_locks(&mill).await;
    mill.supplier.handle.change(&Change::some(What::Vanish, 50, 3)).expect("stones vanish");
    for _ in 0..2 {
        crew.kill_first(Role::Consolidator);
    }
    let run = mill.queue(true).await;
    planned(&mill, &run).await;
    until_ordered(&mill).await;
    // Every stone that was not seen is looked up: that alone takes longer than the lock.
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 2_500);
    for _ in 0..2 {
        crew.start(Role::Consolidator);
    }
    until("the other one gets the message too", || async {
        let orders = mill.stage.store.peek(CONSOLIDATE.to_owned(), 10, None).await;
        orders.expect("the queue is looked at").iter().any(|order| order.epoch > 1)
    })
    .await;
    let done = good(&mill, &run).await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    assert_eq!(done.deleted, 50, "each stone is deleted once");
    assert_eq!(done.consolidation_processed, 1_950);
    drained(&mill, CONSOLIDATE).await;
    // The other one comes to its end too, and finds that there is nothing to complete.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(good(&mill, &run).await, done);
    mill.check_equal().await;
    assert_eq!(mill.rows("deleted").await.len(), 50);
    crew.stop().await;
}

/// One replica stands still in the middle of a batch, with its transaction open and its lock expired. The other does
/// everything else, and waits for that one batch: until it is freed, or until the database ends the transaction.
pub(crate) async fn one_of_two_consolidators_is_frozen_in_a_batch() {
    let mill = Mill::with(Kind::Postgres, crate::ground::slow(2_000, 0), settings()).await;
    let proxy = Proxy::in_front_of(&mill.stage.url).await.expect("the proxy starts");
    let frozen = through(&mill, &proxy).await;
    with_short_locks(&mill).await;
    for is_ended_by_the_database in [false, true] {
        let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler, Role::Worker]);
        let run = mill.queue(true).await;
        let sync = planned(&mill, &run).await;
        until_ordered(&mill).await;
        let held = proxy.arm(Fault::stall("INTO public.diamonds AS d"));
        crew.start_on(&frozen, Role::Consolidator);
        held.wait_fired(1).await;
        crew.start(Role::Consolidator);
        until_open(&mill, &sync, 1).await;
        sleep(Duration::from_millis(1_500)).await;
        let now = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        assert_eq!(now.state, SyncState::Consolidating, "a sync is not complete while a batch is at hand");
        if is_ended_by_the_database {
            let end = "SELECT CAST(count(pg_terminate_backend(pid)) AS bigint) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event = 'ClientRead' \
                         AND xact_start < now() - interval '1 second'";
            assert!(mill.stage.plain.number(end).await.expect("it is ended") > 0);
        } else {
            held.release();
        }
        let done = good(&mill, &run).await;
        held.release();
        assert_eq!(done.consolidation_processed, 2_000, "no batch is counted twice");
        mill.check_equal().await;
        drained(&mill, CONSOLIDATE).await;
        crew.stop().await;
        assert_eq!(good(&mill, &run).await, done);
        mill.supplier.handle.change(&Change::some(What::Price, 2_000, 9)).expect("prices change");
    }
}

/// A helper has the last batch at hand while the holder of the message looks for what vanished, and is done with it
/// when the holder completes: nothing is completed before what vanished is found.
pub(crate) async fn what_vanished_is_deleted_though_a_helper_is_slow() {
    let mill = Mill::with(Kind::Postgres, crate::ground::slow(1_000, 0), settings()).await;
    let (slow, late) = (Proxy::in_front_of(&mill.stage.url).await, Proxy::in_front_of(&mill.stage.url).await);
    let (slow, late) = (slow.expect("the proxy starts"), late.expect("the proxy starts"));
    let (helper, holder) = (through(&mill, &slow).await, through(&mill, &late).await);
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler, Role::Worker, Role::Consolidator]);
    let first = mill.queue(true).await;
    good(&mill, &first).await;
    crew.kill_first(Role::Consolidator);
    mill.supplier.handle.change(&Change::some(What::Vanish, 40, 5)).expect("stones vanish");
    mill.supplier.handle.change(&Change::some(What::Price, 900, 5)).expect("prices change");
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    until_ordered(&mill).await;
    // The helper must not get the message: it comes while the holder has it, and takes the batch that the holder is
    // kept from.
    let kept = late.arm(Fault::stall("FOR UPDATE SKIP LOCKED").times(2));
    crew.start_on(&holder, Role::Consolidator);
    kept.wait_fired(1).await;
    let held = slow.arm(Fault::stall("INTO public.diamonds AS d"));
    crew.start_on(&helper, Role::Consolidator);
    held.wait_fired(1).await;
    kept.release();
    until_open(&mill, &sync, 1).await;
    // Whoever asks for the lock of the run now is about to complete.
    let completing = late.arm(Fault::stall("FOR NO KEY UPDATE"));
    let _ = tokio::time::timeout(Duration::from_secs(1), completing.wait_fired(1)).await;
    held.release();
    until_open(&mill, &sync, 0).await;
    completing.release();
    let done = good(&mill, &run).await;
    assert_eq!(done.deleted, 40);
    mill.check_equal().await;
    crew.stop().await;
}
