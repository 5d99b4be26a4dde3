//! The decisions about due fires, and the time of the next fire.

use chrono::TimeDelta;

use super::{MissedPolicy, OverlapPolicy, Pattern};
use crate::Timestamp;
use crate::label::labelled;

/// Age up to which a due fire is on time. Patterns fire at most once a minute.
pub const ON_TIME_SECS: i64 = 60;

/// Maximum number of fires in a plan; older ones are only counted.
pub const FIRES_MAX: usize = 100;

/// Limit for counting the fires that are not listed.
pub const FORGOTTEN_MAX: u64 = 10_000;

labelled! {
    /// The decision about a fire.
    "fire decision" Decision {
        Queue = "queued",
        /// It was missed while no scheduler was running, and gets no run.
        Missed = "missed",
        /// The run of an earlier fire has not ended.
        Overlapped = "overlapped",
    }
}

/// State of the last run that a schedule queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousRun {
    Live,
    /// The run has ended, or there is none.
    Ended,
}

/// A fire of a schedule with its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fire {
    /// Due time; with the schedule it identifies the fire.
    pub fire_at: Timestamp,
    pub decision: Decision,
}

/// The result of planning one schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Newest due fires, oldest first, at most [`FIRES_MAX`].
    pub fires: Vec<Fire>,
    /// Time of the next fire, after now.
    pub next_fire_at: Option<Timestamp>,
    /// Number of due fires older than those listed. They count as missed under every policy.
    ///
    /// Exact below [`FORGOTTEN_MAX`]; that value means *at least as many*. So a minutely schedule that was down for
    /// years costs no more than one that was down for a week.
    pub forgotten: u64,
}

