//! Concurrency keys: one run at a time, in order, and the key always goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::{Claim, FinalStatus, Gate, QueueRun, RunState};
use tidemill_store::{Cancelled, ClaimRuns};
use tokio::sync::Mutex;

use super::at_once;
use crate::door::{Stage, at, new_run_id, request};

fn keyed(key: &str) -> QueueRun {
    QueueRun { concurrency_key: Some(key.to_owned()), ..request() }
}

/// Two runs of one key: the second is not claimed while the first is held, nor shown as ready.
pub async fn of_two_runs_with_one_key_the_second_waits(stage: Stage) {
    let first = stage.queue(keyed("deploy"), at(0)).await;
    let second = stage.queue(keyed("deploy"), at(1)).await;
    let gates = async || (stage.run(&first).await.gate, stage.run(&second).await.gate);
    assert_eq!(gates().await, (Some(Gate::Open), Some(Gate::Key)));
    assert_eq!(stage.claim_id("worker-001", at(2)).await, Some(first.clone()));
    assert_eq!(stage.claim("worker-002", at(2)).await, None);
    assert_eq!(gates().await, (None, Some(Gate::Key)));
    stage.say(&first, crate::door::info("begin"), at(3)).await;
    assert_eq!(stage.claim("worker-002", at(3)).await, None);
    stage.succeed(&first, at(4)).await;
    assert_eq!(gates().await, (None, Some(Gate::Open)));
    assert_eq!(stage.claim_id("worker-002", at(5)).await, Some(second));
}

/// A caller whose connection broke asks again under the same run id while its first call is still at it: whichever of
/// them comes too late gives nothing away.
pub async fn a_run_that_is_queued_twice_at_one_instant_keeps_its_key(stage: Stage) {
    for round in 0..12_i64 {
        let begin = round * 10;
        let run = new_run_id(at(begin));
        let answers = at_once(16, |_| {
            let (stage, run) = (stage.clone(), run.clone());
            async move { stage.door.queue(keyed("deploy"), run, at(begin)).await }
        })
        .await;
        let created = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|queued| queued.created));
        assert_eq!(created.count(), 1, "one of them made it: {answers:?}");
        let next = stage.queue(keyed("deploy"), at(begin + 1)).await;
        assert_eq!(stage.run(&next).await.gate, Some(Gate::Key), "the key was given away");
        assert_eq!(stage.claim_id("worker-001", at(begin + 2)).await, Some(run.clone()));
        assert_eq!(stage.claim("worker-002", at(begin + 2)).await, None);
        stage.succeed(&run, at(begin + 3)).await;
        assert_eq!(stage.claim_id("worker-002", at(begin + 4)).await, Some(next.clone()));
        stage.succeed(&next, at(begin + 5)).await;
    }
    stage.sweep(at(1_000)).await;
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.concurrency_keys").await.ok(), Some(0));
}

/// The same key in another project, and another key in the same, are other keys.
pub async fn a_key_belongs_to_its_project(stage: Stage) {
    for wanted in
        [keyed("deploy"), QueueRun { project: "bank".to_owned(), ..keyed("deploy") }, keyed("backup")]
    {
        stage.queue(wanted, at(0)).await;
    }
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-001") };
    assert_eq!(stage.claim_as(ask, at(1)).await.len(), 3);
}

/// A unique index would abort the whole batch; here it takes everything else.
pub async fn a_batch_beside_a_held_key_loses_nothing(stage: Stage) {
    let holder = stage.claimed(keyed("deploy"), "worker-001", at(0)).await;
    let waiting = stage.queue(keyed("deploy"), at(1)).await;
    let mut free = vec![stage.queue(request(), at(2)).await, stage.queue(keyed("backup"), at(3)).await];
    free.sort();
    stage.queue(keyed("backup"), at(4)).await;
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-002") };
    let mut claimed: Vec<_> =
        stage.claim_as(ask, at(5)).await.into_iter().map(|claim| claim.run_id).collect();
    claimed.sort();
    assert_eq!(claimed, free, "one run of each key, and every run without one");
    assert_eq!(stage.status(&waiting).await, RunState::Queued);
    assert_eq!(stage.status(&holder.run_id).await, RunState::Claimed);
}

