//! An agent from its start to its end.

use crate::artifacts::Store;
use crate::door::{Door, Trouble};
use crate::executor::{Executor, Fault, Processes};
use crate::held::HeldTasks;
use crate::home::Home;
use crate::order::{self, is_id};
use crate::place::{Place, Stop};
use crate::settings::{Commands, Ending, Settings};
use crate::wait::Backoff;
use crate::{beat, carry, kept, panics, poll, probe, secrets};
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
use tidemill_supervisor::Seen;
use tidemill_wire::agents::{HomeSecret, PROTOCOL, RegisterAgent};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// How long an agent that ends waits to report what it stopped.
const REPORTED_MAX: Duration = Duration::from_secs(5);
/// How long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(3);

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its directory cannot be used.
    #[error("the directory {} of the agent cannot be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process uses its directory.
    #[error("another process uses {}; an agent has a directory of its own", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// A setting cannot be used.
    #[error("{0}")]
    Setting(String),
    /// The server will not have it.
    #[error("the server does not take this agent: {0}")]
    Refused(String),
    /// Another process speaks for this agent.
    #[error("another process speaks for this agent: {0}")]
    Superseded(String),
}

/// What an agent did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Orders that it took.
    pub taken: u64,
    /// Tasks of which it was rid when it ended.
    pub ended: u64,
    /// Tasks that it still held: the next process goes on with them.
    pub held: usize,
}

/// Why an agent ends.
#[derive(Debug, Clone)]
pub(crate) enum End {
    /// It was told to, or holds nothing and was to end then.
    Done,
    /// Another process speaks for it.
    Superseded(String),
}

/// An agent at work.
pub(crate) struct Agent<E> {
    pub(crate) settings: Settings,
    pub(crate) home: Home,
    pub(crate) door: Door,
    pub(crate) executor: E,
    pub(crate) store: Option<Store>,
    /// What it holds.
    pub(crate) held: HeldTasks,
    carrying: Mutex<JoinSet<()>>,
    /// Tasks whose order could not be kept, and how often space had been freed by then.
    unkept: Mutex<BTreeMap<String, u64>>,
    /// Asks for space on the disk.
    pub(crate) space_wanted: Notify,
    /// Counts the times that space was freed, as far as that was possible.
    pub(crate) space_freed: AtomicU64,
    /// Counts answers to beats: whoever waits to try again may do so at once.
    pub(crate) answered: watch::Sender<u64>,
    /// Whether the server was asked for tasks, and answered.
    pub(crate) polled: watch::Sender<bool>,
    end: watch::Sender<Option<End>>,
    /// Whether the server gives it no new tasks.
    pub(crate) is_draining: AtomicBool,
    taken: AtomicU64,
    ended: AtomicU64,
}

/// Runs an agent until it is told to end, or holds nothing and was to end then.
///
/// Commands outlive it, unless the settings say otherwise; the next process of the same directory goes on with
/// them.
pub async fn run(settings: Settings, client: Client, stop: watch::Receiver<bool>) -> Result<Carried, Error> {
    let executor = Processes::new(settings.supervisor.clone(), settings.supervisor_args.clone());
    run_with(settings, client, executor, stop).await
}

/// The same with another executor.
pub async fn run_with<E: Executor>(
    settings: Settings,
    client: Client,
    executor: E,
    mut stop: watch::Receiver<bool>,
) -> Result<Carried, Error> {
    let home = Home::open(&settings.dir)?;
    if let Some(path) = &settings.secrets {
        secrets::read(path).map_err(Error::Setting)?;
    }
    let store = settings.store.as_deref().map(Store::open).transpose().map_err(Error::Setting)?;
    let agent = Arc::new(Agent {
        door: Door::new(client, home.agent_id()),
        settings,
        home,
        executor,
        store,
        held: HeldTasks::default(),
        carrying: Mutex::default(),
        unkept: Mutex::default(),
        space_wanted: Notify::new(),
        space_freed: AtomicU64::new(0),
        answered: watch::Sender::new(0),
        polled: watch::Sender::new(false),
        end: watch::Sender::new(None),
        is_draining: AtomicBool::new(false),
        taken: AtomicU64::new(0),
        ended: AtomicU64::new(0),
    });
    let beat_secs = tokio::select! {
        registered = agent.register() => registered?,
        _ = stop.wait_for(|told| *told) => return Ok(agent.carried()),
    };
    agent.take_up().map_err(|source| Error::Directory { path: agent.settings.dir.clone(), source })?;
    agent.work(Duration::from_secs(beat_secs.clamp(1, 60)), stop).await
}

