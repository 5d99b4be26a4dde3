//! A feed that hangs, repeats itself or counts wrongly affects only its own sync.

use std::time::Duration;

use tidemill_core::feed::Watermark;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_supplier::{Change, ChangeKind, Config, DateHeader, RunningSupplier, Supplier};
use tidemill_testkit::interface::Kind;
use tidemill_testkit::sync_fixture::{FEED, Roles, SyncFixture};

use crate::fixture::{alerts, many, number, open, planned, run as run_of, until, watermark, work};

/// Latency longer than any test.
const HANGING_MS: u64 = 600_000;
/// Time limit for a healthy feed next to a hanging one. Before the fix it took as long as the hanging call and its
/// retries.
const HEALTHY_MAX: Duration = Duration::from_secs(40);

/// Opens a fixture with a second feed, `second`, from its own supplier.
async fn with_second(kind: Kind) -> (SyncFixture, RunningSupplier) {
    // The call of the hanging feed lasts longer than the test.
    let mut settings = many();
    settings.tuning.answer_timeout = Duration::from_millis(HANGING_MS);
    let fixture = SyncFixture::with(kind, Config { stones: 600, ..SyncFixture::config() }, settings).await;
    let second =
        Supplier::bind(Config { stones: 300, ..SyncFixture::config() }).await.expect("it listens").spawn();
    fixture.add_feed("second", &second.endpoint).await;
    (fixture, second)
}

async fn second_succeeds(fixture: &SyncFixture) {
    let run = fixture.syncs.start("second", true, None).await.expect("the sync is queued").run_id;
    let ended = fixture.settle_within(&run, HEALTHY_MAX).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
}

async fn until_asked(fixture: &SyncFixture, before: u64) {
    until("the feed gets a request", || async { fixture.supplier.handle.stats().requests > before }).await;
}

pub(crate) async fn hanging_page_leaves_slots_to_other_feeds(kind: Kind) {
    let (fixture, _second) = with_second(kind).await;
    let sync = planned(&fixture, true).await;
    let before = fixture.supplier.handle.stats().requests;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = HANGING_MS);
    let roles = fixture.roles();
    until_asked(&fixture, before).await;
    second_succeeds(&fixture).await;
    let why =
        async || fixture.syncs.engine().why(&sync.ops_run_id).await.expect("there is a reason").sentence();
    let expected = format!("waits for feed {FEED} to return the page at 0 of partition-");
    until("why names the page", || async { why().await.contains(&expected) }).await;

    // A cancel also ends the request: the worker stops, although the feed never answers.
    fixture.syncs.cancel_sync(&sync.run_id.to_string(), "ann", None).await.expect("it is cancelled");
    until("no page is being processed", || async {
        let locked = "SELECT count(*) FROM {ops}.messages WHERE locked_by IS NOT NULL AND state = 'live'";
        number(&fixture, locked).await == 0
    })
    .await;
    roles.stop().await;
}

pub(crate) async fn hanging_lookup_leaves_consolidation_to_other_feeds(kind: Kind) {
    let (fixture, _second) = with_second(kind).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Vanish, 20, 3)).expect("records vanish");
    let sync = planned(&fixture, true).await;
    work(&fixture).await;
    let before = fixture.supplier.handle.stats().requests;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = HANGING_MS);
    let roles = fixture.roles();
    until_asked(&fixture, before).await;
    second_succeeds(&fixture).await;
    let why =
        async || fixture.syncs.engine().why(&sync.ops_run_id).await.expect("there is a reason").sentence();
    let expected = format!("waits for feed {FEED} to return the withdrawn records");
    until("why names the lookup", || async { why().await.contains(&expected) }).await;
    roles.stop().await;
}

pub(crate) async fn hanging_counts_leave_plans_to_other_feeds(kind: Kind) {
    let (fixture, _second) = with_second(kind).await;
    let endpoint = fixture.supplier.endpoint.clone();
    let mut hanging = vec![fixture.queue(true).await];
    for number in 0..5 {
        let name = format!("hanging-{number}");
        fixture.add_feed(&name, &endpoint).await;
        hanging.push(fixture.syncs.start(&name, true, None).await.expect("it is queued").run_id);
    }
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = HANGING_MS);
    let roles = fixture.roles();
    until_asked(&fixture, 0).await;
    second_succeeds(&fixture).await;

    // A cancelled run is given up, although its count request is still open.
    let first = &hanging[0];
    fixture.syncs.engine().cancel(first, "ann", None).await.expect("it is cancelled");
    let ended = fixture.settle_within(first, HEALTHY_MAX).await;
    assert_eq!(ended.status, RunState::Cancelled, "{}", ended.metadata);
    roles.stop().await;
}

/// A supplier whose list of sold records restarts with every page.
pub(crate) async fn repeated_list_of_sold_records_is_read_once(kind: Kind) {
    let fixture = open(kind, 600).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Sell, 60, 1)).expect("records are sold");
    roles.stop().await;
    planned(&fixture, false).await;
    work(&fixture).await;
    let before = fixture.supplier.handle.stats().requests;
    fixture.supplier.handle.behave(|behaviour| behaviour.repeat_always = true);
    let roles = fixture.roles();
    let run = fixture.base.store.syncs(None, 1).await.expect("syncs are listed").remove(0).ops_run_id;
    let ended = fixture.settle(&run).await;
    assert_eq!(ended.status, RunState::Success, "{}", ended.metadata);
    let requests = fixture.supplier.handle.stats().requests - before;
    assert!(requests <= 8, "{requests} requests for a list of 60 records");
    let text = format!(
        "SELECT message FROM {{ops}}.run_events WHERE run_id = '{run}' AND message LIKE '%repeats its list%'"
    );
    assert_eq!(fixture.base.plain.texts(&text).await.expect("events are read").len(), 1);

    // The next full sync finds the rest.
    fixture.supplier.handle.behave(|behaviour| behaviour.repeat_always = false);
    fixture.sync(true).await;
    roles.stop().await;
    fixture.check_equal().await;
}

