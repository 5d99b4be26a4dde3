//! Headers that every response of a server has.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderValue, header};

/// Prefix of the API's paths.
const API_PREFIX: &str = "/v1/";

/// Forbids browsers to guess the type of a response, and caches to store responses of the API.
///
/// A route that sets `Cache-Control` itself keeps it: event streams, and the assets of the console.
pub(super) async fn add(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with(API_PREFIX);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_api {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}