impl<E: Executor> Agent<E> {
    async fn work(
        self: Arc<Self>,
        beat: Duration,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Carried, Error> {
        let (mut beating, mut asking) = (JoinSet::new(), JoinSet::new());
        let agent = Arc::clone(&self);
        beating.spawn(panics::keep_on("the heartbeat", move || beat::beat(Arc::clone(&agent), beat)));
        let agent = Arc::clone(&self);
        asking.spawn(panics::keep_on("asking for tasks", move || poll::poll(Arc::clone(&agent))));
        let agent = Arc::clone(&self);
        asking.spawn(panics::keep_on("removing what is kept", move || kept::keep(Arc::clone(&agent))));
        if self.settings.probe.is_some() {
            let agent = Arc::clone(&self);
            asking.spawn(panics::keep_on("the probe", move || probe::probe(Arc::clone(&agent))));
        }
        let mut end = self.end.subscribe();
        let why = tokio::select! {
            _ = stop.wait_for(|told| *told) => End::Done,
            end = end.wait_for(Option::is_some) => end.ok().and_then(|end| end.clone()).unwrap_or(End::Done),
        };
        asking.shutdown().await;
        if matches!(why, End::Done) && self.settings.commands == Commands::Stop {
            self.stop_commands().await;
        }
        beating.shutdown().await;
        let mut carrying = std::mem::take(&mut *self.carrying());
        carrying.shutdown().await;
        match why {
            End::Superseded(words) => Err(Error::Superseded(words)),
            End::Done => {
                self.leave().await;
                Ok(self.carried())
            }
        }
    }

    /// Stops every command, and waits until each is over; for a while also until that is reported.
    async fn stop_commands(&self) {
        for task in self.have() {
            self.want_stop(&task, Stop::Shutdown);
        }
        let begun = tokio::time::Instant::now();
        loop {
            let have = self.have();
            let are_over = have.iter().all(|task| self.is_concluded(task) != Some(false));
            let waited = begun.elapsed();
            let is_late = waited > self.settings.grace + Duration::from_secs(20);
            if have.is_empty() || is_late || (are_over && waited > REPORTED_MAX) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Says goodbye where nothing is held: whatever is held waits for this agent to come back.
    async fn leave(&self) {
        if self.home.tasks().is_ok_and(|tasks| tasks.is_empty()) {
            match tokio::time::timeout(GOODBYE_MAX, self.door.goodbye()).await {
                Ok(Ok(())) => {}
                Ok(Err(trouble)) => info!("the server did not hear the goodbye: {}", trouble.words()),
                Err(_) => info!("the server did not hear the goodbye in time"),
            }
        }
    }

    fn carried(&self) -> Carried {
        Carried {
            taken: self.taken.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed),
            held: self.home.tasks().map_or(0, |tasks| tasks.len()),
        }
    }

    /// Says what we are until the server has heard it.
    pub(crate) async fn register(&self) -> Result<u64, Error> {
        let register = RegisterAgent {
            boot: self.door.boot(),
            name: self.settings.name.clone(),
            host: self.settings.host.clone(),
            labels: self.settings.labels.clone(),
            capacity: self.settings.capacity,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            draining: self.settings.ending == Ending::Drained,
            secret: Some(HomeSecret(self.home.secret().to_owned())),
        };
        let mut backoff = Backoff::new();
        loop {
            match self.door.register(&register).await {
                Ok(answer) => return Ok(answer.beat_secs),
                Err(Trouble::Later(words)) => {
                    let wait = backoff.next();
                    warn!(
                        "the server does not take this agent yet, trying again in {} ms: {words}",
                        wait.as_millis()
                    );
                    tokio::time::sleep(wait).await;
                }
                Err(Trouble::Superseded(words)) => return Err(Error::Superseded(words)),
                Err(trouble) => return Err(Error::Refused(trouble.words().to_owned())),
            }
        }
    }

    /// Goes on with everything that is on the disk, and with every command that runs without being there.
    ///
    /// A task that cannot be gone on with costs no other one anything.
    fn take_up(self: &Arc<Self>) -> io::Result<()> {
        let running = self.executor.adopt(&self.home.tasks_dir())?;
        let names = running.iter().filter_map(|place| place.file_name()?.to_str());
        let mut tasks: BTreeSet<String> = names.filter(|name| is_id(name)).map(str::to_owned).collect();
        tasks.extend(self.home.tasks()?);
        for task in tasks {
            let place = self.home.place(&task);
            place.reopen();
            if let Err(error) = self.take_up_one(&place, &running) {
                warn!(task.id = %task, "what is left of task {task} cannot be used: {error}");
            }
        }
        Ok(())
    }

    fn take_up_one(self: &Arc<Self>, place: &Place, running: &BTreeSet<PathBuf>) -> io::Result<()> {
        let (task, runs) = (place.task_id(), running.contains(&place.dir()));
        let stop = place.stop().unwrap_or_default();
        let order = match place.order() {
            Ok(Some(raw)) => Ok(raw),
            Ok(None) if runs => Err(directory_gone(place)),
            // It was cancelled before it came, which is remembered until the server says that it is over.
            Ok(None) if stop.is_some() => return Ok(()),
            Ok(None) => return place.remove(),
            Err(_) if runs && !place.is_intact() => Err(directory_gone(place)),
            Err(error) if runs || self.has_begun(place) => Err(order::unreadable(&error)),
            // As good as one that never came: the server sends it again.
            Err(error) => {
                warn!(task.id = %task, "the order of task {task} cannot be read, and has to come again: {error}");
                return place.remove();
            }
        };
        info!(task.id = %task, "going on with task {task}");
        self.carry(task, order, stop);
        Ok(())
    }

    /// Whether a task whose order cannot be read may have been started.
    fn has_begun(&self, place: &Place) -> bool {
        let facts = place.facts(&self.executor);
        facts.map_or(true, |facts| facts.has_manifest || facts.seen != Seen::Nothing)
    }

    /// Takes an order, unless it was taken before; whether it was.
    pub(crate) fn take(self: &Arc<Self>, raw: &Value) -> io::Result<bool> {
        let Some(task) = order::task_id(raw) else {
            warn!("the server sent an order without an id that can be one");
            return Ok(false);
        };
        if self.held.contains(task) {
            return Ok(false);
        }
        let place = self.home.place(task);
        place.reopen();
        let order = match self.keep_order(&place, raw) {
            Ok(true) => Ok(raw.clone()),
            Ok(false) => return Ok(false),
            // To stop a task needs no disk.
            Err(_) if order::is_cancel(raw) => Ok(raw.clone()),
            Err(error) => Err(self.not_kept(task, error)?),
        };
        info!(task.id = %task, "took task {task}");
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.carry(task, order, place.stop().unwrap_or_default());
        Ok(true)
    }

    /// Keeps an order on the disk; false where too many are held.
    fn keep_order(&self, place: &Place, raw: &Value) -> io::Result<bool> {
        // One that is kept and not held was left by a try that failed after it was written down.
        if !matches!(place.order(), Ok(Some(_))) {
            let task = place.task_id();
            if self.home.tasks().map_or(0, |tasks| tasks.len()) >= limits::AGENT_TASKS_MAX {
                warn!(task.id = %task, "task {task} is not taken: {} are held", limits::AGENT_TASKS_MAX);
                return Ok(false);
            }
            place.write_order(raw)?;
        }
        self.unkept().remove(place.task_id());
        Ok(true)
    }

    /// Why a task fails whose order cannot be kept; an error as long as freeing space may still help.
    fn not_kept(&self, task: &str, error: io::Error) -> io::Result<Fault> {
        let freed = self.space_freed.load(Ordering::Relaxed);
        let before = *self.unkept().entry(task.to_owned()).or_insert(freed);
        // One pass may have been under way when the order came; the next one counts.
        if freed < before + 2 {
            self.space_wanted.notify_one();
            return Err(error);
        }
        self.unkept().remove(task);
        Ok(Fault::passing(format!("its agent could not keep the order: {error}")))
    }

    fn carry(self: &Arc<Self>, task: &str, order: Result<Value, Fault>, stop: Option<Stop>) {
        let is_cancel = order.as_ref().is_ok_and(order::is_cancel);
        let kind = if is_cancel { TaskKind::CancelJob } else { TaskKind::RunJob };
        let stopped = self.held.insert(task, kind, stop);
        let mut carrying = self.carrying();
        // Those that are done are let go.
        while carrying.try_join_next().is_some() {}
        carrying.spawn(carry::carry(Arc::clone(self), task.to_owned(), order, stopped));
    }

    /// Notes that nothing is left of a task.
    pub(crate) fn let_go(&self, task: &str) {
        self.executor.release(&self.home.place(task).dir());
        self.held.remove(task);
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the agent.
    pub(crate) fn end(&self, end: End) {
        self.end.send_if_modified(|there| {
            let is_first = there.is_none();
            if is_first {
                *there = Some(end);
            }
            is_first
        });
    }

    /// Heeds an answer that means the end; whether it does.
    pub(crate) fn heed(&self, trouble: &Trouble) -> bool {
        if let Trouble::Superseded(words) = trouble {
            self.end(End::Superseded(words.clone()));
            return true;
        }
        false
    }

    /// Waits before something is tried again; not longer than until the server answers somebody.
    pub(crate) async fn wait(&self, backoff: &mut Backoff) {
        let mut answered = self.answered.subscribe();
        let least = backoff.next();
        tokio::select! {
            () = tokio::time::sleep(least) => {}
            _ = answered.changed() => tokio::time::sleep(least.min(Duration::from_millis(200))).await,
        }
    }

    fn unkept(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carrying(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.carrying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a task fails whose directory is gone, or is not the one any more in which its command was started.
pub(crate) fn directory_gone(place: &Place) -> Fault {
    let dir = place.dir();
    let words = "was removed or replaced while its command ran, so its outputs and its end are not known";
    Fault::passing(format!("the directory of the task, {}, {words}", dir.display()))
}
