//! The supplier's clock: that of the machine, or a fixed time.

use std::sync::Mutex;
use tidemill_core::Timestamp;

/// Clock of the supplier.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Fixed time; `None` follows the clock of the machine.
    fixed: Mutex<Option<Timestamp>>,
}

impl Clock {
    /// Returns the current time, truncated to microseconds.
    #[expect(clippy::disallowed_methods, reason = "the supplier has its own clock")]
    pub(crate) fn now(&self) -> Timestamp {
        let now = crate::lock(&self.fixed).unwrap_or_else(chrono::Utc::now);
        from_micros(now.timestamp_micros())
    }

    /// Sets a fixed time; `None` follows the clock of the machine again.
    pub(crate) fn set(&self, time: Option<Timestamp>) {
        *crate::lock(&self.fixed) = time;
    }
}

/// Converts microseconds since 1970.
pub(crate) fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_timestamp_micros(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}
