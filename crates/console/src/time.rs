//! Formatting of times and durations.

use chrono::{SecondsFormat, TimeDelta};
use maud::{Markup, html};
use tidemill_core::Timestamp;

pub(crate) fn exact(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Readable format with milliseconds.
pub(crate) fn full(at: Timestamp) -> String {
    at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

/// Time to the minute, with the exact time in the title.
pub(crate) fn minute(at: Timestamp) -> Markup {
    html! { time datetime=(exact(at)) title=(full(at)) { (at.format("%Y-%m-%d %H:%M UTC").to_string()) } }
}

/// Relative time, with the exact time in the title.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    let text = distance(at, now);
    html! { time datetime=(exact(at)) title=(full(at)) { (text) } }
}

/// Relative time, or a dash.
pub(crate) fn ago_or_none(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! { @if let Some(at) = at { (ago(at, now)) } @else { span.dim { "–" } } }
}

/// Time of day, with the exact time in the title.
pub(crate) fn clock(at: Timestamp) -> Markup {
    html! { time datetime=(exact(at)) title=(full(at)) { (at.format("%H:%M:%S").to_string()) } }
}

fn distance(at: Timestamp, now: Timestamp) -> String {
    let away = now - at;
    if away.abs() < TimeDelta::seconds(1) {
        "now".to_owned()
    } else if away < TimeDelta::zero() {
        format!("in {}", rough(-away))
    } else {
        format!("{} ago", rough(away))
    }
}

/// Duration in its two largest units.
pub(crate) fn rough(time: TimeDelta) -> String {
    let secs = time.num_seconds().max(0);
    match secs {
        0 => format!("{} ms", time.num_milliseconds().max(0)),
        1..60 => format!("{secs} s"),
        60..3_600 => two(secs / 60, "min", secs % 60, "s"),
        3_600..86_400 => two(secs / 3_600, "h", secs % 3_600 / 60, "min"),
        _ => two(secs / 86_400, "d", secs % 86_400 / 3_600, "h"),
    }
}

fn two(large: i64, unit: &str, small: i64, below: &str) -> String {
    if small == 0 || large >= 10 {
        format!("{large} {unit}")
    } else {
        format!("{large} {unit} {small} {below}")
    }
}

/// Duration from a number of seconds.
pub(crate) fn rough_secs(secs: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "float casts saturate")]
    let millis = (secs.max(0.0) * 1_000.0).round() as i64;
    rough(TimeDelta::milliseconds(millis.min(i64::MAX / 2)))
}

/// Duration between two times; until now if there is no end.
pub(crate) fn took(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> Option<String> {
    from.map(|from| rough(to.unwrap_or(now) - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeZone as _, Utc};

    #[test]
    fn relative_time_has_the_exact_time_in_its_title() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let shown = ago(now - TimeDelta::seconds(95), now).into_string();
        assert_eq!(
            shown,
            "<time datetime=\"2026-02-14T10:28:25.000Z\" title=\"2026-02-14 10:28:25.000 UTC\">\
             1 min 35 s ago</time>"
        );
        for (secs, text) in [
            (0, "now"),
            (1, "1 s ago"),
            (3_600, "1 h ago"),
            (5_000, "1 h 23 min ago"),
            (200_000, "2 d 7 h ago"),
            (3_000_000, "34 d ago"),
            (-90, "in 1 min 30 s"),
        ] {
            assert_eq!(distance(now - TimeDelta::seconds(secs), now), text);
        }
    }

    #[test]
    fn duration_uses_the_units_that_fit() {
        assert_eq!(rough_secs(0.042), "42 ms");
        assert_eq!(rough_secs(1.9), "1 s");
        assert_eq!(rough_secs(f64::MAX), rough_secs(f64::MAX));
        assert_eq!(rough_secs(-1.0), "0 ms");
        assert_eq!(rough(TimeDelta::seconds(600)), "10 min");
    }
}
