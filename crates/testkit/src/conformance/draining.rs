//! Draining: a worker process that was asked to ends what it has, and takes nothing new.

use tidemill_core::run::{Applied, FinalStatus, RunState};
use tidemill_core::{RunId, WorkerId};
use tidemill_store::{ClaimRuns, RefusalCode};

use crate::door::{Stage, at, new_worker, refused, request};

async fn drain(stage: &Stage, worker: WorkerId, draining: bool) {
    let worker = stage.store.drain_worker(worker, draining).await.expect("the worker is there");
    assert_eq!(worker.draining, draining);
}

fn ids(claims: Vec<tidemill_core::run::Claim>) -> Vec<RunId> {
    claims.into_iter().map(|claim| claim.run_id).collect()
}

/// A worker that drains gets nothing, and is told so when it beats. Others of its name are not meant, and what is
/// taken back is as if it had never been said.
pub async fn a_worker_that_drains_gets_nothing_new(stage: Stage) {
    let drains = stage.register("worker-001", at(0)).await;
    let other = stage.register("worker-001", at(0)).await;
    let runs = [stage.queue(request(), at(0)).await, stage.queue(request(), at(1)).await];
    let told = async |worker| {
        stage.door.beat(worker, Vec::new(), at(2)).await.expect("the beat is answered").draining
    };
    assert!(!told(drains).await);
    drain(&stage, drains, true).await;
    assert!(told(drains).await && !told(other).await);
    let before = stage.tables().await;
    for limit in [1, 10] {
        let ask = ClaimRuns { worker_id: Some(drains), limit, ..ClaimRuns::one("worker-001") };
        assert_eq!(stage.claim_as(ask, at(2)).await, []);
    }
    stage.unchanged(&before).await;
    let given = stage.claim_registered("worker-001", other, at(3)).await.expect("the other one gets it");
    assert_eq!(given.run_id, runs[0]);
    drain(&stage, drains, false).await;
    assert!(!told(drains).await);
    let given = stage.claim_registered("worker-001", drains, at(4)).await.expect("it gets runs again");
    assert_eq!(given.run_id, runs[1]);
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
    drain(&stage, worker, true).await;
    assert_eq!(ids(stage.claim_as(ask(), at(3)).await), [run.clone()]);
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
