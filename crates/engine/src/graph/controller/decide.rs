//! Decides about jobs from the state in memory. Decisions change that state at once; if the write fails, the controller
//! discards it.

use super::super::clean;
use super::free_slots::FreeSlots;
use super::job::Job;
use super::memory::Memory;
use super::stop_orders::is_refused;
use super::write::{Draft, Failure};
use std::collections::{BTreeSet, VecDeque};
use tidemill_core::Timestamp;
use tidemill_core::graph::assignment;
use tidemill_core::graph::placement::Placement;
use tidemill_core::graph::plan::{self, Capacity, Report, Step, plan};
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::run::RunState;
use tidemill_core::task::{TaskKind, TaskResult, task_id};
use tidemill_store::{EndTask, JobWrite, LiveTask, NewTask};
use uuid::Uuid;

/// Longest message about a job in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 2_000;

/// Decides about all dirty jobs, until `batch` jobs have changed.
pub(super) fn decide(memory: &mut Memory, now: Timestamp, batch: usize) -> Draft {
    let mut decision = Decision { draft: Draft::new(now, memory.flags.clone()), moved: BTreeSet::new(), now };
    let mut queue: VecDeque<usize> = std::mem::take(&mut memory.dirty).into_iter().collect();
    let mut waiting = Vec::new();
    while let Some(index) = queue.pop_front() {
        if decision.draft.jobs.len() >= batch || decision.moved.contains(&index) {
            memory.dirty.insert(index);
            continue;
        }
        match assess(memory, index, now) {
            Assessment::Nothing => memory.ready_queue.remove(index),
            Assessment::Ready => {
                if !memory.ready_queue.contains(index) {
                    waiting.push(index);
                    memory.ready_queue.add(memory.ready(index));
                }
            }
            Assessment::Later(at) => {
                memory.ready_queue.remove(index);
                memory.timers.insert((at, index));
            }
            Assessment::Act(step) => {
                memory.ready_queue.remove(index);
                queue.extend(decision.apply(memory, index, step));
            }
        }
    }
    // Slots are assigned last, when all flags and changes are known: otherwise a held job could start.
    if decision.draft.jobs.len() < batch {
        decision.assign_slots(memory, waiting, batch);
    } else {
        postpone(memory, waiting);
    }
    decision.draft
}

/// Assessment of a job.
enum Assessment {
    /// No action is needed.
    Nothing,
    /// It can start when a slot is free.
    Ready,
    /// It has to be assessed again at this time.
    Later(Timestamp),
    Act(Action),
}

/// An action on a job.
enum Action {
    /// A step of the plan.
    Step(Step),
    /// Withdraws a task that its agent has not started, because the agent is away; another agent gets the job.
    Withdraw,
    /// Confirms that nothing of its last task runs any more.
    Confirm,
    /// Repeats the order to stop its last task, or gives up.
    StopAgain,
    /// Stops a task of a job that does not run: a manual SQL statement changed the job's state.
    Recall,
}

fn assess(memory: &Memory, index: usize, now: Timestamp) -> Assessment {
    let job = &memory.jobs[index];
    if job.live.stopping && memory.is_stopped(job, now) {
        return Assessment::Act(Action::Confirm);
    }
    if job.live.stopping && job.stop.as_ref().is_some_and(is_refused) {
        return Assessment::Act(Action::StopAgain);
    }
    if job.task.is_some() && job.state() != JobState::Running && !job.live.stopping {
        return Assessment::Act(Action::Recall);
    }
    if job.is_over() {
        return Assessment::Nothing;
    }
    let report = job.task.as_ref().map(|task| Report {
        stage: task.stage,
        result: task.result.clone(),
        lost: memory.is_forgotten(task) || memory.is_lost(job, task, now),
        others: memory.other_agents(index, task),
    });
    let flags = memory.flags_of(job);
    match plan(&planned(job), job.needs(), flags, Capacity::Free, report.as_ref(), now) {
        Step::Start => Assessment::Ready,
        Step::Keep => assess_unchanged(memory, job, now),
        step @ (Step::Become(_) | Step::Stop(_) | Step::End(..) | Step::Again { .. }) => {
            Assessment::Act(Action::Step(step))
        }
    }
}

fn assess_unchanged(memory: &Memory, job: &Job, now: Timestamp) -> Assessment {
    if let Some(task) = &job.task
        && job.state() == JobState::Running
        && is_untouched(task)
        && memory.is_away(task)
    {
        return Assessment::Act(Action::Withdraw);
    }
    match job.live.not_before {
        Some(at) if job.state() == JobState::Pending && at > now => Assessment::Later(at),
        Some(_) | None => Assessment::Nothing,
    }
}

/// Returns how the task of a job ended, once the plan is done with it.
fn end_of(memory: &Memory, index: usize) -> TaskEnd {
    match &memory.jobs[index].task {
        Some(task) if task.result.is_some() => TaskEnd::Taken,
        Some(task) if memory.is_forgotten(task) => TaskEnd::Forgotten,
        // The supervisor has ended the command long ago, so there is nothing to stop.
        Some(_) => TaskEnd::Lost,
        None => TaskEnd::Taken,
    }
}

