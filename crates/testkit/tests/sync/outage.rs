//! A feed that is down or slow holds up nobody but itself: other feeds go on, and processes end when they are told.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_supplier::{Change, Config, Outage, Supplier, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles, syncs};
use tokio::time::timeout;

use crate::scene::{again, many, number, open, plan, planned, run as run_of, until, work};

/// How long a process of these tests may take to end on a busy machine. The feed would answer after five minutes.
const ENDING_MAX: Duration = Duration::from_mins(1);
/// How long a sync may take on a busy machine. A probe counts as lost after five minutes.
const SYNC_MAX: Duration = Duration::from_mins(2);

/// The most often that a message of a queue was delivered.
async fn deliveries(mill: &Mill, queue: &str) -> i64 {
    let text = format!(
        "SELECT CAST(coalesce(max(deliveries), 0) AS bigint) FROM {{ops}}.messages WHERE queue = '{queue}'"
    );
    number(mill, &text).await
}

/// One feed is down while its consolidator looks up what vanished: the same consolidator completes another feed, says
/// what it waits for, ends when it is told, and nothing is counted against the message.
pub(crate) async fn an_outage_at_the_lookup_holds_up_no_other_feed(kind: Kind) {
    let mill = open(kind, 600).await;
    let other = Supplier::bind(Config { stones: 300, ..Mill::config() }).await.expect("it listens").spawn();
    mill.add_feed("second", &other.endpoint).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::some(What::Vanish, 20, 3)).expect("stones vanish");
    let sync = planned(&mill, true).await;
    work(&mill).await;
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);

    let roles = mill.roles();
    let why = async || mill.syncs.engine().why(&sync.ops_run_id).await.expect("there is a reason").sentence();
    until("why names the outage", || async { why().await.contains("has not answered since") }).await;
    let second = mill.syncs.start("second", false, None).await.expect("the sync is queued").run_id;
    let ended = mill.settle_within(&second, SYNC_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(again(&mill, &sync).await.state, SyncState::Consolidating);
    timeout(ENDING_MAX, roles.stop()).await.expect("the roles end although a feed is down");
    assert!(deliveries(&mill, "consolidate").await <= 1, "an outage burns deliveries");
    assert_eq!(mill.rows("deleted").await.len(), 0, "nobody could be asked");

    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    let roles = mill.roles();
    assert_eq!(mill.settle(&sync.ops_run_id).await.status, RunState::Success);
    roles.stop().await;
    assert_eq!(mill.rows("deleted").await.len(), 20);
    mill.check_equal().await;
}

/// A consolidator whose lookup is not answered for minutes ends when it is told, and gives the message back.
pub(crate) async fn a_consolidator_that_waits_for_an_answer_ends(kind: Kind) {
    let mill = open(kind, 600).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::some(What::Vanish, 20, 3)).expect("stones vanish");
    let sync = planned(&mill, true).await;
    work(&mill).await;
    let before = mill.supplier.handle.stats().requests;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300_000);
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    until("the feed is asked", || async { mill.supplier.handle.stats().requests > before }).await;
    timeout(ENDING_MAX, roles.stop()).await.expect("it ends although nobody answers");
    assert_eq!(deliveries(&mill, "consolidate").await, 0, "an end burns deliveries");
    assert_eq!(again(&mill, &sync).await.state, SyncState::Consolidating);
}

