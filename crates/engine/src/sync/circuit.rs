//! Asking a feed under its circuit: while it answers nobody, nobody asks, but for one probe at a time.

use super::Syncs;
use crate::patience::chain;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tidemill_core::records::FeedRecord;
use tidemill_core::{RunId, Timestamp};
use tidemill_feeds::{Ask, Circuit, ErrorClass, FeedError};
use tidemill_store::Error;
use tokio::sync::watch;
use tokio::time::Instant;

/// Why a feed gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Asked {
    /// The feed said so.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The database could not be asked about the feed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The feed has been down for longer than anybody waits.
    #[error("the feed has not answered for {} minutes: {reason}", .minutes)]
    GivenUp {
        /// For how long.
        minutes: i64,
        /// What it said last.
        reason: String,
    },
    /// The feed is down, and asked again at that time.
    #[error("the feed is down, and asked again at {until}: {reason}")]
    Down {
        /// When.
        until: Timestamp,
        /// What it said last.
        reason: String,
    },
    /// The process is to end.
    #[error("the process was told to end")]
    Stopped,
    /// Somebody cancelled the run that asks, or ended it.
    #[error("the run was cancelled")]
    Cancelled,
}

/// Time after which a question counts as one that waits for a slow feed.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Time between two looks at whether the run that waits for an answer was cancelled.
const CANCEL_LOOK: Duration = Duration::from_secs(2);

/// The start of the current wait for an answer of a feed.
#[derive(Debug, Default)]
pub(super) struct FeedWait(Mutex<Option<Instant>>);

impl FeedWait {
    /// Waits for an answer, and notes since when.
    pub(super) async fn during<T>(&self, answer: impl Future<Output = T>) -> T {
        let _noted = Noted::new(self);
        answer.await
    }

    /// Whether the feed has not answered for longer than usual.
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

/// Ends a noted wait when it is dropped, also in the middle of it.
struct Noted<'a>(&'a FeedWait);

