//! Concurrency keys: one run at a time, in order, and every end passes the key on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::run::{Claim, FinalStatus, Gate, QueueRun, RunState};
use tidemill_store::{CancelOutcome, ClaimRuns};
use tokio::sync::Mutex;

use super::at_once;
use crate::interface::{Fixture, at, new_run_id, request};

fn keyed(key: &str) -> QueueRun {
    QueueRun { concurrency_key: Some(key.to_owned()), ..request() }
}

/// The second run is neither claimable nor listed as ready while the first is held.
pub async fn second_run_of_a_key_waits(fixture: Fixture) {
    let first = fixture.queue(keyed("deploy"), at(0)).await;
    let second = fixture.queue(keyed("deploy"), at(1)).await;
    let gates = async || (fixture.run(&first).await.gate, fixture.run(&second).await.gate);
    assert_eq!(gates().await, (Some(Gate::Open), Some(Gate::Key)));
    assert_eq!(fixture.claim_id("worker-001", at(2)).await, Some(first.clone()));
    assert_eq!(fixture.claim("worker-002", at(2)).await, None);
    assert_eq!(gates().await, (None, Some(Gate::Key)));
    fixture.append_event(&first, crate::interface::info("begin"), at(3)).await;
    assert_eq!(fixture.claim("worker-002", at(3)).await, None);
    fixture.succeed(&first, at(4)).await;
    assert_eq!(gates().await, (None, Some(Gate::Open)));
    assert_eq!(fixture.claim_id("worker-002", at(5)).await, Some(second));
}

/// A caller whose connection broke repeats its call under the same run id while the first call is still executing. The
/// later one must not release the key.
pub async fn run_queued_twice_at_once_keeps_its_key(fixture: Fixture) {
    for round in 0..12_i64 {
        let begin = round * 10;
        let run = new_run_id(at(begin));
        let answers = at_once(16, |_| {
            let (fixture, run) = (fixture.clone(), run.clone());
            async move { fixture.interface.queue(keyed("deploy"), run, at(begin)).await }
        })
        .await;
        let created = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|queued| queued.created));
        assert_eq!(created.count(), 1, "one of them created it: {answers:?}");
        let next = fixture.queue(keyed("deploy"), at(begin + 1)).await;
        assert_eq!(fixture.run(&next).await.gate, Some(Gate::Key), "the key was given away");
        assert_eq!(fixture.claim_id("worker-001", at(begin + 2)).await, Some(run.clone()));
        assert_eq!(fixture.claim("worker-002", at(begin + 2)).await, None);
        fixture.succeed(&run, at(begin + 3)).await;
        assert_eq!(fixture.claim_id("worker-002", at(begin + 4)).await, Some(next.clone()));
        fixture.succeed(&next, at(begin + 5)).await;
    }
    fixture.sweep(at(1_000)).await;
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.concurrency_keys").await.ok(), Some(0));
}

pub async fn concurrency_key_is_scoped_to_its_project(fixture: Fixture) {
    for wanted in
        [keyed("deploy"), QueueRun { project: "bank".to_owned(), ..keyed("deploy") }, keyed("backup")]
    {
        fixture.queue(wanted, at(0)).await;
    }
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-001") };
    assert_eq!(fixture.claim_as(ask, at(1)).await.len(), 3);
}

/// A unique index would abort the whole batch.
pub async fn batch_claim_next_to_a_held_key_loses_no_run(fixture: Fixture) {
    let holder = fixture.claimed(keyed("deploy"), "worker-001", at(0)).await;
    let waiting = fixture.queue(keyed("deploy"), at(1)).await;
    let mut free = vec![fixture.queue(request(), at(2)).await, fixture.queue(keyed("backup"), at(3)).await];
    free.sort();
    fixture.queue(keyed("backup"), at(4)).await;
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-002") };
    let mut claimed: Vec<_> =
        fixture.claim_as(ask, at(5)).await.into_iter().map(|claim| claim.run_id).collect();
    claimed.sort();
    assert_eq!(claimed, free, "one run of each key, and every run without one");
    assert_eq!(fixture.status(&waiting).await, RunState::Queued);
    assert_eq!(fixture.status(&holder.run_id).await, RunState::Claimed);
}

