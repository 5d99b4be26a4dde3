//! Pauses: nothing is claimed while one holds, and it ends by itself or by a person.

use tidemill_core::Timestamp;
use tidemill_core::project::{Flag, FlagName, FlagSource, project_scope};
use tidemill_core::run::QueueRun;
use tidemill_store::ClaimRuns;

use crate::door::{Stage, at, request};

async fn pause(stage: &Stage, scope: &str, until_at: Option<Timestamp>) {
    let flag = Flag {
        flag: FlagName::Paused,
        scope: scope.to_owned(),
        note: Some("the cluster is being upgraded".to_owned()),
        since: at(0),
        until_at,
        set_by: Some("ann".to_owned()),
        source: FlagSource::Manual,
    };
    assert!(stage.store.set_flag(flag).await.is_ok());
}

/// A paused project gives nothing away; other projects do, and what is held goes on.
pub async fn a_paused_project_gives_nothing_away(stage: Stage) {
    let held = stage.claimed(request(), "worker-001", at(0)).await.run_id;
    let waits = stage.queue(QueueRun { priority: 9, ..request() }, at(1)).await;
    let other = stage.queue(QueueRun::new("bank", "staging"), at(2)).await;
    pause(&stage, &project_scope("shop"), None).await;
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-001") };
    let claimed: Vec<_> = stage.claim_as(ask, at(3)).await.into_iter().map(|claim| claim.run_id).collect();
    assert_eq!(claimed, [other]);
    stage.succeed(&held, at(4)).await;
    assert!(stage.store.clear_flag(FlagName::Paused, project_scope("shop")).await.is_ok_and(|was_on| was_on));
    assert_eq!(stage.claim_id("worker-001", at(5)).await, Some(waits));
    assert!(
        stage.store.clear_flag(FlagName::Paused, project_scope("shop")).await.is_ok_and(|was_on| !was_on)
    );
}

/// A pause with an end is over at its end, without anybody's help.
pub async fn a_pause_ends_by_itself(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    pause(&stage, &project_scope("shop"), Some(at(60))).await;
    assert_eq!(stage.claim("worker-001", at(59)).await, None);
    assert_eq!(stage.claim_id("worker-001", at(60)).await, Some(run));
}

/// A paused lane holds every project of it; set again, a pause has the new end.
pub async fn a_paused_lane_holds_every_project(stage: Stage) {
    stage.queue(request(), at(0)).await;
    stage.queue(QueueRun::new("bank", "staging"), at(0)).await;
    pause(&stage, "lane:ops", Some(at(60))).await;
    pause(&stage, "lane:ops", Some(at(90))).await;
    let ask = || ClaimRuns { limit: 10, ..ClaimRuns::one("worker-001") };
    assert!(stage.claim_as(ask(), at(89)).await.is_empty());
    assert_eq!(stage.claim_as(ask(), at(90)).await.len(), 2);
    let flags = stage.store.flags().await.unwrap_or_default();
    assert_eq!(flags.len(), 1);
    assert_eq!((flags[0].until_at, flags[0].set_by.as_deref()), (Some(at(90)), Some("ann")));
}

/// What is paused can be queued for, cancelled and swept.
pub async fn a_pause_holds_claims_and_nothing_else(stage: Stage) {
    pause(&stage, "lane:ops", None).await;
    let run = stage.queue(request(), at(0)).await;
    let expiring = stage.queue(QueueRun { expires_at: Some(at(10)), ..request() }, at(0)).await;
    stage.cancel(&run, at(1)).await;
    let swept = stage.sweep(at(10)).await;
    assert_eq!(swept.iter().map(|one| &one.run_id).collect::<Vec<_>>(), [&expiring]);
}
