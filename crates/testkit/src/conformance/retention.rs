//! Retention: old ended work is deleted with everything that belongs to it; the rest stays.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;
use tidemill_core::RunId;
use tidemill_core::artifact::NewArtifact;
use tidemill_core::run::{FinalStatus, QueueRun};
use tidemill_engine::clock::Clock;
use tidemill_engine::{Engine, RetryPolicy, Upkeep};
use tidemill_store::{PruneCounts, RefusalCode};

use crate::interface::{Fixture, Tables, at, info, new_run_id, refused, request};

fn count(tables: &Tables, table: &str) -> usize {
    tables.get(table).map_or(0, Vec::len)
}

/// Runs that ended later or are still live stay complete.
pub async fn prune_deletes_old_runs_with_their_events_and_artifacts(fixture: Fixture) {
    let mut old = Vec::new();
    for second in 0..5 {
        let run = fixture.running(request(), "worker-001", at(second)).await.run_id;
        fixture.append_event(&run, info("hello"), at(second)).await;
        let image = NewArtifact {
            artifact_type: "image".to_owned(),
            url: "ghcr.io/x".to_owned(),
            digest: None,
            size_bytes: None,
            metadata: json!({}),
        };
        assert!(fixture.interface.add_artifact(run.clone(), image, at(second)).await.is_ok());
        fixture.finish(&run, FinalStatus::Success, json!({}), at(10)).await;
        old.push(run);
    }
    // Queued long ago and ended recently; queued long ago and still live; queued recently.
    let lately = fixture.running(request(), "worker-001", at(6)).await.run_id;
    let day = 24 * 3_600;
    fixture.succeed(&lately, at(80 * day)).await;
    let alive = fixture.queue(QueueRun { priority: -1, ..request() }, at(7)).await;
    let young = fixture.claimed(request(), "worker-001", at(80 * day)).await.run_id;
    fixture.fail(&young, at(80 * day)).await;
    let before = fixture.tables().await;
    let pruned = fixture.store.prune(at(20) - TimeDelta::days(1), 100).await.ok();
    assert_eq!(pruned, Some(PruneCounts::default()), "no row is old enough");
    fixture.unchanged(&before).await;

    let pruned = fixture.store.prune(at(70 * day), 2).await.ok();
    assert_eq!(pruned.map(|done| done.runs), Some(2), "in batches");
    let pruned = fixture.store.prune(at(70 * day), 100).await.ok();
    assert_eq!(pruned.map(|done| done.runs), Some(3));
    let after = fixture.tables().await;
    assert_eq!(count(&after, "runs"), 3);
    assert_eq!(count(&after, "artifacts"), 0);
    assert_eq!(count(&before, "run_events") - count(&after, "run_events"), 5 * 5);
    for run in old {
        assert_eq!(fixture.store.run(run.clone()).await.ok(), Some(None));
        assert!(fixture.events(&run).await.is_empty());
    }
    for run in [lately, alive, young] {
        assert!(!fixture.events(&run).await.is_empty());
    }
}

/// The run is deleted at once, and its events in later batches, so that no reader sees a partial run.
pub async fn prune_deletes_a_run_with_many_events_in_several_batches(fixture: Fixture) {
    // Older than the others and still live: the remaining events of the next run must be found behind it.
    let alive = fixture.queue(QueueRun { priority: -1, ..request() }, at(-1)).await;
    let long = fixture.running(request(), "worker-001", at(0)).await.run_id;
    for number in 0..20 {
        fixture.append_event(&long, info(&format!("line {number}")), at(1)).await;
    }
    fixture.succeed(&long, at(2)).await;
    let short = fixture.running(request(), "worker-001", at(3)).await.run_id;
    fixture.succeed(&short, at(4)).await;
    let count_of = async |run: &RunId| fixture.events(run).await.len();
    let (of_long, of_short) = (count_of(&long).await, count_of(&short).await);
    assert_eq!((of_long, of_short), (24, 4));

    let step = async || fixture.store.prune_within(at(1_000), 100, 10).await.unwrap_or_default();
    let first = step().await;
    assert_eq!((first.runs, first.events), (1, 10), "no more events than may go in one step");
    assert_eq!(
        fixture.store.run(long.clone()).await.ok(),
        Some(None),
        "the run is not seen without its record"
    );
    assert!(fixture.store.run(short.clone()).await.is_ok_and(|run| run.is_some()));
    assert_eq!((count_of(&long).await, count_of(&short).await), (14, 4));
    let second = step().await;
    assert_eq!((second.runs, second.events), (0, 10), "the remaining events come first");
    let third = step().await;
    assert_eq!((third.runs, third.events), (1, 8), "and then there is room for the next");
    assert_eq!(step().await, PruneCounts::default(), "no row is left");
    assert_eq!(count_of(&long).await + count_of(&short).await, 0);
    assert!(!fixture.events(&alive).await.is_empty());
}

