//! Errors of a REST source.

use crate::{ErrorClass, FeedError};
use tidemill_core::feed_definition::{PaginationError, QueryError};

/// Why a REST source has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestError {
    /// The request failed, even after the retries.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// The source contradicts itself or the definition. A retry would not help.
    #[error("the source {0}")]
    Pagination(#[from] PaginationError),
    /// The query does not fit the definition, so it was not sent.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A stored record cannot be read.
    #[error("the record {0}")]
    Record(String),
}

impl RestError {
    /// Returns how the caller reacts to this error.
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::Feed(error) => error.class(),
            Self::Pagination(_) | Self::Query(_) | Self::Record(_) => ErrorClass::Permanent,
        }
    }

    /// Converts this to the error of a feed; `at` is host and path.
    pub fn into_feed_error(self, at: &str) -> FeedError {
        match self {
            Self::Feed(error) => error,
            Self::Pagination(error) => FeedError::Permanent { at: at.to_owned(), reason: error.to_string() },
            Self::Query(error) => FeedError::InvalidQuery { reason: error.to_string() },
            Self::Record(reason) => FeedError::Permanent { at: at.to_owned(), reason },
        }
    }
}
