//! The life of an agent process: start, resumed and accepted tasks, shutdown.

use crate::agent_dir::AgentDir;
use crate::artifacts::Store;
use crate::backoff::Backoff;
use crate::executor::{Executor, ProcessExecutor, TaskError};
use crate::held_tasks::HeldTasks;
use crate::isolation::TaskIsolation;
use crate::order::{self, is_id};
use crate::server_client::{RequestError, ServerClient};
use crate::settings::{CommandsOnExit, ExitPolicy, Settings};
use crate::task_dir::{StopReason, TaskDir};
use crate::{heartbeat, panics, poll, probe, retention, secrets, task};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::limits;
use tidemill_core::task::TaskKind;
use tidemill_supervisor::CommandState;
use tidemill_wire::agents::{AgentSecret, PROTOCOL, RegisterAgent, RegisterAgentResponse};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// Time limit for the reports of stopped commands at shutdown.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for retiring the agent at shutdown.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Error that ends an agent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not use the agent directory {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another process uses the agent directory {}; choose another --dir", path.display())]
    Busy { path: PathBuf },
    #[error("{0}")]
    Setting(String),
    /// The missing mechanisms, each with its reason.
    #[error(
        "isolation of tasks is required, but not available: {0}; run the agent as root or use --isolation auto"
    )]
    Isolation(String),
    #[error("the server refused to register this agent: {0}")]
    Refused(String),
    #[error("another process has registered as this agent: {0}")]
    Superseded(String),
}

/// Counters of one agent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentSummary {
    pub taken: u64,
    /// Tasks that it completed.
    pub ended: u64,
    /// Tasks that it still held at exit; the next process resumes them.
    pub held: usize,
}

/// Reason for the shutdown of an agent.
#[derive(Debug, Clone)]
pub(crate) enum ShutdownReason {
    /// It was requested, or the agent is drained.
    Requested,
    /// Another process has registered as this agent.
    Superseded(String),
}

/// State of a running agent.
pub(crate) struct Agent<E> {
    pub(crate) settings: Settings,
    pub(crate) dir: AgentDir,
    pub(crate) server: ServerClient,
    pub(crate) executor: E,
    pub(crate) store: Option<Store>,
    pub(crate) isolation: TaskIsolation,
    pub(crate) held: HeldTasks,
    running: Mutex<JoinSet<()>>,
    /// Tasks whose order could not be stored, with the value of `space_freed` at that time.
    unstored: Mutex<BTreeMap<String, u64>>,
    /// Requests a removal of unused outputs, because the disk is full.
    pub(crate) space_wanted: Notify,
    /// Counts the removal passes that such requests caused.
    pub(crate) space_freed: AtomicU64,
    /// Counts responses to heartbeats: a change ends the back-off of other requests.
    pub(crate) heartbeats_answered: watch::Sender<u64>,
    /// Whether the server has answered a poll.
    pub(crate) polled: watch::Sender<bool>,
    end: watch::Sender<Option<ShutdownReason>>,
    /// Whether the server assigns no new tasks to it.
    pub(crate) is_draining: AtomicBool,
    taken: AtomicU64,
    ended: AtomicU64,
}

/// Runs an agent until `stop` is set, or until it is drained if the settings say so.
///
/// Commands outlive the agent unless the settings say otherwise. The next process with the same directory resumes them.
pub async fn run(
    settings: Settings,
    client: Client,
    stop: watch::Receiver<bool>,
) -> Result<AgentSummary, Error> {
    let executor = ProcessExecutor::new(settings.supervisor.clone(), settings.supervisor_args.clone());
    run_with(settings, client, executor, stop).await
}

