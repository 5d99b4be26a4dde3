//! Assignment of ready jobs to agents: workspaces get fair shares of the capacity.

use super::plan::Capacity;
use crate::project_set::ProjectSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use uuid::Uuid;

/// The unit of fairness. Names are unique within a project only, so the project is part of the key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workspace {
    pub project: String,
    /// Name within the project.
    pub name: String,
}

/// A job that can start as soon as an agent has capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyJob {
    /// Identifies the job for the caller.
    pub index: usize,
    pub workspace: Workspace,
    /// Rank by age; smaller is older.
    pub age: i64,
    pub requirements: Requirements,
}

/// Requirements of a job on its agent. Jobs with equal requirements have the same chance of capacity, so the queue
/// groups them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirements {
    /// Project of the job; an agent may be limited to some projects.
    pub project: String,
    /// Whether the job uses the database; such jobs start first.
    pub uses_database: bool,
    pub weight: i32,
    pub pool: Option<String>,
    /// Labels that the agent must have.
    pub labels: Vec<String>,
    /// The only agent that can take the job, because it has the inputs on its disk.
    pub on: Option<Uuid>,
    /// Agents on which the job failed. They are excluded while another agent could take it.
    pub failed_on: Vec<Uuid>,
}

/// The capacity of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSlots {
    pub id: Uuid,
    pub labels: Vec<String>,
    /// Projects whose jobs it executes.
    pub projects: ProjectSet,
    /// Total weight that it can execute.
    pub capacity: i32,
    /// Weight that is free now.
    pub free: i32,
    /// Whether it gets no jobs now, because it is silent or draining.
    pub away: bool,
}

impl AgentSlots {
    /// Returns whether the agent matches the requirements, apart from its capacity.
    pub fn fits(&self, requirements: &Requirements) -> bool {
        requirements.on.is_none_or(|on| on == self.id)
            && self.projects.contains(&requirements.project)
            && requirements.labels.iter().all(|label| self.labels.contains(label))
    }
}

/// Returns the agents that a job must not use: those on which it failed, while there is another one to wait for.
///
/// A failure may be caused by the agent's host or options, and the number of attempts is small.
pub fn excluded_agents<'a>(requirements: &'a Requirements, agents: &[AgentSlots]) -> &'a [Uuid] {
    let failed = |agent: &AgentSlots| requirements.failed_on.contains(&agent.id);
    let could =
        |agent: &AgentSlots| !agent.away && agent.capacity >= requirements.weight && agent.fits(requirements);
    let has_other =
        !requirements.failed_on.is_empty() && agents.iter().any(|agent| !failed(agent) && could(agent));
    if has_other { &requirements.failed_on } else { &[] }
}

/// A pool: its size, and the weight of its running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    pub size: i32,
    pub used: i32,
}

/// A job and the agent that it is assigned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub index: usize,
    /// Index of the agent in the list.
    pub agent: usize,
}

/// The jobs that wait for capacity. It is kept between passes, so that a pass costs as much as it assigns, however many
/// jobs wait.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    requirement_sets: Vec<Requirements>,
    numbers: HashMap<Requirements, usize>,
    /// By workspace and requirements, the oldest job first.
    queues: BTreeMap<Workspace, BTreeMap<usize, BTreeSet<(i64, usize)>>>,
    entries: HashMap<usize, (Workspace, usize, i64)>,
}

impl ReadyQueue {
    /// Returns the number of waiting jobs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no job waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether this job waits.
    pub fn contains(&self, index: usize) -> bool {
        self.entries.contains_key(&index)
    }

    /// Adds a job, or replaces its entry.
    pub fn add(&mut self, job: ReadyJob) {
        self.remove(job.index);
        let number = if let Some(number) = self.numbers.get(&job.requirements) {
            *number
        } else {
            self.requirement_sets.push(job.requirements.clone());
            self.numbers.insert(job.requirements, self.requirement_sets.len() - 1);
            self.requirement_sets.len() - 1
        };
        let queue = self.queues.entry(job.workspace.clone()).or_default().entry(number).or_default();
        queue.insert((job.age, job.index));
        self.entries.insert(job.index, (job.workspace, number, job.age));
    }

    /// Removes a job; a job that does not wait is ignored.
    pub fn remove(&mut self, index: usize) {
        let Some((workspace, number, age)) = self.entries.remove(&index) else { return };
        let Some(requirement_sets) = self.queues.get_mut(&workspace) else { return };
        if let Some(queue) = requirement_sets.get_mut(&number) {
            queue.remove(&(age, index));
            if queue.is_empty() {
                requirement_sets.remove(&number);
            }
        }
        if requirement_sets.is_empty() {
            self.queues.remove(&workspace);
        }
    }

