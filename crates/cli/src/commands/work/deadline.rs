//! Decides by when the command of a run must be dead.
//!
//! The database gives a run's concurrency key to the next run at a time of its own: when a cancel or a timeout has not
//! been confirmed within the cancel grace, when the worker was silent for too long, or when the lease ends. Several of
//! these can apply at once, beside the end of the worker process. The earliest one counts: each reason has a deadline
//! of its own, with a margin before the database acts, and a new reason can only move the deadline forward in time.

use std::time::Duration;
use tidemill_core::limits::CANCEL_GRACE_SECS;
use tidemill_engine::worker::Sign;
use tidemill_supervisor::Moment;

/// The database ends a run so long after a cancel or a timeout that nobody confirmed.
const CANCEL_GRACE: Duration = Duration::from_secs(CANCEL_GRACE_SECS);
/// Time between the kill and the moment at which the database may give the key away.
const KILL_MARGIN: Duration = Duration::from_secs(5);
/// The smallest margin where the times are short.
const KILL_MARGIN_MIN: Duration = Duration::from_millis(500);

/// How long a command may live after the last heartbeat that the database confirmed.
///
/// Shorter than `dead_after`, because then the worker's runs go to others. Shorter than the cancel grace too: a cancel
/// that the worker could not learn of takes effect all the same.
pub(super) fn contact_max(dead_after: Duration, beat: Duration) -> Duration {
    dead_after.saturating_sub(beat.max(KILL_MARGIN_MIN)).min(CANCEL_GRACE.saturating_sub(KILL_MARGIN))
}

/// A reason to end a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The run belongs to others.
    Lost,
    /// A cancel was requested at some time after this moment.
    Cancelled(Moment),
    /// The run's own time limit ended at this moment.
    TimedOut(Moment),
    /// The worker process was told to end.
    Shutdown,
}

/// All reasons that apply to one command, and the deadline that follows from them.
#[derive(Debug, Default)]
pub(super) struct Ending {
    reasons: Vec<Reason>,
    deadline: Option<Moment>,
}

/// What the end of a command means, by the strongest reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// No reason: the command ended by itself.
    Own,
    /// The worker ends, or the run belongs to others.
    Interrupted,
    /// The run's own time limit ended.
    TimedOut,
    /// Somebody cancelled the run.
    Cancelled,
}

impl Ending {
    /// Adds a reason. Returns the deadline if it is earlier than before, so that the command has to be told.
    ///
    /// `grace` is the time that the command may take to end after it was told.
    pub(super) fn add(&mut self, reason: Reason, grace: Duration, now: Moment) -> Option<Moment> {
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

    /// Adds the reasons that the worker's loop names. Returns the deadline if it is earlier than before.
    pub(super) fn heed(&mut self, sign: &Sign<Moment>, grace: Duration, now: Moment) -> Option<Moment> {
        let reasons = [
            sign.lost.then_some(Reason::Lost),
            sign.cancelled.map(Reason::Cancelled),
            sign.shutdown.then_some(Reason::Shutdown),
        ];
        let deadlines = reasons.into_iter().flatten().filter_map(|reason| self.add(reason, grace, now));
        deadlines.last()
    }

    pub(super) fn is_timed_out(&self) -> bool {
        self.reasons.iter().any(|reason| matches!(reason, Reason::TimedOut(_)))
    }

    pub(super) fn cause(&self) -> Cause {
        let has = |is_it: fn(&Reason) -> bool| self.reasons.iter().any(is_it);
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

    fn start() -> Moment {
        Moment::now()
    }

    fn at(start: Moment, secs: u64) -> Moment {
        start.after(SECOND * u32::try_from(secs).unwrap())
    }

    /// The latest deadline at which the key is certain not to have moved.
    fn limit(reason: Reason, now: Moment) -> Moment {
        match reason {
            Reason::Lost => now,
            Reason::Cancelled(since) | Reason::TimedOut(since) => since.after(SECOND * 25),
            Reason::Shutdown => now.after(LONG),
        }
    }

    #[test]
    fn every_order_of_reasons_gives_the_earliest_deadline() {
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
            let mut ending = Ending::default();
            let mut expected: Option<Moment> = None;
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
    fn a_short_grace_ends_the_command_before_the_limit() {
        let (zero, mut ending) = (start(), Ending::default());
        assert_eq!(ending.add(Reason::Cancelled(zero), SECOND, at(zero, 4)), Some(at(zero, 5)));
        assert_eq!(ending.cause(), Cause::Cancelled);
    }

    #[test]
    fn a_cancel_that_was_learned_late_leaves_less_grace() {
        let (zero, mut ending) = (start(), Ending::default());
        // Heartbeats failed for 22 seconds.
        assert_eq!(ending.add(Reason::Cancelled(zero), LONG, at(zero, 22)), Some(at(zero, 25)));
        let mut ending = Ending::default();
        assert_eq!(ending.add(Reason::Cancelled(zero), LONG, at(zero, 40)), Some(at(zero, 25)));
    }

    #[test]
    fn a_cancel_decides_what_a_shutdown_means() {
        let (zero, mut ending) = (start(), Ending::default());
        assert_eq!(ending.cause(), Cause::Own);
        let sign = Sign { contact: zero, lost: false, cancelled: None, shutdown: true };
        assert_eq!(ending.heed(&sign, LONG, zero), Some(zero.after(LONG)));
        assert_eq!(ending.cause(), Cause::Interrupted);
        let sign = Sign { cancelled: Some(zero), ..sign };
        assert_eq!(ending.heed(&sign, LONG, at(zero, 1)), Some(at(zero, 25)));
        assert_eq!(ending.cause(), Cause::Cancelled);
        let sign = Sign { lost: true, ..sign };
        assert_eq!(ending.heed(&sign, LONG, at(zero, 2)), Some(at(zero, 2)));
        assert_eq!(ending.cause(), Cause::Interrupted);
    }

    #[test]
    fn silence_ends_a_command_before_its_worker_or_a_cancel_is_given_up() {
        let beat = SECOND * 5;
        assert_eq!(contact_max(SECOND * 20, beat), SECOND * 15);
        assert_eq!(contact_max(SECOND * 2, SECOND / 10), SECOND * 3 / 2);
        assert_eq!(contact_max(LONG, beat), SECOND * 25);
    }
}
