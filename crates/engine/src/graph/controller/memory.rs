//! The controller's state in memory: live jobs, runs, agents, pools and flags.

use super::free_slots::agent_slots;
use super::job::Job;
use chrono::TimeDelta;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tidemill_core::graph::assignment::{ReadyJob, ReadyQueue, Requirements};
use tidemill_core::graph::placement::{LocalOutputs, OutputHolder, Placement};
use tidemill_core::graph::plan::Flags;
use tidemill_core::job::JobState;
use tidemill_core::limits::LOST_MARGIN_SECS;
use tidemill_core::project::{Flag, FlagName, GRAPH_SCOPE, SITE_SCOPE, project_scope};
use tidemill_core::run::RunState;
use tidemill_core::task::{TaskKind, TaskResult};
use tidemill_core::{RunId, Timestamp};
use tidemill_store::{AgentRecord, ControllerSnapshot, LiveJob, LiveNeed, LiveTask};
use uuid::Uuid;

/// A run with live jobs.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) status: RunState,
    /// Number of jobs that have not ended.
    pub(super) open: usize,
}

/// An agent and whether it can be reached.
#[derive(Debug)]
pub(super) struct AgentState {
    pub(super) known: AgentRecord,
    /// Time of its last heartbeat, or when this controller started if that is later.
    pub(super) heard_at: Timestamp,
    /// Whether it is silent, has left or was forgotten.
    pub(super) away: bool,
}

/// The controller's state.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) jobs: Vec<Job>,
    ids: HashMap<String, usize>,
    pub(super) runs: HashMap<RunId, Run>,
    pub(super) agents: BTreeMap<Uuid, AgentState>,
    pub(super) pools: BTreeMap<String, i32>,
    /// Flags that are on.
    pub(super) flags: Vec<Flag>,
    /// Jobs that wait for a slot.
    pub(super) ready_queue: ReadyQueue,
    /// Jobs that occupy a slot.
    pub(super) occupying: BTreeSet<usize>,
    /// Jobs to assess at a later time.
    pub(super) timers: BTreeSet<(Timestamp, usize)>,
    /// Jobs to assess now.
    pub(super) dirty: BTreeSet<usize>,
    /// Runs to read, because a change named an unknown job of them.
    unknown_runs: BTreeSet<String>,
    /// Agents that could not execute a job, by job.
    pub(super) failed_on: HashMap<String, Vec<Uuid>>,
    /// Whether a job was changed by a manual SQL statement, so that everything must be read again.
    is_outdated: bool,
    live: usize,
}

impl Memory {
    /// Returns an empty state that keeps only data that is not in the database.
    pub(super) fn reset(&mut self) -> Self {
        Self { failed_on: std::mem::take(&mut self.failed_on), ..Self::default() }
    }

    /// Returns the requirements of a job. If only one agent has its needed outputs, it must run there.
    ///
    /// Its own outputs will be needed together with those of other jobs. If those are on one agent's disk, the job
    /// also goes there, provided that the agent can take it at all. Otherwise the outputs could not be brought
    /// together.
    pub(super) fn requirements(&self, index: usize) -> Requirements {
        let job = &self.jobs[index];
        if let Placement::On(agent) = job.placement() {
            return job.requirements(Some(agent));
        }
        let free = Requirements { failed_on: self.failed_on(job), ..job.requirements(None) };
        let preferred =
            job.dependents.iter().filter_map(|&dependent| match self.jobs[dependent].placement() {
                Placement::On(agent) => Some(agent),
                Placement::Anywhere | Placement::Nowhere(_) => None,
            });
        let mut fitting = preferred.filter(|agent| {
            let known = self.agents.get(agent).filter(|state| state.known.forgotten_at.is_none());
            known.is_some_and(|state| {
                state.known.agent.capacity >= free.weight && agent_slots(state, None).fits(&free)
            })
        });
        let on = fitting.next();
        Requirements { on, ..free }
    }

    /// Returns the queue entry of a job that can start.
    pub(super) fn ready(&self, index: usize) -> ReadyJob {
        let job = &self.jobs[index];
        // Jobs of one run have the same creation time, so their positions determine the order.
        let age = job.live.created_at.timestamp_micros() + i64::from(job.live.position);
        ReadyJob { index, workspace: job.workspace(), age, requirements: self.requirements(index) }
    }

    /// Returns the number of jobs that have not ended or of which something may still run.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Whether no job is left to assess.
    pub(super) fn is_settled(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Whether the state is outdated and must be read again.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// Takes the runs that the next read must include.
    pub(super) fn take_runs(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unknown_runs).into_iter().collect()
    }

    pub(super) fn has_runs(&self) -> bool {
        !self.unknown_runs.is_empty()
    }

