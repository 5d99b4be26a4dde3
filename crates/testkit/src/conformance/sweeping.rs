//! What nobody else will decide: lost leases, dead workers, timeouts, poison. Nothing waits for a person.

use serde_json::json;
use std::collections::BTreeSet;
use tidemill_core::RunId;
use tidemill_core::run::{Applied, EndCause, FinalStatus, QueueRun, RunState};
use tidemill_store::{ClaimRuns, RefusalCode, Swept, SweptAction};

use super::at_once;
use crate::door::{Kind, Stage, at, info, new_worker, refused, request};

/// The one decision of a sweep.
fn only(mut swept: Vec<Swept>) -> Swept {
    assert_eq!(swept.len(), 1, "{swept:?}");
    swept.remove(0)
}

/// The seed's stale run, which the seed cancels and loses. Here it is cancelled with the seed's words, and followed.
pub async fn a_claimed_run_without_a_sign_of_life_is_cancelled_and_followed(stage: Stage) {
    let wanted = QueueRun { metadata: json!({"asked": 1}), ..request() };
    let run = stage.claimed(wanted, "worker-001", at(15)).await.run_id;
    assert!(stage.sweep(at(314)).await.is_empty(), "five minutes are five minutes");
    let swept = only(stage.sweep(at(315)).await);
    assert_eq!((&swept.run_id, swept.action), (&run, SweptAction::Stale));
    let ended = stage.run(&run).await;
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
    let Some(next) = stage.successor(&run).await else { panic!("the request is lost") };
    assert_eq!(swept.successor.as_ref(), Some(&next.run_id));
    assert_eq!((next.attempt, next.failures, next.losses, next.available_at), (2, 0, 1, None));
    assert_eq!(next.metadata, json!({"asked": 1}));
    assert_eq!(stage.claim_id("worker-002", at(316)).await, Some(next.run_id));
}

/// The seed forgets runs that are running. Here a lost one fails, and is followed.
pub async fn f2_a_running_run_that_is_lost_fails_and_is_followed(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    assert!(stage.sweep(at(299)).await.is_empty());
    let swept = only(stage.sweep(at(300)).await);
    assert_eq!(swept.action, SweptAction::Lost);
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Failed, Some(EndCause::Lost)));
    assert_eq!(ended.metadata, json!({"error": "worker lost", "original_worker": "worker-001"}));
    assert_eq!(stage.claim_id("worker-002", at(301)).await, swept.successor);
}

/// A long run whose worker gives signs of life is never taken away, however long it takes.
pub async fn f1_a_healthy_long_run_is_not_taken_away(stage: Stage) {
    let worker = stage.register("worker-002", at(0)).await;
    let by_heartbeat = stage.running(request(), "worker-001", at(0)).await.run_id;
    let by_beat = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-002", worker, at(0)).await;
    for minute in 1..=90 {
        let now = at(minute * 60);
        assert!(stage.heartbeat(&by_heartbeat, now).await.held);
        // The process beats more often than this; for the leases once a minute is enough.
        assert!(stage.beat(worker, std::slice::from_ref(&by_beat), now).await[0].held);
        if minute % 15 == 0 {
            assert!(stage.sweep(now).await.is_empty(), "minute {minute}");
        }
    }
    assert_eq!(stage.status(&by_heartbeat).await, RunState::Running);
    assert_eq!(stage.status(&by_beat).await, RunState::Claimed);
}

/// A worker process that falls silent is dead after twenty seconds, and everything it holds is free at once.
pub async fn f2_the_runs_of_a_dead_worker_are_followed_at_once(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    let mut runs = BTreeSet::new();
    for second in 0..3 {
        runs.insert(stage.queue(request(), at(second)).await);
        stage.claim_registered("worker-001", worker, at(second)).await;
    }
    let Some(started) = runs.first() else { return };
    stage.say(started, info("begin"), at(3)).await;
    let held: Vec<RunId> = runs.iter().cloned().collect();
    assert!(stage.beat(worker, &held, at(5)).await.iter().all(|one| one.held));
    assert!(stage.sweep(at(25)).await.is_empty(), "twenty seconds are not over");
    let swept = stage.sweep(at(26)).await;
    assert_eq!(swept.iter().map(|one| one.run_id.clone()).collect::<BTreeSet<_>>(), runs);
    for one in &swept {
        let expected = if one.run_id == *started { SweptAction::Lost } else { SweptAction::Stale };
        assert_eq!(one.action, expected);
        assert!(one.successor.is_some());
    }
    let ended = stage.run(&held[1]).await;
    assert_eq!(ended.metadata["reason"], "Stale run (its worker died before the first event)");
    let ask = ClaimRuns { limit: 10, ..ClaimRuns::one("worker-002") };
    assert_eq!(stage.claim_as(ask, at(27)).await.len(), 3);
}

