//! Times and how long things take, in words.

use chrono::{SecondsFormat, TimeDelta};
use maud::{Markup, html};
use tidemill_core::Timestamp;

/// A time as programs read it.
pub(crate) fn exact(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A time as people read it when they want to know it exactly.
pub(crate) fn full(at: Timestamp) -> String {
    at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

/// A time to the minute, with the exact one on hover.
pub(crate) fn minute(at: Timestamp) -> Markup {
    html! { time datetime=(exact(at)) title=(full(at)) { (at.format("%Y-%m-%d %H:%M UTC").to_string()) } }
}

/// A time by how far away it is, with the exact one on hover.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    let words = distance(at, now);
    html! { time datetime=(exact(at)) title=(full(at)) { (words) } }
}

/// The same where there may be none.
pub(crate) fn ago_or_none(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! { @if let Some(at) = at { (ago(at, now)) } @else { span.dim { "–" } } }
}

/// A time on the clock, with the exact one on hover.
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

/// How long something takes, to the two units that matter.
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

/// How long something takes, from a number of seconds.
pub(crate) fn rough_secs(secs: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a cast keeps to the bounds of the type")]
    let millis = (secs.max(0.0) * 1_000.0).round() as i64;
    rough(TimeDelta::milliseconds(millis.min(i64::MAX / 2)))
}

/// From one time to another, or to now where it has not come.
pub(crate) fn took(from: Option<Timestamp>, to: Option<Timestamp>, now: Timestamp) -> Option<String> {
    from.map(|from| rough(to.unwrap_or(now) - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{TimeZone as _, Utc};

    #[test]
    fn times_are_rough_in_words_and_exact_on_hover() {
        let now = Utc.with_ymd_and_hms(2026, 2, 14, 10, 30, 0).unwrap();
        let shown = ago(now - TimeDelta::seconds(95), now).into_string();
        assert_eq!(
            shown,
            "<time datetime=\"2026-02-14T10:28:25.000Z\" title=\"2026-02-14 10:28:25.000 UTC\">\
             1 min 35 s ago</time>"
        );
        for (secs, words) in [
            (0, "now"),
            (1, "1 s ago"),
            (3_600, "1 h ago"),
            (5_000, "1 h 23 min ago"),
            (200_000, "2 d 7 h ago"),
            (3_000_000, "34 d ago"),
            (-90, "in 1 min 30 s"),
        ] {
            assert_eq!(distance(now - TimeDelta::seconds(secs), now), words);
        }
    }

    #[test]
    fn durations_have_the_unit_that_fits() {
        assert_eq!(rough_secs(0.042), "42 ms");
        assert_eq!(rough_secs(1.9), "1 s");
        assert_eq!(rough_secs(f64::MAX), rough_secs(f64::MAX));
        assert_eq!(rough_secs(-1.0), "0 ms");
        assert_eq!(rough(TimeDelta::seconds(600)), "10 min");
    }
}
