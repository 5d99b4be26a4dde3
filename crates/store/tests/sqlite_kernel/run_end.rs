//! From the claim to the end of a run and its successors: reports, losses, cancels, zombies.

use crate::fixture::{KernelFixture, at, code, info, shop};
use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{ChangeOutcome, EndCause, FinalStatus, Gate, QueueRun, RunState};
use tidemill_core::{Json, RunId, limits, retry};
use tidemill_store::{CancelOutcome, ClaimRuns, FinishRun, Holder, RefusalCode, SweptRun};

#[tokio::test]
async fn failed_run_is_retried_with_backoff_up_to_its_budget() {
    let mut fixture = KernelFixture::new().await;
    let request = QueueRun { max_attempts: 2, backoff_secs: 10, metadata: json!({"n": 1}), ..shop() };
    let first = fixture.queue(request, 0).await;
    fixture.claim_one(1).await;
    fixture.finish(&first, FinalStatus::Failed, json!({"error": "no"}), 2).await;

    let tries = fixture.store.tries(first.clone()).await.unwrap();
    let second = &tries[1];
    assert_eq!((second.attempt, second.failures, second.losses), (2, 1, 0));
    assert_eq!(second.available_at, Some(at(2) + retry::backoff(10, 0, &first)));
    assert_eq!((second.gate, &second.metadata), (Some(Gate::Time), &json!({"n": 1})));
    let queued = fixture.events(&second.run_id).await.remove(0).3;
    assert_eq!(queued, json!({"to": "queued", "retry_of": first.as_str(), "attempt": 2}));

    fixture.claim_one(60).await;
    fixture.finish(&second.run_id, FinalStatus::Failed, json!({}), 61).await;
    assert_eq!(fixture.store.tries(first.clone()).await.unwrap().len(), 2);
    // A person may retry once more with fresh budgets. A repeated request returns the same run.
    let asked = fixture.store.retry_run(second.run_id.clone(), "ann".to_owned(), Some(at(62))).await.unwrap();
    let again = fixture.store.retry_run(second.run_id.clone(), "ann".to_owned(), Some(at(63))).await.unwrap();
    assert_eq!((asked.created, again.created, &asked.run_id), (true, false, &again.run_id));
    let third = fixture.run(&asked.run_id).await;
    assert_eq!((third.attempt, third.failures, third.gate), (3, 0, Some(Gate::Open)));
    assert_eq!(fixture.messages(&second.run_id).await.pop().unwrap(), "Retry requested");
    let refused = fixture.store.retry_run(third.run_id, "ann".to_owned(), Some(at(64))).await;
    assert_eq!(code(refused), RefusalCode::NotRetryable);
}

#[tokio::test]
async fn lost_run_is_retried_then_quarantined_with_its_last_events() {
    let fixture = KernelFixture::new().await;
    let first = fixture.queue(QueueRun { max_losses: 1, ..shop() }, 0).await;
    fixture.claim_one(1).await;
    assert_eq!(fixture.sweep(300).await, []);
    let swept = fixture.sweep(301).await;
    let second = swept[0].successor.clone().expect("another try");
    assert_eq!(
        swept,
        [SweptRun { run_id: first.clone(), action: EndCause::Stale, successor: Some(second.clone()) }]
    );
    assert_eq!(
        fixture.run(&first).await.metadata,
        json!({
            "cancelled_by": "system", "original_worker": "w", "claimed_at": "2027-01-15T08:00:01.000000Z",
            "reason": "Stale run (claimed for >5 minutes without events)",
        })
    );
    fixture.claim_one(302).await;
    let lines = (0..25).map(|n| info(&format!("line {n}"))).collect();
    fixture.append(&second, lines, 303).await;
    assert_eq!(
        fixture.sweep(603).await,
        [SweptRun { run_id: second.clone(), action: EndCause::Quarantined, successor: None }]
    );
    let ended = fixture.run(&second).await;
    assert_eq!((ended.status, ended.losses), (RunState::Failed, 1));
    assert_eq!(ended.metadata["losses"], 2);
    let tail = ended.metadata["output_tail"].as_array().unwrap();
    assert_eq!((tail.len(), &tail[0], &tail[19]), (20, &json!("line 5"), &json!("line 24")));
}

#[tokio::test]
async fn queued_run_expires_and_running_run_times_out() {
    let fixture = KernelFixture::new().await;
    let waiting = fixture.queue(QueueRun { expires_at: Some(at(10)), ..shop() }, 0).await;
    assert_eq!(
        fixture.sweep(10).await,
        [SweptRun { run_id: waiting, action: EndCause::Expired, successor: None }]
    );
    let slow = fixture.queue(QueueRun { timeout_secs: Some(60), max_attempts: 2, ..shop() }, 11).await;
    fixture.claim_one(12).await;
    fixture.store.start_run(slow.clone(), Holder::default(), Some(at(13))).await.unwrap();
    assert_eq!(fixture.sweep(72).await, []);
    let swept = fixture.sweep(73).await;
    assert_eq!((swept[0].action, swept[0].successor.is_some()), (EndCause::TimedOut, true));
    assert_eq!(fixture.run(&slow).await.metadata, json!({"error": "the run took longer than 60 s"}));
}

