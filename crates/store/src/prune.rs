//! Retention: what has ended long ago goes, in batches, so that tables stay small.

use crate::codec::{At, Bare};
use crate::tx::on;
use crate::{Error, Store, catalog};
use tidemill_core::{RunId, Timestamp};

/// What a prune removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// Runs, with their events and artifacts.
    pub runs: u64,
    /// Worker processes that ended.
    pub workers: u64,
    /// Records of schedules.
    pub fires: u64,
    /// Alerts, and the messages that told of them.
    pub alerts: u64,
}

impl Store {
    /// Removes syncs that ended before `before`, with their partitions and pages; how many. The last completed
    /// full sync of each feed stays.
    pub async fn prune_syncs(&self, before: Timestamp, batch: usize) -> Result<u64, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(batch).unwrap_or(i64::MAX);
                let old: Vec<String> =
                    on!(tx, catalog::SYNC_OLD, [At(before), limit], fetch_all, "prune syncs")?
                        .records("prune syncs")?;
                for id in old.iter().filter_map(|id| id.parse().ok()).map(Bare) {
                    for statement in [
                        catalog::PRUNE_PAGES,
                        catalog::PRUNE_WORKER_RUNS,
                        catalog::PRUNE_PARTITIONS,
                        catalog::PRUNE_SYNC,
                    ] {
                        on!(tx, statement, [id], execute, "prune syncs")?;
                    }
                }
                Ok(old.len() as u64)
            })
        })
        .await
    }

    /// Removes one batch of runs that ended before `before`, with everything that belongs to them.
    pub async fn prune(&self, before: Timestamp, batch: usize) -> Result<Pruned, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(batch).unwrap_or(i64::MAX);
                let floor = RunId::floor(before);
                let gone: Vec<String> = on!(
                    tx,
                    catalog::PRUNE_RUNS,
                    [floor.as_str(), At(before), limit],
                    fetch_all,
                    "prune runs"
                )?
                .records("prune runs")?;
                for run in &gone {
                    on!(tx, catalog::PRUNE_EVENTS, [run.as_str()], execute, "prune events")?;
                    on!(tx, catalog::PRUNE_ARTIFACTS, [run.as_str()], execute, "prune artifacts")?;
                    let graph = on!(tx, catalog::PRUNE_GRAPH, [run.as_str()], execute, "prune graphs")?;
                    if graph.count() > 0 {
                        // Jobs last: they say what belongs to the run.
                        for statement in [
                            catalog::PRUNE_TASK_LOGS,
                            catalog::PRUNE_TASKS,
                            catalog::PRUNE_JOB_OUTPUTS,
                            catalog::PRUNE_JOB_EVENTS,
                            catalog::PRUNE_JOB_NEEDS,
                            catalog::PRUNE_JOBS,
                        ] {
                            on!(tx, statement, [run.as_str()], execute, "prune graphs")?;
                        }
                    }
                }
                on!(tx, catalog::PRUNE_AGENTS, [At(before)], execute, "prune agents")?;
                let workers = on!(tx, catalog::PRUNE_WORKERS, [At(before)], execute, "prune workers")?;
                let fires = on!(tx, catalog::PRUNE_FIRES, [At(before)], execute, "prune schedules")?;
                let alerts = on!(tx, catalog::PRUNE_ALERTS, [At(before), limit], execute, "prune alerts")?;
                on!(tx, catalog::PRUNE_DELIVERIES, [At(before), limit], execute, "prune alerts")?;
                Ok(Pruned {
                    runs: gone.len() as u64,
                    workers: workers.count(),
                    fires: fires.count(),
                    alerts: alerts.count(),
                })
            })
        })
        .await
    }
}
