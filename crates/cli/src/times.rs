//! Times and durations as people write and read them.

use chrono::{DateTime, Utc};
use std::time::Duration;
use tidemill_core::Timestamp;

/// A moment, or a time from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// This moment.
    At(Timestamp),
    /// So long from now.
    In(Duration),
}

impl When {
    /// The moment, seen from `now`, where a duration reaches back.
    pub(crate) fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(wait) => {
                now - chrono::Duration::from_std(wait).unwrap_or(chrono::Duration::days(36_500))
            }
        }
    }

    /// The moment, seen from `now`.
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::In(wait) => {
                now + chrono::Duration::from_std(wait).unwrap_or(chrono::Duration::days(36_500))
            }
        }
    }
}

/// Reads a moment such as 2026-02-14T10:30:00Z, or a time from now such as 10m.
pub(crate) fn when(text: &str) -> Result<When, String> {
    if let Ok(wait) = duration(text) {
        return Ok(When::In(wait));
    }
    DateTime::parse_from_rfc3339(text)
        .map(|at| When::At(at.with_timezone(&Utc)))
        .map_err(|_| "write a time such as 2026-02-14T10:30:00Z, or a duration such as 10m".to_owned())
}

/// Reads a duration such as 500ms, 30s, 5m, 2h or 90d.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(SHAPE.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| SHAPE.to_owned())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(|| "it is too long".to_owned())
}

const SHAPE: &str = "write a number and a unit, such as 500ms, 30s, 5m, 2h or 90d";

/// A duration in the largest unit that shows it whole.
pub(crate) fn written(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// A length of time, roughly: 850 ms, 3.2 s, 4 min, 2 h, 3 d.
pub(crate) fn rough(length: chrono::Duration) -> String {
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

/// A moment as seen from `now`: "3 s ago", "in 4 min".
pub(crate) fn relative(moment: Timestamp, now: Timestamp) -> String {
    let length = now - moment;
    if length.num_milliseconds() >= 0 {
        format!("{} ago", rough(length))
    } else {
        format!("in {}", rough(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_they_are_read() {
        for text in ["500ms", "30s", "5m", "2h", "90d"] {
            assert_eq!(written(duration(text).unwrap()), text);
        }
        for bad in ["", "5", "s", "-1s", "1.5s", "1w", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_is_a_moment_or_a_wait() {
        assert_eq!(when("10m"), Ok(When::In(Duration::from_mins(10))));
        assert!(matches!(when("2026-02-14T10:30:00+01:00"), Ok(When::At(_))));
        assert!(when("tomorrow").is_err());
    }

    #[test]
    fn lengths_are_told_roughly() {
        let told: Vec<_> = [5, 3_210, 45_000, 240_000, 7_300_000, 400_000_000]
            .map(|millis| rough(chrono::Duration::milliseconds(millis)))
            .to_vec();
        assert_eq!(told, ["5 ms", "3.2 s", "45 s", "4 min", "2 h", "4 d"]);
    }
}
