//! The live jobs, as a controller remembers them.

use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tidemill_core::graph::definition::DATABASE_POOL;
use tidemill_core::graph::place::{Held, Holder, Place, place};
use tidemill_core::graph::plan::{Flags, Needs};
use tidemill_core::graph::share::{self, Line, Ready, Shape, Workspace};
use tidemill_core::job::JobState;
use tidemill_core::limits::LOST_MARGIN_SECS;
use tidemill_core::project::{Flag, FlagName, GRAPH_SCOPE, SITE_SCOPE, project_scope};
use tidemill_core::run::RunState;
use tidemill_core::task::{TaskKind, TaskResult};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{KnownAgent, LiveJob, LiveNeed, LiveTask, Look};
use uuid::Uuid;

/// A job, and what belongs to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) live: LiveJob,
    /// Jobs that it needs and that have not ended.
    pub(super) open: usize,
    /// A job that it needs and that failed.
    pub(super) broken: Option<String>,
    /// Of what it needs: files that one agent alone has.
    pub(super) held: Vec<Held>,
    /// Jobs that need it.
    pub(super) dependents: Vec<usize>,
    /// Jobs that it needs and that lived when it was read.
    pub(super) needed: Vec<usize>,
    /// The order to carry it out.
    pub(super) task: Option<LiveTask>,
    /// The order to stop its last task.
    pub(super) stop: Option<LiveTask>,
}

impl Job {
    pub(super) fn state(&self) -> JobState {
        self.live.code.state()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state(), JobState::Succeeded | JobState::Failed)
    }

    /// Whether it takes room: it runs, or something of it may.
    pub(super) fn takes_room(&self) -> bool {
        self.state() == JobState::Running || self.live.stopping
    }

    pub(super) fn needs(&self) -> Needs {
        match (&self.broken, self.open) {
            (Some(_), _) => Needs::Failed,
            (None, 0) if matches!(self.place(), Place::Nowhere(_)) => Needs::OutOfReach,
            (None, 0) => Needs::Met,
            (None, _) => Needs::Open,
        }
    }

    /// Where it can be carried out, as far as is known.
    pub(super) fn place(&self) -> Place {
        place(&self.held)
    }

    fn shape(&self, on: Option<Uuid>) -> Shape {
        Shape {
            project: self.live.project_id.clone(),
            uses_database: self.uses_database(),
            weight: self.live.weight,
            pool: self.live.pool.clone(),
            labels: self.live.labels.clone(),
            on,
            failed_on: Vec::new(),
        }
    }

    fn workspace(&self) -> Workspace {
        Workspace { project: self.live.project_id.clone(), name: self.live.workspace.clone() }
    }

    pub(super) fn uses_database(&self) -> bool {
        self.live.pool.as_deref() == Some(DATABASE_POOL)
    }
}

/// A run with live jobs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) status: RunState,
    /// Jobs that have not ended.
    pub(super) open: usize,
}

/// An agent, and whether it can be reached.
#[derive(Debug)]
pub(super) struct AgentState {
    pub(super) known: KnownAgent,
    /// When it was last heard, or this controller began to listen.
    pub(super) heard_at: Timestamp,
    /// Whether it is silent, has left or was forgotten.
    pub(super) away: bool,
}

/// What agents and pools have to give.
#[derive(Debug)]
pub(super) struct Rooms {
    /// The agents.
    pub(super) ids: Vec<Uuid>,
    /// What each of them has.
    pub(super) agents: Vec<share::Agent>,
    /// What the pools have.
    pub(super) pools: BTreeMap<String, share::Pool>,
    /// How many jobs of each workspace run.
    pub(super) running: BTreeMap<Workspace, i32>,
}

/// What a controller remembers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) jobs: Vec<Job>,
    ids: HashMap<String, usize>,
    pub(super) runs: HashMap<RunId, Run>,
    pub(super) agents: BTreeMap<Uuid, AgentState>,
    pub(super) pools: BTreeMap<String, i32>,
    /// The flags that are on.
    pub(super) flags: Vec<Flag>,
    /// Who waits for room.
    pub(super) line: Line,
    /// Jobs that take room.
    pub(super) rooms: BTreeSet<usize>,
    /// Jobs to look at, when the time has come.
    pub(super) timers: BTreeSet<(Timestamp, usize)>,
    /// Jobs to look at.
    pub(super) dirty: BTreeSet<usize>,
    /// Runs to read: jobs of them were named, and are not known.
    strange: BTreeSet<String>,
    /// Agents that could not carry a job out, by job.
    pub(super) failed_on: HashMap<String, Vec<Uuid>>,
    /// Whether somebody else moved a job: with a plain statement, because nobody else may.
    is_wrong: bool,
    live: usize,
}

