//! From the claim to the end, and what follows it: reports, losses, cancels, zombies.

use crate::bench::{Bench, at, code, info, shop};
use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::event::NewEvent;
use tidemill_core::run::{Applied, EndCause, FinalStatus, Gate, QueueRun, RunState};
use tidemill_core::{Json, RunId, limits, retry};
use tidemill_store::{Cancelled, ClaimRuns, FinishRun, Holder, RefusalCode, Swept};

#[tokio::test]
async fn a_reported_failure_is_tried_again_after_a_wait_until_the_budget_is_spent() {
    let mut bench = Bench::new().await;
    let request = QueueRun { max_attempts: 2, backoff_secs: 10, metadata: json!({"n": 1}), ..shop() };
    let first = bench.queue(request, 0).await;
    bench.claim_one(1).await;
    bench.finish(&first, FinalStatus::Failed, json!({"error": "no"}), 2).await;

    let tries = bench.store.tries(first.clone()).await.unwrap();
    let second = &tries[1];
    assert_eq!((second.attempt, second.failures, second.losses), (2, 1, 0));
    assert_eq!(second.available_at, Some(at(2) + retry::backoff(10, 0, &first)));
    assert_eq!((second.gate, &second.metadata), (Some(Gate::Time), &json!({"n": 1})));
    let queued = bench.record(&second.run_id).await.remove(0).3;
    assert_eq!(queued, json!({"to": "queued", "retry_of": first.as_str(), "attempt": 2}));

    bench.claim_one(60).await;
    bench.finish(&second.run_id, FinalStatus::Failed, json!({}), 61).await;
    assert_eq!(bench.store.tries(first.clone()).await.unwrap().len(), 2);
    // A person may try once more, with fresh budgets; asking again gives the same try.
    let asked = bench.store.retry_run(second.run_id.clone(), "ann".to_owned(), Some(at(62))).await.unwrap();
    let again = bench.store.retry_run(second.run_id.clone(), "ann".to_owned(), Some(at(63))).await.unwrap();
    assert_eq!((asked.created, again.created, &asked.run_id), (true, false, &again.run_id));
    let third = bench.run(&asked.run_id).await;
    assert_eq!((third.attempt, third.failures, third.gate), (3, 0, Some(Gate::Open)));
    assert_eq!(bench.messages(&second.run_id).await.pop().unwrap(), "Retry requested");
    let refused = bench.store.retry_run(third.run_id, "ann".to_owned(), Some(at(64))).await;
    assert_eq!(code(refused), RefusalCode::NotRetryable);
}

#[tokio::test]
async fn a_lost_run_is_tried_again_and_then_put_into_quarantine_with_its_last_words() {
    let bench = Bench::new().await;
    let first = bench.queue(QueueRun { max_losses: 1, ..shop() }, 0).await;
    bench.claim_one(1).await;
    assert_eq!(bench.sweep(300).await, []);
    let swept = bench.sweep(301).await;
    let second = swept[0].successor.clone().expect("another try");
    assert_eq!(
        swept,
        [Swept { run_id: first.clone(), action: EndCause::Stale, successor: Some(second.clone()) }]
    );
    assert_eq!(
        bench.run(&first).await.metadata,
        json!({
            "cancelled_by": "system", "original_worker": "w", "claimed_at": "2027-01-15T08:00:01.000000Z",
            "reason": "Stale run (claimed for >5 minutes without events)",
        })
    );
    bench.claim_one(302).await;
    let lines = (0..25).map(|n| info(&format!("line {n}"))).collect();
    bench.append(&second, lines, 303).await;
    assert_eq!(
        bench.sweep(603).await,
        [Swept { run_id: second.clone(), action: EndCause::Quarantined, successor: None }]
    );
    let ended = bench.run(&second).await;
    assert_eq!((ended.status, ended.losses), (RunState::Failed, 1));
    assert_eq!(ended.metadata["losses"], 2);
    let tail = ended.metadata["output_tail"].as_array().unwrap();
    assert_eq!((tail.len(), &tail[0], &tail[19]), (20, &json!("line 5"), &json!("line 24")));
}

#[tokio::test]
async fn what_waits_too_long_expires_and_what_runs_too_long_times_out() {
    let bench = Bench::new().await;
    let waiting = bench.queue(QueueRun { expires_at: Some(at(10)), ..shop() }, 0).await;
    assert_eq!(
        bench.sweep(10).await,
        [Swept { run_id: waiting, action: EndCause::Expired, successor: None }]
    );
    let slow = bench.queue(QueueRun { timeout_secs: Some(60), max_attempts: 2, ..shop() }, 11).await;
    bench.claim_one(12).await;
    bench.store.start_run(slow.clone(), Holder::default(), Some(at(13))).await.unwrap();
    assert_eq!(bench.sweep(72).await, []);
    let swept = bench.sweep(73).await;
    assert_eq!((swept[0].action, swept[0].successor.is_some()), (EndCause::TimedOut, true));
    assert_eq!(bench.run(&slow).await.metadata, json!({"error": "the run took longer than 60 s"}));
}

