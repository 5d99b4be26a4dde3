//! How a worker claims runs and starts to execute them.
//!
//! One bad run or one bad answer must not end a worker. After a failed claim the worker logs the error, waits, and
//! claims again, one run at a time until a claim succeeds. Only an error that every later claim would also meet ends
//! the worker: missing permission, missing schema, a refused version.

use super::active_run::{ActiveRun, RequestTime};
use super::executor::RunSignal;
use super::report::Report;
use super::transport::Transport;
use super::{Dispatch, ExecutionOutcome, Executor, FinishedRun, RunLog, with_timeout};
use crate::retry_policy::{RetryableError as _, chain};
use crate::trace::of_run;
use std::time::Duration;
use tidemill_core::run::{Claim, FinalStatus};
use tidemill_core::{RunId, json};
use tidemill_store::{ClaimRuns, Holder};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Back-off after claims that failed permanently.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Length of the last pause; zero while claims succeed.
    length: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Whether a pause is in progress.
    pub(super) fn is_waiting(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether the last claim failed.
    fn is_failing(&self) -> bool {
        !self.length.is_zero()
    }

    /// Starts a pause, twice as long as the previous one.
    fn extend(&mut self) -> Duration {
        self.length = (self.length * 2).clamp(BACKOFF_FIRST, BACKOFF_MAX);
        self.until = Some(Instant::now() + self.length);
        self.length
    }
}

/// A claim that the database confirmed at `contact`, so its execution may start.
struct Confirmed<M> {
    claim: Claim,
    contact: M,
    is_cancelled: bool,
}

impl<D: Transport, C: Executor> Dispatch<D, C> {
    /// Builds a request for as many runs as there are free slots. After a failure it requests one run, so that a bad
    /// run does not affect others.
    pub(super) fn claim_request(&self) -> ClaimRuns {
        let free = self.options.slots.saturating_sub(self.active.len());
        ClaimRuns {
            worker: self.options.name.clone(),
            worker_id: Some(self.worker_id),
            limit: if self.backoff.is_failing() { free.min(1) } else { free },
            labels: self.options.labels.clone(),
            projects: self.options.projects.clone(),
            request_id: Some(self.request_id.clone()),
            lease_secs: Some(tidemill_core::limits::LEASE_SECS),
        }
    }

    fn request_time(&self) -> RequestTime<C::Moment> {
        RequestTime { moment: self.executor.moment(), at: Instant::now() }
    }

    /// Records that a claim is about to be sent.
    pub(super) fn record_request(&mut self) -> RequestTime<C::Moment> {
        let now = self.request_time();
        *self.first_request.get_or_insert(now)
    }

    /// Claims as many runs as there are free slots, and starts to execute them.
    pub(super) async fn claim(&mut self) -> Result<usize, D::Error> {
        let request = self.claim_request();
        if request.limit == 0 || self.backoff.is_waiting() {
            return Ok(0);
        }
        let first = self.record_request();
        let longest = self.options.loop_timeout();
        let answer =
            with_timeout(&self.transport, "claim runs", longest, self.transport.claim(request)).await;
        self.is_answered = answer.is_ok();
        let claims = match answer {
            Ok(claims) => claims,
            Err(error) if D::is_stale(&error) => {
                tracing::warn!("this worker was declared dead; it stops its runs and registers again");
                let result = self.register_again().await;
                return self.handle_error("register again", result).map(|()| 0);
            }
            // The answer may be lost: claim again with the same request id, after a while.
            Err(error) if error.is_retryable() => {
                tracing::warn!("could not claim runs: {}", chain(&error));
                return Ok(0);
            }
            Err(error) => {
                self.handle_error("claim runs", Err(error))?;
                // Runs that this request may have claimed are left to their lease: repeating the request would fail
                // again.
                self.forget_request();
                self.is_answered = true;
                return Ok(0);
            }
        };
        self.backoff = Backoff::default();
        if claims.is_empty() {
            self.first_request = None;
            return Ok(0);
        }
        let Some(confirmed) = self.confirm(claims, first).await else { return Ok(0) };
        // Only now: if the answer was lost, the runs are found with the same request id.
        self.forget_request();
        let count = confirmed.len();
        for claim in confirmed {
            self.begin(claim, first);
        }
        Ok(count)
    }

    pub(super) fn forget_request(&mut self) {
        self.request_id = uuid::Uuid::new_v4().to_string();
        self.first_request = None;
    }

