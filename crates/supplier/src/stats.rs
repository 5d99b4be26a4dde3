//! What was asked of the supplier, and what it cost.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something are under way, and the most that ever were.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicU64,
    most: AtomicU64,
}

/// One more that is under way, for as long as this is held.
pub(crate) struct Within<'a>(&'a Gauge);

impl Gauge {
    /// Begins one.
    pub(crate) fn enter(&self) -> Within<'_> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Within(self)
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The running counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) logins: Counter,
    pub(crate) counts: Counter,
    pub(crate) counting: Gauge,
    pub(crate) pages: Counter,
    pub(crate) lookups: Counter,
    pub(crate) stones: Counter,
    pub(crate) fast: Counter,
    pub(crate) general: Counter,
    pub(crate) failed: Counter,
    pub(crate) limited: Counter,
    pub(crate) changed: Counter,
}

/// What was asked of the supplier so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Requests to the API, of every kind and outcome.
    pub requests: u64,
    /// Tokens given.
    pub logins: u64,
    /// Counts answered.
    pub counts: u64,
    /// The most counts that were under way at a time.
    pub counts_at_once: u64,
    /// Pages answered.
    pub pages: u64,
    /// Stones asked for by id, one at a time.
    pub lookups: u64,
    /// Stones in all pages.
    pub stones: u64,
    /// Requests that were answered from prepared texts.
    pub fast: u64,
    /// Requests that went through the general executor.
    pub general: u64,
    /// Requests that failed because they were told to.
    pub failed: u64,
    /// Requests beyond the rate limit.
    pub limited: u64,
    /// Changes of stones, by order and by themselves.
    pub changed: u64,
    /// The processor time of the whole process, in seconds.
    pub cpu_seconds: f64,
}

impl Counters {
    /// The counters at this moment.
    pub(crate) fn read(&self) -> Stats {
        Stats {
            requests: self.requests.get(),
            logins: self.logins.get(),
            counts: self.counts.get(),
            counts_at_once: self.counting.most.load(Ordering::Relaxed),
            pages: self.pages.get(),
            lookups: self.lookups.get(),
            stones: self.stones.get(),
            fast: self.fast.get(),
            general: self.general.get(),
            failed: self.failed.get(),
            limited: self.limited.get(),
            changed: self.changed.get(),
            cpu_seconds: cpu_seconds(),
        }
    }
}

/// The processor time that this process has used.
#[expect(clippy::cast_precision_loss, reason = "seconds, for people")]
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
