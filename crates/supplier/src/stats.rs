//! Counters of requests, and the processor time.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of concurrent operations, and its maximum.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicU64,
    max: AtomicU64,
}

/// Counts one operation until it is dropped.
pub(crate) struct GaugeGuard<'a>(&'a Gauge);

impl Gauge {
    pub(crate) fn enter(&self) -> GaugeGuard<'_> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.max.fetch_max(now, Ordering::Relaxed);
        GaugeGuard(self)
    }
}

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counters of the supplier.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) logins: Counter,
    pub(crate) counts: Counter,
    pub(crate) counting: Gauge,
    pub(crate) pages: Counter,
    pub(crate) lookups: Counter,
    pub(crate) stones: Counter,
    pub(crate) cached: Counter,
    pub(crate) compiled: Counter,
    pub(crate) failed: Counter,
    pub(crate) limited: Counter,
    pub(crate) changed: Counter,
}

/// Snapshot of the counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// All requests to the API.
    pub requests: u64,
    pub logins: u64,
    pub counts: u64,
    /// Maximum number of concurrent counts.
    pub counts_at_once: u64,
    pub pages: u64,
    /// Lookups of single stones by id.
    pub lookups: u64,
    /// Stones in all pages.
    pub stones: u64,
    /// Requests with a cached document.
    pub cached: u64,
    /// Requests whose document was compiled.
    pub compiled: u64,
    /// Requests with a configured failure.
    pub failed: u64,
    /// Requests beyond the rate limit.
    pub limited: u64,
    /// Number of changes of stones.
    pub changed: u64,
    /// Processor time of the whole process.
    pub cpu_seconds: f64,
}

impl Counters {
    pub(crate) fn read(&self) -> Stats {
        Stats {
            requests: self.requests.get(),
            logins: self.logins.get(),
            counts: self.counts.get(),
            counts_at_once: self.counting.max.load(Ordering::Relaxed),
            pages: self.pages.get(),
            lookups: self.lookups.get(),
            stones: self.stones.get(),
            cached: self.cached.get(),
            compiled: self.compiled.get(),
            failed: self.failed.get(),
            limited: self.limited.get(),
            changed: self.changed.get(),
            cpu_seconds: cpu_seconds(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "precise enough for seconds")]
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