impl Memory {
    /// An empty memory, but for what is not in the database.
    pub(super) fn anew(&mut self) -> Self {
        Self { failed_on: std::mem::take(&mut self.failed_on), ..Self::default() }
    }

    /// What room a job needs. Where one agent alone has what it needs, it goes there.
    ///
    /// What it leaves will be needed together with what others left: where that is on one agent's disk already, it goes
    /// there too, if that agent can take it at all. Otherwise nobody could bring the two together.
    pub(super) fn shape(&self, index: usize) -> Shape {
        let job = &self.jobs[index];
        if let Place::On(agent) = job.place() {
            return job.shape(Some(agent));
        }
        let free = Shape { failed_on: self.failed_on(job), ..job.shape(None) };
        let homes = job.dependents.iter().filter_map(|&dependent| match self.jobs[dependent].place() {
            Place::On(agent) => Some(agent),
            Place::Anywhere | Place::Nowhere(_) => None,
        });
        let mut fitting = homes.filter(|agent| {
            let known = self.agents.get(agent).filter(|state| state.known.forgotten_at.is_none());
            known.is_some_and(|state| {
                state.known.agent.capacity >= free.weight && room_of(state, None).fits(&free)
            })
        });
        let on = fitting.next();
        Shape { on, ..free }
    }

    /// A job that could begin, as it stands in line.
    pub(super) fn ready(&self, index: usize) -> Ready {
        let job = &self.jobs[index];
        // Jobs of one run were made at one time; their places tell which is older.
        let age = job.live.created_at.timestamp_micros() + i64::from(job.live.position);
        Ready { index, workspace: job.workspace(), age, shape: self.shape(index) }
    }

