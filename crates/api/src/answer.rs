//! What goes wrong, as a status and a problem.

use crate::access::Caller;
use crate::endpoint::Allowed;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use tidemill_core::run::RunState;
use tidemill_engine::patience::chain;
use tidemill_store::{Class, Error, RefusalCode};
use tidemill_wire::{Fault, Problem};

/// A request that was not carried out.
#[derive(Debug)]
pub struct Fail {
    status: StatusCode,
    problem: Problem,
    retry_after_secs: Option<u32>,
}

impl Fail {
    /// A problem of this kind.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, problem: Problem::new(code, message), retry_after_secs: None }
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
        | RefusalCode::UnknownHook => StatusCode::NOT_FOUND,
        RefusalCode::KeyConflict
        | RefusalCode::Stale
        | RefusalCode::Frozen
        | RefusalCode::NotRetryable
        | RefusalCode::Superseded => StatusCode::CONFLICT,
        RefusalCode::BadValue | RefusalCode::TooLarge => StatusCode::UNPROCESSABLE_ENTITY,
    }
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
            Error::Invalid(invalid) => {
                let fault = |fault: tidemill_core::request::Fault| Fault {
                    field: fault.field.to_owned(),
                    problem: fault.problem,
                };
                Self::invalid(invalid.0.into_iter().map(fault).collect())
            }
            error @ (Error::Database { .. } | Error::Open { .. }) if transient => {
                tracing::warn!("the database did not answer: {}", chain(&error));
                let message = "the database does not answer; ask again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(1)
            }
            error @ (Error::BadUrl { .. }
            | Error::Open { .. }
            | Error::Schema { .. }
            | Error::Foreign { .. }
            | Error::Database { .. }) => Self::internal(&chain(&error)),
        }
    }
}

impl IntoResponse for Fail {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.problem)).into_response();
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
pub(crate) async fn nowhere() -> Fail {
    Fail::new(StatusCode::NOT_FOUND, "no_route", "there is nothing at this path")
        .hint("/openapi.json lists every path")
}

/// What is said where the route has other methods.
pub(crate) async fn wrong_method() -> Fail {
    Fail::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "this path does not take this method")
        .hint("/openapi.json lists the methods of every path")
}
