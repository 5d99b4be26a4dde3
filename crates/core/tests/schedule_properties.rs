//! Properties of all patterns, in all time zones, across clock changes.
//!
//! The oracle iterates over a few days minute by minute and follows the rules of the module's documentation
//! literally. It shares only croner's match of a wall-clock time with the implementation.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use chrono::{Datelike, NaiveDate, NaiveDateTime, TimeDelta, TimeZone};
use chrono_tz::Tz;
use croner::Cron;
use proptest::prelude::*;
use tidemill_core::Timestamp;
use tidemill_core::schedule::{
    Decision, FIRES_MAX, FORGOTTEN_MAX, MissedPolicy, OverlapPolicy, Pattern, PreviousRun, plan,
};

/// A zone, and a UTC time shortly before one of its clock changes, if it has any.
const CHANGES: &[(&str, &str)] = &[
    ("Europe/Berlin", "2026-03-28T00:00:00Z"),
    ("Europe/Berlin", "2026-10-24T00:00:00Z"),
    ("America/New_York", "2026-03-07T00:00:00Z"),
    ("America/New_York", "2026-10-31T00:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-02T12:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-03T12:00:00Z"),
    ("America/Sao_Paulo", "2018-11-03T00:00:00Z"),
    ("America/Sao_Paulo", "2018-02-17T00:00:00Z"),
    ("Africa/Cairo", "2026-04-22T12:00:00Z"),
    ("Africa/Cairo", "2026-10-28T12:00:00Z"),
    ("America/Havana", "2026-10-31T00:00:00Z"),
    ("Antarctica/Troll", "2026-03-28T00:00:00Z"),
    ("Antarctica/Troll", "2026-10-24T00:00:00Z"),
    ("America/Nuuk", "2026-03-28T00:00:00Z"),
    ("America/Nuuk", "2026-10-24T00:00:00Z"),
    // A skipped day, and a day that was repeated except for one hour.
    ("Pacific/Apia", "2011-12-29T00:00:00Z"),
    ("Pacific/Kwajalein", "1969-09-29T00:00:00Z"),
    ("Asia/Kolkata", "2026-05-01T00:00:00Z"),
    ("UTC", "2026-05-01T00:00:00Z"),
];

/// Zones in which, from 2015 to 2030, every skipped minute is followed by a minute of the same day.
///
/// Nuuk is excluded: 23:30 may be skipped, and its fire is at midnight of the next day.
const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "America/St_Johns",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
];

const WINDOW: TimeDelta = TimeDelta::days(4);

fn minute() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (0..60u32).prop_map(|minute| minute.to_string()),
        (1..60u32).prop_map(|step| format!("*/{step}")),
        (0..30u32, 30..60u32).prop_map(|(a, b)| format!("{a},{b}")),
        (0..30u32, 30..60u32, 1..20u32).prop_map(|(a, b, step)| format!("{a}-{b}/{step}")),
    ]
}

/// Generates hours, with a preference for those around clock changes.
fn hour() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (0..4u32).prop_map(|hour| hour.to_string()),
        (0..24u32).prop_map(|hour| hour.to_string()),
        (1..13u32).prop_map(|step| format!("*/{step}")),
        (0..3u32, 3..24u32).prop_map(|(a, b)| format!("{a},{b}")),
        (0..3u32, 3..24u32).prop_map(|(a, b)| format!("{a}-{b}")),
        (0..3u32, 3..24u32, 1..5u32).prop_map(|(a, b, step)| format!("{a}-{b}/{step}")),
    ]
}

fn days() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("* * *"),
        1 => prop::sample::select(vec!["*/2 * *", "* * sun", "* * mon-sat", "1,30,31 * *", "L * *"]),
    ]
}

fn cron() -> impl Strategy<Value = String> {
    (minute(), hour(), days()).prop_map(|(minute, hour, days)| format!("{minute} {hour} {days}"))
}

fn change() -> impl Strategy<Value = (&'static str, Timestamp)> {
    prop::sample::select(CHANGES).prop_map(|(zone, start)| (zone, start.parse().unwrap()))
}

fn pattern(cron: &str, zone: &str) -> Pattern {
    Pattern::parse(cron, zone).unwrap_or_else(|bad| panic!("{bad}"))
}

/// Returns every minute of the wall clock in a half-open range.
fn minutes(from: NaiveDateTime, to: NaiveDateTime) -> impl Iterator<Item = NaiveDateTime> {
    std::iter::successors(Some(from), |&wall| Some(wall + TimeDelta::minutes(1)))
        .take_while(move |&wall| wall < to)
}