/// Workers with batches and single claims race for runs of three keys. No worker ever holds two runs of one key, and
/// every run ends.
pub async fn racing_workers_never_hold_two_runs_of_a_key(fixture: Fixture) {
    let mut keys = BTreeMap::new();
    for number in 0..48_i64 {
        let key = format!("key-{}", number % 3);
        let wanted = QueueRun { priority: i32::try_from(number % 5).unwrap_or_default(), ..keyed(&key) };
        keys.insert(fixture.queue(wanted, at(number)).await, key);
    }
    let (total, keys) = (keys.len(), Arc::new(keys));
    let held: Arc<Mutex<BTreeMap<String, RunId>>> = Arc::default();
    let done = Arc::new(AtomicUsize::new(0));
    at_once(8, |number| {
        let (fixture, keys, held, done) = (fixture.clone(), keys.clone(), held.clone(), done.clone());
        async move {
            let worker = format!("worker-{number}");
            for _ in 0..2_000 {
                if done.load(Ordering::SeqCst) == total {
                    return;
                }
                let ask = ClaimRuns { limit: 1 + number % 3, ..ClaimRuns::one(&worker) };
                for claim in fixture.claim_as(ask, at(100)).await {
                    let key = keys[&claim.run_id].clone();
                    let other = held.lock().await.insert(key.clone(), claim.run_id.clone());
                    assert_eq!(other, None, "{key} was held by another run");
                    tokio::task::yield_now().await;
                    held.lock().await.remove(&key);
                    fixture.succeed(&claim.run_id, at(101)).await;
                    done.fetch_add(1, Ordering::SeqCst);
                }
                // If the next run of a key was locked while the key was passed on, the sweeper repairs the head.
                if number == 0 {
                    fixture.sweep(at(102)).await;
                }
            }
        }
    })
    .await;
    assert_eq!(done.load(Ordering::SeqCst), total, "the key order does not advance");
    // The last end may have met a locked key, too.
    fixture.sweep(at(103)).await;
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.concurrency_keys").await.ok(), Some(0));
}

/// Prepares one running run of the key and one that waits; the end of the first must open the second.
async fn holder_and_next(fixture: &Fixture) -> (Claim, RunId) {
    let holder = fixture.running(keyed("deploy"), "worker-001", at(0)).await;
    let next = fixture.queue(keyed("deploy"), at(1)).await;
    assert_eq!(fixture.claim("worker-002", at(1)).await, None);
    (holder, next)
}

pub async fn key_passes_on_when_its_holder_succeeds(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    fixture.succeed(&holder.run_id, at(2)).await;
    assert_eq!(fixture.claim_id("worker-002", at(3)).await, Some(next.clone()));
    fixture.succeed(&next, at(4)).await;
    fixture.sweep(at(5)).await;
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.concurrency_keys").await.ok(), Some(0));
}

pub async fn key_passes_on_when_its_holder_fails(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    fixture.fail(&holder.run_id, at(2)).await;
    assert_eq!(fixture.claim_id("worker-002", at(3)).await, Some(next));
}

/// Both ways: the worker confirms the cancel, and the grace period ends.
pub async fn key_passes_on_when_its_holder_is_cancelled(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    let last = fixture.queue(keyed("deploy"), at(2)).await;
    assert_eq!(fixture.cancel(&holder.run_id, at(2)).await, CancelOutcome::Requested);
    assert_eq!(fixture.claim("worker-002", at(3)).await, None, "a stop request is not a stop");
    fixture.finish(&holder.run_id, FinalStatus::Cancelled, json!({}), at(4)).await;
    assert_eq!(fixture.claim_id("worker-002", at(5)).await, Some(next.clone()));
    assert_eq!(fixture.cancel(&next, at(6)).await, CancelOutcome::Requested);
    fixture.sweep(at(36)).await;
    assert_eq!(fixture.claim_id("worker-002", at(37)).await, Some(last));
}

/// The retry of the lost run queues behind the run that waited.
pub async fn key_passes_on_when_its_holder_is_lost(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    let swept = fixture.sweep(at(301)).await;
    assert_eq!(swept.len(), 1);
    let Some(successor) = swept[0].successor.clone() else { panic!("there is no successor") };
    assert_eq!(swept[0].run_id, holder.run_id);
    assert_eq!(fixture.run(&successor).await.gate, Some(Gate::Open), "it keeps the position of its request");
    assert_eq!(fixture.run(&next).await.gate, Some(Gate::Key));
    assert_eq!(fixture.claim_id("worker-002", at(302)).await, Some(successor.clone()));
    assert_eq!(fixture.claim("worker-003", at(302)).await, None);
    fixture.succeed(&successor, at(303)).await;
    assert_eq!(fixture.claim_id("worker-003", at(304)).await, Some(next));
}

pub async fn key_passes_on_when_plain_sql_ends_its_holder(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    let text = format!("UPDATE {{ops}}.runs SET status = 'cancelled' WHERE run_id = '{}'", holder.run_id);
    assert_eq!(fixture.plain.execute(&text).await.ok(), Some(1));
    assert_eq!(fixture.claim_id("worker-002", at(3)).await, Some(next));
}

pub async fn cancelled_waiting_run_leaves_the_key_order_unchanged(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    let last = fixture.queue(keyed("deploy"), at(2)).await;
    assert_eq!(fixture.cancel(&next, at(2)).await, CancelOutcome::Cancelled);
    assert_eq!(fixture.claim("worker-002", at(3)).await, None);
    fixture.succeed(&holder.run_id, at(4)).await;
    assert_eq!(fixture.claim_id("worker-002", at(5)).await, Some(last));
}

pub async fn cancelled_unclaimed_head_passes_the_key_on(fixture: Fixture) {
    let head = fixture.queue(keyed("deploy"), at(0)).await;
    let next = fixture.queue(keyed("deploy"), at(1)).await;
    assert_eq!(fixture.cancel(&head, at(2)).await, CancelOutcome::Cancelled);
    assert_eq!(fixture.claim_id("worker-001", at(3)).await, Some(next));
}

