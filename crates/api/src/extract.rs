//! Extractors for bodies, queries, path parameters and headers. Each reports errors as a problem document.

mod rules;
mod schema;

use crate::error::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::IntoResponse as _;
use http::StatusCode;
use http::request::Parts;
use rules::Validate;
pub(crate) use schema::CompiledSchema;
use schema::schema_of;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::str::FromStr;
use tidemill_core::json;
use tidemill_core::limits::{HOOK_BODY_BYTES_MAX, KEY_BYTES_MAX};
use tidemill_wire::FieldError;

/// JSON body. An empty body counts as an object without fields.
pub(crate) struct Body<T>(pub(crate) T);

impl<T, S> FromRequest<S> for Body<T>
where
    T: DeserializeOwned + JsonSchema + 'static,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (read, errors) = read::<T, S>(request, state).await?;
        match read {
            Ok(body) if errors.is_empty() => Ok(Self(body)),
            Ok(_) => Err(ApiError::invalid(errors)),
            Err(type_error) => Err(ApiError::invalid(or_type_error(errors, type_error))),
        }
    }
}

/// JSON body that also has rules between its fields.
pub(crate) struct ValidBody<T>(pub(crate) T);

impl<T, S> FromRequest<S> for ValidBody<T>
where
    T: DeserializeOwned + JsonSchema + Validate + 'static,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (read, errors) = read::<T, S>(request, state).await?;
        finish_validation(read, errors).map(Self)
    }
}

/// Validates a JSON value that the handler has parsed itself.
pub(crate) fn validate<T: DeserializeOwned + JsonSchema + Validate + 'static>(
    value: Value,
) -> Result<T, ApiError> {
    let errors = schema_of::<T>().validate(&value);
    finish_validation(deserialize(value, "body"), errors)
}

/// Returns the value, or all schema errors and rule violations together.
fn finish_validation<T: Validate>(
    read: Result<T, FieldError>,
    mut errors: Vec<FieldError>,
) -> Result<T, ApiError> {
    match read {
        Ok(body) => {
            // A field with a schema error needs no second error.
            for error in body.validate() {
                if !errors.iter().any(|known| known.field == error.field) {
                    errors.push(error);
                }
            }
            if errors.is_empty() { Ok(body) } else { Err(ApiError::invalid(errors)) }
        }
        Err(type_error) => Err(ApiError::invalid(or_type_error(errors, type_error))),
    }
}

/// The schema errors, or the deserialization error if the schema found none.
fn or_type_error(errors: Vec<FieldError>, type_error: FieldError) -> Vec<FieldError> {
    if errors.is_empty() { vec![type_error] } else { errors }
}

/// Reads a body. Returns the deserialized value, if possible, and all schema errors.
async fn read<T, S>(request: Request, state: &S) -> Result<(Result<T, FieldError>, Vec<FieldError>), ApiError>
where
    T: DeserializeOwned + JsonSchema + 'static,
    S: Send + Sync,
{
    let bytes = Bytes::from_request(request, state).await.map_err(body_error)?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    check_text(text)?;
    let value: Value = serde_json::from_slice(text).map_err(|error| parse_error(&error))?;
    let errors = schema_of::<T>().validate(&value);
    Ok((deserialize(value, "body"), errors))
}

fn deserialize<T: DeserializeOwned>(value: Value, field: &str) -> Result<T, FieldError> {
    serde_json::from_value(value)
        .map_err(|error| FieldError { field: field.to_owned(), problem: format!("is invalid: {error}") })
}

fn body_error(rejection: BytesRejection) -> ApiError {
    let status = rejection.into_response().status();
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return too_large();
    }
    incomplete_body()
}

fn too_large() -> ApiError {
    let message = "the request body is larger than this server accepts";
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn incomplete_body() -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "unread", "the request body could not be read completely")
}

/// Checks numbers and nesting in the body's text, because the JSON parser rounds numbers silently.
pub(crate) fn check_text(text: &[u8]) -> Result<(), ApiError> {
    json::check_request(text).map_err(|problem| {
        ApiError::invalid(vec![FieldError { field: "body".to_owned(), problem: problem.with_advice() }])
    })
}

