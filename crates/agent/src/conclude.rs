//! Concluding a task: masks its result and stores it on disk, or in memory if the disk is full.

use crate::disk::{self, explain_full_disk};
use crate::executor::{Executor, TaskError};
use crate::order::Request;
use crate::secrets;
use crate::task::{NextStep, Task};
use crate::task_dir::Manifest;
use tidemill_core::task::{Output, TaskResult};
use tidemill_supervisor::Mask;
use tracing::{info, warn};

impl<E: Executor> Task<'_, E> {
    /// Returns the secrets with the given names.
    pub(crate) fn secrets(&self, names: &[String]) -> Result<Vec<(String, String)>, String> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // Read each time, so that a change of the file needs no restart of the agent.
        let path = self.agent.settings.secrets.as_ref();
        let known = path.map(|path| secrets::read(path)).transpose()?.unwrap_or_default();
        let one = |name: &String| {
            let value = known.get(name).ok_or_else(|| {
                format!("this agent has no secret `{name}`; add it to the file of --secrets")
            })?;
            Ok((name.clone(), value.clone()))
        };
        names.iter().map(one).collect()
    }

    /// Returns a mask for the secrets that the command received and for their current values.
    pub(crate) fn mask(&self) -> Result<Mask, String> {
        let Request::Run(work) = &self.order.request else { return Ok(Mask::default()) };
        let now = match self.secrets(&work.secrets) {
            // The secrets that this process passed to the command are sufficient.
            Err(_) if !self.used_secrets.is_empty() => Vec::new(),
            now => now?,
        };
        Ok(Mask::new(self.used_secrets.iter().chain(&now).map(|(_, value)| value.as_str())))
    }

    /// Concludes the task as failed.
    pub(crate) fn fail(&mut self, fault: TaskError) -> NextStep {
        self.conclude(disk::failed(fault), Vec::new())
    }

    /// Stores the result of the task, which then only has to be submitted.
    ///
    /// If the disk is full, the result is submitted from memory. If the agent dies before that, its next process
    /// determines the result again.
    pub(crate) fn conclude(&mut self, result: TaskResult, outputs: Vec<Output>) -> NextStep {
        let task_id = self.dir.task_id().to_owned();
        let full = disk::full_message(&self.agent.dir.tasks_dir());
        let result = masked(explain_full_disk(result, full.as_deref()), &self.mask().unwrap_or_default());
        info!(task.id = %task_id, "task {task_id} has the result {result:?}");
        if full.is_some() {
            self.free_disk_space();
        }
        let unknown = self.order.unknown.clone();
        let manifest = Manifest { task_id: task_id.clone(), result, outputs, unknown };
        if let Err(error) = self.dir.write_manifest(&manifest) {
            warn!(task.id = %task_id, "the result of task {task_id} is only in memory: {error}");
            self.free_disk_space();
        }
        self.manifest = Some(manifest);
        self.agent.mark_concluded(&task_id);
        NextStep::Again
    }

    /// Frees the disk space that the command used, and requests the removal of unused outputs.
    fn free_disk_space(&self) {
        let id = self.dir.task_id();
        if let Err(error) = self.dir.remove_work() {
            warn!(task.id = %id, "could not remove the files of task {id}: {error}");
        }
        self.agent.space_wanted.notify_one();
    }
}

/// Masks all texts of a result.
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
    fn every_text_of_a_result_is_masked() {
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
