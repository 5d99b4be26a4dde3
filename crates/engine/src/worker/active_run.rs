//! A run that a worker holds, and its state after each heartbeat.

use super::executor::RunSignal;
use std::time::Duration;
use tidemill_core::limits::LEASE_SECS;
use tidemill_core::worker::RunLease;
use tidemill_core::{RunId, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

/// Time between the end of a command and the end of a lease that could not be renewed.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// Time of a request, taken before it was sent, by the executor's clock and by ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestTime<M> {
    pub(super) moment: M,
    pub(super) at: Instant,
}

/// A lease granted by the database. Only differences of its times are used, so the clocks need not agree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    /// Taken before the claim was sent, so the lease started later.
    granted: Instant,
    /// The lease end in the answer to the claim.
    first_end: Timestamp,
}

impl Lease {
    /// Returns a lower limit of the remaining time at `now`, if the lease ends at `end` by the database's clock.
    fn left(&self, end: Timestamp, now: Instant) -> Duration {
        let lasts = Duration::from_secs(LEASE_SECS);
        let lasts = match (end - self.first_end).to_std() {
            Ok(renewed) => lasts.saturating_add(renewed),
            Err(_) => lasts.saturating_sub((self.first_end - end).to_std().unwrap_or_default()),
        };
        lasts.saturating_sub(now.saturating_duration_since(self.granted))
    }
}

/// A run that this worker executes.
pub(super) struct ActiveRun<M> {
    pub(super) signal: watch::Sender<RunSignal<M>>,
    pub(super) task: tokio::task::Id,
    /// The last time at which the run was known not to be cancelled.
    uncancelled: M,
    lease: Lease,
}

impl<M: Copy> ActiveRun<M> {
    /// Creates the entry of a run whose claim was first sent at `request`.
    pub(super) fn new(
        signal: watch::Sender<RunSignal<M>>,
        task: tokio::task::Id,
        request: RequestTime<M>,
        first_end: Timestamp,
    ) -> Self {
        let lease = Lease { granted: request.at, first_end };
        Self { signal, task, uncancelled: request.moment, lease }
    }

    /// Processes the answer to a heartbeat that was sent at `request`.
    ///
    /// If the lease could not be renewed and is about to end, the command is ended: it has to be dead before the
    /// database gives the run to another worker. At least two more heartbeats happen before that.
    pub(super) fn update(
        &mut self,
        run: &RunId,
        held: &RunLease,
        request: RequestTime<M>,
        heartbeat_every: Duration,
    ) {
        let left = held.lease_until.map(|end| self.lease.left(end, request.at));
        let is_ending = held.held && left.is_some_and(|left| left < heartbeat_every * 2 + LEASE_MARGIN);
        if is_ending {
            tracing::warn!(run.id = %run, "the lease of run {run} was not renewed; ending its command");
        }
        let uncancelled = self.uncancelled;
        if !held.cancel_requested {
            self.uncancelled = request.moment;
        }
        self.signal.send_modify(|signal| {
            if !held.held || is_ending {
                signal.lost = true;
                return;
            }
            signal.contact = request.moment;
            if held.cancel_requested {
                signal.cancelled.get_or_insert(uncancelled);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(5);

    fn run_at(start: Instant) -> (ActiveRun<u64>, watch::Receiver<RunSignal<u64>>) {
        let (signal, signals) = watch::channel(RunSignal::new(0));
        let task = tokio::spawn(async {}).id();
        let request = RequestTime { moment: 0, at: start };
        (ActiveRun::new(signal, task, request, end(LEASE_SECS)), signals)
    }

    /// The database's clock is a day off.
    fn end(secs: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(86_400 + secs)
    }

    fn held(lease_until: Timestamp) -> RunLease {
        RunLease { held: true, cancel_requested: false, lease_until: Some(lease_until) }
    }

    #[tokio::test]
    async fn unrenewed_lease_ends_the_command_before_it_expires() {
        let start = Instant::now();
        let (mut active, signals) = run_at(start);
        let run = "run-00000000-0000-7000-8000-000000000000".parse().unwrap();
        let mut lost_at = None;
        for secs in (5..LEASE_SECS).step_by(5) {
            let request = RequestTime { moment: secs, at: start + Duration::from_secs(secs) };
            // Renewed once, after a minute.
            let renewed = if secs < 60 { LEASE_SECS } else { LEASE_SECS + 60 };
            active.update(&run, &held(end(renewed)), request, BEAT);
            assert!(!signals.borrow().lost, "the lease is valid at {secs} s");
        }
        for secs in (LEASE_SECS..LEASE_SECS + 60).step_by(5) {
            let request = RequestTime { moment: secs, at: start + Duration::from_secs(secs) };
            active.update(&run, &held(end(LEASE_SECS + 60)), request, BEAT);
            if signals.borrow().lost {
                lost_at.get_or_insert(secs);
            }
        }
        assert_eq!(lost_at, Some(LEASE_SECS + 50), "two heartbeats and a margin before the lease ends");
    }

    #[tokio::test]
    async fn cancel_refers_to_the_last_heartbeat_before_it() {
        let start = Instant::now();
        let (mut active, signals) = run_at(start);
        let run = "run-00000000-0000-7000-8000-000000000000".parse().unwrap();
        for (secs, cancel_requested) in [(5, false), (20, true), (25, true)] {
            let request = RequestTime { moment: secs, at: start + Duration::from_secs(secs) };
            let held = RunLease { cancel_requested, ..held(end(LEASE_SECS)) };
            active.update(&run, &held, request, BEAT);
        }
        assert_eq!(
            *signals.borrow(),
            RunSignal { contact: 25, lost: false, cancelled: Some(5), shutdown: false },
            "heartbeats failed between 5 and 20"
        );
    }
}
