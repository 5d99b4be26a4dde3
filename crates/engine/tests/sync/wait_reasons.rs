//! `why` for syncs from queueing to the end, and the effect of a pause.

use std::time::Duration;

use tidemill_core::project::{Flag, FlagName, FlagSource};
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_core::{RunId, WorkerId};
use tidemill_engine::Process;
use tidemill_engine::clock::host_now;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_supplier::{Change, ChangeKind, Config, Outage};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};

use crate::fixture::{many, number, partitions, plan, planned, reload, until, work};

async fn why(fixture: &SyncFixture, run: &RunId) -> String {
    fixture.syncs.engine().why(run).await.expect("there is a reason").sentence()
}

async fn until_why(fixture: &SyncFixture, run: &RunId, words: &str) -> String {
    let message = std::cell::RefCell::new(String::new());
    let told_so = async || {
        let now = why(fixture, run).await;
        let fits = now.contains(words);
        message.replace(now);
        fits
    };
    until(words, || async { told_so().await }).await;
    message.into_inner()
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

/// From queued to completed, every reason in turn.
pub(crate) async fn why_explains_every_wait_of_a_sync(kind: Kind) {
    let mut settings = many();
    settings.tuning.backoff_max = Duration::from_secs(5);
    let settings = SyncSettings { hold_pages: 2, ..settings };
    let fixture = SyncFixture::with(kind, Config { stones: 900, ..SyncFixture::config() }, settings).await;
    let run = fixture.queue(false).await;
    assert_eq!(why(&fixture, &run).await, "It waits for a scheduler, but no scheduler is running.");

    // During the scan.
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 1_000);
    let (planned, _) = tokio::join!(
        plan(&fixture),
        until_why(&fixture, &run, "Its scheduler is counting the feed's records.")
    );
    assert_eq!(planned, 1);
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 150);
    assert_eq!(why(&fixture, &run).await, "Its pages wait for a worker, but no worker is running.");

    // A pause blocks every page, and counts no delivery.
    fixture.base.store.set_flag(paused("stock-taking")).await.expect("it is paused");
    assert_eq!(why(&fixture, &run).await, format!("Feed {FEED} is paused (stock-taking)."));
    let mut roles = Roles::none();
    roles.worker(&fixture.syncs, PagerOptions::default());
    tokio::time::sleep(Duration::from_millis(700)).await;
    let sync = fixture.record(&run).await;
    assert!(
        partitions(&fixture, &sync).await.iter().all(|part| part.next_offset == 0),
        "a page was executed"
    );
    let delivered = "SELECT count(*) FROM {ops}.messages WHERE deliveries > 0";
    assert_eq!(number(&fixture, delivered).await, 0);
    assert!(
        fixture.base.store.clear_flag(FlagName::Paused, format!("feed:{FEED}")).await.expect("it is resumed")
    );

    let message = until_why(&fixture, &run, "partitions are being read").await;
    assert!(message.contains("partition-"), "{message}");

    // A pause in the middle: current pages finish, and then nothing runs.
    fixture.base.store.set_flag(paused("again")).await.expect("it is paused");
    let in_hand = "SELECT count(*) FROM {ops}.messages WHERE locked_by IS NOT NULL AND state = 'live'";
    until("the current pages are done", || async { number(&fixture, in_hand).await == 0 }).await;
    let stopped_at = number(&fixture, "SELECT count(*) FROM {ops}.pages").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(number(&fixture, "SELECT count(*) FROM {ops}.pages").await, stopped_at);
    assert!(partitions(&fixture, &sync).await.iter().any(|part| part.state.is_open()), "it was too quick");
    fixture.base.store.clear_flag(FlagName::Paused, format!("feed:{FEED}")).await.expect("it is resumed");

    // The feed goes down.
    fixture.supplier.handle.behave(|behaviour| {
        (behaviour.latency_ms, behaviour.outage) = (0, Outage::Closed);
    });
    let message = until_why(&fixture, &run, "has not answered since").await;
    assert!(message.contains("the next attempt is at") && message.contains("127.0.0.1"), "{message}");
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    until_why(&fixture, &run, "It waits for a consolidator, but no consolidator is running.").await;
    assert_eq!(number(&fixture, "SELECT count(*) FROM {ops}.messages WHERE deliveries > 1").await, 0);

    // Consolidated as soon as the row of its feed is fixed.
    let set_kind = |kind: &str| format!("UPDATE {{ops}}.feeds SET kind = '{kind}' WHERE feed = '{FEED}'");
    fixture.base.plain.execute(&set_kind("fax")).await.expect("a row is broken by plain SQL");
    roles.consolidator(&fixture.syncs);
    let message = until_why(&fixture, &run, "records are in the table").await;
    assert!(message.contains("0 of 900"), "{message}");
    fixture.base.plain.execute(&set_kind("nivoda")).await.expect("and fixed");
    assert_eq!(fixture.settle(&run).await.status, RunState::Success);
    roles.stop().await;
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Completed);
    assert_eq!(why(&fixture, &run).await, "It succeeded.");
    fixture.check_equal().await;
}

