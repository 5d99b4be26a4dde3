//! Sweep: lost leases, dead workers, timeouts and quarantine, without human action.

use serde_json::json;
use std::collections::BTreeSet;
use tidemill_core::RunId;
use tidemill_core::run::{ChangeOutcome, EndCause, FinalStatus, QueueRun, RunState};
use tidemill_store::{ClaimRuns, RefusalCode, SweptRun};

use super::at_once;
use crate::interface::{Fixture, Kind, at, info, new_worker, refused, request};

/// Returns the only decision of a sweep.
fn only(mut swept: Vec<SweptRun>) -> SweptRun {
    assert_eq!(swept.len(), 1, "{swept:?}");
    swept.remove(0)
}

/// The seed cancels a stale run without a retry. Here it is cancelled with the seed's message and retried.
pub async fn silent_claimed_run_is_cancelled_and_retried(fixture: Fixture) {
    let wanted = QueueRun { metadata: json!({"asked": 1}), ..request() };
    let run = fixture.claimed(wanted, "worker-001", at(15)).await.run_id;
    assert!(fixture.sweep(at(314)).await.is_empty(), "five minutes are five minutes");
    let swept = only(fixture.sweep(at(315)).await);
    assert_eq!((&swept.run_id, swept.action), (&run, EndCause::Stale));
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Cancelled, Some(EndCause::Stale)));
    assert_eq!(ended.finished_at, Some(at(315)));
    let expected = json!({
        "asked": 1,
        "cancelled_by": "system",
        "reason": "Stale run (claimed for >5 minutes without events)",
        "original_worker": "worker-001",
        "claimed_at": "2026-02-14T10:30:15.000000Z",
    });
    assert_eq!(ended.metadata, expected);
    let Some(next) = fixture.successor(&run).await else { panic!("the request is lost") };
    assert_eq!(swept.successor.as_ref(), Some(&next.run_id));
    assert_eq!((next.attempt, next.failures, next.losses, next.available_at), (2, 0, 1, None));
    assert_eq!(next.metadata, json!({"asked": 1}));
    assert_eq!(fixture.claim_id("worker-002", at(316)).await, Some(next.run_id));
}

/// The seed ignores lost running runs.
pub async fn f2_lost_running_run_fails_and_is_retried(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    assert!(fixture.sweep(at(299)).await.is_empty());
    let swept = only(fixture.sweep(at(300)).await);
    assert_eq!(swept.action, EndCause::Lost);
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Failed, Some(EndCause::Lost)));
    assert_eq!(ended.metadata, json!({"error": "worker lost", "original_worker": "worker-001"}));
    assert_eq!(fixture.claim_id("worker-002", at(301)).await, swept.successor);
}

pub async fn f1_healthy_long_run_keeps_its_lease(fixture: Fixture) {
    let worker = fixture.register("worker-002", at(0)).await;
    let by_heartbeat = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let by_beat = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-002", worker, at(0)).await;
    for minute in 1..=90 {
        let now = at(minute * 60);
        assert!(fixture.heartbeat(&by_heartbeat, now).await.held);
        // The process sends heartbeats more often than this; once a minute is enough for the leases.
        assert!(fixture.worker_heartbeat(worker, std::slice::from_ref(&by_beat), now).await[0].held);
        if minute % 15 == 0 {
            assert!(fixture.sweep(now).await.is_empty(), "minute {minute}");
        }
    }
    assert_eq!(fixture.status(&by_heartbeat).await, RunState::Running);
    assert_eq!(fixture.status(&by_beat).await, RunState::Claimed);
}

/// A worker process is dead after twenty silent seconds, and all of its runs are released at once.
pub async fn f2_runs_of_a_dead_worker_are_retried_at_once(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    let mut runs = BTreeSet::new();
    for second in 0..3 {
        runs.insert(fixture.queue(request(), at(second)).await);
        fixture.claim_registered("worker-001", worker, at(second)).await;
    }
    let Some(started) = runs.first() else { return };
    fixture.append_event(started, info("begin"), at(3)).await;
    let held: Vec<RunId> = runs.iter().cloned().collect();
    assert!(fixture.worker_heartbeat(worker, &held, at(5)).await.iter().all(|one| one.held));
    assert!(fixture.sweep(at(25)).await.is_empty(), "twenty seconds have not passed");
    let swept = fixture.sweep(at(26)).await;
    assert_eq!(swept.iter().map(|one| one.run_id.clone()).collect::<BTreeSet<_>>(), runs);
    for one in &swept {
        let expected = if one.run_id == *started { EndCause::Lost } else { EndCause::Stale };
        assert_eq!(one.action, expected);
        assert!(one.successor.is_some());
    }
    let ended = fixture.run(&held[1]).await;
    assert_eq!(ended.metadata["reason"], "Stale run (its worker died before the first event)");
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-002") };
    assert_eq!(fixture.claim_as(ask, at(27)).await.len(), 3);
}

