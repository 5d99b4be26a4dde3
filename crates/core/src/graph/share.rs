//! In which order jobs get what room there is: workspaces share fairly, and nobody asks twice.

use super::plan::Room;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use uuid::Uuid;

/// Whose jobs share room fairly. Projects name their workspaces without asking each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workspace {
    /// The project.
    pub project: String,
    /// The name within it.
    pub name: String,
}

/// A job that could start, as far as room is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Which one it is, for the caller.
    pub index: usize,
    /// The workspace that it belongs to.
    pub workspace: Workspace,
    /// Its place by age: smaller is older.
    pub age: i64,
    /// What room it needs.
    pub shape: Shape,
}

/// What room a job needs. Jobs of one shape find room together, or wait together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The project that it belongs to: agents may work for one project only.
    pub project: String,
    /// Whether it uses the database: such jobs come first.
    pub uses_database: bool,
    /// How much room it takes.
    pub weight: i32,
    /// The pool that bounds it, if any.
    pub pool: Option<String>,
    /// What an agent must offer.
    pub labels: Vec<String>,
    /// The one agent that can take it, where that alone has what it needs.
    pub on: Option<Uuid>,
    /// Agents that could not carry it out. It waits for others, as long as there are some.
    pub failed_on: Vec<Uuid>,
}

/// What an agent has to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its id.
    pub id: Uuid,
    /// What it offers.
    pub labels: Vec<String>,
    /// The only project whose jobs it takes, if not those of all.
    pub project: Option<String>,
    /// How much it can carry in all.
    pub capacity: i32,
    /// How much of that is free.
    pub free: i32,
    /// Whether it gets nothing for now: it is silent, or drains.
    pub away: bool,
}

impl Agent {
    /// Whether it could ever take such a job, but for its width.
    pub fn fits(&self, shape: &Shape) -> bool {
        shape.on.is_none_or(|on| on == self.id)
            && self.project.as_ref().is_none_or(|project| *project == shape.project)
            && shape.labels.iter().all(|label| self.labels.contains(label))
    }
}

/// The agents that a job of this shape passes over: it failed there, and there is another to wait for.
///
/// What one agent cannot do, because of how it was started or where it runs, another may; tries are few.
pub fn passed_over<'a>(shape: &'a Shape, agents: &[Agent]) -> &'a [Uuid] {
    let failed = |agent: &Agent| shape.failed_on.contains(&agent.id);
    let could = |agent: &Agent| !agent.away && agent.capacity >= shape.weight && agent.fits(shape);
    let has_other = !shape.failed_on.is_empty() && agents.iter().any(|agent| !failed(agent) && could(agent));
    if has_other { &shape.failed_on } else { &[] }
}

/// A pool: how much may run of it at once, and how much does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// How much may run at once.
    pub size: i32,
    /// How much does.
    pub used: i32,
}

/// A job that got room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The job.
    pub index: usize,
    /// The agent that it goes to, by its place in the list.
    pub agent: usize,
}

/// The jobs that wait for room. Kept between one look and the next, so that a look costs what it gives and not
/// what waits.
#[derive(Debug, Default)]
pub struct Line {
    shapes: Vec<Shape>,
    numbers: HashMap<Shape, usize>,
    /// By workspace and shape, the oldest first.
    queues: BTreeMap<Workspace, BTreeMap<usize, BTreeSet<(i64, usize)>>>,
    places: HashMap<usize, (Workspace, usize, i64)>,
}

impl Line {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a job waits.
    pub fn contains(&self, index: usize) -> bool {
        self.places.contains_key(&index)
    }

    /// Puts a job in line. It has one place, however often it comes.
    pub fn add(&mut self, job: Ready) {
        self.remove(job.index);
        let number = if let Some(number) = self.numbers.get(&job.shape) {
            *number
        } else {
            self.shapes.push(job.shape.clone());
            self.numbers.insert(job.shape, self.shapes.len() - 1);
            self.shapes.len() - 1
        };
        let queue = self.queues.entry(job.workspace.clone()).or_default().entry(number).or_default();
        queue.insert((job.age, job.index));
        self.places.insert(job.index, (job.workspace, number, job.age));
    }

