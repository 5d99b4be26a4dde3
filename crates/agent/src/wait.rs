//! Waiting before something is tried again: longer each time, and never in step with others.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// How long to wait, which doubles from time to time up to a bound.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self::up_to(LONGEST)
    }

    pub(crate) fn up_to(longest: Duration) -> Self {
        Self { next: FIRST.min(longest), longest }
    }

    /// The next wait, between a half and the whole of what is due.
    pub(crate) fn next(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.longest);
        due.mul_f64(fastrand::f64().mul_add(0.5, 0.5))
    }

    /// Begins anew.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST.min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_their_bound() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits[0] <= FIRST && waits[0] >= FIRST / 2);
        assert!(waits[19] <= LONGEST && waits[19] >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
