//! How a worker claims runs and begins to carry them out.
//!
//! One bad run or one bad answer must not end a worker. A claim that fails costs that attempt: the worker logs it,
//! waits, and claims again, one run at a time until a claim succeeds. Only an error that every later claim would meet
//! too ends the worker: no permission, no schema, a version that is refused.

use super::active::{Active, Asked};
use super::carrier::Sign;
use super::door::Door;
use super::report::Report;
use super::{Carrier, Dispatch, Ended, Over, RunLog, in_time};
use crate::patience::{Passing as _, chain};
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

/// The pause after claims that failed for good.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// How long the last pause was; zero while claims succeed.
    length: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Whether a pause is going on.
    pub(super) fn is_waiting(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Whether the last claim failed.
    fn is_failing(&self) -> bool {
        !self.length.is_zero()
    }

    /// Begins a pause, longer than the one before.
    fn extend(&mut self) -> Duration {
        self.length = (self.length * 2).clamp(BACKOFF_FIRST, BACKOFF_MAX);
        self.until = Some(Instant::now() + self.length);
        self.length
    }
}

/// A claim that may begin: the database has confirmed it at `contact`.
struct Confirmed<M> {
    claim: Claim,
    contact: M,
    is_cancelled: bool,
}

impl<D: Door, C: Carrier> Dispatch<D, C> {
    /// The request for as many runs as there are free slots. After a failure it is one run, so that a bad run takes no
    /// other with it.
    pub(super) fn ask(&self) -> ClaimRuns {
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

    fn asked(&self) -> Asked<C::Moment> {
        Asked { moment: self.carrier.moment(), at: Instant::now() }
    }

    /// Notes that a request for runs is about to be sent.
    pub(super) fn note_asked(&mut self) -> Asked<C::Moment> {
        let now = self.asked();
        *self.asked.get_or_insert(now)
    }

    /// Claims as many runs as there are free slots, and begins to carry them out.
    pub(super) async fn claim(&mut self) -> Result<usize, D::Error> {
        let ask = self.ask();
        if ask.limit == 0 || self.backoff.is_waiting() {
            return Ok(0);
        }
        let first = self.note_asked();
        let longest = self.options.loop_answer_max();
        let answer = in_time(&self.door, "claim runs", longest, self.door.claim(ask)).await;
        self.is_answered = answer.is_ok();
        let claims = match answer {
            Ok(claims) => claims,
            Err(error) if D::is_stale(&error) => {
                tracing::warn!("this worker was found dead; it stops what it runs, and begins anew");
                let result = self.start_over().await;
                return self.survive("begin anew", result).map(|()| 0);
            }
            // The answer may be lost: ask again under the same request id, after a while.
            Err(error) if error.passes() => {
                tracing::warn!("could not claim: {}", chain(&error));
                return Ok(0);
            }
            Err(error) => {
                self.survive("claim runs", Err(error))?;
                // Runs that this request may hold are left to their lease: asked again, it would fail again.
                self.forget_request();
                self.is_answered = true;
                return Ok(0);
            }
        };
        self.backoff = Backoff::default();
        if claims.is_empty() {
            self.asked = None;
            return Ok(0);
        }
        let Some(confirmed) = self.confirm(claims, first).await else { return Ok(0) };
        // Not before: runs that a request brought whose answer was lost are found under the same id.
        self.forget_request();
        let count = confirmed.len();
        for claim in confirmed {
            self.begin(claim, first);
        }
        Ok(count)
    }

    pub(super) fn forget_request(&mut self) {
        self.request_id = uuid::Uuid::new_v4().to_string();
        self.asked = None;
    }

    /// Decides what a failure means: the end of this worker, or a pause.
    pub(super) fn survive(
        &mut self,
        what: &'static str,
        result: Result<(), D::Error>,
    ) -> Result<(), D::Error> {
        let Err(error) = result else { return Ok(()) };
        if D::is_hopeless(&error) {
            return Err(error);
        }
        let pause = self.backoff.extend();
        tracing::error!("could not {what}; the next try is in {} ms: {}", pause.as_millis(), chain(&error));
        Ok(())
    }

    /// Makes sure that the claims are good now: a command must not begin on an answer that says little about now.
    ///
    /// The runs may have been claimed long ago, by a request whose answer was lost or late. Since then a cancel may
    /// have been requested, or the lease may be over. A heartbeat tells. Without its answer nothing begins, and the
    /// same request id gives the same runs later.
    async fn confirm(
        &mut self,
        claims: Vec<Claim>,
        first: Asked<C::Moment>,
    ) -> Option<Vec<Confirmed<C::Moment>>> {
        if first.at.elapsed() < self.options.beat {
            let fresh = |claim| Confirmed { claim, contact: first.moment, is_cancelled: false };
            return Some(claims.into_iter().map(fresh).collect());
        }
        let contact = self.carrier.moment();
        let runs: Vec<RunId> = claims.iter().map(|claim| claim.run_id.clone()).collect();
        let beat =
            in_time(&self.door, "confirm a claim", self.options.beat, self.door.beat(self.worker_id, runs));
        let beaten = match beat.await {
            Ok(beaten) => beaten,
            Err(error) => {
                tracing::warn!("could not confirm a claim: {}", chain(&error));
                return None;
            }
        };
        let both = claims.into_iter().zip(beaten.held).filter(|(_, held)| held.held);
        let confirmed =
            both.map(|(claim, held)| Confirmed { claim, contact, is_cancelled: held.cancel_requested });
        Some(confirmed.collect())
    }

    fn begin(&mut self, confirmed: Confirmed<C::Moment>, asked: Asked<C::Moment>) {
        let Confirmed { claim, contact, is_cancelled } = confirmed;
        tracing::info!(run.id = %claim.run_id, "worker {} claimed run {}", self.options.name, claim.run_id);
        self.worked.claimed += 1;
        let (run_id, lease_until) = (claim.run_id.clone(), claim.lease_until);
        let key = run_id.clone();
        let cancelled = is_cancelled.then_some(asked.moment);
        let (sign, signs) = watch::channel(Sign { cancelled, ..Sign::new(contact) });
        let (door, answer_max) = (self.door.clone(), self.options.answer_max());
        let holder = Holder { worker: Some(self.options.name.clone()), epoch: Some(claim.epoch) };
        let (carrier, lost) = (self.carrier.clone(), self.lost.clone());
        let task = self.tasks.spawn(async move {
            let log = RunLog::open(door.clone(), run_id.clone(), holder.clone(), answer_max, lost);
            let writer = log.writer();
            let ended = match unreadable(&claim) {
                Some(failed) => failed,
                None => carrier.carry(claim, log, signs).instrument(of_run!("carry", run_id)).await,
            };
            writer.flush().await;
            let report = Report { door: &door, run: &run_id, holder: &holder, answer_max };
            let applied = match &ended {
                Ended::With(status, metadata) => report.send(*status, metadata).await,
                Ended::Interrupted => None,
            };
            carrier.finished(&run_id, &ended, applied);
            Over { run_id, applied, interrupted: matches!(ended, Ended::Interrupted) }
        });
        self.active.insert(key, Active::new(sign, task.id(), asked, lease_until));
    }
}

/// The end of a run whose metadata cannot be read: a command must not begin with other metadata than was asked for.
fn unreadable(claim: &Claim) -> Option<Ended> {
    let reason = json::unreadable_reason(&claim.metadata)?;
    let error = format!("the metadata of this run cannot be read: it {reason}");
    tracing::warn!(run.id = %claim.run_id, "run {} fails: {error}", claim.run_id);
    Some(Ended::With(FinalStatus::Failed, serde_json::json!({ "error": error })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_grows_to_its_limit() {
        let mut backoff = Backoff::default();
        assert!(!backoff.is_failing() && !backoff.is_waiting());
        let lengths: Vec<u64> = (0..8).map(|_| backoff.extend().as_secs()).collect();
        assert_eq!(lengths, [0, 1, 2, 4, 8, 16, 30, 30]);
        assert!(backoff.is_failing() && backoff.is_waiting());
    }
}
