//! Pause: no claims while it lasts; it ends at its end time or by a person.

use tidemill_core::Timestamp;
use tidemill_core::project::{Flag, FlagName, FlagSource, project_scope};
use tidemill_core::run::QueueRun;
use tidemill_store::ClaimRuns;

use crate::interface::{Fixture, at, request};

async fn pause(fixture: &Fixture, scope: &str, until_at: Option<Timestamp>) {
    let flag = Flag {
        flag: FlagName::Paused,
        scope: scope.to_owned(),
        note: Some("the cluster is being upgraded".to_owned()),
        since: at(0),
        until_at,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    };
    assert!(fixture.store.set_flag(flag).await.is_ok());
}

/// Other projects are not affected, and held runs continue.
pub async fn paused_project_gives_no_claims(fixture: Fixture) {
    let held = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    let waits = fixture.queue(QueueRun { priority: 9, ..request() }, at(1)).await;
    let other = fixture.queue(QueueRun::new("bank", "staging"), at(2)).await;
    pause(&fixture, &project_scope("shop"), None).await;
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-001") };
    let claimed: Vec<_> = fixture.claim_as(ask, at(3)).await.into_iter().map(|claim| claim.run_id).collect();
    assert_eq!(claimed, [other]);
    fixture.succeed(&held, at(4)).await;
    assert!(
        fixture.store.clear_flag(FlagName::Paused, project_scope("shop")).await.is_ok_and(|was_on| was_on)
    );
    assert_eq!(fixture.claim_id("worker-001", at(5)).await, Some(waits));
    assert!(
        fixture.store.clear_flag(FlagName::Paused, project_scope("shop")).await.is_ok_and(|was_on| !was_on)
    );
}

pub async fn pause_ends_at_its_end_time(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    pause(&fixture, &project_scope("shop"), Some(at(60))).await;
    assert_eq!(fixture.claim("worker-001", at(59)).await, None);
    assert_eq!(fixture.claim_id("worker-001", at(60)).await, Some(run));
}

/// Setting a pause again changes its end.
pub async fn paused_lane_blocks_every_project(fixture: Fixture) {
    fixture.queue(request(), at(0)).await;
    fixture.queue(QueueRun::new("bank", "staging"), at(0)).await;
    pause(&fixture, "lane:ops", Some(at(60))).await;
    pause(&fixture, "lane:ops", Some(at(90))).await;
    let ask = || ClaimRuns { limit: 10, ..ClaimRuns::one("worker-001") };
    assert!(fixture.claim_as(ask(), at(89)).await.is_empty());
    assert_eq!(fixture.claim_as(ask(), at(90)).await.len(), 2);
    let flags = fixture.store.flags().await.unwrap_or_default();
    assert_eq!(flags.len(), 1);
    assert_eq!((flags[0].until_at, flags[0].set_by.as_deref()), (Some(at(90)), Some("ann")));
}

/// Runs of a paused project can be queued, cancelled and swept.
pub async fn pause_blocks_only_claims(fixture: Fixture) {
    pause(&fixture, "lane:ops", None).await;
    let run = fixture.queue(request(), at(0)).await;
    let expiring = fixture.queue(QueueRun { expires_at: Some(at(10)), ..request() }, at(0)).await;
    fixture.cancel(&run, at(1)).await;
    let swept = fixture.sweep(at(10)).await;
    assert_eq!(swept.iter().map(|one| &one.run_id).collect::<Vec<_>>(), [&expiring]);
}
