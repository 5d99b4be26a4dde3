//! Retention: what has ended long ago goes, in batches, so that tables stay small.

use crate::codec::{At, Bare, Words};
use crate::tx::{Tx, on};
use crate::{Error, Store, catalog};
use tidemill_core::{RunId, Timestamp};

/// Events in one step: on SQLite nobody else writes meanwhile.
const PRUNE_EVENTS_MAX: u64 = 20_000;
/// Pieces of output in one step: each may have a quarter of a megabyte.
const PRUNE_PIECES_MAX: u64 = 2_000;
/// Jobs in one step.
const PRUNE_JOBS_MAX: u64 = 1_000;

/// What a prune removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// Runs, with their artifacts.
    pub runs: u64,
    /// Events of runs.
    pub events: u64,
    /// Worker processes that ended.
    pub workers: u64,
    /// Records of schedules.
    pub fires: u64,
    /// Alerts, and the messages that told of them.
    pub alerts: u64,
    /// Jobs of graphs, with their tasks and what they left.
    pub jobs: u64,
    /// Pieces of what the commands of jobs wrote.
    pub pieces: u64,
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

    /// Removes one batch of everything that ended before `before`, one transaction per kind.
    ///
    /// A kind that fails does not keep the others from being removed; the first error is returned at the end. A run
    /// with more events than one step may delete goes at once, and the events that are left go with the next batches:
    /// nobody sees a run without its record. So it is with the jobs of a graph. A batch that removed nothing was the
    /// last.
    pub async fn prune(&self, before: Timestamp, batch: usize) -> Result<Pruned, Error> {
        self.prune_within(before, batch, PRUNE_EVENTS_MAX).await
    }

    /// The same with so many events, and no more jobs and pieces of output, at most.
    pub async fn prune_within(
        &self,
        before: Timestamp,
        batch: usize,
        events_max: u64,
    ) -> Result<Pruned, Error> {
        let limit = i64::try_from(batch).unwrap_or(i64::MAX);
        let (mut pruned, mut failure) = (Pruned::default(), None);
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

/// What is removed in one transaction.
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
    /// Runs come first: the jobs of a graph are found by its run that is gone.
    const ALL: [Self; 7] =
        [Self::Runs, Self::Graphs, Self::Agents, Self::Workers, Self::Fires, Self::Alerts, Self::Deliveries];
}

impl Pruned {
    /// Adds what another batch removed.
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
    ) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        match kind {
            Kind::Runs => {
                pruned = self.prune_left(before, events_max).await?;
                self.prune_runs(before, limit, events_max, &mut pruned).await?;
            }
            Kind::Graphs => self.prune_graphs(before, events_max, &mut pruned).await?,
            Kind::Agents => {
                on!(self, catalog::PRUNE_AGENTS, [At(before)], execute, "prune agents")?;
            }
            Kind::Workers => {
                pruned.workers =
                    on!(self, catalog::PRUNE_WORKERS, [At(before)], execute, "prune workers")?.count();
            }
            Kind::Fires => {
                pruned.fires =
                    on!(self, catalog::PRUNE_FIRES, [At(before)], execute, "prune schedules")?.count();
            }
            Kind::Alerts => {
                pruned.alerts =
                    on!(self, catalog::PRUNE_ALERTS, [At(before), limit], execute, "prune alerts")?.count();
            }
            Kind::Deliveries => {
                on!(self, catalog::PRUNE_DELIVERIES, [At(before), limit], execute, "prune alerts")?;
            }
        }
        Ok(pruned)
    }

    /// Removes events whose run went in a batch before this one.
    async fn prune_left(&mut self, before: Timestamp, events_max: u64) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        let floor = RunId::floor(before);
        while pruned.events < events_max {
            let left: Option<String> =
                on!(self, catalog::PRUNE_LEFT, [floor.as_str(), At(before)], fetch_optional, "prune events")?
                    .record("prune events")?;
            let Some(run) = left else { break };
            pruned.events += self.prune_events(&run, events_max - pruned.events).await?;
        }
        Ok(pruned)
    }

    async fn prune_runs(
        &mut self,
        before: Timestamp,
        limit: i64,
        events_max: u64,
        pruned: &mut Pruned,
    ) -> Result<(), Error> {
        let room = i64::try_from(events_max.saturating_sub(pruned.events)).unwrap_or(i64::MAX);
        let floor = RunId::floor(before);
        let gone: Vec<String> = on!(
            self,
            catalog::PRUNE_RUNS,
            [floor.as_str(), At(before), limit, room],
            fetch_all,
            "prune runs"
        )?
        .records("prune runs")?;
        for run in &gone {
            let room = events_max.saturating_sub(pruned.events);
            pruned.events += self.prune_events(run, room).await?;
            on!(self, catalog::PRUNE_ARTIFACTS, [run.as_str()], execute, "prune artifacts")?;
            on!(self, catalog::PRUNE_GRAPH, [run.as_str()], execute, "prune graphs")?;
        }
        pruned.runs = gone.len() as u64;
        Ok(())
    }

    /// Removes jobs whose run is gone, and what belongs to them.
    async fn prune_graphs(&mut self, before: Timestamp, most: u64, pruned: &mut Pruned) -> Result<(), Error> {
        let floor = RunId::floor(before);
        let (jobs_max, pieces_max) = (most.min(PRUNE_JOBS_MAX), most.min(PRUNE_PIECES_MAX));
        while pruned.jobs < jobs_max && pruned.pieces < pieces_max {
            let left: Option<String> = on!(
                self,
                catalog::PRUNE_LEFT_JOBS,
                [floor.as_str(), At(before)],
                fetch_optional,
                "prune graphs"
            )?
            .record("prune graphs")?;
            let Some(run) = left else { break };
            let room = i64::try_from(pieces_max - pruned.pieces).unwrap_or(i64::MAX);
            pruned.pieces +=
                on!(self, catalog::PRUNE_TASK_LOGS, [run.as_str(), room], execute, "prune graphs")?.count();
            // What they wrote goes first: by their jobs it is found.
            if pruned.pieces < pieces_max {
                pruned.jobs += self.prune_jobs(&run, jobs_max - pruned.jobs).await?;
            }
        }
        Ok(())
    }

    /// Removes the next jobs of a run that is gone, each whole; how many.
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
            on!(self, statement, [Words(jobs.clone())], execute, "prune graphs")?;
        }
        Ok(jobs.len() as u64)
    }

    /// Removes the oldest events of a run that is gone; how many.
    async fn prune_events(&mut self, run: &str, most: u64) -> Result<u64, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        Ok(on!(self, catalog::PRUNE_EVENTS, [run, most], execute, "prune events")?.count())
    }
}
