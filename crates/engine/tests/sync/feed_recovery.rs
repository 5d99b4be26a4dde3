//! A feed with transient errors, and a feed that is down: nothing is counted as a failure, and no human action is
//! needed.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::{PagerOptions, SyncSettings};
use tidemill_supplier::{Config, FailWith, Outage, Target};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture, syncs};

use crate::fixture::{
    alerts, consolidate, failed, many, number, open, partitions, plan, planned, reload, run, until,
    watermark, work,
};

/// Returns the highest number of deliveries of a page message.
async fn deliveries(fixture: &SyncFixture) -> i64 {
    let text =
        "SELECT CAST(coalesce(max(deliveries), 0) AS bigint) FROM {ops}.messages WHERE queue = 'work-items'";
    number(fixture, text).await
}

/// Returns whether the feed's circuit is open.
async fn is_down(fixture: &SyncFixture) -> bool {
    let feed = fixture.base.store.feed(FEED.to_owned()).await.expect("the feed is read");
    feed.circuit["state"] != "closed"
}

/// Transient errors, each more often than the client retries: the partition stays open, and the sync succeeds.
pub(crate) async fn transient_error_leaves_the_partition_open(kind: Kind) {
    for with in [FailWith::Internal, FailWith::TooManyRequests, FailWith::Graphql, FailWith::Closed] {
        let fixture = open(kind, 600).await;
        let sync = planned(&fixture, false).await;
        fixture.supplier.handle.behave(|behaviour| {
            (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (7, with, Target::Page);
        });
        let roles = fixture.roles();
        let ended = fixture.settle(&sync.ops_run_id).await;
        roles.stop().await;
        assert_eq!(ended.status, RunState::Success, "{with:?}: {}", ended.metadata);
        assert_eq!(fixture.supplier.handle.behaviour().fail_next, 0, "{with:?}: all of them were met");
        let done = reload(&fixture, &sync).await;
        assert_eq!((done.state, done.failed_workers), (SyncState::Completed, 0), "{with:?}");
        assert_eq!(alerts(&fixture).await, Vec::<String>::new(), "{with:?}");
        assert!(deliveries(&fixture).await <= 1, "{with:?} burnt a delivery");
        fixture.check_equal().await;
    }
}

/// Tokens that expire during paging: the client logs in again.
pub(crate) async fn expired_token_is_renewed(kind: Kind) {
    let fixture = open(kind, 900).await;
    let sync = planned(&fixture, false).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 25);
    let mut roles = Roles::none();
    roles.worker(&fixture.syncs, PagerOptions { pages_min: 1, pages_max: 1, once: false });
    roles.consolidator(&fixture.syncs);
    for _ in 0..3 {
        let logins = fixture.supplier.handle.stats().logins;
        fixture.supplier.handle.expire_tokens();
        until("the user signs in", || async { fixture.supplier.handle.stats().logins > logins }).await;
        let stored = number(&fixture, "SELECT count(*) FROM {ops}.pages").await;
        let pages = || async { number(&fixture, "SELECT count(*) FROM {ops}.pages").await };
        until("pages are stored", || async { pages().await > stored + 1 }).await;
    }
    let ended = fixture.settle(&sync.ops_run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert!(partitions(&fixture, &sync).await.iter().all(|part| part.faults == 0));
    fixture.check_equal().await;
}

/// A page that fails repeatedly for its own reason fails its partition after a limited number of attempts.
pub(crate) async fn page_that_never_succeeds_fails_its_partition(kind: Kind) {
    let fixture = open(kind, 600).await;
    let sync = planned(&fixture, false).await;
    fixture.supplier.handle.behave(|behaviour| {
        (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) =
            (u64::MAX, FailWith::Graphql, Target::Page);
    });
    let roles = fixture.roles();
    let ended = fixture.settle(&sync.ops_run_id).await;
    assert_eq!(ended.status, RunState::Failed);
    roles.stop().await;
    for partition in failed(&fixture, &sync).await {
        let error = partition.error.unwrap_or_default();
        assert!(error.contains("reported an error"), "{error}");
        assert!(partition.faults >= 5, "{}", partition.faults);
    }
    assert_eq!(watermark(&fixture).await, None);
    fixture.supplier.handle.behave(|behaviour| behaviour.fail_next = 0);
    fixture.syncs.retry_sync(&sync.run_id.to_string(), false, None, "ann").await.expect("it is tried again");
    plan(&fixture).await;
    work(&fixture).await;
    consolidate(&fixture).await;
    fixture.check_equal().await;
}

/// An outage during paging: the circuit opens, few requests are sent, no delivery is used, no partition fails, and the
/// sync continues when the feed recovers. The waits are those of ten minutes, shortened.
pub(crate) async fn outage_counts_no_delivery_and_recovers_alone(kind: Kind) {
    for outage in [Outage::Closed, Outage::Unavailable] {
        let fixture = open(kind, 900).await;
        fixture.supplier.handle.behave(|behaviour| {
            behaviour.latency_ms = 10;
            behaviour.retry_after_secs = 0;
        });
        let sync = planned(&fixture, false).await;
        let roles = fixture.roles();
        until("pages are stored", || async {
            number(&fixture, "SELECT count(*) FROM {ops}.pages").await > 2
        })
        .await;
        fixture.supplier.handle.behave(|behaviour| behaviour.outage = outage);
        until("the circuit opens", || is_down(&fixture)).await;
        let (before, began) = (fixture.supplier.handle.stats().requests, tokio::time::Instant::now());
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(deliveries(&fixture).await <= 1, "{outage:?} burns deliveries");
        }
        // Probes wait 100 ms, doubling up to 500 ms; each is three requests. Twice as many are allowed.
        let (requests, lasted) = (fixture.supplier.handle.stats().requests - before, began.elapsed());
        let most = 24 + 12 * (lasted.as_secs() + 1);
        assert!(requests < most, "{requests} requests in {lasted:?} of an outage");
        let open = partitions(&fixture, &sync).await;
        assert!(open.iter().all(|partition| !partition.state.failed() && partition.faults == 0), "{open:?}");
        assert_eq!(run(&fixture, &sync.ops_run_id).await.status, RunState::Running);

        fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
        let ended = fixture.settle(&sync.ops_run_id).await;
        roles.stop().await;
        assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
        assert!(deliveries(&fixture).await <= 1);
        assert_eq!(alerts(&fixture).await, Vec::<String>::new());
        fixture.check_equal().await;
    }
}

