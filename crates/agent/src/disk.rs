//! Checks whether the disk of the agent is full, and the resulting messages.

use crate::executor::TaskError;
use rustix::fs::statvfs;
use std::path::Path;
use tidemill_core::limits::AGENT_DISK_FREE_BYTES_MIN;
use tidemill_core::task::TaskResult;

/// Returns a message if the disk of a directory is full.
pub(crate) fn full_message(dir: &Path) -> Option<String> {
    let found = statvfs(dir).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let total = found.f_blocks.saturating_mul(found.f_frsize);
    // Some file systems have no limit on the number of files, and report 0.
    let has_files = found.f_files == 0 || found.f_favail > 0;
    let usage = if free < AGENT_DISK_FREE_BYTES_MIN {
        format!("{free} of {total} bytes are free")
    } else if !has_files {
        format!("none of {} inodes is free", found.f_files)
    } else {
        return None;
    };
    let dir = dir.display();
    Some(format!("the disk of the agent is full: {usage} in {dir}; free space there, or use another --dir"))
}

/// Adds the full-disk message to a failure and makes it retryable, because the command is not at fault.
pub(crate) fn explain_full_disk(result: TaskResult, full: Option<&str>) -> TaskResult {
    let Some(full) = full else { return result };
    match result {
        TaskResult::Ended { exit_code, message: None, .. } if exit_code != 0 => {
            failed(TaskError::transient(format!("the command ended with exit code {exit_code}, and {full}")))
        }
        TaskResult::Failed { fatal: false, message, .. } => {
            failed(TaskError::transient(format!("{message}; {full}")))
        }
        TaskResult::Ended { .. } | TaskResult::Failed { .. } | TaskResult::Stopped => result,
    }
}

/// Converts an error to the result of a task.
pub(crate) fn failed(error: TaskError) -> TaskResult {
    let TaskError { fatal, elsewhere, message } = error;
    TaskResult::Failed { fatal, elsewhere, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: i32, message: Option<&str>) -> TaskResult {
        let message = message.map(str::to_owned);
        TaskResult::Ended { exit_code, unmatched: Vec::new(), hint: Vec::new(), message }
    }

    #[test]
    fn full_disk_makes_failures_retryable() {
        let full = Some("the disk is full");
        let cases = [
            (ended(0, None), ended(0, None)),
            (
                ended(1, None),
                failed(TaskError::transient("the command ended with exit code 1, and the disk is full")),
            ),
            (ended(143, Some("out of time")), ended(143, Some("out of time"))),
            (failed(TaskError::transient("no")), failed(TaskError::transient("no; the disk is full"))),
            (failed(TaskError::fatal("no")), failed(TaskError::fatal("no"))),
            (TaskResult::Stopped, TaskResult::Stopped),
        ];
        for (result, expected) in cases {
            assert_eq!(explain_full_disk(result.clone(), full), expected);
            assert_eq!(explain_full_disk(result.clone(), None), result);
        }
    }

    #[test]
    fn disk_with_space_is_not_full() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(full_message(dir.path()), None);
        assert_eq!(full_message(&dir.path().join("missing")), None);
    }
}
