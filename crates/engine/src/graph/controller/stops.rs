//! Orders to stop: given once, given again where an agent cannot, and given up where it never can.

use super::super::clean;
use super::decide::{Decision, MESSAGE_BYTES_MAX, become_code, is_untouched};
use super::memory::Memory;
use super::write::Note;
use tidemill_core::graph::record::TaskEnd;
use tidemill_core::job::StatusCode;
use tidemill_core::task::{STOPS_MAX, TaskKind, TaskResult, cancel_id, next_cancel_id};
use tidemill_store::{EndTask, LiveTask, NewTask};

/// Whether an agent has answered that it could not stop a task.
pub(super) fn is_refused(order: &LiveTask) -> bool {
    matches!(order.result, Some(TaskResult::Failed { .. }))
}

impl Decision {
    /// Stops the task of a job, which gets another code.
    pub(super) fn stop(&mut self, memory: &mut Memory, index: usize, code: StatusCode) {
        self.stop_task(memory, index);
        let job = &mut memory.jobs[index];
        job.live.message = None;
        become_code(job, code, self.now);
    }

    /// Stops the task of a job. Its room stays taken until its agent confirms, unless there is nothing to confirm.
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

    /// Tells an agent once more to stop a task, which it could not. Where it was told so often enough it is not asked
    /// any more, and people hear of it; what it holds is over for the server, which every sign of life tells it.
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
            Some(TaskResult::Ended { .. } | TaskResult::Stopped) | None => "it does not say why".to_owned(),
        };
        let agent = memory.name_of(order.agent_id);
        let told = format!(
            "agent {agent} was told {STOPS_MAX} times to stop its last task, and could not, so that something of it \
             may still run there: {why}"
        );
        let job = &mut memory.jobs[index];
        job.live.stopping = false;
        if job.is_over() {
            // What has ended stays as it ended.
            let text = clean(&format!("job {}: {told}", job.live.name), MESSAGE_BYTES_MAX);
            self.draft.notes.push(Note { run_id: job.live.run_id.clone(), text });
        } else {
            // Another task beside it would do the work twice.
            job.live.message = Some(clean(&told, MESSAGE_BYTES_MAX));
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
