//! Errors of the HTTP API: a status and a problem document.

use crate::access::Caller;
use crate::codes;
use crate::endpoint::Permission;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use std::sync::Arc;
use tidemill_core::graph::DefinitionError;
use tidemill_core::run::RunState;
use tidemill_engine::retry_policy::chain;
use tidemill_store::{Class, Error, RefusalCode};
use tidemill_wire::{FieldError, Problem};

/// Number of a definition's errors in the message; the problem document lists all of them.
const PLACES_IN_MESSAGE_MAX: usize = 10;

/// An error that is sent as an HTTP response.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    problem: Box<Problem>,
    retry_after_secs: Option<u32>,
    cause: Option<Cause>,
}

/// The underlying error, for callers in the same process. It is a response extension and never sent to clients.
#[derive(Debug, Clone)]
pub struct Cause(pub Arc<Error>);

impl ApiError {
    /// Creates an error with a code and a message.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        debug_assert!(
            codes::is_known(code, status.as_u16()),
            "error code {code} with status {status} is missing in codes.rs"
        );
        let problem = Box::new(Problem::new(code, message));
        Self { status, problem, retry_after_secs: None, cause: None }
    }

    /// Sets the hint, a suggested next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.problem.hint = Some(hint.into());
        self
    }

    /// Sets the `Retry-After` header.
    #[must_use]
    pub fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// Error that lists all invalid fields.
    pub fn invalid(faults: Vec<FieldError>) -> Self {
        let messages: Vec<String> =
            faults.iter().map(|fault| format!("{} {}", fault.field, fault.problem)).collect();
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", messages.join("; "));
        error.problem.faults = faults;
        error
    }

    /// Error that lists all errors of a graph with their positions in the text.
    pub fn bad_graph(places: Vec<DefinitionError>) -> Self {
        Self::bad_definition("bad_graph", places)
    }

    /// Error that lists all errors of a feed definition with their positions in the text.
    pub fn bad_feed(places: Vec<DefinitionError>) -> Self {
        Self::bad_definition("bad_feed", places)
    }

    fn bad_definition(code: &str, places: Vec<DefinitionError>) -> Self {
        let messages: Vec<String> =
            places.iter().take(PLACES_IN_MESSAGE_MAX).map(ToString::to_string).collect();
        let more = match places.len().saturating_sub(PLACES_IN_MESSAGE_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let message = format!("{}{more}", messages.join("; "));
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message);
        error.problem.hint = places.first().and_then(|fault| fault.hint.clone());
        error.problem.places = places.into_boxed_slice();
        error
    }

    /// Error for a caller that no longer holds the run.
    pub fn stale(message: impl Into<String>, current: Option<RunState>) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "stale", message);
        error.problem.current = current;
        error
    }

    /// Internal error. The client only gets an id; the log contains the cause under that id.
    pub fn internal(cause: &str) -> Self {
        let id = uuid::Uuid::new_v4();
        tracing::error!(problem.id = %id, "request failed: {cause}");
        let message = format!("internal error {id}; the server log contains the cause under this id");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn forbidden(caller: &Caller, permission: Permission) -> Self {
        let roles: Vec<&str> = permission.roles().iter().map(|role| role.as_str()).collect();
        let message = format!("a token of role {} is not allowed to do this", caller.role);
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
            .hint(format!("use a token with one of these roles: {}", roles.join(", ")))
    }

    /// Adds the position of the request that was refused to a call with several of them.
    pub(crate) fn at_position(mut self, position: usize) -> Self {
        self.problem.message = format!("runs[{position}]: {}", self.problem.message);
        self
    }

    fn caused_by(mut self, error: Error) -> Self {
        self.cause = Some(Cause(Arc::new(error)));
        self
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn problem(&self) -> &Problem {
        &self.problem
    }
}

const fn status_of(code: RefusalCode) -> StatusCode {
    match code {
        RefusalCode::UnknownProject
        | RefusalCode::UnknownEnvironment
        | RefusalCode::UnknownRun
        | RefusalCode::UnknownSchedule
        | RefusalCode::UnknownFeed
        | RefusalCode::UnknownSync
        | RefusalCode::UnknownToken
        | RefusalCode::UnknownHook
        | RefusalCode::UnknownJob
        | RefusalCode::UnknownTask
        | RefusalCode::UnknownAgent
        | RefusalCode::UnknownWorker
        | RefusalCode::UnknownPool => StatusCode::NOT_FOUND,
        RefusalCode::KeyConflict
        | RefusalCode::Stale
        | RefusalCode::Frozen
        | RefusalCode::NotRetryable
        | RefusalCode::Superseded => StatusCode::CONFLICT,
        RefusalCode::BadValue | RefusalCode::TooLarge => StatusCode::UNPROCESSABLE_ENTITY,
        RefusalCode::OutOfReach | RefusalCode::WrongHolder => StatusCode::FORBIDDEN,
    }
}

/// Converts a field error of the core to the field names of the HTTP API: *git sha* becomes `git_sha`.
pub(crate) fn to_wire_error(fault: tidemill_core::request::FieldError) -> FieldError {
    let field = match fault.field {
        "environment" => "env",
        "back-off seconds" => "backoff_secs",
        "timeout seconds" => "timeout_secs",
        "idempotency key" => "Idempotency-Key",
        "label" => "labels",
        "shape" => "shapes",
        "carats" => "points_min",
        "price" => "price_min",
        "artifact url" => "url",
        "artifact digest" => "digest",
        "artifact size" => "size_bytes",
        "artifact metadata" => "metadata",
        "event key" => "key",
        "worker name" => "worker",
        "message ids" => "ids",
        other => return FieldError { field: other.replace(' ', "_"), problem: fault.problem },
    };
    FieldError { field: field.to_owned(), problem: fault.problem }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let transient = error.class() == Class::Transient;
        match error {
            Error::Refused(refusal) => {
                let mut error = Self::new(status_of(refusal.code), refusal.code.as_str(), refusal.message);
                error.problem.hint = refusal.hint;
                error
            }
            Error::Invalid(invalid) => Self::invalid(invalid.0.into_iter().map(to_wire_error).collect()),
            error @ (Error::Database { .. } | Error::Open { .. } | Error::Locked { .. }) if transient => {
                tracing::warn!("the database did not answer: {}", chain(&error));
                let message = "the database does not answer; try again";
                let unavailable =
                    Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1);
                unavailable.caused_by(error)
            }
            Error::Exhausted { resource, .. } => {
                tracing::warn!("{}", chain(&error));
                let message = format!("{resource}; try again later");
                let unavailable =
                    Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1);
                unavailable.hint(resource.hint()).caused_by(error)
            }
            error @ (Error::BadUrl { .. }
            | Error::Open { .. }
            | Error::Schema { .. }
            | Error::Foreign { .. }
            | Error::Database { .. }
            | Error::Locked { .. }
            | Error::Panicked { .. }) => Self::internal(&chain(&error)).caused_by(error),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(*self.problem)).into_response();
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(cause);
        }
        if let Some(secs) = self.retry_after_secs {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Response for a path without a route.
pub async fn no_route() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "no_route", "no such path").hint("/openapi.json lists every path")
}

/// Response for a path that exists with other methods.
pub(crate) async fn wrong_method() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not support this method")
        .hint("/openapi.json lists the methods of every path")
}
