//! Ends: reported once by whoever holds the run, and final.

use serde_json::json;
use tidemill_core::event::EventKind;
use tidemill_core::limits::METADATA_BYTES_MAX;
use tidemill_core::run::{Applied, Applied as A, EndCause, FinalStatus, QueueRun, RunState, RunState as S};
use tidemill_core::{Json, RunId};
use tidemill_store::{FinishRun, Holder, RefusalCode};

use super::at_once;
use crate::door::{Stage, at, info, refused, request};

fn end(run: &RunId, status: FinalStatus, metadata: Json) -> FinishRun {
    FinishRun { run_id: run.clone(), status, metadata, epoch: None }
}

/// What was asked and what was reported stand together; the end is in the row.
pub async fn a_report_ends_the_run_and_is_merged_into_its_metadata(stage: Stage) {
    for (status, state) in [
        (FinalStatus::Success, RunState::Success),
        (FinalStatus::Failed, RunState::Failed),
        (FinalStatus::Cancelled, RunState::Cancelled),
    ] {
        let wanted = QueueRun {
            metadata: json!({"trigger": "cron", "exit_code": null, "deep": {"a": 1}}),
            ..request()
        };
        let run = stage.running(wanted, "worker-001", at(0)).await.run_id;
        let report = json!({"exit_code": 7, "deep": {"b": 2}, "note": "ä"});
        assert_eq!(stage.finish(&run, status, report, at(9)).await, Applied::Applied);
        let ended = stage.run(&run).await;
        assert_eq!((ended.status, ended.finished_at, ended.gate), (state, Some(at(9)), None));
        let cause = if status == FinalStatus::Cancelled { EndCause::Cancelled } else { EndCause::Reported };
        assert_eq!(ended.end_cause, Some(cause));
        assert_eq!(ended.metadata, json!({"trigger": "cron", "exit_code": 7, "deep": {"b": 2}, "note": "ä"}));
        assert_eq!(stage.claim("worker-002", at(10)).await, None);
    }
}

/// A worker that says nothing before its end: the run passes through running all the same.
pub async fn a_claimed_run_that_is_finished_passes_through_running(stage: Stage) {
    let run = stage.claimed(request(), "worker-001", at(0)).await.run_id;
    stage.succeed(&run, at(1)).await;
    let messages = ["Run queued", "Run claimed by worker", "Run started", "Run succeeded"];
    assert_eq!(stage.messages(&run).await, messages);
}

/// Nobody has claimed it: there is nothing to succeed or fail with.
pub async fn a_run_that_waits_cannot_succeed_or_fail(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    for status in [FinalStatus::Success, FinalStatus::Failed] {
        assert_eq!(stage.finish(&run, status, json!({}), at(1)).await, Applied::Stale);
    }
    assert_eq!(stage.status(&run).await, RunState::Queued);
    assert_eq!(stage.claim_id("worker-001", at(2)).await, Some(run));
}

/// The answer was lost: the same report is recognised, changes nothing, and is not a refusal.
pub async fn a_finish_asked_again_is_a_duplicate_and_not_stale(stage: Stage) {
    for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
        let run = stage.running(request(), "worker-001", at(0)).await.run_id;
        let report = json!({"exit_code": 3, "list": [1, 2]});
        assert_eq!(stage.finish(&run, status, report.clone(), at(1)).await, Applied::Applied);
        let before = stage.tables().await;
        assert_eq!(stage.finish(&run, status, report, at(2)).await, Applied::Duplicate);
        stage.unchanged(&before).await;
        let other = json!({"exit_code": 4});
        assert_eq!(
            stage.finish(&run, status, other, at(3)).await,
            Applied::Stale,
            "another report is another"
        );
    }
}

/// A frozen worker wakes up after its run was given away: what it sends is refused, recorded once per verb, and
/// changes nothing, however often it asks.
pub async fn f6_a_zombie_is_refused_once_on_record_and_changes_nothing(stage: Stage) {
    let claim = stage.running(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    let swept = stage.sweep(at(301)).await;
    assert_eq!(swept.len(), 1, "the run was taken away");
    let ended = stage.run(&run).await;
    let length = stage.events(&run).await.len();
    let beliefs =
        [Holder::default(), Holder { worker: Some("worker-001".to_owned()), epoch: Some(claim.epoch) }];
    for second in 0..3 {
        for holder in beliefs.clone() {
            let now = at(310 + second);
            let beat = stage.door.heartbeat(run.clone(), holder.clone(), now).await;
            assert!(beat.is_ok_and(|answer| !answer.held));
            let events = vec![info("I am back"), info("and still here").keyed("k")];
            assert_eq!(stage.append(&run, events, holder.clone(), now).await, [None, None]);
            assert!(
                stage.door.start(run.clone(), holder, now).await.is_ok_and(|answer| answer == Applied::Stale)
            );
            for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
                assert_eq!(stage.finish_as(&claim, "worker-001", status, now).await, Applied::Stale);
            }
        }
    }
    assert_eq!(stage.run(&run).await, ended, "the row is as it was");
    let events = stage.events(&run).await;
    let refusals: Vec<_> =
        events[length..].iter().map(|event| (event.kind, event.message.as_str())).collect();
    let expected =
        ["heartbeat", "append", "start", "finish"].map(|verb| format!("Refused {verb}: the lease is gone"));
    assert_eq!(refusals, expected.each_ref().map(|text| (EventKind::Refusal, text.as_str())));
    assert_eq!(events[length].payload, json!({"verb": "heartbeat", "epoch": 1}));
    assert_eq!(
        stage.store.tries(run).await.map(|tries| tries.len()).ok(),
        Some(2),
        "one successor, not more"
    );
}

