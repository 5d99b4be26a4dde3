//! What is read out of a request; what cannot be read is a problem like any other.

use crate::answer::Fail;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::IntoResponse as _;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use tidemill_core::limits::{HOOK_BODY_BYTES_MAX, KEY_BYTES_MAX};
use tidemill_wire::Fault;

/// A JSON body. An empty one reads as an object without fields.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Fail;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fail> {
        let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Self).map_err(|error| not_understood(&error))
    }
}

fn unread(rejection: BytesRejection) -> Fail {
    let status = rejection.into_response().status();
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return too_large();
    }
    half_read()
}

fn too_large() -> Fail {
    let message = "the body of this request is larger than this server takes";
    Fail::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn half_read() -> Fail {
    Fail::new(StatusCode::BAD_REQUEST, "unread", "the body of this request could not be read to its end")
}

pub(crate) fn not_understood(error: &serde_json::Error) -> Fail {
    if error.is_data() {
        return Fail::invalid(vec![Fault {
            field: "body".to_owned(),
            problem: format!("is wrong: {error}"),
        }]);
    }
    Fail::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body is not JSON: {error}"))
}

/// A body as it was sent, byte for byte; no larger than a webhook may send.
pub(crate) struct Raw(pub(crate) Bytes);

impl<S: Sync> FromRequest<S> for Raw {
    type Rejection = Fail;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fail> {
        let read = axum::body::to_bytes(request.into_body(), HOOK_BODY_BYTES_MAX).await;
        read.map(Self).map_err(|error| {
            let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
            while let Some(inner) = cause {
                if inner.is::<http_body_util::LengthLimitError>() {
                    return too_large();
                }
                cause = inner.source();
            }
            half_read()
        })
    }
}

/// The query of a request.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fail> {
        let read = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        read.map(|query| Self(query.0)).map_err(|rejection| {
            let problem = format!("is wrong: {}", rejection.body_text());
            Fail::invalid(vec![Fault { field: "query".to_owned(), problem }])
        })
    }
}

/// The only parameter of a path.
pub(crate) struct Id<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Id<T>
where
    T: FromStr<Err: std::fmt::Display>,
    S: Send + Sync,
{
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fail> {
        let bad = |problem: String| Fail::invalid(vec![Fault { field: "path".to_owned(), problem }]);
        let read = RawPathParams::from_request_parts(parts, state).await;
        let parameters = read.map_err(|_| bad("is not valid UTF-8".to_owned()))?;
        let Some((_, value)) = parameters.iter().next() else {
            return Err(Fail::internal("a path has no parameter"));
        };
        value.parse().map(Self).map_err(|error: T::Err| bad(format!("is wrong: {error}")))
    }
}

/// The key that makes asking twice the same as asking once, where the caller gave one.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fail> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= KEY_BYTES_MAX);
        text.map(|text| Self(Some(text.to_owned()))).ok_or_else(|| {
            let problem = format!("must be 1 to {KEY_BYTES_MAX} printable ASCII characters");
            Fail::invalid(vec![Fault { field: "Idempotency-Key".to_owned(), problem }])
        })
    }
}
