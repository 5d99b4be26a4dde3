//! The disk of an agent: whether it is full, and what is said of that.

use crate::executor::Fault;
use rustix::fs::statvfs;
use std::path::Path;
use tidemill_core::limits::AGENT_DISK_FREE_BYTES_MIN;
use tidemill_core::task::TaskResult;

/// Says that the disk of a directory is full, where it is.
pub(crate) fn full(dir: &Path) -> Option<String> {
    let found = statvfs(dir).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let total = found.f_blocks.saturating_mul(found.f_frsize);
    // Some file systems have no bound of files, and say that there are none.
    let has_files = found.f_files == 0 || found.f_favail > 0;
    let told = if free < AGENT_DISK_FREE_BYTES_MIN {
        format!("{free} of {total} bytes are free")
    } else if !has_files {
        format!("no file of {} is free", found.f_files)
    } else {
        return None;
    };
    let dir = dir.display();
    Some(format!("the disk of the agent is full: {told} in {dir}; free space there, or use another --dir"))
}

/// The result of a task while the disk is, or is not, full. A failure on a full disk is nobody's: another try may
/// succeed.
pub(crate) fn with_disk(result: TaskResult, full: Option<&str>) -> TaskResult {
    let Some(full) = full else { return result };
    match result {
        TaskResult::Ended { exit_code, message: None, .. } if exit_code != 0 => {
            failed(Fault::passing(format!("the command ended with exit code {exit_code}, and {full}")))
        }
        TaskResult::Failed { fatal: false, message, .. } => {
            failed(Fault::passing(format!("{message}; {full}")))
        }
        TaskResult::Ended { .. } | TaskResult::Failed { .. } | TaskResult::Stopped => result,
    }
}

/// The result of a task that could not be carried out.
pub(crate) fn failed(fault: Fault) -> TaskResult {
    let Fault { fatal, elsewhere, message } = fault;
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
    fn full_disk_turns_failures_into_ones_that_may_pass() {
        let full = Some("the disk is full");
        let cases = [
            (ended(0, None), ended(0, None)),
            (
                ended(1, None),
                failed(Fault::passing("the command ended with exit code 1, and the disk is full")),
            ),
            (ended(143, Some("out of time")), ended(143, Some("out of time"))),
            (failed(Fault::passing("no")), failed(Fault::passing("no; the disk is full"))),
            (failed(Fault::fatal("no")), failed(Fault::fatal("no"))),
            (TaskResult::Stopped, TaskResult::Stopped),
        ];
        for (result, expected) in cases {
            assert_eq!(with_disk(result.clone(), full), expected);
            assert_eq!(with_disk(result.clone(), None), result);
        }
    }

    #[test]
    fn disk_with_space_is_not_full() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(full(dir.path()), None);
        assert_eq!(full(&dir.path().join("missing")), None);
    }
}
