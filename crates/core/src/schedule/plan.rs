//! What becomes of the fires that are due: which queue a run, and when the schedule fires next.

use chrono::TimeDelta;

use super::{Missed, Overlap, Pattern};
use crate::Timestamp;
use crate::label::labelled;

/// Seconds up to which a fire that is due counts as on time. Patterns fire at most once a minute.
pub const ON_TIME_SECS: i64 = 60;

/// Fires that one plan lists; older ones are only counted.
pub const FIRES_MAX: usize = 100;

/// Where counting the fires that are not listed ends.
pub const FORGOTTEN_MAX: u64 = 10_000;

labelled! {
    /// What becomes of a fire.
    "fire decision" Decision {
        /// It queues a run.
        Queue = "queued",
        /// It passed while nothing was running, and is not made up for.
        Missed = "missed",
        /// The run of an earlier fire has not ended.
        Overlapped = "overlapped",
    }
}

/// Whether the last run that a schedule queued can still do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Previous {
    /// It has not ended.
    Live,
    /// It has ended, or there is none.
    Ended,
}

/// One fire of a schedule, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fire {
    /// When it was due: together with the schedule, its name.
    pub fire_at: Timestamp,
    /// What becomes of it.
    pub decision: Decision,
}

/// Everything to write down for one schedule at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The newest fires that are due, oldest first, at most [`FIRES_MAX`].
    pub fires: Vec<Fire>,
    /// When to plan again; later than now.
    pub next_fire_at: Option<Timestamp>,
    /// Fires that are due and older than those listed: missed, whatever the policy.
    ///
    /// Exact below [`FORGOTTEN_MAX`]; that number means *at least as many*, so that a schedule of every minute
    /// that was down for years costs no more than one that was down for a week.
    pub forgotten: u64,
}

/// Decides every fire from `next_fire_at` up to and including `now`.
///
/// `next_fire_at` is taken for a fire as it is. One that is at most [`ON_TIME_SECS`] old is on time and wants a
/// run; an older one is missed, and wants a run if the policy says so. What wants a run queues it, unless the
/// schedule skips overlaps and a run is live: `previous`, or that of an earlier fire of the same plan.
pub fn plan(
    pattern: &Pattern,
    missed: Missed,
    overlap: Overlap,
    next_fire_at: Timestamp,
    now: Timestamp,
    previous: Previous,
) -> Plan {
    if next_fire_at > now {
        return Plan { fires: Vec::new(), next_fire_at: Some(next_fire_at), forgotten: 0 };
    }
    let due = newest(pattern, next_fire_at, now);
    let mut previous = previous;
    let decide = |&fire_at: &Timestamp| {
        let on_time = now - fire_at <= TimeDelta::seconds(ON_TIME_SECS);
        let wants_run = on_time
            || match missed {
                Missed::Skip => false,
                Missed::Once => due.last() == Some(&fire_at),
                Missed::All => true,
            };
        let decision = if !wants_run {
            Decision::Missed
        } else if overlap == Overlap::Skip && previous == Previous::Live {
            Decision::Overlapped
        } else {
            previous = Previous::Live;
            Decision::Queue
        };
        Fire { fire_at, decision }
    };
    Plan {
        fires: due.iter().map(decide).collect(),
        next_fire_at: pattern.next_after(now),
        forgotten: due.first().map_or(0, |&listed| forgotten(pattern, next_fire_at, listed)),
    }
}

/// The newest fires from `first`, which is one, up to and including `now`; oldest first.
fn newest(pattern: &Pattern, first: Timestamp, now: Timestamp) -> Vec<Timestamp> {
    let mut wanted = FIRES_MAX;
    loop {
        let start = pattern.jump_back(first, now, wanted);
        let mut due: Vec<_> = (start == first).then_some(first).into_iter().collect();
        due.extend(pattern.fires_after(start).take_while(|&fire| fire <= now));
        if due.len() >= FIRES_MAX || start == first {
            return due.split_off(due.len().saturating_sub(FIRES_MAX));
        }
        // Some of the times fell into a gap, and were one fire or none.
        wanted = wanted.saturating_mul(2);
    }
}