/// An outage before the first count: the scan waits, and continues when the feed recovers.
pub(crate) async fn outage_during_the_scan_is_waited_for(kind: Kind) {
    let fixture = open(kind, 600).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let roles = fixture.roles();
    let queued = fixture.queue(false).await;
    until("the circuit opens", || is_down(&fixture)).await;
    assert!(!run(&fixture, &queued).await.status.is_terminal());
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    let ended = fixture.settle(&queued).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    fixture.check_equal().await;
}

/// An outage longer than the limit fails the sync with a message, during paging and during the scan.
pub(crate) async fn too_long_outage_fails_the_sync(kind: Kind) {
    let settings = || SyncSettings { give_up_after: Duration::from_millis(1_500), ..many() };
    let words = "the feed has not answered for";
    let fixture = SyncFixture::with(kind, Config { stones: 600, ..SyncFixture::config() }, settings()).await;
    let sync = planned(&fixture, false).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Closed);
    let mut roles = Roles::none();
    roles.worker(&fixture.syncs, PagerOptions::default());
    let ended = fixture.settle_within(&sync.ops_run_id, Duration::from_mins(1)).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed);
    let broken = failed(&fixture, &sync).await;
    assert_eq!(broken.len(), usize::try_from(sync.expected_workers).unwrap_or(0));
    for partition in broken {
        let error = partition.error.unwrap_or_default();
        assert!(error.contains(words), "{error}");
    }
    assert_eq!((watermark(&fixture).await, alerts(&fixture).await.len()), (None, 1));

    let mut roles = Roles::none();
    roles.scheduler(&fixture.syncs);
    let queued = fixture.queue(false).await;
    let ended = fixture.settle_within(&queued, Duration::from_mins(1)).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Failed);
    let error = ended.metadata["error"].as_str().unwrap_or_default();
    assert!(error.contains(words) && error.contains("127.0.0.1"), "{error}");

    // The outage is over. Processes with default retry settings read it: those above would give up again if a
    // busy machine needed longer than their 1.5 s for the first page.
    fixture.supplier.handle.behave(|behaviour| behaviour.outage = Outage::Off);
    let patient = syncs(&fixture.base, many());
    let mut roles = Roles::none();
    roles.scheduler(&patient);
    roles.worker(&patient, PagerOptions::default());
    roles.consolidator(&patient);
    let retried = patient.retry_sync(&sync.run_id.to_string(), false, None, "ann").await;
    let ended = fixture.settle(&retried.expect("it is tried again").run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    fixture.check_equal().await;
}
