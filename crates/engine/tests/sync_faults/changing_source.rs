//! A source that changes while it is read.

use std::time::Duration;

use chrono::TimeDelta;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::SyncSettings;
use tidemill_supplier::{Change, ChangeKind, ChangeMix, Churn};
use tidemill_testkit::rest_fixture::ITEMS;
use tidemill_testkit::sync_fixture::{Offsets, SyncFixture};
use tokio::time::sleep;

use crate::fixture::{
    Rng, Role, RoleSet, Subject, ended, fixture, open, planned, settings, slow, succeeded, until,
};

/// Checks that every live record is in the table with its current data, and that none is deleted. Records removed after
/// they were read are found by the next full sync, because a source does not list them.
async fn check_alive(fixture: &SyncFixture) {
    let (alive, rows) = (fixture.expected(), fixture.rows("active").await);
    let wrong: Vec<_> = alive.iter().filter(|(record, row)| rows.get(*record) != Some(row)).take(3).collect();
    assert!(wrong.is_empty(), "not in the table as they are: {wrong:?}");
    let deleted = fixture.rows("deleted").await;
    let killed: Vec<_> = deleted.keys().filter(|record| alive.contains_key(*record)).take(3).collect();
    assert!(killed.is_empty(), "alive, and deleted: {killed:?}");
}

/// Prices and payloads change, records are sold, return and appear with every page: after the sync and an incremental
/// one the table equals the source.
pub(crate) async fn records_sold_during_paging_are_handled(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let roles = RoleSet::full(&fixture.syncs);
    let first = fixture.queue(true).await;
    succeeded(&fixture, &first).await;
    let mix = ChangeMix { vanish: 0, sell: 2, ..ChangeMix::default() };
    let mut sold = 0;
    for _ in 0..3 {
        fixture.supplier.handle.churn(Churn {
            per_page: 2,
            seed: dice.below(1 << 40),
            mix: mix.clone(),
            ..Churn::default()
        });
        let run = fixture.queue(true).await;
        succeeded(&fixture, &run).await;
        fixture.supplier.handle.churn(Churn::default());
        let run = fixture.queue(false).await;
        sold += succeeded(&fixture, &run).await.deleted;
        fixture.check_equal().await;
    }
    // An incremental sync of the items contains sold ones with their flag, so it need not look for them.
    assert!(sold > 0 || fixture.feed == ITEMS, "no record was sold after it had been read");
    roles.stop().await;
}

/// Also with records that are removed without a trace, which only a full sync detects.
pub(crate) async fn records_changed_during_paging_are_handled(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let roles = RoleSet::full(&fixture.syncs);
    let first = fixture.queue(true).await;
    succeeded(&fixture, &first).await;
    for _ in 0..2 {
        let changed = fixture.supplier.handle.stats().changed;
        fixture.supplier.handle.churn(Churn { per_page: 2, seed: dice.below(1 << 40), ..Churn::default() });
        let run = fixture.queue(true).await;
        let offsets = Offsets::watch(&fixture, &planned(&fixture, &run).await);
        succeeded(&fixture, &run).await;
        offsets.check().await;
        fixture.supplier.handle.churn(Churn::default());
        assert!(fixture.supplier.handle.stats().changed - changed > 50, "the source did not move");
        let run = fixture.queue(false).await;
        succeeded(&fixture, &run).await;
        check_alive(&fixture).await;
    }
    let last = fixture.queue(true).await;
    succeeded(&fixture, &last).await;
    fixture.check_equal().await;
    roles.stop().await;
}

/// Reads a complete sync, and stops before its consolidation.
async fn read_but_not_consolidated(
    fixture: &SyncFixture,
    roles: &mut RoleSet,
) -> (tidemill_core::RunId, Sync) {
    let run = fixture.queue(true).await;
    let sync = planned(fixture, &run).await;
    roles.start(Role::Worker);
    until("everything is read", || async {
        let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        now.state == SyncState::ConsolidationTriggered
    })
    .await;
    (run, sync)
}

/// Three records change after they were read: just before the end of the window, at it, and after it.
pub(crate) async fn changes_around_the_window_end_arrive(subject: impl Into<Subject>) {
    let fixture = fixture(subject).await;
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let (run, sync) = read_but_not_consolidated(&fixture, &mut roles).await;
    let records: Vec<String> = fixture.expected().into_keys().take(3).collect();
    for (record, secs) in records.into_iter().zip([-1, 0, 1]) {
        let at = Some(sync.updated_to + TimeDelta::seconds(secs));
        let change = Change { at, ..Change::of_ids(ChangeKind::Price, vec![record]) };
        fixture.supplier.handle.change(&change).expect("the record changes");
    }
    roles.start(Role::Consolidator);
    succeeded(&fixture, &run).await;
    let next = fixture.queue(false).await;
    let next = succeeded(&fixture, &next).await;
    assert_eq!(next.run_type, tidemill_core::feed::RunType::Incremental);
    fixture.check_equal().await;
    roles.stop().await;
}

/// A record changes after the end of the window and before the sync completes. Nothing is read twice here, so only a
/// watermark at the end of the window includes it; a build that uses the time of completion fails here.
pub(crate) async fn change_after_the_window_end_is_not_skipped(subject: impl Into<Subject>) {
    let settings = SyncSettings { overlap: Duration::ZERO, ..settings() };
    let fixture = open(subject, slow(600, 0), settings).await;
    let mut roles = RoleSet::of(&fixture.syncs, &[Role::Scheduler]);
    let (run, _) = read_but_not_consolidated(&fixture, &mut roles).await;
    fixture.supplier.handle.change(&Change::random(ChangeKind::Price, 5, 1)).expect("prices change");
    // The source has timestamps in whole seconds.
    sleep(Duration::from_millis(1_200)).await;
    roles.start(Role::Consolidator);
    assert_eq!(ended(&fixture, &run).await.status, RunState::Success);
    let next = fixture.queue(false).await;
    assert_eq!(ended(&fixture, &next).await.status, RunState::Success);
    fixture.check_equal().await;
    roles.stop().await;
}

/// Most pages are shorter than requested. A build that takes a short page for the end fails here.
pub(crate) async fn short_page_does_not_end_the_partition(subject: impl Into<Subject>) {
    let fixture = open(subject, slow(1_000, 0), settings()).await;
    fixture.supplier.handle.behave(|behaviour| behaviour.short_percent = 70);
    let roles = RoleSet::full(&fixture.syncs);
    let run = fixture.queue(true).await;
    let last = ended(&fixture, &run).await;
    assert_eq!(last.status, RunState::Success, "{}", last.metadata);
    let sync = fixture.record(&last.run_id).await;
    assert_eq!(sync.consolidation_processed, 1_000);
    // The end of a partition is counted again. A page taken for the end costs a count, which detects it.
    let counts = fixture.supplier.handle.stats().counts;
    let bound = u64::try_from(sync.count_calls + 2 * sync.expected_workers).unwrap_or(0);
    assert!(counts <= bound, "{counts} counts, and at most {bound} are needed");
    fixture.check_equal().await;
    roles.stop().await;
}
