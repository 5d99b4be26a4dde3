//! What Tidemill does: one function per use case, one transaction each, and the loops that call them.
//!
//! A call whose answer was lost is asked again under the same id, and answered from what is there: see
//! [`patience`].

pub mod access;
pub mod alerts;
pub mod clock;
pub mod graph;
pub mod hooks;
pub mod patience;
mod presence;
mod runs;
mod schedules;
pub mod sync;
pub mod trace;
mod upkeep;
pub mod worker;
mod workers;

pub use clock::Clock;
pub use patience::Patience;
pub use presence::{Identity, Process};
pub use schedules::{NewSchedule, parse as parse_cron};
pub use upkeep::{Upkeep, Upkept};

use alerts::AlertSettings;
use std::sync::Arc;
use tidemill_store::Store;

/// The use cases, on one store.
#[derive(Debug, Clone)]
pub struct Engine {
    store: Store,
    clock: Clock,
    patience: Patience,
    alerts: Arc<AlertSettings>,
    /// Wakes whoever waits in this process for something of graphs.
    bells: Arc<graph::Bells>,
}

impl Engine {
    /// The use cases on `store`.
    pub fn new(store: Store, clock: Clock, patience: Patience) -> Self {
        Self { store, clock, patience, alerts: Arc::default(), bells: Arc::default() }
    }

    /// The store, for what is only read.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Who is told of what.
    pub fn alerts(&self) -> &AlertSettings {
        &self.alerts
    }

    /// The same use cases, for a process that tells these people.
    #[must_use]
    pub fn with_alerts(&self, alerts: AlertSettings) -> Self {
        Self { alerts: Arc::new(alerts), ..self.clone() }
    }

    /// The same use cases with another patience.
    #[must_use]
    pub fn with_patience(&self, patience: Patience) -> Self {
        Self { patience, ..self.clone() }
    }
}