#[tokio::test]
async fn cancel_ends_queued_run_and_requests_stop_of_held_run() {
    let mut fixture = KernelFixture::new().await;
    let cancel = async |fixture: &KernelFixture, run: &RunId, secs| {
        let reason = Some("wrong branch".to_owned());
        fixture.store.cancel_run(run.clone(), "ann".to_owned(), reason, Some(at(secs))).await.unwrap()
    };
    let waiting = fixture.queue(shop(), 0).await;
    assert_eq!(cancel(&fixture, &waiting, 1).await, CancelOutcome::Cancelled);
    assert_eq!(cancel(&fixture, &waiting, 2).await, CancelOutcome::Ended);
    let notes = json!({"cancelled_by": "ann", "reason": "wrong branch"});
    assert_eq!(fixture.run(&waiting).await.metadata, notes);

    let held = fixture.queue(QueueRun { max_attempts: 9, ..shop() }, 3).await;
    fixture.claim_one(4).await;
    assert_eq!(cancel(&fixture, &held, 5).await, CancelOutcome::Requested);
    assert_eq!(cancel(&fixture, &held, 6).await, CancelOutcome::Requested);
    let beat = fixture.store.heartbeat(held.clone(), Holder::default(), Some(at(7))).await.unwrap();
    assert!(beat.held && beat.cancel_requested && beat.lease_until == Some(at(307)));
    assert_eq!(fixture.sweep(34).await, []);
    assert_eq!(fixture.sweep(35).await[0].action, EndCause::CancelGrace);
    assert_eq!(fixture.run(&held).await.metadata, notes);
    let last = ["Run queued", "Run claimed by worker", "Cancel requested", "Run cancelled"];
    assert_eq!(fixture.messages(&held).await, last);
}

#[tokio::test]
async fn zombie_changes_nothing_and_is_recorded_once_per_operation() {
    let mut fixture = KernelFixture::new().await;
    let run = fixture.queue(shop(), 0).await;
    fixture.claim_one(1).await;
    for holder in [
        Holder { worker: Some("other".to_owned()), epoch: None },
        Holder { worker: Some("w".to_owned()), epoch: Some(7) },
    ] {
        let stale = fixture.store.start_run(run.clone(), holder.clone(), Some(at(2))).await.unwrap();
        assert_eq!(stale, ChangeOutcome::Stale);
        let beat = fixture.store.heartbeat(run.clone(), holder.clone(), Some(at(2))).await.unwrap();
        assert!(!beat.held && beat.lease_until.is_none());
        let ids =
            fixture.store.append_events(run.clone(), vec![info("x")], holder, Some(at(2))).await.unwrap();
        assert_eq!(ids, [None]);
        let end = FinishRun {
            run_id: run.clone(),
            status: FinalStatus::Success,
            metadata: json!({}),
            epoch: Some(7),
        };
        let ends = fixture.store.finish_runs(vec![end], Some("other".to_owned()), Some(at(2))).await.unwrap();
        assert_eq!(ends, [ChangeOutcome::Stale]);
    }
    assert_eq!(fixture.run(&run).await.status, RunState::Claimed);
    let refusals: Vec<_> = fixture.events(&run).await.into_iter().skip(2).collect();
    assert_eq!(refusals.len(), 4, "{refusals:?}");
    assert_eq!(refusals[0].3, json!({"verb": "start", "epoch": 1, "worker_id": "other"}));
}

#[tokio::test]
async fn event_appended_twice_is_stored_once() {
    let mut fixture = KernelFixture::new().await;
    let run = fixture.queue(shop(), 0).await;
    fixture.claim_one(1).await;
    let batch = || vec![info("a"), info("a"), info("b").keyed("k1"), info("c").keyed("k1")];
    let first = fixture.append(&run, batch(), 2).await;
    assert_eq!(first[0], first[1]);
    assert_eq!(first[2], first[3]);
    assert_eq!(fixture.append(&run, batch(), 11).await, first);
    // Without a key the same message is a new event after ten seconds; with a key it never is.
    let later = fixture.append(&run, batch(), 12).await;
    assert!(later[0] != first[0] && later[2] == first[2]);
    let odd = NewEvent { payload: json!({"π": [1.50, "\"\u{1F30A}\n"]}), ..info("line\u{1}\\ \"quoted\"") };
    fixture.append(&run, vec![odd.clone()], 13).await;
    let last = fixture.events(&run).await.pop().unwrap();
    assert_eq!((last.2, last.3), (odd.message, odd.payload));

    fixture.finish(&run, FinalStatus::Success, json!({}), 14).await;
    assert_eq!(fixture.append(&run, batch(), 15).await, [None, None, first[2].clone(), first[2].clone()]);
    assert_eq!(fixture.messages(&run).await.pop().unwrap(), "Refused append: the lease is gone");
    let large = vec![info(&"x".repeat(limits::MESSAGE_BYTES_MAX + 1))];
    let refused = fixture.store.append_events(run, large, Holder::default(), Some(at(16))).await;
    assert_eq!(code(refused), RefusalCode::TooLarge);
}