/// Like [`run`], with another executor.
pub async fn run_with<E: Executor>(
    settings: Settings,
    client: Client,
    executor: E,
    mut stop: watch::Receiver<bool>,
) -> Result<AgentSummary, Error> {
    let dir = AgentDir::open(&settings.dir)?;
    if let Some(path) = &settings.secrets {
        secrets::read(path).map_err(Error::Setting)?;
    }
    let store = settings.store.as_deref().map(Store::open).transpose().map_err(Error::Setting)?;
    let isolation = TaskIsolation::establish(&settings, &dir).await?;
    let agent = Arc::new(Agent {
        server: ServerClient::new(client, dir.agent_id()),
        settings,
        dir,
        executor,
        store,
        isolation,
        held: HeldTasks::default(),
        running: Mutex::default(),
        unstored: Mutex::default(),
        space_wanted: Notify::new(),
        space_freed: AtomicU64::new(0),
        heartbeats_answered: watch::Sender::new(0),
        polled: watch::Sender::new(false),
        end: watch::Sender::new(None),
        is_draining: AtomicBool::new(false),
        taken: AtomicU64::new(0),
        ended: AtomicU64::new(0),
    });
    let registered = tokio::select! {
        registered = agent.register() => registered?,
        _ = stop.wait_for(|stop| *stop) => return Ok(agent.summary()),
    };
    agent.resume_tasks().map_err(|source| Error::Directory { path: agent.settings.dir.clone(), source })?;
    agent.work(registered, stop).await
}

