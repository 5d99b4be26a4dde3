//! What goes wrong, as a status and a problem.

use crate::access::Caller;
use crate::codes;
use crate::endpoint::Allowed;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use std::sync::Arc;
use tidemill_core::graph::GraphFault;
use tidemill_core::run::RunState;
use tidemill_engine::patience::chain;
use tidemill_store::{Class, Error, RefusalCode};
use tidemill_wire::{Fault, Problem};

/// Faults of a graph that are said in the sentence; all are beside it.
const PLACES_SAID: usize = 10;

/// A request that was not carried out.
#[derive(Debug)]
pub struct Fail {
    status: StatusCode,
    problem: Box<Problem>,
    retry_after_secs: Option<u32>,
    cause: Option<Cause>,
}

/// What really went wrong, for whoever calls within the same process. It is beside the response, and never
/// travels.
#[derive(Debug, Clone)]
pub struct Cause(pub Arc<Error>);

impl Fail {
    /// A problem of this kind.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        debug_assert!(
            codes::knows(code, status.as_u16()),
            "{code} with {status} is not in the table of codes"
        );
        let problem = Box::new(Problem::new(code, message));
        Self { status, problem, retry_after_secs: None, cause: None }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.problem.hint = Some(hint.into());
        self
    }

    /// The same, with when to come back.
    #[must_use]
    pub fn retry_after(mut self, secs: u32) -> Self {
        self.retry_after_secs = Some(secs);
        self
    }

    /// What is wrong with a request, all of it.
    pub fn invalid(faults: Vec<Fault>) -> Self {
        let words: Vec<String> =
            faults.iter().map(|fault| format!("{} {}", fault.field, fault.problem)).collect();
        let mut fail = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", words.join("; "));
        fail.problem.faults = faults;
        fail
    }

    /// What is wrong with a graph, all of it, with its places in the text.
    pub fn bad_graph(places: Vec<GraphFault>) -> Self {
        let words: Vec<String> = places.iter().take(PLACES_SAID).map(ToString::to_string).collect();
        let more = match places.len().saturating_sub(PLACES_SAID) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let message = format!("{}{more}", words.join("; "));
        let mut fail = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_graph", message);
        fail.problem.hint = places.first().and_then(|fault| fault.hint.clone());
        fail.problem.places = places.into_boxed_slice();
        fail
    }

    /// The caller no longer holds the run, which is elsewhere by now.
    pub fn stale(message: impl Into<String>, current: Option<RunState>) -> Self {
        let mut fail = Self::new(StatusCode::CONFLICT, "stale", message);
        fail.problem.current = current;
        fail
    }

    /// Something that is a fault of ours. What it is stands in the log and nowhere else.
    pub fn internal(cause: &str) -> Self {
        let id = uuid::Uuid::new_v4();
        tracing::error!(problem.id = %id, "a request failed: {cause}");
        let message = format!("the server could not carry this out; its log says why, under {id}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn forbidden(caller: &Caller, allowed: Allowed) -> Self {
        let roles: Vec<&str> = allowed.roles().iter().map(|role| role.as_str()).collect();
        let message = format!("a token of role {} may not do this", caller.role);
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
            .hint(format!("it takes one of: {}", roles.join(", ")))
    }

    fn caused_by(mut self, error: Error) -> Self {
        self.cause = Some(Cause(Arc::new(error)));
        self
    }

    /// The status that it is said with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The problem that it says.
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
    }
}

/// A fault of core, with its field as the wire names it. People read of the *git sha*, programs of `git_sha`.
pub(crate) fn said(fault: tidemill_core::request::Fault) -> Fault {
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
        other => return Fault { field: other.replace(' ', "_"), problem: fault.problem },
    };
    Fault { field: field.to_owned(), problem: fault.problem }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        let transient = error.class() == Class::Transient;
        match error {
            Error::Refused(refusal) => {
                let mut fail = Self::new(status_of(refusal.code), refusal.code.as_str(), refusal.message);
                fail.problem.hint = refusal.hint;
                fail
            }
            Error::Invalid(invalid) => Self::invalid(invalid.0.into_iter().map(said).collect()),
            error @ (Error::Database { .. } | Error::Open { .. }) if transient => {
                tracing::warn!("the database did not answer: {}", chain(&error));
                let message = "the database does not answer; ask again";
                let fail = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1);
                fail.caused_by(error)
            }
            Error::Exhausted { resource, .. } => {
                tracing::warn!("{}", chain(&error));
                let message = format!("{resource}; ask again when there is room");
                let fail = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1);
                fail.hint(resource.hint()).caused_by(error)
            }
            error @ (Error::BadUrl { .. }
            | Error::Open { .. }
            | Error::Schema { .. }
            | Error::Foreign { .. }
            | Error::Database { .. }
            | Error::Panicked { .. }) => Self::internal(&chain(&error)).caused_by(error),
        }
    }
}

impl IntoResponse for Fail {
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

/// What is said where there is no route.
pub async fn nowhere() -> Fail {
    Fail::new(StatusCode::NOT_FOUND, "no_route", "there is nothing at this path")
        .hint("/openapi.json lists every path")
}

/// What is said where the route has other methods.
pub(crate) async fn wrong_method() -> Fail {
    Fail::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not take this method")
        .hint("/openapi.json lists the methods of every path")
}
