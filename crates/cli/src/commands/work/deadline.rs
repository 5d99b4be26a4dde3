//! Deadline by which the command of a run must be dead.
//!
//! The database gives the concurrency key of a run to the next run in three cases. A cancel or timeout was not
//! confirmed within the cancel grace, the heartbeats of the worker stopped, or the lease ended. Several of these can
//! apply at once, and the worker itself may be shutting down. Each reason has a deadline with a margin before the
//! database acts. The earliest deadline counts: a new reason can only make it earlier.

use std::time::Duration;
use tidemill_core::limits::CANCEL_GRACE_SECS;
use tidemill_engine::worker::RunSignal;
use tidemill_supervisor::BootInstant;

/// The database ends a run this long after a cancel or a timeout that the worker did not confirm.
const CANCEL_GRACE: Duration = Duration::from_secs(CANCEL_GRACE_SECS);
/// Time between the kill and the earliest time at which the database may give the key to another run.
const KILL_MARGIN: Duration = Duration::from_secs(5);
/// Minimum margin if the configured times are short.
const KILL_MARGIN_MIN: Duration = Duration::from_millis(500);

/// Time that a command may live after the last heartbeat that the database confirmed.
///
/// Shorter than `dead_after`, because after it the runs of the worker go to other workers. Shorter than the cancel
/// grace, too, because a cancel takes effect even if the worker did not receive it.
pub(super) fn contact_max(dead_after: Duration, heartbeat_every: Duration) -> Duration {
    dead_after
        .saturating_sub(heartbeat_every.max(KILL_MARGIN_MIN))
        .min(CANCEL_GRACE.saturating_sub(KILL_MARGIN))
}

/// A reason to end a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The run no longer belongs to this worker.
    Lost,
    /// A cancel was requested after this time.
    Cancelled(BootInstant),
    /// The time limit of the run ended at this time.
    TimedOut(BootInstant),
    /// The worker process is shutting down.
    Shutdown,
}

/// All reasons that apply to one command, and the deadline that follows from them.
#[derive(Debug, Default)]
pub(super) struct CommandEnding {
    reasons: Vec<Reason>,
    deadline: Option<BootInstant>,
}

/// Cause of the end of a command, by the strongest reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The command ended by itself.
    Own,
    /// The worker is shutting down, or the run no longer belongs to it.
    Interrupted,
    TimedOut,
    Cancelled,
}

