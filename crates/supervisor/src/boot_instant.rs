//! A point in time that worker and supervisor can exchange: `CLOCK_BOOTTIME`, the same in every process.
//!
//! This clock also advances while the machine is suspended, because a lease expires during that time too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Time since the machine was booted.
///
/// It is comparable between processes of one machine, but not between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootInstant {
    nanos: u64,
}

impl BootInstant {
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Self { nanos: secs.saturating_mul(NANOS_PER_SEC).saturating_add(nanos) }
    }

    /// Returns the time `span` later, or the maximum if it overflows.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self { nanos: self.nanos.saturating_add(span) }
    }

    /// Returns the duration from this time to `later`, or zero if `later` is earlier.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.nanos.saturating_sub(self.nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_monotonic() {
        let first = BootInstant::now();
        assert!(first <= BootInstant::now());
    }

    #[test]
    fn until_returns_the_span_that_after_added() {
        let now = BootInstant::now();
        let later = now.after(Duration::from_millis(1500));
        assert_eq!(now.until(later), Duration::from_millis(1500));
        assert_eq!(later.until(now), Duration::ZERO);
    }

    #[test]
    fn after_maximum_span_saturates() {
        assert!(BootInstant::now().after(Duration::MAX) > BootInstant::now());
    }
}
