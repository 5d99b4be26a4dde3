//! Supervises the background loops of a process.
//!
//! A loop is a sequence of passes. A pass that returns an error or panics is logged and counted, and the next pass
//! starts after a back-off. No other loop is affected. The monitor knows which loops fail, since when and why, for
//! `/readyz`, `tidemill doctor` and `/metrics`.
//!
//! Isolation needs unwinding: no profile of the workspace may set `panic = "abort"`.

use crate::{Error, chain};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Wait after the first failed pass.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
/// Longest wait after a failed pass, unless the loop sets another.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Time after which a pass that never returns counts as healthy.
const LONG_PASS_HEALTHY_AFTER: Duration = Duration::from_secs(10);
/// Maximum length of a stored error in characters.
const ERROR_CHARS_MAX: usize = 500;

/// The message of a panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic(String);

impl Panic {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&'static str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(truncate(text.unwrap_or("no message")))
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.0)
    }
}

impl std::error::Error for Panic {}

/// Runs a function and returns its panic, if it panics, as an error.
pub fn catch_panic_in<T>(function: impl FnOnce() -> T) -> Result<T, Panic> {
    // Callers drop or re-read the data that the function was changing.
    catch_unwind(AssertUnwindSafe(function)).map_err(|payload| Panic::new(payload.as_ref()))
}

/// Runs a future and returns its panic, if it panics, as an error.
pub async fn catch_panic<F: Future>(future: F) -> Result<F::Output, Panic> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_panic_in(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// The reason why a pass failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopError {
    /// Description without user data, safe to show to callers without a token.
    pub summary: String,
    /// The error with all of its causes, for the log and for privileged callers.
    pub detail: String,
}

impl LoopError {
    /// Returns an error whose text contains no user data.
    pub fn new(summary: impl Into<String>) -> Self {
        let summary = summary.into();
        Self { detail: summary.clone(), summary }
    }
}

impl From<Error> for LoopError {
    fn from(error: Error) -> Self {
        Self { summary: error.summary(), detail: truncate(&chain(&error)) }
    }
}

impl From<Panic> for LoopError {
    fn from(panic: Panic) -> Self {
        Self { summary: "panicked; the log has the message".to_owned(), detail: panic.to_string() }
    }
}

/// The next action of a loop after a successful pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Starts the next pass after this time.
    After(Duration),
    End,
}

/// Supervision options of a loop.
#[derive(Debug, Clone, Copy)]
pub struct LoopOptions {
    name: &'static str,
    first_after: Duration,
    backoff_max: Duration,
    is_long: bool,
}

impl LoopOptions {
    /// Returns options for a loop. The name is a metric label, so it must be constant.
    pub const fn new(name: &'static str) -> Self {
        Self { name, first_after: Duration::ZERO, backoff_max: BACKOFF_MAX, is_long: false }
    }

    /// Sets the wait before the first pass.
    #[must_use]
    pub const fn first_after(self, first_after: Duration) -> Self {
        Self { first_after, ..self }
    }

    /// Sets the longest wait after a failed pass.
    #[must_use]
    pub const fn backoff_max(self, backoff_max: Duration) -> Self {
        Self { backoff_max, ..self }
    }

    /// Declares that one pass lasts as long as the process. It counts as healthy once it has run for a while.
    #[must_use]
    pub const fn long_pass(self) -> Self {
        Self { is_long: true, ..self }
    }

    /// Returns the wait after this many consecutive failures, with jitter so that processes do not retry in step.
    fn backoff(&self, failures: u32) -> Duration {
        let doubled = BACKOFF_FIRST.saturating_mul(1_u32 << failures.saturating_sub(1).min(20));
        let random = u32::try_from(RandomState::new().hash_one(0) % 1_000).unwrap_or(0);
        let longest = doubled.min(self.backoff_max);
        longest / 2 + longest / 2 * random / 1_000
    }
}

/// The state of one loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopState {
    pub name: &'static str,
    /// Number of restarts after a failure.
    pub restarts: u64,
    /// Failure from which it has not recovered.
    pub failure: Option<LoopFailure>,
}

/// A failure that the loop has not recovered from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFailure {
    /// Time since the first failed pass.
    pub lasts: Duration,
    pub error: LoopError,
}

/// Supervises the loops of one process and knows their states; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct TaskMonitor {
    loops: Arc<Mutex<Registry>>,
}

#[derive(Debug, Default)]
struct Registry {
    next_id: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    restarts: u64,
    failures: u32,
    failure: Option<(Instant, LoopError)>,
}

impl TaskMonitor {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the loops of this process, by name. Several loops with one name are listed separately.
    pub fn loops(&self) -> Vec<LoopState> {
        let registry = self.registry();
        let mut loops: Vec<LoopState> = registry.entries.values().map(Entry::state).collect();
        loops.sort_by_key(|state| state.name);
        loops
    }