/// A report after a cancel or a timeout is late, whatever it says.
pub async fn a_late_report_after_cancel_or_timeout_changes_nothing(stage: Stage) {
    let cancelled = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.finish(&cancelled, FinalStatus::Cancelled, json!({"cancelled_by": "ann"}), at(1)).await;
    let timed = QueueRun { timeout_secs: Some(60), ..request() };
    let timed_out = stage.running(timed, "worker-001", at(0)).await.run_id;
    assert_eq!(stage.sweep(at(61)).await.len(), 1);
    for run in [cancelled, timed_out] {
        let before = stage.run(&run).await;
        let report = json!({"exit_code": 0});
        assert_eq!(stage.finish(&run, FinalStatus::Success, report, at(70)).await, Applied::Stale);
        assert_eq!(stage.run(&run).await, before);
        assert_eq!(
            stage.messages(&run).await.last().map(String::as_str),
            Some("Refused finish: the lease is gone")
        );
    }
}

/// The fence: another worker's name or another epoch is not the holder, for any verb.
pub async fn only_the_holder_may_write(stage: Stage) {
    let claim = stage.claimed(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    for (worker, epoch) in [(Some("worker-002"), None), (None, Some(2)), (Some("worker-001"), Some(0))] {
        let holder = Holder { worker: worker.map(str::to_owned), epoch };
        let answer = stage.door.start(run.clone(), holder.clone(), at(1)).await;
        assert_eq!(answer.ok(), Some(Applied::Stale), "{holder:?}");
        assert_eq!(stage.append(&run, vec![info("mine")], holder.clone(), at(1)).await, [None]);
        let beat = stage.door.heartbeat(run.clone(), holder.clone(), at(1)).await;
        assert!(beat.is_ok_and(|answer| !answer.held));
        for status in [FinalStatus::Success, FinalStatus::Failed] {
            let report = FinishRun { epoch, ..end(&run, status, json!({})) };
            let answer = stage.door.finish(vec![report], holder.worker.clone(), at(1)).await;
            assert_eq!(answer.ok(), Some(vec![Applied::Stale]), "{holder:?}");
        }
    }
    let kept = stage.run(&run).await;
    assert_eq!((kept.status, kept.lease_until), (RunState::Claimed, Some(at(300))));
    assert_eq!(stage.finish_as(&claim, "worker-001", FinalStatus::Success, at(2)).await, Applied::Applied);
}

/// A batch of reports: each has its own outcome, and what is late does not hold up the others.
pub async fn a_batch_of_reports_has_an_outcome_for_each(stage: Stage) {
    let mut runs = Vec::new();
    for second in 0..5 {
        runs.push(stage.claimed(request(), "worker-001", at(second)).await.run_id);
    }
    stage.succeed(&runs[1], at(10)).await;
    stage.fail(&runs[3], at(10)).await;
    let reports = vec![
        end(&runs[4], FinalStatus::Success, json!({"n": 4})),
        end(&runs[1], FinalStatus::Success, json!({})),
        end(&runs[0], FinalStatus::Failed, json!({"n": 0})),
        end(&runs[3], FinalStatus::Success, json!({})),
        end(&runs[2], FinalStatus::Cancelled, json!({"n": 2})),
    ];
    let outcomes = stage.door.finish(reports, Some("worker-001".to_owned()), at(11)).await;
    assert_eq!(outcomes.ok(), Some(vec![A::Applied, A::Duplicate, A::Applied, A::Stale, A::Applied]));
    let mut states = Vec::new();
    for run in &runs {
        states.push(stage.status(run).await);
    }
    assert_eq!(states, [S::Failed, S::Success, S::Cancelled, S::Failed, S::Success]);
    assert_eq!(stage.run(&runs[0]).await.metadata, json!({"n": 0}));
}

/// Named twice in one batch, a run ends as the first report says, once.
pub async fn a_run_named_twice_in_one_batch_ends_once(stage: Stage) {
    let run = stage.claimed(request(), "worker-001", at(0)).await.run_id;
    let other = stage.claimed(request(), "worker-001", at(0)).await.run_id;
    let reports = vec![
        end(&run, FinalStatus::Success, json!({"n": 1})),
        end(&other, FinalStatus::Success, json!({})),
        end(&run, FinalStatus::Failed, json!({"n": 2})),
        end(&run, FinalStatus::Success, json!({"n": 1})),
    ];
    let outcomes = stage.door.finish(reports, None, at(1)).await;
    assert_eq!(outcomes.ok(), Some(vec![A::Applied, A::Applied, A::Stale, A::Duplicate]));
    let ended = stage.run(&run).await;
    assert_eq!((ended.status, ended.metadata), (RunState::Success, json!({"n": 1})));
}

/// Sixteen reports at one instant, half of them good and half bad: exactly one counts.
pub async fn of_many_reports_at_one_instant_one_counts(stage: Stage) {
    for round in 0..4_i64 {
        let run = stage.running(request(), "worker-001", at(round)).await.run_id;
        // In pairs, so that every door gives the outcome itself.
        let other = stage.running(request(), "worker-001", at(round)).await.run_id;
        let outcomes = at_once(16, |number| {
            let (stage, run, other) = (stage.clone(), run.clone(), other.clone());
            async move {
                let status = if number % 2 == 0 { FinalStatus::Success } else { FinalStatus::Failed };
                let report = json!({"number": number});
                // Every other one names them the other way round, which must not make them wait for each other.
                let mut reports = vec![end(&run, status, report.clone()), end(&other, status, report)];
                if number % 4 < 2 {
                    return stage.door.finish(reports, None, at(60)).await.ok();
                }
                reports.reverse();
                let outcomes = stage.door.finish(reports, None, at(60)).await.ok();
                outcomes.map(|mut outcomes| {
                    outcomes.reverse();
                    outcomes
                })
            }
        })
        .await;
        for (place, run) in [&run, &other].into_iter().enumerate() {
            let outcome =
                |answer: &Option<Vec<Applied>>| answer.as_ref().and_then(|all| all.get(place).copied());
            let counts =
                outcomes.iter().enumerate().filter(|(_, answer)| outcome(answer) == Some(Applied::Applied));
            let counts: Vec<_> = counts.map(|(number, _)| number).collect();
            assert_eq!(counts.len(), 1, "{outcomes:?}");
            assert_eq!(
                stage.run(run).await.metadata,
                json!({"number": counts[0]}),
                "and it is the one that is kept"
            );
            let refusals = outcomes.iter().filter(|answer| outcome(answer) == Some(Applied::Stale)).count();
            assert_eq!(refusals, 15);
        }
    }
}

/// Bad reports are refused before anything is written: not an object, too large, an unknown run in a batch.
pub async fn a_bad_report_is_refused_and_nothing_is_written(stage: Stage) {
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let before = stage.tables().await;
    for metadata in [json!(null), json!([1]), json!("text"), json!(1)] {
        let answer = stage.try_finish(&run, FinalStatus::Success, metadata, at(1)).await;
        refused(answer, RefusalCode::BadValue);
    }
    let large = json!({"text": "x".repeat(METADATA_BYTES_MAX)});
    refused(stage.try_finish(&run, FinalStatus::Success, large.clone(), at(1)).await, RefusalCode::TooLarge);
    let batch = vec![end(&run, FinalStatus::Success, json!({})), end(&run, FinalStatus::Success, large)];
    refused(stage.door.finish(batch, None, at(1)).await, RefusalCode::TooLarge);
    let nobody: RunId = super::unknown_run();
    let batch =
        vec![end(&run, FinalStatus::Success, json!({})), end(&nobody, FinalStatus::Success, json!({}))];
    refused(stage.door.finish(batch, None, at(1)).await, RefusalCode::UnknownRun);
    stage.unchanged(&before).await;
}

/// Metadata may grow up to its bound by what is reported, and not beyond.
pub async fn metadata_does_not_grow_beyond_its_bound(stage: Stage) {
    let half = METADATA_BYTES_MAX / 2 + 100;
    let wanted = QueueRun { metadata: json!({"asked": "x".repeat(half)}), ..request() };
    let run = stage.running(wanted, "worker-001", at(0)).await.run_id;
    let before = stage.tables().await;
    let report = json!({"reported": "x".repeat(half)});
    refused(stage.try_finish(&run, FinalStatus::Success, report, at(1)).await, RefusalCode::TooLarge);
    stage.unchanged(&before).await;
    stage.succeed(&run, at(2)).await;
}
