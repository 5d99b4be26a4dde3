//! A source that moves while it is read.

use std::time::Duration;

use chrono::TimeDelta;
use tidemill_core::records::Sync;
use tidemill_core::run::RunState;
use tidemill_core::sync::SyncState;
use tidemill_engine::sync::SyncSettings;
use tidemill_supplier::{Change, Churn, Mix, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::{Mill, Offsets};
use tokio::time::sleep;

use crate::ground::{Crew, Dice, Role, ended, good, mill, planned, settings, slow, until};

/// Everything alive is in the table as it is now, and nothing alive is deleted. What was removed after it was read is
/// found out by the next full sync, because a source does not list what it has not.
async fn check_alive(mill: &Mill) {
    let (alive, rows) = (mill.expected(), mill.rows("active").await);
    let wrong: Vec<_> = alive.iter().filter(|(stone, row)| rows.get(*stone) != Some(row)).take(3).collect();
    assert!(wrong.is_empty(), "not in the table as they are: {wrong:?}");
    let deleted = mill.rows("deleted").await;
    let killed: Vec<_> = deleted.keys().filter(|stone| alive.contains_key(*stone)).take(3).collect();
    assert!(killed.is_empty(), "alive, and deleted: {killed:?}");
}

/// Prices and payloads change, stones are sold, return and appear, with every page that is read: after the sync and an
/// incremental one the table is the source.
pub(crate) async fn stones_are_sold_while_the_sync_pages(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let crew = Crew::whole(&mill.syncs);
    let first = mill.queue(true).await;
    good(&mill, &first).await;
    let mix = Mix { vanish: 0, sell: 2, ..Mix::default() };
    let mut sold = 0;
    for _ in 0..3 {
        mill.supplier.handle.churn(Churn {
            per_page: 2,
            seed: dice.below(1 << 40),
            mix: mix.clone(),
            ..Churn::default()
        });
        let run = mill.queue(true).await;
        good(&mill, &run).await;
        mill.supplier.handle.churn(Churn::default());
        let run = mill.queue(false).await;
        sold += good(&mill, &run).await.deleted;
        mill.check_equal().await;
    }
    assert!(sold > 0, "nothing was sold after it had been read");
    crew.stop().await;
}

/// The same with stones that are removed without a trace, which only a full sync finds out.
pub(crate) async fn stones_change_while_the_sync_pages(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let crew = Crew::whole(&mill.syncs);
    let first = mill.queue(true).await;
    good(&mill, &first).await;
    for _ in 0..2 {
        let changed = mill.supplier.handle.stats().changed;
        mill.supplier.handle.churn(Churn { per_page: 2, seed: dice.below(1 << 40), ..Churn::default() });
        let run = mill.queue(true).await;
        let offsets = Offsets::watch(&mill, &planned(&mill, &run).await);
        good(&mill, &run).await;
        offsets.check().await;
        mill.supplier.handle.churn(Churn::default());
        assert!(mill.supplier.handle.stats().changed - changed > 50, "the source did not move");
        let run = mill.queue(false).await;
        good(&mill, &run).await;
        check_alive(&mill).await;
    }
    let last = mill.queue(true).await;
    good(&mill, &last).await;
    mill.check_equal().await;
    crew.stop().await;
}

/// Reads a whole sync, and leaves it before its consolidation.
async fn read_but_not_consolidated(mill: &Mill, crew: &mut Crew) -> (tidemill_core::RunId, Sync) {
    let run = mill.queue(true).await;
    let sync = planned(mill, &run).await;
    crew.start(Role::Worker);
    until("everything is read", || async {
        let now = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
        now.state == SyncState::ConsolidationTriggered
    })
    .await;
    (run, sync)
}

/// Three stones change after they were read: just before the sealed end, at it, and after it.
pub(crate) async fn changes_around_the_sealed_end_arrive(kind: Kind) {
    let mill = mill(kind).await;
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let (run, sync) = read_but_not_consolidated(&mill, &mut crew).await;
    let stones: Vec<String> = mill.expected().into_keys().take(3).collect();
    for (stone, secs) in stones.into_iter().zip([-1, 0, 1]) {
        let at = Some(sync.updated_to + TimeDelta::seconds(secs));
        let change = Change { at, ..Change::these(What::Price, vec![stone]) };
        mill.supplier.handle.change(&change).expect("the stone changes");
    }
    crew.start(Role::Consolidator);
    good(&mill, &run).await;
    let next = mill.queue(false).await;
    let next = good(&mill, &next).await;
    assert_eq!(next.run_type, tidemill_core::feed::RunType::Incremental);
    mill.check_equal().await;
    crew.stop().await;
}

/// A stone changes after the sealed end and before the sync is complete. Nothing is read twice here, so only a
/// watermark at the sealed end brings it; a build that takes the time of completion fails here.
pub(crate) async fn a_change_after_the_seal_is_not_passed_over(kind: Kind) {
    let settings = SyncSettings { overlap: Duration::ZERO, ..settings() };
    let mill = Mill::with(kind, slow(600, 0), settings).await;
    let mut crew = Crew::of(&mill.syncs, &[Role::Scheduler]);
    let (run, _) = read_but_not_consolidated(&mill, &mut crew).await;
    mill.supplier.handle.change(&Change::some(What::Price, 5, 1)).expect("prices change");
    // The source counts in whole seconds.
    sleep(Duration::from_millis(1_200)).await;
    crew.start(Role::Consolidator);
    assert_eq!(ended(&mill, &run).await.status, RunState::Success);
    let next = mill.queue(false).await;
    assert_eq!(ended(&mill, &next).await.status, RunState::Success);
    mill.check_equal().await;
    crew.stop().await;
}

/// Most pages are shorter than asked for. A build that takes a short page for the end fails here.
pub(crate) async fn short_pages_are_not_the_end(kind: Kind) {
    let mill = Mill::with(kind, slow(1_000, 0), settings()).await;
    mill.supplier.handle.behave(|behaviour| behaviour.short_percent = 70);
    let crew = Crew::whole(&mill.syncs);
    let run = mill.queue(true).await;
    let last = ended(&mill, &run).await;
    assert_eq!(last.status, RunState::Success, "{}", last.metadata);
    let sync = mill.record(&last.run_id).await;
    assert_eq!(sync.consolidation_processed, 1_000);
    // The end of a partition is counted again. A page that is taken for the end costs a count, and is found out by it.
    let counts = mill.supplier.handle.stats().counts;
    let bound = u64::try_from(sync.count_calls + 2 * sync.expected_workers).unwrap_or(0);
    assert!(counts <= bound, "{counts} counts, and at most {bound} are needed");
    mill.check_equal().await;
    crew.stop().await;
}
