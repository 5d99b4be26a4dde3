//! Invalid responses of a feed: rate limits, unreadable bodies, misleading errors, counts that run ahead.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_supplier::{Change, ChangeKind, Config, FailWith, Target};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, SyncFixture};

use crate::fixture::{consolidate, failed, many, open, partitions, planned, reload, until, work};

/// A requested wait is obeyed up to the cap.
pub(crate) async fn huge_retry_after_is_capped(kind: Kind) {
    for secs in [86_400, 10_000_000_000_000] {
        for with in [FailWith::Unavailable, FailWith::TooManyRequests] {
            // A client with a very short limit of its own returns the wait to its caller.
            let mut settings = many();
            settings.tuning.retry_after_max = Duration::from_millis(100);
            let fixture =
                SyncFixture::with(kind, Config { stones: 300, ..SyncFixture::config() }, settings).await;
            let sync = planned(&fixture, false).await;
            fixture.supplier.handle.behave(|behaviour| {
                (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (6, with, Target::Page);
                behaviour.retry_after_secs = secs;
            });
            let roles = fixture.roles();
            let ended = fixture.settle_within(&sync.ops_run_id, Duration::from_mins(1)).await;
            roles.stop().await;
            assert_eq!(ended.status, RunState::Success, "{with:?} {secs}: {}", ended.metadata);
            assert!(partitions(&fixture, &sync).await.iter().all(|part| part.faults == 0), "{with:?} {secs}");
            fixture.check_equal().await;
        }
    }
}

/// A 429 concerns the feed, with and without `Retry-After`: the circuit opens, and no page is charged.
pub(crate) async fn rate_limit_is_not_counted_as_a_page_failure(kind: Kind) {
    for with in [FailWith::BareLimit, FailWith::TooManyRequests] {
        let fixture = SyncFixture::open(kind, 300).await;
        let sync = planned(&fixture, false).await;
        fixture.supplier.handle.behave(|behaviour| {
            (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (u64::MAX, with, Target::Page);
            behaviour.retry_after_secs = 0;
        });
        let roles = fixture.roles();
        // Five failures of one page, three requests each, would fail a partition.
        until("the feed gets many requests", || async { fixture.supplier.handle.stats().failed > 20 }).await;
        let feed = fixture.base.store.feed(FEED.to_owned()).await.expect("the feed is read");
        assert_ne!(feed.circuit["state"], "closed", "{with:?}");
        assert!(feed.circuit_reason.unwrap_or_default().contains("429"), "{with:?}");
        let parts = partitions(&fixture, &sync).await;
        assert!(parts.iter().all(|part| !part.state.failed() && part.faults == 0), "{with:?}: {parts:?}");
        fixture.supplier.handle.behave(|behaviour| behaviour.fail_next = 0);
        let ended = fixture.settle(&sync.ops_run_id).await;
        roles.stop().await;
        assert_eq!(ended.status, RunState::Success, "{with:?}: {}", ended.metadata);
        fixture.check_equal().await;
    }
}

/// One unreadable body costs one more request, for a page, a count and a lookup.
pub(crate) async fn single_unreadable_body_is_retried(kind: Kind) {
    let fixture = open(kind, 300).await;
    let mut expected = 300;
    for (turn, with) in [FailWith::Html, FailWith::BrokenJson, FailWith::NullList].into_iter().enumerate() {
        let fail_once = |on: Target| {
            fixture.supplier.handle.behave(|behaviour| {
                (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (1, with, on);
            });
        };
        let met = || fixture.supplier.handle.behaviour().fail_next == 0;
        fail_once(Target::Count);
        let sync = planned(&fixture, true).await;
        assert!(met(), "{with:?} on a count");
        fail_once(Target::Page);
        work(&fixture).await;
        assert!(met(), "{with:?} on a page");
        assert_eq!(failed(&fixture, &sync).await, [], "{with:?}");
        assert!(partitions(&fixture, &sync).await.iter().all(|part| part.faults == 0), "{with:?}");
        if turn > 0 {
            fail_once(Target::Page);
        }
        assert_eq!(consolidate(&fixture).await, 1, "{with:?}");
        assert!(met(), "{with:?} on a lookup");
        fixture.check_equal().await;
        assert_eq!(fixture.rows("active").await.len(), expected, "{with:?}");
        let seed = u64::try_from(turn).unwrap_or_default();
        fixture
            .supplier
            .handle
            .change(&Change::random(ChangeKind::Vanish, 10, seed))
            .expect("records vanish");
        expected -= 10;
    }
}

/// An error whose text contains the word "token" is not a refused login.
pub(crate) async fn error_mentioning_a_token_is_not_a_login_failure(kind: Kind) {
    let fixture = SyncFixture::open(kind, 300).await;
    let sync = planned(&fixture, false).await;
    let logins = fixture.supplier.handle.stats().logins;
    fixture.supplier.handle.behave(|behaviour| {
        (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (2, FailWith::Graphql, Target::Page);
        "Unexpected token < in JSON at position 0".clone_into(&mut behaviour.error_text);
    });
    let roles = fixture.roles();
    let ended = fixture.settle(&sync.ops_run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(fixture.supplier.handle.stats().logins, logins, "no new login was needed");
    fixture.check_equal().await;
}

/// A count that is ahead of its list for a moment is repeated before the partition is read again.
pub(crate) async fn count_ahead_of_its_list_is_repeated(kind: Kind) {
    let fixture = SyncFixture::open(kind, 200).await;
    let sync = planned(&fixture, false).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.count_ahead_next = 2);
    work(&fixture).await;
    assert_eq!(fixture.supplier.handle.behaviour().count_ahead_next, 0, "all of them were met");
    let part = partitions(&fixture, &sync).await.remove(0);
    assert!(part.state.completed(), "{part:?}");
    assert_eq!((part.pass, part.faults), (1, 0), "the list was not read again");
    consolidate(&fixture).await;
    assert_eq!(reload(&fixture, &sync).await.failed_workers, 0);
    fixture.check_equal().await;
}

/// The counted record appears in the list while the count is repeated.
pub(crate) async fn record_added_during_a_recount_is_stored(kind: Kind) {
    let fixture = SyncFixture::open(kind, 200).await;
    let sync = planned(&fixture, false).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.hidden = vec![199]);
    let counts = fixture.supplier.handle.stats().counts;
    let supplier = fixture.supplier.handle.clone();
    let shows = async {
        until("the list is counted", || async { supplier.stats().counts > counts }).await;
        supplier.behave(|behaviour| behaviour.hidden.clear());
    };
    tokio::join!(shows, work(&fixture));
    let part = partitions(&fixture, &sync).await.remove(0);
    assert!(part.state.completed(), "{part:?}");
    consolidate(&fixture).await;
    fixture.check_equal().await;
}
