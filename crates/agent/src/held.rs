//! The tasks that an agent holds, in memory: the disk can be full, and a task's directory can be gone.

use crate::executor::Executor;
use crate::place::{Place, Shipped, Stop};
use crate::run::Agent;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_core::task::TaskKind;
use tokio::sync::watch;
use tracing::warn;

/// A task that is held.
struct HeldTask {
    /// Why the command is not to run, if it is not.
    stop: watch::Sender<Option<Stop>>,
    /// Whether it is to run a job, or to stop another task.
    kind: TaskKind,
    /// Whether it is known what came of it; nothing of it runs then.
    is_concluded: bool,
    /// How much of the log the server has, where the disk did not take it.
    shipped: Option<Shipped>,
}

/// The tasks that are held, by id.
#[derive(Default)]
pub(crate) struct HeldTasks(Mutex<BTreeMap<String, HeldTask>>);

impl HeldTasks {
    /// Holds a task; the answer tells when somebody wants it to stop.
    pub(crate) fn insert(
        &self,
        task: &str,
        kind: TaskKind,
        stop: Option<Stop>,
    ) -> watch::Receiver<Option<Stop>> {
        let (stop, stopped) = watch::channel(stop);
        let held = HeldTask { stop, kind, is_concluded: false, shipped: None };
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
    /// Wants a task to be stopped; whether it is held.
    pub(crate) fn want_stop(&self, task: &str, stop: Stop) -> bool {
        let tasks = self.held.tasks();
        let Some(held) = tasks.get(task) else { return false };
        held.stop.send_if_modified(|wish| {
            let is_new = *wish != Some(Stop::Over) && *wish != Some(stop);
            if is_new {
                *wish = Some(stop);
            }
            is_new
        });
        true
    }

    /// The tasks that are held.
    pub(crate) fn have(&self) -> Vec<String> {
        self.held.ids()
    }

    /// Whether a task that is held only stops another one; none if it is not held.
    pub(crate) fn is_cancel(&self, task: &str) -> Option<bool> {
        self.held.tasks().get(task).map(|held| held.kind == TaskKind::CancelJob)
    }

    /// Whether it is known what came of a task that is held; none if it is not held.
    pub(crate) fn is_concluded(&self, task: &str) -> Option<bool> {
        self.held.tasks().get(task).map(|held| held.is_concluded)
    }

    /// Notes that it is known what came of a task.
    pub(crate) fn note_concluded(&self, task: &str) {
        if let Some(held) = self.held.tasks().get_mut(task) {
            held.is_concluded = true;
        }
    }

    /// How much of the log of a task the server has.
    pub(crate) fn shipped(&self, place: &Place) -> io::Result<Shipped> {
        let remembered = self.held.tasks().get(place.task_id()).and_then(|held| held.shipped);
        remembered.map_or_else(|| place.shipped(), Ok)
    }

    /// Notes how much of the log of a task the server has, in memory where the disk does not take it.
    pub(crate) fn note_shipped(&self, place: &Place, shipped: Shipped) {
        let written = place.write_shipped(shipped);
        if let Some(held) = self.held.tasks().get_mut(place.task_id()) {
            if let (Err(error), None) = (&written, held.shipped) {
                let id = place.task_id();
                warn!(task.id = %id, "the progress of the log of task {id} is in memory alone: {error}");
            }
            held.shipped = written.is_err().then_some(shipped);
        }
    }
}
