//! Executes one task step by step, from its order to its submitted result.
//!
//! Before each step the progress of the task is derived from the disk and the process table. A kill of the agent or a
//! stop request can interrupt a step anywhere; the next step continues from the derived progress.

use crate::backoff::Backoff;
use crate::executor::{Executor, Launch, TaskError};
use crate::order::{self, Order, Request};
use crate::panics::{self, PanicError, catch_async};
use crate::progress::{Progress, progress};
use crate::run::{Agent, directory_gone};
use crate::task_dir::{Manifest, StopReason, TaskDir};
use crate::{disk, inputs, launch, logs};
use serde_json::Value;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::task::{Stage, TaskResult};
use tidemill_supervisor::{BootInstant, CommandState};
use tidemill_wire::agents::Work;
use tokio::sync::watch;
use tracing::{error, warn};

/// Failed attempts of a step after which the task fails.
const FAILURES_MAX: u32 = 5;
/// Time for which a confirmed assignment is valid for the start of a command.
const ASSIGNMENT_VALID: Duration = Duration::from_secs(5);
/// Run time after which the start of a command is reported. A shorter command is reported only at its end, because a
/// cancelled request costs the server more than a completed one.
const EXECUTING_REPORT_DELAY: Duration = Duration::from_millis(100);
/// Interval of the check whether a supervisor has started its command.
const START_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Time that a supervisor may be stopped by a signal before its command is ended, and again before it is killed.
///
/// Shorter than the shortest time after which the server reruns a job on another agent.
const STOPPED_MAX: Duration = Duration::from_secs(2);
/// Interval of the check whether a signal has stopped a supervisor.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time after the grace period at which a supervisor that still runs is killed.
const STUCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Next action after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    Again,
    /// The task is submitted or removed.
    Done,
}

/// Reason why a step failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// An error of this machine, such as a full disk.
    #[error("{0}")]
    Machine(#[from] io::Error),
    /// A bug of the agent.
    #[error("{0}")]
    Agent(#[from] PanicError),
}

/// A task that is executed.
pub(crate) struct Task<'a, E> {
    pub(crate) agent: &'a Agent<E>,
    pub(crate) dir: TaskDir,
    pub(crate) order: Order,
    /// The order as received, if it could be read.
    raw: Option<Value>,
    /// The result, once it is known. It may not be on disk.
    pub(crate) manifest: Option<Manifest>,
    /// The secrets that this process passed to the command.
    pub(crate) used_secrets: Vec<(String, String)>,
    stop: watch::Receiver<Option<StopReason>>,
    /// Time before the last request with which this process confirmed the assignment.
    confirmed_at: Option<BootInstant>,
    /// Whether this process started a supervisor.
    is_launched: bool,
}