/// A consolidator ends while its probe of a feed that was down is out: the next one probes at once, and does not wait
/// until the probe counts as lost.
pub(crate) async fn a_probe_whose_process_ends_goes_to_the_next(kind: Kind) {
    let mill = open(kind, 600).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::some(What::Vanish, 20, 3)).expect("stones vanish");
    let sync = planned(&mill, true).await;
    work(&mill).await;
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    let circuit = async || {
        let feed = mill.stage.store.feed(FEED.to_owned()).await.expect("there is a feed");
        feed.circuit.to_string().to_lowercase()
    };
    until("the feed is known to be down", || async { circuit().await.contains("probe_at") }).await;
    mill.supplier.handle.behave(|behaviour| {
        behaviour.outage = Outage::Off;
        behaviour.latency_ms = 300_000;
    });
    until("the probe is out", || async { circuit().await.contains("probing") }).await;
    timeout(ENDING_MAX, roles.stop()).await.expect("it ends although nobody answers");

    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 0);
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    let ended = mill.settle_within(&sync.ops_run_id, SYNC_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    roles.stop().await;
    assert_eq!(mill.rows("deleted").await.len(), 20);
}

/// More feeds are down than one scheduler plans at a time: another feed is planned all the same.
pub(crate) async fn feeds_that_are_down_leave_room_for_others(kind: Kind) {
    let mill = open(kind, 300).await;
    let other = Supplier::bind(Config { stones: 10, ..Mill::config() }).await.expect("it listens").spawn();
    other.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let mut down = Vec::new();
    for number in 0..6 {
        let name = format!("down-{number}");
        mill.add_feed(&name, &other.endpoint).await;
        down.push(mill.syncs.start(&name, false, None).await.expect("the sync is queued").run_id);
    }
    let roles = mill.roles();
    let good = mill.queue(false).await;
    let ended = mill.settle_within(&good, SYNC_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    other.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    for run in down {
        assert_eq!(mill.settle(&run).await.status, RunState::Success);
    }
    roles.stop().await;
    mill.check_equal().await;
}

/// A worker whose page is not answered for minutes ends within its grace, and gives the page back at once.
pub(crate) async fn a_worker_ends_within_its_grace(kind: Kind) {
    let settings = SyncSettings { grace: Duration::from_millis(300), ..many() };
    let mill = Mill::with(kind, Config { stones: 300, ..Mill::config() }, settings).await;
    planned(&mill, false).await;
    let before = mill.supplier.handle.stats().requests;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 300_000);
    let mut roles = Roles::none();
    roles.worker(&mill.syncs, PagerOptions::default());
    until("a page is asked for", || async { mill.supplier.handle.stats().requests > before }).await;
    timeout(ENDING_MAX, roles.stop()).await.expect("it ends within its grace");
    assert_eq!(deliveries(&mill, "work-items").await, 0, "an end burns deliveries");
    let locked = "SELECT count(*) FROM {ops}.messages WHERE locked_by IS NOT NULL";
    assert_eq!(number(&mill, locked).await, 0, "the pages are free at once");
}

/// Two workers share the rate of a feed from their first page on.
pub(crate) async fn two_workers_share_a_rate(kind: Kind) {
    // Planned without a limit, and read with one: 25 requests a second.
    let mill = Mill::with(kind, Config { stones: 6_000, ..Mill::config() }, many()).await;
    let mut roles = Roles::none();
    for _ in 0..2 {
        let process = syncs(&mill.stage, SyncSettings { unlimited: false, ..many() });
        roles.worker(&process, PagerOptions { pages_min: 8, ..PagerOptions::default() });
    }
    let workers = async || mill.stage.store.workers().await.expect("the workers are read").len();
    until("both are there", || async { workers().await == 2 }).await;
    let run = mill.queue(false).await;
    plan(&mill).await;
    let (before, began) = (mill.supplier.handle.stats().requests, tokio::time::Instant::now());
    let asked = || mill.supplier.handle.stats().requests - before;
    until("pages are read", || async { asked() >= 75 }).await;
    // 25 a second, and one second's worth at once; a busy machine takes longer.
    let (asked, lasted) = (asked(), began.elapsed());
    assert!(lasted >= Duration::from_millis(1_500), "{asked} requests in {lasted:?}, at 25 a second");
    assert!(!run_of(&mill, &run).await.status.is_terminal(), "there was nothing left to ask for");
    roles.stop().await;
}
