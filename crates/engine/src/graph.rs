//! Lane 2: jobs with dependencies, carried out by agents.
//!
//! A controller is the only one that changes the state of jobs, one step at a time, under a lease. People and
//! agents write what is theirs to say, and name the job to the controller in the same commit. Agents only ask and
//! report.

mod agents;
mod controller;
mod flags;
mod kept;
mod operate;
mod read;
mod reports;
mod reuse;
mod submit;
mod why;

pub use agents::Forget;
pub use controller::{Controller, Draft, Pass, Written};
pub use kept::Kept;
pub use operate::CancelledGraph;
pub use reports::{Beaten, Holding, Speaker, TaskReport};
pub use submit::{SubmitFault, SubmitGraph, Submitted};
pub use tidemill_store::JobPage;

use crate::Engine;
use std::sync::Arc;
use std::time::Duration;
use tidemill_core::{Timestamp, limits};
use tokio::sync::watch;

/// How graphs are controlled.
#[derive(Debug, Clone)]
pub struct GraphSettings {
    /// How long a controller acts without renewing its lease.
    pub lease: Duration,
    /// Time between two looks while jobs are live: what other processes wrote is found by looking.
    pub look: Duration,
    /// Time between two looks while none is.
    pub look_idle: Duration,
    /// Time between two passes over everything.
    pub pass: Duration,
    /// Jobs that are written in one step.
    pub batch: usize,
}

impl Default for GraphSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(limits::CONTROLLER_LEASE_SECS),
            look: Duration::from_millis(50),
            look_idle: Duration::from_secs(1),
            pass: Duration::from_secs(limits::CONTROLLER_PASS_SECS),
            batch: limits::CONTROLLER_BATCH,
        }
    }
}

/// Rung after a commit, so that whoever waits in this process looks at once. Nothing depends on them.
#[derive(Debug)]
pub(crate) struct Bells {
    controller: watch::Sender<u64>,
    agents: watch::Sender<u64>,
}

impl Default for Bells {
    fn default() -> Self {
        Self { controller: watch::Sender::new(0), agents: watch::Sender::new(0) }
    }
}

impl Bells {
    /// Something was named to the controller.
    fn ring_controller(&self) {
        self.controller.send_modify(|count| *count += 1);
    }

    /// Orders were given.
    fn ring_agents(&self) {
        self.agents.send_modify(|count| *count += 1);
    }
}

/// The use cases of graphs, on one store. Those of one engine wake each other.
#[derive(Debug, Clone)]
pub struct Graphs {
    engine: Engine,
    settings: Arc<GraphSettings>,
}

impl Graphs {
    /// The use cases on an engine.
    pub fn new(engine: Engine, settings: GraphSettings) -> Self {
        Self { engine, settings: Arc::new(settings) }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How graphs are controlled.
    pub fn settings(&self) -> &GraphSettings {
        &self.settings
    }

    fn now(&self) -> Option<Timestamp> {
        self.engine.clock().now()
    }

    fn bells(&self) -> &Bells {
        &self.engine.bells
    }
}

/// A text that both databases can keep: without NUL, and cut to a length.
fn clean(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', "\u{FFFD}")
}
