//! Tests of fire times, with real dates of clock changes.

use super::*;

fn pattern(cron: &str, zone: &str) -> Pattern {
    Pattern::parse(cron, zone).unwrap_or_else(|bad| panic!("{bad}"))
}

/// Returns the wall-clock time and offset of the first fires after a UTC time.
fn fires(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let pattern = pattern(cron, zone);
    let shown = |fire: Timestamp| fire.with_timezone(&pattern.zone).format("%d %H:%M %z").to_string();
    pattern.fires_after(after.parse().unwrap()).take(count).map(shown).collect()
}

fn parse_error(cron: &str, zone: &str) -> ScheduleError {
    Pattern::parse(cron, zone).expect_err(cron)
}

#[test]
fn next_fire_is_strictly_after_the_argument() {
    let pattern = pattern("30 2 * * *", "UTC");
    for (after, next) in [
        ("2026-03-01T02:29:59.999999Z", "2026-03-01T02:30:00Z"),
        ("2026-03-01T02:30:00Z", "2026-03-02T02:30:00Z"),
        ("2026-03-01T02:30:00.000001Z", "2026-03-02T02:30:00Z"),
        ("2026-12-31T23:59:59Z", "2027-01-01T02:30:00Z"),
    ] {
        assert_eq!(pattern.next_after(after.parse().unwrap()), Some(next.parse().unwrap()), "{after}");
    }
}

#[test]
fn names_ranges_steps_lists_and_short_forms_are_parsed() {
    let after = "2026-02-27T12:00:00Z"; // A Friday.
    for (cron, expected) in [
        ("0 9 * * mon-fri", ["02 09:00", "03 09:00", "04 09:00"]),
        ("0 9 * * SAT-SUN", ["28 09:00", "01 09:00", "07 09:00"]),
        ("0 9 1 jan,Jun *", ["01 09:00", "01 09:00", "01 09:00"]),
        ("5-59/25 13 * * *", ["27 13:05", "27 13:30", "27 13:55"]),
        ("0 8,20 * * *", ["27 20:00", "28 08:00", "28 20:00"]),
        ("0 0 L * *", ["28 00:00", "31 00:00", "30 00:00"]),
        ("0 0 LW * *", ["31 00:00", "30 00:00", "29 00:00"]),
        ("0 0 15W * ?", ["16 00:00", "15 00:00", "15 00:00"]),
        ("0 0 * * fri#2", ["13 00:00", "10 00:00", "08 00:00"]),
        ("0 0 * * 5L", ["27 00:00", "24 00:00", "29 00:00"]),
        ("0 0 * * sunL", ["29 00:00", "26 00:00", "31 00:00"]),
        ("0 0 * * 7L", ["29 00:00", "26 00:00", "31 00:00"]),
        ("0 0 13 * +fri", ["13 00:00", "13 00:00", "13 00:00"]),
        ("@hourly", ["27 13:00", "27 14:00", "27 15:00"]),
        ("@Daily", ["28 00:00", "01 00:00", "02 00:00"]),
        ("@midnight", ["28 00:00", "01 00:00", "02 00:00"]),
        ("@weekly", ["01 00:00", "08 00:00", "15 00:00"]),
        ("@monthly", ["01 00:00", "01 00:00", "01 00:00"]),
        (" 0  9 * *\t1 ", ["02 09:00", "09 09:00", "16 09:00"]),
    ] {
        let expected: Vec<_> = expected.iter().map(|shown| format!("{shown} +0000")).collect();
        assert_eq!(fires(cron, "UTC", after, 3), expected, "{cron}");
    }
}

#[test]
fn leap_day_is_found_past_2100() {
    let pattern = pattern("0 0 29 2 *", "UTC");
    let next = pattern.next_after("2096-03-01T00:00:00Z".parse().unwrap());
    assert_eq!(next, Some("2104-02-29T00:00:00Z".parse().unwrap()));
}

#[test]
fn extreme_times_do_not_panic() {
    for zone in ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"] {
        let pattern = pattern("* * * * *", zone);
        assert_eq!(pattern.next_after(Timestamp::MAX_UTC), None);
        assert_eq!(pattern.next_after(Timestamp::MIN_UTC), None);
        assert_eq!(pattern.next_after("5001-01-02T00:00:00Z".parse().unwrap()), None);
    }
}

