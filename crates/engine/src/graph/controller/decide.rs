//! What is to be done, from what is remembered. What is decided is remembered at once: a step that fails makes the
//! controller forget all of it.

use super::super::clean;
use super::memory::{Job, Memory, Rooms};
use super::stops::is_refused;
use super::write::{Draft, Failure};
use std::collections::{BTreeSet, VecDeque};
use tidemill_core::Timestamp;
use tidemill_core::graph::place::Place;
use tidemill_core::graph::plan::{self, Report, Room, Step, plan};
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::graph::share;
use tidemill_core::job::{JobState, StatusCode};
use tidemill_core::run::RunState;
use tidemill_core::task::{TaskKind, TaskResult, task_id};
use tidemill_store::{EndTask, JobWrite, LiveTask, NewTask};
use uuid::Uuid;

/// Bytes of what is said about a job.
pub(super) const MESSAGE_BYTES_MAX: usize = 2_000;

/// Decides about every job that has to be looked at, until `batch` jobs are to be written.
pub(super) fn decide(memory: &mut Memory, now: Timestamp, batch: usize) -> Draft {
    let mut decision = Decision { draft: Draft::new(now, memory.flags.clone()), moved: BTreeSet::new(), now };
    let mut queue: VecDeque<usize> = std::mem::take(&mut memory.dirty).into_iter().collect();
    let mut waiting = Vec::new();
    while let Some(index) = queue.pop_front() {
        if decision.draft.jobs.len() >= batch || decision.moved.contains(&index) {
            memory.dirty.insert(index);
            continue;
        }
        match look(memory, index, now) {
            Look::Nothing => memory.line.remove(index),
            Look::Ready => {
                if !memory.line.contains(index) {
                    waiting.push(index);
                    memory.line.add(memory.ready(index));
                }
            }
            Look::Later(at) => {
                memory.line.remove(index);
                memory.timers.insert((at, index));
            }
            Look::Do(step) => {
                memory.line.remove(index);
                queue.extend(decision.carry_out(memory, index, step));
            }
        }
    }
    // Room is given when everything is known: otherwise a job could begin that a flag holds.
    if decision.draft.jobs.len() < batch {
        decision.give_room(memory, waiting, batch);
    } else {
        put_off(memory, waiting);
    }
    decision.draft
}

/// What a look at a job says.
enum Look {
    /// It is where it belongs.
    Nothing,
    /// It could begin, where there is room.
    Ready,
    /// It is to be looked at again then.
    Later(Timestamp),
    /// Something is to be done.
    Do(Move),
}

/// What is to be done with a job.
enum Move {
    /// What the plan says.
    Step(Step),
    /// Its agent had not begun its task, and is away: another one gets it.
    Withdraw,
    /// Nothing of its last task runs any more.
    Confirm,
    /// Its agent could not stop its last task: it is told again, or not any more.
    StopAgain,
    /// A task of it goes on, though it does not run: a plain statement moved it.
    Recall,
}

fn look(memory: &Memory, index: usize, now: Timestamp) -> Look {
    let job = &memory.jobs[index];
    if job.live.stopping && memory.is_stopped(job, now) {
        return Look::Do(Move::Confirm);
    }
    if job.live.stopping && job.stop.as_ref().is_some_and(is_refused) {
        return Look::Do(Move::StopAgain);
    }
    if job.task.is_some() && job.state() != JobState::Running && !job.live.stopping {
        return Look::Do(Move::Recall);
    }
    if job.is_over() {
        return Look::Nothing;
    }
    let report = job.task.as_ref().map(|task| Report {
        stage: task.stage,
        result: task.result.clone(),
        lost: memory.is_forgotten(task) || memory.is_lost(job, task, now),
        others: memory.others(index, task),
    });
    let flags = memory.flags_of(job);
    match plan(&planned(job), job.needs(), flags, Room::Free, report.as_ref(), now) {
        Step::Start => Look::Ready,
        Step::Keep => keep(memory, job, now),
        step @ (Step::Become(_) | Step::Stop(_) | Step::End(..) | Step::Again { .. }) => {
            Look::Do(Move::Step(step))
        }
    }
}

fn keep(memory: &Memory, job: &Job, now: Timestamp) -> Look {
    if let Some(task) = &job.task
        && job.state() == JobState::Running
        && is_untouched(task)
        && memory.is_away(task)
    {
        return Look::Do(Move::Withdraw);
    }
    match job.live.not_before {
        Some(at) if job.state() == JobState::Pending && at > now => Look::Later(at),
        Some(_) | None => Look::Nothing,
    }
}

