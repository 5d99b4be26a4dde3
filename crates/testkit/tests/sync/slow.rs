//! A feed that hangs, repeats itself or counts wrongly costs its own sync, and no other.

use std::time::Duration;

use tidemill_core::feed::Watermark;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_supplier::{Change, Config, DateHeader, Running, Supplier, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{FEED, Mill, Roles};

use crate::scene::{alerts, many, number, open, planned, run as run_of, until, watermark, work};

/// A latency that no test waits for.
const HANGING_MS: u64 = 600_000;
/// How long a healthy feed may take beside a hanging one. Before, it took as long as the hanging call and its retries.
const HEALTHY_MAX: Duration = Duration::from_secs(40);

/// A mill with a second feed, `second`, from a supplier of its own.
async fn with_second(kind: Kind) -> (Mill, Running) {
    // The call of the hanging feed lasts longer than the test.
    let mut settings = many();
    settings.tuning.answer_timeout = Duration::from_millis(HANGING_MS);
    let mill = Mill::with(kind, Config { stones: 600, ..Mill::config() }, settings).await;
    let second = Supplier::bind(Config { stones: 300, ..Mill::config() }).await.expect("it listens").spawn();
    mill.add_feed("second", &second.endpoint).await;
    (mill, second)
}

async fn second_succeeds(mill: &Mill) {
    let run = mill.syncs.start("second", true, None).await.expect("the sync is queued").run_id;
    let ended = mill.settle_within(&run, HEALTHY_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
}

async fn until_asked(mill: &Mill, before: u64) {
    until("the feed is asked", || async { mill.supplier.handle.stats().requests > before }).await;
}

pub(crate) async fn hanging_page_leaves_slots_to_other_feeds(kind: Kind) {
    let (mill, _second) = with_second(kind).await;
    let sync = planned(&mill, true).await;
    let before = mill.supplier.handle.stats().requests;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = HANGING_MS);
    let roles = mill.roles();
    until_asked(&mill, before).await;
    second_succeeds(&mill).await;
    let why = async || mill.syncs.engine().why(&sync.ops_run_id).await.expect("there is a reason").sentence();
    let expected = format!("waits for feed {FEED} to answer the page at 0 of partition-");
    until("why names the page", || async { why().await.contains(&expected) }).await;

    // A cancel ends the question too: the worker stops, although the feed never answers.
    mill.syncs.cancel_sync(&sync.run_id.to_string(), "ann", None).await.expect("it is cancelled");
    until("no page is in hand", || async {
        let locked = "SELECT count(*) FROM {ops}.messages WHERE locked_by IS NOT NULL AND state = 'live'";
        number(&mill, locked).await == 0
    })
    .await;
    roles.stop().await;
}

pub(crate) async fn hanging_lookup_leaves_consolidation_to_other_feeds(kind: Kind) {
    let (mill, _second) = with_second(kind).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::some(What::Vanish, 20, 3)).expect("stones vanish");
    let sync = planned(&mill, true).await;
    work(&mill).await;
    let before = mill.supplier.handle.stats().requests;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = HANGING_MS);
    let roles = mill.roles();
    until_asked(&mill, before).await;
    second_succeeds(&mill).await;
    let why = async || mill.syncs.engine().why(&sync.ops_run_id).await.expect("there is a reason").sentence();
    let expected = format!("waits for feed {FEED} to say which records it no longer offers");
    until("why names the lookup", || async { why().await.contains(&expected) }).await;
    roles.stop().await;
}

pub(crate) async fn hanging_counts_leave_plans_to_other_feeds(kind: Kind) {
    let (mill, _second) = with_second(kind).await;
    let endpoint = mill.supplier.endpoint.clone();
    let mut hanging = vec![mill.queue(true).await];
    for number in 0..5 {
        let name = format!("hanging-{number}");
        mill.add_feed(&name, &endpoint).await;
        hanging.push(mill.syncs.start(&name, true, None).await.expect("it is queued").run_id);
    }
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = HANGING_MS);
    let roles = mill.roles();
    until_asked(&mill, 0).await;
    second_succeeds(&mill).await;

    // A cancelled run is given up, although its count is still out.
    let first = &hanging[0];
    mill.syncs.engine().cancel(first, "ann", None).await.expect("it is cancelled");
    let ended = mill.settle_within(first, HEALTHY_MAX).await;
    assert_eq!(ended.status, RunState::Cancelled, "{}", ended.metadata);
    roles.stop().await;
}

/// A supplier whose list of sold stones begins anew with every page.
pub(crate) async fn repeated_list_of_sold_stones_is_read_once(kind: Kind) {
    let mill = open(kind, 600).await;
    let roles = mill.roles();
    mill.sync(false).await;
    mill.supplier.handle.change(&Change::some(What::Sell, 60, 1)).expect("stones are sold");
    roles.stop().await;
    planned(&mill, false).await;
    work(&mill).await;
    let before = mill.supplier.handle.stats().requests;
    mill.supplier.handle.behave(|behaviour| behaviour.repeat_always = true);
    let roles = mill.roles();
    let run = mill.stage.store.syncs(None, 1).await.expect("syncs are listed").remove(0).ops_run_id;
    let ended = mill.settle(&run).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    let asked = mill.supplier.handle.stats().requests - before;
    assert!(asked <= 8, "{asked} requests for a list of 60 stones");
    let text = format!(
        "SELECT message FROM {{ops}}.run_events WHERE run_id = '{run}' AND message LIKE '%repeats its list%'"
    );
    assert_eq!(mill.stage.plain.texts(&text).await.expect("events are read").len(), 1);

    // The next full sync finds the rest.
    mill.supplier.handle.behave(|behaviour| behaviour.repeat_always = false);
    mill.sync(true).await;
    roles.stop().await;
    mill.check_equal().await;
}

