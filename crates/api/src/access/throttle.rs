//! Throttling of sources that send unknown secrets, with bounded memory.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_core::Timestamp;

/// Unknown secrets per source and window.
const FAILURES_MAX: u32 = 20;
/// Unknown secrets of all sources per window.
const FAILURES_TOTAL_MAX: u32 = 1_000;
const WINDOW_SECS: i64 = 60;
/// Maximum number of sources with a counter of their own. Further sources only count towards the total.
const SOURCES_MAX: usize = 4_096;

/// Failures in the current window.
#[derive(Debug, Clone, Copy)]
struct Count {
    failures: u32,
    since: Timestamp,
}

impl Count {
    /// Remaining seconds of the window at `now`.
    fn remaining(self, now: Timestamp) -> i64 {
        // After the clock was set back, the wait must not exceed one window.
        (WINDOW_SECS - (now - self.since).num_seconds()).min(WINDOW_SECS)
    }
}

/// Failure counters per source and in total.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    counts: Mutex<FailureCounts>,
}

#[derive(Debug, Default)]
struct FailureCounts {
    total: Option<Count>,
    sources: HashMap<Option<IpAddr>, Count>,
}

/// Key of a source: the IPv4 address, or the /64 network of an IPv6 address, because one customer gets a whole /64.
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
    fn counts(&self) -> MutexGuard<'_, FailureCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the seconds that a source must wait, if it is throttled.
    pub(crate) fn wait(&self, source: Option<IpAddr>, now: Timestamp) -> Option<u32> {
        let counts = self.counts();
        let own = counts.sources.get(&network(source)).map(|count| (*count, FAILURES_MAX));
        let total = counts.total.map(|count| (count, FAILURES_TOTAL_MAX));
        let waits = [own, total].into_iter().flatten();
        let waits =
            waits.filter(|(count, max)| count.failures >= *max).map(|(count, _)| count.remaining(now));
        waits.filter(|left| *left > 0).max().and_then(|left| u32::try_from(left).ok())
    }

    pub(crate) fn failed(&self, source: Option<IpAddr>, now: Timestamp) {
        let mut counts = self.counts();
        count(counts.total.get_or_insert(Count { failures: 0, since: now }), now);
        let source = network(source);
        if !counts.sources.contains_key(&source) && counts.sources.len() >= SOURCES_MAX {
            counts.sources.retain(|_, count| count.remaining(now) > 0);
            if counts.sources.len() >= SOURCES_MAX {
                return;
            }
        }
        count(counts.sources.entry(source).or_insert(Count { failures: 0, since: now }), now);
    }
}

fn count(count: &mut Count, now: Timestamp) {
    if count.remaining(now) <= 0 {
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
    fn throttled_source_waits_for_its_window_and_others_do_not() {
        let throttle = Throttle::default();
        for _ in 0..FAILURES_MAX {
            assert_eq!(throttle.wait(Some(source(1)), at(0)), None);
            throttle.failed(Some(source(1)), at(0));
        }
        assert_eq!(throttle.wait(Some(source(1)), at(10)), Some(50));
        assert_eq!(throttle.wait(Some(source(2)), at(10)), None);
        assert_eq!(throttle.wait(Some(source(1)), at(60)), None);
        throttle.failed(Some(source(1)), at(60));
        assert_eq!(throttle.wait(Some(source(1)), at(60)), None, "a new window starts");
    }

    #[test]
    fn total_failures_throttle_all_sources_in_bounded_memory() {
        let throttle = Throttle::default();
        for number in 0..FAILURES_TOTAL_MAX {
            assert_eq!(throttle.wait(Some(source(number)), at(0)), None);
            throttle.failed(Some(source(number)), at(0));
        }
        assert_eq!(throttle.wait(Some(source(9_999_999)), at(0)), Some(60));
        for number in 0..5_000 {
            throttle.failed(Some(source(number)), at(0));
        }
        assert_eq!(throttle.counts().sources.len(), SOURCES_MAX);
        throttle.failed(Some(source(30_000)), at(61));
        assert_eq!(throttle.counts().sources.len(), 1, "counters of past windows are removed");
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_counter() {
        let throttle = Throttle::default();
        for number in 0..FAILURES_MAX {
            throttle.failed(format!("2001:db8::{number:x}").parse().ok(), at(0));
        }
        assert!(throttle.wait("2001:db8::ffff".parse().ok(), at(0)).is_some());
        assert_eq!(throttle.wait("2001:db8:1::1".parse().ok(), at(0)), None);
    }
}
