//! Draining: a worker process that was asked to ends what it has, and takes nothing new.

use tidemill_core::run::{Applied, FinalStatus, RunState};
use tidemill_store::{ClaimRuns, RefusalCode};

use crate::door::{Stage, at, new_worker, refused, request};

/// A worker that drains gets nothing, and is told so when it beats. Others of its name are not meant, and what is
/// taken back is as if it had never been said.
pub async fn a_worker_that_drains_gets_nothing_new(stage: Stage) {
    let drains = stage.register("worker-001", at(0)).await;
    let other = stage.register("worker-001", at(0)).await;
    let first = stage.queue(request(), at(0)).await;
    let second = stage.queue(request(), at(1)).await;
    assert!(!stage.is_told_to_drain(drains, at(2)).await);
    stage.drain(drains, true).await;
    assert!(stage.is_told_to_drain(drains, at(2)).await && !stage.is_told_to_drain(other, at(2)).await);
    let before = stage.tables().await;
    for limit in [1, 10] {
        let ask = ClaimRuns { worker_id: Some(drains), limit, ..ClaimRuns::one("worker-001") };
        assert_eq!(stage.claim_as(ask, at(2)).await, []);
    }
    stage.unchanged(&before).await;
    let given = stage.claim_registered("worker-001", other, at(3)).await;
    assert_eq!(given.map(|claim| claim.run_id), Some(first), "the other one gets it");
    stage.drain(drains, false).await;
    assert!(!stage.is_told_to_drain(drains, at(4)).await);
    let given = stage.claim_registered("worker-001", drains, at(4)).await;
    assert_eq!(given.map(|claim| claim.run_id), Some(second), "it gets runs again");
}

/// What a draining worker holds goes on to its end; a claim whose answer it lost gives the same runs again.
pub async fn what_a_draining_worker_holds_goes_on(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    let run = stage.queue(request(), at(0)).await;
    stage.queue(request(), at(1)).await;
    let ask = || ClaimRuns {
        worker_id: Some(worker),
        request_id: Some("asked".to_owned()),
        ..ClaimRuns::one("worker-001")
    };
    let claims = stage.claim_as(ask(), at(2)).await;
    stage.drain(worker, true).await;
    let again = stage.claim_as(ask(), at(3)).await;
    assert_eq!(again.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&run]);
    assert!(stage.beat(worker, std::slice::from_ref(&run), at(4)).await[0].held);
    assert_eq!(stage.start(&claims[0], "worker-001", at(5)).await, Applied::Applied);
    let end = stage.finish_as(&claims[0], "worker-001", FinalStatus::Success, at(6)).await;
    assert_eq!((end, stage.status(&run).await), (Applied::Applied, RunState::Success));
    assert_eq!(stage.claim_as(ask(), at(7)).await, [], "nothing is held under that id any more");
}

/// A process that has ended has nothing to drain, and one that never was neither.
pub async fn only_a_worker_that_lives_can_be_drained(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    assert_eq!(stage.door.retire(worker, at(1)).await.ok(), Some(()));
    let before = stage.tables().await;
    for worker in [worker, new_worker("nobody").worker_id] {
        refused(stage.store.drain_worker(worker, true).await, RefusalCode::UnknownWorker);
    }
    stage.unchanged(&before).await;
}
