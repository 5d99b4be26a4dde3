//! `why` for runs: every wait has one typed reason.

use serde_json::json;
use tidemill_core::project::{Flag, FlagName, FlagSource, project_scope};
use tidemill_core::run::{EndCause, FinalStatus, QueueRun, RunState};
use tidemill_core::why::Reason;
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::{Clock, Engine, RetryPolicy};
use tidemill_store::RefusalCode;

use super::unknown_run;
use crate::interface::{Fixture, at, info, new_worker, refused, request};

async fn why(fixture: &Fixture, run: &RunId, now: Timestamp) -> Reason {
    let engine = Engine::new(fixture.store.clone(), Clock::fixed(now), RetryPolicy::None);
    engine.why(run).await.unwrap_or_else(|bad| panic!("there is no reason: {bad}"))
}

/// A pause, the start time, the back-off, the key, no worker, no matching worker, or other runs first.
pub async fn queued_run_has_a_reason(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    let reason = why(&fixture, &run, at(1)).await;
    assert!(matches!(reason, Reason::NoWorkers { .. }), "{reason:?}");

    fixture.register("worker-001", at(1)).await;
    assert_eq!(why(&fixture, &run, at(2)).await, Reason::Next);
    let second = fixture.queue(request(), at(2)).await;
    assert_eq!(why(&fixture, &second, at(3)).await, Reason::Behind { ahead: 1 });

    let wanted = QueueRun { labels: vec!["gpu".to_owned()], priority: 5, ..request() };
    let gpu = fixture.queue(wanted, at(3)).await;
    let labels = vec!["gpu".to_owned()];
    assert_eq!(why(&fixture, &gpu, at(4)).await, Reason::NoWorkerFits { labels, workers_alive: 1 });
    let fitting =
        tidemill_core::worker::NewWorker { labels: vec!["gpu".to_owned()], ..new_worker("worker-002") };
    assert!(fixture.interface.register(fitting, at(4)).await.is_ok());
    assert_eq!(why(&fixture, &gpu, at(5)).await, Reason::Next);

    let later = fixture.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(0)).await;
    let expected = Reason::NotYet { available_at: at(60), backing_off: false };
    assert_eq!(why(&fixture, &later, at(6)).await, expected);

    let flag = Flag {
        flag: FlagName::Paused,
        scope: project_scope("shop"),
        note: Some("upgrade".to_owned()),
        since: at(6),
        until_at: Some(at(9)),
        set_by: None,
        source: FlagSource::Manual,
    };
    assert!(fixture.store.set_flag(flag).await.is_ok());
    let expected = Reason::Paused {
        scope: "project:shop".to_owned(),
        note: Some("upgrade".to_owned()),
        until: Some(at(9)),
    };
    assert_eq!(why(&fixture, &run, at(8)).await, expected);
    assert_eq!(why(&fixture, &gpu, at(9)).await, Reason::Next, "the pause has ended");
}

/// Live workers that drain do not count.
pub async fn run_with_only_draining_workers_has_a_reason(fixture: Fixture) {
    let run = fixture.queue(request(), at(0)).await;
    let first = fixture.register("worker-001", at(1)).await;
    let second = fixture.register("worker-002", at(1)).await;
    assert!(fixture.store.drain_worker(first, true).await.is_ok());
    assert_eq!(why(&fixture, &run, at(2)).await, Reason::Next, "the other one acquires it");
    assert!(fixture.store.drain_worker(second, true).await.is_ok());
    let reason = why(&fixture, &run, at(2)).await;
    assert_eq!(reason, Reason::WorkersDraining { workers: 2 });
    assert_eq!(
        reason.sentence(),
        "It waits for a worker: 2 matching workers are draining and take no new runs."
    );
    let wanted = QueueRun { labels: vec!["gpu".to_owned()], ..request() };
    let gpu = fixture.queue(wanted, at(2)).await;
    let reason = why(&fixture, &gpu, at(3)).await;
    assert!(matches!(reason, Reason::NoWorkers { .. }), "no draining worker matches: {reason:?}");
}