/// A pod comes back under the same name. The death of the first process is found all the same, and the second one
/// keeps what is its own.
pub async fn f3_a_reused_worker_name_hides_no_death(stage: Stage) {
    let first = stage.register("worker-001", at(0)).await;
    let lost = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", first, at(0)).await;
    stage.say(&lost, info("begin"), at(0)).await;
    let second = stage.register("worker-001", at(10)).await;
    let kept = stage.queue(request(), at(10)).await;
    stage.claim_registered("worker-001", second, at(10)).await;
    stage.beat(second, std::slice::from_ref(&kept), at(20)).await;
    let swept = only(stage.sweep(at(21)).await);
    assert_eq!((&swept.run_id, swept.action), (&lost, SweptAction::Lost));
    assert!(swept.successor.is_some());
    assert_eq!(stage.status(&kept).await, RunState::Claimed);
    // Nor can the new process speak for the old one's run by beating for it.
    let beats = stage.beat(second, &[lost, kept], at(22)).await;
    assert_eq!(beats.iter().map(|one| one.held).collect::<Vec<_>>(), [false, true]);
}

/// The reverse of a dead process: it beats, but one of its runs is wedged and not among those it beats for.
pub async fn f10_a_beat_keeps_only_the_runs_it_names(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    let wedged = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", worker, at(0)).await;
    let healthy = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", worker, at(0)).await;
    for second in (5..=300).step_by(5) {
        stage.beat(worker, std::slice::from_ref(&healthy), at(second)).await;
    }
    let swept = only(stage.sweep(at(300)).await);
    assert_eq!((&swept.run_id, swept.action), (&wedged, SweptAction::Stale));
    assert_eq!(stage.status(&healthy).await, RunState::Claimed);
}

/// A run that kills whoever takes it: after its losses it is put aside, with the last lines it said.
pub async fn f9_a_run_that_kills_its_workers_is_quarantined_with_its_last_lines(stage: Stage) {
    let mut run = stage.queue(QueueRun { max_losses: 2, ..request() }, at(0)).await;
    for loss in 0..3_i64 {
        let now = loss * 1_000;
        assert_eq!(stage.claim_id("worker-001", at(now)).await, Some(run.clone()));
        for line in 0..25 {
            stage.say(&run, info(&format!("line {line}")), at(now)).await;
        }
        let swept = only(stage.sweep(at(now + 300)).await);
        match swept.successor {
            Some(next) if loss < 2 => {
                assert_eq!(swept.action, SweptAction::Lost);
                run = next;
            }
            None if loss == 2 => assert_eq!(swept.action, SweptAction::Quarantined),
            other => panic!("after loss {loss}: {other:?}"),
        }
    }
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Failed, Some(EndCause::Quarantined)));
    let tail: Vec<_> = (5..25).map(|line| format!("line {line}")).collect();
    let expected = json!({
        "error": "worker lost", "original_worker": "worker-001",
        "quarantined": true, "losses": 3, "output_tail": tail,
    });
    assert_eq!(ended.metadata, expected);
    assert_eq!(stage.claim("worker-001", at(9_999)).await, None);
    // A person looks, and decides to try again.
    assert!(stage.retry(&run, at(10_000)).await.created);
}

