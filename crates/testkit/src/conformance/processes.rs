//! Several processes on the same data: each has its own connections, and on SQLite its own writer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_core::run::QueueRun;
use tidemill_store::{ClaimRuns, Store};

use super::at_once;
use crate::interface::{Fixture, at, new_run_id, request};

/// Returns the store of the fixture and two more.
async fn processes(fixture: &Fixture) -> Arc<Vec<Store>> {
    Arc::new(vec![
        fixture.store.clone(),
        fixture.open_second_store().await,
        fixture.open_second_store().await,
    ])
}

pub async fn several_processes_claim_each_run_once(fixture: Fixture) {
    let mut queued = BTreeSet::new();
    for second in 0..90 {
        queued.insert(fixture.queue(request(), at(second)).await);
    }
    let (processes, taken, total) = (processes(&fixture).await, Arc::new(AtomicUsize::new(0)), queued.len());
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

pub async fn equal_requests_of_several_processes_make_one_run(fixture: Fixture) {
    let processes = processes(&fixture).await;
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

pub async fn simultaneous_sweeps_of_several_processes_agree(fixture: Fixture) {
    let mut runs = BTreeSet::new();
    for second in 0..20 {
        runs.insert(fixture.running(request(), "worker-001", at(second)).await.run_id);
    }
    let processes = processes(&fixture).await;
    let swept = at_once(3, |number| {
        let processes = processes.clone();
        async move { processes[number].sweep(500, 20.0, Some(at(400))).await }
    })
    .await;
    let mut ended: Vec<_> =
        swept.into_iter().flat_map(Result::unwrap_or_default).map(|one| one.run_id).collect();
    ended.extend(fixture.sweep(at(401)).await.into_iter().map(|one| one.run_id));
    assert_eq!((ended.len(), ended.into_iter().collect::<BTreeSet<_>>()), (20, runs));
    assert_eq!(fixture.plain.number("SELECT count(*) FROM {ops}.runs").await.ok(), Some(40));
}
