//! Free slots of agents and pools.

use super::memory::{AgentState, Memory};
use std::collections::{BTreeMap, HashMap};
use tidemill_core::graph::assignment::{self, Workspace};
use tidemill_core::job::JobState;
use uuid::Uuid;

/// Free slots of agents and pools.
#[derive(Debug)]
pub(super) struct FreeSlots {
    pub(super) ids: Vec<Uuid>,
    pub(super) agents: Vec<assignment::AgentSlots>,
    pub(super) pools: BTreeMap<String, assignment::Pool>,
    /// Number of running jobs by workspace.
    pub(super) running: BTreeMap<Workspace, i32>,
}

impl Memory {
    /// Returns the free slots of agents and pools, and the number of running jobs by workspace.
    pub(super) fn free_slots(&self) -> FreeSlots {
        let mut used: HashMap<Uuid, i32> = HashMap::new();
        let mut pooled: HashMap<&str, i32> = HashMap::new();
        let mut running: BTreeMap<Workspace, i32> = BTreeMap::new();
        for &index in &self.occupying {
            let job = &self.jobs[index];
            if let Some(agent) = job.live.agent_id {
                *used.entry(agent).or_default() += job.live.weight;
            }
            if let Some(pool) = &job.live.pool {
                *pooled.entry(pool).or_default() += job.live.weight;
            }
            if job.state() == JobState::Running {
                *running.entry(job.workspace()).or_default() += 1;
            }
        }
        let mut ids = Vec::new();
        let mut agents = Vec::new();
        for (id, state) in self.agents.iter().filter(|(_, state)| state.known.forgotten_at.is_none()) {
            let agent = &state.known.agent;
            let free = agent.capacity - used.get(id).copied().unwrap_or(0);
            let takes = !state.away && !agent.draining;
            ids.push(*id);
            agents.push(agent_slots(state, takes.then_some(free.max(0))));
        }
        let pool = |(name, size): (&String, &i32)| {
            let used = pooled.get(name.as_str()).copied().unwrap_or(0);
            (name.clone(), assignment::Pool { size: *size, used })
        };
        FreeSlots { ids, agents, pools: self.pools.iter().map(pool).collect(), running }
    }
}

/// Returns the slots of an agent; `None` means that it takes no jobs now.
pub(super) fn agent_slots(state: &AgentState, free: Option<i32>) -> assignment::AgentSlots {
    let agent = &state.known.agent;
    assignment::AgentSlots {
        id: agent.agent_id,
        labels: agent.labels.clone(),
        projects: agent.projects.clone(),
        capacity: agent.capacity,
        free: free.unwrap_or(0),
        away: free.is_none(),
    }
}
