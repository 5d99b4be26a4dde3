//! What is read out of a request; what cannot be read is a problem like any other.

mod checked;
mod shape;

use crate::answer::Fail;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::IntoResponse as _;
use checked::Check;
use http::StatusCode;
use http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
pub(crate) use shape::Shape;
use shape::shape_of;
use std::str::FromStr;
use tidemill_core::json;
use tidemill_core::limits::{HOOK_BODY_BYTES_MAX, KEY_BYTES_MAX};
use tidemill_wire::Fault;

/// A JSON body. An empty one reads as an object without fields.
pub(crate) struct Body<T>(pub(crate) T);

impl<T, S> FromRequest<S> for Body<T>
where
    T: DeserializeOwned + JsonSchema + 'static,
    S: Send + Sync,
{
    type Rejection = Fail;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fail> {
        let (read, faults) = read::<T, S>(request, state).await?;
        match read {
            Ok(body) if faults.is_empty() => Ok(Self(body)),
            Ok(_) => Err(Fail::invalid(faults)),
            Err(unfit) => Err(Fail::invalid(or(faults, unfit))),
        }
    }
}

/// A JSON body with rules between its fields.
pub(crate) struct Checked<T>(pub(crate) T);

impl<T, S> FromRequest<S> for Checked<T>
where
    T: DeserializeOwned + JsonSchema + Check + 'static,
    S: Send + Sync,
{
    type Rejection = Fail;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fail> {
        let (read, faults) = read::<T, S>(request, state).await?;
        ruled(read, faults).map(Self)
    }
}

/// A value that was read by hand, with rules between its fields.
pub(crate) fn checked<T: DeserializeOwned + JsonSchema + Check + 'static>(value: Value) -> Result<T, Fail> {
    let faults = shape_of::<T>().faults(&value);
    ruled(typed(value, "body"), faults)
}

/// What was read, unless its form or its rules find fault with it: then all of it is said.
fn ruled<T: Check>(read: Result<T, Fault>, mut faults: Vec<Fault>) -> Result<T, Fail> {
    match read {
        Ok(body) => {
            // What the form says of a field, the rules need not say once more.
            for fault in body.check() {
                if !faults.iter().any(|known| known.field == fault.field) {
                    faults.push(fault);
                }
            }
            if faults.is_empty() { Ok(body) } else { Err(Fail::invalid(faults)) }
        }
        Err(unfit) => Err(Fail::invalid(or(faults, unfit))),
    }
}

/// The faults that were found, or, where the form has none and the type is unfit nevertheless, what it says.
fn or(faults: Vec<Fault>, unfit: Fault) -> Vec<Fault> {
    if faults.is_empty() { vec![unfit] } else { faults }
}

/// A body as its type, if it can be one, and everything that is wrong with its form.
async fn read<T, S>(request: Request, state: &S) -> Result<(Result<T, Fault>, Vec<Fault>), Fail>
where
    T: DeserializeOwned + JsonSchema + 'static,
    S: Send + Sync,
{
    let bytes = Bytes::from_request(request, state).await.map_err(unread)?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    check_text(text)?;
    let value: Value = serde_json::from_slice(text).map_err(|error| not_understood(&error))?;
    let faults = shape_of::<T>().faults(&value);
    Ok((typed(value, "body"), faults))
}

fn typed<T: DeserializeOwned>(value: Value, field: &str) -> Result<T, Fault> {
    serde_json::from_value(value)
        .map_err(|error| Fault { field: field.to_owned(), problem: format!("is wrong: {error}") })
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

/// Checks numbers and nesting in the text of a body, because the parser rounds numbers silently.
pub(crate) fn check_text(text: &[u8]) -> Result<(), Fail> {
    json::check_request(text).map_err(|problem| {
        Fail::invalid(vec![Fault { field: "body".to_owned(), problem: problem.with_advice() }])
    })
}

/// What is said of a body that was read by hand.
pub(crate) fn not_understood(error: &serde_json::Error) -> Fail {
    if error.is_data() {
        let problem = format!("is wrong: {error}");
        return Fail::invalid(vec![Fault { field: "body".to_owned(), problem }]);
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

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned + JsonSchema + 'static,
    S: Send + Sync,
{
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fail> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let axum::extract::Query(pairs) = pairs.map_err(|rejection| {
            let problem = format!("is wrong: {}", rejection.body_text());
            Fail::invalid(vec![Fault { field: "query".to_owned(), problem }])
        })?;
        let shape = shape_of::<T>();
        let mut fields = serde_json::Map::new();
        let mut faults = Vec::new();
        for (name, text) in pairs {
            let schema = shape.fields().find(|(field, _)| **field == name).map(|(_, schema)| schema);
            let value = schema.map_or_else(|| text.clone().into(), |schema| meant(&shape, schema, &text));
            if fields.insert(name.clone(), value).is_some() {
                faults.push(Fault { field: name, problem: "is given more than once".to_owned() });
            }
        }
        let value = Value::Object(fields);
        faults.extend(shape.faults(&value));
        match typed(value, "query") {
            Ok(query) if faults.is_empty() => Ok(Self(query)),
            Ok(_) => Err(Fail::invalid(faults)),
            Err(unfit) => Err(Fail::invalid(or(faults, unfit))),
        }
    }
}

/// What the text of a query means for a field: a number or a truth value where the field takes one.
fn meant(shape: &Shape, schema: &Value, text: &str) -> Value {
    if shape.takes(schema, "integer")
        && let Ok(number) = text.parse::<i64>()
    {
        return number.into();
    }
    match text {
        "true" if shape.takes(schema, "boolean") => true.into(),
        "false" if shape.takes(schema, "boolean") => false.into(),
        _ => text.into(),
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

/// The id of the last event that a reader of a live stream got, where it comes back.
pub(crate) struct LastEventId(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Fail;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fail> {
        let Some(value) = parts.headers.get("last-event-id") else { return Ok(Self(None)) };
        // Browsers send an empty one where there was none.
        let text = value.to_str().map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
        text.map(Self).map_err(|_| {
            let problem = "must be printable ASCII characters".to_owned();
            Fail::invalid(vec![Fault { field: "Last-Event-ID".to_owned(), problem }])
        })
    }
}
