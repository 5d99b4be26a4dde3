//! Drain: a draining worker process finishes its runs and claims nothing.

use tidemill_core::run::{ChangeOutcome, FinalStatus, RunState};
use tidemill_store::{ClaimRuns, RefusalCode};

use crate::interface::{Fixture, at, new_worker, refused, request};

/// The heartbeat reports that the worker drains. Other workers of the same name are not affected, and draining can be
/// undone.
pub async fn draining_worker_claims_nothing(fixture: Fixture) {
    let drains = fixture.register("worker-001", at(0)).await;
    let other = fixture.register("worker-001", at(0)).await;
    let first = fixture.queue(request(), at(0)).await;
    let second = fixture.queue(request(), at(1)).await;
    assert!(!fixture.is_draining(drains, at(2)).await);
    fixture.drain(drains, true).await;
    assert!(fixture.is_draining(drains, at(2)).await && !fixture.is_draining(other, at(2)).await);
    let before = fixture.tables().await;
    for limit in [1, 10] {
        let ask = ClaimRuns { worker_id: Some(drains), limit, ..ClaimRuns::one("worker-001") };
        assert_eq!(fixture.claim_as(ask, at(2)).await, []);
    }
    fixture.unchanged(&before).await;
    let given = fixture.claim_registered("worker-001", other, at(3)).await;
    assert_eq!(given.map(|claim| claim.run_id), Some(first), "the other one gets it");
    fixture.drain(drains, false).await;
    assert!(!fixture.is_draining(drains, at(4)).await);
    let given = fixture.claim_registered("worker-001", drains, at(4)).await;
    assert_eq!(given.map(|claim| claim.run_id), Some(second), "it gets runs again");
}

/// A repeated claim after a lost answer still returns the same runs.
pub async fn draining_worker_keeps_its_runs(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    let run = fixture.queue(request(), at(0)).await;
    fixture.queue(request(), at(1)).await;
    let ask = || ClaimRuns {
        worker_id: Some(worker),
        request_id: Some("asked".to_owned()),
        ..ClaimRuns::one("worker-001")
    };
    let claims = fixture.claim_as(ask(), at(2)).await;
    fixture.drain(worker, true).await;
    let again = fixture.claim_as(ask(), at(3)).await;
    assert_eq!(again.iter().map(|claim| &claim.run_id).collect::<Vec<_>>(), [&run]);
    assert!(fixture.worker_heartbeat(worker, std::slice::from_ref(&run), at(4)).await[0].held);
    assert_eq!(fixture.start(&claims[0], "worker-001", at(5)).await, ChangeOutcome::Applied);
    let end = fixture.finish_as(&claims[0], "worker-001", FinalStatus::Success, at(6)).await;
    assert_eq!((end, fixture.status(&run).await), (ChangeOutcome::Applied, RunState::Success));
    assert_eq!(fixture.claim_as(ask(), at(7)).await, [], "no run is held under that id any more");
}

pub async fn drain_of_ended_or_unknown_worker_is_refused(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    assert_eq!(fixture.interface.retire(worker, at(1)).await.ok(), Some(()));
    let before = fixture.tables().await;
    for worker in [worker, new_worker("nobody").worker_id] {
        refused(fixture.store.drain_worker(worker, true).await, RefusalCode::UnknownWorker);
    }
    fixture.unchanged(&before).await;
}
