//! Agents that failed to execute a job, and agents that have not tried it yet.

use super::free_slots::agent_slots;
use super::job::Job;
use super::memory::{AgentState, Memory};
use tidemill_core::graph::plan::OtherAgents;
use tidemill_core::task::TaskResult;
use tidemill_store::LiveTask;
use uuid::Uuid;

/// Most agents that a message names.
const NAMED_MAX: usize = 10;

/// Whether the agent failed in a way that another agent may not.
fn is_for_others(task: &LiveTask) -> bool {
    matches!(task.result, Some(TaskResult::Failed { elsewhere: true, .. }))
}

impl Memory {
    /// Records that an agent could not execute a job.
    pub(super) fn record_failed_agent(&mut self, index: usize, agent: Uuid) {
        let agents = self.failed_on.entry(self.jobs[index].live.job_id.clone()).or_default();
        if !agents.contains(&agent) {
            agents.push(agent);
        }
    }

    /// Returns the agents that could not execute a job. After a takeover only the last one is known, from the database.
    pub(super) fn failed_on(&self, job: &Job) -> Vec<Uuid> {
        let last = || job.live.agent_id.filter(|_| job.live.errors > 0).into_iter().collect();
        self.failed_on.get(&job.live.job_id).cloned().unwrap_or_else(last)
    }

    /// Tells whether agents are left that could take the job and have not failed at it.
    pub(super) fn other_agents(&self, index: usize, task: &LiveTask) -> OtherAgents {
        if !is_for_others(task) {
            // The plan does not use the answer in this case, and computing it visits every agent.
            return OtherAgents::None;
        }
        let requirements = self.requirements(index);
        let tried = self.failed_on(&self.jobs[index]);
        let left = self.agents.iter().filter(|(id, state)| {
            let known = &state.known;
            **id != task.agent_id
                && !tried.contains(id)
                && known.forgotten_at.is_none()
                && known.agent.capacity >= requirements.weight
                && agent_slots(state, None).fits(&requirements)
        });
        let is_away = |state: &AgentState| state.away || state.known.agent.draining;
        left.fold(OtherAgents::None, |others, (_, state)| match others {
            OtherAgents::Away | OtherAgents::None if is_away(state) => OtherAgents::Away,
            OtherAgents::Connected | OtherAgents::Away | OtherAgents::None => OtherAgents::Connected,
        })
    }

    /// Extends the message of a job that no agent is left to try.
    pub(super) fn given_up(&self, index: usize, message: String) -> String {
        let job = &self.jobs[index];
        let Some(task) = job.task.as_ref().filter(|task| is_for_others(task)) else { return message };
        let mut tried = self.failed_on(job);
        tried.retain(|agent| *agent != task.agent_id);
        tried.push(task.agent_id);
        let mut names: Vec<String> = tried.iter().take(NAMED_MAX).map(|agent| self.name_of(*agent)).collect();
        if tried.len() > NAMED_MAX {
            names.push(format!("{} more", tried.len() - NAMED_MAX));
        }
        let agents = match names.split_last() {
            Some((last, [])) => format!("agent {last}"),
            Some((last, rest)) => format!("agents {} and {last}", rest.join(", ")),
            None => "no agent".to_owned(),
        };
        format!("it was tried on {agents}, and no other is left; the last one: {message}")
    }

    /// Returns the name of an agent, or its id if it is unknown.
    pub(super) fn name_of(&self, agent: Uuid) -> String {
        self.agents.get(&agent).map_or_else(|| agent.to_string(), |state| state.known.agent.name.clone())
    }
}
