//! A moment that worker and supervisor understand alike: one clock of the machine, the same in every process.
//!
//! The clock counts the time during which the machine was suspended, since a lease runs out during that time too.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A moment on the clock of this machine, counted from its start.
///
/// It means the same in every process of the machine, and nothing on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment {
    nanos: u64,
}

impl Moment {
    /// The present moment.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Self { nanos: secs.saturating_mul(NANOS_PER_SEC).saturating_add(nanos) }
    }

    /// The moment that is `span` later; the end of time if it does not fit.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self { nanos: self.nanos.saturating_add(span) }
    }

    /// How long it is from this moment until `later`; zero where `later` has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.nanos.saturating_sub(self.nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let first = Moment::now();
        assert!(first <= Moment::now());
    }

    #[test]
    fn a_span_leads_there_and_is_measured_back() {
        let now = Moment::now();
        let later = now.after(Duration::from_millis(1500));
        assert_eq!(now.until(later), Duration::from_millis(1500));
        assert_eq!(later.until(now), Duration::ZERO);
    }

    #[test]
    fn a_span_without_end_does_not_overflow() {
        assert!(Moment::now().after(Duration::MAX) > Moment::now());
    }
}
