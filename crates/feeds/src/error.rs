//! Errors of a feed, classified by how the caller must react.

use std::fmt;
use std::time::Duration;

/// How a caller reacts to a feed's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// This request failed; a later one may succeed.
    Transient,
    /// The feed answers no request: open the circuit and send nothing until a probe succeeds.
    Outage,
    /// A retry would fail in the same way.
    Permanent,
    /// The feed rejects the account: the operator has to act.
    Auth,
}

impl ErrorClass {
    /// Returns the stored spelling of this class.
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

/// Why a feed did not answer. `at` is host and path; it never contains credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// The feed is reachable, but this request failed even after the retries.
    #[error("{at} {reason}")]
    Transient {
        at: String,
        reason: String,
        /// The wait that the feed requested with `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The feed was unreachable or answered no request, even after the retries.
    #[error("{at} {reason}")]
    Outage {
        at: String,
        reason: String,
        /// The wait that the feed requested with `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The feed gave an answer that a retry would not change.
    #[error("{at} {reason}")]
    Permanent { at: String, reason: String },
    /// The feed rejected the account.
    #[error("{at} {reason}; check the user name and the environment variable that holds the password")]
    Auth { at: String, reason: String },
    /// The kind of the feed is unknown.
    #[error("unknown feed kind `{kind}`; use one of {allowed}")]
    UnknownKind { kind: String, allowed: &'static str },
    /// The endpoint of the feed is invalid.
    #[error("invalid endpoint of feed `{feed}`: {reason}")]
    InvalidEndpoint { feed: String, reason: String },
    /// The settings of the feed are invalid.
    #[error("invalid settings of feed `{feed}`: {reason}")]
    InvalidSettings { feed: String, reason: String },
    /// The operator's lists do not let the feed's project use something that the feed needs.
    #[error("{at} is out of reach: {reason}")]
    OutOfReach {
        /// The feed, or its host and path.
        at: String,
        reason: String,
    },
    /// The query is invalid, so it was not sent.
    #[error("invalid feed query: {reason}")]
    InvalidQuery { reason: String },
}

impl FeedError {
    /// Returns the error of a feed that uses something outside the lists of its project.
    pub fn out_of_reach(feed: &tidemill_core::feed::Feed, reason: String) -> Self {
        Self::OutOfReach { at: format!("feed `{}`", feed.feed), reason }
    }

    /// Returns the reason if the operator's lists refuse the feed.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::OutOfReach { reason, .. } => Some(reason),
            Self::Transient { .. }
            | Self::Outage { .. }
            | Self::Permanent { .. }
            | Self::Auth { .. }
            | Self::UnknownKind { .. }
            | Self::InvalidEndpoint { .. }
            | Self::InvalidSettings { .. }
            | Self::InvalidQuery { .. } => None,
        }
    }

    /// Returns how the caller reacts to this error.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Transient { .. } => ErrorClass::Transient,
            Self::Outage { .. } => ErrorClass::Outage,
            Self::Auth { .. } => ErrorClass::Auth,
            Self::Permanent { .. }
            | Self::UnknownKind { .. }
            | Self::InvalidEndpoint { .. }
            | Self::InvalidSettings { .. }
            | Self::OutOfReach { .. }
            | Self::InvalidQuery { .. } => ErrorClass::Permanent,
        }
    }

    /// Returns the wait that the feed requested.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Transient { retry_after, .. } | Self::Outage { retry_after, .. } => *retry_after,
            Self::Permanent { .. }
            | Self::Auth { .. }
            | Self::UnknownKind { .. }
            | Self::InvalidEndpoint { .. }
            | Self::InvalidSettings { .. }
            | Self::OutOfReach { .. }
            | Self::InvalidQuery { .. } => None,
        }
    }
}

/// Why a record cannot be mapped to a canonical row. The reason names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MapError(String);

impl MapError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// Returns the reason as one sentence.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_location_and_class() {
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
                "unknown feed kind `fax`; use one of nivoda",
            ),
        ];
        for (error, class, text) in cases {
            assert_eq!((error.class(), error.to_string().as_str()), (class, text));
        }
    }
}
