//! Retry budgets and back-off: whether an ended run gets a successor, and when.
//!
//! Reported failures and lost workers have separate budgets. The PostgreSQL functions implement the same arithmetic;
//! the differential test compares both.

use crate::limits::BACKOFF_SECS_MAX;
use crate::run::{EndCause, Run, RunState};
use crate::{RunId, Timestamp};

/// The decision after the end of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RetryDecision {
    /// No successor: the request has ended.
    Nothing,
    Successor(Successor),
    /// No successor, because the run lost its worker too often.
    Quarantine,
}

/// The counters and the start time of a successor.
#[derive(Debug, Clone, PartialEq)]
pub struct Successor {
    /// Number of the attempt.
    pub attempt: i32,
    /// Reported failures so far.
    pub failures: i32,
    /// Lost workers so far.
    pub losses: i32,
    /// Earliest time of a claim.
    pub available_at: Option<Timestamp>,
}

/// Decides what follows when `run` ends at `now` with `status` and `cause`.
///
/// A run with a cancel request gets no successor.
pub fn decide_retry(run: &Run, status: RunState, cause: EndCause, now: Timestamp) -> RetryDecision {
    if run.cancel_requested_at.is_some() {
        return RetryDecision::Nothing;
    }
    match cause {
        // A shutdown of the worker is not a failure, so it counts against no budget.
        EndCause::Interrupted => RetryDecision::Successor(Successor {
            attempt: run.attempt + 1,
            failures: run.failures,
            losses: run.losses,
            available_at: None,
        }),
        EndCause::Stale | EndCause::Lost if run.losses < run.max_losses => {
            RetryDecision::Successor(Successor {
                attempt: run.attempt + 1,
                failures: run.failures,
                losses: run.losses + 1,
                available_at: None,
            })
        }
        EndCause::Stale | EndCause::Lost => RetryDecision::Quarantine,
        EndCause::Reported | EndCause::TimedOut
            if status == RunState::Failed && run.failures + 1 < run.max_attempts =>
        {
            let wait = backoff(run.backoff_secs, run.failures, &run.run_id);
            RetryDecision::Successor(Successor {
                attempt: run.attempt + 1,
                failures: run.failures + 1,
                losses: run.losses,
                available_at: Some(now + wait),
            })
        }
        EndCause::Reported
        | EndCause::TimedOut
        | EndCause::Cancelled
        | EndCause::CancelGrace
        | EndCause::Quarantined
        | EndCause::Expired
        | EndCause::Statement => RetryDecision::Nothing,
    }
}

/// Returns the wait after `failures` earlier failures: base × 2ⁿ, at most one hour, ± 20 % derived from the run's id.
pub fn backoff(base_secs: i32, failures: i32, run: &RunId) -> chrono::Duration {
    let doublings = failures.clamp(0, 20);
    let secs = (i64::from(base_secs.max(0)) << doublings).min(i64::from(BACKOFF_SECS_MAX));
    // Integer arithmetic, so that PostgreSQL computes the same microsecond.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 65,536")]
    let part = (run.jitter() * 65_536.0) as i64;
    let micros = secs * 800_000 + secs * 400_000 * part / 65_536;
    chrono::Duration::microseconds(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tail: &str) -> RunId {
        format!("run-00000000-0000-7000-8000-00000000{tail}").parse().unwrap()
    }

    #[test]
    fn backoff_doubles_and_is_capped() {
        let middle = id("8000");
        let secs: Vec<_> = (0..4).map(|n| backoff(5, n, &middle).num_seconds()).collect();
        assert_eq!(secs, [5, 10, 20, 40]);
        assert_eq!(backoff(5, 30, &middle).num_seconds(), i64::from(BACKOFF_SECS_MAX));
    }

    #[test]
    fn jitter_is_at_most_a_fifth() {
        assert_eq!(backoff(100, 0, &id("0000")).num_seconds(), 80);
        assert_eq!(backoff(100, 0, &id("ffff")).num_milliseconds() / 1_000, 119);
    }
}
