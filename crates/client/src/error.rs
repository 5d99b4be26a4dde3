//! Why a call has no result.

use http::StatusCode;
use tidemill_wire::Problem;

/// Why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The server says no, and why.
    #[error("{problem}")]
    Refused {
        /// With this status.
        status: StatusCode,
        /// What it says.
        problem: Box<Problem>,
    },
    /// The server did not answer. What was asked may have been done: ask again under the same key or id.
    #[error("the server{} does not answer: {reason}", at(.server.as_deref()))]
    Unreachable {
        /// Its address; none where it is in this process.
        server: Option<String>,
        /// What happened on the way.
        reason: String,
    },
    /// Something answers, but not a Tidemill server.
    #[error("what answers at this address is no Tidemill server (status {status})")]
    NotTidemill {
        /// With this status.
        status: StatusCode,
    },
    /// The answer is none that this client understands.
    #[error("the server's answer is not understood: {0}")]
    Unreadable(String),
    /// The address or the certificates cannot be used.
    #[error("{0}")]
    BadAddress(String),
}

/// Where a server is, as part of a sentence.
fn at(server: Option<&str>) -> String {
    server.map_or_else(String::new, |server| format!(" at {server}"))
}

impl Error {
    /// The server did not answer.
    pub fn unreachable(server: Option<&str>, reason: impl Into<String>) -> Self {
        Self::Unreachable { server: server.map(str::to_owned), reason: reason.into() }
    }

    /// What the server said, where it said no.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused { problem, .. } => Some(problem),
            Self::Unreachable { .. }
            | Self::NotTidemill { .. }
            | Self::Unreadable(_)
            | Self::BadAddress(_) => None,
        }
    }

    /// Whether the caller no longer holds what it wanted to change.
    pub fn is_stale(&self) -> bool {
        self.problem().is_some_and(|problem| problem.code == "stale")
    }

    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                matches!(*status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
            }
            Self::Unreachable { .. } => true,
            Self::NotTidemill { status } => status.is_server_error(),
            Self::Unreadable(_) | Self::BadAddress(_) => false,
        }
    }

    /// Whether every later call with the same address, token and request would fail too.
    ///
    /// An answer that cannot be read, or an internal error, may concern one record only.
    pub fn is_hopeless(&self) -> bool {
        match self {
            Self::Refused { status, problem } => {
                matches!(
                    *status,
                    StatusCode::UNAUTHORIZED
                        | StatusCode::FORBIDDEN
                        | StatusCode::NOT_FOUND
                        | StatusCode::METHOD_NOT_ALLOWED
                        | StatusCode::MISDIRECTED_REQUEST
                        | StatusCode::UPGRADE_REQUIRED
                ) || problem.code == "invalid"
            }
            Self::NotTidemill { status } => !status.is_server_error(),
            Self::BadAddress(_) => true,
            Self::Unreachable { .. } | Self::Unreadable(_) => false,
        }
    }
}
