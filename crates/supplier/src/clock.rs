//! The supplier's clock: the machine's, or one that tests set.

use std::sync::Mutex;
use tidemill_core::Timestamp;

/// Tells the supplier's time.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The time that was set; the machine's without one.
    set: Mutex<Option<Timestamp>>,
}

impl Clock {
    /// Now, to the microsecond.
    #[expect(clippy::disallowed_methods, reason = "a supplier has its own clock, as a real one has")]
    pub(crate) fn now(&self) -> Timestamp {
        let now = crate::lock(&self.set).unwrap_or_else(chrono::Utc::now);
        from_micros(now.timestamp_micros())
    }

    /// Stops the clock at a time, or lets it follow the machine's again.
    pub(crate) fn set(&self, time: Option<Timestamp>) {
        *crate::lock(&self.set) = time;
    }
}

/// The moment that is so many microseconds after 1970.
pub(crate) fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_timestamp_micros(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}