/// A pod restarts under the same name. The death of the first process is still detected, and the second one keeps its
/// own runs.
pub async fn f3_reused_worker_name_does_not_hide_a_death(fixture: Fixture) {
    let first = fixture.register("worker-001", at(0)).await;
    let lost = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", first, at(0)).await;
    fixture.append_event(&lost, info("begin"), at(0)).await;
    let second = fixture.register("worker-001", at(10)).await;
    let stored = fixture.queue(request(), at(10)).await;
    fixture.claim_registered("worker-001", second, at(10)).await;
    fixture.worker_heartbeat(second, std::slice::from_ref(&stored), at(20)).await;
    let swept = only(fixture.sweep(at(21)).await);
    assert_eq!((&swept.run_id, swept.action), (&lost, EndCause::Lost));
    assert!(swept.successor.is_some());
    assert_eq!(fixture.status(&stored).await, RunState::Claimed);
    // The new process cannot renew the lease of the old one's run.
    let beats = fixture.worker_heartbeat(second, &[lost, stored], at(22)).await;
    assert_eq!(beats.iter().map(|one| one.held).collect::<Vec<_>>(), [false, true]);
}

/// A live process with one hung run that it does not name in its heartbeat.
pub async fn f10_heartbeat_renews_only_the_runs_it_names(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    let wedged = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", worker, at(0)).await;
    let healthy = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", worker, at(0)).await;
    for second in (5..=300).step_by(5) {
        fixture.worker_heartbeat(worker, std::slice::from_ref(&healthy), at(second)).await;
    }
    let swept = only(fixture.sweep(at(300)).await);
    assert_eq!((&swept.run_id, swept.action), (&wedged, EndCause::Stale));
    assert_eq!(fixture.status(&healthy).await, RunState::Claimed);
}

/// After its loss budget the run is quarantined with its last events.
pub async fn f9_run_that_kills_its_workers_is_quarantined_with_its_events(fixture: Fixture) {
    let mut run = fixture.queue(QueueRun { max_losses: 2, ..request() }, at(0)).await;
    for loss in 0..3_i64 {
        let now = loss * 1_000;
        assert_eq!(fixture.claim_id("worker-001", at(now)).await, Some(run.clone()));
        for line in 0..25 {
            fixture.append_event(&run, info(&format!("line {line}")), at(now)).await;
        }
        let swept = only(fixture.sweep(at(now + 300)).await);
        match swept.successor {
            Some(next) if loss < 2 => {
                assert_eq!(swept.action, EndCause::Lost);
                run = next;
            }
            None if loss == 2 => assert_eq!(swept.action, EndCause::Quarantined),
            other => panic!("after loss {loss}: {other:?}"),
        }
    }
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Failed, Some(EndCause::Quarantined)));
    let tail: Vec<_> = (5..25).map(|line| format!("line {line}")).collect();
    let expected = json!({
        "error": "worker lost", "original_worker": "worker-001",
        "quarantined": true, "losses": 3, "output_tail": tail,
    });
    assert_eq!(ended.metadata, expected);
    assert_eq!(fixture.claim("worker-001", at(9_999)).await, None);
    // A person decides to retry.
    assert!(fixture.retry(&run, at(10_000)).await.created);
}

/// In either held state.
pub async fn lost_run_without_loss_budget_is_quarantined_at_once(fixture: Fixture) {
    for start in [false, true] {
        let claim = fixture.claimed(QueueRun { max_losses: 0, ..request() }, "worker-001", at(0)).await;
        if start {
            fixture.start(&claim, "worker-001", at(0)).await;
        }
        let swept = only(fixture.sweep(at(300)).await);
        assert_eq!((swept.action, swept.successor), (EndCause::Quarantined, None));
        let ended = fixture.run(&claim.run_id).await;
        assert_eq!(ended.status, if start { RunState::Failed } else { RunState::Cancelled });
        assert_eq!(ended.metadata["output_tail"], json!([]));
    }
}

