//! Finish: reported once by the holder of the run, and final.

use serde_json::json;
use tidemill_core::event::EventKind;
use tidemill_core::limits::METADATA_BYTES_MAX;
use tidemill_core::run::{
    ChangeOutcome, ChangeOutcome as A, EndCause, FinalStatus, QueueRun, RunState, RunState as S,
};
use tidemill_core::{Json, RunId};
use tidemill_store::{FinishRun, Holder, RefusalCode};

use super::at_once;
use crate::interface::{Fixture, at, info, refused, request};

fn end(run: &RunId, status: FinalStatus, metadata: Json) -> FinishRun {
    FinishRun { run_id: run.clone(), status, metadata, epoch: None }
}

/// The requested and the reported metadata are merged.
pub async fn finish_ends_the_run_and_merges_its_metadata(fixture: Fixture) {
    for (status, state) in [
        (FinalStatus::Success, RunState::Success),
        (FinalStatus::Failed, RunState::Failed),
        (FinalStatus::Cancelled, RunState::Cancelled),
    ] {
        let wanted = QueueRun {
            metadata: json!({"trigger": "cron", "exit_code": null, "deep": {"a": 1}}),
            ..request()
        };
        let run = fixture.running(wanted, "worker-001", at(0)).await.run_id;
        let report = json!({"exit_code": 7, "deep": {"b": 2}, "note": "ä"});
        assert_eq!(fixture.finish(&run, status, report, at(9)).await, ChangeOutcome::Applied);
        let ended = fixture.run(&run).await;
        assert_eq!((ended.status, ended.finished_at, ended.gate), (state, Some(at(9)), None));
        let cause = if status == FinalStatus::Cancelled { EndCause::Cancelled } else { EndCause::Reported };
        assert_eq!(ended.end_cause, Some(cause));
        assert_eq!(ended.metadata, json!({"trigger": "cron", "exit_code": 7, "deep": {"b": 2}, "note": "ä"}));
        assert_eq!(fixture.claim("worker-002", at(10)).await, None);
    }
}

/// A worker that sends no event before its report: the run still passes through running.
pub async fn finished_claimed_run_passes_through_running(fixture: Fixture) {
    let run = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    fixture.succeed(&run, at(1)).await;
    let messages = ["Run queued", "Run claimed by worker", "Run started", "Run succeeded"];
    assert_eq!(fixture.messages(&run).await, messages);
}

pub async fn queued_run_cannot_succeed_or_fail(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    for status in [FinalStatus::Success, FinalStatus::Failed] {
        assert_eq!(fixture.finish(&run, status, json!({}), at(1)).await, ChangeOutcome::Stale);
    }
    assert_eq!(fixture.status(&run).await, RunState::Queued);
    assert_eq!(fixture.claim_id("worker-001", at(2)).await, Some(run));
}

/// After a lost answer the same report is recognized as a duplicate, not refused.
pub async fn repeated_finish_is_a_duplicate(fixture: Fixture) {
    for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
        let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
        let report = json!({"exit_code": 3, "list": [1, 2]});
        assert_eq!(fixture.finish(&run, status, report.clone(), at(1)).await, ChangeOutcome::Applied);
        let before = fixture.tables().await;
        assert_eq!(fixture.finish(&run, status, report, at(2)).await, ChangeOutcome::Duplicate);
        fixture.unchanged(&before).await;
        let other = json!({"exit_code": 4});
        assert_eq!(
            fixture.finish(&run, status, other, at(3)).await,
            ChangeOutcome::Stale,
            "another report is another"
        );
    }
}