    /// Jobs that have not ended, or of which something may still run.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Whether nothing is left to look at.
    pub(super) fn is_settled(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Whether it is not as everything is, and must be read anew.
    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// Runs that have to be read with the next look.
    pub(super) fn take_runs(&mut self) -> Vec<String> {
        std::mem::take(&mut self.strange).into_iter().collect()
    }

    /// Whether there are any.
    pub(super) fn has_runs(&self) -> bool {
        !self.strange.is_empty()
    }

    /// Takes in what was seen, and notes which jobs have to be looked at because of it.
    pub(super) fn take_in(&mut self, look: Look, since: Timestamp, silence: TimeDelta) {
        let now = look.now;
        self.take_in_jobs(look.jobs, &look.needs, &look.runs);
        if look.full {
            // Jobs may have ended without this controller.
            self.failed_on.retain(|job, _| self.ids.contains_key(job));
        }
        for (job, held) in look.held {
            if let Some(&index) = self.ids.get(&job) {
                self.jobs[index].held.push(held);
            }
        }
        for named in look.named {
            match self.ids.get(&named.job_id) {
                Some(&index) => {
                    self.is_wrong |= self.jobs[index].live.code != named.code;
                    self.jobs[index].live.cancelled |= named.cancelled;
                    self.jobs[index].task = None;
                    self.jobs[index].stop = None;
                    self.dirty.insert(index);
                }
                // A job that has ended is named by reports that come late; its run is not known any more then.
                None => {
                    self.strange.insert(named.run_id.to_string());
                }
            }
        }
        self.take_in_tasks(look.tasks);
        self.pools = look.pools.into_iter().collect();
        self.take_in_agents(look.agents, since, silence, now);
        let on: Vec<Flag> = look.flags.into_iter().filter(|flag| flag.is_on(now)).collect();
        if on != self.flags {
            self.flags = on;
            self.dirty.extend(0..self.jobs.len());
        }
        while let Some(&(at, index)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.dirty.insert(index);
        }
    }

    fn take_in_jobs(&mut self, jobs: Vec<LiveJob>, needs: &[LiveNeed], runs: &[(RunId, RunState)]) {
        let of_runs: HashMap<&RunId, RunState> = runs.iter().map(|(run, state)| (run, *state)).collect();
        let known = self.jobs.len();
        self.jobs.reserve(jobs.len());
        self.ids.reserve(jobs.len());
        for live in jobs {
            let status = of_runs.get(&live.run_id).copied();
            // A run that somebody ended by hand, or that is gone, takes its jobs with it.
            let cancelled = live.cancelled || status.is_none_or(RunState::is_terminal);
            if let Some(&index) = self.ids.get(&live.job_id) {
                self.jobs[index].live.cancelled |= cancelled;
                self.jobs[index].task = None;
                self.jobs[index].stop = None;
                self.jobs[index].held.clear();
                // Where it can be carried out may be another place by now, and it gets its place in line anew.
                self.line.remove(index);
                self.dirty.insert(index);
                continue;
            }
            self.add(LiveJob { cancelled, ..live }, status.unwrap_or(RunState::Cancelled));
        }
        for need in needs {
            // What a job needs that was known before is connected already.
            if let Some(&index) = self.ids.get(&need.job_id).filter(|index| **index >= known) {
                self.connect(index, need);
            }
        }
    }

    fn add(&mut self, live: LiveJob, status: RunState) {
        let index = self.jobs.len();
        self.ids.insert(live.job_id.clone(), index);
        let run = self.runs.entry(live.run_id.clone()).or_insert(Run { status, open: 0 });
        run.open += usize::from(live.ended_at.is_none());
        let job = Job {
            live,
            open: 0,
            broken: None,
            held: Vec::new(),
            dependents: Vec::new(),
            needed: Vec::new(),
            task: None,
            stop: None,
        };
        if job.takes_room() {
            self.rooms.insert(index);
        }
        self.jobs.push(job);
        self.live += 1;
        self.dirty.insert(index);
    }

    fn connect(&mut self, index: usize, need: &LiveNeed) {
        if need.code.state() == JobState::Failed {
            self.jobs[index].broken.get_or_insert_with(|| need.name.clone());
            return;
        }
        if let Some(&needed) = self.ids.get(&need.needs) {
            self.jobs[index].open += 1;
            self.jobs[needed].dependents.push(index);
            self.jobs[index].needed.push(needed);
        }
    }

    fn take_in_tasks(&mut self, tasks: Vec<LiveTask>) {
        for task in tasks {
            let Some(&index) = self.ids.get(&task.job_id) else { continue };
            let job = &mut self.jobs[index];
            match task.kind {
                TaskKind::RunJob => job.task = Some(task),
                TaskKind::CancelJob => job.stop = Some(task),
            }
        }
    }

    fn take_in_agents(
        &mut self,
        known: Vec<KnownAgent>,
        since: Timestamp,
        silence: TimeDelta,
        now: Timestamp,
    ) {
        let state = |known: KnownAgent| {
            // Nobody could be heard before this controller listened.
            let heard_at = known.agent.seen_at.max(since);
            let gone = known.forgotten_at.is_some() || known.agent.left_at.is_some();
            AgentState { heard_at, away: gone || now - heard_at > silence, known }
        };
        self.agents = known.into_iter().map(|known| (known.agent.agent_id, state(known))).collect();
        // What agents have that cannot be reached is looked at each time: it may be lost by now.
        let away = |index: &usize| {
            let agent = self.jobs[*index].live.agent_id.and_then(|agent| self.agents.get(&agent));
            agent.is_none_or(|agent| agent.away)
        };
        let lost: Vec<usize> = self.rooms.iter().copied().filter(away).collect();
        self.dirty.extend(lost);
    }

    /// The flags as they hold a job.
    pub(super) fn flags_of(&self, job: &Job) -> Flags {
        let on = |name: FlagName, scope: &str| {
            self.flags.iter().any(|flag| flag.flag == name && flag.scope == scope)
        };
        Flags {
            paused: !self.flags.is_empty()
                && (on(FlagName::Paused, SITE_SCOPE)
                    || on(FlagName::Paused, GRAPH_SCOPE)
                    || on(FlagName::Paused, &project_scope(&job.live.project_id))),
            maintenance: on(FlagName::Maintenance, SITE_SCOPE),
            reboot: on(FlagName::Reboot, SITE_SCOPE),
        }
    }

    /// The agent of a task.
    fn agent_of(&self, task: &LiveTask) -> Option<&AgentState> {
        self.agents.get(&task.agent_id)
    }

    /// Whether nobody can be asked about a task any more.
    pub(super) fn is_forgotten(&self, task: &LiveTask) -> bool {
        self.agent_of(task).is_none_or(|agent| agent.known.forgotten_at.is_some())
    }

    /// Whether the agent of a task is silent or gone.
    pub(super) fn is_away(&self, task: &LiveTask) -> bool {
        self.agent_of(task).is_none_or(|agent| agent.away)
    }

    /// Whether a job was silent for so long that its supervisor has ended its command.
    pub(super) fn is_lost(&self, job: &Job, task: &LiveTask, now: Timestamp) -> bool {
        let Some(agent) = self.agent_of(task) else { return true };
        let Some(secs) = job.live.lost_secs else { return false };
        now - agent.heard_at > TimeDelta::seconds(i64::from(secs) + LOST_MARGIN_SECS)
    }

    /// Whether nothing of the last task of a job runs any more.
    pub(super) fn is_stopped(&self, job: &Job, now: Timestamp) -> bool {
        let Some(order) = &job.stop else { return true };
        let confirmed =
            order.result.as_ref().is_some_and(|result| !matches!(result, TaskResult::Failed { .. }));
        confirmed
            || order.cancelled_over
            || self.is_forgotten(order)
            || (!order.cancelled_begun && self.is_away(order))
            || self.is_lost(job, order, now)
    }

    /// What agents and pools have to give, and how many jobs of each workspace run.
    pub(super) fn free_rooms(&self) -> Rooms {
        let mut used: HashMap<Uuid, i32> = HashMap::new();
        let mut pooled: HashMap<&str, i32> = HashMap::new();
        let mut running: BTreeMap<Workspace, i32> = BTreeMap::new();
        for &index in &self.rooms {
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
            agents.push(room_of(state, takes.then_some(free.max(0))));
        }
        let pool = |(name, size): (&String, &i32)| {
            let used = pooled.get(name.as_str()).copied().unwrap_or(0);
            (name.clone(), share::Pool { size: *size, used })
        };
        Rooms { ids, agents, pools: self.pools.iter().map(pool).collect(), running }
    }

    /// Notes that what a job left is on the disk of one agent alone: those who need it go there, and so do jobs whose
    /// files will be needed together with it.
    pub(super) fn keep_on(&mut self, index: usize, agent_id: Uuid) {
        let known = self.agents.get(&agent_id).filter(|state| state.known.forgotten_at.is_none());
        let agent = known.map(|state| Holder { agent_id, name: state.known.agent.name.clone() });
        let held = Held { job: self.jobs[index].live.name.clone(), agent };
        for dependent in self.jobs[index].dependents.clone() {
            self.jobs[dependent].held.push(held.clone());
            for beside in self.jobs[dependent].needed.clone() {
                if self.line.contains(beside) {
                    self.line.remove(beside);
                    self.dirty.insert(beside);
                }
            }
        }
    }

    /// Follows what became of a job: its room, its run, the jobs that need it. Jobs to look at because of it.
    pub(super) fn settle(&mut self, index: usize, was_over: bool) -> Vec<usize> {
        let job = &self.jobs[index];
        if job.takes_room() {
            self.rooms.insert(index);
        } else {
            self.rooms.remove(&index);
        }
        if job.state() != JobState::Pending {
            self.line.remove(index);
        }
        if !job.is_over() {
            return Vec::new();
        }
        if !job.live.stopping {
            self.live -= 1;
            let id = job.live.job_id.clone();
            self.ids.remove(&id);
            self.failed_on.remove(&id);
        }
        if was_over {
            return Vec::new();
        }
        let job = &mut self.jobs[index];
        let (failed, name) = (job.state() == JobState::Failed, job.live.name.clone());
        let dependents = std::mem::take(&mut job.dependents);
        if let Some(run) = self.runs.get_mut(&job.live.run_id) {
            run.open -= 1;
        }
        for &dependent in &dependents {
            let dependent = &mut self.jobs[dependent];
            dependent.open -= 1;
            if failed {
                dependent.broken.get_or_insert_with(|| name.clone());
            }
        }
        dependents
    }
}

/// What an agent has to give, of which so much is free; one that gets nothing for now has nothing.
pub(super) fn room_of(state: &AgentState, free: Option<i32>) -> share::Agent {
    let agent = &state.known.agent;
    share::Agent {
        id: agent.agent_id,
        labels: agent.labels.clone(),
        project: agent.project_id.clone(),
        capacity: agent.capacity,
        free: free.unwrap_or(0),
        away: free.is_none(),
    }
}