#[test]
fn fixed_time_in_a_gap_fires_right_after_it() {
    // Berlin, 29 March 2026: 02:00 becomes 03:00.
    let after = "2026-03-28T12:00:00Z";
    assert_eq!(fires("30 2 * * *", "Europe/Berlin", after, 2), ["29 03:00 +0200", "30 02:30 +0200"]);
    assert_eq!(fires("0 2 * * *", "Europe/Berlin", after, 2), ["29 03:00 +0200", "30 02:00 +0200"]);
    assert_eq!(fires("0 3 * * *", "Europe/Berlin", after, 2), ["29 03:00 +0200", "30 03:00 +0200"]);
    // New York, 8 March 2026: 02:00 becomes 03:00.
    let after = "2026-03-07T12:00:00Z";
    assert_eq!(fires("59 2 * * *", "America/New_York", after, 2), ["08 03:00 -0400", "09 02:59 -0400"]);
    // Lord Howe, 4 October 2026: 02:00 becomes 02:30.
    let after = "2026-10-03T12:00:00Z";
    assert_eq!(fires("15 2 * * *", "Australia/Lord_Howe", after, 2), ["04 02:30 +1100", "05 02:15 +1100"]);
    // Troll, 29 March 2026: 01:00 becomes 03:00.
    let after = "2026-03-28T12:00:00Z";
    assert_eq!(fires("30 1 * * *", "Antarctica/Troll", after, 2), ["29 03:00 +0200", "30 01:30 +0200"]);
}

#[test]
fn skipped_midnight_fires_at_one() {
    // Sao Paulo, 4 November 2018, and Cairo, 24 April 2026: 00:00 becomes 01:00.
    let after = "2018-11-03T12:00:00Z";
    assert_eq!(fires("@daily", "America/Sao_Paulo", after, 2), ["04 01:00 -0200", "05 00:00 -0200"]);
    let after = "2026-04-23T12:00:00Z";
    assert_eq!(fires("30 0 * * *", "Africa/Cairo", after, 2), ["24 01:00 +0300", "25 00:30 +0300"]);
    assert_eq!(fires("0 0 24 4 *", "Africa/Cairo", after, 1), ["24 01:00 +0300"]);
}

#[test]
fn skipped_day_fires_at_the_start_of_the_next() {
    // Samoa had no 30 December 2011.
    let after = "2011-12-30T00:00:00Z";
    assert_eq!(fires("0 9 30 * *", "Pacific/Apia", after, 2), ["31 00:00 +1400", "30 09:00 +1400"]);
}

#[test]
fn skipped_time_before_midnight_fires_at_midnight() {
    // Nuuk, 28 March 2026: 23:00 becomes 00:00 of the next day.
    let after = "2026-03-28T12:00:00Z";
    assert_eq!(fires("30 23 * * *", "America/Nuuk", after, 2), ["29 00:00 -0100", "29 23:30 -0100"]);
    assert_eq!(fires("30 23 28 3 *", "America/Nuuk", after, 1), ["29 00:00 -0100"]);
}

#[test]
fn several_times_in_one_gap_are_one_fire() {
    let after = "2026-03-29T00:00:00Z"; // 01:00 in Berlin.
    assert_eq!(
        fires("*/20 2 * * *", "Europe/Berlin", after, 3),
        ["29 03:00 +0200", "30 02:00 +0200", "30 02:20 +0200"]
    );
    assert_eq!(
        fires("0 2,3,14 * * *", "Europe/Berlin", after, 3),
        ["29 03:00 +0200", "29 14:00 +0200", "30 02:00 +0200"]
    );
    assert_eq!(
        fires("30 1-3 * * *", "Europe/Berlin", after, 3),
        ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]
    );
}

