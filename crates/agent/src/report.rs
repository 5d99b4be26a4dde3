//! Reports that are repeated until the server has received them.

use crate::backoff::Backoff;
use crate::executor::Executor;
use crate::logs::{self, LogState};
use crate::panics::catch_async;
use crate::run::Agent;
use crate::server_client::RequestError;
use crate::task::{NextStep, Task};
use crate::task_dir::{Manifest, StopReason};
use std::io;
use tidemill_core::task::{Stage, TaskResult};
use tidemill_supervisor::BootInstant;
use tidemill_wire::agents::ReportOutcome;
use tracing::{error, info, warn};

/// Reports the stage of a task until the server has received it.
///
/// Returns the time before the report was sent, or `None` if the task is not assigned to this agent.
pub(crate) async fn stage<E: Executor>(agent: &Agent<E>, task: &str, stage: Stage) -> Option<BootInstant> {
    let mut backoff = Backoff::new();
    loop {
        let at = BootInstant::now();
        match agent.server.stage(task, stage).await {
            Ok(ReportOutcome::Applied | ReportOutcome::Duplicate) => return Some(at),
            Ok(ReportOutcome::Stale) => {
                info!(task.id = %task, "task {task} is no longer assigned to this agent");
                return None;
            }
            Err(error) => {
                if agent.end_if_superseded(&error) {
                    return std::future::pending().await;
                }
                agent.wait(&mut backoff).await;
            }
        }
    }
}

impl<E: Executor> Task<'_, E> {
    /// Submits the log and the result of the task, then removes its directory.
    pub(crate) async fn submit(&mut self) -> io::Result<NextStep> {
        let manifest = match &self.manifest {
            Some(manifest) => manifest.clone(),
            None => match self.dir.manifest()? {
                Some(manifest) => manifest,
                None => return Ok(NextStep::Again),
            },
        };
        if self.stop_reason() != Some(StopReason::Over) {
            let (agent, task_dir) = (self.agent, self.dir.clone());
            tokio::select! {
                submitted = submit(agent, &task_dir, manifest) => submitted?,
                () = self.stop_changed() => return Ok(NextStep::Again),
            }
        }
        self.remove();
        Ok(NextStep::Done)
    }

    /// Removes the directory of an ended task. The next heartbeat repeats a failed removal.
    pub(crate) fn remove(&self) {
        if let Err(error) = self.dir.remove() {
            let id = self.dir.task_id();
            warn!(task.id = %id, "could not remove the directory of task {id}: {error}");
        }
    }
}

async fn submit<E: Executor>(
    agent: &Agent<E>,
    task_dir: &crate::task_dir::TaskDir,
    mut manifest: Manifest,
) -> io::Result<()> {
    // The log comes first, so that it is complete when the result is visible.
    match catch_async(logs::ship(agent, task_dir, LogState::Ended)).await {
        Ok(Ok(_)) => {}
        // The result is more important than the rest of the log.
        Ok(Err(error)) => {
            warn!("could not submit the complete log of task {}: {error}", manifest.task_id);
        }
        Err(error) => {
            error!("could not submit the complete log of task {}: {error}", manifest.task_id);
        }
    }
    let mut backoff = Backoff::new();
    loop {
        match agent.server.result(&manifest).await {
            Ok(ReportOutcome::Applied | ReportOutcome::Duplicate | ReportOutcome::Stale) => return Ok(()),
            Err(RequestError::Rejected(message))
                if !manifest.outputs.is_empty() || !is_rejected(&manifest) =>
            {
                // The server would always reject it, so the rejection becomes the result.
                warn!("the server rejected the result of task {}: {message}", manifest.task_id);
                let message = format!("the server rejected the result: {message}");
                manifest.result = TaskResult::Failed { fatal: true, elsewhere: false, message };
                manifest.outputs.clear();
                manifest.unknown.clear();
            }
            Err(error) => {
                if agent.end_if_superseded(&error) {
                    return std::future::pending().await;
                }
                agent.wait(&mut backoff).await;
            }
        }
    }
}

fn is_rejected(manifest: &Manifest) -> bool {
    let prefix = "the server rejected the result";
    matches!(&manifest.result, TaskResult::Failed { message, .. } if message.starts_with(prefix))
}
