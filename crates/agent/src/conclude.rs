//! What came of a task: made presentable in one place, and kept in memory where the disk does not take it.

use crate::carry::{Next, Task};
use crate::disk::{self, with_disk};
use crate::executor::{Executor, Fault};
use crate::order::Asked;
use crate::place::Manifest;
use crate::secrets;
use tidemill_core::task::{Output, TaskResult};
use tidemill_supervisor::Mask;
use tracing::{info, warn};

impl<E: Executor> Task<'_, E> {
    /// The secrets that the command asks for.
    pub(crate) fn secrets(&self, names: &[String]) -> Result<Vec<(String, String)>, String> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // Read each time: whoever changes them need not start the agent again.
        let path = self.agent.settings.secrets.as_ref();
        let known = path.map(|path| secrets::read(path)).transpose()?.unwrap_or_default();
        let one = |name: &String| {
            let value = known.get(name).ok_or_else(|| format!("this agent has no secret `{name}`"))?;
            Ok((name.clone(), value.clone()))
        };
        names.iter().map(one).collect()
    }

    /// Hides the secrets of the command: those that it was given, and those that it would be given now.
    pub(crate) fn mask(&self) -> Result<Mask, String> {
        let Asked::Run(work) = &self.order.asked else { return Ok(Mask::default()) };
        let now = match self.secrets(&work.secrets) {
            // What this process gave to the command is enough.
            Err(_) if !self.given.is_empty() => Vec::new(),
            now => now?,
        };
        Ok(Mask::new(self.given.iter().chain(&now).map(|(_, value)| value.as_str())))
    }

    /// Concludes that the task could not be carried out.
    pub(crate) fn fail(&mut self, fault: Fault) -> Next {
        self.conclude(disk::failed(fault), Vec::new())
    }

    /// Notes what came of the task: from here on it is only handed in.
    ///
    /// Where the disk does not take it, it is handed in from memory. A process that dies before that finds out again
    /// what came of the task.
    pub(crate) fn conclude(&mut self, result: TaskResult, outputs: Vec<Output>) -> Next {
        let task_id = self.place.task_id().to_owned();
        let full = disk::full(&self.agent.home.tasks_dir());
        let result = masked(with_disk(result, full.as_deref()), &self.mask().unwrap_or_default());
        info!(task.id = %task_id, "task {task_id} came to: {result:?}");
        if full.is_some() {
            self.free();
        }
        let unknown = self.order.unknown.clone();
        let manifest = Manifest { task_id: task_id.clone(), result, outputs, unknown };
        if let Err(error) = self.place.write_manifest(&manifest) {
            warn!(task.id = %task_id, "the result of task {task_id} is in memory alone: {error}");
            self.free();
        }
        self.manifest = Some(manifest);
        self.agent.note_concluded(&task_id);
        Next::Again
    }

    /// Frees the space that the command used, and asks for what others left and nobody needs.
    fn free(&self) {
        let id = self.place.task_id();
        if let Err(error) = self.place.free() {
            warn!(task.id = %id, "the files of task {id} could not be removed: {error}");
        }
        self.agent.space_wanted.notify_one();
    }
}

/// A result without secrets.
fn masked(result: TaskResult, mask: &Mask) -> TaskResult {
    let all = |texts: Vec<String>| texts.iter().map(|text| mask.hide(text)).collect();
    match result {
        TaskResult::Ended { exit_code, unmatched, hint, message } => TaskResult::Ended {
            exit_code,
            unmatched: all(unmatched),
            hint: all(hint),
            message: message.map(|message| mask.hide(&message)),
        },
        TaskResult::Failed { fatal, elsewhere, message } => {
            TaskResult::Failed { fatal, elsewhere, message: mask.hide(&message) }
        }
        TaskResult::Stopped => TaskResult::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_masked_everywhere() {
        let mask = Mask::new(["hunter2"]);
        let text = || "a hunter2 b".to_owned();
        let ended = TaskResult::Ended {
            exit_code: 1,
            unmatched: vec![text()],
            hint: vec![text()],
            message: Some(text()),
        };
        let failed = TaskResult::Failed { fatal: true, elsewhere: false, message: text() };
        for result in [ended, failed] {
            let shown = format!("{:?}", masked(result, &mask));
            assert!(!shown.contains("hunter2") && shown.contains("a ••• b"), "{shown}");
        }
    }
}