pub(super) fn is_untouched(task: &LiveTask) -> bool {
    task.stage.is_none() && task.result.is_none()
}

fn planned(job: &Job) -> plan::Job {
    plan::Job {
        code: job.live.code,
        cancelled: job.live.cancelled,
        uses_database: job.uses_database(),
        errors: job.live.errors,
        failures: job.live.failures,
        retries: job.live.retries,
        not_before: job.live.not_before,
        stopping: job.live.stopping,
    }
}

/// Decisions of the current pass, collected in a draft.
pub(super) struct Decision {
    pub(super) draft: Draft,
    moved: BTreeSet<usize>,
    pub(super) now: Timestamp,
}

impl Decision {
    /// Applies an action to the state and the draft. Returns the jobs that have to be assessed because of it.
    fn apply(&mut self, memory: &mut Memory, index: usize, step: Action) -> Vec<usize> {
        let (from, was_over) = (memory.jobs[index].live.code, memory.jobs[index].is_over());
        // A job that goes back to the start has to be assessed again after this write, to determine when it may start.
        let again = !matches!(step, Action::Step(Step::Become(code)) if code != StatusCode::WaitingOnNewTask);
        match step {
            Action::Confirm => {
                let job = &mut memory.jobs[index];
                job.live.stopping = false;
                if let Some(order) = job.stop.take() {
                    self.draft.ends.push(EndTask { task_id: order.task_id, end: TaskEnd::Stopped });
                }
            }
            Action::Withdraw => {
                let job = &mut memory.jobs[index];
                job.live.message = Some("its agent went away before it began".to_owned());
                self.end_task(job, TaskEnd::Withdrawn);
                become_code(job, StatusCode::WaitingOnNewTask, self.now);
            }
            Action::StopAgain => self.stop_again(memory, index),
            Action::Recall => self.stop_task(memory, index),
            Action::Step(step) => self.apply_step(memory, index, step),
        }
        let more = self.write(memory, index, from, was_over);
        if again && !memory.jobs[index].is_over() {
            memory.dirty.insert(index);
        }
        more
    }

    fn apply_step(&mut self, memory: &mut Memory, index: usize, step: Step) {
        let now = self.now;
        match step {
            Step::Keep | Step::Start => {}
            Step::Become(code) => {
                let job = &mut memory.jobs[index];
                job.live.message = None;
                become_code(job, code, now);
            }
            Step::Stop(code) => self.stop(memory, index, code),
            Step::End(code, message) => {
                let job = &memory.jobs[index];
                let message = match (code, &job.failed_need, job.placement()) {
                    (StatusCode::DependencyFailed, Some(name), _) => {
                        Some(format!("job {name} did not succeed"))
                    }
                    (StatusCode::JobError, _, Placement::Nowhere(why)) if message.is_none() => Some(why),
                    (StatusCode::JobError, _, _) => message.map(|message| memory.given_up(index, message)),
                    _ => message,
                };
                let kept_on = job.task.as_ref().filter(|task| task.keeps).map(|task| task.agent_id);
                if let Some(agent) = kept_on.filter(|_| code == StatusCode::Succeeded) {
                    memory.record_local_outputs(index, agent);
                }
                let end = end_of(memory, index);
                let job = &mut memory.jobs[index];
                job.live.message = message.map(|message| clean(&message, MESSAGE_BYTES_MAX));
                record_exit(job);
                self.end_task(job, end);
                become_code(job, code, now);
            }
            Step::Again { not_before, message, failure, stop: _ } => {
                let end = end_of(memory, index);
                let answered = memory.jobs[index]
                    .task
                    .as_ref()
                    .filter(|task| task.result.is_some())
                    .map(|task| task.agent_id);
                if let Some(agent) = answered.filter(|_| !failure) {
                    memory.record_failed_agent(index, agent);
                }
                let forgotten = end == TaskEnd::Forgotten;
                let message = if forgotten { "its agent does not come back".to_owned() } else { message };
                let job = &mut memory.jobs[index];
                record_exit(job);
                self.end_task(job, end);
                job.live.not_before = Some(not_before);
                job.live.message = Some(clean(&message, MESSAGE_BYTES_MAX));
                *(if failure { &mut job.live.failures } else { &mut job.live.errors }) += 1;
                become_code(job, StatusCode::WaitingOnNewTask, now);
            }
        }
    }

    fn end_task(&mut self, job: &mut Job, end: TaskEnd) {
        if let Some(task) = job.task.take() {
            self.draft.ends.push(EndTask { task_id: task.task_id, end });
        }
    }