pub(crate) async fn cancelled_sync_stops_reading_sold_records(kind: Kind) {
    let fixture = open(kind, 3_000).await;
    let roles = fixture.roles();
    fixture.sync(false).await;
    roles.stop().await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Sell, 2_000, 1)).expect("records are sold");
    let sync = planned(&fixture, false).await;
    work(&fixture).await;
    let before = fixture.supplier.handle.stats().requests;
    fixture.supplier.handle.behave(|behaviour| behaviour.latency_ms = 100);
    let mut roles = Roles::none();
    roles.consolidator(&fixture.syncs);
    until_asked(&fixture, before).await;
    fixture.syncs.cancel_sync(&sync.run_id.to_string(), "ann", None).await.expect("it is cancelled");
    let at_cancel = fixture.supplier.handle.stats().requests;
    until("the message is deleted", || async {
        number(&fixture, "SELECT count(*) FROM {ops}.messages WHERE state = 'live'").await == 0
    })
    .await;
    let after = fixture.supplier.handle.stats().requests - at_cancel;
    assert!(after <= 2, "{after} requests after the cancel");
    roles.stop().await;
    assert_eq!(run_of(&fixture, &sync.ops_run_id).await.status, RunState::Cancelled);
}

pub(crate) async fn full_sync_that_counts_nothing_raises_an_alert(kind: Kind) {
    let fixture = open(kind, 300).await;
    let roles = fixture.roles();
    fixture.sync(true).await;
    let all = fixture
        .supplier
        .handle
        .change(&Change::random(ChangeKind::Vanish, 300, 3))
        .expect("records vanish")
        .ids;
    for _ in 0..2 {
        let full = fixture.sync(true).await;
        let note = full.delete_note.unwrap_or_default();
        assert!(note.contains("300 of 300"), "{note}");
        let open = "SELECT count(*) FROM {ops}.alerts WHERE kind = 'delete_limit' AND resolved_at IS NULL";
        assert_eq!(number(&fixture, open).await, 1, "{:?}", alerts(&fixture).await);
        assert_eq!(fixture.rows("active").await.len(), 300, "no record is deleted");
    }
    fixture.supplier.handle.change(&Change::of_ids(ChangeKind::Return, all)).expect("records return");
    fixture.sync(true).await;
    roles.stop().await;
    let open = "SELECT count(*) FROM {ops}.alerts WHERE kind = 'delete_limit' AND resolved_at IS NULL";
    assert_eq!(number(&fixture, open).await, 0);
    fixture.check_equal().await;
}

pub(crate) async fn changes_behind_a_count_of_nothing_are_read(kind: Kind) {
    let fixture = open(kind, 300).await;
    let roles = fixture.roles();
    fixture.sync(true).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 40, 2)).expect("prices change");
    fixture.supplier.handle.behave(|behaviour| behaviour.count_lies_by = -1_000_000);
    let sync = fixture.sync(false).await;
    assert_eq!((sync.state, sync.predicted), (SyncState::Completed, 0));
    fixture.supplier.handle.behave(|behaviour| behaviour.count_lies_by = 0);
    roles.stop().await;
    fixture.check_equal().await;
}

pub(crate) async fn watermark_in_the_future_is_refused(kind: Kind) {
    let fixture = open(kind, 10).await;
    let now = tidemill_engine::clock::host_now();
    let mark =
        |last_updated_at| Watermark { last_updated_at, last_run_id: None, last_run_completed_at: None };
    let set = |at| fixture.syncs.set_watermark(FEED, Some(mark(at)), "ann", None);
    let refused = set(now + chrono::TimeDelta::hours(1)).await.expect_err("it is refused");
    assert!(refused.to_string().contains("is in the future"), "{refused}");
    assert_eq!(watermark(&fixture).await, None);
    let past = now - chrono::TimeDelta::hours(1);
    assert!(set(past).await.is_ok());
    assert!(watermark(&fixture).await.is_some());
}

/// The supplier is three hours behind, and its responses have no `Date`: a change after a sync has a timestamp long
/// before the end of that sync by our clock.
pub(crate) async fn feed_without_a_date_misses_no_change(kind: Kind) {
    let fixture = open(kind, 300).await;
    let behind = tidemill_engine::clock::host_now() - chrono::TimeDelta::hours(3);
    fixture.supplier.handle.set_time(Some(behind));
    fixture.supplier.handle.behave(|behaviour| behaviour.date = DateHeader::Missing);
    let roles = fixture.roles();
    fixture.sync(true).await;
    fixture.supplier.handle.set_time(Some(behind + chrono::TimeDelta::minutes(1)));
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 30, 2)).expect("prices change");
    fixture.sync(false).await;
    roles.stop().await;
    fixture.check_equal().await;
}