/// Executes a task to its end.
pub(crate) async fn execute<E: Executor>(
    agent: Arc<Agent<E>>,
    id: String,
    order: Result<Value, TaskError>,
    stop: watch::Receiver<Option<StopReason>>,
) {
    let dir = agent.dir.task_dir(&id);
    let (order, raw) = match order {
        Ok(raw) => {
            let parsed = panics::catch(|| order::parse(&raw));
            (parsed.unwrap_or_else(|error| order::parse_panicked(&raw, &error)), Some(raw))
        }
        Err(error) => {
            warn!(task.id = %id, "task {id} cannot be executed: {error}");
            (order::invalid_order(&Value::Null, error), None)
        }
    };
    let mut task = Task {
        agent: &agent,
        dir,
        order,
        raw,
        manifest: None,
        used_secrets: Vec::new(),
        stop,
        confirmed_at: None,
        is_launched: false,
    };
    let mut backoff = Backoff::new();
    let mut failures = 0;
    loop {
        match task.guarded_step().await {
            Ok(NextStep::Again) => {
                failures = 0;
                backoff.reset();
            }
            Ok(NextStep::Done) => break,
            Err(error) => {
                failures += 1;
                if failures >= FAILURES_MAX || task.is_final(&error) {
                    task.give_up(&error).await;
                }
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }
    agent.release(&id);
}

impl<E: Executor> Task<'_, E> {
    /// Runs a step; catches panics and logs failures.
    async fn guarded_step(&mut self) -> Result<NextStep, StepError> {
        let result = catch_async(self.step()).await;
        let id = self.dir.task_id();
        match result {
            Ok(Ok(next)) => Ok(next),
            Ok(Err(error)) => {
                let message = self.mask().unwrap_or_default().hide(&error.to_string());
                warn!(task.id = %id, "a step of task {id} failed: {message}");
                Err(error.into())
            }
            Err(error) => {
                error!(task.id = %id, "a step of task {id} failed: {error}");
                Err(error.into())
            }
        }
    }

    /// Whether an error fails the task without a retry here.
    ///
    /// A panic would happen again, and another agent may succeed. But a known result is still submitted, and a cancel
    /// task is still executed.
    fn is_final(&self, error: &StepError) -> bool {
        let has_result = self.manifest.is_some() || matches!(self.dir.manifest(), Ok(Some(_)));
        matches!(error, StepError::Agent(_))
            && !has_result
            && !matches!(self.order.request, Request::Cancel(_))
    }

    async fn step(&mut self) -> io::Result<NextStep> {
        self.dir.restore_access();
        let progress = self.progress()?;
        if progress == Progress::Finalized {
            return self.submit().await;
        }
        // A cancel task is not stopped itself, but the server may have ended it.
        if let Request::Cancel(target) = self.order.request.clone() {
            return self.cancel(&target).await;
        }
        match self.stop_reason() {
            // A command that has ended by itself is completed.
            Some(StopReason::Shutdown) if matches!(progress, Progress::Executed(_)) => {}
            Some(stop) => return self.stop(stop).await,
            None => {}
        }
        let work = match &self.order.request {
            Request::Run(work) => work.clone(),
            Request::Invalid(error) => {
                let error = error.clone();
                // An earlier version or process may have started it.
                self.stop_command().await?;
                self.kill_orphans().await?;
                return Ok(self.fail(error));
            }
            Request::Cancel(_) => return Ok(NextStep::Again),
        };
        match progress {
            Progress::Ordered | Progress::Preparing => self.prepare(&work).await,
            Progress::Prepared => self.start(&work).await,
            Progress::Executing if !self.dir.is_intact() => self.fail_without_directory().await,
            Progress::Executing => self.monitor().await,
            Progress::Executed(exit) => self.finish(&work, &exit).await,
            Progress::Lost => self.fail_lost_command().await,
            Progress::Finalized => Ok(NextStep::Again),
        }
    }

    fn progress(&self) -> io::Result<Progress> {
        if self.manifest.is_some() {
            return Ok(Progress::Finalized);
        }
        Ok(progress(&self.dir.facts(&self.agent.executor)?))
    }

    /// Reason to stop the command, if there is one. `Over` takes precedence.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        let requested = *self.stop.borrow();
        match requested {
            Some(StopReason::Over) => requested,
            // If the disk cannot be read, the request in memory counts.
            Some(StopReason::Cancelled | StopReason::Shutdown) | None => {
                self.dir.stop().unwrap_or_default().or(requested)
            }
        }
    }

    /// Requests a stop because the server has ended the task or assigned it to another agent.
    pub(crate) fn mark_over(&self) {
        let id = self.dir.task_id();
        if let Err(error) = self.dir.write_stop(StopReason::Over) {
            warn!(task.id = %id, "could not write the stop of task {id} to disk: {error}");
        }
        self.agent.request_stop(id, StopReason::Over);
    }

    /// Waits until a stop is requested.
    pub(crate) async fn stop_changed(&mut self) {
        if self.stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Prepares the directory after the server has confirmed the assignment.
    async fn prepare(&mut self, work: &Work) -> io::Result<NextStep> {
        if !self.confirm_assignment(Stage::Preparing).await? {
            return Ok(NextStep::Again);
        }
        // On a full disk the command would fail, or fill the disk again.
        let agent = self.agent;
        if disk::full_message(&agent.dir.tasks_dir()).is_some() {
            tokio::select! {
                () = agent.free_space() => {}
                () = self.stop_changed() => return Ok(NextStep::Again),
            }
            if disk::full_message(&agent.dir.tasks_dir()).is_some() {
                return Ok(self.fail(TaskError::transient("the command was not started")));
            }
        }
        // The directory may have been removed since. No command was started, so it is created again.
        if let Some(raw) = self.raw.as_ref().filter(|_| !matches!(self.dir.order(), Ok(Some(_)))) {
            self.dir.write_order(raw)?;
        }
        self.dir.mark_taken()?;
        self.agent.executor.prepare(&self.dir.path())?;
        let (agent, task_dir) = (self.agent, self.dir.clone());
        let fetched = tokio::select! {
            fetched = inputs::fetch(&agent.dir, agent.store.as_ref(), &task_dir, work) => fetched,
            () = self.stop_changed() => return Ok(NextStep::Again),
        };
        match fetched {
            Ok(()) => self.dir.mark_prepared()?,
            Err(error) => return Ok(self.fail(error)),
        }
        Ok(NextStep::Again)
    }

    /// Starts the command after this process has confirmed the assignment.
    async fn start(&mut self, work: &Work) -> io::Result<NextStep> {
        let dir = self.dir.path();
        if self.agent.executor.state(&dir)? != CommandState::NotStarted {
            // Its supervisor is starting.
            tokio::time::sleep(START_CHECK_INTERVAL).await;
            return Ok(NextStep::Again);
        }
        if self.is_launched {
            return self.wait_for_supervisor().await;
        }
        let is_fresh = self.confirmed_at.is_some_and(|at| at.until(BootInstant::now()) < ASSIGNMENT_VALID);
        if !is_fresh && !self.confirm_assignment(Stage::Prepared).await? {
            return Ok(NextStep::Again);
        }
        let Some(contact) = self.confirmed_at else { return Ok(NextStep::Again) };
        let secrets = match self.secrets(&work.secrets) {
            Ok(secrets) => secrets,
            Err(problem) => return Ok(self.fail(TaskError::local(problem))),
        };
        self.used_secrets.clone_from(&secrets);
        let isolation = self.agent.isolation.assign(&self.dir).await?;
        let spec = launch::spec(&self.dir, &self.order.job_id, work, self.agent.settings.grace, isolation);
        self.is_launched = true;
        match self.agent.executor.start(&dir, Launch { spec, secrets, contact }).await {
            Ok(()) => Ok(NextStep::Again),
            Err(error) => {
                // It must not start after its failure is reported.
                self.agent.executor.forbid_start(&dir)?;
                if self.agent.executor.state(&dir)? == CommandState::NotStarted {
                    Ok(self.fail(error))
                } else {
                    Ok(NextStep::Again)
                }
            }
        }
    }

    /// Waits until the supervisor of this process has started the command.
    async fn wait_for_supervisor(&mut self) -> io::Result<NextStep> {
        let dir = self.dir.path();
        tokio::select! {
            () = self.agent.executor.wait_for_change(&dir) => {}
            () = tokio::time::sleep(START_CHECK_INTERVAL) => return Ok(NextStep::Again),
            () = self.stop_changed() => return Ok(NextStep::Again),
        }
        // The supervisor has ended: the command has ended too, or will never start.
        self.agent.executor.forbid_start(&dir)?;
        if self.agent.executor.state(&dir)? == CommandState::NotStarted {
            let log = tidemill_supervisor::DetachedCommand::new(&dir).supervisor_log(500);
            return Ok(
                self.fail(TaskError::transient(format!("the supervisor did not start the command: {log}")))
            );
        }
        Ok(NextStep::Again)
    }

    /// Monitors the command: ships its log and reports that it runs.
    async fn monitor(&mut self) -> io::Result<NextStep> {
        let (agent, task_dir) = (self.agent, self.dir.clone());
        let dir = task_dir.path();
        let ended = async {
            while matches!(agent.executor.state(&dir), Ok(CommandState::Alive { .. })) && task_dir.is_intact()
            {
                agent.executor.wait_for_change(&dir).await;
                task_dir.restore_access();
            }
        };
        let stopped = until_stopped(agent, &dir);
        let unassigned = async {
            tokio::time::sleep(EXECUTING_REPORT_DELAY).await;
            until_unassigned(agent, &task_dir, Stage::Executing).await;
        };
        tokio::select! {
            () = ended => {}
            () = self.stop_changed() => {}
            () = logs::ship_continuously(agent, &task_dir) => {}
            () = unassigned => self.mark_over(),
            () = stopped => {
                self.stop_command().await?;
                let message = "a signal (SIGSTOP) stopped the supervisor, so the command was killed";
                return Ok(self.fail(TaskError::transient(message)));
            }
        }
        Ok(NextStep::Again)
    }

    /// Stops a command whose directory was removed, because its outputs cannot be collected.
    async fn fail_without_directory(&mut self) -> io::Result<NextStep> {
        self.stop_command().await?;
        let error = directory_gone(&self.dir);
        Ok(self.fail(error))
    }

    /// Fails a task whose supervisor has died, after its remaining processes were killed.
    async fn fail_lost_command(&mut self) -> io::Result<NextStep> {
        self.kill_orphans().await?;
        if !self.dir.is_intact() {
            let error = directory_gone(&self.dir);
            return Ok(self.fail(error));
        }
        let message = "the supervisor of the command died, so the exit code is unknown";
        Ok(self.fail(TaskError::transient(message)))
    }

    /// Stops the command, then concludes or removes the task.
    async fn stop(&mut self, stop: StopReason) -> io::Result<NextStep> {
        self.stop_command().await?;
        match stop {
            StopReason::Over => {
                self.remove();
                Ok(NextStep::Done)
            }
            StopReason::Cancelled => Ok(self.conclude(TaskResult::Stopped, Vec::new())),
            StopReason::Shutdown if matches!(self.progress()?, Progress::Executed(_)) => Ok(NextStep::Again),
            StopReason::Shutdown => Ok(self.fail(TaskError::transient("the agent was shut down"))),
        }
    }

    /// Ensures that no process of the command is alive, and that it is never started.
    async fn stop_command(&mut self) -> io::Result<()> {
        let (executor, dir) = (&self.agent.executor, self.dir.path());
        if let Err(error) = executor.forbid_start(&dir) {
            // A supervisor that is still starting is known by its process and is stopped below.
            warn!("could not forbid the start of a command in {}: {error}", dir.display());
        }
        let grace = self.agent.settings.grace;
        let started = tokio::time::Instant::now();
        let mut is_stop_sent = false;
        loop {
            match executor.state(&dir)? {
                CommandState::NotStarted | CommandState::Exited(_) => return Ok(()),
                CommandState::Lost => return self.kill_orphans().await,
                CommandState::Alive { .. } if started.elapsed() > grace + STUCK_TIMEOUT => {
                    executor.kill(&dir)?;
                }
                // The stop request resumed it, and a signal has stopped it again.
                CommandState::Alive { .. }
                    if started.elapsed() > STOPPED_MAX && executor.is_stopped(&dir) =>
                {
                    executor.kill(&dir)?;
                }
                CommandState::Alive { started: has_started } => {
                    // A starting supervisor may not read messages yet, so the stop is repeated until it has started.
                    if !is_stop_sent {
                        executor.stop(&dir, grace)?;
                        is_stop_sent = has_started;
                    }
                }
            }
            tokio::select! {
                () = executor.wait_for_change(&dir) => {}
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }

    async fn kill_orphans(&self) -> io::Result<()> {
        let mut backoff = Backoff::up_to(Duration::from_secs(1));
        while !self.agent.executor.kill_orphans(&self.dir.path())? {
            tokio::time::sleep(backoff.next()).await;
        }
        Ok(())
    }

    /// Fails a task that cannot be continued on this agent.
    async fn give_up(&mut self, error: &StepError) {
        let failure = TaskError::transient(format!("the agent could not continue the task: {error}"));
        let ending = async {
            // The failure may only be reported when no process of the command is alive.
            self.stop_command().await?;
            io::Result::Ok(self.fail(failure))
        };
        let result = catch_async(ending).await.map_err(StepError::from);
        // On failure the next round tries again.
        if let Err(error) = result.and_then(|ended| ended.map_err(StepError::from)) {
            let id = self.dir.task_id();
            error!(task.id = %id, "could not give up task {id}, trying again: {error}");
        }
    }

    /// Asks the server whether the task is still assigned to this agent; requests a stop if not.
    async fn confirm_assignment(&mut self, stage: Stage) -> io::Result<bool> {
        let (agent, task_dir) = (self.agent, self.dir.clone());
        let confirmed = tokio::select! {
            confirmed = crate::report::stage(agent, task_dir.task_id(), stage) => confirmed,
            () = self.stop_changed() => return Ok(false),
        };
        match confirmed {
            Some(at) => self.confirmed_at = Some(at),
            None => self.mark_over(),
        }
        Ok(confirmed.is_some())
    }
}

/// Returns when a signal has stopped a supervisor for too long.
async fn until_stopped<E: Executor>(agent: &Agent<E>, dir: &Path) {
    let mut since = None;
    loop {
        tokio::time::sleep(STOP_CHECK_INTERVAL).await;
        if !agent.executor.is_stopped(dir) {
            since = None;
        } else if since.get_or_insert_with(tokio::time::Instant::now).elapsed() > STOPPED_MAX {
            return;
        }
    }
}

/// Reports a stage; returns only if the task is no longer assigned to this agent.
pub(crate) async fn until_unassigned<E: Executor>(agent: &Agent<E>, task_dir: &TaskDir, stage: Stage) {
    if crate::report::stage(agent, task_dir.task_id(), stage).await.is_some() {
        std::future::pending::<()>().await;
    }
}