/// The retry counts against the budget for reported failures.
pub async fn run_over_its_timeout_is_timed_out(fixture: Fixture) {
    let wanted = QueueRun { timeout_secs: Some(60), max_attempts: 2, backoff_secs: 0, ..request() };
    let claim = fixture.claimed(wanted, "worker-001", at(0)).await;
    fixture.start(&claim, "worker-001", at(100)).await;
    let run = claim.run_id;
    assert_eq!(fixture.run(&run).await.deadline_at, Some(at(160)), "the time to run begins with the start");
    fixture.heartbeat(&run, at(159)).await;
    assert!(fixture.sweep(at(159)).await.is_empty());
    let swept = only(fixture.sweep(at(160)).await);
    assert_eq!(swept.action, EndCause::TimedOut);
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Failed, Some(EndCause::TimedOut)));
    assert_eq!(ended.metadata, json!({"error": "the run took longer than 60 s"}));
    let Some(next) = swept.successor else { panic!("there is no second try") };
    assert_eq!((fixture.run(&next).await.failures, fixture.run(&next).await.losses), (1, 0));
    assert_eq!(fixture.claim_id("worker-001", at(161)).await, Some(next.clone()));
    fixture.append_event(&next, info("begin"), at(161)).await;
    assert_eq!(only(fixture.sweep(at(221)).await).successor, None, "two attempts are two");
}

/// A registered worker ends the command itself and reports it; the sweeper waits for the grace period.
pub async fn registered_worker_can_report_its_timeout_first(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    let run = fixture.queue(QueueRun { timeout_secs: Some(60), ..request() }, at(0)).await;
    fixture.claim_registered("worker-001", worker, at(0)).await;
    fixture.append_event(&run, info("begin"), at(0)).await;
    fixture.worker_heartbeat(worker, std::slice::from_ref(&run), at(80)).await;
    assert!(fixture.sweep(at(89)).await.is_empty());
    assert_eq!(only(fixture.sweep(at(90)).await).action, EndCause::TimedOut);
}

pub async fn expired_lease_is_valid_until_it_is_taken(fixture: Fixture) {
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    assert!(fixture.append_event(&run, info("late"), at(400)).await.is_some());
    assert_eq!(fixture.run(&run).await.lease_until, Some(at(700)));
    assert!(fixture.heartbeat(&run, at(800)).await.held);
    assert_eq!(
        fixture.finish_as(&claim, "worker-001", FinalStatus::Success, at(2_000)).await,
        ChangeOutcome::Applied
    );
    assert!(fixture.sweep(at(2_001)).await.is_empty());
}

/// The process must not continue or claim new runs.
pub async fn heartbeat_and_claim_of_a_dead_worker_are_refused(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    let gone = fixture.register("worker-002", at(0)).await;
    fixture.queue(request(), at(0)).await;
    assert_eq!(fixture.interface.retire(gone, at(1)).await.ok(), Some(()));
    assert!(fixture.sweep(at(21)).await.is_empty());
    let before = fixture.tables().await;
    for (name, worker) in [("worker-001", worker), ("worker-002", gone)] {
        refused(fixture.interface.worker_heartbeat(worker, Vec::new(), at(22)).await, RefusalCode::Stale);
        let ask = ClaimRuns { worker_id: Some(worker), ..ClaimRuns::one(name) };
        refused(fixture.interface.claim(ask, at(22)).await, RefusalCode::Stale);
    }
    refused(
        fixture.interface.worker_heartbeat(new_worker("nobody").worker_id, Vec::new(), at(22)).await,
        RefusalCode::Stale,
    );
    fixture.unchanged(&before).await;
    let workers = fixture.store.workers().await.unwrap_or_default();
    assert_eq!(workers.iter().map(|one| one.ended_at).collect::<Vec<_>>(), [Some(at(21)), Some(at(1))]);
}