#[test]
fn running_hours_keep_even_intervals_over_a_gap() {
    let after = "2026-03-28T23:30:00Z"; // 00:30 in Berlin.
    for cron in ["30 * * * *", "30 0-23 * * *", "30 */1 * * *"] {
        let expected = ["29 01:30 +0100", "29 03:30 +0200", "29 04:30 +0200"];
        assert_eq!(fires(cron, "Europe/Berlin", after, 3), expected, "{cron}");
    }
    let after = "2026-03-29T00:30:00Z"; // 01:30 in Berlin.
    assert_eq!(
        fires("*/15 * * * *", "Europe/Berlin", after, 3),
        ["29 01:45 +0100", "29 03:00 +0200", "29 03:15 +0200"]
    );
    assert_eq!(
        fires("0 */2 * * *", "Europe/Berlin", after, 3),
        ["29 03:00 +0200", "29 04:00 +0200", "29 06:00 +0200"]
    );
    let after = "2026-10-03T14:00:00Z"; // 00:30 in Lord Howe.
    assert_eq!(
        fires("0 * * * *", "Australia/Lord_Howe", after, 4),
        ["04 01:00 +1030", "04 02:30 +1100", "04 03:00 +1100", "04 04:00 +1100"]
    );
}

#[test]
fn fixed_time_in_a_repeated_hour_fires_on_the_first_pass() {
    // Berlin, 25 October 2026: 03:00 becomes 02:00.
    let after = "2026-10-24T12:00:00Z";
    assert_eq!(fires("30 2 * * *", "Europe/Berlin", after, 2), ["25 02:30 +0200", "26 02:30 +0100"]);
    assert_eq!(
        fires("0,30 2,3 * * *", "Europe/Berlin", after, 5),
        ["25 02:00 +0200", "25 02:30 +0200", "25 03:00 +0100", "25 03:30 +0100", "26 02:00 +0100"]
    );
    // New York, 1 November 2026: 02:00 becomes 01:00.
    let after = "2026-10-31T12:00:00Z";
    assert_eq!(fires("0 1 * * *", "America/New_York", after, 2), ["01 01:00 -0400", "02 01:00 -0500"]);
    // Lord Howe, 5 April 2026: 02:00 becomes 01:30.
    let after = "2026-04-04T12:00:00Z";
    assert_eq!(fires("45 1 * * *", "Australia/Lord_Howe", after, 2), ["05 01:45 +1100", "06 01:45 +1030"]);
    // Sao Paulo, 18 February 2018: 00:00 becomes 23:00 of the day before.
    let after = "2018-02-17T12:00:00Z";
    assert_eq!(fires("30 23 * * *", "America/Sao_Paulo", after, 2), ["17 23:30 -0200", "18 23:30 -0300"]);
    assert_eq!(fires("@daily", "America/Sao_Paulo", after, 2), ["18 00:00 -0300", "19 00:00 -0300"]);
}

#[test]
fn fixed_time_does_not_fire_on_the_second_pass() {
    let second_pass = "2026-10-25T01:10:00Z"; // 02:10 in Berlin for the second time.
    assert_eq!(fires("30 2 * * *", "Europe/Berlin", second_pass, 1), ["26 02:30 +0100"]);
    assert_eq!(fires("30 2,4 * * *", "Europe/Berlin", second_pass, 1), ["25 04:30 +0100"]);
}

#[test]
fn running_hours_fire_on_both_passes() {
    let after = "2026-10-25T00:00:00Z"; // 02:00 in Berlin for the first time.
    assert_eq!(
        fires("*/30 * * * *", "Europe/Berlin", after, 4),
        ["25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100", "25 03:00 +0100"]
    );
    let after = "2026-11-01T04:30:00Z"; // 00:30 in New York.
    assert_eq!(
        fires("@hourly", "America/New_York", after, 3),
        ["01 01:00 -0400", "01 01:00 -0500", "01 02:00 -0500"]
    );
    let after = "2026-04-04T14:30:00Z"; // 01:30 in Lord Howe for the first time.
    assert_eq!(
        fires("*/10 * * * *", "Australia/Lord_Howe", after, 6),
        [
            "05 01:40 +1100",
            "05 01:50 +1100",
            "05 01:30 +1030",
            "05 01:40 +1030",
            "05 01:50 +1030",
            "05 02:00 +1030"
        ]
    );
    let after = "2018-02-18T01:15:00Z"; // 23:15 in Sao Paulo for the first time.
    assert_eq!(
        fires("30 * * * *", "America/Sao_Paulo", after, 3),
        ["17 23:30 -0200", "17 23:30 -0300", "18 00:30 -0300"]
    );
}

