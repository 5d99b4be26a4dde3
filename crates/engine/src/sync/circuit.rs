//! Requests to a feed, guarded by its circuit breaker: during an outage only one probe at a time is sent.

use super::Syncs;
use crate::retry_policy::chain;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_core::records::FeedRecord;
use tidemill_core::{RunId, Timestamp};
use tidemill_feeds::{Admission, Circuit, ErrorClass, FeedError};
use tidemill_store::Error;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a feed gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedAccessError {
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error(transparent)]
    Store(#[from] Error),
    /// The feed has been down for longer than `give_up_after`.
    #[error("the feed has not answered for {} minutes: {reason}", .minutes)]
    GivenUp {
        minutes: i64,
        /// The last error of the feed.
        reason: String,
    },
    /// The feed is down. The next probe is at `until`.
    #[error("the feed is down; the next request is at {until}: {reason}")]
    Down {
        until: Timestamp,
        /// The last error of the feed.
        reason: String,
    },
    #[error("the process is shutting down")]
    Stopped,
    /// The run was cancelled or has ended.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Time after which a request counts as waiting for a slow feed.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Time between two checks whether the waiting run was cancelled.
const CANCEL_CHECK_EVERY: Duration = Duration::from_secs(2);

/// Start of the current wait for a feed's answer.
#[derive(Debug, Default)]
pub(super) struct FeedWait(Mutex<Option<Instant>>);

impl FeedWait {
    /// Awaits an answer and records the start of the wait.
    pub(super) async fn during<T>(&self, answer: impl Future<Output = T>) -> T {
        let _guard = WaitGuard::new(self);
        answer.await
    }

    /// Whether the current wait is longer than usual.
    pub(super) fn is_slow(&self) -> bool {
        self.since().is_some_and(|since| since.elapsed() >= SLOW_AFTER)
    }

    fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// Clears the recorded wait when it is dropped, also after a cancellation.
struct WaitGuard<'a>(&'a FeedWait);

impl<'a> WaitGuard<'a> {
    fn new(wait: &'a FeedWait) -> Self {
        wait.set(Some(Instant::now()));
        Self(wait)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// Returns the stored circuit of a feed.
pub(super) fn circuit_of(feed: &FeedRecord) -> Circuit {
    serde_json::from_value(feed.circuit.clone()).unwrap_or_default()
}

impl Syncs {
    /// Sends a request until the feed answers, through outages, unless `run` is cancelled. For scans, which no
    /// message would repeat.
    pub(super) async fn query_feed<T, F>(
        &self,
        feed: &str,
        run: &RunId,
        request: impl Fn() -> F,
    ) -> Result<T, FeedAccessError>
    where
        F: Future<Output = Result<T, FeedError>>,
    {
        // Held until the feed has answered: a feed that is down or slow must not delay the scans of others.
        let mut guard = None;
        loop {
            self.check_not_cancelled(run).await?;
            match self.admit_request(feed).await? {
                Admission::Wait(until) => {
                    self.check_outage_limit(feed).await?;
                    guard.get_or_insert_with(|| self.feeds.wait_for(feed));
                    let now = self.engine.store().now(self.now()).await?;
                    let wait = (until - now).to_std().unwrap_or_default();
                    tokio::time::sleep(wait.clamp(Duration::from_millis(50), Duration::from_secs(5))).await;
                    continue;
                }
                Admission::Allow | Admission::Probe(_) => {}
            }
            let mut answer = std::pin::pin!(self.unless_cancelled(run, request()));
            let result = tokio::select! {
                result = &mut answer => result?,
                () = tokio::time::sleep(SLOW_AFTER) => {
                    guard.get_or_insert_with(|| self.feeds.wait_for(feed));
                    answer.await?
                }
            };
            match result {
                Ok(answer) => {
                    self.record_answer(feed).await?;
                    return Ok(answer);
                }
                Err(error) if matches!(error.class(), ErrorClass::Outage | ErrorClass::Transient) => {
                    tracing::warn!(feed, "feed {feed}: {}", chain(&error));
                    self.record_outage(feed, &error).await?;
                    guard.get_or_insert_with(|| self.feeds.wait_for(feed));
                    let pause = error.retry_after().unwrap_or(Duration::from_millis(200));
                    tokio::time::sleep(pause.min(Duration::from_mins(1))).await;
                }
                Err(error) => {
                    self.record_refusal(feed, &error).await?;
                    return Err(error.into());
                }
            }
        }
    }

    /// Sends one request unless the feed is down. For callers whose message is delivered again, and that serve other
    /// feeds meanwhile. A shutdown cancels the wait for the answer, which may take minutes. It does not cancel saving
    /// the circuit: that write would complete anyway, and could then overwrite the released probe.
    pub(super) async fn query_feed_once<T, F>(
        &self,
        feed: &str,
        run: &RunId,
        stop: &watch::Receiver<bool>,
        request: F,
    ) -> Result<T, FeedAccessError>
    where
        F: Future<Output = Result<T, FeedError>>,
    {
        self.check_not_cancelled(run).await?;
        if let Admission::Wait(until) = self.admit_request(feed).await? {
            self.check_outage_limit(feed).await?;
            let reason = self.engine.store().feed(feed.to_owned()).await?.circuit_reason.unwrap_or_default();
            return Err(FeedAccessError::Down { until, reason });
        }
        let mut stop = stop.clone();
        let result = tokio::select! {
            result = self.unless_cancelled(run, request) => result,
            Ok(_) = stop.wait_for(|stop| *stop) => Err(FeedAccessError::Stopped),
        };
        if let Err(FeedAccessError::Stopped | FeedAccessError::Cancelled) = result {
            self.release_probe(feed).await?;
        }
        match result? {
            Ok(answer) => {
                self.record_answer(feed).await?;
                Ok(answer)
            }
            Err(error) if matches!(error.class(), ErrorClass::Outage | ErrorClass::Transient) => {
                tracing::warn!(feed, "feed {feed}: {}", chain(&error));
                self.record_outage(feed, &error).await?;
                let pause =
                    error.retry_after().unwrap_or(Duration::from_millis(200)).min(Duration::from_mins(1));
                let until = self.engine.store().now(self.now()).await? + super::delta(pause);
                Err(FeedAccessError::Down { until, reason: error.to_string() })
            }
            Err(error) => {
                self.record_refusal(feed, &error).await?;
                Err(error.into())
            }
        }
    }

    /// Awaits an answer, however long the feed takes, unless `run` is cancelled.
    pub(super) async fn unless_cancelled<T>(
        &self,
        run: &RunId,
        answer: impl Future<Output = T>,
    ) -> Result<T, FeedAccessError> {
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return Ok(answer),
                () = tokio::time::sleep(CANCEL_CHECK_EVERY) => {}
            }
            // A database that is unreachable for a moment says nothing about the run.
            if let Err(FeedAccessError::Cancelled) = self.check_not_cancelled(run).await {
                return Err(FeedAccessError::Cancelled);
            }
        }
    }

    /// Returns an error if the run has ended or its cancellation was requested.
    async fn check_not_cancelled(&self, run: &RunId) -> Result<(), FeedAccessError> {
        let found = self.engine.store().run(run.clone()).await?;
        let is_wanted =
            found.is_some_and(|run| !run.status.is_terminal() && run.cancel_requested_at.is_none());
        if is_wanted { Ok(()) } else { Err(FeedAccessError::Cancelled) }
    }

    /// Decides whether a request may be sent now. A probe is saved before it is sent.
    pub(super) async fn admit_request(&self, feed: &str) -> Result<Admission, Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let circuit = circuit_of(&record);
        if let Circuit::Closed { .. } = circuit {
            return Ok(Admission::Allow);
        }
        let now = self.engine.store().now(self.now()).await?;
        match circuit.admit(now, &self.settings.circuit) {
            Admission::Probe(probing) => {
                let ours = self.save_circuit(&record, probing, record.circuit_reason.clone()).await?;
                Ok(if ours { Admission::Probe(probing) } else { Admission::Wait(now) })
            }
            other @ (Admission::Allow | Admission::Wait(_)) => Ok(other),
        }
    }

    /// Makes the probe available again after a shutdown or cancel before the answer. Otherwise the next caller would
    /// wait for `probe_timeout`. If the probe was another process's, the feed only gets one request more than
    /// necessary.
    pub(super) async fn release_probe(&self, feed: &str) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        if let Circuit::Probing { since, probes, .. } = circuit_of(&record) {
            let now = self.engine.store().now(self.now()).await?;
            let open = Circuit::Open { since, probe_at: now, probes };
            self.save_circuit(&record, open, record.circuit_reason.clone()).await?;
        }
        Ok(())
    }

    /// Closes the circuit after an answer.
    pub(super) async fn record_answer(&self, feed: &str) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        if record.refusal.is_some() {
            self.engine.store().record_refusal(feed.to_owned(), None).await?;
        }
        let circuit = circuit_of(&record);
        if circuit != circuit.answered() && self.save_circuit(&record, circuit.answered(), None).await? {
            tracing::info!(feed, "feed {feed} answers again");
            self.wake();
        }
        Ok(())
    }

    /// Records on the feed that the lists of this process refuse it, for operators. Other errors are not recorded.
    pub(super) async fn record_refusal(&self, feed: &str, error: &FeedError) -> Result<(), Error> {
        let Some(reason) = error.refusal() else { return Ok(()) };
        let before = self.engine.store().feed(feed.to_owned()).await?.refusal;
        if before.as_deref() == Some(reason) {
            return Ok(());
        }
        tracing::error!(feed, "feed {feed} is out of reach: {reason}");
        self.engine.store().record_refusal(feed.to_owned(), Some(reason.to_owned())).await
    }

    /// Records a request without an answer.
    pub(super) async fn record_outage(&self, feed: &str, error: &FeedError) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let now = self.engine.store().now(self.now()).await?;
        let before = circuit_of(&record);
        let after = before.outage(now, error.retry_after(), &self.settings.circuit);
        if after != before
            && self.save_circuit(&record, after, Some(error.to_string())).await?
            && let (Circuit::Closed { .. }, Circuit::Open { probe_at, .. }) = (before, after)
        {
            tracing::warn!(feed, "feed {feed} is down; the next request is at {probe_at}: {error}");
        }
        Ok(())
    }

    async fn save_circuit(
        &self,
        record: &FeedRecord,
        circuit: Circuit,
        reason: Option<String>,
    ) -> Result<bool, Error> {
        let (feed, rev) = (record.feed.feed.clone(), record.circuit_rev);
        let json = serde_json::to_value(circuit).unwrap_or_default();
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move { tx.set_circuit(&feed, rev, &json, reason.as_deref()).await })
            })
            .await
    }

    /// Restarts the outage period when a sync starts or is retried. The feed is probed at once and waited for as long
    /// as usual, even if an earlier sync has given up.
    pub(super) async fn restart_outage(&self, feed: &str) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        if circuit_of(&record).open_since().is_some() {
            let now = self.engine.store().now(self.now()).await?;
            let restarted = Circuit::Open { since: now, probe_at: now, probes: 0 };
            self.save_circuit(&record, restarted, record.circuit_reason.clone()).await?;
        }
        Ok(())
    }

    /// Returns an error if a feed has been down for longer than `give_up_after`.
    pub(super) async fn check_outage_limit(&self, feed: &str) -> Result<(), FeedAccessError> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let Some(since) = circuit_of(&record).open_since() else { return Ok(()) };
        let now = self.engine.store().now(self.now()).await?;
        if !self.exceeds_outage_limit(since, now) {
            return Ok(());
        }
        let reason = record.circuit_reason.unwrap_or_default();
        Err(FeedAccessError::GivenUp { minutes: (now - since).num_minutes(), reason })
    }

    /// Whether an outage has lasted longer than `give_up_after`.
    pub(super) fn exceeds_outage_limit(&self, since: Timestamp, now: Timestamp) -> bool {
        now - since > super::delta(self.settings.give_up_after)
    }
}
