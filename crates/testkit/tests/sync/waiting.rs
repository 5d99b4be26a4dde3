//! What `why` says of a sync from its queueing to its end, and what a pause holds back.

use std::time::Duration;

use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::Process;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_supplier::{Change, Config, Outage, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles};

use crate::scene::{again, many, number, partitions, plan, planned, until, work};

async fn why(mill: &Mill, run: &RunId) -> String {
    mill.syncs.engine().why(run).await.expect("there is a reason").sentence()
}

async fn until_why(mill: &Mill, run: &RunId, words: &str) -> String {
    let told = std::cell::RefCell::new(String::new());
    let told_so = async || {
        let now = why(mill, run).await;
        let fits = now.contains(words);
        told.replace(now);
        fits
    };
    until(words, || async { told_so().await }).await;
    told.into_inner()
}

fn paused(note: &str) -> Flag {
    Flag {
        flag: FlagName::Paused,
        scope: format!("feed:{FEED}"),
        note: Some(note.to_owned()),
        since: host_now(),
        until_at: None,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    }
}

/// From queued to completed, one reason after the other.
pub(crate) async fn why_tells_what_a_sync_waits_for(kind: Kind) {
    let mut settings = many();
    settings.tuning.backoff_max = Duration::from_secs(5);
    let settings = SyncSettings { hold_pages: 2, ..settings };
    let mill = Mill::with(kind, Config { stones: 900, ..Mill::config() }, settings).await;
    let run = mill.queue(false).await;
    assert_eq!(why(&mill, &run).await, "It waits for a scheduler, and none is alive.");

    // While it is scanned.
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 1_000);
    let (planned, _) = tokio::join!(plan(&mill), until_why(&mill, &run, "Its scheduler counts the feed."));
    assert_eq!(planned, 1);
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 150);
    assert_eq!(why(&mill, &run).await, "Its pages wait for a worker, and none is alive.");

    // A pause holds every page, and counts no delivery.
    mill.stage.store.set_flag(paused("stock-taking")).await.expect("it is paused");
    assert_eq!(why(&mill, &run).await, format!("Feed {FEED} is paused (stock-taking)."));
    let mut roles = Roles::none();
    roles.worker(&mill.syncs, PagerOptions::default());
    tokio::time::sleep(Duration::from_millis(700)).await;
    let sync = mill.record(&run).await;
    assert!(
        partitions(&mill, &sync).await.iter().all(|part| part.next_offset == 0),
        "a page was carried out"
    );
    let delivered = "SELECT count(*) FROM {ops}.messages WHERE deliveries > 0";
    assert_eq!(number(&mill, delivered).await, 0);
    assert!(
        mill.stage.store.clear_flag(FlagName::Paused, format!("feed:{FEED}")).await.expect("it is resumed")
    );

    let told = until_why(&mill, &run, "partitions are being read").await;
    assert!(told.contains("partition-"), "{told}");

    // A pause in the middle: pages in hand go on, and then nothing does.
    mill.stage.store.set_flag(paused("again")).await.expect("it is paused");
    let in_hand = "SELECT count(*) FROM {ops}.messages WHERE locked_by IS NOT NULL AND state = 'live'";
    until("the pages in hand are done", || async { number(&mill, in_hand).await == 0 }).await;
    let stopped_at = number(&mill, "SELECT count(*) FROM {ops}.pages").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.pages").await, stopped_at);
    assert!(partitions(&mill, &sync).await.iter().any(|part| part.state.is_open()), "it was too quick");
    mill.stage.store.clear_flag(FlagName::Paused, format!("feed:{FEED}")).await.expect("it is resumed");

    // The feed goes down.
    mill.supplier.handle.behave(|behaviour| {
        (behaviour.latency_ms, behaviour.outage) = (0, Outage::Closed);
    });
    let told = until_why(&mill, &run, "has not answered since").await;
    assert!(told.contains("is asked again at") && told.contains("127.0.0.1"), "{told}");
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    until_why(&mill, &run, "It waits for a consolidator, and none is alive.").await;
    assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.messages WHERE deliveries > 1").await, 0);

    // Consolidated, as soon as the row of its feed is mended.
    let set_kind = |kind: &str| format!("UPDATE {{ops}}.feeds SET kind = '{kind}' WHERE feed = '{FEED}'");
    mill.stage.plain.execute(&set_kind("fax")).await.expect("a row is broken by hand");
    roles.consolidator(&mill.syncs);
    let told = until_why(&mill, &run, "stones are in the table").await;
    assert!(told.contains("0 of 900"), "{told}");
    mill.stage.plain.execute(&set_kind("nivoda")).await.expect("and mended");
    assert_eq!(mill.settle(&run).await.status, RunState::Success);
    roles.stop().await;
    assert_eq!(again(&mill, &sync).await.state, SyncState::Completed);
    assert_eq!(why(&mill, &run).await, "It succeeded.");
    mill.check_equal().await;
}

/// A second sync of the same feed waits for the first: the kernel says so.
pub(crate) async fn one_sync_of_a_feed_at_a_time(kind: Kind) {
    let mill = Mill::with(kind, Config { stones: 300, ..Mill::config() }, many()).await;
    let first = mill.queue(false).await;
    let second = mill.queue(true).await;
    assert_eq!(plan(&mill).await, 1, "one of them");
    let told = why(&mill, &second).await;
    assert!(told.contains(first.as_str()), "{told}");
    let roles = mill.roles();
    assert_eq!(mill.settle(&first).await.status, RunState::Success);
    assert_eq!(mill.settle(&second).await.status, RunState::Success);
    roles.stop().await;
    mill.check_equal().await;
}

