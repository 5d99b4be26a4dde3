//! Number of pages that a worker executes concurrently.
//!
//! More pages help while they wait for the feed. If pages wait for a database connection, another page only slows
//! down all of them.

use super::PagerOptions;
use tidemill_store::PoolWaits;

/// Number of database calls after which the share of waits is evaluated.
const JUDGED_CALLS: u64 = 64;
/// At most one in this many calls may wait. With one in four, a page took 3.3 ms; with one in ten, less than 3 ms, at
/// hardly fewer pages per second.
const CALLS_PER_WAIT: u64 = 10;
/// Consecutive evaluations without contention after which the ceiling is raised by one.
const CALM_MAX: u32 = 8;

/// The number of concurrent pages.
#[derive(Debug)]
pub(super) struct Width {
    wanted: usize,
    min: usize,
    max: usize,
    /// The largest number without contention.
    ceiling: usize,
    /// Counters at the last evaluation.
    judged: PoolWaits,
    /// Evaluations at the ceiling since the last contention.
    calm: u32,
}

impl Width {
    pub(super) fn new(options: &PagerOptions, waits: PoolWaits) -> Self {
        let min = options.pages_min.max(1);
        let max = options.pages_max.max(min);
        Self { wanted: min, min, max, ceiling: max, judged: waits, calm: 0 }
    }

    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Adapts to a read of the queue: pages `requested` for, pages `found`, and running pages.
    pub(super) fn learn(&mut self, requested: usize, found: usize, running: usize, waits: PoolWaits) {
        // While more pages run than wanted, the contention still comes from the earlier width.
        if self.is_crowded(waits) && running <= self.wanted {
            self.ceiling = self.wanted.saturating_sub(1).max(self.min);
            self.wanted = self.ceiling;
            return;
        }
        self.wanted = match found {
            // As many as requested for, so there are more.
            found if found > 0 && found == requested => (self.wanted * 2).min(self.ceiling),
            0 if running < self.wanted => self.wanted.saturating_sub(1).max(self.min),
            _ => self.wanted,
        };
    }

    fn is_crowded(&mut self, waits: PoolWaits) -> bool {
        let calls = waits.calls.saturating_sub(self.judged.calls);
        if calls < JUDGED_CALLS {
            return false;
        }
        let waited = waits.waited.saturating_sub(self.judged.waited);
        self.judged = waits;
        let is_crowded = waited * CALLS_PER_WAIT > calls;
        self.calm = if is_crowded || self.wanted < self.ceiling { 0 } else { self.calm + 1 };
        if self.calm >= CALM_MAX {
            self.calm = 0;
            self.ceiling = (self.ceiling + 1).min(self.max);
        }
        is_crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width() -> Width {
        let options = PagerOptions { pages_min: 1, pages_max: 8, once: false };
        Width::new(&options, PoolWaits::default())
    }

    fn waits(calls: u64, waited: u64) -> PoolWaits {
        PoolWaits { calls, waited }
    }

    #[test]
    fn width_doubles_while_pages_are_found_without_waits() {
        let mut width = width();
        let mut widths = vec![width.wanted()];
        for round in 1..=4 {
            let requested = width.wanted();
            width.learn(requested, requested, requested, waits(round * 100, 0));
            widths.push(width.wanted());
        }
        assert_eq!(widths, [1, 2, 4, 8, 8]);
    }

    #[test]
    fn width_shrinks_on_connection_waits_and_recovers_slowly() {
        let mut width = width();
        for _ in 0..3 {
            let requested = width.wanted();
            width.learn(requested, requested, requested, waits(0, 0));
        }
        width.learn(0, 0, 8, waits(100, 50));
        assert_eq!(width.wanted(), 7);
        width.learn(0, 0, 8, waits(200, 100));
        assert_eq!(width.wanted(), 7, "the running pages have not ended yet");
        width.learn(0, 0, 7, waits(300, 150));
        assert_eq!(width.wanted(), 6);
        for round in 0..u64::from(CALM_MAX) {
            assert_eq!(width.wanted(), 6);
            width.learn(1, 1, 6, waits(400 + round * 100, 150));
        }
        assert_eq!(width.wanted(), 7);
    }

    #[test]
    fn learned_ceiling_outlasts_an_empty_queue() {
        let mut width = width();
        for _ in 0..3 {
            let requested = width.wanted();
            width.learn(requested, requested, requested, waits(0, 0));
        }
        width.learn(0, 0, 8, waits(100, 50));
        for _ in 0..9 {
            width.learn(1, 0, 0, waits(100, 50));
        }
        assert_eq!(width.wanted(), 1);
        for _ in 0..4 {
            let requested = width.wanted();
            width.learn(requested, requested, requested, waits(100, 50));
        }
        assert_eq!(width.wanted(), 7);
    }

    #[test]
    fn width_shrinks_with_an_empty_queue_down_to_its_minimum() {
        let mut width = width();
        width.learn(1, 1, 1, waits(0, 0));
        width.learn(2, 0, 0, waits(0, 0));
        assert_eq!(width.wanted(), 1);
        width.learn(1, 0, 0, waits(0, 0));
        width.learn(0, 0, 1, waits(1_000, 1_000));
        assert_eq!(width.wanted(), 1);
    }
}