impl<E: Executor> Agent<E> {
    async fn work(
        self: Arc<Self>,
        registered: RegisterAgentResponse,
        mut stop: watch::Receiver<bool>,
    ) -> Result<AgentSummary, Error> {
        let (mut heartbeats, mut loops) = (JoinSet::new(), JoinSet::new());
        let agent = Arc::clone(&self);
        heartbeats.spawn(panics::restart_on_panic("the heartbeat loop", move || {
            heartbeat::send_heartbeats(Arc::clone(&agent), registered.clone())
        }));
        let agent = Arc::clone(&self);
        loops.spawn(panics::restart_on_panic("the poll loop", move || poll::poll(Arc::clone(&agent))));
        let agent = Arc::clone(&self);
        loops.spawn(panics::restart_on_panic("the retention loop", move || {
            retention::enforce_retention(Arc::clone(&agent))
        }));
        if self.settings.probe.is_some() {
            let agent = Arc::clone(&self);
            loops.spawn(panics::restart_on_panic("the probe loop", move || probe::probe(Arc::clone(&agent))));
        }
        let mut end = self.end.subscribe();
        let reason = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => ShutdownReason::Requested,
            end = end.wait_for(Option::is_some) => {
                end.ok().and_then(|end| end.clone()).unwrap_or(ShutdownReason::Requested)
            }
        };
        loops.shutdown().await;
        if matches!(reason, ShutdownReason::Requested)
            && self.settings.commands_on_exit == CommandsOnExit::Stop
        {
            self.stop_commands().await;
        }
        heartbeats.shutdown().await;
        let mut running = std::mem::take(&mut *self.running());
        running.shutdown().await;
        match reason {
            ShutdownReason::Superseded(message) => Err(Error::Superseded(message)),
            ShutdownReason::Requested => {
                self.retire().await;
                Ok(self.summary())
            }
        }
    }

    /// Stops all commands and waits for their end, and for a limited time also for their reports.
    async fn stop_commands(&self) {
        for task in self.held_ids() {
            self.request_stop(&task, StopReason::Shutdown);
        }
        let started = tokio::time::Instant::now();
        loop {
            let held = self.held_ids();
            let all_concluded = held.iter().all(|task| self.is_concluded(task) != Some(false));
            let waited = started.elapsed();
            let is_late = waited > self.settings.grace + Duration::from_secs(20);
            if held.is_empty() || is_late || (all_concluded && waited > REPORT_TIMEOUT) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Retires the agent if it holds no tasks. Otherwise the server keeps them assigned until it comes back.
    async fn retire(&self) {
        if self.dir.tasks().is_ok_and(|tasks| tasks.is_empty()) {
            match tokio::time::timeout(RETIRE_TIMEOUT, self.server.retire()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => info!("could not retire the agent: {}", error.message()),
                Err(_) => info!("could not retire the agent in time"),
            }
        }
    }

    fn summary(&self) -> AgentSummary {
        AgentSummary {
            taken: self.taken.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed),
            held: self.dir.tasks().map_or(0, |tasks| tasks.len()),
        }
    }

    /// Registers the agent once, and replaces the secret of its directory.
    pub(crate) async fn register_once(&self) -> Result<RegisterAgentResponse, RequestError> {
        let (secret, next_secret) = self.dir.begin_rotation();
        let register = RegisterAgent {
            boot: self.server.boot(),
            name: self.settings.name.clone(),
            host: self.settings.host.clone(),
            labels: self.settings.labels.clone(),
            capacity: self.settings.capacity,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            draining: self.settings.exit_policy == ExitPolicy::Drained,
            secret: AgentSecret(secret),
            next_secret: AgentSecret(next_secret),
            // Without it, the server treats this directory as another one.
            dir_lock: self.dir.lock_id().ok(),
            isolation: Some(self.isolation.report.clone()),
        };
        let response = self.server.register(&register).await?;
        self.dir.finish_rotation();
        Ok(response)
    }

    /// Registers the agent, with retries.
    pub(crate) async fn register(&self) -> Result<RegisterAgentResponse, Error> {
        let mut backoff = Backoff::new();
        loop {
            match self.register_once().await {
                Ok(response) => return Ok(response),
                Err(RequestError::Retryable(message)) => {
                    let wait = backoff.next();
                    warn!(
                        "could not register this agent, trying again in {} ms: {message}",
                        wait.as_millis()
                    );
                    tokio::time::sleep(wait).await;
                }
                Err(RequestError::Superseded(message)) => return Err(Error::Superseded(message)),
                Err(error) => return Err(Error::Refused(error.message().to_owned())),
            }
        }
    }

    /// Resumes all tasks on disk, and all running commands whose directory was removed.
    ///
    /// A task that cannot be resumed does not affect the others.
    fn resume_tasks(self: &Arc<Self>) -> io::Result<()> {
        let running = self.executor.adopt(&self.dir.tasks_dir())?;
        let names = running.iter().filter_map(|dir| dir.file_name()?.to_str());
        let mut tasks: BTreeSet<String> = names.filter(|name| is_id(name)).map(str::to_owned).collect();
        tasks.extend(self.dir.tasks()?);
        for task in tasks {
            let task_dir = self.dir.task_dir(&task);
            task_dir.restore_access();
            if let Err(error) = self.resume_task(&task_dir, &running) {
                warn!(task.id = %task, "could not resume task {task}: {error}");
            }
        }
        Ok(())
    }

    fn resume_task(self: &Arc<Self>, task_dir: &TaskDir, running: &BTreeSet<PathBuf>) -> io::Result<()> {
        let (task, runs) = (task_dir.task_id(), running.contains(&task_dir.path()));
        let stop = task_dir.stop().unwrap_or_default();
        let order = match task_dir.order() {
            Ok(Some(raw)) => Ok(raw),
            Ok(None) if runs => Err(directory_gone(task_dir)),
            // It was cancelled before its order arrived. The stop is kept until the server ends the task.
            Ok(None) if stop.is_some() => return Ok(()),
            Ok(None) => return task_dir.remove(),
            Err(_) if runs && !task_dir.is_intact() => Err(directory_gone(task_dir)),
            Err(error) if runs || self.may_have_started(task_dir) => Err(order::unreadable(&error)),
            // The command was not started, so the server can send the order again.
            Err(error) => {
                warn!(task.id = %task, "could not read the order of task {task}, waiting for it again: {error}");
                return task_dir.remove();
            }
        };
        info!(task.id = %task, "resuming task {task}");
        self.execute(task, order, stop);
        Ok(())
    }

    /// Whether a task whose order cannot be read may have been started.
    fn may_have_started(&self, task_dir: &TaskDir) -> bool {
        let facts = task_dir.facts(&self.executor);
        facts.map_or(true, |facts| facts.has_manifest || facts.command != CommandState::NotStarted)
    }

    /// Accepts an order; returns false if the task is already held or cannot be accepted.
    pub(crate) fn accept(self: &Arc<Self>, raw: &Value) -> io::Result<bool> {
        let Some(task) = order::task_id(raw) else {
            warn!("the server sent an order without a valid task id");
            return Ok(false);
        };
        if self.held.contains(task) {
            return Ok(false);
        }
        let task_dir = self.dir.task_dir(task);
        task_dir.restore_access();
        let order = match self.store_order(&task_dir, raw) {
            Ok(true) => Ok(raw.clone()),
            Ok(false) => return Ok(false),
            // A cancel order needs no disk space.
            Err(_) if order::is_cancel(raw) => Ok(raw.clone()),
            Err(error) => Err(self.order_not_stored(task, error)?),
        };
        info!(task.id = %task, "accepted task {task}");
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.execute(task, order, task_dir.stop().unwrap_or_default());
        Ok(true)
    }

    /// Stores an order on disk; returns false if the agent holds too many tasks.
    fn store_order(&self, task_dir: &TaskDir, raw: &Value) -> io::Result<bool> {
        // A stored order of a task that is not held is from an earlier failed attempt.
        if !matches!(task_dir.order(), Ok(Some(_))) {
            let task = task_dir.task_id();
            if self.dir.tasks().map_or(0, |tasks| tasks.len()) >= limits::AGENT_TASKS_MAX {
                warn!(task.id = %task, "task {task} was not accepted: {} tasks are held", limits::AGENT_TASKS_MAX);
                return Ok(false);
            }
            task_dir.write_order(raw)?;
        }
        self.unstored().remove(task_dir.task_id());
        Ok(true)
    }

    /// Handles an order that could not be stored: returns `Err` while freeing space may help, then a task error.
    fn order_not_stored(&self, task: &str, error: io::Error) -> io::Result<TaskError> {
        let freed = self.space_freed.load(Ordering::Relaxed);
        let before = *self.unstored().entry(task.to_owned()).or_insert(freed);
        // One pass may have been running when the order arrived; the next one counts.
        if freed < before + 2 {
            self.space_wanted.notify_one();
            return Err(error);
        }
        self.unstored().remove(task);
        Ok(TaskError::transient(format!("the agent could not store the order: {error}")))
    }

    fn execute(self: &Arc<Self>, task: &str, order: Result<Value, TaskError>, stop: Option<StopReason>) {
        let is_cancel = order.as_ref().is_ok_and(order::is_cancel);
        let kind = if is_cancel { TaskKind::CancelJob } else { TaskKind::RunJob };
        let stopped = self.held.insert(task, kind, stop);
        let mut running = self.running();
        // Releases finished tasks.
        while running.try_join_next().is_some() {}
        running.spawn(task::execute(Arc::clone(self), task.to_owned(), order, stopped));
    }

    /// Releases a completed task.
    pub(crate) fn release(&self, task: &str) {
        self.executor.release(&self.dir.task_dir(task).path());
        self.isolation.release(&self.dir.task_dir(task));
        self.held.remove(task);
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests the shutdown of the agent; the first reason counts.
    pub(crate) fn end(&self, reason: ShutdownReason) {
        self.end.send_if_modified(|current| {
            let is_first = current.is_none();
            if is_first {
                *current = Some(reason);
            }
            is_first
        });
    }

    /// Requests the shutdown if another process has registered as this agent; returns whether that is so.
    pub(crate) fn end_if_superseded(&self, error: &RequestError) -> bool {
        if let RequestError::Superseded(message) = error {
            self.end(ShutdownReason::Superseded(message.clone()));
            return true;
        }
        false
    }

    /// Waits before a retry, at most until the server answers a heartbeat.
    pub(crate) async fn wait(&self, backoff: &mut Backoff) {
        let mut answered = self.heartbeats_answered.subscribe();
        let delay = backoff.next();
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = answered.changed() => tokio::time::sleep(delay.min(Duration::from_millis(200))).await,
        }
    }

    fn unstored(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.unstored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Error of a task whose directory was removed or replaced while its command ran.
pub(crate) fn directory_gone(task_dir: &TaskDir) -> TaskError {
    let dir = task_dir.path();
    let what = "was removed or replaced while its command ran, so its outputs and its exit code are unknown";
    TaskError::transient(format!("the directory of the task, {}, {what}", dir.display()))
}
