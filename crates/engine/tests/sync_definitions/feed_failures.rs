//! Failing requests, short pages and outages during syncs of a REST API: the table equals the source.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_supplier::{FailWith, Outage, RestKind, Target};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::rest_fixture::RestFixture;
use tokio::time::{Instant, sleep};

const ITEMS: u32 = 300;

/// Each failure hits a count and a page of a sync, which retries them.
pub(crate) async fn single_failures_are_retried((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, ITEMS).await;
    let roles = fixture.base.roles();
    let source = &fixture.base.supplier.handle;
    for fail_with in [
        FailWith::TooManyRequests,
        FailWith::BareLimit,
        FailWith::Internal,
        FailWith::BadGateway,
        FailWith::Unavailable,
        FailWith::Html,
        FailWith::BrokenJson,
        FailWith::Closed,
    ] {
        for fail_on in [Target::Count, Target::Page] {
            source.behave(|behaviour| {
                (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (1, fail_with, fail_on);
                behaviour.retry_after_secs = 0;
            });
            fixture.sync(true).await;
            assert_eq!(source.behaviour().fail_next, 0, "{fail_with:?} on {fail_on:?} did not happen");
            fixture.check_equal().await;
        }
    }
    roles.stop().await;
}

/// The source is down for a while in the middle of a sync.
pub(crate) async fn outage_during_a_sync_is_waited_out((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, ITEMS).await;
    let roles = fixture.base.roles();
    let source = &fixture.base.supplier.handle;
    for outage in [Outage::Closed, Outage::Unavailable] {
        source.behave(|behaviour| behaviour.latency_ms = 20);
        let before = source.stats().pages;
        let run = fixture.queue(true).await;
        until("pages are read", || source.stats().pages >= before + 3).await;
        source.behave(|behaviour| (behaviour.outage, behaviour.latency_ms) = (outage, 0));
        let before = source.stats().requests;
        until("requests are refused", || source.stats().requests >= before + 5).await;
        source.behave(|behaviour| behaviour.outage = Outage::Off);
        let ended = fixture.base.settle(&run).await;
        assert_eq!(ended.status, RunState::Success, "{outage:?}: {}", ended.metadata);
        fixture.check_equal().await;
    }
    roles.stop().await;
}

/// Waits until a condition holds, up to a minute.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_mins(1), "{what}: not within a minute");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Most pages are shorter than requested. A numbered page that is short would hide records, so such a source must not
/// be read by numbers.
pub(crate) async fn short_pages_lose_nothing((kind, pagination): (Kind, RestKind)) {
    let fixture = RestFixture::open(kind, pagination, ITEMS).await;
    let roles = fixture.base.roles();
    fixture.base.supplier.handle.behave(|behaviour| behaviour.short_percent = 70);
    fixture.sync(true).await;
    fixture.check_equal().await;
    roles.stop().await;
}