#[tokio::test]
async fn a_run_that_waits_is_cancelled_at_once_and_a_held_one_is_asked_to_stop() {
    let mut bench = Bench::new().await;
    let cancel = async |bench: &Bench, run: &RunId, secs| {
        let reason = Some("wrong branch".to_owned());
        bench.store.cancel_run(run.clone(), "ann".to_owned(), reason, Some(at(secs))).await.unwrap()
    };
    let waiting = bench.queue(shop(), 0).await;
    assert_eq!(cancel(&bench, &waiting, 1).await, Cancelled::Cancelled);
    assert_eq!(cancel(&bench, &waiting, 2).await, Cancelled::Ended);
    let notes = json!({"cancelled_by": "ann", "reason": "wrong branch"});
    assert_eq!(bench.run(&waiting).await.metadata, notes);

    let held = bench.queue(QueueRun { max_attempts: 9, ..shop() }, 3).await;
    bench.claim_one(4).await;
    assert_eq!(cancel(&bench, &held, 5).await, Cancelled::Requested);
    assert_eq!(cancel(&bench, &held, 6).await, Cancelled::Requested);
    let beat = bench.store.heartbeat(held.clone(), Holder::default(), Some(at(7))).await.unwrap();
    assert!(beat.held && beat.cancel_requested && beat.lease_until == Some(at(307)));
    assert_eq!(bench.sweep(34).await, []);
    assert_eq!(bench.sweep(35).await[0].action, EndCause::CancelGrace);
    assert_eq!(bench.run(&held).await.metadata, notes);
    let last = ["Run queued", "Run claimed by worker", "Cancel requested", "Run cancelled"];
    assert_eq!(bench.messages(&held).await, last);
}

#[tokio::test]
async fn a_zombie_changes_nothing_and_is_recorded_once_per_verb() {
    let mut bench = Bench::new().await;
    let run = bench.queue(shop(), 0).await;
    bench.claim_one(1).await;
    for holder in [
        Holder { worker: Some("other".to_owned()), epoch: None },
        Holder { worker: Some("w".to_owned()), epoch: Some(7) },
    ] {
        let stale = bench.store.start_run(run.clone(), holder.clone(), Some(at(2))).await.unwrap();
        assert_eq!(stale, Applied::Stale);
        let beat = bench.store.heartbeat(run.clone(), holder.clone(), Some(at(2))).await.unwrap();
        assert!(!beat.held && beat.lease_until.is_none());
        let ids = bench.store.append_events(run.clone(), vec![info("x")], holder, Some(at(2))).await.unwrap();
        assert_eq!(ids, [None]);
        let end = FinishRun {
            run_id: run.clone(),
            status: FinalStatus::Success,
            metadata: json!({}),
            epoch: Some(7),
        };
        let ends = bench.store.finish_runs(vec![end], Some("other".to_owned()), Some(at(2))).await.unwrap();
        assert_eq!(ends, [Applied::Stale]);
    }
    assert_eq!(bench.run(&run).await.status, RunState::Claimed);
    let refusals: Vec<_> = bench.record(&run).await.into_iter().skip(2).collect();
    assert_eq!(refusals.len(), 4, "{refusals:?}");
    assert_eq!(refusals[0].3, json!({"verb": "start", "epoch": 1, "worker_id": "other"}));
}

#[tokio::test]
async fn an_event_appended_twice_is_one_event() {
    let mut bench = Bench::new().await;
    let run = bench.queue(shop(), 0).await;
    bench.claim_one(1).await;
    let batch = || vec![info("a"), info("a"), info("b").keyed("k1"), info("c").keyed("k1")];
    let first = bench.append(&run, batch(), 2).await;
    assert_eq!(first[0], first[1]);
    assert_eq!(first[2], first[3]);
    assert_eq!(bench.append(&run, batch(), 11).await, first);
    // Without a key the same words are news after ten seconds; with one they never are.
    let later = bench.append(&run, batch(), 12).await;
    assert!(later[0] != first[0] && later[2] == first[2]);
    let odd = NewEvent { payload: json!({"π": [1.50, "\"\u{1F30A}\n"]}), ..info("line\u{1}\\ \"quoted\"") };
    bench.append(&run, vec![odd.clone()], 13).await;
    let last = bench.record(&run).await.pop().unwrap();
    assert_eq!((last.2, last.3), (odd.message, odd.payload));

    bench.finish(&run, FinalStatus::Success, json!({}), 14).await;
    assert_eq!(bench.append(&run, batch(), 15).await, [None, None, first[2].clone(), first[2].clone()]);
    assert_eq!(bench.messages(&run).await.pop().unwrap(), "Refused append: the lease is gone");
    let large = vec![info(&"x".repeat(limits::MESSAGE_BYTES_MAX + 1))];
    let refused = bench.store.append_events(run, large, Holder::default(), Some(at(16))).await;
    assert_eq!(code(refused), RefusalCode::TooLarge);
}

