//! Heartbeats: report the held tasks, and receive the tasks that the agent may forget.

use crate::backoff::Backoff;
use crate::executor::Executor;
use crate::order;
use crate::panics;
use crate::progress::progress;
use crate::run::{Agent, Error, ShutdownReason};
use crate::server_client::RequestError;
use crate::settings::ExitPolicy;
use crate::task_dir::StopReason;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tidemill_core::limits;
use tidemill_core::task::Stage;
use tidemill_supervisor::BootInstant;
use tidemill_wire::agents::{RegisterAgentResponse, TaskProgress};
use tokio::time::Instant;
use tracing::{error, info, warn};

/// Sends heartbeats until the agent is superseded.
pub(crate) async fn send_heartbeats<E: Executor>(agent: Arc<Agent<E>>, registered: RegisterAgentResponse) {
    let every = Duration::from_secs(registered.beat_secs.clamp(1, 60));
    let mut rotation = RotationTimer::new(&registered);
    let mut backoff = Backoff::up_to(every);
    let mut is_unreachable = false;
    loop {
        let holding = agent.task_progress();
        match agent.server.heartbeat(holding, agent.settings.exit_policy == ExitPolicy::Drained).await {
            Ok((response, at)) => {
                if std::mem::take(&mut is_unreachable) {
                    info!("the server is reachable again");
                }
                backoff.reset();
                agent.is_draining.store(response.draining, Ordering::Relaxed);
                agent.confirm_contact(at, &response.over);
                for task in &response.over {
                    isolate(task, || agent.forget(task));
                }
                agent.heartbeats_answered.send_modify(|count| *count += 1);
                if let Err(error) = agent.dir.restore() {
                    warn!("the agent directory was removed and could not be created again: {error}");
                }
                agent.end_if_drained();
                rotation.rotate_if_due(&agent).await;
                tokio::time::sleep(every).await;
            }
            Err(RequestError::NotFound(message)) => {
                // The server removed the agent, or never knew it.
                warn!("the server does not know this agent, registering again: {message}");
                match agent.register().await {
                    Ok(_) => {}
                    Err(Error::Superseded(message)) => agent.end(ShutdownReason::Superseded(message)),
                    Err(error) => warn!("{error}"),
                }
                tokio::time::sleep(backoff.next()).await;
            }
            Err(error) => {
                if agent.end_if_superseded(&error) {
                    return;
                }
                if !std::mem::replace(&mut is_unreachable, true) {
                    warn!("the server does not answer; commands continue: {}", error.message());
                }
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
}

/// Shortest time between two rotations, and the time until a failed one is repeated.
const ROTATION_INTERVAL_MIN: Duration = Duration::from_mins(10);

/// The time of the next registration, which replaces the secret of the agent's directory.
struct RotationTimer {
    every: Duration,
    due: Instant,
}

impl RotationTimer {
    fn new(registered: &RegisterAgentResponse) -> Self {
        let every = Duration::from_secs(registered.secret_secs).max(ROTATION_INTERVAL_MIN);
        Self { every, due: Instant::now() + every }
    }

    async fn rotate_if_due<E: Executor>(&mut self, agent: &Agent<E>) {
        if Instant::now() < self.due {
            return;
        }
        match agent.register_once().await {
            Ok(_) => self.due = Instant::now() + self.every,
            Err(error) => {
                warn!("could not replace the secret of the agent, trying again later: {}", error.message());
                self.due = Instant::now() + ROTATION_INTERVAL_MIN;
            }
        }
    }
}

/// Runs a function for one task, so that a panic in it does not stop the heartbeat for the other tasks.
fn isolate<T>(task: &str, function: impl FnOnce() -> T) -> Option<T> {
    let result = panics::catch(function);
    if let Err(error) = &result {
        error!(task.id = %task, "the heartbeat of task {task} failed: {error}");
    }
    result.ok()
}

impl<E: Executor> Agent<E> {
    /// Lists all held tasks with their stages.
    fn task_progress(&self) -> Vec<TaskProgress> {
        let mut tasks: BTreeSet<String> = self.held_ids().into_iter().collect();
        match self.dir.tasks() {
            Ok(stored) => tasks.extend(stored),
            Err(error) => warn!("could not read the agent directory: {error}"),
        }
        let tasks = tasks.into_iter().take(limits::AGENT_TASKS_MAX);
        tasks
            .map(|task_id| {
                let facts = isolate(&task_id, || self.dir.task_dir(&task_id).facts(&self.executor).ok());
                let stage = match self.is_concluded(&task_id) {
                    Some(true) => Some(Stage::Finalized),
                    Some(false) | None => facts.flatten().and_then(|facts| progress(&facts).stage()),
                };
                TaskProgress { task_id, stage: stage.map(Stage::as_str).map(str::to_owned) }
            })
            .collect()
    }

    /// Confirms contact with the server to the supervisors of the commands.
    fn confirm_contact(&self, at: BootInstant, over: &[String]) {
        for task in self.held_ids().iter().filter(|task| !over.contains(task)) {
            let result = isolate(task, || self.executor.contact(&self.dir.task_dir(task).path(), at));
            if let Some(Err(error)) = result {
                warn!(task.id = %task, "could not confirm contact to the supervisor of task {task}: {error}");
            }
        }
    }

    /// Removes a task that the server has ended; stops its command first if it still runs.
    fn forget(self: &Arc<Self>, task: &str) {
        if !order::is_id(task) {
            return;
        }
        let task_dir = self.dir.task_dir(task);
        if let Some(is_cancel) = self.is_cancel(task) {
            // A removed directory is not created again: the task also gets the stop in memory.
            if !is_cancel
                && task_dir.is_intact()
                && let Err(error) = task_dir.write_stop(StopReason::Over)
            {
                warn!(task.id = %task, "could not write the stop of task {task} to disk: {error}");
            }
            self.request_stop(task, StopReason::Over);
        } else if task_dir.exists()
            && let Err(error) = task_dir.remove()
        {
            warn!(task.id = %task, "could not remove the directory of task {task}: {error}");
        }
    }

    /// Ends a draining agent that holds no tasks.
    fn end_if_drained(&self) {
        let is_empty = self.dir.tasks().is_ok_and(|tasks| tasks.is_empty());
        if self.settings.exit_policy == ExitPolicy::Drained && is_empty && *self.polled.borrow() {
            self.end(ShutdownReason::Requested);
        }
    }
}