/// A retired worker's runs are released at once, and no budget is charged.
pub async fn retired_worker_runs_are_retried_without_charging_the_budget(fixture: Fixture) {
    for start in [false, true] {
        let worker = fixture.register("worker-001", at(0)).await;
        let run = fixture.queue(QueueRun { max_losses: 0, ..request() }, at(0)).await;
        fixture.claim_registered("worker-001", worker, at(0)).await;
        if start {
            fixture.append_event(&run, info("begin"), at(0)).await;
        }
        assert_eq!(fixture.interface.retire(worker, at(1)).await.ok(), Some(()));
        let swept = only(fixture.sweep(at(1)).await);
        assert_eq!((&swept.run_id, swept.action), (&run, EndCause::Interrupted));
        let ended = fixture.run(&run).await;
        assert_eq!(ended.status, if start { RunState::Failed } else { RunState::Cancelled });
        let Some(next) = swept.successor else { panic!("the request is lost") };
        let next = fixture.run(&next).await;
        assert_eq!((next.attempt, next.failures, next.losses, next.available_at), (2, 0, 0, None));
        assert_eq!(fixture.claim_id("worker-002", at(2)).await, Some(next.run_id.clone()));
        fixture.succeed(&next.run_id, at(3)).await;
    }
}

/// A heartbeat with an older time, or a repeated one, does not move the time back.
pub async fn heartbeat_time_never_decreases(fixture: Fixture) {
    let worker = fixture.register("worker-001", at(0)).await;
    fixture.worker_heartbeat(worker, &[], at(50)).await;
    fixture.worker_heartbeat(worker, &[], at(10)).await;
    assert!(fixture.sweep(at(69)).await.is_empty());
    let workers = fixture.store.workers().await.unwrap_or_default();
    assert_eq!(workers.iter().map(|one| (one.beat_at, one.ended_at)).collect::<Vec<_>>(), [(at(50), None)]);
}

/// Creates one run for every decision of a sweeper; returns the number of decisions.
async fn create_sweepable_runs(fixture: &Fixture) -> usize {
    let worker = fixture.register("worker-009", at(0)).await;
    fixture
        .running(QueueRun { concurrency_key: Some("key".to_owned()), ..request() }, "worker-005", at(0))
        .await;
    let mut decisions = 1;
    for second in 0..4 {
        fixture.claimed(request(), "worker-001", at(second)).await;
        fixture.running(request(), "worker-002", at(second)).await;
        fixture.queue(request(), at(second)).await;
        fixture.claim_registered("worker-009", worker, at(second)).await;
        let timed = QueueRun { timeout_secs: Some(10), max_attempts: 2, ..request() };
        fixture.running(timed, "worker-003", at(second)).await;
        let stopped = fixture.running(request(), "worker-004", at(second)).await;
        fixture.cancel(&stopped.run_id, at(second)).await;
        fixture
            .queue(QueueRun { expires_at: Some(at(60)), available_at: Some(at(59)), ..request() }, at(second))
            .await;
        decisions += 6;
    }
    decisions
}

/// Each run ends once and has one successor.
pub async fn simultaneous_sweepers_agree(fixture: Fixture) {
    let decisions = create_sweepable_runs(&fixture).await;
    let swept = at_once(4, |_| {
        let fixture = fixture.clone();
        async move { fixture.sweep(at(400)).await }
    })
    .await;
    let mut all: Vec<SweptRun> = swept.into_iter().flatten().collect();
    // A run that was locked for one sweeper was taken by the other; the next sweep takes the rest.
    all.extend(fixture.sweep(at(401)).await);
    let runs: BTreeSet<_> = all.iter().map(|one| one.run_id.clone()).collect();
    assert_eq!((all.len(), runs.len()), (decisions, decisions), "each run once");
    for one in &all {
        let ends = fixture.events(&one.run_id).await;
        let ends = ends.iter().filter(|event| event.payload.get("cause").is_some()).count();
        assert_eq!(ends, 1, "one recorded end");
        let next = fixture.successor(&one.run_id).await.map(|run| run.run_id);
        assert_eq!(next, one.successor);
    }
}

pub async fn second_sweep_changes_nothing(fixture: Fixture) {
    let decisions = create_sweepable_runs(&fixture).await;
    assert_eq!(fixture.sweep(at(400)).await.len(), decisions);
    let before = fixture.tables().await;
    assert!(fixture.sweep(at(400)).await.is_empty());
    fixture.unchanged(&before).await;
}

