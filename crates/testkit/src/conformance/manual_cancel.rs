//! The seed's manual cancellation, for callers of the database. Over HTTP, `cancel` is the operation for it.

use serde_json::json;
use tidemill_core::run::{ChangeOutcome, EndCause, FinalStatus, QueueRun, RunState};

use crate::interface::{Fixture, at, info, request};

/// The seed's manual cancellation: `finish_run(…, 'cancelled')` by a caller that does not hold the run.
pub async fn finish_as_cancelled_is_accepted_in_any_live_state(fixture: Fixture) {
    let notes = json!({"cancelled_by": "user-456", "reason": "Manual stop via console"});
    let queued = fixture.queue(QueueRun { priority: -1, ..request() }, at(0)).await;
    let claimed = fixture.queue(request(), at(0)).await;
    let running = fixture.queue(QueueRun { priority: 1, ..request() }, at(0)).await;
    fixture.claim("worker-001", at(1)).await;
    fixture.claim("worker-001", at(1)).await;
    fixture.append_event(&running, info("begin"), at(2)).await;
    let states = [RunState::Queued, RunState::Claimed, RunState::Running];
    for (run, state) in [queued, claimed, running].into_iter().zip(states) {
        assert_eq!(fixture.status(&run).await, state);
        let answer = fixture.finish(&run, FinalStatus::Cancelled, notes.clone(), at(3)).await;
        assert_eq!(answer, ChangeOutcome::Applied, "{state}");
        let ended = fixture.run(&run).await;
        assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Cancelled)));
        assert_eq!(ended.metadata, notes);
        assert_eq!(fixture.finish(&run, FinalStatus::Success, json!({}), at(4)).await, ChangeOutcome::Stale);
        assert_eq!(fixture.successor(&run).await, None);
    }
}
