//! Retention: what ended long ago goes with everything that belongs to it; the rest stays.

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{FinalStatus, QueueRun};
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
