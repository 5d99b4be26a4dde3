//! Timeouts, limits, retry counts and trusted authorities of a feed's client. Only tests and the demo change the
//! numbers, to shorten the waits.

use crate::Authorities;
use std::time::Duration;
use tidemill_core::limits::FEED_TIMEOUT_SECS_MAX;

/// Timeouts, size limits, retry counts and trusted authorities of a feed's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Number of retries after the first attempt of a request.
    pub retries_max: u32,
    /// Wait before the first retry; it doubles with each retry.
    pub backoff: Duration,
    pub backoff_max: Duration,
    /// Upper limit of the random time that is added to each wait.
    pub jitter_max: Duration,
    /// Longest `Retry-After` that is honoured. If the feed asks for more, the request fails at once.
    pub retry_after_max: Duration,
    pub connect_timeout: Duration,
    /// Time limit for a complete response, unless the definition of the feed has one.
    pub answer_timeout: Duration,
    /// Largest time limit of a definition that applies.
    pub answer_timeout_max: Duration,
    /// Time limit for a request with its retries, without the waits for the rate limit. After it, the request is not
    /// retried: the caller waits for the feed without holding a page slot.
    pub question_timeout: Duration,
    pub token_lifetime: Duration,
    /// How long before its expiry a token is renewed.
    pub token_margin: Duration,
    /// Largest size of one record in bytes.
    pub item_bytes_max: usize,
    /// Largest size of a response without records in bytes.
    pub answer_bytes_max: usize,
    /// Certificate authorities that the operator trusts in addition to the usual ones.
    pub authorities: Authorities,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            retries_max: 5,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(20),
            jitter_max: Duration::from_millis(300),
            retry_after_max: Duration::from_mins(1),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(45),
            answer_timeout_max: Duration::from_secs(FEED_TIMEOUT_SECS_MAX.into()),
            question_timeout: Duration::from_secs(90),
            token_lifetime: Duration::from_hours(6),
            token_margin: Duration::from_mins(5),
            item_bytes_max: 256 * 1024,
            answer_bytes_max: 1024 * 1024,
            authorities: Authorities::default(),
        }
    }
}

impl Tuning {
    /// Returns the wait before retry `number`, counted from 0, without the jitter.
    pub fn backoff_of(&self, number: u32) -> Duration {
        let factor = 1_u32.checked_shl(number).unwrap_or(u32::MAX);
        self.backoff.saturating_mul(factor).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_cap() {
        let tuning = Tuning::default();
        let waits: Vec<_> = (0..7).map(|number| tuning.backoff_of(number).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 20, 20]);
        assert_eq!(tuning.backoff_of(u32::MAX).as_secs(), 20);
    }
}