#[test]
fn pattern_that_never_fires_is_rejected() {
    for cron in ["0 0 30 2 *", "0 0 31 apr,jun,sep,nov *", "0 0 1 * +fri#2"] {
        let bad = parse_error(cron, "UTC");
        assert_eq!(bad, ScheduleError::NeverFires { cron: cron.to_owned() });
    }
    for cron in ["0 0 29 2 *", "0 0 29 2 +mon", "0 0 31 * *"] {
        assert!(Pattern::parse(cron, "UTC").is_ok(), "{cron}");
    }
}

#[test]
fn invalid_field_is_named_in_the_error() {
    for (cron, field, text) in [
        ("60 * * * *", "minute", "60"),
        ("*/0 * * * *", "minute", "*/0"),
        ("*/90 * * * *", "minute", "*/90"),
        ("0,5-59/61 * * * *", "minute", "0,5-59/61"),
        ("1,,2 * * * *", "minute", "1,,2"),
        ("MON 0 * * *", "minute", "mon"),
        ("0 24 * * *", "hour", "24"),
        ("0 9-8 * * *", "hour", "9-8"),
        ("0 L * * *", "hour", "l"),
        ("0 0 0 * *", "day of month", "0"),
        ("0 0 15W3 * *", "day of month", "15w3"),
        ("0 0 mon * *", "day of month", "mon"),
        ("0 0 1 13 *", "month", "13"),
        ("0 0 1 janfeb *", "month", "janfeb"),
        ("0 0 1 january *", "month", "january"),
        ("0 0 * * 8", "day of week", "8"),
        ("0 0 * * fri-mon", "day of week", "fri-mon"),
        ("0 0 * * fri#6", "day of week", "fri#6"),
        ("0 0 * * L", "day of week", "l"),
        ("0 0 * * 5#L", "day of week", "5#l"),
        ("0 0 * * ++1", "day of week", "++1"),
        ("0 0 * * \u{131}", "day of week", "\u{131}"),
    ] {
        let bad = parse_error(cron, "UTC");
        let ScheduleError::Field { field: named, text: shown, .. } = bad else { panic!("{cron}: {bad}") };
        assert_eq!((named, shown.as_str()), (field, text));
    }
    let bad = parse_error("0 25 * * *", "UTC");
    assert_eq!(bad.to_string(), "the hour field `25` of cron pattern `0 25 * * *` is not valid");
    assert_eq!(bad.hint(), "hours are 0 to 23, as in `5`, `8,20`, `9-17` or `*/2`; a step is at most 24");
}

#[test]
fn seconds_years_and_unknown_short_forms_are_rejected() {
    let seconds = parse_error("*/10 * * * * *", "UTC");
    assert_eq!(seconds.to_string(), "cron pattern `*/10 * * * * *` has 6 fields; it must have 5");
    assert_eq!(seconds.hint(), "omit the seconds and the year: a schedule fires at most once a minute");
    for cron in ["", " ", "5", "0 0", "0 0 * *", "0 0 0 * * * 2030", "0 0 0 0 0 0 0 0"] {
        assert!(matches!(parse_error(cron, "UTC"), ScheduleError::FieldCount { .. }), "{cron}");
    }
    for cron in ["@reboot", "@every 5m", "@", "@daily 3"] {
        assert!(matches!(parse_error(cron, "UTC"), ScheduleError::Nickname { .. }), "{cron}");
    }
    assert!(matches!(parse_error(&"*".repeat(257), "UTC"), ScheduleError::TooLong { bytes: 257 }));
}

#[test]
fn unknown_time_zone_is_rejected_with_a_suggestion() {
    let bad = parse_error("@daily", "Europe/Munich");
    assert_eq!(bad.to_string(), "`Europe/Munich` is not a time zone");
    assert_eq!(parse_error("@daily", "europe/berlin").hint(), "did you mean `Europe/Berlin`?");
    assert_eq!(
        parse_error("@daily", "PST").hint(),
        "use an IANA name, such as `UTC`, `Europe/Berlin` or `America/New_York`"
    );
}