/// A run of equal priority does not replace the head.
pub async fn higher_priority_replaces_an_unclaimed_head(fixture: Fixture) {
    let low = fixture.queue(keyed("deploy"), at(0)).await;
    let high = fixture.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(1)).await;
    let equal = fixture.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(2)).await;
    let gate = async |run: &RunId| fixture.run(run).await.gate;
    assert_eq!(gate(&low).await, Some(Gate::Key));
    assert_eq!(gate(&high).await, Some(Gate::Open));
    assert_eq!(gate(&equal).await, Some(Gate::Key));
    for expected in [high, equal, low] {
        assert_eq!(fixture.claim_id("worker-001", at(3)).await, Some(expected.clone()));
        fixture.succeed(&expected, at(4)).await;
    }
}

/// The run of higher priority is next.
pub async fn higher_priority_does_not_replace_a_held_head(fixture: Fixture) {
    let (holder, next) = holder_and_next(&fixture).await;
    let high = fixture.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(2)).await;
    assert_eq!(fixture.claim("worker-002", at(3)).await, None);
    fixture.succeed(&holder.run_id, at(4)).await;
    assert_eq!(fixture.claim_id("worker-002", at(5)).await, Some(high.clone()));
    fixture.succeed(&high, at(6)).await;
    assert_eq!(fixture.claim_id("worker-002", at(7)).await, Some(next));
}

/// A run queued later must not overtake the retry.
pub async fn retry_keeps_the_key_during_its_backoff(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 2, backoff_secs: 100, ..keyed("deploy") };
    let first = fixture.running(wanted, "worker-001", at(0)).await;
    fixture.fail(&first.run_id, at(1)).await;
    let Some(successor) = fixture.successor(&first.run_id).await else { panic!("there is no successor") };
    assert_eq!((successor.concurrency_key.as_deref(), successor.gate), (Some("deploy"), Some(Gate::Time)));
    let other = fixture.queue(keyed("deploy"), at(2)).await;
    assert_eq!(
        fixture.claim("worker-002", at(3)).await,
        None,
        "the second deploy must not overtake the retry"
    );
    // The back-off is 100 s ± 20 %.
    assert_eq!(fixture.claim_id("worker-003", at(130)).await, Some(successor.run_id.clone()));
    assert_eq!(fixture.run(&other).await.gate, Some(Gate::Key));
    fixture.succeed(&successor.run_id, at(131)).await;
    assert_eq!(fixture.claim_id("worker-003", at(132)).await, Some(other));
}

pub async fn retry_in_backoff_yields_the_key_to_priority_and_cancel(fixture: Fixture) {
    let wanted = QueueRun { max_attempts: 2, backoff_secs: 100, ..keyed("deploy") };
    let first = fixture.running(wanted, "worker-001", at(0)).await;
    fixture.fail(&first.run_id, at(1)).await;
    let Some(successor) = fixture.successor(&first.run_id).await else { panic!("there is no successor") };
    let urgent = fixture.queue(QueueRun { priority: 5, ..keyed("deploy") }, at(2)).await;
    assert_eq!(fixture.claim_id("worker-002", at(3)).await, Some(urgent.clone()));
    assert_eq!(fixture.claim("worker-003", at(130)).await, None, "its time is reached, and the key is held");
    let other = fixture.queue(keyed("deploy"), at(131)).await;
    assert_eq!(fixture.cancel(&successor.run_id, at(132)).await, CancelOutcome::Cancelled);
    fixture.succeed(&urgent, at(133)).await;
    assert_eq!(fixture.claim_id("worker-003", at(134)).await, Some(other));
}

pub async fn delayed_run_does_not_hold_its_key(fixture: Fixture) {
    let future = fixture.queue(QueueRun { available_at: Some(at(60)), ..keyed("deploy") }, at(0)).await;
    let now = fixture.queue(keyed("deploy"), at(1)).await;
    assert_eq!(fixture.claim_id("worker-001", at(2)).await, Some(now.clone()));
    assert_eq!(fixture.claim("worker-001", at(61)).await, None);
    fixture.succeed(&now, at(62)).await;
    assert_eq!(fixture.claim_id("worker-001", at(63)).await, Some(future));
}

pub async fn retry_by_a_person_waits_for_its_key(fixture: Fixture) {
    let first = fixture.running(keyed("deploy"), "worker-001", at(0)).await;
    fixture.fail(&first.run_id, at(1)).await;
    let holder = fixture.claimed(keyed("deploy"), "worker-001", at(2)).await;
    let retried = fixture.retry(&first.run_id, at(3)).await;
    assert_eq!(fixture.run(&retried.run_id).await.gate, Some(Gate::Key));
    assert_eq!(fixture.claim("worker-002", at(4)).await, None);
    fixture.succeed(&holder.run_id, at(5)).await;
    assert_eq!(fixture.claim_id("worker-002", at(6)).await, Some(retried.run_id));
}