/// Error for a body that the handler could not parse.
pub(crate) fn parse_error(error: &serde_json::Error) -> ApiError {
    if error.is_data() {
        let problem = format!("is invalid: {error}");
        return ApiError::invalid(vec![FieldError { field: "body".to_owned(), problem }]);
    }
    ApiError::new(StatusCode::BAD_REQUEST, "bad_json", format!("the body is not JSON: {error}"))
}

/// Unparsed body, at most as large as a webhook delivery may be.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let read = axum::body::to_bytes(request.into_body(), HOOK_BODY_BYTES_MAX).await;
        read.map(Self).map_err(|error| {
            let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
            while let Some(inner) = cause {
                if inner.is::<http_body_util::LengthLimitError>() {
                    return too_large();
                }
                cause = inner.source();
            }
            incomplete_body()
        })
    }
}

/// Query of a request.
pub(crate) struct Query<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned + JsonSchema + 'static,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let axum::extract::Query(pairs) = pairs.map_err(|rejection| {
            let problem = format!("is invalid: {}", rejection.body_text());
            ApiError::invalid(vec![FieldError { field: "query".to_owned(), problem }])
        })?;
        let compiled = schema_of::<T>();
        let mut fields = serde_json::Map::new();
        let mut errors = Vec::new();
        for (name, text) in pairs {
            let schema = compiled.fields().find(|(field, _)| **field == name).map(|(_, schema)| schema);
            let value =
                schema.map_or_else(|| text.clone().into(), |schema| query_value(&compiled, schema, &text));
            if fields.insert(name.clone(), value).is_some() {
                errors.push(FieldError { field: name, problem: "is specified more than once".to_owned() });
            }
        }
        let value = Value::Object(fields);
        errors.extend(compiled.validate(&value));
        match deserialize(value, "query") {
            Ok(query) if errors.is_empty() => Ok(Self(query)),
            Ok(_) => Err(ApiError::invalid(errors)),
            Err(type_error) => Err(ApiError::invalid(or_type_error(errors, type_error))),
        }
    }
}

/// Converts the text of a query parameter to a number or a boolean if the field has that type.
fn query_value(compiled: &CompiledSchema, schema: &Value, text: &str) -> Value {
    if compiled.accepts(schema, "integer")
        && let Ok(number) = text.parse::<i64>()
    {
        return number.into();
    }
    match text {
        "true" if compiled.accepts(schema, "boolean") => true.into(),
        "false" if compiled.accepts(schema, "boolean") => false.into(),
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
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let bad = |problem: String| ApiError::invalid(vec![FieldError { field: "path".to_owned(), problem }]);
        let read = RawPathParams::from_request_parts(parts, state).await;
        let parameters = read.map_err(|_| bad("is not valid UTF-8".to_owned()))?;
        let Some((_, value)) = parameters.iter().next() else {
            return Err(ApiError::internal("route without a path parameter"));
        };
        value.parse().map(Self).map_err(|error: T::Err| bad(format!("is invalid: {error}")))
    }
}

/// The `Idempotency-Key` header, if present.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let problem = match std::str::from_utf8(value.as_bytes()) {
            Ok("") => "must not be empty".to_owned(),
            Ok(text) if text.len() <= KEY_BYTES_MAX => return Ok(Self(Some(text.to_owned()))),
            Ok(text) => format!("is {} bytes long; at most {KEY_BYTES_MAX} are allowed", text.len()),
            Err(_) => "must be UTF-8 text".to_owned(),
        };
        Err(ApiError::invalid(vec![FieldError { field: "Idempotency-Key".to_owned(), problem }]))
    }
}

/// The `Last-Event-ID` header, which a client sends when it reconnects to a live stream.
pub(crate) struct LastEventId(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get("last-event-id") else { return Ok(Self(None)) };
        // Browsers send an empty header if there was no id.
        let text = value.to_str().map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
        text.map(Self).map_err(|_| {
            let problem = "must be printable ASCII characters".to_owned();
            ApiError::invalid(vec![FieldError { field: "Last-Event-ID".to_owned(), problem }])
        })
    }
}
