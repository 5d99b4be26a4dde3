//! Answers that are no answers: limits, bodies that cannot be read, errors in misleading words, counts that run ahead.

use std::time::Duration;

use tidemill_core::run::RunState;
use tidemill_supplier::{Change, Config, FailWith, Target, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill};

use crate::scene::{again, consolidate, failed, many, open, partitions, planned, until, work};

/// A wait that a feed asks for is obeyed up to the cap, however large the number is.
pub(crate) async fn a_huge_retry_after_is_capped(kind: Kind) {
    for secs in [86_400, 10_000_000_000_000] {
        for with in [FailWith::Unavailable, FailWith::TooManyRequests] {
            // A client that waits for hardly anything itself gives the wait back to whoever asked.
            let mut settings = many();
            settings.tuning.retry_after_max = Duration::from_millis(100);
            let mill = Mill::with(kind, Config { stones: 300, ..Mill::config() }, settings).await;
            let sync = planned(&mill, false).await;
            mill.supplier.handle.behave(|behaviour| {
                (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (6, with, Target::Page);
                behaviour.retry_after_secs = secs;
            });
            let roles = mill.roles();
            let ended = mill.settle_within(&sync.ops_run_id, Duration::from_mins(1)).await;
            roles.stop().await;
            assert_eq!(ended.status, RunState::Success, "{with:?} {secs}: {}", ended.metadata);
            assert!(partitions(&mill, &sync).await.iter().all(|part| part.faults == 0), "{with:?} {secs}");
            mill.check_equal().await;
        }
    }
}

/// A 429 belongs to the feed, with and without `Retry-After`: the circuit opens, and no page is charged for it.
pub(crate) async fn a_limit_is_never_counted_against_a_page(kind: Kind) {
    for with in [FailWith::BareLimit, FailWith::TooManyRequests] {
        let mill = Mill::open(kind, 300).await;
        let sync = planned(&mill, false).await;
        mill.supplier.handle.behave(|behaviour| {
            (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (u64::MAX, with, Target::Page);
            behaviour.retry_after_secs = 0;
        });
        let roles = mill.roles();
        // Five faults of one page, three requests each, fail a partition.
        until("the feed is asked often", || async { mill.supplier.handle.stats().failed > 20 }).await;
        let feed = mill.stage.store.feed(FEED.to_owned()).await.expect("the feed is read");
        assert_ne!(feed.circuit["state"], "closed", "{with:?}");
        assert!(feed.circuit_reason.unwrap_or_default().contains("429"), "{with:?}");
        let parts = partitions(&mill, &sync).await;
        assert!(parts.iter().all(|part| !part.state.failed() && part.faults == 0), "{with:?}: {parts:?}");
        mill.supplier.handle.behave(|behaviour| behaviour.fail_next = 0);
        let ended = mill.settle(&sync.ops_run_id).await;
        roles.stop().await;
        assert_eq!(ended.status, RunState::Success, "{with:?}: {}", ended.metadata);
        mill.check_equal().await;
    }
}

/// One body that cannot be read costs one more request, whether a page, a count or a lookup was asked for.
pub(crate) async fn a_single_bad_body_is_asked_again(kind: Kind) {
    let mill = open(kind, 300).await;
    let mut expected = 300;
    for (turn, with) in [FailWith::Html, FailWith::BrokenJson, FailWith::NullList].into_iter().enumerate() {
        let fail_once = |on: Target| {
            mill.supplier.handle.behave(|behaviour| {
                (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (1, with, on);
            });
        };
        let met = || mill.supplier.handle.behaviour().fail_next == 0;
        fail_once(Target::Count);
        let sync = planned(&mill, true).await;
        assert!(met(), "{with:?} on a count");
        fail_once(Target::Page);
        work(&mill).await;
        assert!(met(), "{with:?} on a page");
        assert_eq!(failed(&mill, &sync).await, [], "{with:?}");
        assert!(partitions(&mill, &sync).await.iter().all(|part| part.faults == 0), "{with:?}");
        if turn > 0 {
            fail_once(Target::Page);
        }
        assert_eq!(consolidate(&mill).await, 1, "{with:?}");
        assert!(met(), "{with:?} on a lookup");
        mill.check_equal().await;
        assert_eq!(mill.rows("active").await.len(), expected, "{with:?}");
        let seed = u64::try_from(turn).unwrap_or_default();
        mill.supplier.handle.change(&Change::some(What::Vanish, 10, seed)).expect("stones vanish");
        expected -= 10;
    }
}

/// An error whose text has the word "token" somewhere is an error like any other, and no refused login.
pub(crate) async fn an_error_that_mentions_a_token_is_no_refused_login(kind: Kind) {
    let mill = Mill::open(kind, 300).await;
    let sync = planned(&mill, false).await;
    let logins = mill.supplier.handle.stats().logins;
    mill.supplier.handle.behave(|behaviour| {
        (behaviour.fail_next, behaviour.fail_with, behaviour.fail_on) = (2, FailWith::Graphql, Target::Page);
        "Unexpected token < in JSON at position 0".clone_into(&mut behaviour.error_text);
    });
    let roles = mill.roles();
    let ended = mill.settle(&sync.ops_run_id).await;
    roles.stop().await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    assert_eq!(mill.supplier.handle.stats().logins, logins, "nobody had to log in again");
    mill.check_equal().await;
}

/// A count that is ahead of its list for a moment is asked again before the partition is read again.
pub(crate) async fn a_count_ahead_of_its_list_is_asked_again(kind: Kind) {
    let mill = Mill::open(kind, 200).await;
    let sync = planned(&mill, false).await;
    mill.supplier.handle.behave(|behaviour| behaviour.count_ahead_next = 2);
    work(&mill).await;
    assert_eq!(mill.supplier.handle.behaviour().count_ahead_next, 0, "all of them were met");
    let part = partitions(&mill, &sync).await.remove(0);
    assert!(part.state.completed(), "{part:?}");
    assert_eq!((part.pass, part.faults), (1, 0), "the list was not read again");
    consolidate(&mill).await;
    assert_eq!(again(&mill, &sync).await.failed_workers, 0);
    mill.check_equal().await;
}

/// The stone that the count knows of appears in the list while the count is asked again: it is stored too.
pub(crate) async fn a_stone_that_comes_while_counting_again_is_stored(kind: Kind) {
    let mill = Mill::open(kind, 200).await;
    let sync = planned(&mill, false).await;
    mill.supplier.handle.behave(|behaviour| behaviour.hidden = vec![199]);
    let counts = mill.supplier.handle.stats().counts;
    let supplier = mill.supplier.handle.clone();
    let shows = async {
        until("the list is counted", || async { supplier.stats().counts > counts }).await;
        supplier.behave(|behaviour| behaviour.hidden.clear());
    };
    tokio::join!(shows, work(&mill));
    let part = partitions(&mill, &sync).await.remove(0);
    assert!(part.state.completed(), "{part:?}");
    consolidate(&mill).await;
    mill.check_equal().await;
}