#[tokio::test]
async fn several_ends_in_one_call_have_an_outcome_each_and_their_artifacts_are_kept() {
    let bench = Bench::new().await;
    let mut runs = Vec::new();
    for secs in 0..4 {
        runs.push(bench.queue(shop(), secs).await);
    }
    bench.claim(ClaimRuns { limit: 2, ..ClaimRuns::one("w") }, 5).await;
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
    let outcomes = bench.store.finish_runs(ends, Some("w".to_owned()), Some(at(6))).await.unwrap();
    assert_eq!(
        outcomes,
        [
            Applied::Applied,
            Applied::Duplicate,
            Applied::Applied,
            Applied::Stale,
            Applied::Stale,
            Applied::Applied
        ]
    );
    let artifact = NewArtifact {
        artifact_type: "image".to_owned(),
        url: "oci://a".to_owned(),
        digest: Some("sha256:1".to_owned()),
        size_bytes: None,
        metadata: json!({}),
    };
    let id = bench.store.add_artifact(runs[0].clone(), artifact, Some(at(7))).await.unwrap();
    let kept = bench.store.artifacts(runs[0].clone()).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0].artifact_id, kept[0].size_bytes), (&id, Some(5)));
    assert_eq!(kept[0].digest.as_deref(), Some("sha256:1"));
    // The same report once more, after its answer was lost; then with another ending.
    assert_eq!(bench.finish(&runs[0], FinalStatus::Success, made, 8).await, Applied::Duplicate);
    assert_eq!(bench.finish(&runs[0], FinalStatus::Failed, json!({}), 8).await, Applied::Stale);
    let unknown = bench.store.finish_runs(
        vec![end(&"run-none".parse().unwrap(), FinalStatus::Success, Json::Object(serde_json::Map::new()))],
        None,
        None,
    );
    assert_eq!(code(unknown.await), RefusalCode::UnknownRun);
}

#[tokio::test]
async fn a_run_that_is_claimed_and_finished_at_one_time_has_a_record_of_that_time() {
    let mut bench = Bench::new().await;
    let run = bench.queue(QueueRun { available_at: Some(at(5)), ..shop() }, 0).await;
    // The claim opens the gate and closes it again; the finish starts the run and ends it.
    bench.claim_one(5).await;
    bench.finish(&run, FinalStatus::Failed, json!({}), 6).await;
    let messages = ["Run queued", "Run claimed by worker", "Run started", "Run failed"];
    assert_eq!(bench.messages(&run).await, messages);
    let times: Vec<i64> = sqlx::query_scalar("SELECT created_at FROM run_events ORDER BY seq")
        .fetch_all(&mut bench.plain)
        .await
        .unwrap();
    assert_eq!(times, [at(0), at(5), at(6), at(6)].map(|at| at.timestamp_micros()));
}

#[tokio::test]
async fn what_a_worker_leaves_when_it_is_told_to_end_goes_on_elsewhere_at_nobodys_expense() {
    let bench = Bench::new().await;
    let run = bench.queue(QueueRun { max_losses: 0, ..shop() }, 0).await;
    let worker_id = bench.register(0).await;
    bench.claim(ClaimRuns { worker_id: Some(worker_id), ..ClaimRuns::one("w") }, 1).await;
    bench.append(&run, vec![info("half done")], 2).await;
    bench.store.retire_worker(worker_id, Some(at(3))).await.unwrap();
    let swept = bench.sweep(4).await;
    assert_eq!((&swept[0].run_id, swept[0].action), (&run, EndCause::Interrupted));
    let next = bench.run(swept[0].successor.as_ref().expect("another try")).await;
    assert_eq!((next.attempt, next.losses, next.gate), (2, 0, Some(Gate::Open)));
    let error = bench.run(&run).await.metadata["error"].clone();
    assert_eq!(error, "worker stopped");
}