    /// Assigns at most `max` jobs to agents and removes them from the queue. The workspace with the fewest running
    /// jobs comes first, counted again after each assignment. Within a workspace, jobs that use the database come
    /// first, then older jobs.
    ///
    /// A job without capacity does not block the others.
    pub fn assign(
        &mut self,
        running: &BTreeMap<Workspace, i32>,
        agents: &mut [AgentSlots],
        pools: &mut BTreeMap<String, Pool>,
        max: usize,
    ) -> Vec<Assignment> {
        // Capacity only shrinks during the pass, so requirements that failed once fail for the rest of it.
        let mut blocked: HashSet<usize> = HashSet::new();
        let mut counts: HashMap<Workspace, i32> = HashMap::new();
        let mut heap = BinaryHeap::new();
        for name in self.queues.keys() {
            let count = running.get(name).copied().unwrap_or(0);
            counts.insert(name.clone(), count);
            if let Some(head) = self.head(name, &blocked) {
                heap.push(Reverse((count, head, name.clone())));
            }
        }
        let mut assigned = Vec::new();
        while assigned.len() < max {
            let Some(Reverse((_, (_, _, index, number), name))) = heap.pop() else { break };
            let count = counts.entry(name.clone()).or_default();
            if !blocked.contains(&number) {
                match take(&self.requirement_sets[number], agents, pools) {
                    Some(agent) => {
                        assigned.push(Assignment { index, agent });
                        *count += 1;
                        self.remove(index);
                    }
                    None => {
                        blocked.insert(number);
                    }
                }
            }
            if let Some(head) = self.head(&name, &blocked) {
                heap.push(Reverse((counts[&name], head, name)));
            }
        }
        assigned
    }

    /// Returns the next job of a workspace as a sort key: no database, age, job, requirements.
    fn head(&self, workspace: &Workspace, blocked: &HashSet<usize>) -> Option<(bool, i64, usize, usize)> {
        let requirement_sets =
            self.queues.get(workspace)?.iter().filter(|(number, _)| !blocked.contains(number));
        requirement_sets
            .filter_map(|(number, queue)| {
                let (age, index) = *queue.first()?;
                Some((!self.requirement_sets[*number].uses_database, age, index, *number))
            })
            .min()
    }
}

/// Returns whether a job with these requirements could start now. Reserves nothing.
///
/// A job that is larger than its pool waits instead of failing: an operator may enlarge the pool.
pub fn check_capacity(
    requirements: &Requirements,
    agents: &[AgentSlots],
    pools: &BTreeMap<String, Pool>,
) -> Capacity {
    let pool = requirements.pool.as_ref().and_then(|name| pools.get(name));
    let mut fitting = agents.iter().filter(|agent| agent.fits(requirements)).peekable();
    if fitting.peek().is_some() && !fitting.clone().any(|agent| agent.capacity >= requirements.weight) {
        return Capacity::Never;
    }
    if pool.is_some_and(|pool| pool.used + requirements.weight > pool.size) {
        return Capacity::PoolFull;
    }
    let excluded = excluded_agents(requirements, agents);
    let is_free = fitting.any(|agent| agent.free >= requirements.weight && !excluded.contains(&agent.id));
    if is_free { Capacity::Free } else { Capacity::NoWorker }
}

/// Reserves capacity for a job and returns the index of the agent.
fn take(
    requirements: &Requirements,
    agents: &mut [AgentSlots],
    pools: &mut BTreeMap<String, Pool>,
) -> Option<usize> {
    if check_capacity(requirements, agents, pools) != Capacity::Free {
        return None;
    }
    // The fullest agent that can take it, so that large jobs find capacity elsewhere.
    let excluded = excluded_agents(requirements, agents);
    let fitting = agents.iter_mut().enumerate().filter(|(_, agent)| agent.fits(requirements));
    let free =
        fitting.filter(|(_, agent)| agent.free >= requirements.weight && !excluded.contains(&agent.id));
    let (index, agent) = free.min_by_key(|(_, agent)| agent.free)?;
    agent.free -= requirements.weight;
    if let Some(pool) = requirements.pool.as_ref().and_then(|name| pools.get_mut(name)) {
        pool.used += requirements.weight;
    }
    Some(index)
}

#[cfg(test)]
mod tests;