/// The numbers of its events are taken until the last of them is removed.
pub async fn id_of_a_removed_run_is_refused_while_it_has_events(fixture: Fixture) {
    let long = fixture.running(request(), "worker-001", at(0)).await.run_id;
    for number in 0..20 {
        fixture.append_event(&long, info(&format!("line {number}")), at(1)).await;
    }
    fixture.succeed(&long, at(2)).await;
    let step = async || fixture.store.prune_within(at(1_000), 100, 10).await.unwrap_or_default();
    assert_eq!(step().await.runs, 1);
    let before = fixture.tables().await;
    let again = async || fixture.interface.queue(request(), long.clone(), at(7_200)).await;
    refused(again().await, RefusalCode::KeyConflict);
    let many = vec![(request(), new_run_id(at(7_200))), (request(), long.clone())];
    refused(fixture.interface.queue_many(many, at(7_200)).await, RefusalCode::KeyConflict);
    let plain = format!(
        "INSERT INTO {{ops}}.runs (run_id, project_id, env_id) VALUES ('{long}', 'shop', 'shop/staging')"
    );
    refused(fixture.plain.execute(&plain).await, RefusalCode::KeyConflict);
    fixture.unchanged(&before).await;

    while step().await != PruneCounts::default() {}
    assert!(again().await.is_ok_and(|queued| queued.created), "its id is free again");
    assert_eq!(fixture.messages(&long).await, ["Run queued"]);
}

/// Upkeep deletes all old rows in one pass, in as many batches as needed.
pub async fn upkeep_prunes_more_than_one_batch(fixture: Fixture) {
    let mut ended = 0;
    while ended < 501 {
        let run = fixture.queue(request(), at(ended)).await;
        let by = "ann".to_owned();
        assert!(fixture.interface.cancel(run, by, None, at(ended)).await.is_ok());
        ended += 1;
    }
    let day = 24 * 3_600;
    let engine = Engine::new(fixture.store.clone(), Clock::fixed(at(100 * day)), RetryPolicy::None);
    let upkeep = Upkeep::default();
    let emptied = async {
        while fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok() != Some(0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = engine.run_maintenance(&upkeep) => panic!("upkeep ended by itself"),
        emptied = tokio::time::timeout(Duration::from_mins(1), emptied) => {
            assert!(emptied.is_ok(), "runs that ended long ago are still there");
        }
    }
}

/// Unless one of its runs still waits for the sweeper.
pub async fn prune_deletes_workers_without_runs(fixture: Fixture) {
    let gone = fixture.register("worker-001", at(0)).await;
    let needed = fixture.register("worker-002", at(0)).await;
    let run = fixture.queue(request(), at(0)).await;
    fixture.claim_registered("worker-002", needed, at(1)).await;
    for worker in [gone, needed] {
        assert!(fixture.interface.retire(worker, at(2)).await.is_ok());
    }
    let pruned = fixture.store.prune(at(1_000), 100).await.ok();
    assert_eq!(pruned.map(|done| done.workers), Some(1));
    assert_eq!(
        fixture.sweep(at(1_001)).await.iter().map(|one| one.run_id.clone()).collect::<Vec<_>>(),
        [run]
    );
    let pruned = fixture.store.prune(at(1_000), 100).await.ok();
    assert_eq!(pruned.map(|done| done.workers), Some(1));
}
