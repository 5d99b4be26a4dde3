//! The supported range of times: the years 1 to 9999, the range of RFC 3339.
//!
//! PostgreSQL and SQLite can store more: `infinity`, and years outside of the range of calendar libraries. Such a
//! value is read as the nearest time in the range. Watermarks are an exception, because they may hold a number.

use crate::Timestamp;

/// `0001-01-01T00:00:00Z` in microseconds since 1970.
pub const MICROS_MIN: i64 = -62_135_596_800_000_000;
/// `9999-12-31T23:59:59.999999Z` in microseconds since 1970.
pub const MICROS_MAX: i64 = 253_402_300_799_999_999;

/// Converts microseconds since 1970 to a time, clamped to the range.
pub fn from_micros(micros: i64) -> Timestamp {
    // Every value between the bounds is valid, so the default is never used.
    Timestamp::from_timestamp_micros(micros.clamp(MICROS_MIN, MICROS_MAX)).unwrap_or_default()
}

/// Largest number that a watermark can hold: the last microsecond that a [`Timestamp`] can express.
pub const NUMBER_MAX: i64 = 8_210_266_876_799_999_999;

/// Converts the microseconds of a watermark to a time. They may stand for a number, such as an id that contains a time
/// in nanoseconds, so years after 9999 are kept.
pub fn watermark_from_micros(micros: i64) -> Timestamp {
    Timestamp::from_timestamp_micros(micros.clamp(MICROS_MIN, NUMBER_MAX)).unwrap_or_default()
}

/// Adds a duration in whole microseconds, clamped to the range.
pub fn later(at: Timestamp, by: chrono::TimeDelta) -> Timestamp {
    let by =
        by.num_microseconds().unwrap_or(if by > chrono::TimeDelta::zero() { i64::MAX } else { i64::MIN });
    from_micros(at.timestamp_micros().saturating_add(by))
}

/// Returns whether a time is in the range.
pub fn is_in_range(at: Timestamp) -> bool {
    (MICROS_MIN..=MICROS_MAX).contains(&at.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_is_clamped_to_the_range() {
        use chrono::TimeDelta;
        let at = from_micros(7_000_001);
        assert_eq!(later(at, TimeDelta::seconds(3)), from_micros(10_000_001));
        assert_eq!(later(at, TimeDelta::seconds(-3)), from_micros(4_000_001));
        for (by, bound) in
            [(TimeDelta::MAX, i64::MAX), (TimeDelta::days(365 * 9_000), i64::MAX), (TimeDelta::MIN, i64::MIN)]
        {
            assert_eq!(later(at, by), from_micros(bound));
        }
        assert_eq!(later(from_micros(i64::MAX), TimeDelta::seconds(1)), from_micros(i64::MAX));
    }

    #[test]
    fn watermark_keeps_numbers_beyond_the_range_of_times() {
        // An id with a time in it, and a time in nanoseconds.
        for number in [MICROS_MIN, -1, 0, MICROS_MAX + 1, 1_852_000_000_000_000_003, NUMBER_MAX] {
            let watermark = watermark_from_micros(number);
            assert_eq!(watermark.timestamp_micros(), number);
            let json = serde_json::to_string(&watermark).unwrap();
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), watermark, "{json}");
        }
        assert_eq!(Timestamp::MAX_UTC.timestamp_micros(), NUMBER_MAX);
        assert_eq!(watermark_from_micros(i64::MAX), Timestamp::from_timestamp_micros(NUMBER_MAX).unwrap());
    }

    #[test]
    fn bounds_are_the_years_1_and_9999() {
        assert_eq!(from_micros(i64::MIN).to_rfc3339(), "0001-01-01T00:00:00+00:00");
        assert_eq!(from_micros(i64::MAX).to_rfc3339(), "9999-12-31T23:59:59.999999+00:00");
        assert_eq!(from_micros(0), Timestamp::UNIX_EPOCH);
        assert!(is_in_range(Timestamp::UNIX_EPOCH) && !is_in_range(Timestamp::MAX_UTC));
        assert!(!is_in_range(Timestamp::MIN_UTC));
    }
}
