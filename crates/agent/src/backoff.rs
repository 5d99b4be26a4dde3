//! Exponential back-off with jitter for retries.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// Delay before a retry, which doubles up to a maximum.
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

    /// Returns the next delay: a random duration between half of the current value and the full value.
    pub(crate) fn next(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.longest);
        due.mul_f64(fastrand::f64().mul_add(0.5, 0.5))
    }

    pub(crate) fn reset(&mut self) {
        self.next = FIRST.min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_maximum() {
        let mut backoff = Backoff::new();
        let waits: Vec<Duration> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits[0] <= FIRST && waits[0] >= FIRST / 2);
        assert!(waits[19] <= LONGEST && waits[19] >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