pub(crate) async fn cancelled_sync_stops_reading_sold_stones(kind: Kind) {
    let mill = open(kind, 3_000).await;
    let roles = mill.roles();
    mill.sync(false).await;
    roles.stop().await;
    mill.supplier.handle.change(&Change::some(What::Sell, 2_000, 1)).expect("stones are sold");
    let sync = planned(&mill, false).await;
    work(&mill).await;
    let before = mill.supplier.handle.stats().requests;
    mill.supplier.handle.behave(|behaviour| behaviour.latency_ms = 100);
    let mut roles = Roles::none();
    roles.consolidator(&mill.syncs);
    until_asked(&mill, before).await;
    mill.syncs.cancel_sync(&sync.run_id.to_string(), "ann", None).await.expect("it is cancelled");
    let at_cancel = mill.supplier.handle.stats().requests;
    until("the message is gone", || async {
        number(&mill, "SELECT count(*) FROM {ops}.messages WHERE state = 'live'").await == 0
    })
    .await;
    let after = mill.supplier.handle.stats().requests - at_cancel;
    assert!(after <= 2, "{after} requests after the cancel");
    roles.stop().await;
    assert_eq!(run_of(&mill, &sync.ops_run_id).await.status, RunState::Cancelled);
}

pub(crate) async fn full_sync_that_counts_nothing_raises_an_alert(kind: Kind) {
    let mill = open(kind, 300).await;
    let roles = mill.roles();
    mill.sync(true).await;
    let all = mill.supplier.handle.change(&Change::some(What::Vanish, 300, 3)).expect("stones vanish").ids;
    for _ in 0..2 {
        let full = mill.sync(true).await;
        let note = full.delete_note.unwrap_or_default();
        assert!(note.contains("300 of 300"), "{note}");
        let open = "SELECT count(*) FROM {ops}.alerts WHERE kind = 'delete_limit' AND resolved_at IS NULL";
        assert_eq!(number(&mill, open).await, 1, "{:?}", alerts(&mill).await);
        assert_eq!(mill.rows("active").await.len(), 300, "nothing is deleted");
    }
    mill.supplier.handle.change(&Change::these(What::Return, all)).expect("stones return");
    mill.sync(true).await;
    roles.stop().await;
    let open = "SELECT count(*) FROM {ops}.alerts WHERE kind = 'delete_limit' AND resolved_at IS NULL";
    assert_eq!(number(&mill, open).await, 0);
    mill.check_equal().await;
}

pub(crate) async fn changes_behind_a_count_of_nothing_are_read(kind: Kind) {
    let mill = open(kind, 300).await;
    let roles = mill.roles();
    mill.sync(true).await;
    mill.supplier.handle.change(&Change::some(What::Price, 40, 2)).expect("prices change");
    mill.supplier.handle.behave(|behaviour| behaviour.count_lies_by = -1_000_000);
    let sync = mill.sync(false).await;
    assert_eq!((sync.state, sync.predicted), (SyncState::Completed, 0));
    mill.supplier.handle.behave(|behaviour| behaviour.count_lies_by = 0);
    roles.stop().await;
    mill.check_equal().await;
}

pub(crate) async fn watermark_in_the_future_is_refused(kind: Kind) {
    let mill = open(kind, 10).await;
    let now = tidemill_engine::clock::host_now();
    let mark =
        |last_updated_at| Watermark { last_updated_at, last_run_id: None, last_run_completed_at: None };
    let set = |at| mill.syncs.set_watermark(FEED, Some(mark(at)), "ann", None);
    let refused = set(now + chrono::TimeDelta::hours(1)).await.expect_err("it is refused");
    assert!(refused.to_string().contains("is in the future"), "{refused}");
    assert_eq!(watermark(&mill).await, None);
    let past = now - chrono::TimeDelta::hours(1);
    assert!(set(past).await.is_ok());
    assert!(watermark(&mill).await.is_some());
}

/// The supplier is three hours behind, and its answers have no `Date`: a change that is made after a sync is stamped
/// long before the end of that sync by our clock.
pub(crate) async fn feed_without_a_date_misses_no_change(kind: Kind) {
    let mill = open(kind, 300).await;
    let behind = tidemill_engine::clock::host_now() - chrono::TimeDelta::hours(3);
    mill.supplier.handle.set_time(Some(behind));
    mill.supplier.handle.behave(|behaviour| behaviour.date = DateHeader::Missing);
    let roles = mill.roles();
    mill.sync(true).await;
    mill.supplier.handle.set_time(Some(behind + chrono::TimeDelta::minutes(1)));
    mill.supplier.handle.change(&Change::some(What::Price, 30, 2)).expect("prices change");
    mill.sync(false).await;
    roles.stop().await;
    mill.check_equal().await;
}