#[tokio::test]
async fn batch_finish_returns_one_outcome_per_run_and_stores_artifacts() {
    let fixture = KernelFixture::new().await;
    let mut runs = Vec::new();
    for secs in 0..4 {
        runs.push(fixture.queue(shop(), secs).await);
    }
    fixture.claim(ClaimRuns { limit: 2, ..ClaimRuns::one("w") }, 5).await;
    let end =
        |run: &RunId, status, metadata| FinishRun { run_id: run.clone(), status, metadata, epoch: None };
    let made = json!({"artifacts": [
        {"type": "image", "url": "oci://a", "size_bytes": 5}, {"type": "", "url": "x"}, {"type": "log"}]});
    let ends = vec![
        end(&runs[0], FinalStatus::Success, made.clone()),
        end(&runs[0], FinalStatus::Success, made.clone()),
        end(&runs[1], FinalStatus::Failed, json!({})),
        end(&runs[1], FinalStatus::Success, json!({})),
        end(&runs[2], FinalStatus::Success, json!({})),
        end(&runs[3], FinalStatus::Cancelled, json!({})),
    ];
    let outcomes = fixture.store.finish_runs(ends, Some("w".to_owned()), Some(at(6))).await.unwrap();
    assert_eq!(
        outcomes,
        [
            ChangeOutcome::Applied,
            ChangeOutcome::Duplicate,
            ChangeOutcome::Applied,
            ChangeOutcome::Stale,
            ChangeOutcome::Stale,
            ChangeOutcome::Applied
        ]
    );
    let artifact = NewArtifact {
        artifact_type: "image".to_owned(),
        url: "oci://a".to_owned(),
        digest: Some("sha256:1".to_owned()),
        size_bytes: None,
        metadata: json!({}),
    };
    let id = fixture.store.add_artifact(runs[0].clone(), artifact, Some(at(7))).await.unwrap();
    let kept = fixture.store.artifacts(runs[0].clone()).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0].artifact_id, kept[0].size_bytes), (&id, Some(5)));
    assert_eq!(kept[0].digest.as_deref(), Some("sha256:1"));
    // The same report again after its answer was lost, then one with another status.
    assert_eq!(fixture.finish(&runs[0], FinalStatus::Success, made, 8).await, ChangeOutcome::Duplicate);
    assert_eq!(fixture.finish(&runs[0], FinalStatus::Failed, json!({}), 8).await, ChangeOutcome::Stale);
    let unknown = fixture.store.finish_runs(
        vec![end(&"run-none".parse().unwrap(), FinalStatus::Success, Json::Object(serde_json::Map::new()))],
        None,
        None,
    );
    assert_eq!(code(unknown.await), RefusalCode::UnknownRun);
}

#[tokio::test]
async fn run_claimed_and_finished_at_one_time_has_events_of_that_time() {
    let mut fixture = KernelFixture::new().await;
    let run = fixture.queue(QueueRun { available_at: Some(at(5)), ..shop() }, 0).await;
    // The claim opens and closes the gate; the finish starts and ends the run.
    fixture.claim_one(5).await;
    fixture.finish(&run, FinalStatus::Failed, json!({}), 6).await;
    let messages = ["Run queued", "Run claimed by worker", "Run started", "Run failed"];
    assert_eq!(fixture.messages(&run).await, messages);
    let times: Vec<i64> = sqlx::query_scalar("SELECT created_at FROM run_events ORDER BY seq")
        .fetch_all(&mut fixture.plain)
        .await
        .unwrap();
    assert_eq!(times, [at(0), at(5), at(6), at(6)].map(|at| at.timestamp_micros()));
}

#[tokio::test]
async fn retired_worker_runs_are_requeued_without_charging_the_budget() {
    let fixture = KernelFixture::new().await;
    let run = fixture.queue(QueueRun { max_losses: 0, ..shop() }, 0).await;
    let worker_id = fixture.register(0).await;
    fixture.claim(ClaimRuns { worker_id: Some(worker_id), ..ClaimRuns::one("w") }, 1).await;
    fixture.append(&run, vec![info("half done")], 2).await;
    fixture.store.retire_worker(worker_id, Some(at(3))).await.unwrap();
    let swept = fixture.sweep(4).await;
    assert_eq!((&swept[0].run_id, swept[0].action), (&run, EndCause::Interrupted));
    let next = fixture.run(swept[0].successor.as_ref().expect("another try")).await;
    assert_eq!((next.attempt, next.losses, next.gate), (2, 0, Some(Gate::Open)));
    let error = fixture.run(&run).await.metadata["error"].clone();
    assert_eq!(error, "worker stopped");
}
