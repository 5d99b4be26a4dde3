//! Retention: what ended long ago goes with everything that belongs to it; the rest stays.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_engine::clock::Clock;
use tidemill_engine::{Engine, Patience, Upkeep};
use tidemill_store::Pruned;

use crate::door::{Stage, Tables, at, info, request};

fn count(tables: &Tables, table: &str) -> usize {
    tables.get(table).map_or(0, Vec::len)
}

/// A run goes with its events and artifacts; what ended later, or lives, stays whole.
pub async fn what_ended_long_ago_goes_with_its_events_and_artifacts(stage: Stage) {
    let mut old = Vec::new();
    for second in 0..5 {
        let run = stage.running(request(), "worker-001", at(second)).await.run_id;
        stage.say(&run, info("hello"), at(second)).await;
        let image = NewArtifact {
            artifact_type: "image".to_owned(),
            url: "ghcr.io/x".to_owned(),
            digest: None,
            size_bytes: None,
            metadata: json!({}),
        };
        assert!(stage.door.add_artifact(run.clone(), image, at(second)).await.is_ok());
        stage.finish(&run, FinalStatus::Success, json!({}), at(10)).await;
        old.push(run);
    }
    // Queued long ago, and ended only lately; queued long ago, and still alive; queued lately.
    let lately = stage.running(request(), "worker-001", at(6)).await.run_id;
    let day = 24 * 3_600;
    stage.succeed(&lately, at(80 * day)).await;
    let alive = stage.queue(QueueRun { priority: -1, ..request() }, at(7)).await;
    let young = stage.claimed(request(), "worker-001", at(80 * day)).await.run_id;
    stage.fail(&young, at(80 * day)).await;
    let before = stage.tables().await;
    let pruned = stage.store.prune(at(20) - TimeDelta::days(1), 100).await.ok();
    assert_eq!(pruned, Some(Pruned::default()), "nothing is old enough");
    stage.unchanged(&before).await;

    let pruned = stage.store.prune(at(70 * day), 2).await.ok();
    assert_eq!(pruned.map(|done| done.runs), Some(2), "in batches");
    let pruned = stage.store.prune(at(70 * day), 100).await.ok();
    assert_eq!(pruned.map(|done| done.runs), Some(3));
    let after = stage.tables().await;
    assert_eq!(count(&after, "runs"), 3);
    assert_eq!(count(&after, "artifacts"), 0);
    assert_eq!(count(&before, "run_events") - count(&after, "run_events"), 5 * 5);
    for run in old {
        assert_eq!(stage.store.run(run.clone()).await.ok(), Some(None));
        assert!(stage.events(&run).await.is_empty());
    }
    for run in [lately, alive, young] {
        assert!(!stage.events(&run).await.is_empty());
    }
}

/// A run with more events than one step may delete goes at once, and its events follow; nobody sees a part of it.
pub async fn a_run_with_many_events_goes_in_several_steps(stage: Stage) {
    // Older than the others, and still alive: what is left of the next one is found past it.
    let alive = stage.queue(QueueRun { priority: -1, ..request() }, at(-1)).await;
    let long = stage.running(request(), "worker-001", at(0)).await.run_id;
    for number in 0..20 {
        stage.say(&long, info(&format!("line {number}")), at(1)).await;
    }
    stage.succeed(&long, at(2)).await;
    let short = stage.running(request(), "worker-001", at(3)).await.run_id;
    stage.succeed(&short, at(4)).await;
    let count_of = async |run: &RunId| stage.events(run).await.len();
    let (of_long, of_short) = (count_of(&long).await, count_of(&short).await);
    assert_eq!((of_long, of_short), (24, 4));

    let step = async || stage.store.prune_within(at(1_000), 100, 10).await.unwrap_or_default();
    let first = step().await;
    assert_eq!((first.runs, first.events), (1, 10), "no more events than may go in one step");
    assert_eq!(
        stage.store.run(long.clone()).await.ok(),
        Some(None),
        "the run is not seen without its record"
    );
    assert!(stage.store.run(short.clone()).await.is_ok_and(|run| run.is_some()));
    assert_eq!((count_of(&long).await, count_of(&short).await), (14, 4));
    let second = step().await;
    assert_eq!((second.runs, second.events), (0, 10), "what is left comes first");
    let third = step().await;
    assert_eq!((third.runs, third.events), (1, 8), "and then there is room for the next");
    assert_eq!(step().await, Pruned::default(), "nothing is left");
    assert_eq!(count_of(&long).await + count_of(&short).await, 0);
    assert!(!stage.events(&alive).await.is_empty());
}

/// A process that does upkeep removes all that is old, however many batches it takes, and not one batch now and then.
pub async fn upkeep_keeps_up_with_more_than_one_batch(stage: Stage) {
    let mut ended = 0;
    while ended < 501 {
        let run = stage.queue(request(), at(ended)).await;
        let by = "ann".to_owned();
        assert!(stage.door.cancel(run, by, None, at(ended)).await.is_ok());
        ended += 1;
    }
    let day = 24 * 3_600;
    let engine = Engine::new(stage.store.clone(), Clock::fixed(at(100 * day)), Patience::None);
    let upkeep = Upkeep::default();
    let emptied = async {
        while stage.plain.number("SELECT count(*) FROM {ops}.runs").await.ok() != Some(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = engine.keep_up(&upkeep) => panic!("upkeep ended by itself"),
        emptied = tokio::time::timeout(Duration::from_mins(1), emptied) => {
            assert!(emptied.is_ok(), "runs that ended long ago are still there");
        }
    }
}

/// A worker that ended goes too, unless one of its runs still waits for the sweeper.
pub async fn workers_go_when_nothing_of_theirs_is_left(stage: Stage) {
    let gone = stage.register("worker-001", at(0)).await;
    let needed = stage.register("worker-002", at(0)).await;
    let run = stage.queue(request(), at(0)).await;
    stage.claim_registered("worker-002", needed, at(1)).await;
    for worker in [gone, needed] {
        assert!(stage.door.retire(worker, at(2)).await.is_ok());
    }
    let pruned = stage.store.prune(at(1_000), 100).await.ok();
    assert_eq!(pruned.map(|done| done.workers), Some(1));
    assert_eq!(stage.sweep(at(1_001)).await.iter().map(|one| one.run_id.clone()).collect::<Vec<_>>(), [run]);
    let pruned = stage.store.prune(at(1_000), 100).await.ok();
    assert_eq!(pruned.map(|done| done.workers), Some(1));
}