/// The end of one run opens the next run of its key, and both are decided in the same sweep.
pub async fn sweep_handles_runs_opened_by_its_own_decisions(fixture: Fixture) {
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), ..request() };
    let holder = fixture.running(keyed.clone(), "worker-001", at(0)).await.run_id;
    let next = fixture.queue(QueueRun { expires_at: Some(at(60)), ..keyed }, at(1)).await;
    let swept: Vec<_> =
        fixture.sweep(at(400)).await.into_iter().map(|one| (one.run_id, one.action)).collect();
    assert_eq!(swept, [(holder, EndCause::Lost), (next, EndCause::Expired)]);
    assert!(fixture.sweep(at(400)).await.is_empty());
}

pub async fn limited_sweep_continues_where_it_stopped(fixture: Fixture) {
    for second in 0..7 {
        fixture.claimed(request(), "worker-001", at(second)).await;
    }
    let mut sizes = Vec::new();
    for _ in 0..4 {
        sizes.push(
            fixture.interface.sweep(3, 20.0, at(400)).await.map(|swept| swept.len()).unwrap_or_default(),
        );
    }
    assert_eq!(sizes, [3, 3, 1, 0]);
}

/// The run is retried only if the sweep was first.
pub async fn f5_simultaneous_report_and_sweep_end_the_run_once(fixture: Fixture) {
    for round in 0..12_i64 {
        let claim = fixture.running(request(), "worker-001", at(round * 1_000)).await;
        let now = at(round * 1_000 + 300);
        let outcomes = at_once(2, |number| {
            let (fixture, claim) = (fixture.clone(), claim.clone());
            async move {
                if number == 0 {
                    fixture.finish_as(&claim, "worker-001", FinalStatus::Success, now).await
                        == ChangeOutcome::Applied
                } else {
                    !fixture.sweep(now).await.is_empty()
                }
            }
        })
        .await;
        let run = fixture.run(&claim.run_id).await;
        let successor = fixture.successor(&claim.run_id).await;
        match outcomes[..] {
            [true, false] => assert_eq!((run.status, successor), (RunState::Success, None)),
            [false, true] => {
                assert_eq!(run.status, RunState::Failed);
                let Some(next) = successor else { panic!("the request is lost") };
                assert_eq!(fixture.claim_id("worker-002", now).await, Some(next.run_id.clone()));
                fixture.succeed(&next.run_id, now).await;
            }
            _ => panic!("both or neither ended it: {outcomes:?}, {run:?}"),
        }
    }
}

/// A full disk in the middle of a sweep rolls all of it back, and the next sweep repeats it. The simulated fault on
/// SQLite concerns single runs, so only those are left to the next sweep.
pub async fn f4_interrupted_sweep_is_repaired_by_the_next(fixture: Fixture) {
    let decisions = create_sweepable_runs(&fixture).await;
    // No successor can be queued, so the sweep fails halfway as with a full disk.
    let (fault, repair) = if fixture.kind == Kind::Sqlite {
        let fault = "CREATE TRIGGER fault BEFORE INSERT ON runs WHEN NEW.retry_of IS NOT NULL \
                     BEGIN SELECT RAISE(ABORT, 'disk full'); END";
        (fault, "DROP TRIGGER fault")
    } else {
        let fault = "CREATE FUNCTION public.fault() RETURNS trigger LANGUAGE plpgsql AS \
                     $$BEGIN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END$$; \
                     CREATE TRIGGER fault BEFORE INSERT ON {ops}.runs FOR EACH ROW \
                     WHEN (NEW.retry_of IS NOT NULL) EXECUTE FUNCTION public.fault()";
        (fault, "DROP TRIGGER fault ON {ops}.runs")
    };
    assert_eq!(fixture.plain.script(fault).await.map_err(|bad| bad.to_string()), Ok(()));
    let before = fixture.tables().await;
    let swept = fixture.interface.sweep(500, 20.0, at(400)).await.map(|swept| swept.len());
    if fixture.kind == Kind::Sqlite {
        assert!(swept.as_ref().is_ok_and(|swept| *swept < decisions), "{swept:?}");
    } else {
        assert!(swept.is_err(), "the fault is not swallowed");
        fixture.unchanged(&before).await;
    }
    assert_eq!(fixture.plain.script(repair).await.map_err(|bad| bad.to_string()), Ok(()));
    assert_eq!(fixture.sweep(at(400)).await.len(), decisions - swept.unwrap_or(0));
}
