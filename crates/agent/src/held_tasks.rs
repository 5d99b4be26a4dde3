//! The held tasks in memory, because the disk can be full and a task directory can be removed.

use crate::executor::Executor;
use crate::run::Agent;
use crate::task_dir::{LogPosition, StopReason, TaskDir};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_core::task::TaskKind;
use tokio::sync::watch;
use tracing::warn;

/// A task that the agent works on.
struct HeldTask {
    /// Reason to stop the command, if a stop was requested.
    stop: watch::Sender<Option<StopReason>>,
    kind: TaskKind,
    /// Whether its result is known; then none of its processes is alive.
    is_concluded: bool,
    /// Position in the log, if it could not be written to disk.
    log_position: Option<LogPosition>,
}

/// The held tasks by id.
#[derive(Default)]
pub(crate) struct HeldTasks(Mutex<BTreeMap<String, HeldTask>>);

impl HeldTasks {
    /// Adds a task; the returned channel receives a stop request.
    pub(crate) fn insert(
        &self,
        task: &str,
        kind: TaskKind,
        stop: Option<StopReason>,
    ) -> watch::Receiver<Option<StopReason>> {
        let (stop, stopped) = watch::channel(stop);
        let held = HeldTask { stop, kind, is_concluded: false, log_position: None };
        self.tasks().insert(task.to_owned(), held);
        stopped
    }

    pub(crate) fn remove(&self, task: &str) {
        self.tasks().remove(task);
    }

    pub(crate) fn contains(&self, task: &str) -> bool {
        self.tasks().contains_key(task)
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.tasks().keys().cloned().collect()
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<String, HeldTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Executor> Agent<E> {
    /// Requests a stop; returns whether the task is held. The reason `Over` is never replaced.
    pub(crate) fn request_stop(&self, task: &str, stop: StopReason) -> bool {
        let tasks = self.held.tasks();
        let Some(held) = tasks.get(task) else { return false };
        held.stop.send_if_modified(|reason| {
            let is_new = *reason != Some(StopReason::Over) && *reason != Some(stop);
            if is_new {
                *reason = Some(stop);
            }
            is_new
        });
        true
    }

    /// Ids of the held tasks.
    pub(crate) fn held_ids(&self) -> Vec<String> {
        self.held.ids()
    }

    /// Whether a held task is a cancel task; `None` if it is not held.
    pub(crate) fn is_cancel(&self, task: &str) -> Option<bool> {
        self.held.tasks().get(task).map(|held| held.kind == TaskKind::CancelJob)
    }

    /// Whether the result of a held task is known; `None` if it is not held.
    pub(crate) fn is_concluded(&self, task: &str) -> Option<bool> {
        self.held.tasks().get(task).map(|held| held.is_concluded)
    }

    /// Records that the result of a task is known.
    pub(crate) fn mark_concluded(&self, task: &str) {
        if let Some(held) = self.held.tasks().get_mut(task) {
            held.is_concluded = true;
        }
    }

    /// Position in the log up to which the server has it.
    pub(crate) fn log_position(&self, task_dir: &TaskDir) -> io::Result<LogPosition> {
        let in_memory = self.held.tasks().get(task_dir.task_id()).and_then(|held| held.log_position);
        in_memory.map_or_else(|| task_dir.log_position(), Ok)
    }

    /// Stores the log position of a task on disk, or in memory if that fails.
    pub(crate) fn save_log_position(&self, task_dir: &TaskDir, position: LogPosition) {
        let written = task_dir.write_log_position(position);
        if let Some(held) = self.held.tasks().get_mut(task_dir.task_id()) {
            if let (Err(error), None) = (&written, held.log_position) {
                let id = task_dir.task_id();
                warn!(task.id = %id, "the log position of task {id} is only in memory: {error}");
            }
            held.log_position = written.is_err().then_some(position);
        }
    }
}
