//! A feed that stumbles, and a feed that is down: nothing is counted against anybody, and nobody is needed.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_supplier::{Config, FailWith, Outage, Target};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles, syncs};

use crate::scene::{
    again, alerts, consolidate, failed, many, number, open, partitions, plan, planned, run, until, watermark,
    work,
};

/// The most often that a page's message was delivered.
async fn deliveries(mill: &Mill) -> i64 {
    let text =
        "SELECT CAST(coalesce(max(deliveries), 0) AS bigint) FROM {ops}.messages WHERE queue = 'work-items'";
    number(mill, text).await
}

/// Whether the feed is known to be down.
async fn is_down(mill: &Mill) -> bool {
    let feed = mill.stage.store.feed(FEED.to_owned()).await.expect("the feed is read");
    feed.circuit["state"] != "closed"
}

/// Errors that pass, each more often than the client tries by itself: the partition stays open, and the sync
/// succeeds.
pub(crate) async fn an_error_that_passes_leaves_the_partition_open(kind: Kind) {
    for with in [FailWith::Internal, FailWith::TooManyRequests, FailWith::Graphql, FailWith::Closed] {
        let mill = open(kind, 600).await;
        let sync = planned(&mill, false).await;
        mill.supplier.handle.behave(|behaviour| {
            (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (7, with, Target::Page);
        });
        let roles = mill.roles();
        let ended = mill.settle(&sync.ops_run_id).await;
        roles.stop().await;
        assert_eq!(ended.status, RunState::Success, "{with:?}: {}", ended.metadata);
        assert_eq!(mill.supplier.handle.behaviour().fail_next, 0, "{with:?}: all of them were met");
        let done = again(&mill, &sync).await;
        assert_eq!((done.state, done.failed_workers), (SyncState::Completed, 0), "{with:?}");
        assert_eq!(alerts(&mill).await, Vec::<String>::new(), "{with:?}");
        assert!(deliveries(&mill).await <= 1, "{with:?} burnt a delivery");
        mill.check_equal().await;
    }
}

/// Tokens that end while pages are read: the feed logs in anew, and nobody notices.
pub(crate) async fn a_token_that_ends_is_renewed(kind: Kind) {
    let mill = open(kind, 900).await;
    let sync = planned(&mill, false).await;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 25);
    let mut roles = Roles::none();
    roles.worker(&mill.syncs, PagerOptions { pages_min: 1, pages_max: 1, once: false });
    roles.consolidator(&mill.syncs);
    for _ in 0..3 {
        let logins = mill.supplier.handle.stats().logins;
        mill.supplier.handle.expire_tokens();
        until("somebody logs in", || async { mill.supplier.handle.stats().logins > logins }).await;
        let stored = number(&mill, "SELECT count(*) FROM {ops}.pages").await;
        let pages = || async { number(&mill, "SELECT count(*) FROM {ops}.pages").await };
        until("pages are stored", || async { pages().await > stored + 1 }).await;
    }
    let ended = mill.settle(&sync.ops_run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert!(partitions(&mill, &sync).await.iter().all(|part| part.faults == 0));
    mill.check_equal().await;
}

/// A page that fails again and again for a reason of its own fails its partition, after a bounded number of
/// tries.
pub(crate) async fn a_page_that_never_succeeds_fails_its_partition(kind: Kind) {
    let mill = open(kind, 600).await;
    let sync = planned(&mill, false).await;
    mill.supplier.handle.behave(|behaviour| {
        (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) =
            (u64::MAX, FailWith::Graphql, Target::Page);
    });
    let roles = mill.roles();
    let ended = mill.settle(&sync.ops_run_id).await;
    assert_eq!(ended.status, RunState::Failed);
    roles.stop().await;
    for partition in failed(&mill, &sync).await {
        let error = partition.error.unwrap_or_default();
        assert!(error.contains("reported an error"), "{error}");
        assert!(partition.faults >= 5, "{}", partition.faults);
    }
    assert_eq!(watermark(&mill).await, None);
    mill.supplier.handle.behave(|behaviour| behaviour.fail_next = 0);
    mill.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await.expect("it is tried again");
    plan(&mill).await;
    work(&mill).await;
    consolidate(&mill).await;
    mill.check_equal().await;
}

/// An outage while pages are read: the circuit opens, few ask, no delivery is burnt, no partition fails, and
/// when the feed answers again the sync goes on by itself. The waits are those of ten minutes, made short.
pub(crate) async fn an_outage_burns_no_delivery_and_needs_nobody(kind: Kind) {
    for outage in [Outage::Closed, Outage::Unavailable] {
        let mill = open(kind, 900).await;
        mill.supplier.handle.behave(|behaviour| {
            behaviour.latency_ms = 10;
            behaviour.retry_after_secs = 0;
        });
        let sync = planned(&mill, false).await;
        let roles = mill.roles();
        until("pages are stored", || async { number(&mill, "SELECT count(*) FROM {ops}.pages").await > 2 })
            .await;
        mill.supplier.handle.behave(|behaviour| behaviour.outage = outage);
        until("the circuit opens", || is_down(&mill)).await;
        let (before, began) = (mill.supplier.handle.stats().requests, tokio::time::Instant::now());
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(deliveries(&mill).await <= 1, "{outage:?} burns deliveries");
        }
        // Probes wait 100 ms, then twice as long each, up to 500 ms; each is three requests. Twice as many are allowed.
        let (asked, lasted) = (mill.supplier.handle.stats().requests - before, began.elapsed());
        let most = 24 + 12 * (lasted.as_secs() + 1);
        assert!(asked < most, "{asked} requests in {lasted:?} of an outage");
        let open = partitions(&mill, &sync).await;
        assert!(open.iter().all(|partition| !partition.state.failed() && partition.faults == 0), "{open:?}");
        assert_eq!(run(&mill, &sync.ops_run_id).await.status, RunState::Running);

        mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
        let ended = mill.settle(&sync.ops_run_id).await;
        roles.stop().await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        assert!(deliveries(&mill).await <= 1);
        assert_eq!(alerts(&mill).await, Vec::<String>::new());
        mill.check_equal().await;
    }
}