/// The reason names the holder of the key, or the end of the back-off.
pub async fn run_waiting_for_its_key_or_backoff_has_a_reason(fixture: Fixture) {
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), max_attempts: 2, ..request() };
    let holder = fixture.running(keyed.clone(), "worker-001", at(0)).await.run_id;
    let waits = fixture.queue(keyed, at(1)).await;
    let expected = Reason::KeyHeld {
        key: "deploy".to_owned(),
        head: Some(holder.clone()),
        worker: Some("worker-001".to_owned()),
        head_reason: None,
    };
    assert_eq!(why(&fixture, &waits, at(2)).await, expected);
    fixture.fail(&holder, at(3)).await;
    let Some(next) = fixture.successor(&holder).await else { panic!("there is no successor") };
    let Some(available_at) = next.available_at else { panic!("there is no back-off") };
    assert_eq!(why(&fixture, &next.run_id, at(4)).await, Reason::NotYet { available_at, backing_off: true });
}

pub async fn run_waiting_for_its_key_explains_the_wait_of_the_head(fixture: Fixture) {
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), max_attempts: 2, ..request() };
    fixture.register("worker-001", at(0)).await;
    let gpu = QueueRun { labels: vec!["gpu".to_owned()], priority: 5, ..keyed.clone() };
    let head = fixture.queue(gpu, at(0)).await;
    let waits = fixture.queue(keyed.clone(), at(1)).await;
    let reason = why(&fixture, &waits, at(2)).await;
    let labels = vec!["gpu".to_owned()];
    let expected = Reason::KeyHeld {
        key: "deploy".to_owned(),
        head: Some(head.clone()),
        worker: None,
        head_reason: Some(Box::new(Reason::NoWorkerFits { labels, workers_alive: 1 })),
    };
    assert_eq!(reason, expected);
    assert_eq!(
        reason.sentence(),
        format!(
            "Run {head} comes before it for concurrency key `deploy`. About that run: It needs a worker with the \
             labels gpu; 1 worker is running, none with these labels."
        )
    );
    assert_eq!(reason.hint(&waits).as_deref(), Some("tidemill work --label gpu -- COMMAND"));
    assert_eq!(
        serde_json::to_value(&reason).ok(),
        Some(json!({
            "code": "key_held", "key": "deploy", "head": head, "worker": null,
            "head_reason": {"code": "no_worker_fits", "labels": ["gpu"], "workers_alive": 1},
        }))
    );
}

pub async fn run_waiting_for_its_key_reports_a_stalled_or_delayed_head(fixture: Fixture) {
    let keyed = |key: &str| QueueRun {
        concurrency_key: Some(key.to_owned()),
        max_attempts: 2,
        backoff_secs: 100,
        ..request()
    };
    let first = fixture.running(keyed("deploy"), "worker-001", at(0)).await.run_id;
    fixture.fail(&first, at(1)).await;
    let Some(next) = fixture.successor(&first).await else { panic!("there is no successor") };
    let Some(available_at) = next.available_at else { panic!("there is no back-off") };
    let waits = fixture.queue(keyed("deploy"), at(2)).await;
    let head_reason = |reason| {
        let Reason::KeyHeld { head_reason, .. } = reason else { panic!("{reason:?}") };
        head_reason.map(|reason| *reason)
    };
    let expected = Reason::NotYet { available_at, backing_off: true };
    assert_eq!(head_reason(why(&fixture, &waits, at(3)).await), Some(expected));

    let stalled = super::stalled_runs::stalled(&fixture, keyed("backup"), at(10)).await;
    let waits = fixture.queue(keyed("backup"), at(400)).await;
    let reason = why(&fixture, &waits, at(401)).await;
    assert_eq!(reason.hint(&waits), Some(format!("tidemill run fail {stalled}")));
    let expected = Reason::Stalled { worker: Some("worker-001".to_owned()), since: at(11) };
    assert_eq!(head_reason(reason), Some(expected));
}

