//! Retention: deletes old ended work in batches.

use crate::codec::{SqlTextList, SqlTime, SqlUuid};
use crate::tx::{Conn, Tx, on};
use crate::{Error, Store, catalog};
use tidemill_core::Timestamp;

/// Maximum number of events per transaction, because on SQLite other writers wait meanwhile.
const PRUNE_EVENTS_MAX: u64 = 20_000;
/// Maximum number of log pieces per transaction. Each can have 256 KiB.
const PRUNE_PIECES_MAX: u64 = 2_000;
/// Maximum number of jobs per transaction.
const PRUNE_JOBS_MAX: u64 = 1_000;

/// The parts of a removed run in the table `removed_runs`.
const EVENTS: &str = "events";
const JOBS: &str = "jobs";

/// Numbers of deleted rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct PruneCounts {
    /// Runs, with their artifacts.
    pub runs: u64,
    pub events: u64,
    pub workers: u64,
    pub fires: u64,
    /// Alerts and their messages.
    pub alerts: u64,
    /// Jobs of graphs, with their tasks and outputs.
    pub jobs: u64,
    /// Pieces of job logs.
    pub pieces: u64,
}

impl Store {
    /// Deletes syncs that ended before `before`, with their partitions and pages; returns how many. For each feed, the
    /// last completed sync stays, and the last full one without failed partitions.
    pub async fn prune_syncs(&self, before: Timestamp, batch: usize) -> Result<u64, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(batch).unwrap_or(i64::MAX);
                let old: Vec<String> =
                    on!(tx, catalog::SYNC_OLD, [SqlTime(before), limit], fetch_all, "prune syncs")?
                        .records("prune syncs")?;
                for id in old.iter().filter_map(|id| id.parse().ok()).map(SqlUuid) {
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

    /// Deletes one batch of everything that ended before `before`, in one transaction per kind.
    ///
    /// A failing kind does not stop the others; the first error is returned at the end. A run with more events than one
    /// transaction may delete is deleted at once, and its remaining events go with the next batches. So no caller sees
    /// a run without its events. The jobs of a graph are deleted the same way. A batch that deletes nothing is the
    /// last.
    pub async fn prune(&self, before: Timestamp, batch: usize) -> Result<PruneCounts, Error> {
        self.prune_within(before, batch, PRUNE_EVENTS_MAX).await
    }

    /// Like [`Self::prune`], with a limit for events that also caps jobs and log pieces.
    pub async fn prune_within(
        &self,
        before: Timestamp,
        batch: usize,
        events_max: u64,
    ) -> Result<PruneCounts, Error> {
        let limit = i64::try_from(batch).unwrap_or(i64::MAX);
        let (mut pruned, mut failure) = (PruneCounts::default(), None);
        for kind in Kind::ALL {
            let step = self.write(move |mut tx| {
                Box::pin(async move { tx.prune_kind(kind, before, limit, events_max).await })
            });
            match step.await {
                Ok(some) => pruned.add(some),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(pruned), Err)
    }
}

/// The kinds of rows, each deleted in a transaction of its own.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Runs,
    Graphs,
    Agents,
    Workers,
    Fires,
    Alerts,
    Deliveries,
}

impl Kind {
    /// Runs come first, because the jobs of a graph are found by their deleted run.
    const ALL: [Self; 7] =
        [Self::Runs, Self::Graphs, Self::Agents, Self::Workers, Self::Fires, Self::Alerts, Self::Deliveries];
}

impl PruneCounts {
    /// Adds the counts of another batch.
    pub fn add(&mut self, other: Self) {
        let Self { runs, events, workers, fires, alerts, jobs, pieces } = other;
        self.runs += runs;
        self.events += events;
        self.workers += workers;
        self.fires += fires;
        self.alerts += alerts;
        self.jobs += jobs;
        self.pieces += pieces;
    }
}

impl Tx<'_> {
    async fn prune_kind(
        &mut self,
        kind: Kind,
        before: Timestamp,
        limit: i64,
        events_max: u64,
    ) -> Result<PruneCounts, Error> {
        let mut pruned = PruneCounts::default();
        match kind {
            Kind::Runs => {
                // Events of runs that an earlier batch removed come first.
                self.prune_left(events_max, &mut pruned).await?;
                self.prune_runs(before, limit, events_max, &mut pruned).await?;
                self.prune_left(events_max, &mut pruned).await?;
            }
            Kind::Graphs => self.prune_graphs(events_max, &mut pruned).await?,
            Kind::Agents => {
                on!(self, catalog::PRUNE_AGENTS, [SqlTime(before)], execute, "prune agents")?;
            }
            Kind::Workers => {
                pruned.workers =
                    on!(self, catalog::PRUNE_WORKERS, [SqlTime(before)], execute, "prune workers")?.count();
            }
            Kind::Fires => {
                pruned.fires =
                    on!(self, catalog::PRUNE_FIRES, [SqlTime(before)], execute, "prune schedules")?.count();
            }
            Kind::Alerts => {
                pruned.alerts =
                    on!(self, catalog::PRUNE_ALERTS, [SqlTime(before), limit], execute, "prune alerts")?
                        .count();
            }
            Kind::Deliveries => {
                on!(self, catalog::PRUNE_DELIVERIES, [SqlTime(before), limit], execute, "prune alerts")?;
            }
        }
        Ok(pruned)
    }

