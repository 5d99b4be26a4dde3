//! Facts about jobs, from which `why` derives its answer.

use crate::{Error, Store, Tx};
use chrono::TimeDelta;
use tidemill_core::graph::assignment;
use tidemill_core::graph::placement::{Placement, decide_placement};
use tidemill_core::graph::record::TaskRecord;
use tidemill_core::job::JobState;
use tidemill_core::limits::{AGENT_MEMORY_DAYS, AGENT_SILENT_SECS};
use tidemill_core::project::{Flag, FlagName, GRAPH_SCOPE, SITE_SCOPE, project_scope};
use tidemill_core::task::{TaskKind, TaskResult};
use tidemill_core::why::{AgentFacts, JobFacts};
use tidemill_core::{RunId, Timestamp};
use uuid::Uuid;

impl Store {
    /// Reads the facts about a job.
    pub async fn job_facts(&self, job: String, now: Option<Timestamp>) -> Result<Option<JobFacts>, Error> {
        self.read(move |mut tx| Box::pin(async move { tx.job_facts(&job, now).await })).await
    }

    /// Reads the facts about the job that best explains what a graph waits for.
    pub async fn graph_facts(&self, run: RunId, now: Option<Timestamp>) -> Result<Option<JobFacts>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let Some(job) = tx.job_to_explain(&run).await? else { return Ok(None) };
                tx.job_facts(&job.job_id, now).await
            })
        })
        .await
    }
}

impl Tx<'_> {
    async fn job_facts(&mut self, job: &str, now: Option<Timestamp>) -> Result<Option<JobFacts>, Error> {
        let now = self.database_now(now).await?;
        let Some(record) = self.job(job).await? else { return Ok(None) };
        let Some(spec) = self.job_spec(job).await? else { return Ok(None) };
        let held = self.held_inputs(job).await?;
        let on = match decide_placement(&held) {
            Placement::On(agent) => Some(agent),
            Placement::Anywhere | Placement::Nowhere(_) => None,
        };
        let requirements = assignment::Requirements {
            project: record.project_id.clone(),
            uses_database: spec.uses_database(),
            weight: spec.weight,
            pool: spec.pool.clone(),
            labels: spec.labels.clone(),
            on,
            failed_on: if record.errors > 0 { self.failed_on(job).await? } else { Vec::new() },
        };
        let mut flags = self.flags().await?;
        flags.retain(|flag| flag.is_on(now) && holds(flag, &requirements, record.state));
        let sizes = self.pool_sizes().await?;
        let size = requirements.pool.as_ref().and_then(|pool| sizes.iter().find(|(name, _)| name == pool));
        let pool = match size {
            Some((name, size)) => Some((*size, self.pool_holders(name).await?)),
            None => None,
        };
        let lease = self.controller_lease().await?;
        let agents = self.agent_facts(&record, now).await?;
        Ok(Some(JobFacts {
            needs: self.open_needs(job).await?,
            controller: lease.until_at.is_some_and(|until| until > now),
            job: record,
            held,
            requirements,
            flags,
            pool,
            agents,
            now,
        }))
    }

    /// Returns agents that reported that they could not execute a job.
    async fn failed_on(&mut self, job: &str) -> Result<Vec<Uuid>, Error> {
        let failed = |task: &TaskRecord| {
            let result = task.result.as_ref();
            task.kind == TaskKind::RunJob
                && result.is_some_and(|result| !matches!(result, TaskResult::Ended { .. }))
        };
        let tasks = self.tasks_of_job(job).await?;
        Ok(tasks.into_iter().filter(failed).map(|task| task.agent_id).collect())
    }

    async fn agent_facts(
        &mut self,
        job: &tidemill_core::graph::record::JobRecord,
        now: Timestamp,
    ) -> Result<Vec<AgentFacts>, Error> {
        let used = self.agents_used().await?;
        let silent = TimeDelta::seconds(i64::try_from(AGENT_SILENT_SECS).unwrap_or(i64::MAX));
        let known = self.live_agents(now - TimeDelta::days(AGENT_MEMORY_DAYS)).await?;
        let facts = known.into_iter().map(|known| {
            let agent = known.agent;
            let used = used.iter().find(|(id, _)| *id == agent.agent_id).map_or(0, |(_, used)| *used);
            let away = known.forgotten_at.or(agent.left_at);
            let silent_since = away.or_else(|| (now - agent.seen_at > silent).then_some(agent.seen_at));
            let free = i64::from(agent.capacity) - used;
            let gets_none = silent_since.is_some() || agent.draining;
            AgentFacts {
                has_job: job.agent_id == Some(agent.agent_id),
                slots: assignment::AgentSlots {
                    id: agent.agent_id,
                    labels: agent.labels,
                    projects: agent.projects,
                    capacity: agent.capacity,
                    free: if gets_none { 0 } else { i32::try_from(free.max(0)).unwrap_or(i32::MAX) },
                    away: gets_none,
                },
                name: agent.name,
                silent_since,
            }
        });
        Ok(facts.collect())
    }
}

/// Returns whether a flag blocks a job.
fn holds(flag: &Flag, requirements: &assignment::Requirements, state: JobState) -> bool {
    match flag.flag {
        FlagName::Paused => {
            flag.scope == SITE_SCOPE
                || flag.scope == GRAPH_SCOPE
                || flag.scope == project_scope(&requirements.project)
        }
        FlagName::Maintenance => flag.scope == SITE_SCOPE && requirements.uses_database,
        FlagName::Reboot => flag.scope == SITE_SCOPE && state != JobState::Succeeded,
        FlagName::ProbeOff => false,
    }
}