impl CommandEnding {
    /// Adds a reason. Returns the deadline if it became earlier, so that the supervisor must be informed.
    ///
    /// `grace` is the time between SIGTERM and SIGKILL.
    pub(super) fn add(&mut self, reason: Reason, grace: Duration, now: BootInstant) -> Option<BootInstant> {
        if self.reasons.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(&reason)) {
            return None;
        }
        self.reasons.push(reason);
        let reaction = now.after(grace);
        let deadline = match reason {
            Reason::Lost => now,
            Reason::Shutdown => reaction,
            Reason::Cancelled(since) | Reason::TimedOut(since) => {
                reaction.min(since.after(CANCEL_GRACE.saturating_sub(KILL_MARGIN)))
            }
        };
        if self.deadline.is_some_and(|earlier| earlier <= deadline) {
            return None;
        }
        self.deadline = Some(deadline);
        self.deadline
    }

    /// Adds the reasons of a signal of the worker loop. Returns the deadline if it became earlier.
    pub(super) fn add_signal(
        &mut self,
        signal: &RunSignal<BootInstant>,
        grace: Duration,
        now: BootInstant,
    ) -> Option<BootInstant> {
        let reasons = [
            signal.lost.then_some(Reason::Lost),
            signal.cancelled.map(Reason::Cancelled),
            signal.shutdown.then_some(Reason::Shutdown),
        ];
        let deadlines = reasons.into_iter().flatten().filter_map(|reason| self.add(reason, grace, now));
        deadlines.last()
    }

    pub(super) fn is_timed_out(&self) -> bool {
        self.reasons.iter().any(|reason| matches!(reason, Reason::TimedOut(_)))
    }

    pub(super) fn cause(&self) -> Cause {
        let has = |matches: fn(&Reason) -> bool| self.reasons.iter().any(matches);
        if has(|reason| matches!(reason, Reason::Lost)) {
            Cause::Interrupted
        } else if has(|reason| matches!(reason, Reason::Cancelled(_))) {
            Cause::Cancelled
        } else if self.is_timed_out() {
            Cause::TimedOut
        } else if has(|reason| matches!(reason, Reason::Shutdown)) {
            Cause::Interrupted
        } else {
            Cause::Own
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_hours(1);

    fn start() -> BootInstant {
        BootInstant::now()
    }

    fn at(start: BootInstant, secs: u64) -> BootInstant {
        start.after(SECOND * u32::try_from(secs).unwrap())
    }

    /// Latest deadline at which the key cannot have moved to another run.
    fn limit(reason: Reason, now: BootInstant) -> BootInstant {
        match reason {
            Reason::Lost => now,
            Reason::Cancelled(since) | Reason::TimedOut(since) => since.after(SECOND * 25),
            Reason::Shutdown => now.after(LONG),
        }
    }

    #[test]
    fn earliest_deadline_counts_in_every_order_of_reasons() {
        let zero = start();
        let reasons =
            [Reason::Lost, Reason::Cancelled(at(zero, 3)), Reason::TimedOut(at(zero, 1)), Reason::Shutdown];
        // Every sequence of up to four different reasons, ten seconds apart.
        let mut sequences: Vec<Vec<Reason>> = vec![Vec::new()];
        for _ in 0..reasons.len() {
            let longer: Vec<Vec<Reason>> = sequences
                .iter()
                .flat_map(|sequence| {
                    reasons
                        .iter()
                        .filter(|reason| !sequence.contains(reason))
                        .map(|reason| [sequence.as_slice(), &[*reason]].concat())
                })
                .collect();
            sequences.extend(longer);
        }
        assert!(sequences.len() > 64);
        for sequence in sequences {
            let mut ending = CommandEnding::default();
            let mut expected: Option<BootInstant> = None;
            for (reason, now) in sequence.iter().zip((5..).step_by(10).map(|secs| at(zero, secs))) {
                let limit = limit(*reason, now);
                let is_earlier = expected.is_none_or(|earlier| limit < earlier);
                expected = Some(expected.map_or(limit, |earlier| earlier.min(limit)));
                assert_eq!(ending.add(*reason, LONG, now), expected.filter(|_| is_earlier), "{sequence:?}");
                assert_eq!(ending.add(*reason, Duration::ZERO, now), None, "a reason counts once");
            }
        }
    }

    #[test]
    fn short_grace_ends_the_command_before_the_limit() {
        let (zero, mut ending) = (start(), CommandEnding::default());
        assert_eq!(ending.add(Reason::Cancelled(zero), SECOND, at(zero, 4)), Some(at(zero, 5)));
        assert_eq!(ending.cause(), Cause::Cancelled);
    }

    #[test]
    fn late_cancel_leaves_less_grace() {
        let (zero, mut ending) = (start(), CommandEnding::default());
        // Heartbeats failed for 22 seconds.
        assert_eq!(ending.add(Reason::Cancelled(zero), LONG, at(zero, 22)), Some(at(zero, 25)));
        let mut ending = CommandEnding::default();
        assert_eq!(ending.add(Reason::Cancelled(zero), LONG, at(zero, 40)), Some(at(zero, 25)));
    }

    #[test]
    fn cancel_takes_precedence_over_shutdown() {
        let (zero, mut ending) = (start(), CommandEnding::default());
        assert_eq!(ending.cause(), Cause::Own);
        let signal = RunSignal { contact: zero, lost: false, cancelled: None, shutdown: true };
        assert_eq!(ending.add_signal(&signal, LONG, zero), Some(zero.after(LONG)));
        assert_eq!(ending.cause(), Cause::Interrupted);
        let signal = RunSignal { cancelled: Some(zero), ..signal };
        assert_eq!(ending.add_signal(&signal, LONG, at(zero, 1)), Some(at(zero, 25)));
        assert_eq!(ending.cause(), Cause::Cancelled);
        let signal = RunSignal { lost: true, ..signal };
        assert_eq!(ending.add_signal(&signal, LONG, at(zero, 2)), Some(at(zero, 2)));
        assert_eq!(ending.cause(), Cause::Interrupted);
    }

    #[test]
    fn contact_limit_is_shorter_than_death_and_cancel_grace() {
        let beat = SECOND * 5;
        assert_eq!(contact_max(SECOND * 20, beat), SECOND * 15);
        assert_eq!(contact_max(SECOND * 2, SECOND / 10), SECOND * 3 / 2);
        assert_eq!(contact_max(LONG, beat), SECOND * 25);
    }
}
