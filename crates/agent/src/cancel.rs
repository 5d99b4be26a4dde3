//! A cancel task: stops another task and reports when none of its processes is alive.

use crate::executor::Executor;
use crate::task::{NextStep, Task};
use crate::task_dir::StopReason;
use std::io;
use std::time::Duration;
use tidemill_core::task::TaskResult;
use tidemill_supervisor::CommandState;
use tracing::warn;

/// Interval of the check whether the other task has stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl<E: Executor> Task<'_, E> {
    pub(crate) async fn cancel(&mut self, target: &str) -> io::Result<NextStep> {
        if self.stop_reason() == Some(StopReason::Over) {
            self.remove();
            return Ok(NextStep::Done);
        }
        let task_dir = self.agent.dir.task_dir(target);
        // Also if the run order has not arrived yet: the stop prevents its later start.
        let written = task_dir.write_stop(StopReason::Cancelled);
        let is_held = self.agent.request_stop(target, StopReason::Cancelled);
        if let Err(error) = written {
            // A held task also gets the stop in memory.
            if !is_held {
                return Err(error);
            }
            warn!(task.id = %target, "could not write the cancellation of task {target} to disk: {error}");
        }
        loop {
            let is_over = match self.agent.is_concluded(target) {
                // The directory is not reliable: the command may have removed it.
                Some(is_concluded) => is_concluded,
                // Without an order there is no command that could run.
                None => !matches!(
                    self.agent.executor.state(&task_dir.path())?,
                    CommandState::Alive { .. } | CommandState::Lost
                ),
            };
            if is_over {
                return Ok(self.conclude(TaskResult::Stopped, Vec::new()));
            }
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                () = self.stop_changed() => return Ok(NextStep::Again),
            }
        }
    }
}