impl<'a> Noted<'a> {
    fn new(wait: &'a FeedWait) -> Self {
        wait.set(Some(Instant::now()));
        Self(wait)
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// The circuit of a feed, as it is kept.
pub(super) fn circuit_of(feed: &FeedRecord) -> Circuit {
    serde_json::from_value(feed.circuit.clone()).unwrap_or_default()
}

impl Syncs {
    /// Asks a feed until it answers, waiting through outages, for as long as `run` is wanted. For scans, which no
    /// message brings back.
    pub(super) async fn asking<T, F>(
        &self,
        feed: &str,
        run: &RunId,
        question: impl Fn() -> F,
    ) -> Result<T, Asked>
    where
        F: Future<Output = Result<T, FeedError>>,
    {
        // Held until the feed has answered: a feed that is down or slow does not keep others from being scanned.
        let mut waits = None;
        loop {
            self.check_wanted(run).await?;
            match self.may_ask(feed).await? {
                Ask::Wait(until) => {
                    self.give_up(feed).await?;
                    waits.get_or_insert_with(|| self.feeds.wait_for(feed));
                    let now = self.engine.store().now(self.now()).await?;
                    let wait = (until - now).to_std().unwrap_or_default();
                    tokio::time::sleep(wait.clamp(Duration::from_millis(50), Duration::from_secs(5))).await;
                    continue;
                }
                Ask::Go | Ask::Probe(_) => {}
            }
            let mut answer = std::pin::pin!(self.while_wanted(run, question()));
            let told = tokio::select! {
                told = &mut answer => told?,
                () = tokio::time::sleep(SLOW_AFTER) => {
                    waits.get_or_insert_with(|| self.feeds.wait_for(feed));
                    answer.await?
                }
            };
            match told {
                Ok(answer) => {
                    self.answered(feed).await?;
                    return Ok(answer);
                }
                Err(error) if matches!(error.class(), ErrorClass::Outage | ErrorClass::Transient) => {
                    tracing::warn!(feed, "feed {feed}: {}", chain(&error));
                    self.outage(feed, &error).await?;
                    waits.get_or_insert_with(|| self.feeds.wait_for(feed));
                    let pause = error.retry_after().unwrap_or(Duration::from_millis(200));
                    tokio::time::sleep(pause.min(Duration::from_mins(1))).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks a feed once, unless it is down. For whoever is brought back by a message, and serves others meanwhile. It
    /// may take minutes to answer, and whoever is to end does not wait for it: for the answer alone. What is noted of
    /// the feed is waited for, because it is noted even if nobody does, and then after the probe was left.
    pub(super) async fn asking_once<T, F>(
        &self,
        feed: &str,
        run: &RunId,
        stop: &watch::Receiver<bool>,
        question: F,
    ) -> Result<T, Asked>
    where
        F: Future<Output = Result<T, FeedError>>,
    {
        self.check_wanted(run).await?;
        if let Ask::Wait(until) = self.may_ask(feed).await? {
            self.give_up(feed).await?;
            let reason = self.engine.store().feed(feed.to_owned()).await?.circuit_reason.unwrap_or_default();
            return Err(Asked::Down { until, reason });
        }
        let mut stop = stop.clone();
        let told = tokio::select! {
            told = self.while_wanted(run, question) => told,
            Ok(_) = stop.wait_for(|stop| *stop) => Err(Asked::Stopped),
        };
        if let Err(Asked::Stopped | Asked::Cancelled) = told {
            self.leave_probe(feed).await?;
        }
        match told? {
            Ok(answer) => {
                self.answered(feed).await?;
                Ok(answer)
            }
            Err(error) if matches!(error.class(), ErrorClass::Outage | ErrorClass::Transient) => {
                tracing::warn!(feed, "feed {feed}: {}", chain(&error));
                self.outage(feed, &error).await?;
                let pause =
                    error.retry_after().unwrap_or(Duration::from_millis(200)).min(Duration::from_mins(1));
                let until = self.engine.store().now(self.now()).await? + super::delta(pause);
                Err(Asked::Down { until, reason: error.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for an answer for as long as `run` is wanted, however long the feed takes.
    pub(super) async fn while_wanted<T>(
        &self,
        run: &RunId,
        answer: impl Future<Output = T>,
    ) -> Result<T, Asked> {
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                told = &mut answer => return Ok(told),
                () = tokio::time::sleep(CANCEL_LOOK) => {}
            }
            // A database that is away for a moment says nothing about the run.
            if let Err(Asked::Cancelled) = self.check_wanted(run).await {
                return Err(Asked::Cancelled);
            }
        }
    }

    /// Refuses to ask for a run that has ended, or that somebody wants to end.
    async fn check_wanted(&self, run: &RunId) -> Result<(), Asked> {
        let found = self.engine.store().run(run.clone()).await?;
        let is_wanted =
            found.is_some_and(|run| !run.status.is_terminal() && run.cancel_requested_at.is_none());
        if is_wanted { Ok(()) } else { Err(Asked::Cancelled) }
    }

    /// Whether a feed may be asked now. The one probe is noted before it goes out.
    pub(super) async fn may_ask(&self, feed: &str) -> Result<Ask, Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let circuit = circuit_of(&record);
        if let Circuit::Closed { .. } = circuit {
            return Ok(Ask::Go);
        }
        let now = self.engine.store().now(self.now()).await?;
        match circuit.ask(now, &self.settings.circuit) {
            Ask::Probe(probing) => {
                let ours = self.keep_circuit(&record, probing, record.circuit_reason.clone()).await?;
                Ok(if ours { Ask::Probe(probing) } else { Ask::Wait(now) })
            }
            other @ (Ask::Go | Ask::Wait(_)) => Ok(other),
        }
    }

    /// Whoever ends before a feed has answered leaves the probe to the next one, who would wait for minutes otherwise.
    /// Was the probe another's, the feed is asked once more than it had to be.
    pub(super) async fn leave_probe(&self, feed: &str) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        if let Circuit::Probing { since, probes, .. } = circuit_of(&record) {
            let now = self.engine.store().now(self.now()).await?;
            let open = Circuit::Open { since, probe_at: now, probes };
            self.keep_circuit(&record, open, record.circuit_reason.clone()).await?;
        }
        Ok(())
    }

    /// Notes that a feed answered.
    pub(super) async fn answered(&self, feed: &str) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let circuit = circuit_of(&record);
        if circuit != circuit.answered() && self.keep_circuit(&record, circuit.answered(), None).await? {
            tracing::info!(feed, "feed {feed} answers again");
            self.ring();
        }
        Ok(())
    }

    /// Notes that a feed did not answer.
    pub(super) async fn outage(&self, feed: &str, error: &FeedError) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let now = self.engine.store().now(self.now()).await?;
        let before = circuit_of(&record);
        let after = before.outage(now, error.retry_after(), &self.settings.circuit);
        if after != before
            && self.keep_circuit(&record, after, Some(error.to_string())).await?
            && let (Circuit::Closed { .. }, Circuit::Open { probe_at, .. }) = (before, after)
        {
            tracing::warn!(feed, "feed {feed} is down, and asked again at {probe_at}: {error}");
        }
        Ok(())
    }

    async fn keep_circuit(
        &self,
        record: &FeedRecord,
        circuit: Circuit,
        reason: Option<String>,
    ) -> Result<bool, Error> {
        let (feed, rev) = (record.feed.feed.clone(), record.circuit_rev);
        let kept = serde_json::to_value(circuit).unwrap_or_default();
        self.engine
            .store()
            .write(move |mut tx| {
                Box::pin(async move { tx.set_circuit(&feed, rev, &kept, reason.as_deref()).await })
            })
            .await
    }

    /// Whoever begins or retries a sync asks the feed at once, and waits for it as long as anybody does: what an
    /// earlier sync has given up says nothing of today.
    pub(super) async fn ask_anew(&self, feed: &str) -> Result<(), Error> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        if circuit_of(&record).open_since().is_some() {
            let now = self.engine.store().now(self.now()).await?;
            let anew = Circuit::Open { since: now, probe_at: now, probes: 0 };
            self.keep_circuit(&record, anew, record.circuit_reason.clone()).await?;
        }
        Ok(())
    }

    /// An error once a feed has been down for longer than anybody waits.
    pub(super) async fn give_up(&self, feed: &str) -> Result<(), Asked> {
        let record = self.engine.store().feed(feed.to_owned()).await?;
        let Some(since) = circuit_of(&record).open_since() else { return Ok(()) };
        let now = self.engine.store().now(self.now()).await?;
        if !self.is_over(since, now) {
            return Ok(());
        }
        let reason = record.circuit_reason.unwrap_or_default();
        Err(Asked::GivenUp { minutes: (now - since).num_minutes(), reason })
    }

    /// Whether an outage has lasted longer than anybody waits.
    pub(super) fn is_over(&self, since: Timestamp, now: Timestamp) -> bool {
        now - since > super::delta(self.settings.give_up_after)
    }
}
