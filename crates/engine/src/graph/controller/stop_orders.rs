//! Orders to stop a task: sent once, repeated if the agent fails to stop it, and given up after `STOPS_MAX` attempts.

use super::super::clean;
use super::decide::{Decision, MESSAGE_BYTES_MAX, become_code, is_untouched};
use super::memory::Memory;
use super::write::RunMessage;
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::StatusCode;
use tidemill_core::task::{STOPS_MAX, TaskKind, TaskResult, cancel_id, next_cancel_id};
use tidemill_store::{EndTask, LiveTask, NewTask};

/// Whether the agent answered that it could not stop the task.
pub(super) fn is_refused(order: &LiveTask) -> bool {
    matches!(order.result, Some(TaskResult::Failed { .. }))
}

impl Decision {
    /// Stops the task of a job and sets the job's code.
    pub(super) fn stop(&mut self, memory: &mut Memory, index: usize, code: StatusCode) {
        self.stop_task(memory, index);
        let job = &mut memory.jobs[index];
        job.live.message = None;
        become_code(job, code, self.now);
    }

    /// Stops the task of a job. The job occupies its slot until the agent confirms, unless there is nothing to confirm.
    pub(super) fn stop_task(&mut self, memory: &mut Memory, index: usize) {
        let now = self.now;
        let nothing_runs = memory.jobs[index].task.as_ref().is_none_or(|task| {
            task.result.is_some()
                || memory.is_forgotten(task)
                || (task.stage.is_none() && memory.is_away(task))
                || memory.is_lost(&memory.jobs[index], task, now)
        });
        let job = &mut memory.jobs[index];
        let Some(task) = job.task.take() else { return };
        let untouched_and_away = nothing_runs && is_untouched(&task);
        let end = if untouched_and_away { TaskEnd::Withdrawn } else { TaskEnd::Stopped };
        self.draft.ends.push(EndTask { task_id: task.task_id.clone(), end });
        if nothing_runs {
            return;
        }
        let order = LiveTask {
            task_id: cancel_id(&task.task_id),
            kind: TaskKind::CancelJob,
            cancelled_begun: task.stage.is_some(),
            cancelled_over: false,
            stage: None,
            result: None,
            ..task.clone()
        };
        job.live.stopping = true;
        self.order_stop(memory, index, order, task.task_id);
    }

    /// Repeats an order to stop a task after the agent failed to. After `STOPS_MAX` attempts it gives up and reports
    /// it; the heartbeat responses still tell the agent that the task has ended for the server.
    pub(super) fn stop_again(&mut self, memory: &mut Memory, index: usize) {
        let job = &mut memory.jobs[index];
        let Some(order) = job.stop.take() else { return };
        self.draft.ends.push(EndTask { task_id: order.task_id.clone(), end: TaskEnd::Taken });
        if let (Some(next), Some(task)) = (next_cancel_id(&order.task_id), job.live.task_id.clone()) {
            let order = LiveTask { task_id: next, result: None, ..order };
            return self.order_stop(memory, index, order, task);
        }
        let why = match order.result {
            Some(TaskResult::Failed { message, .. }) => message,
            Some(TaskResult::Ended { .. } | TaskResult::Stopped) | None => "no reason given".to_owned(),
        };
        let agent = memory.name_of(order.agent_id);
        let text = format!(
            "agent {agent} could not stop its last task in {STOPS_MAX} attempts, so processes of it may still \
run there: {why}"
        );
        let job = &mut memory.jobs[index];
        job.live.stopping = false;
        if job.is_over() {
            // An ended job keeps its result; the message goes to the run.
            let text = clean(&format!("job {}: {text}", job.live.name), MESSAGE_BYTES_MAX);
            self.draft.run_messages.push(RunMessage { run_id: job.live.run_id.clone(), text });
        } else {
            // A new task beside it would do the work twice, so the job fails.
            job.live.message = Some(clean(&text, MESSAGE_BYTES_MAX));
            become_code(job, StatusCode::JobError, self.now);
        }
    }

    fn order_stop(&mut self, memory: &mut Memory, index: usize, order: LiveTask, cancels: String) {
        let job = &mut memory.jobs[index];
        self.draft.tasks.push(NewTask {
            task_id: order.task_id.clone(),
            job_id: order.job_id.clone(),
            run_id: job.live.run_id.clone(),
            kind: TaskKind::CancelJob,
            number: job.live.task_number,
            agent_id: order.agent_id,
            cancels: Some(cancels),
        });
        job.stop = Some(order);
    }
}
