//! Why a run is where it is: every wait has one typed reason.

use serde_json::json;
use tidemill_core::project::{Flag, FlagName, FlagSource, project_scope};
use tidemill_core::run::{EndCause, FinalStatus, QueueRun, RunState};
use tidemill_core::why::Reason;
use tidemill_core::{RunId, Timestamp};
use tidemill_engine::{Clock, Engine, Patience};
use tidemill_store::RefusalCode;

use super::unknown_run;
use crate::door::{Stage, at, info, new_worker, refused, request};

async fn why(stage: &Stage, run: &RunId, now: Timestamp) -> Reason {
    let engine = Engine::new(stage.store.clone(), Clock::fixed(now), Patience::None);
    engine.why(run).await.unwrap_or_else(|bad| panic!("there is no reason: {bad}"))
}

/// A run that waits: for a pause, its time, its back-off, its key, a worker, a worker that fits, or others.
pub async fn a_run_that_waits_has_a_reason(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    let reason = why(&stage, &run, at(1)).await;
    assert!(matches!(reason, Reason::NoWorkers { .. }), "{reason:?}");

    stage.register("worker-001", at(1)).await;
    assert_eq!(why(&stage, &run, at(2)).await, Reason::Next);
    let second = stage.queue(request(), at(2)).await;
    assert_eq!(why(&stage, &second, at(3)).await, Reason::Behind { ahead: 1 });

    let wanted = QueueRun { labels: vec!["gpu".to_owned()], priority: 5, ..request() };
    let gpu = stage.queue(wanted, at(3)).await;
    let labels = vec!["gpu".to_owned()];
    assert_eq!(why(&stage, &gpu, at(4)).await, Reason::NoWorkerFits { labels, workers_alive: 1 });
    let fitting =
        tidemill_core::worker::NewWorker { labels: vec!["gpu".to_owned()], ..new_worker("worker-002") };
    assert!(stage.door.register(fitting, at(4)).await.is_ok());
    assert_eq!(why(&stage, &gpu, at(5)).await, Reason::Next);

    let later = stage.queue(QueueRun { available_at: Some(at(60)), ..request() }, at(0)).await;
    let expected = Reason::NotYet { available_at: at(60), backing_off: false };
    assert_eq!(why(&stage, &later, at(6)).await, expected);

    let flag = Flag {
        flag: FlagName::Paused,
        scope: project_scope("shop"),
        note: Some("upgrade".to_owned()),
        since: at(6),
        until_at: Some(at(9)),
        set_by: None,
        source: FlagSource::Manual,
    };
    assert!(stage.store.set_flag(flag).await.is_ok());
    let expected = Reason::Paused {
        scope: "project:shop".to_owned(),
        note: Some("upgrade".to_owned()),
        until: Some(at(9)),
    };
    assert_eq!(why(&stage, &run, at(8)).await, expected);
    assert_eq!(why(&stage, &gpu, at(9)).await, Reason::Next, "the pause is over");
}

/// A run that only workers could take that were asked to drain: that they live is no help to it.
pub async fn a_run_whose_workers_drain_has_a_reason(stage: Stage) {
    let run = stage.queue(request(), at(0)).await;
    let first = stage.register("worker-001", at(1)).await;
    let second = stage.register("worker-002", at(1)).await;
    assert!(stage.store.drain_worker(first, true).await.is_ok());
    assert_eq!(why(&stage, &run, at(2)).await, Reason::Next, "the other one takes it");
    assert!(stage.store.drain_worker(second, true).await.is_ok());
    let reason = why(&stage, &run, at(2)).await;
    assert_eq!(reason, Reason::WorkersDraining { workers: 2 });
    assert_eq!(
        reason.sentence(),
        "It waits for a worker: 2 workers that offer what it needs drain, and take nothing new."
    );
    let wanted = QueueRun { labels: vec!["gpu".to_owned()], ..request() };
    let gpu = stage.queue(wanted, at(2)).await;
    let reason = why(&stage, &gpu, at(3)).await;
    assert!(matches!(reason, Reason::NoWorkers { .. }), "nobody who drains would fit: {reason:?}");
}

/// A run in line for its key names who has it; one that backs off says until when.
pub async fn a_run_in_line_or_in_back_off_has_a_reason(stage: Stage) {
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), max_attempts: 2, ..request() };
    let holder = stage.running(keyed.clone(), "worker-001", at(0)).await.run_id;
    let waits = stage.queue(keyed, at(1)).await;
    let expected = Reason::KeyHeld {
        key: "deploy".to_owned(),
        head: Some(holder.clone()),
        worker: Some("worker-001".to_owned()),
        head_reason: None,
    };
    assert_eq!(why(&stage, &waits, at(2)).await, expected);
    stage.fail(&holder, at(3)).await;
    let Some(next) = stage.successor(&holder).await else { panic!("there is no successor") };
    let Some(available_at) = next.available_at else { panic!("there is no back-off") };
    assert_eq!(why(&stage, &next.run_id, at(4)).await, Reason::NotYet { available_at, backing_off: true });
}

