//! Parsing and formatting of times and durations.

use chrono::{DateTime, Utc};
use std::time::Duration;
use tidemill_core::Timestamp;

/// A time, or a duration relative to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    At(Timestamp),
    In(Duration),
}

impl When {
    /// Resolves a duration as a time before `now`.
    pub(crate) fn resolve_past(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(wait) => {
                now - chrono::Duration::from_std(wait).unwrap_or(chrono::Duration::days(36_500))
            }
        }
    }

    /// Resolves a duration as a time after `now`.
    pub(crate) fn resolve_future(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(wait) => {
                now + chrono::Duration::from_std(wait).unwrap_or(chrono::Duration::days(36_500))
            }
        }
    }
}

/// Parses a time such as 2026-02-14T10:30:00Z, or a duration such as 10m.
pub(crate) fn parse_when(text: &str) -> Result<When, String> {
    if let Ok(wait) = parse_duration(text) {
        return Ok(When::In(wait));
    }
    DateTime::parse_from_rfc3339(text)
        .map(|at| When::At(at.with_timezone(&Utc)))
        .map_err(|_| "write a time such as 2026-02-14T10:30:00Z, or a duration such as 10m".to_owned())
}

/// Parses a duration such as 500ms, 30s, 5m, 2h or 90d.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(FORMAT_HINT.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| FORMAT_HINT.to_owned())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "it is too long".to_owned())
}

const FORMAT_HINT: &str = "write a number and a unit, such as 500ms, 30s, 5m, 2h or 90d";

/// Formats a duration exactly, in the largest unit that needs no fraction.
pub(crate) fn format_exact(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// Formats a duration approximately: 850 ms, 3.2 s, 4 min, 2 h, 3 d.
pub(crate) fn format_rough(length: chrono::Duration) -> String {
    let millis = length.num_milliseconds().abs();
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..10_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        10_000..120_000 => format!("{} s", millis / 1_000),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        7_200_000..172_800_000 => format!("{} h", millis / 3_600_000),
        _ => format!("{} d", millis / 86_400_000),
    }
}

/// Formats a time relative to `now`: "3 s ago", "in 4 min".
pub(crate) fn format_relative(moment: Timestamp, now: Timestamp) -> String {
    let length = now - moment;
    if length.num_milliseconds() >= 0 {
        format!("{} ago", format_rough(length))
    } else {
        format!("in {}", format_rough(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_format_parses_back() {
        for text in ["500ms", "30s", "5m", "2h", "90d"] {
            assert_eq!(format_exact(parse_duration(text).unwrap()), text);
        }
        for invalid in ["", "5", "s", "-1s", "1.5s", "1w", "99999999999999999999s"] {
            assert!(parse_duration(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn when_is_a_time_or_a_duration() {
        assert_eq!(parse_when("10m"), Ok(When::In(Duration::from_mins(10))));
        assert!(matches!(parse_when("2026-02-14T10:30:00+01:00"), Ok(When::At(_))));
        assert!(parse_when("tomorrow").is_err());
    }

    #[test]
    fn rough_format_uses_one_unit() {
        let texts: Vec<_> = [5, 3_210, 45_000, 240_000, 7_300_000, 400_000_000]
            .map(|millis| format_rough(chrono::Duration::milliseconds(millis)))
            .to_vec();
        assert_eq!(texts, ["5 ms", "3.2 s", "45 s", "4 min", "2 h", "4 d"]);
    }
}
