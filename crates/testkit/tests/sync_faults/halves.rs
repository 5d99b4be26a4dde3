//! Syncs that fail at half, and syncs beside each other.

use tidemill_core::feed::RunType;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::PagerOptions;
use tidemill_supplier::{Change, Supplier, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{Mill, Roles};
use tokio::time::Instant;

use crate::ground::{Crew, ended, good, mill, planned, settings, slow, stored, until};

/// Lets a sync fail once it has stored so many records; whether the watermark moved is checked.
async fn fails_at_half(mill: &Mill, full: bool, half: i64) {
    let before =
        mill.stage.store.feed(tidemill_testkit::mill::FEED.to_owned()).await.expect("the feed is read");
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 15);
    let run = mill.queue(full).await;
    let sync = planned(mill, &run).await;
    until("half of it is stored", || async { stored(mill, &sync).await >= half }).await;
    mill.supplier.handle.behave(|behaviour| (behaviour.html, behaviour.latency_ms) = (true, 0));
    let last = ended(mill, &run).await;
    assert_eq!(last.status, RunState::Failed, "{}", last.metadata);
    mill.supplier.handle.behave(|behaviour| behaviour.html = false);
    let after = mill.stage.store.feed(sync.feed.clone()).await.expect("the feed is read");
    assert_eq!(after.watermark, before.watermark, "a failed sync leaves the watermark");
    let sync = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
    assert_eq!(sync.state, SyncState::Failed);
    assert!(sync.failed_workers > 0, "{sync:?}");
}

/// Sync A stores half of what changed and fails. Sync B finds that nothing has changed since, neither at the source
/// nor among the stored records: what A stored must still reach the table.
pub(crate) async fn what_a_failed_sync_stored_is_consolidated_by_the_next(kind: Kind) {
    let mill = mill(kind).await;
    let crew = Crew::whole(&mill.syncs);
    let first = mill.queue(true).await;
    good(&mill, &first).await;
    for what in [What::Price, What::Media] {
        mill.supplier.handle.change(&Change::some(what, 400, 1)).expect("stones change");
    }
    fails_at_half(&mill, false, 200).await;
    let run = mill.queue(false).await;
    let done = good(&mill, &run).await;
    assert_eq!(done.run_type, RunType::Incremental);
    mill.check_equal().await;
    crew.stop().await;
}

pub(crate) async fn a_first_sync_that_fails_at_half_is_made_good(kind: Kind) {
    let mill = mill(kind).await;
    let crew = Crew::whole(&mill.syncs);
    fails_at_half(&mill, true, 700).await;
    let run = mill.queue(false).await;
    let done = good(&mill, &run).await;
    assert_eq!(done.run_type, RunType::Full, "there is no watermark to begin from");
    mill.check_equal().await;
    crew.stop().await;
}

/// One worker with two hands: a long full sync has them all when a short sync of another feed comes.
pub(crate) async fn a_full_sync_does_not_starve_the_incremental_sync_of_another_feed(kind: Kind) {
    let mill = Mill::with(kind, slow(6_000, 25), settings()).await;
    let other = Supplier::bind(slow(200, 0)).await.expect("the supplier listens").spawn();
    mill.add_feed("other", &other.endpoint).await;
    let mut roles = Roles::none();
    roles.scheduler(&mill.syncs);
    roles.worker(&mill.syncs, PagerOptions { pages_max: 2, ..PagerOptions::default() });
    roles.consolidator(&mill.syncs);
    let first = mill.syncs.start("other", true, None).await.expect("the sync is queued").run_id;
    good(&mill, &first).await;

    let long = mill.queue(true).await;
    let sync = planned(&mill, &long).await;
    until("the full sync is under way", || async { stored(&mill, &sync).await > 300 }).await;
    other.handle.change(&Change::some(What::Price, 40, 1)).expect("prices change");
    let began = Instant::now();
    let short = mill.syncs.start("other", false, None).await.expect("the sync is queued").run_id;
    let short = good(&mill, &short).await;
    let (took, rest) = (began.elapsed(), 6_000 - stored(&mill, &sync).await);
    let now = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
    println!(
        "{kind:?}: the incremental sync took {took:?}; {rest} stones of the full one were still to come"
    );
    assert_eq!((short.run_type, now.state), (RunType::Incremental, SyncState::WorkersRunning));
    assert!(rest > 3_000, "{took:?}, {rest} stones left");
    good(&mill, &long).await;
    mill.check_equal().await;
    roles.stop().await;
    other.stop().await;
}
