//! The use cases of Tidemill: one function and one transaction each, and the background loops that call them.
//!
//! If the answer to a call is lost, the call is repeated with the same id and returns the recorded result: see
//! [`retry_policy`].

pub mod access;
pub mod alerts;
pub mod clock;
pub mod graph;
pub mod hooks;
mod presence;
pub mod retry_policy;
mod runs;
mod schedules;
pub mod sync;
pub mod trace;
mod transition_counts;
mod upkeep;
pub mod worker;
mod workers;

pub use clock::Clock;
pub use presence::{Identity, Process};
pub use retry_policy::RetryPolicy;
pub use schedules::{NewSchedule, parse as parse_cron};
pub use transition_counts::count_end;
pub use upkeep::{Upkeep, UpkeepReport};

use alerts::AlertSettings;
use std::sync::Arc;
use tidemill_core::reach::Reach;
use tidemill_store::{AuditEntry, Store};

/// The use cases on one store.
#[derive(Debug, Clone)]
pub struct Engine {
    store: Store,
    clock: Clock,
    retry_policy: RetryPolicy,
    alerts: Arc<AlertSettings>,
    /// Lists of everything that definitions of projects may use outside the database.
    reach: Arc<Reach>,
    /// Wakes tasks of this process that wait for changes of graphs.
    notifiers: Arc<graph::Notifiers>,
}

impl Engine {
    /// Creates the use cases on `store`.
    pub fn new(store: Store, clock: Clock, retry_policy: RetryPolicy) -> Self {
        Self {
            store,
            clock,
            retry_policy,
            alerts: Arc::default(),
            reach: Arc::default(),
            notifiers: Arc::default(),
        }
    }

    /// Returns the store, for reads.
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the alert targets and thresholds.
    pub fn alerts(&self) -> &AlertSettings {
        &self.alerts
    }

    /// Returns a copy with these alert settings.
    #[must_use]
    pub fn with_alerts(&self, alerts: AlertSettings) -> Self {
        Self { alerts: Arc::new(alerts), ..self.clone() }
    }

    /// Returns the use cases of one call: its first transaction that changes something also writes the audit entry.
    #[must_use]
    pub fn for_call(&self, entry: Arc<AuditEntry>) -> Self {
        Self { store: self.store.for_call(entry), ..self.clone() }
    }

    /// Returns the lists of what projects may use outside the database.
    pub fn reach(&self) -> &Arc<Reach> {
        &self.reach
    }

    /// Returns a copy with these lists.
    #[must_use]
    pub fn with_reach(&self, reach: Reach) -> Self {
        Self { reach: Arc::new(reach), ..self.clone() }
    }

    /// Returns a copy with another retry policy.
    #[must_use]
    pub fn with_retry_policy(&self, retry_policy: RetryPolicy) -> Self {
        Self { retry_policy, ..self.clone() }
    }
}
