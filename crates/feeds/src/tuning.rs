//! The numbers by which a feed is spoken to. Tests and the demo shrink the waits; nothing else changes them.

use std::time::Duration;

/// Waits, bounds and tries of a feed's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    /// Retries after the first try of a question.
    pub retries_max: u32,
    /// Wait before the first retry; it doubles with each.
    pub backoff: Duration,
    /// Longest wait before a retry.
    pub backoff_max: Duration,
    /// Random time on top of each wait, at most.
    pub jitter_max: Duration,
    /// Longest wait that a feed may ask for; when it asks for more, the question is given back at once.
    pub retry_after_max: Duration,
    /// Time for a connection to be made.
    pub connect_timeout: Duration,
    /// Time for a whole answer.
    pub answer_timeout: Duration,
    /// Time for a question with its retries, without the waits for the rate limit. A question that has taken longer is
    /// not tried again: its caller waits for the feed without holding a place.
    pub question_timeout: Duration,
    /// How long a token is valid.
    pub token_lifetime: Duration,
    /// How long before its end a token is renewed.
    pub token_margin: Duration,
    /// Bytes of one record.
    pub item_bytes_max: usize,
    /// Bytes of an answer that holds no records.
    pub answer_bytes_max: usize,
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
            question_timeout: Duration::from_secs(90),
            token_lifetime: Duration::from_hours(6),
            token_margin: Duration::from_mins(5),
            item_bytes_max: 256 * 1024,
            answer_bytes_max: 1024 * 1024,
        }
    }
}

impl Tuning {
    /// The wait before retry `number`, counted from 0, without the random part.
    pub fn backoff_of(&self, number: u32) -> Duration {
        let factor = 1_u32.checked_shl(number).unwrap_or(u32::MAX);
        self.backoff.saturating_mul(factor).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_and_is_capped() {
        let tuning = Tuning::default();
        let waits: Vec<_> = (0..7).map(|number| tuning.backoff_of(number).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 20, 20]);
        assert_eq!(tuning.backoff_of(u32::MAX).as_secs(), 20);
    }
}
