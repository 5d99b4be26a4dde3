//! Checks of requests to a local server, in addition to its token.
//!
//! With DNS rebinding, a page of another site can reach this server under that site's name as if it were its own. A
//! form on any page can send requests without reading the responses. A proxy would open the server to its own clients.

use crate::access::csrf;
use crate::error::ApiError;
use axum::extract::Request;
use http::{HeaderName, StatusCode, header};

/// Prefix of the headers in which proxies describe the request that they received.
const FORWARDED_PREFIX: &str = "x-forwarded-";
/// Other headers that only proxies add.
const PROXY_HEADERS: [HeaderName; 3] = [header::FORWARDED, header::VIA, HeaderName::from_static("x-real-ip")];

/// Refuses a request with a foreign host name, from a page of another origin, or through a proxy.
pub(super) fn check(request: &Request, host: &str) -> Result<(), ApiError> {
    csrf::check_local_name(host)?;
    let origin = request.headers().get(header::ORIGIN);
    let is_own_origin =
        |origin: &str| origin.split_once("://").is_some_and(|(_, origin_host)| origin_host == host);
    if origin.is_some_and(|origin| !origin.to_str().is_ok_and(is_own_origin)) {
        let message = "the request was sent by a page of another origin";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "wrong_origin", message));
    }
    let is_proxy_header =
        |name: &&HeaderName| PROXY_HEADERS.contains(name) || name.as_str().starts_with(FORWARDED_PREFIX);
    if let Some(name) = request.headers().keys().find(is_proxy_header) {
        let message = format!("a local server does not answer to proxies; the request has the header {name}");
        return Err(ApiError::new(StatusCode::FORBIDDEN, "forwarded", message)
            .hint("behind a proxy, start the server with --auth"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn code_with(host: &str, header: Option<(&str, &str)>) -> Option<String> {
        let mut request = Request::builder().uri("/v1/info");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let request = request.body(Body::empty()).unwrap();
        check(&request, host).err().map(|fail| fail.problem().code.clone())
    }

    fn code(host: Option<&str>, origin: Option<&str>) -> Option<String> {
        code_with(host.unwrap_or_default(), origin.map(|origin| ("origin", origin)))
    }

    #[test]
    fn request_through_a_proxy_is_refused() {
        for name in
            ["Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Other"]
        {
            assert_eq!(code_with("localhost", Some((name, "x"))).as_deref(), Some("forwarded"), "{name}");
        }
        assert_eq!(code_with("localhost", Some(("x-request-id", "x"))), None);
    }

    #[test]
    fn only_local_host_names_are_accepted() {
        for host in ["localhost", "localhost:7171", "127.0.0.1:7171", "127.0.0.2:7171", "[::1]", "[::1]:7171"]
        {
            assert_eq!(code(Some(host), None), None, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example:7171", "127.0.0.1.evil.example", "10.0.0.1", "::1"]
        {
            assert_eq!(code(Some(host), None).as_deref(), Some("wrong_host"), "{host}");
        }
        assert_eq!(code(None, None).as_deref(), Some("wrong_host"));
    }

    #[test]
    fn foreign_origin_is_refused_and_own_origin_is_accepted() {
        assert_eq!(code(Some("localhost:7171"), Some("http://localhost:7171")), None);
        for origin in ["http://evil.example", "http://localhost:8080", "null"] {
            assert_eq!(
                code(Some("localhost:7171"), Some(origin)).as_deref(),
                Some("wrong_origin"),
                "{origin}"
            );
        }
    }
}