/// A frozen worker resumes after its run was given to another one. Its calls are refused, recorded once per operation,
/// and change nothing.
pub async fn f6_a_zombie_is_refused_once_on_record_and_changes_nothing(fixture: Fixture) {
    let claim = fixture.running(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    let swept = fixture.sweep(at(301)).await;
    assert_eq!(swept.len(), 1, "the run was lost");
    let ended = fixture.run(&run).await;
    let length = fixture.events(&run).await.len();
    // The first call of each verb is on record. It names its worker, as every call over HTTP does.
    let beliefs =
        [Holder { worker: Some("worker-001".to_owned()), epoch: Some(claim.epoch) }, Holder::default()];
    for second in 0..3 {
        for holder in beliefs.clone() {
            let now = at(310 + second);
            let beat = fixture.interface.heartbeat(run.clone(), holder.clone(), now).await;
            assert!(beat.is_ok_and(|answer| !answer.held));
            let events = vec![info("I am back"), info("and still here").keyed("k")];
            assert_eq!(fixture.append(&run, events, holder.clone(), now).await, [None, None]);
            assert!(
                fixture
                    .interface
                    .start(run.clone(), holder, now)
                    .await
                    .is_ok_and(|answer| answer == ChangeOutcome::Stale)
            );
            for status in [FinalStatus::Success, FinalStatus::Failed, FinalStatus::Cancelled] {
                assert_eq!(fixture.finish_as(&claim, "worker-001", status, now).await, ChangeOutcome::Stale);
            }
        }
    }
    assert_eq!(fixture.run(&run).await, ended, "the row is as it was");
    let events = fixture.events(&run).await;
    let refusals: Vec<_> =
        events[length..].iter().map(|event| (event.kind, event.message.as_str(), &event.payload)).collect();
    let expected = ["heartbeat", "append", "start", "finish"].map(|verb| {
        let payload = json!({"verb": verb, "epoch": claim.epoch, "worker_id": "worker-001"});
        (format!("Refused {verb}: the lease is gone"), payload)
    });
    let expected = expected.each_ref().map(|(text, payload)| (EventKind::Refusal, text.as_str(), payload));
    assert_eq!(refusals, expected);
    assert_eq!(
        fixture.store.tries(run).await.map(|tries| tries.len()).ok(),
        Some(2),
        "one successor, not more"
    );
}

pub async fn late_report_after_cancel_or_timeout_changes_nothing(fixture: Fixture) {
    let cancelled = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.finish(&cancelled, FinalStatus::Cancelled, json!({"cancelled_by": "ann"}), at(1)).await;
    let timed = QueueRun { timeout_secs: Some(60), ..request() };
    let timed_out = fixture.running(timed, "worker-001", at(0)).await.run_id;
    assert_eq!(fixture.sweep(at(61)).await.len(), 1);
    for run in [cancelled, timed_out] {
        let before = fixture.run(&run).await;
        let report = json!({"exit_code": 0});
        assert_eq!(fixture.finish(&run, FinalStatus::Success, report, at(70)).await, ChangeOutcome::Stale);
        assert_eq!(fixture.run(&run).await, before);
        assert_eq!(
            fixture.messages(&run).await.last().map(String::as_str),
            Some("Refused finish: the lease is gone")
        );
    }
}

/// Fencing: another worker name or epoch is refused by every operation.
pub async fn only_the_holder_may_write(fixture: Fixture) {
    let claim = fixture.claimed(request(), "worker-001", at(0)).await;
    let run = claim.run_id.clone();
    for (worker, epoch) in [(Some("worker-002"), None), (None, Some(2)), (Some("worker-001"), Some(0))] {
        let holder = Holder { worker: worker.map(str::to_owned), epoch };
        let answer = fixture.interface.start(run.clone(), holder.clone(), at(1)).await;
        assert_eq!(answer.ok(), Some(ChangeOutcome::Stale), "{holder:?}");
        assert_eq!(fixture.append(&run, vec![info("mine")], holder.clone(), at(1)).await, [None]);
        let beat = fixture.interface.heartbeat(run.clone(), holder.clone(), at(1)).await;
        assert!(beat.is_ok_and(|answer| !answer.held));
        for status in [FinalStatus::Success, FinalStatus::Failed] {
            let report = FinishRun { epoch, ..end(&run, status, json!({})) };
            let answer = fixture.interface.finish(vec![report], holder.worker.clone(), at(1)).await;
            assert_eq!(answer.ok(), Some(vec![ChangeOutcome::Stale]), "{holder:?}");
        }
    }
    let stored = fixture.run(&run).await;
    assert_eq!((stored.status, stored.lease_until), (RunState::Claimed, Some(at(300))));
    assert_eq!(
        fixture.finish_as(&claim, "worker-001", FinalStatus::Success, at(2)).await,
        ChangeOutcome::Applied
    );
}

/// A late report in a batch does not affect the others.
pub async fn batch_finish_returns_one_outcome_per_run(fixture: Fixture) {
    let mut runs = Vec::new();
    for second in 0..5 {
        runs.push(fixture.claimed(request(), "worker-001", at(second)).await.run_id);
    }
    fixture.succeed(&runs[1], at(10)).await;
    fixture.fail(&runs[3], at(10)).await;
    let reports = vec![
        end(&runs[4], FinalStatus::Success, json!({"n": 4})),
        end(&runs[1], FinalStatus::Success, json!({})),
        end(&runs[0], FinalStatus::Failed, json!({"n": 0})),
        end(&runs[3], FinalStatus::Success, json!({})),
        end(&runs[2], FinalStatus::Cancelled, json!({"n": 2})),
    ];
    let outcomes = fixture.interface.finish(reports, Some("worker-001".to_owned()), at(11)).await;
    assert_eq!(outcomes.ok(), Some(vec![A::Applied, A::Duplicate, A::Applied, A::Stale, A::Applied]));
    let mut states = Vec::new();
    for run in &runs {
        states.push(fixture.status(run).await);
    }
    assert_eq!(states, [S::Failed, S::Success, S::Cancelled, S::Failed, S::Success]);
    assert_eq!(fixture.run(&runs[0]).await.metadata, json!({"n": 0}));
}

/// The first report of the run in the batch counts.
pub async fn run_named_twice_in_a_batch_ends_once(fixture: Fixture) {
    let run = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    let other = fixture.claimed(request(), "worker-001", at(0)).await.run_id;
    let reports = vec![
        end(&run, FinalStatus::Success, json!({"n": 1})),
        end(&other, FinalStatus::Success, json!({})),
        end(&run, FinalStatus::Failed, json!({"n": 2})),
        end(&run, FinalStatus::Success, json!({"n": 1})),
    ];
    let outcomes = fixture.interface.finish(reports, None, at(1)).await;
    assert_eq!(outcomes.ok(), Some(vec![A::Applied, A::Applied, A::Stale, A::Duplicate]));
    let ended = fixture.run(&run).await;
    assert_eq!((ended.status, ended.metadata), (RunState::Success, json!({"n": 1})));
}

/// Sixteen concurrent reports, half of them successes: exactly one counts.
pub async fn simultaneous_reports_count_once(fixture: Fixture) {
    for round in 0..4_i64 {
        let run = fixture.running(request(), "worker-001", at(round)).await.run_id;
        // In batches of two, because a batch returns the outcome on every interface.
        let other = fixture.running(request(), "worker-001", at(round)).await.run_id;
        let outcomes = at_once(16, |number| {
            let (fixture, run, other) = (fixture.clone(), run.clone(), other.clone());
            async move {
                let status = if number % 2 == 0 { FinalStatus::Success } else { FinalStatus::Failed };
                let report = json!({"number": number});
                // Every second batch names the runs in the opposite order, which must not deadlock.
                let mut reports = vec![end(&run, status, report.clone()), end(&other, status, report)];
                if number % 4 < 2 {
                    return fixture.interface.finish(reports, None, at(60)).await.ok();
                }
                reports.reverse();
                let outcomes = fixture.interface.finish(reports, None, at(60)).await.ok();
                outcomes.map(|mut outcomes| {
                    outcomes.reverse();
                    outcomes
                })
            }
        })
        .await;
        for (place, run) in [&run, &other].into_iter().enumerate() {
            let outcome =
                |answer: &Option<Vec<ChangeOutcome>>| answer.as_ref().and_then(|all| all.get(place).copied());
            let counts = outcomes
                .iter()
                .enumerate()
                .filter(|(_, answer)| outcome(answer) == Some(ChangeOutcome::Applied));
            let counts: Vec<_> = counts.map(|(number, _)| number).collect();
            assert_eq!(counts.len(), 1, "{outcomes:?}");
            assert_eq!(
                fixture.run(run).await.metadata,
                json!({"number": counts[0]}),
                "and it is the one that is kept"
            );
            let refusals =
                outcomes.iter().filter(|answer| outcome(answer) == Some(ChangeOutcome::Stale)).count();
            assert_eq!(refusals, 15);
        }
    }
}

/// Metadata that is not an object, oversized metadata, or an unknown run in a batch.
pub async fn invalid_report_is_refused_and_writes_nothing(fixture: Fixture) {
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let before = fixture.tables().await;
    for metadata in [json!(null), json!([1]), json!("text"), json!(1)] {
        let answer = fixture.try_finish(&run, FinalStatus::Success, metadata, at(1)).await;
        refused(answer, RefusalCode::BadValue);
    }
    let large = json!({"text": "x".repeat(METADATA_BYTES_MAX)});
    refused(
        fixture.try_finish(&run, FinalStatus::Success, large.clone(), at(1)).await,
        RefusalCode::TooLarge,
    );
    let batch = vec![end(&run, FinalStatus::Success, json!({})), end(&run, FinalStatus::Success, large)];
    refused(fixture.interface.finish(batch, None, at(1)).await, RefusalCode::TooLarge);
    let nobody: RunId = super::unknown_run();
    let batch =
        vec![end(&run, FinalStatus::Success, json!({})), end(&nobody, FinalStatus::Success, json!({}))];
    refused(fixture.interface.finish(batch, None, at(1)).await, RefusalCode::UnknownRun);
    fixture.unchanged(&before).await;
}

pub async fn metadata_over_the_size_limit_is_refused(fixture: Fixture) {
    let half = METADATA_BYTES_MAX / 2 + 100;
    let wanted = QueueRun { metadata: json!({"asked": "x".repeat(half)}), ..request() };
    let run = fixture.running(wanted, "worker-001", at(0)).await.run_id;
    let before = fixture.tables().await;
    let report = json!({"reported": "x".repeat(half)});
    refused(fixture.try_finish(&run, FinalStatus::Success, report, at(1)).await, RefusalCode::TooLarge);
    fixture.unchanged(&before).await;
    fixture.succeed(&run, at(2)).await;
}
