//! A stop that was asked for: what is in hand is finished, what is held is given back, and nobody waits for a lock.

use std::time::{Duration, Instant};

use tidemill_core::queue::{CONSOLIDATE, WORK_DONE, WORK_ITEMS};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_store::Queue as _;
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::Mill;

use crate::ground::{Crew, good, mill, planned, stored, until};

/// How long a stop, and what follows it, may take on a busy machine. The lock of a page lasts for two minutes, and the
/// lease of a run for five.
const SOON: Duration = Duration::from_secs(110);

/// Nothing is locked, nothing has used up a delivery, and nobody is registered.
async fn check_given_back(mill: &Mill) {
    for queue in [WORK_ITEMS, WORK_DONE, CONSOLIDATE] {
        for message in mill.stage.store.peek(queue.to_owned(), 500, None).await.expect("the queue is read") {
            assert!(message.locked_by.is_none(), "still locked: {message:?}");
            assert_eq!(message.deliveries, 0, "a stop costs no delivery: {message:?}");
        }
    }
    let workers = mill.stage.store.workers().await.expect("the workers are read");
    assert!(workers.iter().all(|worker| worker.ended_at.is_some()), "{workers:?}");
}

pub(crate) async fn a_stop_finishes_the_page_in_hand_and_gives_leases_back(kind: Kind) {
    let mill = mill(kind).await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 30);
    let crew = Crew::whole(&mill.syncs);
    let run = mill.queue(true).await;
    let sync = planned(&mill, &run).await;
    until("some pages are stored", || async { stored(&mill, &sync).await > 200 }).await;
    let before = stored(&mill, &sync).await;
    let began = Instant::now();
    crew.stop().await;
    assert!(began.elapsed() < SOON, "a stop took {:?}", began.elapsed());
    let after = stored(&mill, &sync).await;
    assert!((before..2_000).contains(&after), "{before} and then {after}: it stopped in the middle");
    check_given_back(&mill).await;

    let crew = Crew::whole(&mill.syncs);
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 1);
    until("consolidation is under way", || async {
        let now = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        now.state == SyncState::Consolidating || now.state == SyncState::Completed
    })
    .await;
    crew.stop().await;
    check_given_back(&mill).await;
    let crew = Crew::whole(&mill.syncs);
    good(&mill, &run).await;
    mill.check_equal().await;
    crew.stop().await;
    assert!(began.elapsed() < SOON, "somebody waited for a lock: {:?}", began.elapsed());
}

pub(crate) async fn a_stop_while_scanning_hands_the_run_on(kind: Kind) {
    let mill = mill(kind).await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 400);
    let crew = Crew::whole(&mill.syncs);
    let run = mill.queue(true).await;
    until("a scheduler has it", || async {
        let found = mill.stage.store.run(run.clone()).await.expect("the run is read");
        found.is_some_and(|run| run.status != RunState::Queued)
    })
    .await;
    let began = Instant::now();
    crew.stop().await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let crew = Crew::whole(&mill.syncs);
    good(&mill, &run).await;
    mill.check_equal().await;
    assert!(began.elapsed() < SOON, "the run waited for its lease: {:?}", began.elapsed());
    crew.stop().await;
}