/// Without a budget for losses the first one is the last, in either state.
pub async fn a_run_without_a_loss_budget_is_quarantined_at_once(stage: Stage) {
    for start in [false, true] {
        let claim = stage.claimed(QueueRun { max_losses: 0, ..request() }, "worker-001", at(0)).await;
        if start {
            stage.start(&claim, "worker-001", at(0)).await;
        }
        let swept = only(stage.sweep(at(300)).await);
        assert_eq!((swept.action, swept.successor), (SweptAction::Quarantined, None));
        let ended = stage.run(&claim.run_id).await;
        assert_eq!(ended.status, if start { RunState::Failed } else { RunState::Cancelled });
        assert_eq!(ended.metadata["output_tail"], json!([]));
    }
}

/// A run that takes too long fails, and is tried again within the budget for reported failures.
pub async fn a_run_that_takes_too_long_is_timed_out(stage: Stage) {
    let wanted = QueueRun { timeout_secs: Some(60), max_attempts: 2, backoff_secs: 0, ..request() };
    let claim = stage.claimed(wanted, "worker-001", at(0)).await;
    stage.start(&claim, "worker-001", at(100)).await;
    let run = claim.run_id;
    assert_eq!(stage.run(&run).await.deadline_at, Some(at(160)), "the time to run begins with the start");
    stage.heartbeat(&run, at(159)).await;
    assert!(stage.sweep(at(159)).await.is_empty());
    let swept = only(stage.sweep(at(160)).await);
    assert_eq!(swept.action, SweptAction::TimedOut);
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.end_cause), (RunState::Failed, Some(EndCause::TimedOut)));
    assert_eq!(ended.metadata, json!({"error": "the run took longer than 60 s"}));
    let Some(next) = swept.successor else { panic!("there is no second try") };
    assert_eq!((stage.run(&next).await.failures, stage.run(&next).await.losses), (1, 0));
    assert_eq!(stage.claim_id("worker-001", at(161)).await, Some(next.clone()));
    stage.say(&next, info("begin"), at(161)).await;
    assert_eq!(only(stage.sweep(at(221)).await).successor, None, "two attempts are two");
}

/// A registered worker ends the command itself and reports it: the sweeper gives it the grace period to.
pub async fn a_registered_worker_has_time_to_report_its_timeout(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    let run = stage.queue(QueueRun { timeout_secs: Some(60), ..request() }, at(0)).await;
    stage.claim_registered("worker-001", worker, at(0)).await;
    stage.say(&run, info("begin"), at(0)).await;
    stage.beat(worker, std::slice::from_ref(&run), at(80)).await;
    assert!(stage.sweep(at(89)).await.is_empty());
    assert_eq!(only(stage.sweep(at(90)).await).action, SweptAction::TimedOut);
}

