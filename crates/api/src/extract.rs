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
use tidemill_core::limits::KEY_BYTES_MAX;
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
        return Fail::new(status, "too_large", "the body of this request is larger than this server takes");
    }
    Fail::new(StatusCode::BAD_REQUEST, "unread", "the body of this request could not be read to its end")
}

fn not_understood(error: &serde_json::Error) -> Fail {
    if error.is_data() {
        return Fail::invalid(vec![Fault {
            field: "body".to_owned(),
            problem: format!("is wrong: {error}"),
        }]);
    }
    Fail::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body is not JSON: {error}"))
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
        let problem = match std::str::from_utf8(value.as_bytes()) {
            Ok("") => "must not be empty".to_owned(),
            Ok(text) if text.len() <= KEY_BYTES_MAX => return Ok(Self(Some(text.to_owned()))),
            Ok(text) => format!("is {} bytes long; at most {KEY_BYTES_MAX} are allowed", text.len()),
            Err(_) => "must be text in UTF-8".to_owned(),
        };
        Err(Fail::invalid(vec![Fault { field: "Idempotency-Key".to_owned(), problem }]))
    }
}
