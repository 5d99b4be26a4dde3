//! In which order jobs get what room there is: workspaces share fairly, and nobody asks twice.

use super::plan::Room;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

/// A job that could start, as far as room is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Which one it is, for the caller.
    pub index: usize,
    /// The workspace that it belongs to.
    pub workspace: String,
    /// Whether it uses the database: such jobs come first.
    pub uses_database: bool,
    /// Its place by age: smaller is older.
    pub age: i64,
    /// How much room it takes.
    pub weight: i32,
    /// The pool that bounds it, if any.
    pub pool: Option<String>,
    /// What an agent must offer.
    pub labels: Vec<String>,
}

/// What an agent has to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// What it offers.
    pub labels: Vec<String>,
    /// How much it can carry in all.
    pub capacity: i32,
    /// How much of that is free.
    pub free: i32,
}

/// A pool: how much may run of it at once, and how much does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// How much may run at once.
    pub size: i32,
    /// How much does.
    pub used: i32,
}

/// Gives room to jobs, one after the other: the workspace with the fewest running jobs first, in it jobs of the
/// database before others and older ones before younger; counted anew after each start.
///
/// A job for which there is no room does not keep others from theirs.
pub fn share(
    ready: Vec<Ready>,
    running: &BTreeMap<String, i32>,
    agents: &mut [Agent],
    pools: &mut BTreeMap<String, Pool>,
) -> Vec<(usize, Room)> {
    let mut queues: HashMap<String, VecDeque<Ready>> = HashMap::new();
    let mut ready = ready;
    ready.sort_by(|a, b| {
        (Reverse(a.uses_database), a.age, a.index).cmp(&(Reverse(b.uses_database), b.age, b.index))
    });
    for job in ready {
        queues.entry(job.workspace.clone()).or_default().push_back(job);
    }
    // The heap holds the head of each workspace; what it is sorted by changes only when that workspace starts a job.
    let key = |name: &str, head: &Ready, count: i32| {
        Reverse((count, !head.uses_database, head.age, name.to_owned()))
    };
    let mut counts: HashMap<String, i32> =
        queues.keys().map(|name| (name.clone(), running.get(name).copied().unwrap_or(0))).collect();
    let mut heap: BinaryHeap<_> =
        queues.iter().filter_map(|(name, queue)| Some(key(name, queue.front()?, counts[name]))).collect();
    let mut given = Vec::new();
    while let Some(Reverse((_, _, _, name))) = heap.pop() {
        let Some(queue) = queues.get_mut(&name) else { continue };
        let Some(job) = queue.pop_front() else { continue };
        let room = give(&job, agents, pools);
        let count = counts.entry(name.clone()).or_default();
        if room == Room::Free {
            *count += 1;
        }
        given.push((job.index, room));
        if let Some(head) = queue.front() {
            heap.push(key(&name, head, *count));
        }
    }
    given
}

/// Whether there is room for a job; takes it if so.
fn give(job: &Ready, agents: &mut [Agent], pools: &mut BTreeMap<String, Pool>) -> Room {
    let fits = |agent: &Agent| job.labels.iter().all(|label| agent.labels.contains(label));
    let pool = job.pool.as_ref().and_then(|name| pools.get_mut(name));
    if pool.as_ref().is_some_and(|pool| pool.size < job.weight) {
        return Room::Never;
    }
    let some_agent = agents.iter().any(&fits);
    if some_agent && !agents.iter().any(|agent| fits(agent) && agent.capacity >= job.weight) {
        return Room::Never;
    }
    if pool.as_ref().is_some_and(|pool| pool.used + job.weight > pool.size) {
        return Room::PoolFull;
    }
    // The fullest agent that can still take it: wide jobs find room longer.
    let agent = agents
        .iter_mut()
        .filter(|agent| fits(agent) && agent.free >= job.weight)
        .min_by_key(|agent| agent.free);
    let Some(agent) = agent else { return Room::NoWorker };
    agent.free -= job.weight;
    if let Some(pool) = pool {
        pool.used += job.weight;
    }
    Room::Free
}

#[cfg(test)]
mod tests;