/// A run that waits for its key says why the head of that key does not progress.
pub async fn a_run_in_line_says_why_its_head_waits(stage: Stage) {
    let keyed = QueueRun { concurrency_key: Some("deploy".to_owned()), max_attempts: 2, ..request() };
    stage.register("worker-001", at(0)).await;
    let gpu = QueueRun { labels: vec!["gpu".to_owned()], priority: 5, ..keyed.clone() };
    let head = stage.queue(gpu, at(0)).await;
    let waits = stage.queue(keyed.clone(), at(1)).await;
    let reason = why(&stage, &waits, at(2)).await;
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
            "Its concurrency key `deploy` belongs to run {head} first. About that run: It needs a worker that offers \
             gpu; 1 worker is alive, and none of them does."
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

/// A run that waits for its key says that the key's head waits for its retry time, or is stalled.
pub async fn a_run_in_line_says_that_its_head_backs_off_or_is_stalled(stage: Stage) {
    let keyed = |key: &str| QueueRun {
        concurrency_key: Some(key.to_owned()),
        max_attempts: 2,
        backoff_secs: 100,
        ..request()
    };
    let first = stage.running(keyed("deploy"), "worker-001", at(0)).await.run_id;
    stage.fail(&first, at(1)).await;
    let Some(next) = stage.successor(&first).await else { panic!("there is no successor") };
    let Some(available_at) = next.available_at else { panic!("there is no back-off") };
    let waits = stage.queue(keyed("deploy"), at(2)).await;
    let head_reason = |reason| {
        let Reason::KeyHeld { head_reason, .. } = reason else { panic!("{reason:?}") };
        head_reason.map(|reason| *reason)
    };
    let expected = Reason::NotYet { available_at, backing_off: true };
    assert_eq!(head_reason(why(&stage, &waits, at(3)).await), Some(expected));

    let stalled = super::stalling::stalled(&stage, keyed("backup"), at(10)).await;
    let waits = stage.queue(keyed("backup"), at(400)).await;
    let reason = why(&stage, &waits, at(401)).await;
    assert_eq!(reason.hint(&waits), Some(format!("tidemill run fail {stalled}")));
    let expected = Reason::Stalled { worker: Some("worker-001".to_owned()), since: at(11) };
    assert_eq!(head_reason(reason), Some(expected));
}

/// A stalled run: since when it is silent, which worker has it, and the command to fail it.
pub async fn a_stalled_run_has_a_reason(stage: Stage) {
    let run = super::stalling::stalled(&stage, request(), at(0)).await;
    let reason = why(&stage, &run, at(400)).await;
    assert_eq!(reason, Reason::Stalled { worker: Some("worker-001".to_owned()), since: at(1) });
    assert_eq!(
        reason.sentence(),
        "It is stalled: worker worker-001 has given no sign of life since 2026-02-14 10:30:01 UTC. The worker \
         promised none, so the run stays with it. If the worker is gone, fail the run, or fail it with --retry to \
         queue a successor."
    );
    assert_eq!(reason.hint(&run), Some(format!("tidemill run fail {run}")));
    let stalled = stage.store.stalled_runs(10).await;
    assert!(stalled.as_ref().is_ok_and(|runs| *runs == [run]), "{stalled:?}");
}

/// A run that is held: claimed, running, silent, or stopping.
pub async fn a_run_that_is_held_has_a_reason(stage: Stage) {
    let process = stage.register("worker-001", at(0)).await;
    let run = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-001", process, at(1)).await;
    let worker = || Some("worker-001".to_owned());
    let expected = Reason::Claimed { worker: worker(), lease_until: Some(at(301)) };
    assert_eq!(why(&stage, &run, at(2)).await, expected);
    stage.say(&run, info("compiling"), at(3)).await;
    let running =
        Reason::Running { worker: worker(), since: Some(at(1)), last_event: Some("compiling".to_owned()) };
    assert_eq!(why(&stage, &run, at(4)).await, running);
    assert_eq!(why(&stage, &run, at(11)).await, Reason::WorkerSilent { worker: worker(), since: at(0) });
    stage.beat(process, std::slice::from_ref(&run), at(12)).await;
    assert_eq!(why(&stage, &run, at(13)).await, running);
    stage.cancel(&run, at(14)).await;
    let stopping = Reason::Stopping { by: Some("ann".to_owned()), worker: worker(), since: at(14) };
    assert_eq!(why(&stage, &run, at(15)).await, stopping);
}

/// A run that is over: how, why, what its metadata says of it, and what carries the request on.
pub async fn a_run_that_is_over_has_a_reason(stage: Stage) {
    let ended = |status, cause, detail: Option<&str>, successor| Reason::Ended {
        status,
        cause: Some(cause),
        detail: detail.map(str::to_owned),
        successor,
    };
    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    stage.succeed(&run, at(1)).await;
    assert_eq!(why(&stage, &run, at(2)).await, ended(RunState::Success, EndCause::Reported, None, None));

    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let report = json!({"error": "Docker build failed", "exit_code": 1});
    stage.finish(&run, FinalStatus::Failed, report, at(1)).await;
    let expected = ended(RunState::Failed, EndCause::Reported, Some("Docker build failed"), None);
    assert_eq!(why(&stage, &run, at(2)).await, expected);

    let run = stage.queue(request(), at(0)).await;
    stage.cancel(&run, at(1)).await;
    let expected = ended(RunState::Cancelled, EndCause::Cancelled, Some("no longer needed"), None);
    assert_eq!(why(&stage, &run, at(2)).await, expected);

    let run = stage.running(request(), "worker-001", at(0)).await.run_id;
    let swept = stage.sweep(at(300)).await;
    let expected = ended(RunState::Failed, EndCause::Lost, Some("worker lost"), swept[0].successor.clone());
    assert_eq!(why(&stage, &run, at(301)).await, expected);

    let engine = Engine::new(stage.store.clone(), Clock::fixed(at(0)), Patience::None);
    refused(engine.why(&unknown_run()).await, RefusalCode::UnknownRun);
}
