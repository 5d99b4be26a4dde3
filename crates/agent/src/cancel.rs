//! A task that stops another one, and says so when nothing of that one runs.

use crate::carry::{Next, Task};
use crate::executor::Executor;
use crate::place::Stop;
use std::io;
use std::time::Duration;
use tidemill_core::task::TaskResult;
use tidemill_supervisor::Seen;

/// How often to look whether the other task has stopped.
const LOOK: Duration = Duration::from_millis(20);

impl<E: Executor> Task<'_, E> {
    pub(crate) async fn cancel(&mut self, target: &str) -> io::Result<Next> {
        if self.wanted_stop()? == Some(Stop::Over) {
            self.place.remove()?;
            return Ok(Next::Gone);
        }
        let place = self.agent.home.place(target);
        // Also where the order to run has not come: it is remembered that it must not run.
        place.note_stop(Stop::Cancelled)?;
        self.agent.want_stop(target, Stop::Cancelled);
        loop {
            let is_held = self.agent.have().iter().any(|held| held == target);
            let is_over = !place.exists() || place.manifest()?.is_some();
            // A place without an order has nothing that could run.
            let runs = matches!(self.agent.executor.look(&place.dir())?, Seen::Alive { .. } | Seen::Lost);
            if is_over || (!is_held && !runs) {
                return self.conclude(TaskResult::Stopped, Vec::new());
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.other_wish() => return Ok(Next::Again),
            }
        }
    }
}