/// Returns every fire in `start..start + WINDOW`, found minute by minute.
fn oracle(cron: &str, zone: &str, start: Timestamp) -> BTreeSet<Timestamp> {
    let zone: Tz = zone.parse().unwrap();
    let hour = cron.split(' ').nth(1).unwrap();
    let running = hour.contains(['*', '/']) || hour == "0-23";
    let parsed: Cron = cron.parse().unwrap();
    let fits = |wall: NaiveDateTime| parsed.is_time_matching(&wall).unwrap();
    let wall_at = |at: Timestamp| zone.from_utc_datetime(&at.naive_utc()).naive_local();

    let mut fires = BTreeSet::new();
    let mut shown = BTreeSet::new();
    // Starts two days earlier, to know which wall-clock times of the window are repeated.
    let mut at = start - TimeDelta::days(2);
    let mut expected = wall_at(at);
    while at < start + WINDOW {
        let wall = wall_at(at);
        let is_first = shown.insert(wall);
        let skipped = minutes(expected, wall).any(fits);
        let fires_soon = || minutes(wall, wall + (wall - expected)).any(fits);
        if (fits(wall) && (running || is_first)) || (skipped && !(running && fires_soon())) {
            fires.insert(at);
        }
        expected = wall + TimeDelta::minutes(1);
        at += TimeDelta::minutes(1);
    }
    fires.split_off(&start)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Crosses a clock change in random steps that never skip a fire, and compares with the oracle.
    #[test]
    fn no_fire_is_lost_or_doubled(
        cron in cron(),
        (zone, start) in change(),
        steps_ms in prop::collection::vec(1..36_000_000i64, 1..64),
    ) {
        let pattern = pattern(&cron, zone);
        let mut steps = steps_ms.iter().cycle().map(|&step| TimeDelta::milliseconds(step));
        let mut now = start - TimeDelta::microseconds(1);
        let mut found = Vec::new();
        while let Some(next) = pattern.next_after(now)
            && next < start + WINDOW
        {
            prop_assert!(next > now);
            let stepped = now + steps.next().unwrap();
            if stepped < next {
                now = stepped;
            } else {
                found.push(next);
                now = next;
            }
        }
        let expected: Vec<_> = oracle(&cron, zone, start).into_iter().collect();
        prop_assert_eq!(found, expected, "{} in {}", cron, zone);
    }

    #[test]
    fn next_fire_is_constant_between_two_fires(
        cron in cron(),
        (zone, start) in change(),
        offset_secs in 0..WINDOW.num_seconds(),
        permille in prop::collection::vec(0..1_000i64, 8),
    ) {
        let pattern = pattern(&cron, zone);
        let first = pattern.next_after(start + TimeDelta::seconds(offset_secs)).unwrap();
        let second = pattern.next_after(first).unwrap();
        prop_assert!(first < second);
        for permille in permille {
            let between = first + TimeDelta::milliseconds((second - first).num_seconds() * permille);
            prop_assert_eq!(pattern.next_after(between), Some(second), "{} in {} at {}", cron, zone, between);
        }
        prop_assert_eq!(pattern.next_after(second - TimeDelta::microseconds(1)), Some(second));
    }

    #[test]
    fn daily_time_fires_once_on_every_day(
        hour in prop_oneof![0..4u32, 0..24u32],
        minute in 0..60u32,
        zone in prop::sample::select(ZONES),
        year in 2015..2030i32,
    ) {
        let pattern = pattern(&format!("{minute} {hour} * * *"), zone);
        let zone: Tz = zone.parse().unwrap();
        let before = NaiveDate::from_ymd_opt(year - 1, 12, 30).unwrap().and_hms_opt(0, 0, 0).unwrap();
        let fired: Vec<_> = pattern
            .fires_after(before.and_utc())
            .map(|fire| fire.with_timezone(&zone).date_naive())
            .skip_while(|day| day.year() < year)
            .take_while(|day| day.year() == year)
            .collect();
        let first = NaiveDate::from_ymd_opt(year, 1, 1).unwrap();
        let days: Vec<_> = first.iter_days().take_while(|day| day.year() == year).collect();
        prop_assert_eq!(fired, days);
    }

    /// `jump_back` finds the same fires as a plain iteration.
    #[test]
    fn plan_lists_the_newest_fires_and_counts_the_others(
        cron in cron(),
        (zone, start) in change(),
        down_mins in prop_oneof![0..300i64, 0..12_000i64],
        missed in prop::sample::select(MissedPolicy::ALL),
        overlap in prop::sample::select(OverlapPolicy::ALL),
        previous in prop::sample::select(&[PreviousRun::Live, PreviousRun::Ended][..]),
    ) {
        let pattern = pattern(&cron, zone);
        let first = pattern.next_after(start).unwrap();
        let now = first + TimeDelta::minutes(down_mins) + TimeDelta::seconds(17);
        let due: Vec<_> =
            std::iter::once(first).chain(pattern.fires_after(first)).take_while(|&fire| fire <= now).collect();
        let plan = plan(&pattern, missed, overlap, first, now, previous);

        let listed: Vec<_> = plan.fires.iter().map(|fire| fire.fire_at).collect();
        prop_assert_eq!(&listed[..], &due[due.len().saturating_sub(FIRES_MAX)..]);
        prop_assert_eq!(plan.forgotten, ((due.len() - listed.len()) as u64).min(FORGOTTEN_MAX));
        prop_assert_eq!(plan.next_fire_at, pattern.next_after(now));

        let queued = plan.fires.iter().filter(|fire| fire.decision == Decision::Queue).count();
        match (overlap, previous) {
            (OverlapPolicy::Skip, PreviousRun::Live) => prop_assert_eq!(queued, 0),
            (OverlapPolicy::Skip, PreviousRun::Ended) => prop_assert!(queued <= 1),
            (OverlapPolicy::Allow, PreviousRun::Live | PreviousRun::Ended) => {
                prop_assert!(plan.fires.iter().all(|fire| fire.decision != Decision::Overlapped));
                match missed {
                    MissedPolicy::Skip => prop_assert!(queued <= 1),
                    MissedPolicy::Once => prop_assert_eq!(queued, 1),
                    MissedPolicy::All => prop_assert_eq!(queued, listed.len()),
                }
            }
        }
    }
}
