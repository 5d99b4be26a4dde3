//! A run that a worker holds, and what each heartbeat says about it.

use super::carrier::Sign;
use std::time::Duration;
use tidemill_core::limits::LEASE_SECS;
use tidemill_core::worker::Held;
use tidemill_core::{RunId, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

/// Time between the end of a command and the end of a lease that could not be renewed.
const LEASE_MARGIN: Duration = Duration::from_secs(5);

/// The moment of a request, taken before it was sent, on the carrier's clock and on ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<M> {
    pub(super) moment: M,
    pub(super) at: Instant,
}

/// A lease as the database grants it. Only differences between its times are used, so clocks need not agree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    /// Before the claim was sent: the lease began later.
    granted: Instant,
    /// The end that the claim named.
    first_end: Timestamp,
}

impl Lease {
    /// How much of the lease is left at `now`, at least, when it ends at `end` on the database's clock.
    fn left(&self, end: Timestamp, now: Instant) -> Duration {
        let lasts = Duration::from_secs(LEASE_SECS);
        let lasts = match (end - self.first_end).to_std() {
            Ok(renewed) => lasts.saturating_add(renewed),
            Err(_) => lasts.saturating_sub((self.first_end - end).to_std().unwrap_or_default()),
        };
        lasts.saturating_sub(now.saturating_duration_since(self.granted))
    }
}

/// A run that is being carried out.
pub(super) struct Active<M> {
    pub(super) sign: watch::Sender<Sign<M>>,
    pub(super) task: tokio::task::Id,
    /// The last moment at which the run was known not to be cancelled.
    uncancelled: M,
    lease: Lease,
}

impl<M: Copy> Active<M> {
    /// A run that was claimed by a request that was first sent at `asked`.
    pub(super) fn new(
        sign: watch::Sender<Sign<M>>,
        task: tokio::task::Id,
        asked: Asked<M>,
        first_end: Timestamp,
    ) -> Self {
        let lease = Lease { granted: asked.at, first_end };
        Self { sign, task, uncancelled: asked.moment, lease }
    }

    /// Passes on what a heartbeat said that was sent at `asked`.
    ///
    /// A lease that is about to end although the worker lives could not be renewed: the command has to be dead before
    /// the database gives the run to somebody else. There are at least two more heartbeats before that.
    pub(super) fn hear(&mut self, run: &RunId, held: &Held, asked: Asked<M>, beat: Duration) {
        let left = held.lease_until.map(|end| self.lease.left(end, asked.at));
        let is_ending = held.held && left.is_some_and(|left| left < beat * 2 + LEASE_MARGIN);
        if is_ending {
            tracing::warn!(run.id = %run, "the lease of run {run} was not renewed; its command is ended");
        }
        let uncancelled = self.uncancelled;
        if !held.cancel_requested {
            self.uncancelled = asked.moment;
        }
        self.sign.send_modify(|sign| {
            if !held.held || is_ending {
                sign.lost = true;
                return;
            }
            sign.contact = asked.moment;
            if held.cancel_requested {
                sign.cancelled.get_or_insert(uncancelled);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(5);

    fn run_at(start: Instant) -> (Active<u64>, watch::Receiver<Sign<u64>>) {
        let (sign, signs) = watch::channel(Sign::new(0));
        let task = tokio::spawn(async {}).id();
        let asked = Asked { moment: 0, at: start };
        (Active::new(sign, task, asked, end(LEASE_SECS)), signs)
    }

    /// The database's clock is a day off.
    fn end(secs: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(86_400 + secs)
    }

    fn held(lease_until: Timestamp) -> Held {
        Held { held: true, cancel_requested: false, lease_until: Some(lease_until) }
    }

    #[tokio::test]
    async fn a_lease_that_is_not_renewed_ends_the_command_before_it_ends() {
        let start = Instant::now();
        let (mut active, signs) = run_at(start);
        let run = "run-00000000-0000-7000-8000-000000000000".parse().unwrap();
        let mut lost_at = None;
        for secs in (5..LEASE_SECS).step_by(5) {
            let asked = Asked { moment: secs, at: start + Duration::from_secs(secs) };
            // Renewed once, after a minute.
            let renewed = if secs < 60 { LEASE_SECS } else { LEASE_SECS + 60 };
            active.hear(&run, &held(end(renewed)), asked, BEAT);
            assert!(!signs.borrow().lost, "the lease is good at {secs}");
        }
        for secs in (LEASE_SECS..LEASE_SECS + 60).step_by(5) {
            let asked = Asked { moment: secs, at: start + Duration::from_secs(secs) };
            active.hear(&run, &held(end(LEASE_SECS + 60)), asked, BEAT);
            if signs.borrow().lost {
                lost_at.get_or_insert(secs);
            }
        }
        assert_eq!(lost_at, Some(LEASE_SECS + 50), "two beats and a margin before its end");
    }

    #[tokio::test]
    async fn a_cancel_names_the_last_beat_before_it() {
        let start = Instant::now();
        let (mut active, signs) = run_at(start);
        let run = "run-00000000-0000-7000-8000-000000000000".parse().unwrap();
        for (secs, cancel_requested) in [(5, false), (20, true), (25, true)] {
            let asked = Asked { moment: secs, at: start + Duration::from_secs(secs) };
            let held = Held { cancel_requested, ..held(end(LEASE_SECS)) };
            active.hear(&run, &held, asked, BEAT);
        }
        assert_eq!(
            *signs.borrow(),
            Sign { contact: 25, lost: false, cancelled: Some(5), shutdown: false },
            "heartbeats failed between 5 and 20"
        );
    }
}
