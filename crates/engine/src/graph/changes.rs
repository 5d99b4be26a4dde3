//! One task that watches the database for all long polls of graphs, job logs and agents.
//!
//! Each pass asks once for all watched graphs, once for all logs and once for all agents, so the load does not depend
//! on the number of waiting requests. There is none without them. A change wakes exactly the requests that wait for it.

use super::Graphs;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tidemill_core::RunId;
use tidemill_core::limits::BATCH_MAX;
use tidemill_store::{LoopError, LoopOptions, MarkedObjects, Next, Store};
use tokio::sync::watch;
use uuid::Uuid;

/// Interval between two passes.
const INTERVAL: Duration = Duration::from_millis(100);
/// Minimum pause between two passes, regardless of wake-ups.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest back-off after a failed pass.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Object whose changes a request waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Watched {
    /// The jobs of a graph.
    Graph(RunId),
    /// A job, its tasks and their logs.
    Job(String),
    /// An agent and its open tasks.
    Agent(Uuid),
}

/// All watched objects of this process.
#[derive(Debug, Default)]
pub(crate) struct ChangeWatcher {
    state: Mutex<WatcherState>,
}

#[derive(Debug, Default)]
struct WatcherState {
    running: bool,
    watched: HashMap<Watched, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// State of the object at the last pass; `None` before the first.
    marker: Option<String>,
    changes: watch::Sender<u64>,
}

/// A watched object. Dropping it ends the watch.
#[derive(Debug)]
pub struct ChangeWatch(watch::Receiver<u64>);

impl ChangeWatch {
    /// Forgets the changes so far. Called before the object is read.
    pub fn mark_unchanged(&mut self) {
        self.0.mark_unchanged();
    }

    /// Waits for a change since the last call of [`Self::mark_unchanged`]. It may report a change that is none.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl ChangeWatcher {
    fn state(&self) -> MutexGuard<'_, WatcherState> {
        // The map is valid after every statement, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all objects in use. If there are none, the task ends.
    fn in_use(&self) -> Vec<Watched> {
        let mut state = self.state();
        state.watched.retain(|_, entry| entry.changes.receiver_count() > 0);
        state.running = !state.watched.is_empty();
        state.watched.keys().cloned().collect()
    }

    /// Compares the states of objects with those of the last pass. The first one counts as a change, because the object
    /// may have changed since the request read it.
    fn compare(&self, found: Vec<(Watched, String)>) {
        let mut state = self.state();
        for (watched, marker) in found {
            let Some(entry) = state.watched.get_mut(&watched) else { continue };
            if entry.marker.as_ref() != Some(&marker) {
                entry.marker = Some(marker);
                entry.changes.send_modify(|count| *count += 1);
            }
        }
    }
}

impl Graphs {
    /// Watches an object for one more request.
    pub fn watch(&self, object: Watched) -> ChangeWatch {
        let watcher = &self.notifiers().changes;
        let mut state = watcher.state();
        let entry = state.watched.entry(object);
        let entry = entry.or_insert_with(|| Entry { marker: None, changes: watch::Sender::new(0) });
        let watch = ChangeWatch(entry.changes.subscribe());
        if !state.running {
            state.running = true;
            drop(state);
            let (watcher, wakeups) = (Arc::downgrade(watcher), self.notifiers().agents.subscribe());
            let (store, wakeups) = (self.engine.store().clone(), Arc::new(tokio::sync::Mutex::new(wakeups)));
            let options = LoopOptions::new("change_watch").backoff_max(BACKOFF_MAX);
            let pass = move || pass(watcher.clone(), store.clone(), wakeups.clone());
            self.engine.store().monitor().spawn(options, pass);
        }
        watch
    }
}

/// One pass of the task. Ends the loop when no object is watched.
async fn pass(
    watcher: Weak<ChangeWatcher>,
    store: Store,
    wakeups: Arc<tokio::sync::Mutex<watch::Receiver<u64>>>,
) -> Result<Next, LoopError> {
    let Some(objects) = watcher.upgrade().map(|watcher| watcher.in_use()) else { return Ok(Next::End) };
    if objects.is_empty() {
        return Ok(Next::End);
    }
    let mut wakeups = wakeups.lock().await;
    wakeups.mark_unchanged();
    for some in objects.chunks(BATCH_MAX) {
        let found = read(&store, some).await?;
        let Some(watcher) = watcher.upgrade() else { return Ok(Next::End) };
        watcher.compare(found);
    }
    tokio::time::sleep(PAUSE).await;
    // The wake-up only saves time. Without its sender, the interval is waited for.
    if let Ok(Err(_)) = tokio::time::timeout(INTERVAL, wakeups.changed()).await {
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(Next::After(Duration::ZERO))
}

/// Reads the states of these objects. An object that does not exist has none.
async fn read(store: &Store, some: &[Watched]) -> Result<Vec<(Watched, String)>, LoopError> {
    let mut objects = MarkedObjects::default();
    for watched in some {
        match watched {
            Watched::Graph(run) => objects.graphs.push(run.clone()),
            Watched::Job(job) => objects.jobs.push(job.clone()),
            Watched::Agent(agent) => objects.agents.push(*agent),
        }
    }
    let found = store.markers(objects).await?;
    let graph = |text: &str| text.parse().ok().map(Watched::Graph);
    let job = |text: &str| Some(Watched::Job(text.to_owned()));
    let agent = |text: &str| text.parse().ok().map(Watched::Agent);
    let mut states = Vec::with_capacity(some.len());
    for found in found.graphs {
        states.extend(graph(&found.subject).map(|watched| (watched, found.marker)));
    }
    for found in found.jobs {
        states.extend(job(&found.subject).map(|watched| (watched, found.marker)));
    }
    for found in found.agents {
        states.extend(agent(&found.subject).map(|watched| (watched, found.marker)));
    }
    Ok(states)
}