/// How many fires there are from `first`, which is one, to before `listed`; at most [`FORGOTTEN_MAX`].
fn forgotten(pattern: &Pattern, first: Timestamp, listed: Timestamp) -> u64 {
    let fires = std::iter::once(first).chain(pattern.fires_after(first));
    (0..FORGOTTEN_MAX).zip(fires.take_while(|&fire| fire < listed)).map(|_| 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Decision::{Missed as M, Overlapped as O, Queue as Q};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Plans an hourly schedule in UTC.
    fn hourly(missed: Missed, overlap: Overlap, next: &str, now: &str, previous: Previous) -> Plan {
        let pattern = Pattern::parse("@hourly", "UTC").unwrap();
        plan(&pattern, missed, overlap, at(next), at(now), previous)
    }

    fn decisions(plan: &Plan) -> Vec<Decision> {
        plan.fires.iter().map(|fire| fire.decision).collect()
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let next = "2026-03-01T10:00:00Z";
        let plan = hourly(Missed::All, Overlap::Allow, next, "2026-03-01T09:59:59.999999Z", Previous::Ended);
        assert_eq!(plan, Plan { fires: Vec::new(), next_fire_at: Some(at(next)), forgotten: 0 });
    }

    #[test]
    fn a_fire_is_on_time_up_to_and_including_sixty_seconds() {
        let next = "2026-03-01T10:00:00Z";
        for (now, decision) in [
            ("2026-03-01T10:00:00Z", Q),
            ("2026-03-01T10:01:00Z", Q),
            ("2026-03-01T10:01:00.000001Z", M),
            ("2026-03-01T10:59:59Z", M),
        ] {
            let plan = hourly(Missed::Skip, Overlap::Allow, next, now, Previous::Live);
            assert_eq!(plan.fires, [Fire { fire_at: at(next), decision }], "{now}");
            assert_eq!(plan.next_fire_at, Some(at("2026-03-01T11:00:00Z")));
        }
    }

    #[test]
    fn each_policy_decides_a_pause_of_three_hours() {
        let (next, now) = ("2026-03-01T10:00:00Z", "2026-03-01T12:30:00Z");
        for (missed, overlap, previous, expected) in [
            (Missed::Skip, Overlap::Allow, Previous::Ended, [M, M, M]),
            (Missed::Skip, Overlap::Skip, Previous::Live, [M, M, M]),
            (Missed::Once, Overlap::Allow, Previous::Live, [M, M, Q]),
            (Missed::Once, Overlap::Skip, Previous::Ended, [M, M, Q]),
            (Missed::Once, Overlap::Skip, Previous::Live, [M, M, O]),
            (Missed::All, Overlap::Allow, Previous::Ended, [Q, Q, Q]),
            (Missed::All, Overlap::Allow, Previous::Live, [Q, Q, Q]),
            (Missed::All, Overlap::Skip, Previous::Ended, [Q, O, O]),
            (Missed::All, Overlap::Skip, Previous::Live, [O, O, O]),
        ] {
            let plan = hourly(missed, overlap, next, now, previous);
            assert_eq!(decisions(&plan), expected, "{missed} {overlap} {previous:?}");
            let times: Vec<_> = plan.fires.iter().map(|fire| fire.fire_at.to_rfc3339()).collect();
            assert_eq!(
                times,
                ["2026-03-01T10:00:00+00:00", "2026-03-01T11:00:00+00:00", "2026-03-01T12:00:00+00:00"]
            );
            assert_eq!(plan.next_fire_at, Some(at("2026-03-01T13:00:00Z")));
            assert_eq!(plan.forgotten, 0);
        }
    }

    /// Whether the scheduler comes back 59 or 61 seconds after a fire must not change how many runs there are.
    #[test]
    fn a_fire_on_time_makes_up_for_those_before_it() {
        let next = "2026-03-01T10:00:00Z";
        for now in ["2026-03-01T12:00:59Z", "2026-03-01T12:01:01Z"] {
            let plan = hourly(Missed::Once, Overlap::Allow, next, now, Previous::Ended);
            assert_eq!(decisions(&plan), [M, M, Q], "{now}");
        }
    }

    #[test]
    fn a_missed_fire_does_not_keep_one_on_time_from_its_run() {
        let (next, now) = ("2026-03-01T10:00:00Z", "2026-03-01T12:00:10Z");
        assert_eq!(decisions(&hourly(Missed::Skip, Overlap::Skip, next, now, Previous::Ended)), [M, M, Q]);
        assert_eq!(decisions(&hourly(Missed::Skip, Overlap::Skip, next, now, Previous::Live)), [M, M, O]);
    }

    #[test]
    fn two_fires_on_time_overlap_each_other() {
        let pattern = Pattern::parse("* * * * *", "UTC").unwrap();
        let (next, now) = (at("2026-03-01T10:00:00Z"), at("2026-03-01T10:01:00Z"));
        let skip = plan(&pattern, Missed::Skip, Overlap::Skip, next, now, Previous::Ended);
        assert_eq!(decisions(&skip), [Q, O]);
        let allow = plan(&pattern, Missed::Skip, Overlap::Allow, next, now, Previous::Live);
        assert_eq!(decisions(&allow), [Q, Q]);
    }

    #[test]
    fn at_most_a_hundred_are_listed_and_the_rest_is_counted() {
        let (next, now) = ("2026-03-01T10:00:00Z", "2026-03-06T10:30:00Z");
        let plan = hourly(Missed::All, Overlap::Allow, next, now, Previous::Ended);
        assert_eq!(plan.fires.len(), FIRES_MAX);
        assert_eq!(plan.fires[0].fire_at, at("2026-03-02T07:00:00Z"));
        assert_eq!(plan.fires[99].fire_at, at("2026-03-06T10:00:00Z"));
        assert_eq!(plan.forgotten, 21);
        assert!(plan.fires.iter().all(|fire| fire.decision == Q));
    }

    /// Also the bound on the work: without the jump, this walks through more than five million fires.
    #[test]
    fn ten_years_of_every_minute_are_planned_at_once() {
        let pattern = Pattern::parse("* * * * *", "Europe/Berlin").unwrap();
        let (next, now) = (at("2016-03-01T10:00:00Z"), at("2026-03-29T01:30:30Z"));
        let plan = plan(&pattern, Missed::Once, Overlap::Skip, next, now, Previous::Ended);
        assert_eq!(plan.fires.len(), FIRES_MAX);
        assert_eq!(plan.fires[99], Fire { fire_at: at("2026-03-29T01:30:00Z"), decision: Q });
        assert_eq!(plan.fires[0], Fire { fire_at: at("2026-03-28T23:51:00Z"), decision: M });
        assert_eq!(plan.forgotten, FORGOTTEN_MAX);
        assert_eq!(plan.next_fire_at, Some(at("2026-03-29T01:31:00Z")));
    }

    /// Sixty times fall into the same gap every year and are one fire each: the jump must go back far enough.
    #[test]
    fn times_that_fall_into_gaps_do_not_shorten_the_list() {
        let pattern = Pattern::parse("* 2 * 3 +7L", "Europe/Berlin").unwrap();
        let (next, now) = (at("2000-03-26T01:00:00Z"), at("2026-04-01T00:00:00Z"));
        let plan = plan(&pattern, Missed::All, Overlap::Allow, next, now, Previous::Ended);
        assert_eq!(plan.fires.len(), 27);
        assert_eq!(plan.fires[26].fire_at, at("2026-03-29T01:00:00Z"));
    }

    #[test]
    fn a_stored_time_that_the_pattern_no_longer_names_is_a_fire() {
        let next = "2026-03-01T10:07:00Z";
        let plan = hourly(Missed::Skip, Overlap::Allow, next, "2026-03-01T10:07:01Z", Previous::Ended);
        assert_eq!(plan.fires, [Fire { fire_at: at(next), decision: Q }]);
        assert_eq!(plan.next_fire_at, Some(at("2026-03-01T11:00:00Z")));
    }
}
