//! A worker process of the engine, with an executor that panics.

use std::time::Duration;

use serde_json::json;
use tidemill_core::run::{Claim, FinalStatus, RunState};
use tidemill_engine::clock::Clock;
use tidemill_engine::worker::{ExecutionOutcome, Executor, ExitCondition, RunLog, RunSignal, WorkerOptions};
use tidemill_engine::{Engine, RetryPolicy, Upkeep};
use tokio::sync::watch;

use crate::interface::{Fixture, request};

/// An executor that panics on the first attempt and succeeds on the next.
struct PanickingExecutor;

impl Executor for PanickingExecutor {
    type Moment = ();

    fn moment(&self) {}

    async fn execute(&self, claim: Claim, _: RunLog, _: watch::Receiver<RunSignal<()>>) -> ExecutionOutcome {
        assert!(claim.attempt > 1, "this is the fault that the test puts in");
        ExecutionOutcome::Finished(FinalStatus::Success, json!({}))
    }
}

/// A panic in the executor costs one attempt of that run: its slot becomes free, heartbeats no longer name it, and the
/// run is retried at once if nothing else is waiting.
pub async fn run_of_a_panicking_executor_is_retried(fixture: Fixture) {
    let engine =
        Engine::new(fixture.store.clone(), Clock::Database, RetryPolicy::For(Duration::from_mins(1)));
    let Ok(queued) = engine.queue(request()).await else { panic!("the run is not queued") };
    let soon = Duration::from_millis(100);
    let options = WorkerOptions {
        name: "clumsy".to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
        projects: None,
        slots: 1,
        exit_when: ExitCondition::Drained,
        heartbeat_every: soon,
        poll_every: soon,
        shutdown_timeout: Duration::from_secs(5),
        upkeep: Some(Upkeep { every: soon, idle: soon, ..Upkeep::default() }),
    };
    // Kept alive, because a dropped sender would stop the worker.
    let (_told, stop) = watch::channel(false);
    let work =
        tokio::time::timeout(Duration::from_mins(1), engine.work(options, PanickingExecutor, stop)).await;
    let Ok(Ok(worked)) = work else { panic!("the worker still waits for the run that broke off: {work:?}") };
    assert_eq!((worked.claimed, worked.finished), (2, 1));
    let tries = fixture.store.tries(queued.run_id).await.unwrap_or_default();
    let states: Vec<RunState> = tries.iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Cancelled, RunState::Success]);
}
