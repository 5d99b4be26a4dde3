//! A worker process of the engine: what becomes of a run when the work on it breaks off.

use std::time::Duration;

use serde_json::json;
use tidemill_core::run::{Claim, FinalStatus, RunState};
use tidemill_engine::clock::Clock;
use tidemill_engine::worker::{Carrier, Ended, Ending, RunLog, Sign, WorkerOptions};
use tidemill_engine::{Engine, Patience, Upkeep};
use tokio::sync::watch;

use crate::door::{Stage, request};

/// Breaks off at the first try, and succeeds at the next.
struct Clumsy;

impl Carrier for Clumsy {
    type Moment = ();

    fn moment(&self) {}

    async fn carry(&self, claim: Claim, _: RunLog, _: watch::Receiver<Sign<()>>) -> Ended {
        assert!(claim.attempt > 1, "this is the fault that the test puts in");
        Ended::With(FinalStatus::Success, json!({}))
    }
}

/// A fault of ours in the work on one run costs a try of that run: its slot is free again, beats no longer name it, and
/// its request is carried on at once where nothing else is in hand.
pub async fn a_run_whose_work_breaks_off_is_carried_on(stage: Stage) {
    let engine = Engine::new(stage.store.clone(), Clock::Database, Patience::For(Duration::from_mins(1)));
    let Ok(queued) = engine.queue(request()).await else { panic!("the run is not queued") };
    let soon = Duration::from_millis(100);
    let options = WorkerOptions {
        name: "clumsy".to_owned(),
        host: "here".to_owned(),
        labels: Vec::new(),
        projects: None,
        slots: 1,
        ending: Ending::Drained,
        beat: soon,
        look: soon,
        ending_max: Duration::from_secs(5),
        upkeep: Some(Upkeep { every: soon, idle: soon, ..Upkeep::default() }),
    };
    // The sender lives: nobody tells the worker to end.
    let (_told, stop) = watch::channel(false);
    let work = tokio::time::timeout(Duration::from_mins(1), engine.work(options, Clumsy, stop)).await;
    let Ok(Ok(worked)) = work else { panic!("the worker still waits for the run that broke off: {work:?}") };
    assert_eq!((worked.claimed, worked.finished), (2, 1));
    let tries = stage.store.tries(queued.run_id).await.unwrap_or_default();
    let states: Vec<RunState> = tries.iter().map(|run| run.status).collect();
    assert_eq!(states, [RunState::Cancelled, RunState::Success]);
}
