//! The clock. This is the only module that reads the host's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tidemill_core::Timestamp;
use uuid::Uuid;

/// Returns the host's time: for SQLite, for ids, and for display. Leases on PostgreSQL never use it.
#[expect(clippy::disallowed_methods, reason = "the only function that may read the host's clock")]
pub fn host_now() -> Timestamp {
    chrono::Utc::now()
}

/// Source of the time of a transaction.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The database's clock; on SQLite, which has none, the host's.
    #[default]
    Database,
    /// A clock that only tests advance, in microseconds.
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// Creates a clock that stays at `at` until it is advanced.
    pub fn fixed(at: Timestamp) -> Self {
        Self::Fixed(Arc::new(AtomicI64::new(at.timestamp_micros())))
    }

    /// Returns the time to bind as a parameter, or `None` if the database supplies it.
    pub fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Database => None,
            Self::Fixed(micros) => Timestamp::from_timestamp_micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Advances a fixed clock.
    pub fn advance(&self, by: chrono::Duration) {
        if let Self::Fixed(micros) = self {
            micros.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// Creates a run id. The time in it is only for sorting.
    pub fn run_id(&self) -> tidemill_core::RunId {
        tidemill_core::RunId::new(self.now().unwrap_or_else(host_now), Uuid::new_v4())
    }

    /// Creates the ids of a batch of runs, which sort by position.
    pub fn run_ids(&self, count: usize) -> Vec<tidemill_core::RunId> {
        let now = self.now().unwrap_or_else(host_now);
        (0..count).map(|position| tidemill_core::RunId::in_batch(now, position, Uuid::new_v4())).collect()
    }
}
