//! The only place that reads the host's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tidemill_core::Timestamp;
use uuid::Uuid;

/// The host's time. For SQLite, for ids, and for showing times to people; never to judge a lease on PostgreSQL.
#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
pub fn host_now() -> Timestamp {
    chrono::Utc::now()
}

/// Where the time of a step comes from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The database's own clock; on SQLite, which has none, the host's.
    #[default]
    Database,
    /// A clock that a test moves, in microseconds.
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `at` until it is moved.
    pub fn fixed(at: Timestamp) -> Self {
        Self::Fixed(Arc::new(AtomicI64::new(at.timestamp_micros())))
    }

    /// The time to bind, or `None` to let the database tell it.
    pub fn now(&self) -> Option<Timestamp> {
        match self {
            Self::Database => None,
            Self::Fixed(micros) => Timestamp::from_timestamp_micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Moves a fixed clock forward.
    pub fn advance(&self, by: chrono::Duration) {
        if let Self::Fixed(micros) = self {
            micros.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }

    /// A new run id. Its time only sorts; it decides nothing.
    pub fn run_id(&self) -> tidemill_core::RunId {
        tidemill_core::RunId::new(self.now().unwrap_or_else(host_now), Uuid::new_v4())
    }
}