    /// Takes a job out of the line.
    pub fn remove(&mut self, index: usize) {
        let Some((workspace, number, age)) = self.places.remove(&index) else { return };
        let Some(shapes) = self.queues.get_mut(&workspace) else { return };
        if let Some(queue) = shapes.get_mut(&number) {
            queue.remove(&(age, index));
            if queue.is_empty() {
                shapes.remove(&number);
            }
        }
        if shapes.is_empty() {
            self.queues.remove(&workspace);
        }
    }

    /// Gives room to jobs, one after the other: the workspace with the fewest running jobs first, in it jobs of
    /// the database before others and older ones before younger; counted anew after each start. At most `max` get
    /// it, and they leave the line.
    ///
    /// A job for which there is no room does not keep others from theirs.
    pub fn give(
        &mut self,
        running: &BTreeMap<Workspace, i32>,
        agents: &mut [Agent],
        pools: &mut BTreeMap<String, Pool>,
        max: usize,
    ) -> Vec<Given> {
        // Room only shrinks while it is given: what does not fit once does not fit again.
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
        let mut given = Vec::new();
        while given.len() < max {
            let Some(Reverse((_, (_, _, index, number), name))) = heap.pop() else { break };
            let count = counts.entry(name.clone()).or_default();
            if !blocked.contains(&number) {
                match take(&self.shapes[number], agents, pools) {
                    Some(agent) => {
                        given.push(Given { index, agent });
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
        given
    }

    /// Who of a workspace is next: whether the database is not used, age, job, shape.
    fn head(&self, workspace: &Workspace, blocked: &HashSet<usize>) -> Option<(bool, i64, usize, usize)> {
        let shapes = self.queues.get(workspace)?.iter().filter(|(number, _)| !blocked.contains(number));
        shapes
            .filter_map(|(number, queue)| {
                let (age, index) = *queue.first()?;
                Some((!self.shapes[*number].uses_database, age, index, *number))
            })
            .min()
    }
}

/// Whether there is room for a job of this shape. Takes nothing.
///
/// A pool that was made smaller than the job keeps it waiting: who made it so may make it larger again.
pub fn room(shape: &Shape, agents: &[Agent], pools: &BTreeMap<String, Pool>) -> Room {
    let pool = shape.pool.as_ref().and_then(|name| pools.get(name));
    let mut fitting = agents.iter().filter(|agent| agent.fits(shape)).peekable();
    if fitting.peek().is_some() && !fitting.clone().any(|agent| agent.capacity >= shape.weight) {
        return Room::Never;
    }
    if pool.is_some_and(|pool| pool.used + shape.weight > pool.size) {
        return Room::PoolFull;
    }
    let not = passed_over(shape, agents);
    let is_free = fitting.any(|agent| agent.free >= shape.weight && !not.contains(&agent.id));
    if is_free { Room::Free } else { Room::NoWorker }
}

/// Takes room for a job of this shape: the agent that has it.
fn take(shape: &Shape, agents: &mut [Agent], pools: &mut BTreeMap<String, Pool>) -> Option<usize> {
    if room(shape, agents, pools) != Room::Free {
        return None;
    }
    // The fullest agent that can still take it: wide jobs find room longer.
    let not = passed_over(shape, agents);
    let fitting = agents.iter_mut().enumerate().filter(|(_, agent)| agent.fits(shape));
    let free = fitting.filter(|(_, agent)| agent.free >= shape.weight && !not.contains(&agent.id));
    let (place, agent) = free.min_by_key(|(_, agent)| agent.free)?;
    agent.free -= shape.weight;
    if let Some(pool) = shape.pool.as_ref().and_then(|name| pools.get_mut(name)) {
        pool.used += shape.weight;
    }
    Some(place)
}

#[cfg(test)]
mod tests;