/// Workers with batches and singles race for runs of three keys. Whoever holds two of one key at a time is caught;
/// in the end every run is done.
pub async fn workers_that_race_never_hold_two_runs_of_one_key(stage: Stage) {
    let mut keys = BTreeMap::new();
    for number in 0..48_i64 {
        let key = format!("key-{}", number % 3);
        let wanted = QueueRun { priority: i32::try_from(number % 5).unwrap_or_default(), ..keyed(&key) };
        keys.insert(stage.queue(wanted, at(number)).await, key);
    }
    let (total, keys) = (keys.len(), Arc::new(keys));
    let held: Arc<Mutex<BTreeMap<String, RunId>>> = Arc::default();
    let done = Arc::new(AtomicUsize::new(0));
    at_once(8, |number| {
        let (stage, keys, held, done) = (stage.clone(), keys.clone(), held.clone(), done.clone());
        async move {
            let worker = format!("worker-{number}");
            for _ in 0..2_000 {
                if done.load(Ordering::SeqCst) == total {
                    return;
                }
                let ask = ClaimRuns { limit: 1 + number % 3, ..ClaimRuns::one(&worker) };
                for claim in stage.claim_as(ask, at(100)).await {
                    let key = keys[&claim.run_id].clone();
                    let other = held.lock().await.insert(key.clone(), claim.run_id.clone());
                    assert_eq!(other, None, "{key} was held by another run");
                    tokio::task::yield_now().await;
                    held.lock().await.remove(&key);
                    stage.succeed(&claim.run_id, at(101)).await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
                // A key whose next in line was just being changed gets its head back from the sweeper.
                if number == 0 {
                    stage.sweep(at(102)).await;
                }
            }
        }
    })
    .await;
    assert_eq!(done.load(Ordering::SeqCst), total, "the line stands still");
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.concurrency_keys").await.ok(), Some(0));
}

/// Sets the scene for an end: one run of the key is running, another waits. Its end must open the other.
async fn holder_and_next(stage: &Stage) -> (Claim, RunId) {
    let holder = stage.running(keyed("deploy"), "worker-001", at(0)).await;
    let next = stage.queue(keyed("deploy"), at(1)).await;
    assert_eq!(stage.claim("worker-002", at(1)).await, None);
    (holder, next)
}

/// Success passes the key on, and the last one takes the key with it.
pub async fn the_key_goes_on_when_its_holder_succeeds(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    stage.succeed(&holder.run_id, at(2)).await;
    assert_eq!(stage.claim_id("worker-002", at(3)).await, Some(next.clone()));
    stage.succeed(&next, at(4)).await;
    stage.sweep(at(5)).await;
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.concurrency_keys").await.ok(), Some(0));
}

/// Failure passes the key on.
pub async fn the_key_goes_on_when_its_holder_fails(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    stage.fail(&holder.run_id, at(2)).await;
    assert_eq!(stage.claim_id("worker-002", at(3)).await, Some(next));
}

/// A cancel passes the key on when the worker confirms it, and when the grace period is over.
pub async fn the_key_goes_on_when_its_holder_is_cancelled(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    let last = stage.queue(keyed("deploy"), at(2)).await;
    assert_eq!(stage.cancel(&holder.run_id, at(2)).await, Cancelled::Requested);
    assert_eq!(stage.claim("worker-002", at(3)).await, None, "asked is not stopped");
    stage.finish(&holder.run_id, FinalStatus::Cancelled, json!({}), at(4)).await;
    assert_eq!(stage.claim_id("worker-002", at(5)).await, Some(next.clone()));
    assert_eq!(stage.cancel(&next, at(6)).await, Cancelled::Requested);
    stage.sweep(at(36)).await;
    assert_eq!(stage.claim_id("worker-002", at(37)).await, Some(last));
}

/// The loss of a worker passes the key on; the successor of the lost run stands in line behind who waited.
pub async fn the_key_goes_on_when_its_holder_is_lost(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    let swept = stage.sweep(at(301)).await;
    assert_eq!(swept.len(), 1);
    let Some(successor) = swept[0].successor.clone() else { panic!("there is no successor") };
    assert_eq!(swept[0].run_id, holder.run_id);
    assert_eq!(stage.run(&successor).await.gate, Some(Gate::Open), "it keeps the place of its request");
    assert_eq!(stage.run(&next).await.gate, Some(Gate::Key));
    assert_eq!(stage.claim_id("worker-002", at(302)).await, Some(successor.clone()));
    assert_eq!(stage.claim("worker-003", at(302)).await, None);
    stage.succeed(&successor, at(303)).await;
    assert_eq!(stage.claim_id("worker-003", at(304)).await, Some(next));
}

/// An operator's plain statement passes the key on too.
pub async fn the_key_goes_on_when_a_plain_statement_ends_its_holder(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    let text = format!("UPDATE {{ops}}.runs SET status = 'cancelled' WHERE run_id = '{}'", holder.run_id);
    assert_eq!(stage.plain.execute(&text).await.ok(), Some(1));
    assert_eq!(stage.claim_id("worker-002", at(3)).await, Some(next));
}

/// The end of a run that only waits for its key leaves the holder alone and the line whole.
pub async fn a_run_that_leaves_the_line_changes_nothing_for_the_others(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    let last = stage.queue(keyed("deploy"), at(2)).await;
    assert_eq!(stage.cancel(&next, at(2)).await, Cancelled::Cancelled);
    assert_eq!(stage.claim("worker-002", at(3)).await, None);
    stage.succeed(&holder.run_id, at(4)).await;
    assert_eq!(stage.claim_id("worker-002", at(5)).await, Some(last));
}

/// The head that nobody has claimed goes: the next one becomes the head.
pub async fn a_head_that_is_cancelled_before_its_claim_makes_way(stage: Stage) {
    let head = stage.queue(keyed("deploy"), at(0)).await;
    let next = stage.queue(keyed("deploy"), at(1)).await;
    assert_eq!(stage.cancel(&head, at(2)).await, Cancelled::Cancelled);
    assert_eq!(stage.claim_id("worker-001", at(3)).await, Some(next));
}

/// A higher priority overtakes a head that nobody has claimed; an equal one does not.
pub async fn a_higher_priority_overtakes_a_head_that_nobody_claimed(stage: Stage) {
    let low = stage.queue(keyed("deploy"), at(0)).await;
    let high = stage.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(1)).await;
    let equal = stage.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(2)).await;
    let gate = async |run: &RunId| stage.run(run).await.gate;
    assert_eq!(gate(&low).await, Some(Gate::Key));
    assert_eq!(gate(&high).await, Some(Gate::Open));
    assert_eq!(gate(&equal).await, Some(Gate::Key));
    for expected in [high, equal, low] {
        assert_eq!(stage.claim_id("worker-001", at(3)).await, Some(expected.clone()));
        stage.succeed(&expected, at(4)).await;
    }
}

