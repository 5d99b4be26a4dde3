//! Several processes on the same data: each has connections, and on SQLite a writer, of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_core::run::QueueRun;
use tidemill_store::{ClaimRuns, Store};

use super::at_once;
use crate::door::{Stage, at, new_run_id, request};

/// The stage's own store and two more.
async fn processes(stage: &Stage) -> Arc<Vec<Store>> {
    Arc::new(vec![stage.store.clone(), stage.beside().await, stage.beside().await])
}

/// Three processes with two workers each: every run once.
pub async fn processes_claim_each_run_once(stage: Stage) {
    let mut queued = BTreeSet::new();
    for second in 0..90 {
        queued.insert(stage.queue(request(), at(second)).await);
    }
    let (processes, taken, total) = (processes(&stage).await, Arc::new(AtomicUsize::new(0)), queued.len());
    let claimed = at_once(6, |number| {
        let (processes, taken) = (processes.clone(), taken.clone());
        async move {
            let mut mine = Vec::new();
            for _ in 0..1_000 {
                if taken.load(Ordering::SeqCst) >= total {
                    break;
                }
                let ask = ClaimRuns::one(format!("worker-{number}"));
                let claims = processes[number % 3].claim_runs(ask, Some(at(100))).await;
                let claims = claims.unwrap_or_else(|bad| panic!("a process cannot claim: {bad}"));
                taken.fetch_add(claims.len(), Ordering::SeqCst);
                mine.extend(claims.into_iter().map(|claim| claim.run_id));
            }
            mine
        }
    })
    .await;
    let all: Vec<_> = claimed.iter().flatten().cloned().collect();
    assert_eq!((all.len(), all.into_iter().collect::<BTreeSet<_>>()), (total, queued));
}

/// Three processes ask for the same thing at one instant: one run, and all of them get it.
pub async fn processes_that_ask_for_the_same_thing_get_one_run(stage: Stage) {
    let processes = processes(&stage).await;
    let answers = at_once(12, |number| {
        let processes = processes.clone();
        async move {
            let wanted = QueueRun { idempotency_key: Some("once".to_owned()), ..request() };
            processes[number % 3].queue_run(wanted, new_run_id(at(0)), Some(at(0))).await
        }
    })
    .await;
    let mut ids = BTreeSet::new();
    let mut created = 0;
    for answer in answers {
        let queued = answer.unwrap_or_else(|bad| panic!("a process cannot queue: {bad}"));
        created += usize::from(queued.created);
        ids.insert(queued.run_id);
    }
    assert_eq!((ids.len(), created), (1, 1));
}

/// Three sweepers in three processes: each run is ended once, and followed once.
pub async fn processes_that_sweep_at_one_instant_agree(stage: Stage) {
    let mut runs = BTreeSet::new();
    for second in 0..20 {
        runs.insert(stage.running(request(), "worker-001", at(second)).await.run_id);
    }
    let processes = processes(&stage).await;
    let swept = at_once(3, |number| {
        let processes = processes.clone();
        async move { processes[number].sweep(500, 20.0, Some(at(400))).await }
    })
    .await;
    let mut ended: Vec<_> =
        swept.into_iter().flat_map(Result::unwrap_or_default).map(|one| one.run_id).collect();
    ended.extend(stage.sweep(at(401)).await.into_iter().map(|one| one.run_id));
    assert_eq!((ended.len(), ended.into_iter().collect::<BTreeSet<_>>()), (20, runs));
    assert_eq!(stage.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(40));
}
