//! What Tidemill does: one function per use case, one transaction each, and the loops that call them.
//!
//! A call whose answer was lost is asked again under the same id, and answered from what is there: see [`patience`].

pub mod access;
pub mod clock;
pub mod patience;
mod presence;
mod runs;
mod schedules;
pub mod sync;
pub mod trace;
mod upkeep;
pub mod worker;

pub use clock::Clock;
pub use patience::Patience;
pub use presence::Identity;
pub use schedules::NewSchedule;
pub use upkeep::{Upkeep, Upkept};

use tidemill_store::Store;

/// The use cases, on one store.
#[derive(Debug, Clone)]
pub struct Engine {
    store: Store,
    clock: Clock,
    patience: Patience,
}

impl Engine {
    /// The use cases on `store`.
    pub fn new(store: Store, clock: Clock, patience: Patience) -> Self {
        Self { store, clock, patience }
    }

    /// The store, for what is only read.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The same use cases with another patience.
    #[must_use]
    pub fn with_patience(&self, patience: Patience) -> Self {
        Self { patience, ..self.clone() }
    }
}
