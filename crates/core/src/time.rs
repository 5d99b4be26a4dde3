//! The range of times: the years 1 to 9999, which RFC 3339 can write.
//!
//! PostgreSQL and SQLite hold more: `infinity`, and years that no calendar library knows. Such a value is read as the
//! nearest time in the range.

use crate::Timestamp;

/// `0001-01-01T00:00:00Z` in microseconds since 1970.
pub const MICROS_MIN: i64 = -62_135_596_800_000_000;
/// `9999-12-31T23:59:59.999999Z` in microseconds since 1970.
pub const MICROS_MAX: i64 = 253_402_300_799_999_999;

/// The time that is so many microseconds after 1970, or the nearest one in the range.
pub fn from_micros(micros: i64) -> Timestamp {
    // Every value between the bounds is a time, so the default is never used.
    Timestamp::from_timestamp_micros(micros.clamp(MICROS_MIN, MICROS_MAX)).unwrap_or_default()
}

/// Whether a time is in the range.
pub fn is_in_range(at: Timestamp) -> bool {
    (MICROS_MIN..=MICROS_MAX).contains(&at.timestamp_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_the_years_1_and_9999() {
        assert_eq!(from_micros(i64::MIN).to_rfc3339(), "0001-01-01T00:00:00+00:00");
        assert_eq!(from_micros(i64::MAX).to_rfc3339(), "9999-12-31T23:59:59.999999+00:00");
        assert_eq!(from_micros(0), Timestamp::UNIX_EPOCH);
        assert!(is_in_range(Timestamp::UNIX_EPOCH) && !is_in_range(Timestamp::MAX_UTC));
        assert!(!is_in_range(Timestamp::MIN_UTC));
    }
}
