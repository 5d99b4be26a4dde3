//! How many pages a worker carries out at a time: as many as bring something.
//!
//! More pages help while the feed is what is waited for. Where pages wait for a connection to the database, another one
//! only makes all of them slower.

use super::PagerOptions;
use tidemill_store::Waits;

/// Calls of the database after which the waits among them are judged.
const JUDGED_CALLS: u64 = 64;
/// One in so many may wait before there are too many pages. One in four gave 3.3 ms for a page where one in ten gives
/// less than 3, and hardly more pages per second.
const CALLS_PER_WAIT: u64 = 10;
/// Judgements in a row without a crowd, after which one more page is tried than was too many before.
const CALM_MAX: u32 = 8;

/// The number of pages at a time.
#[derive(Debug)]
pub(super) struct Width {
    wanted: usize,
    min: usize,
    max: usize,
    /// As many as did not wait for each other.
    ceiling: usize,
    /// What was judged last.
    judged: Waits,
    /// Judgements at the ceiling since there was a crowd.
    calm: u32,
}

impl Width {
    pub(super) fn new(options: &PagerOptions, waits: Waits) -> Self {
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

    /// Learns from a look at the queue: `asked` for, `found`, and how many are at hand now.
    pub(super) fn learn(&mut self, asked: usize, found: usize, at_hand: usize, waits: Waits) {
        // What is at hand ends by itself; until then there is a crowd that was seen before.
        if self.is_crowded(waits) && at_hand <= self.wanted {
            self.ceiling = self.wanted.saturating_sub(1).max(self.min);
            self.wanted = self.ceiling;
            return;
        }
        self.wanted = match found {
            // As many as asked for: there is more.
            found if found > 0 && found == asked => (self.wanted * 2).min(self.ceiling),
            0 if at_hand < self.wanted => self.wanted.saturating_sub(1).max(self.min),
            _ => self.wanted,
        };
    }

    fn is_crowded(&mut self, waits: Waits) -> bool {
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
        Width::new(&options, Waits::default())
    }

    fn waits(calls: u64, waited: u64) -> Waits {
        Waits { calls, waited }
    }

    #[test]
    fn it_doubles_while_there_is_more_and_nobody_waits() {
        let mut width = width();
        let mut seen = vec![width.wanted()];
        for round in 1..=4 {
            let asked = width.wanted();
            width.learn(asked, asked, asked, waits(round * 100, 0));
            seen.push(width.wanted());
        }
        assert_eq!(seen, [1, 2, 4, 8, 8]);
    }

    #[test]
    fn it_shrinks_where_pages_wait_for_connections_and_comes_back_slowly() {
        let mut width = width();
        for _ in 0..3 {
            let asked = width.wanted();
            width.learn(asked, asked, asked, waits(0, 0));
        }
        width.learn(0, 0, 8, waits(100, 50));
        assert_eq!(width.wanted(), 7);
        width.learn(0, 0, 8, waits(200, 100));
        assert_eq!(width.wanted(), 7, "what is at hand has not ended yet");
        width.learn(0, 0, 7, waits(300, 150));
        assert_eq!(width.wanted(), 6);
        for round in 0..u64::from(CALM_MAX) {
            assert_eq!(width.wanted(), 6);
            width.learn(1, 1, 6, waits(400 + round * 100, 150));
        }
        assert_eq!(width.wanted(), 7);
    }

    #[test]
    fn what_was_learned_outlasts_an_empty_queue() {
        let mut width = width();
        for _ in 0..3 {
            let asked = width.wanted();
            width.learn(asked, asked, asked, waits(0, 0));
        }
        width.learn(0, 0, 8, waits(100, 50));
        for _ in 0..9 {
            width.learn(1, 0, 0, waits(100, 50));
        }
        assert_eq!(width.wanted(), 1);
        for _ in 0..4 {
            let asked = width.wanted();
            width.learn(asked, asked, asked, waits(100, 50));
        }
        assert_eq!(width.wanted(), 7);
    }

    #[test]
    fn it_never_falls_below_its_minimum_and_shrinks_with_an_empty_queue() {
        let mut width = width();
        width.learn(1, 1, 1, waits(0, 0));
        width.learn(2, 0, 0, waits(0, 0));
        assert_eq!(width.wanted(), 1);
        width.learn(1, 0, 0, waits(0, 0));
        width.learn(0, 0, 1, waits(1_000, 1_000));
        assert_eq!(width.wanted(), 1);
    }
}