/// Decides about every fire from `next_fire_at` up to and including `now`.
///
/// `next_fire_at` counts as a fire even if the pattern no longer matches it. A fire that is at most [`ON_TIME_SECS`]
/// old is on time and gets a run. An older one is missed and gets a run if the policy says so. With the overlap
/// policy `skip`, a fire gets no run while another run is live: the previous one, or that of an earlier fire of the
/// plan.
pub fn plan(
    pattern: &Pattern,
    missed: MissedPolicy,
    overlap: OverlapPolicy,
    next_fire_at: Timestamp,
    now: Timestamp,
    previous: PreviousRun,
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
                MissedPolicy::Skip => false,
                MissedPolicy::Once => due.last() == Some(&fire_at),
                MissedPolicy::All => true,
            };
        let decision = if !wants_run {
            Decision::Missed
        } else if overlap == OverlapPolicy::Skip && previous == PreviousRun::Live {
            Decision::Overlapped
        } else {
            previous = PreviousRun::Live;
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

/// Returns the newest fires from `first` (inclusive) up to and including `now`, oldest first.
fn newest(pattern: &Pattern, first: Timestamp, now: Timestamp) -> Vec<Timestamp> {
    let mut wanted = FIRES_MAX;
    loop {
        let start = pattern.jump_back(first, now, wanted);
        let mut due: Vec<_> = (start == first).then_some(first).into_iter().collect();
        due.extend(pattern.fires_after(start).take_while(|&fire| fire <= now));
        if due.len() >= FIRES_MAX || start == first {
            return due.split_off(due.len().saturating_sub(FIRES_MAX));
        }
        // Some of the times were in a gap of the wall clock and made one fire or none.
        wanted = wanted.saturating_mul(2);
    }
}

/// Counts the fires from `first` (inclusive) to `listed` (exclusive), up to [`FORGOTTEN_MAX`].
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
    fn hourly(
        missed: MissedPolicy,
        overlap: OverlapPolicy,
        next: &str,
        now: &str,
        previous: PreviousRun,
    ) -> Plan {
        let pattern = Pattern::parse("@hourly", "UTC").unwrap();
        plan(&pattern, missed, overlap, at(next), at(now), previous)
    }

    fn decisions(plan: &Plan) -> Vec<Decision> {
        plan.fires.iter().map(|fire| fire.decision).collect()
    }

    #[test]
    fn plan_is_empty_before_the_next_fire() {
        let next = "2026-03-01T10:00:00Z";
        let plan = hourly(
            MissedPolicy::All,
            OverlapPolicy::Allow,
            next,
            "2026-03-01T09:59:59.999999Z",
            PreviousRun::Ended,
        );
        assert_eq!(plan, Plan { fires: Vec::new(), next_fire_at: Some(at(next)), forgotten: 0 });
    }

    #[test]
    fn fire_is_on_time_for_sixty_seconds() {
        let next = "2026-03-01T10:00:00Z";
        for (now, decision) in [
            ("2026-03-01T10:00:00Z", Q),
            ("2026-03-01T10:01:00Z", Q),
            ("2026-03-01T10:01:00.000001Z", M),
            ("2026-03-01T10:59:59Z", M),
        ] {
            let plan = hourly(MissedPolicy::Skip, OverlapPolicy::Allow, next, now, PreviousRun::Live);
            assert_eq!(plan.fires, [Fire { fire_at: at(next), decision }], "{now}");
            assert_eq!(plan.next_fire_at, Some(at("2026-03-01T11:00:00Z")));
        }
    }

    #[test]
    fn policies_decide_about_three_missed_hours() {
        let (next, now) = ("2026-03-01T10:00:00Z", "2026-03-01T12:30:00Z");
        for (missed, overlap, previous, expected) in [
            (MissedPolicy::Skip, OverlapPolicy::Allow, PreviousRun::Ended, [M, M, M]),
            (MissedPolicy::Skip, OverlapPolicy::Skip, PreviousRun::Live, [M, M, M]),
            (MissedPolicy::Once, OverlapPolicy::Allow, PreviousRun::Live, [M, M, Q]),
            (MissedPolicy::Once, OverlapPolicy::Skip, PreviousRun::Ended, [M, M, Q]),
            (MissedPolicy::Once, OverlapPolicy::Skip, PreviousRun::Live, [M, M, O]),
            (MissedPolicy::All, OverlapPolicy::Allow, PreviousRun::Ended, [Q, Q, Q]),
            (MissedPolicy::All, OverlapPolicy::Allow, PreviousRun::Live, [Q, Q, Q]),
            (MissedPolicy::All, OverlapPolicy::Skip, PreviousRun::Ended, [Q, O, O]),
            (MissedPolicy::All, OverlapPolicy::Skip, PreviousRun::Live, [O, O, O]),
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

    /// The number of runs must not depend on whether the scheduler returns 59 or 61 seconds after a fire.
    #[test]
    fn fire_on_time_replaces_missed_fires() {
        let next = "2026-03-01T10:00:00Z";
        for now in ["2026-03-01T12:00:59Z", "2026-03-01T12:01:01Z"] {
            let plan = hourly(MissedPolicy::Once, OverlapPolicy::Allow, next, now, PreviousRun::Ended);
            assert_eq!(decisions(&plan), [M, M, Q], "{now}");
        }
    }

    #[test]
    fn missed_fire_does_not_block_a_fire_on_time() {
        let (next, now) = ("2026-03-01T10:00:00Z", "2026-03-01T12:00:10Z");
        assert_eq!(
            decisions(&hourly(MissedPolicy::Skip, OverlapPolicy::Skip, next, now, PreviousRun::Ended)),
            [M, M, Q]
        );
        assert_eq!(
            decisions(&hourly(MissedPolicy::Skip, OverlapPolicy::Skip, next, now, PreviousRun::Live)),
            [M, M, O]
        );
    }

    #[test]
    fn two_fires_on_time_overlap() {
        let pattern = Pattern::parse("* * * * *", "UTC").unwrap();
        let (next, now) = (at("2026-03-01T10:00:00Z"), at("2026-03-01T10:01:00Z"));
        let skip = plan(&pattern, MissedPolicy::Skip, OverlapPolicy::Skip, next, now, PreviousRun::Ended);
        assert_eq!(decisions(&skip), [Q, O]);
        let allow = plan(&pattern, MissedPolicy::Skip, OverlapPolicy::Allow, next, now, PreviousRun::Live);
        assert_eq!(decisions(&allow), [Q, Q]);
    }

    #[test]
    fn plan_lists_a_hundred_fires_and_counts_the_rest() {
        let (next, now) = ("2026-03-01T10:00:00Z", "2026-03-06T10:30:00Z");
        let plan = hourly(MissedPolicy::All, OverlapPolicy::Allow, next, now, PreviousRun::Ended);
        assert_eq!(plan.fires.len(), FIRES_MAX);
        assert_eq!(plan.fires[0].fire_at, at("2026-03-02T07:00:00Z"));
        assert_eq!(plan.fires[99].fire_at, at("2026-03-06T10:00:00Z"));
        assert_eq!(plan.forgotten, 21);
        assert!(plan.fires.iter().all(|fire| fire.decision == Q));
    }

    /// Also bounds the work: without `jump_back`, this would iterate over more than five million fires.
    #[test]
    fn ten_years_of_minutely_fires_are_planned_quickly() {
        let pattern = Pattern::parse("* * * * *", "Europe/Berlin").unwrap();
        let (next, now) = (at("2016-03-01T10:00:00Z"), at("2026-03-29T01:30:30Z"));
        let plan = plan(&pattern, MissedPolicy::Once, OverlapPolicy::Skip, next, now, PreviousRun::Ended);
        assert_eq!(plan.fires.len(), FIRES_MAX);
        assert_eq!(plan.fires[99], Fire { fire_at: at("2026-03-29T01:30:00Z"), decision: Q });
        assert_eq!(plan.fires[0], Fire { fire_at: at("2026-03-28T23:51:00Z"), decision: M });
        assert_eq!(plan.forgotten, FORGOTTEN_MAX);
        assert_eq!(plan.next_fire_at, Some(at("2026-03-29T01:31:00Z")));
    }

    /// Sixty times fall into the same gap every year and make one fire: `jump_back` must go back far enough.
    #[test]
    fn times_in_gaps_do_not_shorten_the_list() {
        let pattern = Pattern::parse("* 2 * 3 +7L", "Europe/Berlin").unwrap();
        let (next, now) = (at("2000-03-26T01:00:00Z"), at("2026-04-01T00:00:00Z"));
        let plan = plan(&pattern, MissedPolicy::All, OverlapPolicy::Allow, next, now, PreviousRun::Ended);
        assert_eq!(plan.fires.len(), 27);
        assert_eq!(plan.fires[26].fire_at, at("2026-03-29T01:00:00Z"));
    }

    #[test]
    fn stored_next_fire_counts_even_if_the_pattern_changed() {
        let next = "2026-03-01T10:07:00Z";
        let plan = hourly(
            MissedPolicy::Skip,
            OverlapPolicy::Allow,
            next,
            "2026-03-01T10:07:01Z",
            PreviousRun::Ended,
        );
        assert_eq!(plan.fires, [Fire { fire_at: at(next), decision: Q }]);
        assert_eq!(plan.next_fire_at, Some(at("2026-03-01T11:00:00Z")));
    }
}