pub(crate) async fn syncs_of_a_feed_run_one_at_a_time(kind: Kind) {
    let fixture = SyncFixture::with(kind, Config { stones: 300, ..SyncFixture::config() }, many()).await;
    let first = fixture.queue(false).await;
    let second = fixture.queue(true).await;
    assert_eq!(plan(&fixture).await, 1, "one of them");
    let message = why(&fixture, &second).await;
    assert!(message.contains(first.as_str()), "{message}");
    let roles = fixture.roles();
    assert_eq!(fixture.settle(&first).await.status, RunState::Success);
    assert_eq!(fixture.settle(&second).await.status, RunState::Success);
    roles.stop().await;
    fixture.check_equal().await;
}

pub(crate) async fn full_sync_does_not_starve_another_feed(kind: Kind) {
    let fixture = SyncFixture::with(kind, Config { stones: 1_500, ..SyncFixture::config() }, many()).await;
    fixture.add_feed("second", &fixture.supplier.endpoint).await;
    let roles = fixture.roles();
    let second = fixture.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
    assert_eq!(fixture.settle(&second).await.status, RunState::Success);
    roles.stop().await;

    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 60);
    let first = fixture.queue(true).await;
    plan(&fixture).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 20, 1)).expect("prices change");
    let mut roles = Roles::none();
    roles.scheduler(&fixture.syncs);
    roles.worker(&fixture.syncs, PagerOptions { pages_min: 1, pages_max: 2, once: false });
    roles.consolidator(&fixture.syncs);
    until("the full sync reads", || async {
        number(&fixture, "SELECT count(*) FROM {ops}.pages").await > 55
    })
    .await;
    let second = fixture.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
    assert_eq!(fixture.settle(&second).await.status, RunState::Success);
    let full = fixture.record(&first).await;
    assert!(full.state.is_live(), "the full sync had ended before: {full:?}");
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    assert_eq!(fixture.settle(&first).await.status, RunState::Success);
    roles.stop().await;
    fixture.check_equal().await;
}

/// Waits for two more heartbeats of a process, after which it knows earlier requests.
async fn wait_two_heartbeats(fixture: &SyncFixture, worker: WorkerId) {
    let beat_at = async || {
        let workers = fixture.base.store.workers().await.expect("the workers are read");
        workers.into_iter().find(|one| one.worker_id == worker).expect("it lives").beat_at
    };
    for _ in 0..2 {
        let before = beat_at().await;
        until("it beats", || async { beat_at().await > before }).await;
    }
}

/// A role that shares its process takes no pages while it drains; `why` explains the wait.
pub(crate) async fn drained_role_takes_no_page_until_it_is_undrained(kind: Kind) {
    let settings =
        SyncSettings { process: Process::Shared, heartbeat_every: Duration::from_millis(50), ..many() };
    let fixture = SyncFixture::with(kind, Config { stones: 300, ..SyncFixture::config() }, settings).await;
    let roles = fixture.roles();
    let store = &fixture.base.store;
    let found = async || {
        let workers = store.workers().await.expect("the workers are read");
        workers.into_iter().find(|one| one.name == "test-worker").map(|one| one.worker_id)
    };
    until("the worker is there", || async { found().await.is_some() }).await;
    let worker = found().await.expect("it was there");
    store.drain_worker(worker, true).await.expect("it drains");
    wait_two_heartbeats(&fixture, worker).await;
    let run = fixture.queue(true).await;
    until_why(
        &fixture,
        &run,
        "It waits: 1 process that could continue it is draining and takes no new work.",
    )
    .await;
    wait_two_heartbeats(&fixture, worker).await;
    let sync = fixture.record(&run).await;
    let fetched = partitions(&fixture, &sync).await.iter().map(|partition| partition.fetched).sum::<i64>();
    assert_eq!(fetched, 0, "it polled for pages meanwhile and took none");
    store.drain_worker(worker, false).await.expect("it works again");
    assert_eq!(fixture.settle(&run).await.status, RunState::Success);
    fixture.check_equal().await;
    roles.stop().await;
}

/// A worker that shuts down or drains ends after its current page, and the next page is free at once.
pub(crate) async fn stopping_worker_ends_after_its_current_page(kind: Kind) {
    for drains in [false, true] {
        let settings = SyncSettings { heartbeat_every: Duration::from_millis(50), ..many() };
        let fixture =
            SyncFixture::with(kind, Config { stones: 300, ..SyncFixture::config() }, settings).await;
        planned(&fixture, true).await;
        let before = fixture.supplier.handle.stats().requests;
        // Long enough to be notified meanwhile, also on a busy machine.
        fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 10_000);
        let mut roles = Roles::none();
        roles.worker(&fixture.syncs, PagerOptions { pages_min: 1, pages_max: 1, once: false });
        until("a page is requested", || async { fixture.supplier.handle.stats().requests > before }).await;
        if drains {
            let store = &fixture.base.store;
            let workers = async || store.workers().await.expect("the workers are read");
            let found = workers().await.into_iter().find(|one| one.name == "test-worker");
            let worker = found.expect("it is there").worker_id;
            store.drain_worker(worker, true).await.expect("it drains");
            let is_over = async || workers().await.iter().all(|one| one.ended_at.is_some());
            until("it ends", || async { is_over().await }).await;
        }
        roles.stop().await;
        assert_eq!(number(&fixture, "SELECT count(*) FROM {ops}.pages").await, 1, "drains: {drains}");
        let held = "SELECT count(*) FROM {ops}.messages \
                    WHERE state = 'live' AND (locked_by IS NOT NULL OR deliveries > 0)";
        assert_eq!(number(&fixture, held).await, 0, "drains: {drains}");
        fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
        assert!(work(&fixture).await > 1, "somebody takes the next page at once");
    }
}