/// A lease that is over but that nobody has taken away is still the worker's.
pub async fn what_has_expired_but_was_not_taken_is_still_valid(stage: Stage) {
    let claim = stage.running(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    assert!(stage.say(&run, info("late"), at(400)).await.is_some());
    assert_eq!(stage.run(&run).await.lease_until, Some(at(700)));
    assert!(stage.heartbeat(&run, at(800)).await.held);
    assert_eq!(
        stage.finish_as(&claim, "worker-001", FinalStatus::Success, at(2_000)).await,
        Applied::Applied
    );
    assert!(stage.sweep(at(2_001)).await.is_empty());
}

/// A process that was found dead, or said goodbye, is told so: it must not go on, nor take new runs.
pub async fn the_beat_and_the_claim_of_a_dead_worker_are_refused(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    let gone = stage.register("worker-002", at(0)).await;
    stage.queue(request(), at(0)).await;
    assert_eq!(stage.door.retire(gone, at(1)).await.ok(), Some(()));
    assert!(stage.sweep(at(21)).await.is_empty());
    let before = stage.tables().await;
    for (name, worker) in [("worker-001", worker), ("worker-002", gone)] {
        refused(stage.door.beat(worker, Vec::new(), at(22)).await, RefusalCode::Stale);
        let ask = ClaimRuns { worker_id: Some(worker), ..ClaimRuns::one(name) };
        refused(stage.door.claim(ask, at(22)).await, RefusalCode::Stale);
    }
    refused(stage.door.beat(new_worker("nobody").worker_id, Vec::new(), at(22)).await, RefusalCode::Stale);
    stage.unchanged(&before).await;
    let workers = stage.store.workers().await.unwrap_or_default();
    assert_eq!(workers.iter().map(|one| one.ended_at).collect::<Vec<_>>(), [Some(at(21)), Some(at(1))]);
}

/// Whoever says goodbye with runs in hand gives them up at once. That is nobody's loss: no budget pays for it.
pub async fn the_runs_of_a_worker_that_said_goodbye_are_followed_at_no_cost(stage: Stage) {
    for start in [false, true] {
        let worker = stage.register("worker-001", at(0)).await;
        let run = stage.queue(QueueRun { max_losses: 0, ..request() }, at(0)).await;
        stage.claim_registered("worker-001", worker, at(0)).await;
        if start {
            stage.say(&run, info("begin"), at(0)).await;
        }
        assert_eq!(stage.door.retire(worker, at(1)).await.ok(), Some(()));
        let swept = only(stage.sweep(at(1)).await);
        assert_eq!((&swept.run_id, swept.action), (&run, SweptAction::Interrupted));
        let ended = stage.run(&run).await;
        assert_eq!(ended.status, if start { RunState::Failed } else { RunState::Cancelled });
        let Some(next) = swept.successor else { panic!("the request is lost") };
        let next = stage.run(&next).await;
        assert_eq!((next.attempt, next.failures, next.losses, next.available_at), (2, 0, 0, None));
        assert_eq!(stage.claim_id("worker-002", at(2)).await, Some(next.run_id.clone()));
        stage.succeed(&next.run_id, at(3)).await;
    }
}

/// A beat that says an older time, or comes twice, does not make a worker older than it is.
pub async fn a_beat_never_goes_back_in_time(stage: Stage) {
    let worker = stage.register("worker-001", at(0)).await;
    stage.beat(worker, &[], at(50)).await;
    stage.beat(worker, &[], at(10)).await;
    assert!(stage.sweep(at(69)).await.is_empty());
    let workers = stage.store.workers().await.unwrap_or_default();
    assert_eq!(workers.iter().map(|one| (one.beat_at, one.ended_at)).collect::<Vec<_>>(), [(at(50), None)]);
}

/// Fills the stage with everything that a sweeper decides; how many decisions there are.
async fn untidy(stage: &Stage) -> usize {
    let worker = stage.register("worker-009", at(0)).await;
    stage
        .running(QueueRun { concurrency_key: Some("key".to_owned()), ..request() }, "worker-005", at(0))
        .await;
    let mut decisions = 1;
    for second in 0..4 {
        stage.claimed(request(), "worker-001", at(second)).await;
        stage.running(request(), "worker-002", at(second)).await;
        stage.queue(request(), at(second)).await;
        stage.claim_registered("worker-009", worker, at(second)).await;
        let timed = QueueRun { timeout_secs: Some(10), max_attempts: 2, ..request() };
        stage.running(timed, "worker-003", at(second)).await;
        let stopped = stage.running(request(), "worker-004", at(second)).await;
        stage.cancel(&stopped.run_id, at(second)).await;
        stage
            .queue(QueueRun { expires_at: Some(at(60)), available_at: Some(at(59)), ..request() }, at(second))
            .await;
        decisions += 6;
    }
    decisions
}

/// Two sweepers at one instant share the work: each run is ended once, and has one successor.
pub async fn two_sweepers_at_one_instant_agree(stage: Stage) {
    let decisions = untidy(&stage).await;
    let swept = at_once(4, |_| {
        let stage = stage.clone();
        async move { stage.sweep(at(400)).await }
    })
    .await;
    let mut all: Vec<Swept> = swept.into_iter().flatten().collect();
    // Whom one found locked, another took; what both left is for the next sweep.
    all.extend(stage.sweep(at(401)).await);
    let runs: BTreeSet<_> = all.iter().map(|one| one.run_id.clone()).collect();
    assert_eq!((all.len(), runs.len()), (decisions, decisions), "each run once");
    for one in &all {
        let ends = stage.events(&one.run_id).await;
        let ends = ends.iter().filter(|event| event.payload.get("cause").is_some()).count();
        assert_eq!(ends, 1, "one end on record");
        let next = stage.successor(&one.run_id).await.map(|run| run.run_id);
        assert_eq!(next, one.successor);
    }
}

/// What a sweep has decided stays decided.
pub async fn sweeping_twice_changes_nothing(stage: Stage) {
    let decisions = untidy(&stage).await;
    assert_eq!(stage.sweep(at(400)).await.len(), decisions);
    let before = stage.tables().await;
    assert!(stage.sweep(at(400)).await.is_empty());
    stage.unchanged(&before).await;
}

/// The end of one run changes another, the next in line for its key: both are decided in the same sweep.
pub async fn a_sweep_decides_also_what_its_own_ends_have_changed(stage: Stage) {
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), ..request() };
    let holder = stage.running(keyed.clone(), "worker-001", at(0)).await.run_id;
    let next = stage.queue(QueueRun { expires_at: Some(at(60)), ..keyed }, at(1)).await;
    let swept: Vec<_> = stage.sweep(at(400)).await.into_iter().map(|one| (one.run_id, one.action)).collect();
    assert_eq!(swept, [(holder, SweptAction::Lost), (next, SweptAction::Expired)]);
    assert!(stage.sweep(at(400)).await.is_empty());
}