/// What is held is not overtaken: the higher priority is the next.
pub async fn a_higher_priority_does_not_overtake_a_head_that_is_held(stage: Stage) {
    let (holder, next) = holder_and_next(&stage).await;
    let high = stage.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(2)).await;
    assert_eq!(stage.claim("worker-002", at(3)).await, None);
    stage.succeed(&holder.run_id, at(4)).await;
    assert_eq!(stage.claim_id("worker-002", at(5)).await, Some(high.clone()));
    stage.succeed(&high, at(6)).await;
    assert_eq!(stage.claim_id("worker-002", at(7)).await, Some(next));
}

/// A try that backs off does not hold the key meanwhile; when its time comes it stands in line.
pub async fn a_successor_keeps_the_key_while_it_backs_off(stage: Stage) {
    let wanted = QueueRun { max_attempts: 2, backoff_secs: 100, ..keyed("deploy") };
    let first = stage.running(wanted, "worker-001", at(0)).await;
    stage.fail(&first.run_id, at(1)).await;
    let Some(successor) = stage.successor(&first.run_id).await else { panic!("there is no successor") };
    assert_eq!((successor.concurrency_key.as_deref(), successor.gate), (Some("deploy"), Some(Gate::Time)));
    let other = stage.queue(keyed("deploy"), at(2)).await;
    assert_eq!(stage.claim("worker-002", at(3)).await, None, "the second deploy must not overtake the retry");
    // Back-off is 100 s give or take a fifth.
    assert_eq!(stage.claim_id("worker-003", at(130)).await, Some(successor.run_id.clone()));
    assert_eq!(stage.run(&other).await.gate, Some(Gate::Key));
    stage.succeed(&successor.run_id, at(131)).await;
    assert_eq!(stage.claim_id("worker-003", at(132)).await, Some(other));
}

/// A successor that waits for its time gives way to a run of higher priority, and to a cancel.
pub async fn a_successor_that_backs_off_gives_way_to_priority_and_cancel(stage: Stage) {
    let wanted = QueueRun { max_attempts: 2, backoff_secs: 100, ..keyed("deploy") };
    let first = stage.running(wanted, "worker-001", at(0)).await;
    stage.fail(&first.run_id, at(1)).await;
    let Some(successor) = stage.successor(&first.run_id).await else { panic!("there is no successor") };
    let urgent = stage.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(2)).await;
    assert_eq!(stage.claim_id("worker-002", at(3)).await, Some(urgent.clone()));
    assert_eq!(stage.claim("worker-003", at(130)).await, None, "its time has come, and the key is held");
    let other = stage.queue(keyed("deploy"), at(131)).await;
    assert_eq!(stage.cancel(&successor.run_id, at(132)).await, Cancelled::Cancelled);
    stage.succeed(&urgent, at(133)).await;
    assert_eq!(stage.claim_id("worker-003", at(134)).await, Some(other));
}

/// A run whose time has not come does not stand in the line.
pub async fn a_run_of_the_future_does_not_hold_its_key(stage: Stage) {
    let future = stage.queue(QueueRun { available_at: Some(at(60)), ..keyed("deploy") }, at(0)).await;
    let now = stage.queue(keyed("deploy"), at(1)).await;
    assert_eq!(stage.claim_id("worker-001", at(2)).await, Some(now.clone()));
    assert_eq!(stage.claim("worker-001", at(61)).await, None);
    stage.succeed(&now, at(62)).await;
    assert_eq!(stage.claim_id("worker-001", at(63)).await, Some(future));
}

/// A retry that a person asks for keeps the key, like every other try.
pub async fn a_retry_stands_in_line_for_its_key(stage: Stage) {
    let first = stage.running(keyed("deploy"), "worker-001", at(0)).await;
    stage.fail(&first.run_id, at(1)).await;
    let holder = stage.claimed(keyed("deploy"), "worker-001", at(2)).await;
    let retried = stage.retry(&first.run_id, at(3)).await;
    assert_eq!(stage.run(&retried.run_id).await.gate, Some(Gate::Key));
    assert_eq!(stage.claim("worker-002", at(4)).await, None);
    stage.succeed(&holder.run_id, at(5)).await;
    assert_eq!(stage.claim_id("worker-002", at(6)).await, Some(retried.run_id));
}