    /// Decides whether an error ends this worker or causes a pause.
    pub(super) fn handle_error(
        &mut self,
        what: &'static str,
        result: Result<(), D::Error>,
    ) -> Result<(), D::Error> {
        let Err(error) = result else { return Ok(()) };
        if D::is_fatal(&error) {
            return Err(error);
        }
        let pause = self.backoff.extend();
        tracing::error!("could not {what}; retrying in {} ms: {}", pause.as_millis(), chain(&error));
        Ok(())
    }

    /// Confirms claims whose answer is old, because a command must not start on outdated information.
    ///
    /// The runs may have been claimed long ago, by a request whose answer was lost or late. Since then a cancel may
    /// have been requested, or the lease may have expired; a heartbeat tells. If the heartbeat fails, nothing starts,
    /// and the same request id returns the same runs later.
    async fn confirm(
        &mut self,
        claims: Vec<Claim>,
        first: RequestTime<C::Moment>,
    ) -> Option<Vec<Confirmed<C::Moment>>> {
        if first.at.elapsed() < self.options.heartbeat_every {
            let fresh = |claim| Confirmed { claim, contact: first.moment, is_cancelled: false };
            return Some(claims.into_iter().map(fresh).collect());
        }
        let contact = self.executor.moment();
        let runs: Vec<RunId> = claims.iter().map(|claim| claim.run_id.clone()).collect();
        let heartbeat = with_timeout(
            &self.transport,
            "confirm a claim",
            self.options.heartbeat_every,
            self.transport.heartbeat(self.worker_id, runs),
        );
        let response = match heartbeat.await {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!("could not confirm a claim: {}", chain(&error));
                return None;
            }
        };
        let both = claims.into_iter().zip(response.held).filter(|(_, held)| held.held);
        let confirmed =
            both.map(|(claim, held)| Confirmed { claim, contact, is_cancelled: held.cancel_requested });
        Some(confirmed.collect())
    }

    fn begin(&mut self, confirmed: Confirmed<C::Moment>, request: RequestTime<C::Moment>) {
        let Confirmed { claim, contact, is_cancelled } = confirmed;
        tracing::info!(run.id = %claim.run_id, "worker {} claimed run {}", self.options.name, claim.run_id);
        self.summary.claimed += 1;
        let (run_id, lease_until) = (claim.run_id.clone(), claim.lease_until);
        let (key, kind) = (run_id.clone(), claim.kind.clone());
        let cancelled = is_cancelled.then_some(request.moment);
        let (signal, signals) = watch::channel(RunSignal { cancelled, ..RunSignal::new(contact) });
        let (transport, call_timeout) = (self.transport.clone(), self.options.call_timeout());
        let holder = Holder { worker: Some(self.options.name.clone()), epoch: Some(claim.epoch) };
        let (executor, lost) = (self.executor.clone(), self.lost.clone());
        let task = self.tasks.spawn(async move {
            let log = RunLog::open(transport.clone(), run_id.clone(), holder.clone(), call_timeout, lost);
            let writer = log.writer();
            let ended = match unreadable(&claim) {
                Some(failed) => failed,
                None => executor.execute(claim, log, signals).instrument(of_run!("carry", run_id)).await,
            };
            writer.flush().await;
            let (transport, kind) = (&transport, kind.as_str());
            let report = Report { transport, run: &run_id, holder: &holder, kind, call_timeout };
            let applied = match &ended {
                ExecutionOutcome::Finished(status, metadata) => report.send(*status, metadata).await,
                ExecutionOutcome::Interrupted => None,
            };
            executor.finished(&run_id, &ended, applied);
            FinishedRun { run_id, applied, interrupted: matches!(ended, ExecutionOutcome::Interrupted) }
        });
        self.active.insert(key, ActiveRun::new(signal, task.id(), request, lease_until));
    }
}

/// Fails a run whose metadata cannot be read: its command must not start with other metadata than requested.
fn unreadable(claim: &Claim) -> Option<ExecutionOutcome> {
    let reason = json::unreadable_reason(&claim.metadata)?;
    let error = format!("the metadata of this run cannot be read: it {reason}");
    tracing::warn!(run.id = %claim.run_id, "run {} fails: {error}", claim.run_id);
    Some(ExecutionOutcome::Finished(FinalStatus::Failed, serde_json::json!({ "error": error })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let mut backoff = Backoff::default();
        assert!(!backoff.is_failing() && !backoff.is_waiting());
        let lengths: Vec<u64> = (0..8).map(|_| backoff.extend().as_secs()).collect();
        assert_eq!(lengths, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert!(backoff.is_failing() && backoff.is_waiting());
    }
}
