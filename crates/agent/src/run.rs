//! An agent from its start to its end.

use crate::artifacts::Store;
use crate::door::{Door, Trouble};
use crate::executor::{Executor, Processes};
use crate::home::Home;
use crate::order;
use crate::place::{Place, Stop};
use crate::settings::{Commands, Ending, Settings};
use crate::wait::Backoff;
use crate::{beat, carry, kept, panics, poll, probe, secrets};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_client::Client;
use tidemill_core::limits;
use tidemill_supervisor::Seen;
use tidemill_wire::agents::{HomeSecret, PROTOCOL, RegisterAgent};
use tokio::sync::watch;
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
    /// What it holds, by task, and what is wanted of it.
    held: Mutex<BTreeMap<String, watch::Sender<Option<Stop>>>>,
    carrying: Mutex<JoinSet<()>>,
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
        held: Mutex::default(),
        carrying: Mutex::default(),
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
            let are_over = have.iter().all(|task| matches!(self.home.place(task).manifest(), Ok(Some(_))));
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

    /// Goes on with everything that is on the disk.
    fn take_up(self: &Arc<Self>) -> io::Result<()> {
        for task in self.home.tasks()? {
            let place = self.home.place(&task);
            match (self.has_order(&place)?, place.stop()?) {
                (true, stop) => {
                    info!(task.id = %task, "going on with task {task}");
                    self.carry(&task, stop);
                }
                // It was cancelled before it came, which is remembered until the server says that it is over.
                (false, Some(_)) => {}
                (false, None) => place.remove()?,
            }
        }
        Ok(())
    }

    /// Whether there is an order to go on with. One that cannot be read and of which nothing has begun is as good as
    /// one that never came: the server sends it again.
    fn has_order(&self, place: &Place) -> io::Result<bool> {
        let task = place.task_id();
        match place.order() {
            Ok(order) => Ok(order.is_some()),
            Err(error) => {
                let facts = place.facts(&self.executor);
                let has_begun = facts.map_or(true, |facts| facts.has_manifest || facts.seen != Seen::Nothing);
                if !has_begun {
                    warn!(task.id = %task, "the order of task {task} cannot be read, and has to come again: {error}");
                    place.forget_order()?;
                }
                Ok(has_begun)
            }
        }
    }

    /// Takes an order, unless it was taken before; whether it was.
    pub(crate) fn take(self: &Arc<Self>, raw: &serde_json::Value) -> io::Result<bool> {
        let Some(task) = order::task_id(raw) else {
            warn!("the server sent an order without an id that can be one");
            return Ok(false);
        };
        let place = self.home.place(task);
        if self.held().contains_key(task) {
            return Ok(false);
        }
        // One that is kept and not held was left by a try that failed after it was written down.
        if !self.has_order(&place)? {
            if self.home.tasks()?.len() >= limits::AGENT_TASKS_MAX {
                warn!(task.id = %task, "task {task} is not taken: {} are held", limits::AGENT_TASKS_MAX);
                return Ok(false);
            }
            place.write_order(raw)?;
        }
        info!(task.id = %task, "took task {task}");
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.carry(task, place.stop()?);
        Ok(true)
    }

    fn carry(self: &Arc<Self>, task: &str, stop: Option<Stop>) {
        let (wish, wished) = watch::channel(stop);
        self.held().insert(task.to_owned(), wish);
        let mut carrying = self.carrying();
        // Those that are done are let go.
        while carrying.try_join_next().is_some() {}
        carrying.spawn(carry::carry(Arc::clone(self), task.to_owned(), wished));
    }

    /// Notes that nothing is left of a task.
    pub(crate) fn let_go(&self, task: &str) {
        self.held().remove(task);
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Wants a task to be stopped, if it is held. The disk knows it already, or need not.
    pub(crate) fn want_stop(&self, task: &str, stop: Stop) {
        if let Some(wish) = self.held().get(task) {
            wish.send_if_modified(|wish| {
                let is_new = *wish != Some(Stop::Over) && *wish != Some(stop);
                if is_new {
                    *wish = Some(stop);
                }
                is_new
            });
        }
    }

    /// The tasks that are held.
    pub(crate) fn have(&self) -> Vec<String> {
        self.held().keys().cloned().collect()
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

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<Option<Stop>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carrying(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.carrying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
