//! Which agents could not carry a job out, and which are left to try.

use super::memory::{AgentState, Job, Memory, room_of};
use tidemill_core::graph::plan::Others;
use tidemill_core::task::TaskResult;
use tidemill_store::LiveTask;
use uuid::Uuid;

/// Agents that are named in a sentence.
const NAMED_MAX: usize = 10;

/// Whether an agent has answered that it will never carry a task out, and that another may.
fn is_for_others(task: &LiveTask) -> bool {
    matches!(task.result, Some(TaskResult::Failed { elsewhere: true, .. }))
}

impl Memory {
    /// Notes that the agent of a job's last task could not carry it out.
    pub(super) fn note_failed(&mut self, index: usize, agent: Uuid) {
        let agents = self.failed_on.entry(self.jobs[index].live.job_id.clone()).or_default();
        if !agents.contains(&agent) {
            agents.push(agent);
        }
    }

    /// Agents that could not carry a job out. One that took over from another controller knows the last one.
    pub(super) fn failed_on(&self, job: &Job) -> Vec<Uuid> {
        let last = || job.live.agent_id.filter(|_| job.live.errors > 0).into_iter().collect();
        self.failed_on.get(&job.live.job_id).cloned().unwrap_or_else(last)
    }

    /// Agents that could take a job and have not failed at it, once that of its task has.
    pub(super) fn others(&self, index: usize, task: &LiveTask) -> Others {
        if !is_for_others(task) {
            // Nobody asks then, and it is a look at every agent.
            return Others::Nobody;
        }
        let shape = self.shape(index);
        let tried = self.failed_on(&self.jobs[index]);
        let left = self.agents.iter().filter(|(id, state)| {
            let known = &state.known;
            **id != task.agent_id
                && !tried.contains(id)
                && known.forgotten_at.is_none()
                && known.agent.capacity >= shape.weight
                && room_of(state, None).fits(&shape)
        });
        let is_away = |state: &AgentState| state.away || state.known.agent.draining;
        left.fold(Others::Nobody, |others, (_, state)| match others {
            Others::Away | Others::Nobody if is_away(state) => Others::Away,
            Others::There | Others::Away | Others::Nobody => Others::There,
        })
    }

    /// What is said of a job that nobody is left to try.
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

    /// The name of an agent; its id, where nobody knows it any more.
    pub(super) fn name_of(&self, agent: Uuid) -> String {
        self.agents.get(&agent).map_or_else(|| agent.to_string(), |state| state.known.agent.name.clone())
    }
}
