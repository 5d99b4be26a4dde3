//! Queue for look-ups of secrets that this process has not seen before.
//!
//! Secrets have 256 random bits, so guessing them is hopeless; the queue only protects the database. It refuses none:
//! a valid secret gets its look-up even while others send invalid ones. Each source has one look-up at a time, and all
//! sources take turns, so a source waits for its own requests and for one of each other source. A look-up that finds
//! nothing keeps its turn for a moment, which limits their rate.
//!
//! Each waiting request has a connection of its own, so the limits of connections bound the queue.

use crate::server::Source;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Concurrent look-ups. The other database connections stay free for requests of known callers.
const LOOKUPS_MAX: usize = 2;
/// Time for which a look-up without a result keeps its turn.
const FAILURE_TIME: Duration = Duration::from_millis(2);
/// Interval between log lines about unknown secrets.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Whether a look-up found a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    Found,
    Unknown,
}

/// Queue of look-ups. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LookupQueue {
    inner: Arc<Inner>,
}

struct Inner {
    turns: Arc<Semaphore>,
    sources: Mutex<HashMap<Source, SourceQueue>>,
    unlogged: Mutex<UnloggedFailures>,
}

/// Requests of one source.
struct SourceQueue {
    turn: Arc<Semaphore>,
    waiting: usize,
}

/// Failures since the last log line.
#[derive(Default)]
struct UnloggedFailures {
    count: u64,
    logged_at: Option<Instant>,
}

impl Default for LookupQueue {
    fn default() -> Self {
        let inner = Inner {
            turns: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            sources: Mutex::default(),
            unlogged: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

impl LookupQueue {
    /// Executes a look-up when it is its turn. It is completed even if the caller is dropped, so that clients that
    /// disconnect do not get more turns.
    pub(super) async fn run<T, F>(&self, source: Source, lookup: F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = (T, Lookup)> + Send + 'static,
    {
        let turn = self.turn(source).await?;
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let (found, outcome) = lookup.await;
            if outcome == Lookup::Unknown {
                tokio::time::sleep_until(began + FAILURE_TIME).await;
            }
            drop(turn);
            found
        });
        task.await.ok()
    }

    async fn turn(&self, source: Source) -> Option<Turn> {
        let place = Place::join(&self.inner, source);
        let own = place.turn.clone().acquire_owned().await.ok()?;
        let shared = self.inner.turns.clone().acquire_owned().await.ok()?;
        Some(Turn { _permits: [own, shared], _place: place })
    }

    /// Counts an unknown or malformed secret, and logs a line at most once per interval.
    pub(super) fn failed(&self, source: Source) {
        metrics::counter!("tidemill_http_refused_total", "why" => "unknown_token").increment(1);
        let mut unlogged = self.inner.unlogged.lock().unwrap_or_else(PoisonError::into_inner);
        unlogged.count += 1;
        if unlogged.logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            let count = std::mem::take(&mut unlogged.count);
            unlogged.logged_at = Some(Instant::now());
            let message = "request with an unknown token or session";
            tracing::warn!(source = %source, "{message}; {count} since the last such line");
        }
    }
}

/// Turn of one look-up.
struct Turn {
    _permits: [OwnedSemaphorePermit; 2],
    _place: Place,
}

/// A request in the queue of its source; removed on drop.
struct Place {
    inner: Arc<Inner>,
    source: Source,
    turn: Arc<Semaphore>,
}

impl Place {
    fn join(inner: &Arc<Inner>, source: Source) -> Self {
        let mut sources = sources(inner);
        let queue = sources
            .entry(source)
            .or_insert_with(|| SourceQueue { turn: Arc::new(Semaphore::new(1)), waiting: 0 });
        queue.waiting += 1;
        Self { inner: inner.clone(), source, turn: queue.turn.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut sources = sources(&self.inner);
        if let Some(queue) = sources.get_mut(&self.source) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                sources.remove(&self.source);
            }
        }
    }
}

fn sources(inner: &Inner) -> MutexGuard<'_, HashMap<Source, SourceQueue>> {
    // The map is valid after every statement, so a poisoned lock can be used.
    inner.sources.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn source(number: u32) -> Source {
        Source::new(Some(std::net::IpAddr::V4(number.into())))
    }

    #[tokio::test]
    async fn look_ups_of_one_source_wait_for_each_other() {
        let (queue, running, most) =
            (LookupQueue::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let look_ups = (0..50).map(|number| {
            let (queue, running, most) = (queue.clone(), running.clone(), most.clone());
            tokio::spawn(async move {
                let lookup = async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    ((), Lookup::Found)
                };
                queue.run(source(number % 5), lookup).await
            })
        });
        for look_up in look_ups.collect::<Vec<_>>() {
            assert_eq!(look_up.await.unwrap(), Some(()));
        }
        assert!(most.load(Ordering::SeqCst) <= LOOKUPS_MAX);
        assert!(sources(&queue.inner).is_empty(), "sources without requests are not stored");
    }

    #[tokio::test(start_paused = true)]
    async fn other_source_waits_for_one_look_up_of_a_flood() {
        let (queue, done) = (LookupQueue::default(), Arc::new(AtomicUsize::new(0)));
        let mut flood = Vec::new();
        for _ in 0..1_000 {
            let (queue, done) = (queue.clone(), done.clone());
            flood.push(tokio::spawn(async move {
                queue.run(source(1), async { ((), Lookup::Unknown) }).await;
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        tokio::task::yield_now().await;
        queue.run(source(2), async { ((), Lookup::Found) }).await;
        assert!(done.load(Ordering::SeqCst) <= 2, "{done:?}");
        let began = Instant::now();
        queue.run(source(1), async { ((), Lookup::Found) }).await;
        assert!(began.elapsed() <= FAILURE_TIME * 1_100, "{:?}", began.elapsed());
        for one in flood {
            one.await.unwrap();
        }
    }
}