/// How the task of a job ended, of which the plan wants nothing more.
fn end_of(memory: &Memory, index: usize) -> TaskEnd {
    match &memory.jobs[index].task {
        Some(task) if task.result.is_some() => TaskEnd::Taken,
        Some(task) if memory.is_forgotten(task) => TaskEnd::Forgotten,
        // Its supervisor has ended its command long ago: there is nothing to stop.
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

/// What was decided so far.
pub(super) struct Decision {
    pub(super) draft: Draft,
    moved: BTreeSet<usize>,
    pub(super) now: Timestamp,
}

impl Decision {
    /// Carries out what is to be done with a job, in memory and in the draft; the jobs to look at because of it.
    fn carry_out(&mut self, memory: &mut Memory, index: usize, step: Move) -> Vec<usize> {
        let (from, was_over) = (memory.jobs[index].live.code, memory.jobs[index].is_over());
        // Where it goes back to the start, there is more to say about it, once this is written: when it may begin.
        let again = !matches!(step, Move::Step(Step::Become(code)) if code != StatusCode::WaitingOnNewTask);
        match step {
            Move::Confirm => {
                let job = &mut memory.jobs[index];
                job.live.stopping = false;
                if let Some(order) = job.stop.take() {
                    self.draft.ends.push(EndTask { task_id: order.task_id, end: TaskEnd::Stopped });
                }
            }
            Move::Withdraw => {
                let job = &mut memory.jobs[index];
                job.live.message = Some("its agent went away before it began".to_owned());
                self.end_task(job, TaskEnd::Withdrawn);
                become_code(job, StatusCode::WaitingOnNewTask, self.now);
            }
            Move::StopAgain => self.stop_again(memory, index),
            Move::Recall => self.stop_task(memory, index),
            Move::Step(step) => self.carry_out_step(memory, index, step),
        }
        let more = self.write(memory, index, from, was_over);
        if again && !memory.jobs[index].is_over() {
            memory.dirty.insert(index);
        }
        more
    }

    fn carry_out_step(&mut self, memory: &mut Memory, index: usize, step: Step) {
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
                let message = match (code, &job.broken, job.place()) {
                    (StatusCode::DependencyFailed, Some(name), _) => {
                        Some(format!("job {name} did not succeed"))
                    }
                    (StatusCode::JobError, _, Place::Nowhere(why)) if message.is_none() => Some(why),
                    (StatusCode::JobError, _, _) => message.map(|message| memory.given_up(index, message)),
                    _ => message,
                };
                let kept_on = job.task.as_ref().filter(|task| task.keeps).map(|task| task.agent_id);
                if let Some(agent) = kept_on.filter(|_| code == StatusCode::Succeeded) {
                    memory.keep_on(index, agent);
                }
                let end = end_of(memory, index);
                let job = &mut memory.jobs[index];
                job.live.message = message.map(|message| clean(&message, MESSAGE_BYTES_MAX));
                note_exit(job);
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
                    memory.note_failed(index, agent);
                }
                let forgotten = end == TaskEnd::Forgotten;
                let message = if forgotten { "its agent does not come back".to_owned() } else { message };
                let job = &mut memory.jobs[index];
                note_exit(job);
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

    /// Gives room to those who wait, and says of those who came now and got none what they wait for.
    fn give_room(&mut self, memory: &mut Memory, waiting: Vec<usize>, batch: usize) {
        if memory.line.is_empty() {
            return;
        }
        let Rooms { ids, mut agents, mut pools, running } = memory.free_rooms();
        let max = batch.saturating_sub(self.draft.jobs.len());
        let given = memory.line.give(&running, &mut agents, &mut pools, max);
        for share::Given { index, agent } in given {
            self.start(memory, index, ids[agent]);
        }
        for index in waiting {
            if self.moved.contains(&index) || !memory.line.contains(index) {
                continue;
            }
            if self.draft.jobs.len() >= batch {
                put_off(memory, vec![index]);
                continue;
            }
            let job = &memory.jobs[index];
            let room = match share::room(&memory.shape(index), &agents, &pools) {
                // There is room, and this step is full: the next one gives it.
                Room::Free => Room::NoWorker,
                room @ (Room::NoWorker | Room::PoolFull | Room::Never) => room,
            };
            let step = plan(&planned(job), job.needs(), memory.flags_of(job), room, None, self.now);
            if matches!(step, Step::Become(_) | Step::End(..)) {
                let more = self.carry_out(memory, index, Move::Step(step));
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

    /// Notes a job as it is now, and what follows from it.
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
        let more = memory.settle(index, was_over);
        if ends && memory.runs.get(&run).is_some_and(|known| known.open == 0) {
            memory.runs.remove(&run);
            self.draft.run_ends.push(run);
        }
        more
    }
}

/// Leaves jobs for the next step.
fn put_off(memory: &mut Memory, waiting: Vec<usize>) {
    for index in waiting {
        memory.line.remove(index);
        memory.dirty.insert(index);
    }
}

/// Notes what the command of a job ended with.
fn note_exit(job: &mut Job) {
    let result = job.task.as_ref().and_then(|task| task.result.as_ref());
    if let Some(TaskResult::Ended { exit_code, .. }) = result {
        job.live.exit_code = Some(*exit_code);
    }
}

/// Brings a job to a code, with the times that belong to it.
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
