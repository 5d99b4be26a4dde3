//! Errors of API calls, as the client reports them.

use http::StatusCode;
use tidemill_wire::Problem;

/// Reason why a request returned no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The server refused the request.
    #[error("{problem}")]
    Refused { status: StatusCode, problem: Box<Problem> },
    /// The server did not respond. It may still have executed the request: retry with the same key or id.
    #[error("the server{} does not answer: {reason}", at(.server.as_deref()))]
    Unreachable {
        /// Address of the server; `None` for an in-process server.
        server: Option<String>,
        reason: String,
    },
    /// The response is an error that no Tidemill server sends.
    #[error("not a Tidemill server (HTTP status {status}); check the server address")]
    NotTidemill { status: StatusCode },
    /// The response, or an event of a stream, cannot be decoded.
    #[error("cannot decode the server's response: {0}")]
    InvalidResponse(String),
    /// The server address or the certificates cannot be used.
    #[error("{0}")]
    InvalidConfig(String),
}

/// The server's address as a part of an error message.
fn at(server: Option<&str>) -> String {
    server.map_or_else(String::new, |server| format!(" at {server}"))
}

impl Error {
    /// Creates an [`Error::Unreachable`].
    pub fn unreachable(server: Option<&str>, reason: impl Into<String>) -> Self {
        Self::Unreachable { server: server.map(str::to_owned), reason: reason.into() }
    }

    /// The server's problem document if it refused the request.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused { problem, .. } => Some(problem),
            Self::Unreachable { .. }
            | Self::NotTidemill { .. }
            | Self::InvalidResponse(_)
            | Self::InvalidConfig(_) => None,
        }
    }

    /// Whether the caller no longer holds the run or task that it tried to change.
    pub fn is_stale(&self) -> bool {
        self.problem().is_some_and(|problem| problem.code == "stale")
    }

    /// Whether a retry may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => {
                matches!(*status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
            }
            Self::Unreachable { .. } => true,
            Self::NotTidemill { status } => status.is_server_error(),
            Self::InvalidResponse(_) | Self::InvalidConfig(_) => false,
        }
    }

    /// Whether every later request with the same address, token and request would fail as well.
    ///
    /// An undecodable response or an internal error does not count: it may concern a single record.
    pub fn is_permanent(&self) -> bool {
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
            Self::InvalidConfig(_) => true,
            Self::Unreachable { .. } | Self::InvalidResponse(_) => false,
        }
    }
}
