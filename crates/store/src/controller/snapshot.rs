//! The state that a controller reads in one pass.

use super::{Change, LiveJob, LiveNeed, LiveTask, NamedJob};
use crate::{Error, Store, Tx};
use std::collections::HashSet;
use tidemill_core::{RunId, Timestamp};

/// The state that a controller reads in one pass.
#[derive(Debug, Clone)]
pub struct ControllerSnapshot {
    pub now: Timestamp,
    /// Whether it holds everything, not only the changes.
    pub full: bool,
    pub changes: Vec<Change>,
    pub flags: Vec<tidemill_core::project::Flag>,
    pub agents: Vec<crate::AgentRecord>,
    pub pools: Vec<(String, i32)>,
    /// Live jobs: all, or those of changed runs.
    pub jobs: Vec<LiveJob>,
    /// Unmet dependencies of `jobs`.
    pub needs: Vec<LiveNeed>,
    /// Needed files that exist only on one agent.
    pub held: crate::HeldFiles,
    /// Open tasks: all, or those of changed jobs.
    pub tasks: Vec<LiveTask>,
    pub named: Vec<NamedJob>,
    /// States of the runs of `jobs`.
    pub runs: Vec<(RunId, tidemill_core::run::RunState)>,
    /// In a full snapshot: open runs whose jobs have all ended.
    pub open: Vec<RunId>,
}

impl Store {
    /// Reads everything, or the changes and `runs`, from one database snapshot. Includes agents with a heartbeat within
    /// `memory` or with open tasks.
    pub async fn controller_snapshot(
        &self,
        full: bool,
        runs: Vec<String>,
        limit: usize,
        memory: chrono::TimeDelta,
        now: Option<Timestamp>,
    ) -> Result<ControllerSnapshot, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let changes = tx.changes(limit).await?;
                let mut snapshot = ControllerSnapshot {
                    now,
                    full,
                    flags: tx.flags().await?,
                    agents: tx.live_agents(now - memory).await?,
                    pools: tx.pool_sizes().await?,
                    changes,
                    jobs: Vec::new(),
                    needs: Vec::new(),
                    held: Vec::new(),
                    tasks: Vec::new(),
                    named: Vec::new(),
                    runs: Vec::new(),
                    open: Vec::new(),
                };
                if full {
                    snapshot.jobs = tx.live_jobs(None).await?;
                    snapshot.jobs.extend(tx.orphaned_jobs().await?);
                    snapshot.needs = tx.live_needs(None).await?;
                    snapshot.held = tx.live_held(None).await?;
                    snapshot.tasks = tx.live_tasks(None).await?;
                    snapshot.open = tx.open_runs(limit).await?;
                } else {
                    tx.read_changed_runs(&mut snapshot, runs).await?;
                }
                let runs: HashSet<&RunId> = snapshot.jobs.iter().map(|job| &job.run_id).collect();
                if !runs.is_empty() {
                    snapshot.runs = tx.run_states(runs.into_iter().map(RunId::to_string).collect()).await?;
                }
                Ok(snapshot)
            })
        })
        .await
    }
}

impl Tx<'_> {
    /// Reads the changed jobs and runs, and `runs`.
    async fn read_changed_runs(
        &mut self,
        snapshot: &mut ControllerSnapshot,
        runs: Vec<String>,
    ) -> Result<(), Error> {
        let mut runs = runs;
        let mut jobs = Vec::new();
        for change in &snapshot.changes {
            let ids = if change.subject.parse::<RunId>().is_ok() { &mut runs } else { &mut jobs };
            ids.push(change.subject.clone());
        }
        if !runs.is_empty() {
            snapshot.jobs = self.live_jobs(Some(runs.clone())).await?;
            snapshot.needs = self.live_needs(Some(runs.clone())).await?;
            snapshot.held = self.live_held(Some(runs)).await?;
        }
        if !jobs.is_empty() {
            snapshot.named = self.named_jobs(jobs.clone()).await?;
        }
        let with_tasks = snapshot
            .jobs
            .iter()
            .filter(|job| job.task_id.is_some() && job.ended_at.is_none() || job.stopping);
        jobs.extend(with_tasks.map(|job| job.job_id.clone()));
        if !jobs.is_empty() {
            snapshot.tasks = self.live_tasks(Some(jobs)).await?;
        }
        Ok(())
    }
}
