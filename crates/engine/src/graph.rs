//! Lane 2: graphs of jobs with dependencies, executed by agents.
//!
//! Only the controller changes the state of jobs, one transaction at a time, under a lease. Users and agents write
//! requests and reports, and mark the job as changed in the same commit. Agents only poll and report.

mod agents;
mod changes;
mod controller;
mod flags;
mod operate;
mod output_retention;
mod read;
mod reports;
mod reuse;
mod submit;
mod why;

pub use agents::ForgetMode;
pub use changes::{ChangeWatch, Watched};
pub use controller::{Controller, Draft, Pass, WriteOutcome};
pub use operate::GraphCancelOutcome;
pub use output_retention::OutputRetention;
pub use reports::{AgentIdentity, HeartbeatOutcome, TaskProgress, TaskReport};
pub use submit::{SubmitError, SubmitGraph, SubmitOutcome};
pub use tidemill_store::JobPage;

use crate::Engine;
use changes::ChangeWatcher;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::{Timestamp, limits};
use tidemill_store::AuditEntry;
use tokio::sync::watch;

/// Settings of the graph controller.
#[derive(Debug, Clone)]
pub struct GraphSettings {
    /// How long a controller may act without renewing its lease.
    pub lease: Duration,
    /// Time between two reads while jobs are live. Changes by other processes are found by polling.
    pub poll_every: Duration,
    /// Time between two reads while no job is live.
    pub poll_idle_every: Duration,
    /// Time between two full reads.
    pub pass: Duration,
    /// Jobs that are written in one transaction.
    pub batch: usize,
}

impl Default for GraphSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(limits::CONTROLLER_LEASE_SECS),
            poll_every: Duration::from_millis(50),
            poll_idle_every: Duration::from_secs(1),
            pass: Duration::from_secs(limits::CONTROLLER_PASS_SECS),
            batch: limits::CONTROLLER_BATCH,
        }
    }
}

/// Wake-ups for tasks of this process, sent after a commit. They only save time: every waiter also polls.
#[derive(Debug)]
pub(crate) struct Notifiers {
    controller: watch::Sender<u64>,
    agents: watch::Sender<u64>,
    changes: Arc<ChangeWatcher>,
}

impl Default for Notifiers {
    fn default() -> Self {
        Self { controller: watch::Sender::new(0), agents: watch::Sender::new(0), changes: Arc::default() }
    }
}

impl Notifiers {
    /// Reports a change to the controller.
    fn wake_controller(&self) {
        self.controller.send_modify(|count| *count += 1);
    }

    /// Reports new tasks to the agents.
    fn wake_agents(&self) {
        self.agents.send_modify(|count| *count += 1);
    }
}

/// The use cases of graphs on one store.
#[derive(Debug, Clone)]
pub struct Graphs {
    engine: Engine,
    settings: Arc<GraphSettings>,
}

impl Graphs {
    /// Creates the use cases on an engine.
    pub fn new(engine: Engine, settings: GraphSettings) -> Self {
        Self { engine, settings: Arc::new(settings) }
    }

    /// Returns the use cases of one call, see [`Engine::for_call`].
    #[must_use]
    pub fn for_call(&self, entry: Arc<AuditEntry>) -> Self {
        Self { engine: self.engine.for_call(entry), settings: self.settings.clone() }
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn settings(&self) -> &GraphSettings {
        &self.settings
    }

    fn now(&self) -> Option<Timestamp> {
        self.engine.clock().now()
    }

    fn notifiers(&self) -> &Notifiers {
        &self.engine.notifiers
    }
}

/// Makes a text storable in both databases: replaces NUL and truncates it to `bytes`.
fn clean(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "\u{FFFD}")
}
