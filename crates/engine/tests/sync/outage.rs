//! An unavailable or slow feed delays no other feed, and processes still shut down.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_supplier::{Change, ChangeKind, Config, Outage, Supplier};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture, syncs};
use tokio::time::timeout;

use crate::fixture::{many, number, open, plan, planned, reload, run as run_of, until, work};

/// Time limit for a process to end on a busy machine. The feed would answer after five minutes.
const ENDING_MAX: Duration = Duration::from_mins(1);
/// Time limit for a sync on a busy machine. A probe counts as lost after five minutes.
const SYNC_MAX: Duration = Duration::from_mins(2);

/// Returns the highest number of deliveries of a message in a queue.
async fn deliveries(fixture: &SyncFixture, queue: &str) -> i64 {
    let text = format!(
        "SELECT CAST(coalesce(max(deliveries), 0) AS bigint) FROM {{ops}}.messages WHERE queue = '{queue}'"
    );
    number(fixture, &text).await
}

/// One feed is down while its consolidator looks up vanished records: the same consolidator completes another feed,
/// reports its wait, shuts down when requested, and no delivery is counted.
pub(crate) async fn outage_during_lookup_delays_no_other_feed(kind: Kind) {
    let fixture = open(kind, 600).await;
    let other =
        Supplier::bind(Config { stones: 300, ..SyncFixture::config() }).await.expect("it listens").spawn();
    fixture.add_feed("second", &other.endpoint).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 20, 3)).expect("records vanish");
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);

    let roles = fixture.roles();
    let why =
        async || fixture.syncs.engine().why(&sync.ops_run_id).await.expect("there is a reason").sentence();
    until("why names the outage", || async { why().await.contains("has not answered since") }).await;
    let second = fixture.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
    let ended = fixture.settle_within(&second, SYNC_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Consolidating);
    timeout(ENDING_MAX, roles.stop()).await.expect("the roles end although a feed is down");
    assert!(deliveries(&fixture, "consolidate").await <= 1, "an outage burns deliveries");
    assert_eq!(fixture.rows("deleted").await.len(), 0, "no agent could be chosen");

    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    let roles = fixture.roles();
    assert_eq!(fixture.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    assert_eq!(fixture.rows("deleted").await.len(), 20);
    fixture.check_equal().await;
}

/// A consolidator whose lookup is not answered for minutes shuts down, and releases the message.
pub(crate) async fn consolidator_waiting_for_a_feed_shuts_down(kind: Kind) {
    let fixture = open(kind, 600).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 20, 3)).expect("records vanish");
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    let before = fixture.supplier.handle.stats().requests;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300_000);
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    until("the feed gets a request", || async { fixture.supplier.handle.stats().requests > before }).await;
    timeout(ENDING_MAX, roles.stop()).await.expect("it ends without an answer of the feed");
    assert_eq!(deliveries(&fixture, "consolidate").await, 0, "an end burns deliveries");
    assert_eq!(reload(&fixture, &sync).await.state, SyncState::Consolidating);
}

/// A consolidator ends during its probe of an unavailable feed: the next one probes at once, and does not wait until
/// the probe counts as lost.
pub(crate) async fn probe_of_an_ended_process_passes_to_the_next(kind: Kind) {
    let fixture = open(kind, 600).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 20, 3)).expect("records vanish");
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    let circuit = async || {
        let feed = fixture.base.store.feed(FEED.to_owned()).await.expect("there is a feed");
        feed.circuit.to_string().to_lowercase()
    };
    until("the feed's circuit is open", || async { circuit().await.contains("probe_at") }).await;
    fixture.supplier.handle.behave(|behaviour| {
        behaviour.outage = Outage::Off;
        behaviour.latency_ms = 300_000;
    });
    until("the probe is out", || async { circuit().await.contains("probing") }).await;
    timeout(ENDING_MAX, roles.stop()).await.expect("it ends without an answer of the feed");

    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    let ended = fixture.settle_within(&sync.ops_run_id, SYNC_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    roles.stop().await;
    assert_eq!(fixture.rows("deleted").await.len(), 20);
}

/// More feeds are down than one scheduler plans at a time.
pub(crate) async fn unavailable_feeds_leave_capacity_for_others(kind: Kind) {
    let fixture = open(kind, 300).await;
    let other =
        Supplier::bind(Config { stones: 10, ..SyncFixture::config() }).await.expect("it listens").spawn();
    other.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let mut down = Vec::new();
    for number in 0..6 {
        let name = format!("down-{number}");
        fixture.add_feed(&name, &other.endpoint).await;
        down.push(fixture.syncs.start(&name, false, None).await.expect("the sync is queued").run_id);
    }
    let roles = fixture.roles();
    let good = fixture.queue(false).await;
    let ended = fixture.settle_within(&good, SYNC_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    other.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    for run in down {
        assert_eq!(fixture.settle(&run).await.status, RunState::Success);
    }
    roles.stop().await;
    fixture.check_equal().await;
}

/// A worker whose page is not answered for minutes shuts down within its grace period, and releases the page at once.
pub(crate) async fn worker_shuts_down_within_its_grace_period(kind: Kind) {
    let settings = SyncSettings { grace: Duration::from_millis(300), ..many() };
    let fixture = SyncFixture::with(kind, Config { stones: 300, ..SyncFixture::config() }, settings).await;
    planned(&fixture, false).await;
    let before = fixture.supplier.handle.stats().requests;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300_000);
    let mut roles = Roles::none();
    roles.worker(&fixture.syncs, PagerOptions::default());
    until("a page is requested", || async { fixture.supplier.handle.stats().requests > before }).await;
    timeout(ENDING_MAX, roles.stop()).await.expect("it ends within its grace");
    assert_eq!(deliveries(&fixture, "work-items").await, 0, "an end burns deliveries");
    let locked = "SELECT count(*) FROM {ops}.messages WHERE locked_by IS NOT NULL";
    assert_eq!(number(&fixture, locked).await, 0, "the pages are free at once");
}

/// From their first page.
pub(crate) async fn two_workers_share_a_rate_limit(kind: Kind) {
    // Planned without a limit, and read with one: 25 requests a second.
    let fixture = SyncFixture::with(kind, Config { stones: 6_000, ..SyncFixture::config() }, many()).await;
    let mut roles = Roles::none();
    for _ in 0..2 {
        let process = syncs(&fixture.base, SyncSettings { unlimited: false, ..many() });
        roles.worker(&process, PagerOptions { pages_min: 8, ..PagerOptions::default() });
    }
    let workers = async || fixture.base.store.workers().await.expect("the workers are read").len();
    until("both are there", || async { workers().await == 2 }).await;
    let run = fixture.queue(false).await;
    plan(&fixture).await;
    let (before, began) = (fixture.supplier.handle.stats().requests, tokio::time::Instant::now());
    let requests = || fixture.supplier.handle.stats().requests - before;
    until("pages are read", || async { requests() >= 75 }).await;
    // 25 a second, and one second's worth at once; a busy machine takes longer.
    let (requests, lasted) = (requests(), began.elapsed());
    assert!(lasted >= Duration::from_millis(1_500), "{requests} requests in {lasted:?}, at 25 a second");
    assert!(!run_of(&fixture, &run).await.status.is_terminal(), "no page was left to request");
    roles.stop().await;
}
