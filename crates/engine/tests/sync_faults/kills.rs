//! Processes that die at any point. A killed task, like a killed process, releases nothing.

use tidemill_core::sync::SyncState;
use tidemill_supplier::{Change, ChangeKind};
use tidemill_testkit::sync_fixture::SyncFixture;

use crate::fixture::{Rng, Role, RoleSet, Subject, fixture, planned, succeeded, until};

/// Syncs in one test.
const ROUNDS: u64 = 3;

/// Changes the source, so that each sync has something to do.
fn change_source(fixture: &SyncFixture, round: u64) {
    for (what, count) in
        [(ChangeKind::Price, 150), (ChangeKind::Media, 50), (ChangeKind::Add, 20), (ChangeKind::Vanish, 20)]
    {
        fixture.supplier.handle.change(&Change::random(what, count, round)).expect("records change");
    }
}

pub(crate) async fn sync_survives_killed_schedulers(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let mut roles = RoleSet::full(&fixture.syncs);
    for round in 0..ROUNDS {
        let run = fixture.queue(true).await;
        // A request may lose three schedulers; here it loses two, during claim, scan and commit.
        for _ in 0..2 {
            dice.pause(150).await;
            roles.kill_one(Role::Scheduler);
        }
        succeeded(&fixture, &run).await;
        fixture.check_equal().await;
        change_source(&fixture, round);
    }
    roles.stop().await;
}

pub(crate) async fn sync_survives_killed_workers(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let mut roles = RoleSet::full(&fixture.syncs);
    for round in 0..ROUNDS {
        let run = fixture.queue(true).await;
        planned(&fixture, &run).await;
        // A page may lose five workers before it counts as poisonous. There are two, and four die.
        for _ in 0..4 {
            dice.pause(200).await;
            roles.kill_one(Role::Worker);
        }
        let sync = succeeded(&fixture, &run).await;
        assert!(sync.expected_workers > 4, "{sync:?}");
        fixture.check_equal().await;
        change_source(&fixture, round);
    }
    roles.stop().await;
}

pub(crate) async fn sync_survives_killed_consolidators(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let mut roles = RoleSet::full(&fixture.syncs);
    for round in 0..ROUNDS {
        let run = fixture.queue(true).await;
        let sync = planned(&fixture, &run).await;
        // A consolidation may lose three; here both die at once, and later one more.
        for count in [2, 1] {
            until("consolidation begins", || async {
                let now = fixture.base.store.sync(sync.run_id.to_string()).await.expect("the sync is read");
                now.state != SyncState::Created && now.state != SyncState::WorkersRunning
            })
            .await;
            dice.pause(60).await;
            for _ in 0..count {
                roles.kill_one(Role::Consolidator);
            }
        }
        succeeded(&fixture, &run).await;
        fixture.check_equal().await;
        change_source(&fixture, round);
    }
    roles.stop().await;
}

pub(crate) async fn sync_survives_the_death_of_all_roles(subject: impl Into<Subject>) {
    let (mut dice, fixture) = (Rng::seeded(), fixture(subject).await);
    let mut roles = RoleSet::full(&fixture.syncs);
    for round in 0..ROUNDS {
        let run = fixture.queue(true).await;
        for _ in 0..2 {
            dice.pause(700).await;
            roles.kill_all();
        }
        succeeded(&fixture, &run).await;
        fixture.check_equal().await;
        change_source(&fixture, round);
        let run = fixture.queue(false).await;
        dice.pause(300).await;
        roles.kill_all();
        succeeded(&fixture, &run).await;
        change_source(&fixture, round + 100);
    }
    // A full sync finds the records that vanished since.
    let last = fixture.queue(true).await;
    succeeded(&fixture, &last).await;
    fixture.check_equal().await;
    roles.stop().await;
}