/// An outage before the first count: the scan waits, and goes on when the feed answers.
pub(crate) async fn an_outage_during_the_scan_is_waited_through(kind: Kind) {
    let mill = open(kind, 600).await;
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let roles = mill.roles();
    let queued = mill.queue(false).await;
    until("the circuit opens", || is_down(&mill)).await;
    assert!(!run(&mill, &queued).await.status.is_terminal());
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    let ended = mill.settle(&queued).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    mill.check_equal().await;
}

/// An outage that lasts longer than anybody waits ends the sync with a sentence, while it reads and while it
/// scans.
pub(crate) async fn an_outage_that_lasts_too_long_is_given_up(kind: Kind) {
    let settings = || SyncSettings { give_up_after: Duration::from_millis(1_500), ..many() };
    let words = "the feed has not answered for";
    let mill = Mill::with(kind, Config { stones: 600, ..Mill::config() }, settings()).await;
    let sync = planned(&mill, false).await;
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let mut roles = Roles::none();
    roles.worker(&mill.syncs, PagerOptions::default());
    let ended = mill.settle_within(&sync.ops_run_id, Duration::from_mins(1)).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed);
    let broken = failed(&mill, &sync).await;
    assert_eq!(broken.len(), usize::try_from(sync.expected_workers).unwrap_or(0));
    for partition in broken {
        let error = partition.error.unwrap_or_default();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!((watermark(&mill).await, alerts(&mill).await.len()), (None, 1));

    let mut roles = Roles::none();
    roles.scheduler(&mill.syncs);
    let queued = mill.queue(false).await;
    let ended = mill.settle_within(&queued, Duration::from_mins(1)).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed);
    let error = ended.metadata["error"].as_str().unwrap_or_default();
    assert!(error.contains(words) && error.contains("127.0.0.1"), "{error}");

    // The supplier is well again, and so is the sync. Processes with the usual patience read it: those above would give
    // up again if a busy machine needed longer than their 1.5 s for the first page.
    mill.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    let patient = syncs(&mill.stage, many());
    let mut roles = Roles::none();
    roles.scheduler(&patient);
    roles.worker(&patient, PagerOptions::default());
    roles.consolidator(&patient);
    let retried = patient.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let ended = mill.settle(&retried.expect("it is tried again").run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    mill.check_equal().await;
}