/// A sweep is bounded, and goes on where it stopped.
pub async fn a_sweep_is_bounded_and_goes_on_where_it_stopped(stage: Stage) {
    for second in 0..7 {
        stage.claimed(request(), "worker-001", at(second)).await;
    }
    let mut sizes = Vec::new();
    for _ in 0..4 {
        sizes.push(stage.door.sweep(3, 20.0, at(400)).await.map(|swept| swept.len()).unwrap_or_default());
    }
    assert_eq!(sizes, [3, 3, 1, 0]);
}

/// A report and a sweep at one instant: the run ends once, and is followed only if the sweep was first.
pub async fn f5_a_report_and_a_sweep_at_one_instant_end_the_run_once(stage: Stage) {
    for round in 0..12_i64 {
        let claim = stage.running(request(), "worker-001", at(round * 1_000)).await;
        let now = at(round * 1_000 + 300);
        let outcomes = at_once(2, |number| {
            let (stage, claim) = (stage.clone(), claim.clone());
            async move {
                if number == 0 {
                    stage.finish_as(&claim, "worker-001", FinalStatus::Success, now).await == Applied::Applied
                } else {
                    !stage.sweep(now).await.is_empty()
                }
            }
        })
        .await;
        let run = stage.run(&claim.run_id).await;
        let successor = stage.successor(&claim.run_id).await;
        match outcomes[..] {
            [true, false] => assert_eq!((run.status, successor), (RunState::Success, None)),
            [false, true] => {
                assert_eq!(run.status, RunState::Failed);
                let Some(next) = successor else { panic!("the request is lost") };
                assert_eq!(stage.claim_id("worker-002", now).await, Some(next.run_id.clone()));
                stage.succeed(&next.run_id, now).await;
            }
            _ => panic!("both or neither ended it: {outcomes:?}, {run:?}"),
        }
    }
}

/// A full disk in the middle of a sweep undoes all of it; the next sweep does all of it. SQLite's fault here
/// concerns a run, so only the runs that it concerns are left to the next sweep.
pub async fn f4_a_fault_during_a_sweep_is_repaired_by_the_next(stage: Stage) {
    let decisions = untidy(&stage).await;
    // No successor can be queued any more: the sweep breaks half-way, as if the disk were full.
    let (fault, repair) = if stage.kind == Kind::Sqlite {
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
    assert_eq!(stage.plain.script(fault).await.map_err(|bad| bad.to_string()), Ok(()));
    let before = stage.tables().await;
    let swept = stage.door.sweep(500, 20.0, at(400)).await.map(|swept| swept.len());
    if stage.kind == Kind::Sqlite {
        assert!(swept.as_ref().is_ok_and(|swept| *swept < decisions), "{swept:?}");
    } else {
        assert!(swept.is_err(), "the fault is not swallowed");
        stage.unchanged(&before).await;
    }
    assert_eq!(stage.plain.script(repair).await.map_err(|bad| bad.to_string()), Ok(()));
    assert_eq!(stage.sweep(at(400)).await.len(), decisions - swept.unwrap_or(0));
}
