//! Claims: each run once, the right one first, and only what the worker can do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_core::RunId;
use tidemill_core::run::RunState;
use tidemill_store::ClaimRuns;

use super::at_once;
use crate::door::{Stage, at, request};

/// Lets workers claim with these limits, all at once, until everything is claimed; what each of them got.
async fn race(stage: &Arc<Stage>, runs: usize, limits: &'static [usize]) -> Vec<Vec<RunId>> {
    let taken = Arc::new(AtomicUsize::new(0));
    at_once(limits.len(), |number| {
        let (stage, taken) = (stage.clone(), taken.clone());
        async move {
            let mut mine = Vec::new();
            // A claim may come back empty while others hold what is left; bounded, so that a loss is no hang.
            for _ in 0..1_000 {
                if taken.load(Ordering::SeqCst) >= runs {
                    break;
                }
                let ask = ClaimRuns { limit: limits[number], ..ClaimRuns::one(format!("worker-{number}")) };
                let claims = stage.claim_as(ask, at(1)).await;
                taken.fetch_add(claims.len(), Ordering::SeqCst);
                mine.extend(claims.into_iter().map(|claim| claim.run_id));
            }
            mine
        }
    })
    .await
}

/// Eight workers and sixty runs: every run goes to exactly one of them.
pub async fn each_run_is_claimed_once_by_workers_that_race(stage: Stage) {
    let stage = Arc::new(stage);
    let mut queued = BTreeSet::new();
    for second in 0..60 {
        queued.insert(stage.queue(request(), at(second)).await);
    }
    let claimed = race(&stage, queued.len(), &[1; 8]).await;
    check_each_once(&stage, &queued, &claimed).await;
}

async fn check_each_once(stage: &Stage, queued: &BTreeSet<RunId>, claimed: &[Vec<RunId>]) {
    let all: Vec<&RunId> = claimed.iter().flatten().collect();
    let unique: BTreeSet<RunId> = all.iter().map(|&run| run.clone()).collect();
    assert_eq!((all.len(), &unique), (queued.len(), queued), "every run once");
    for (number, runs) in claimed.iter().enumerate() {
        for id in runs {
            let run = stage.run(id).await;
            assert_eq!((run.status, run.epoch), (RunState::Claimed, 1));
            assert_eq!(run.claimed_by, Some(format!("worker-{number}")));
        }
    }
}