    /// Applies a snapshot of the database and marks the affected jobs as dirty.
    pub(super) fn apply_snapshot(
        &mut self,
        snapshot: ControllerSnapshot,
        since: Timestamp,
        silence: TimeDelta,
    ) {
        let now = snapshot.now;
        self.apply_jobs(snapshot.jobs, &snapshot.needs, &snapshot.runs);
        if snapshot.full {
            // Jobs may have ended under another controller.
            self.failed_on.retain(|job, _| self.ids.contains_key(job));
        }
        for (job, held) in snapshot.held {
            if let Some(&index) = self.ids.get(&job) {
                self.jobs[index].local_outputs.push(held);
            }
        }
        for named in snapshot.named {
            match self.ids.get(&named.job_id) {
                Some(&index) => {
                    self.is_outdated |= self.jobs[index].live.code != named.code;
                    self.jobs[index].live.cancelled |= named.cancelled;
                    self.jobs[index].task = None;
                    self.jobs[index].stop = None;
                    self.dirty.insert(index);
                }
                // A late report may name a job that has ended; its run is no longer known.
                None => {
                    self.unknown_runs.insert(named.run_id.to_string());
                }
            }
        }
        self.apply_tasks(snapshot.tasks);
        self.pools = snapshot.pools.into_iter().collect();
        self.apply_agents(snapshot.agents, since, silence, now);
        let on: Vec<Flag> = snapshot.flags.into_iter().filter(|flag| flag.is_on(now)).collect();
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

    fn apply_jobs(&mut self, jobs: Vec<LiveJob>, needs: &[LiveNeed], runs: &[(RunId, RunState)]) {
        let of_runs: HashMap<&RunId, RunState> = runs.iter().map(|(run, state)| (run, *state)).collect();
        let known = self.jobs.len();
        self.jobs.reserve(jobs.len());
        self.ids.reserve(jobs.len());
        for live in jobs {
            let status = of_runs.get(&live.run_id).copied();
            // A run that was ended manually or removed cancels its jobs.
            let cancelled = live.cancelled || status.is_none_or(RunState::is_terminal);
            if let Some(&index) = self.ids.get(&live.job_id) {
                self.jobs[index].live.cancelled |= cancelled;
                self.jobs[index].task = None;
                self.jobs[index].stop = None;
                self.jobs[index].local_outputs.clear();
                // Its placement may have changed, so it is queued again.
                self.ready_queue.remove(index);
                self.dirty.insert(index);
                continue;
            }
            self.add(LiveJob { cancelled, ..live }, status.unwrap_or(RunState::Cancelled));
        }
        for need in needs {
            // The needs of jobs that were known before are already connected.
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
            failed_need: None,
            local_outputs: Vec::new(),
            dependents: Vec::new(),
            needed: Vec::new(),
            task: None,
            stop: None,
        };
        if job.occupies_slot() {
            self.occupying.insert(index);
        }
        self.jobs.push(job);
        self.live += 1;
        self.dirty.insert(index);
    }

    fn connect(&mut self, index: usize, need: &LiveNeed) {
        if need.code.state() == JobState::Failed {
            self.jobs[index].failed_need.get_or_insert_with(|| need.name.clone());
            return;
        }
        if let Some(&needed) = self.ids.get(&need.needs) {
            self.jobs[index].open += 1;
            self.jobs[needed].dependents.push(index);
            self.jobs[index].needed.push(needed);
        }
    }

    fn apply_tasks(&mut self, tasks: Vec<LiveTask>) {
        for task in tasks {
            let Some(&index) = self.ids.get(&task.job_id) else { continue };
            let job = &mut self.jobs[index];
            match task.kind {
                TaskKind::RunJob => job.task = Some(task),
                TaskKind::CancelJob => job.stop = Some(task),
            }
        }
    }

    fn apply_agents(
        &mut self,
        known: Vec<AgentRecord>,
        since: Timestamp,
        silence: TimeDelta,
        now: Timestamp,
    ) {
        let state = |known: AgentRecord| {
            // Silence before this controller started does not count.
            let heard_at = known.agent.seen_at.max(since);
            let gone = known.forgotten_at.is_some() || known.agent.left_at.is_some();
            AgentState { heard_at, away: gone || now - heard_at > silence, known }
        };
        self.agents = known.into_iter().map(|known| (known.agent.agent_id, state(known))).collect();
        // Jobs of unreachable agents are assessed on each pass: they may be lost by now.
        let away = |index: &usize| {
            let agent = self.jobs[*index].live.agent_id.and_then(|agent| self.agents.get(&agent));
            agent.is_none_or(|agent| agent.away)
        };
        let lost: Vec<usize> = self.occupying.iter().copied().filter(away).collect();
        self.dirty.extend(lost);
    }

    /// Returns the flags that apply to a job.
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

    fn agent_of(&self, task: &LiveTask) -> Option<&AgentState> {
        self.agents.get(&task.agent_id)
    }

    /// Whether the agent of a task is unknown or was forgotten.
    pub(super) fn is_forgotten(&self, task: &LiveTask) -> bool {
        self.agent_of(task).is_none_or(|agent| agent.known.forgotten_at.is_some())
    }

    /// Whether the agent of a task is silent or gone.
    pub(super) fn is_away(&self, task: &LiveTask) -> bool {
        self.agent_of(task).is_none_or(|agent| agent.away)
    }

    /// Whether the agent was silent for so long that the supervisor has ended the job's command.
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

    /// Records that the outputs of a job are only on one agent's disk. Its dependents must run there, and so should
    /// the other jobs that they need.
    pub(super) fn record_local_outputs(&mut self, index: usize, agent_id: Uuid) {
        let known = self.agents.get(&agent_id).filter(|state| state.known.forgotten_at.is_none());
        let agent = known.map(|state| OutputHolder { agent_id, name: state.known.agent.name.clone() });
        let held = LocalOutputs { job: self.jobs[index].live.name.clone(), agent };
        for dependent in self.jobs[index].dependents.clone() {
            self.jobs[dependent].local_outputs.push(held.clone());
            for beside in self.jobs[dependent].needed.clone() {
                if self.ready_queue.contains(beside) {
                    self.ready_queue.remove(beside);
                    self.dirty.insert(beside);
                }
            }
        }
    }

    /// Updates slots, the run and the dependents after a change of a job. Returns the dependents to assess.
    pub(super) fn follow_up(&mut self, index: usize, was_over: bool) -> Vec<usize> {
        let job = &self.jobs[index];
        if job.occupies_slot() {
            self.occupying.insert(index);
        } else {
            self.occupying.remove(&index);
        }
        if job.state() != JobState::Pending {
            self.ready_queue.remove(index);
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
                dependent.failed_need.get_or_insert_with(|| name.clone());
            }
        }
        dependents
    }
}