    /// Assigns free slots to ready jobs, and records what the newly ready jobs wait for if they get none.
    fn assign_slots(&mut self, memory: &mut Memory, waiting: Vec<usize>, batch: usize) {
        if memory.ready_queue.is_empty() {
            return;
        }
        let FreeSlots { ids, mut agents, mut pools, running } = memory.free_slots();
        let max = batch.saturating_sub(self.draft.jobs.len());
        let given = memory.ready_queue.assign(&running, &mut agents, &mut pools, max);
        for assignment::Assignment { index, agent } in given {
            self.start(memory, index, ids[agent]);
        }
        for index in waiting {
            if self.moved.contains(&index) || !memory.ready_queue.contains(index) {
                continue;
            }
            if self.draft.jobs.len() >= batch {
                postpone(memory, vec![index]);
                continue;
            }
            let job = &memory.jobs[index];
            let room = match assignment::check_capacity(&memory.requirements(index), &agents, &pools) {
                // A slot is free, but this batch is full: the next pass assigns it.
                Capacity::Free => Capacity::NoWorker,
                room @ (Capacity::NoWorker | Capacity::PoolFull | Capacity::Never) => room,
            };
            let step = plan(&planned(job), job.needs(), memory.flags_of(job), room, None, self.now);
            if matches!(step, Step::Become(_) | Step::End(..)) {
                let more = self.apply(memory, index, Action::Step(step));
                memory.dirty.extend(more);
            }
        }
    }

    fn start(&mut self, memory: &mut Memory, index: usize, agent_id: Uuid) {
        let now = self.now;
        let job = &mut memory.jobs[index];
        let from = job.live.code;
        job.live.task_number += 1;
        let id = task_id(&job.live.job_id, job.live.task_number);
        let order = NewTask {
            task_id: id.clone(),
            job_id: job.live.job_id.clone(),
            run_id: job.live.run_id.clone(),
            kind: TaskKind::RunJob,
            number: job.live.task_number,
            agent_id,
            cancels: None,
        };
        job.task = Some(LiveTask {
            task_id: id.clone(),
            job_id: order.job_id.clone(),
            kind: TaskKind::RunJob,
            agent_id,
            stage: None,
            result: None,
            keeps: false,
            cancelled_begun: false,
            cancelled_over: false,
        });
        self.draft.tasks.push(order);
        job.live.task_id = Some(id);
        job.live.agent_id = Some(agent_id);
        job.live.message = None;
        job.live.not_before = None;
        become_code(job, StatusCode::Initiated, now);
        let run = job.live.run_id.clone();
        if let Some(known) = memory.runs.get_mut(&run)
            && known.status == RunState::Queued
        {
            known.status = RunState::Running;
            self.draft.starts.push(run);
        }
        self.draft.begins = true;
        let more = self.write(memory, index, from, false);
        memory.dirty.extend(more);
    }

    /// Adds the current state of a job to the draft and updates its run and dependents.
    fn write(&mut self, memory: &mut Memory, index: usize, from: StatusCode, was_over: bool) -> Vec<usize> {
        let live = &memory.jobs[index].live;
        self.moved.insert(index);
        self.draft.jobs.push(JobWrite {
            job_id: live.job_id.clone(),
            from,
            code: live.code,
            message: live.message.clone(),
            errors: live.errors,
            failures: live.failures,
            not_before: live.not_before,
            task_number: live.task_number,
            task_id: live.task_id.clone(),
            agent_id: live.agent_id,
            exit_code: live.exit_code,
            stopping: live.stopping,
            started_at: live.started_at,
            ended_at: live.ended_at,
        });
        let run = live.run_id.clone();
        let is_failure = matches!(
            live.code,
            StatusCode::NonzeroExit | StatusCode::UnmatchedPatterns | StatusCode::JobError
        );
        if is_failure && !was_over {
            self.draft.failures.push(Failure {
                run_id: run.clone(),
                job_id: live.job_id.clone(),
                name: live.name.clone(),
                code: live.code,
                message: live.message.clone(),
                task_id: live.task_id.clone(),
            });
        }
        let ends = memory.jobs[index].is_over() && !was_over;
        let more = memory.follow_up(index, was_over);
        if ends && memory.runs.get(&run).is_some_and(|known| known.open == 0) {
            memory.runs.remove(&run);
            self.draft.run_ends.push(run);
        }
        more
    }
}

/// Postpones jobs to the next pass.
fn postpone(memory: &mut Memory, waiting: Vec<usize>) {
    for index in waiting {
        memory.ready_queue.remove(index);
        memory.dirty.insert(index);
    }
}

/// Records the exit code of a job's command.
fn record_exit(job: &mut Job) {
    let result = job.task.as_ref().and_then(|task| task.result.as_ref());
    if let Some(TaskResult::Ended { exit_code, .. }) = result {
        job.live.exit_code = Some(*exit_code);
    }
}

/// Sets the code of a job and the times that belong to it.
pub(super) fn become_code(job: &mut Job, code: StatusCode, now: Timestamp) {
    job.live.code = code;
    match code.state() {
        JobState::Pending if code.is_reset() => job.live.started_at = None,
        JobState::Pending => {}
        JobState::Running => {
            job.live.started_at.get_or_insert(now);
        }
        JobState::Succeeded | JobState::Failed => job.live.ended_at = Some(now),
    }
}
