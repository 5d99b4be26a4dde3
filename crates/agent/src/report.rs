//! Reports that are repeated until the server has heard them.

use crate::carry::{Next, Task};
use crate::door::Trouble;
use crate::executor::Executor;
use crate::logs::{self, Log};
use crate::panics::caught;
use crate::place::{Manifest, Stop};
use crate::run::Agent;
use crate::wait::Backoff;
use std::io;
use tidemill_core::task::{Stage, TaskResult};
use tidemill_supervisor::Moment;
use tidemill_wire::agents::Taken;
use tracing::{error, info, warn};

/// Says how far a task is until the server has heard it: the moment before it was said, or none if the task is
/// not ours.
pub(crate) async fn stage<E: Executor>(agent: &Agent<E>, task: &str, stage: Stage) -> Option<Moment> {
    let mut backoff = Backoff::new();
    loop {
        let at = Moment::now();
        match agent.door.stage(task, stage).await {
            Ok(Taken::Applied | Taken::Duplicate) => return Some(at),
            Ok(Taken::Stale) => {
                info!(task.id = %task, "task {task} is not ours any more");
                return None;
            }
            Err(trouble) => {
                if agent.heed(&trouble) {
                    return std::future::pending().await;
                }
                agent.wait(&mut backoff).await;
            }
        }
    }
}

impl<E: Executor> Task<'_, E> {
    /// Hands in the log and what came of the task, and removes what is left of it.
    pub(crate) async fn hand_in(&mut self) -> io::Result<Next> {
        let manifest = match &self.manifest {
            Some(manifest) => manifest.clone(),
            None => match self.place.manifest()? {
                Some(manifest) => manifest,
                None => return Ok(Next::Again),
            },
        };
        if self.wanted_stop() != Some(Stop::Over) {
            let (agent, place) = (self.agent, self.place.clone());
            tokio::select! {
                handed = hand_in(agent, &place, manifest) => handed?,
                () = self.other_wish() => return Ok(Next::Again),
            }
        }
        self.remove();
        Ok(Next::Gone)
    }

    /// Removes what is left of a task that is over. What cannot be removed keeps nobody: it is tried again with each
    /// sign of life.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.place.remove() {
            let id = self.place.task_id();
            warn!(task.id = %id, "what is left of task {id} could not be removed: {error}");
        }
    }
}

async fn hand_in<E: Executor>(
    agent: &Agent<E>,
    place: &crate::place::Place,
    mut manifest: Manifest,
) -> io::Result<()> {
    // The log first: whoever sees the end can read how it came to that.
    match caught(logs::ship(agent, place, Log::Ended)).await {
        Ok(Ok(_)) => {}
        // The end is worth more than the rest of the log.
        Ok(Err(error)) => {
            warn!("the log of task {} is handed in as far as it can be read: {error}", manifest.task_id);
        }
        Err(panicked) => {
            error!("the log of task {} is handed in as far as it is: {panicked}", manifest.task_id);
        }
    }
    let mut backoff = Backoff::new();
    loop {
        match agent.door.result(&manifest).await {
            Ok(Taken::Applied | Taken::Duplicate | Taken::Stale) => return Ok(()),
            Err(Trouble::Bad(words)) if !manifest.outputs.is_empty() || !is_refused(&manifest) => {
                // It would be refused for ever. That it was is the result.
                warn!("the server cannot use the result of task {}: {words}", manifest.task_id);
                let message = format!("the server could not use the result: {words}");
                manifest.result = TaskResult::Failed { fatal: true, elsewhere: false, message };
                manifest.outputs.clear();
                manifest.unknown.clear();
            }
            Err(trouble) => {
                if agent.heed(&trouble) {
                    return std::future::pending().await;
                }
                agent.wait(&mut backoff).await;
            }
        }
    }
}

fn is_refused(manifest: &Manifest) -> bool {
    matches!(&manifest.result, TaskResult::Failed { message, .. } if message.starts_with("the server could not use"))
}
