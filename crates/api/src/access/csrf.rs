//! Protection against cross-site request forgery (CSRF) and DNS rebinding.
//!
//! Browsers attach session cookies to requests of other sites. A token in a header needs no protection: other sites
//! cannot set it.

use crate::access::AuthContext;
use crate::error::ApiError;
use axum::body::{Body, to_bytes};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use std::net::IpAddr;
use tidemill_core::access::constant_time_eq;

/// Request header with the CSRF token.
const CSRF_HEADER: &str = "x-csrf-token";
/// Form field with the CSRF token.
const CSRF_FIELD: &str = "csrf";
/// Largest form that is read to find the CSRF token.
const FORM_BYTES_MAX: usize = 1024 * 1024;

/// Whether a request with this method may change something.
pub(crate) fn is_mutation(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn refused(message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "csrf", message)
}

/// Refuses a request whose `Origin` is another site.
pub(crate) fn check_same_site(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let from = origin.split_once("://").map_or("", |(_, host)| host);
    if !from.is_empty() && from.eq_ignore_ascii_case(host) {
        return Ok(());
    }
    Err(refused("the request was sent by a page of another site"))
}

/// Refuses a host, with or without a port, that is not a name of this machine.
pub(crate) fn check_local_name(host: &str) -> Result<(), ApiError> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let address = match name.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => inner.parse().map(IpAddr::V6),
        None => name.parse().map(IpAddr::V4),
    };
    if name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback()) {
        return Ok(());
    }
    let message =
        format!("host `{host}` is not a local name; this server only answers to names such as localhost");
    Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message)
        .hint("to allow remote access, listen on another address with tokens enabled"))
}

/// Refuses a change by cookie without the session's CSRF token. Returns the body, which may have been read.
pub(crate) async fn check_token(parts: &Parts, body: Body, auth: &AuthContext) -> Result<Body, ApiError> {
    let Some(session) = &auth.session else { return Ok(body) };
    check_same_site(&parts.headers)?;
    if let Some(sent) = parts.headers.get(CSRF_HEADER) {
        let sent = sent.to_str().unwrap_or_default();
        return if constant_time_eq(sent, &session.csrf) { Ok(body) } else { Err(missing_token()) };
    }
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(missing_token());
    }
    let too_large = |_| {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the form is larger than {FORM_BYTES_MAX} bytes"),
        )
    };
    let bytes = to_bytes(body, FORM_BYTES_MAX).await.map_err(too_large)?;
    let sent = form_urlencoded::parse(&bytes).find(|(name, _)| name == CSRF_FIELD);
    if sent.is_some_and(|(_, value)| constant_time_eq(&value, &session.csrf)) {
        Ok(Body::from(bytes))
    } else {
        Err(missing_token())
    }
}

fn missing_token() -> ApiError {
    refused("a change with a session cookie must include the CSRF token of the session")
        .hint("send it in the header x-csrf-token or the form field csrf; GET /v1/session returns it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn request_with_foreign_origin_is_refused() {
        let host = ("host", "mill.example:8080");
        assert!(check_same_site(&headers(&[host])).is_ok());
        assert!(check_same_site(&headers(&[host, ("origin", "https://mill.example:8080")])).is_ok());
        for origin in ["https://evil.example", "null", "https://mill.example", ""] {
            assert!(check_same_site(&headers(&[host, ("origin", origin)])).is_err(), "{origin}");
        }
    }

    #[test]
    fn host_that_is_not_local_is_refused() {
        for host in
            ["localhost", "LocalHost:7070", "127.0.0.1:7070", "[::1]:7070", "127.0.0.1", "127.0.0.2:7171"]
        {
            assert!(check_local_name(host).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "evil.example:7070", "10.0.0.1:7070", "", ":7070", "[::2]", "[127.0.0.1]"]
        {
            assert!(check_local_name(host).is_err(), "{host}");
        }
    }
}