    /// Registers a loop. It is listed until the handle is dropped.
    pub fn register(&self, name: &'static str) -> LoopHandle {
        let mut registry = self.registry();
        let id = registry.next_id;
        registry.next_id += 1;
        registry.entries.insert(id, Entry { name, restarts: 0, failures: 0, failure: None });
        drop(registry);
        // The series exist from the start: an alert on a rate needs the zero before the first failure.
        metrics::counter!("tidemill_loop_restarts_total", "loop" => name).increment(0);
        let handle = LoopHandle { monitor: self.clone(), id, name };
        handle.count_failing();
        handle
    }

    /// Runs passes until one ends the loop. Spawn it, or await it next to other work.
    pub async fn run<F>(self, options: LoopOptions, mut pass: impl FnMut() -> F)
    where
        F: Future<Output = Result<Next, LoopError>>,
    {
        let handle = self.register(options.name);
        tokio::time::sleep(options.first_after).await;
        loop {
            let running = catch_panic(async { pass().await });
            let done = if options.is_long { handle.healthy_when_long(running).await } else { running.await };
            let wait = match done {
                Ok(Ok(Next::End)) => return,
                Ok(Ok(Next::After(wait))) => {
                    handle.succeeded();
                    wait
                }
                Ok(Err(error)) => options.backoff(handle.failed(error)),
                Err(panic) => options.backoff(handle.failed(panic.into())),
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs a loop in a task of its own.
    pub fn spawn<F>(&self, options: LoopOptions, pass: impl FnMut() -> F + Send + 'static) -> JoinHandle<()>
    where
        F: Future<Output = Result<Next, LoopError>> + Send + 'static,
    {
        tokio::spawn(self.clone().run(options, pass))
    }
}

impl Entry {
    fn state(&self) -> LoopState {
        let failure = self.failure.as_ref();
        let failure =
            failure.map(|(since, error)| LoopFailure { lasts: since.elapsed(), error: error.clone() });
        LoopState { name: self.name, restarts: self.restarts, failure }
    }
}

/// Reports the state of one loop to the monitor. The loop is unregistered when the handle is dropped.
#[derive(Debug)]
pub struct LoopHandle {
    monitor: TaskMonitor,
    id: u64,
    name: &'static str,
}

impl LoopHandle {
    /// Records a successful pass.
    pub fn succeeded(&self) {
        let ended = self.monitor.registry().entries.get_mut(&self.id).and_then(|entry| {
            entry.failures = 0;
            entry.failure.take()
        });
        if let Some((since, _)) = ended {
            tracing::info!("loop {} recovered after {} s", self.name, since.elapsed().as_secs());
            self.count_failing();
        }
    }

    /// Records a failed pass; returns the number of consecutive failures.
    pub fn failed(&self, error: LoopError) -> u32 {
        let mut registry = self.monitor.registry();
        let Some(entry) = registry.entries.get_mut(&self.id) else { return 1 };
        entry.restarts += 1;
        entry.failures = entry.failures.saturating_add(1);
        let failures = entry.failures;
        let before = entry.failure.take();
        // A lasting error is logged once, because a process without a privilege would fail in every pass.
        let is_new = before.as_ref().is_none_or(|(_, last)| *last != error);
        let detail = is_new.then(|| error.detail.clone());
        entry.failure = Some((before.map_or_else(Instant::now, |(since, _)| since), error));
        drop(registry);
        if let Some(detail) = detail {
            tracing::error!("loop {} failed and is restarted with back-off: {detail}", self.name);
        }
        metrics::counter!("tidemill_loop_restarts_total", "loop" => self.name).increment(1);
        self.count_failing();
        failures
    }

    /// Awaits a pass that lasts as long as the process, and records success once it counts as healthy.
    async fn healthy_when_long<F: Future>(&self, pass: F) -> F::Output {
        let mut pass = pin!(pass);
        if let Ok(done) = tokio::time::timeout(LONG_PASS_HEALTHY_AFTER, &mut pass).await {
            return done;
        }
        self.succeeded();
        pass.await
    }

    fn count_failing(&self) {
        let registry = self.monitor.registry();
        let same = registry.entries.values().filter(|entry| entry.name == self.name);
        let failing = u32::try_from(same.filter(|entry| entry.failure.is_some()).count()).unwrap_or(u32::MAX);
        metrics::gauge!("tidemill_loops_failing", "loop" => self.name).set(f64::from(failing));
    }
}

impl Drop for LoopHandle {
    fn drop(&mut self) {
        self.monitor.registry().entries.remove(&self.id);
        self.count_failing();
    }
}

fn truncate(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
