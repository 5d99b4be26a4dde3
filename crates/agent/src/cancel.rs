//! A task that stops another one, and says so when nothing of that one runs.

use crate::carry::{Next, Task};
use crate::executor::Executor;
use crate::place::Stop;
use std::io;
use std::time::Duration;
use tidemill_core::task::TaskResult;
use tidemill_supervisor::Seen;
use tracing::warn;

/// How often to look whether the other task has stopped.
const LOOK: Duration = Duration::from_millis(20);

impl<E: Executor> Task<'_, E> {
    pub(crate) async fn cancel(&mut self, target: &str) -> io::Result<Next> {
        if self.wanted_stop() == Some(Stop::Over) {
            self.remove();
            return Ok(Next::Gone);
        }
        let place = self.agent.home.place(target);
        // Also where the order to run has not come: it is remembered that it must not run.
        let noted = place.note_stop(Stop::Cancelled);
        let is_held = self.agent.want_stop(target, Stop::Cancelled);
        if let Err(error) = noted {
            // A task that is held knows it without the disk.
            if !is_held {
                return Err(error);
            }
            warn!(task.id = %target, "the cancel of task {target} could not be noted on the disk: {error}");
        }
        loop {
            let is_over = match self.agent.is_concluded(target) {
                // Its own directory says nothing of a command that may have removed it.
                Some(is_concluded) => is_concluded,
                // A place without an order has nothing that could run.
                None => !matches!(self.agent.executor.look(&place.dir())?, Seen::Alive { .. } | Seen::Lost),
            };
            if is_over {
                return Ok(self.conclude(TaskResult::Stopped, Vec::new()));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.other_wish() => return Ok(Next::Again),
            }
        }
    }
}
