//! Processes that die at any point. A killed task leaves what a killed process leaves: nothing is given back.

use tidemill_core::sync::SyncState;
use tidemill_supplier::{Change, What};
use tidemill_testkit::door::Kind;
use tidemill_testkit::mill::Mill;

use crate::ground::{Crew, Dice, Role, good, mill, planned, until};

/// Syncs in one test.
const ROUNDS: u64 = 3;

/// Lets something happen at the source, so that each sync has something to bring.
fn disturb(mill: &Mill, round: u64) {
    for (what, count) in [(What::Price, 150), (What::Media, 50), (What::Add, 20), (What::Vanish, 20)] {
        mill.supplier.handle.change(&Change::some(what, count, round)).expect("stones change");
    }
}

pub(crate) async fn schedulers_are_killed(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let mut crew = Crew::whole(&mill.syncs);
    for round in 0..ROUNDS {
        let run = mill.queue(true).await;
        // A request may lose three schedulers; here it loses two, in the middle of claim, scan and commit.
        for _ in 0..2 {
            dice.pause(150).await;
            crew.kill_one(Role::Scheduler);
        }
        good(&mill, &run).await;
        mill.check_equal().await;
        disturb(&mill, round);
    }
    crew.stop().await;
}

pub(crate) async fn workers_are_killed(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let mut crew = Crew::whole(&mill.syncs);
    for round in 0..ROUNDS {
        let run = mill.queue(true).await;
        planned(&mill, &run).await;
        // A page may lose five workers before it counts as deadly. There are two, and four die.
        for _ in 0..4 {
            dice.pause(200).await;
            crew.kill_one(Role::Worker);
        }
        let sync = good(&mill, &run).await;
        assert!(sync.expected_workers > 4, "{sync:?}");
        mill.check_equal().await;
        disturb(&mill, round);
    }
    crew.stop().await;
}

pub(crate) async fn consolidators_are_killed(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let mut crew = Crew::whole(&mill.syncs);
    for round in 0..ROUNDS {
        let run = mill.queue(true).await;
        let sync = planned(&mill, &run).await;
        // A consolidation may lose three; here both that there are die at once, and later one more.
        for count in [2, 1] {
            until("consolidation begins", || async {
                let now = mill.stage.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
                now.state != SyncState::Created && now.state != SyncState::WorkersRunning
            })
            .await;
            dice.pause(60).await;
            for _ in 0..count {
                crew.kill_one(Role::Consolidator);
            }
        }
        good(&mill, &run).await;
        mill.check_equal().await;
        disturb(&mill, round);
    }
    crew.stop().await;
}

pub(crate) async fn all_roles_are_killed_at_once(kind: Kind) {
    let (mut dice, mill) = (Dice::thrown(), mill(kind).await);
    let mut crew = Crew::whole(&mill.syncs);
    for round in 0..ROUNDS {
        let run = mill.queue(true).await;
        for _ in 0..2 {
            dice.pause(700).await;
            crew.kill_all();
        }
        good(&mill, &run).await;
        mill.check_equal().await;
        disturb(&mill, round);
        let run = mill.queue(false).await;
        dice.pause(300).await;
        crew.kill_all();
        good(&mill, &run).await;
        disturb(&mill, round + 100);
    }
    // What vanished since is gone after a full sync.
    let last = mill.queue(true).await;
    good(&mill, &last).await;
    mill.check_equal().await;
    crew.stop().await;
}