/// The reason names the worker, since when it is silent, and the command to fail the run.
pub async fn stalled_run_has_a_reason(fixture: Fixture) {
    let run = super::stalled_runs::stalled(&fixture, request(), at(0)).await;
    let reason = why(&fixture, &run, at(400)).await;
    assert_eq!(reason, Reason::Stalled { worker: Some("worker-001".to_owned()), since: at(1) });
    assert_eq!(
        reason.sentence(),
        "It is stalled: worker worker-001 has been silent since 2026-02-14 10:30:01 UTC. That worker sends no \
         heartbeats, so the run stays with it. If the worker is gone, fail the run, or fail it with --retry to \
         queue a successor."
    );
    assert_eq!(reason.hint(&run), Some(format!("tidemill run fail {run}")));
    let stalled = fixture.store.stalled_runs(10).await;
    assert!(stalled.as_ref().is_ok_and(|runs| *runs == [run]), "{stalled:?}");
}

/// Claimed, running, silent, or stopping.
pub async fn held_run_has_a_reason(fixture: Fixture) {
    let process = fixture.register("worker-001", at(0)).await;
    let run = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-001", process, at(1)).await;
    let worker = || Some("worker-001".to_owned());
    let expected = Reason::Claimed { worker: worker(), lease_until: Some(at(301)) };
    assert_eq!(why(&fixture, &run, at(2)).await, expected);
    fixture.append_event(&run, info("compiling"), at(3)).await;
    let running =
        Reason::Running { worker: worker(), since: Some(at(1)), last_event: Some("compiling".to_owned()) };
    assert_eq!(why(&fixture, &run, at(4)).await, running);
    assert_eq!(why(&fixture, &run, at(11)).await, Reason::WorkerSilent { worker: worker(), since: at(0) });
    fixture.worker_heartbeat(process, std::slice::from_ref(&run), at(12)).await;
    assert_eq!(why(&fixture, &run, at(13)).await, running);
    fixture.cancel(&run, at(14)).await;
    let stopping = Reason::Stopping { by: Some("ann".to_owned()), worker: worker(), since: at(14) };
    assert_eq!(why(&fixture, &run, at(15)).await, stopping);
}

/// How and why it ended, the error in its metadata, and its successor.
pub async fn ended_run_has_a_reason(fixture: Fixture) {
    let ended = |status, cause, detail: Option<&str>, successor| Reason::Ended {
        status,
        cause: Some(cause),
        detail: detail.map(str::to_owned),
        successor,
    };
    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    fixture.succeed(&run, at(1)).await;
    assert_eq!(why(&fixture, &run, at(2)).await, ended(RunState::Success, EndCause::Reported, None, None));

    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let report = json!({"error": "Docker build failed", "exit_code": 1});
    fixture.finish(&run, FinalStatus::Failed, report, at(1)).await;
    let expected = ended(RunState::Failed, EndCause::Reported, Some("Docker build failed"), None);
    assert_eq!(why(&fixture, &run, at(2)).await, expected);

    let run = fixture.queue(request(), at(0)).await;
    fixture.cancel(&run, at(1)).await;
    let expected = ended(RunState::Cancelled, EndCause::Cancelled, Some("no longer needed"), None);
    assert_eq!(why(&fixture, &run, at(2)).await, expected);

    let run = fixture.running(request(), "worker-001", at(0)).await.run_id;
    let swept = fixture.sweep(at(300)).await;
    let expected = ended(RunState::Failed, EndCause::Lost, Some("worker lost"), swept[0].successor.clone());
    assert_eq!(why(&fixture, &run, at(301)).await, expected);

    let engine = Engine::new(fixture.store.clone(), Clock::fixed(at(0)), RetryPolicy::None);
    refused(engine.why(&unknown_run()).await, RefusalCode::UnknownRun);
}