/// A full sync of one feed does not starve the incremental sync of another.
pub(crate) async fn a_full_sync_does_not_starve_another_feed(kind: Kind) {
    let mill = Mill::with(kind, Config { stones: 1_500, ..Mill::config() }, many()).await;
    mill.add_feed("second", &mill.supplier.endpoint).await;
    let roles = mill.roles();
    let second = mill.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
    assert_eq!(mill.settle(&second).await.status, RunState::Success);
    roles.stop().await;

    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 60);
    let first = mill.queue(true).await;
    plan(&mill).await;
    mill.supplier.handle.change(&Change::some(What::Price, 20, 1)).expect("prices change");
    let mut roles = Roles::none();
    roles.scheduler(&mill.syncs);
    roles.worker(&mill.syncs, PagerOptions { pages_min: 1, pages_max: 2, once: false });
    roles.consolidator(&mill.syncs);
    until("the full sync reads", || async { number(&mill, "SELECT count(*) FROM {ops}.pages").await > 55 })
        .await;
    let second = mill.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
    assert_eq!(mill.settle(&second).await.status, RunState::Success);
    let full = mill.record(&first).await;
    assert!(full.state.is_live(), "the full sync had ended before: {full:?}");
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    assert_eq!(mill.settle(&first).await.status, RunState::Success);
    roles.stop().await;
    mill.check_equal().await;
}

/// Waits until a process has beaten twice from now on: it knows by then what it was told before.
async fn until_told(mill: &Mill, worker: WorkerId) {
    let beat_at = async || {
        let workers = mill.stage.store.workers().await.expect("the workers are read");
        workers.into_iter().find(|one| one.worker_id == worker).expect("it lives").beat_at
    };
    for _ in 0..2 {
        let before = beat_at().await;
        until("it beats", || async { beat_at().await > before }).await;
    }
}

/// A role that shares its process rests while it is drained: pages wait, and say why, until it is told otherwise.
pub(crate) async fn a_role_that_is_drained_takes_no_page_until_it_is_told_otherwise(kind: Kind) {
    let settings = SyncSettings { process: Process::Shared, beat: Duration::from_millis(50), ..many() };
    let mill = Mill::with(kind, Config { stones: 300, ..Mill::config() }, settings).await;
    let roles = mill.roles();
    let store = &mill.stage.store;
    let found = async || {
        let workers = store.workers().await.expect("the workers are read");
        workers.into_iter().find(|one| one.name == "test-worker").map(|one| one.worker_id)
    };
    until("the worker is there", || async { found().await.is_some() }).await;
    let worker = found().await.expect("it was there");
    store.drain_worker(worker, true).await.expect("it drains");
    until_told(&mill, worker).await;
    let run = mill.queue(true).await;
    until_why(&mill, &run, "It waits: 1 process that could go on with it drains, and takes nothing new.")
        .await;
    until_told(&mill, worker).await;
    let sync = mill.record(&run).await;
    let fetched = partitions(&mill, &sync).await.iter().map(|partition| partition.fetched).sum::<i64>();
    assert_eq!(fetched, 0, "it looked for pages meanwhile, and took none");
    store.drain_worker(worker, false).await.expect("it works again");
    assert_eq!(mill.settle(&run).await.status, RunState::Success);
    mill.check_equal().await;
    roles.stop().await;
}

/// A worker that is told to end, or to drain, ends with the page in hand: the next one is free at once.
pub(crate) async fn a_worker_that_leaves_ends_with_the_page_in_hand(kind: Kind) {
    for drains in [false, true] {
        let settings = SyncSettings { beat: Duration::from_millis(50), ..many() };
        let mill = Mill::with(kind, Config { stones: 300, ..Mill::config() }, settings).await;
        planned(&mill, true).await;
        let before = mill.supplier.handle.stats().requests;
        // Long enough to be told meanwhile, also on a busy machine.
        mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 10_000);
        let mut roles = Roles::none();
        roles.worker(&mill.syncs, PagerOptions { pages_min: 1, pages_max: 1, once: false });
        until("a page is asked for", || async { mill.supplier.handle.stats().requests > before }).await;
        if drains {
            let store = &mill.stage.store;
            let workers = async || store.workers().await.expect("the workers are read");
            let found = workers().await.into_iter().find(|one| one.name == "test-worker");
            let worker = found.expect("it is there").worker_id;
            store.drain_worker(worker, true).await.expect("it drains");
            let is_over = async || workers().await.iter().all(|one| one.ended_at.is_some());
            until("it ends", || async { is_over().await }).await;
        }
        roles.stop().await;
        assert_eq!(number(&mill, "SELECT count(*) FROM {ops}.pages").await, 1, "drains: {drains}");
        let held = "SELECT count(*) FROM {ops}.messages \
                    WHERE state = 'live' AND (locked_by IS NOT NULL OR deliveries > 0)";
        assert_eq!(number(&mill, held).await, 0, "drains: {drains}");
        mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
        assert!(work(&mill).await > 1, "somebody takes the next page at once");
    }
}