    /// Deletes events of removed runs, and then the rest of these runs except for their jobs.
    async fn prune_left(&mut self, events_max: u64, pruned: &mut PruneCounts) -> Result<(), Error> {
        while pruned.events < events_max {
            let Some(run) = self.left(EVENTS).await? else { break };
            let room = events_max - pruned.events;
            let removed = self.prune_events(&run, room).await?;
            pruned.events += removed;
            if removed < room {
                on!(self, catalog::PRUNE_ARTIFACTS, [run.as_str()], execute, "prune artifacts")?;
                on!(self, catalog::PRUNE_GRAPH, [run.as_str()], execute, "prune graphs")?;
                on!(self, catalog::PRUNE_LEFT_DONE, [EVENTS, run.as_str()], execute, "prune events")?;
            }
        }
        Ok(())
    }

    /// Returns a removed run of which this part is left.
    async fn left(&mut self, part: &'static str) -> Result<Option<String>, Error> {
        on!(self, catalog::PRUNE_LEFT, [part], fetch_optional, "prune runs")?.record("prune runs")
    }

    async fn prune_runs(
        &mut self,
        before: Timestamp,
        limit: i64,
        events_max: u64,
        pruned: &mut PruneCounts,
    ) -> Result<(), Error> {
        let room = i64::try_from(events_max.saturating_sub(pruned.events)).unwrap_or(i64::MAX);
        let removed: Vec<String> =
            on!(self, catalog::PRUNE_RUNS, [SqlTime(before), limit, room], fetch_all, "prune runs")?
                .records("prune runs")?;
        pruned.runs = removed.len() as u64;
        Ok(())
    }

    /// Deletes jobs whose run is deleted, with their tasks and outputs.
    async fn prune_graphs(&mut self, most: u64, pruned: &mut PruneCounts) -> Result<(), Error> {
        let (jobs_max, pieces_max) = (most.min(PRUNE_JOBS_MAX), most.min(PRUNE_PIECES_MAX));
        while pruned.jobs < jobs_max && pruned.pieces < pieces_max {
            let Some(run) = self.left(JOBS).await? else { break };
            let room = i64::try_from(pieces_max - pruned.pieces).unwrap_or(i64::MAX);
            pruned.pieces +=
                on!(self, catalog::PRUNE_TASK_LOGS, [run.as_str(), room], execute, "prune graphs")?.count();
            // The log pieces go first, because they are found through their jobs.
            if pruned.pieces < pieces_max {
                let jobs = self.prune_jobs(&run, jobs_max - pruned.jobs).await?;
                pruned.jobs += jobs;
                if jobs == 0 {
                    on!(self, catalog::PRUNE_LEFT_DONE, [JOBS, run.as_str()], execute, "prune graphs")?;
                }
            }
        }
        Ok(())
    }

    /// Deletes the next jobs of a deleted run, each completely; returns how many.
    async fn prune_jobs(&mut self, run: &str, most: u64) -> Result<u64, Error> {
        let (most, files) = (i64::try_from(most).unwrap_or(i64::MAX), i64::try_from(PRUNE_EVENTS_MAX));
        let files = files.unwrap_or(i64::MAX);
        let jobs: Vec<String> =
            on!(self, catalog::PRUNE_JOBS_NEXT, [run, most, files], fetch_all, "prune graphs")?
                .records("prune graphs")?;
        for statement in [
            catalog::PRUNE_TASKS,
            catalog::PRUNE_JOB_OUTPUTS,
            catalog::PRUNE_JOB_EVENTS,
            catalog::PRUNE_JOB_NEEDS,
            catalog::PRUNE_JOBS,
        ] {
            on!(self, statement, [SqlTextList(jobs.clone())], execute, "prune graphs")?;
        }
        Ok(jobs.len() as u64)
    }

    /// Deletes the oldest events of a deleted run; returns how many.
    async fn prune_events(&mut self, run: &str, most: u64) -> Result<u64, Error> {
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let pruned = on!(self, catalog::PRUNE_EVENTS, [run, limit], execute, "prune events")?.count();
        match &self.conn {
            Conn::Postgres(_) if pruned < most => {
                let found = on!(self, catalog::PRUNE_STEPS, [run], fetch_optional, "prune events")?;
                let steps: Option<i64> = found.record("prune events")?;
                Ok(pruned + steps.unwrap_or_default().unsigned_abs())
            }
            Conn::Postgres(_) | Conn::Sqlite(_) => Ok(pruned),
        }
    }
}
