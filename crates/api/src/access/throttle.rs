//! Whoever comes with secrets that nobody knows, again and again, has to wait. Bounded in memory, whoever comes.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_core::Timestamp;

/// Unknown secrets from one source within the window.
const FAILURES_MAX: u32 = 20;
/// Unknown secrets in all within the window.
const FAILURES_TOTAL_MAX: u32 = 1_000;
/// The window.
const WINDOW_SECS: i64 = 60;
/// Sources that are counted one by one. The others count in the total alone.
const SOURCES_MAX: usize = 4_096;

/// How often somebody failed, since the window began.
#[derive(Debug, Clone, Copy)]
struct Count {
    failures: u32,
    since: Timestamp,
}

impl Count {
    /// Seconds of its window that are left at `now`.
    fn left(self, now: Timestamp) -> i64 {
        // A clock that was set back must not make anybody wait for longer than a window.
        (WINDOW_SECS - (now - self.since).num_seconds()).min(WINDOW_SECS)
    }
}

/// Counts failures by source and in all.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    total: Option<Count>,
    sources: HashMap<Option<IpAddr>, Count>,
}

/// Where somebody comes from: an address, or the network that one customer gets where addresses are plenty.
fn network(source: Option<IpAddr>) -> Option<IpAddr> {
    source.map(|address| match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        short @ IpAddr::V4(_) => short,
    })
}

impl Throttle {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds to wait, where a source has to.
    pub(crate) fn wait(&self, source: Option<IpAddr>, now: Timestamp) -> Option<u32> {
        let book = self.book();
        let own = book.sources.get(&network(source)).map(|count| (*count, FAILURES_MAX));
        let total = book.total.map(|count| (count, FAILURES_TOTAL_MAX));
        let waits = [own, total].into_iter().flatten();
        let waits = waits.filter(|(count, max)| count.failures >= *max).map(|(count, _)| count.left(now));
        waits.filter(|left| *left > 0).max().and_then(|left| u32::try_from(left).ok())
    }

    /// Counts a failure.
    pub(crate) fn failed(&self, source: Option<IpAddr>, now: Timestamp) {
        let mut book = self.book();
        count(book.total.get_or_insert(Count { failures: 0, since: now }), now);
        let source = network(source);
        if !book.sources.contains_key(&source) && book.sources.len() >= SOURCES_MAX {
            book.sources.retain(|_, count| count.left(now) > 0);
            if book.sources.len() >= SOURCES_MAX {
                return;
            }
        }
        count(book.sources.entry(source).or_insert(Count { failures: 0, since: now }), now);
    }
}

fn count(count: &mut Count, now: Timestamp) {
    if count.left(now) <= 0 {
        *count = Count { failures: 0, since: now };
    }
    count.failures = count.failures.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_timestamp(1_000_000 + secs, 0).unwrap()
    }

    fn source(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn a_source_that_fails_too_often_waits_until_its_window_is_over_and_others_do_not() {
        let throttle = Throttle::default();
        for _ in 0..FAILURES_MAX {
            assert_eq!(throttle.wait(Some(source(1)), at(0)), None);
            throttle.failed(Some(source(1)), at(0));
        }
        assert_eq!(throttle.wait(Some(source(1)), at(10)), Some(50));
        assert_eq!(throttle.wait(Some(source(2)), at(10)), None);
        assert_eq!(throttle.wait(Some(source(1)), at(60)), None);
        throttle.failed(Some(source(1)), at(60));
        assert_eq!(throttle.wait(Some(source(1)), at(60)), None, "the count begins anew");
    }

    #[test]
    fn many_sources_together_wait_and_memory_does_not_grow() {
        let throttle = Throttle::default();
        for number in 0..FAILURES_TOTAL_MAX {
            assert_eq!(throttle.wait(Some(source(number)), at(0)), None);
            throttle.failed(Some(source(number)), at(0));
        }
        assert_eq!(throttle.wait(Some(source(9_999_999)), at(0)), Some(60));
        for number in 0..5_000 {
            throttle.failed(Some(source(number)), at(0));
        }
        assert_eq!(throttle.book().sources.len(), SOURCES_MAX);
        throttle.failed(Some(source(30_000)), at(61));
        assert_eq!(throttle.book().sources.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn the_addresses_of_one_network_count_together() {
        let throttle = Throttle::default();
        for number in 0..FAILURES_MAX {
            throttle.failed(format!("2001:db8::{number:x}").parse().ok(), at(0));
        }
        assert!(throttle.wait("2001:db8::ffff".parse().ok(), at(0)).is_some());
        assert_eq!(throttle.wait("2001:db8:1::1".parse().ok(), at(0)), None);
    }
}
