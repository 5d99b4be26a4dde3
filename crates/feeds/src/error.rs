//! Why a feed did not answer, split by what the caller can do about it.

use std::fmt;
use std::time::Duration;

/// What a caller does with a feed's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Ask again later: this question failed, and may succeed.
    Transient,
    /// Nobody is answered: open the circuit, and ask no question until a probe succeeds.
    Outage,
    /// Asking again would fail again.
    Permanent,
    /// The account is refused: a person has to act.
    Auth,
}

impl ErrorClass {
    /// The one spelling of this class.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Outage => "outage",
            Self::Permanent => "permanent",
            Self::Auth => "auth",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a feed did not answer. `at` is the host and the path, never anything of the account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// The feed is there and did not answer this question, in spite of the retries.
    #[error("{at} {reason}")]
    Transient {
        /// Who was asked.
        at: String,
        /// What happened.
        reason: String,
        /// The wait that the feed asked for.
        retry_after: Option<Duration>,
    },
    /// The feed could not be reached, or answered nobody, in spite of the retries.
    #[error("{at} {reason}")]
    Outage {
        /// Who was asked.
        at: String,
        /// What happened.
        reason: String,
        /// The wait that the feed asked for.
        retry_after: Option<Duration>,
    },
    /// The feed answered something that another try would not change.
    #[error("{at} {reason}")]
    Permanent {
        /// Who was asked.
        at: String,
        /// What happened, and what to do.
        reason: String,
    },
    /// The feed does not accept the account.
    #[error("{at} {reason}; check the user name, and the variable that holds the password")]
    Auth {
        /// Who was asked.
        at: String,
        /// What happened.
        reason: String,
    },
    /// There is no such kind of feed.
    #[error("`{kind}` is not a kind of feed; use one of {allowed}")]
    UnknownKind {
        /// The kind that was asked for.
        kind: String,
        /// The kinds that exist.
        allowed: &'static str,
    },
    /// The address cannot be used.
    #[error("the endpoint of feed `{feed}` cannot be used: {reason}")]
    BadEndpoint {
        /// The feed.
        feed: String,
        /// What is wrong with the address, and what to do.
        reason: String,
    },
    /// The settings cannot be used.
    #[error("the settings of feed `{feed}` cannot be used: {reason}")]
    BadSettings {
        /// The feed.
        feed: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The question itself makes no sense, so it was not sent.
    #[error("the question cannot be put to the feed: {reason}")]
    BadQuery {
        /// What is wrong with it.
        reason: String,
    },
}

impl FeedError {
    /// What a caller does about it.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Transient { .. } => ErrorClass::Transient,
            Self::Outage { .. } => ErrorClass::Outage,
            Self::Auth { .. } => ErrorClass::Auth,
            Self::Permanent { .. }
            | Self::UnknownKind { .. }
            | Self::BadEndpoint { .. }
            | Self::BadSettings { .. }
            | Self::BadQuery { .. } => ErrorClass::Permanent,
        }
    }

    /// The wait that the feed asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transient { retry_after, .. } | Self::Outage { retry_after, .. } => *retry_after,
            Self::Permanent { .. }
            | Self::Auth { .. }
            | Self::UnknownKind { .. }
            | Self::BadEndpoint { .. }
            | Self::BadSettings { .. }
            | Self::BadQuery { .. } => None,
        }
    }
}

/// Why a record is not a stone of the canonical table: a sentence that names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MapFault(String);

impl MapFault {
    /// A fault, in a sentence.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The sentence.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_happened_to_what_and_has_a_class() {
        let at = || "example.org/api".to_owned();
        let wait = Some(Duration::from_secs(7));
        let cases = [
            (
                FeedError::Transient { at: at(), reason: "is busy".into(), retry_after: wait },
                ErrorClass::Transient,
                "example.org/api is busy",
            ),
            (
                FeedError::Outage { at: at(), reason: "is down".into(), retry_after: None },
                ErrorClass::Outage,
                "example.org/api is down",
            ),
            (
                FeedError::UnknownKind { kind: "fax".into(), allowed: "nivoda" },
                ErrorClass::Permanent,
                "`fax` is not a kind of feed; use one of nivoda",
            ),
        ];
        for (error, class, text) in cases {
            assert_eq!((error.class(), error.to_string().as_str()), (class, text));
        }
    }
}
