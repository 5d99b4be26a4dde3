//! Host and Origin checks for unauthenticated local mode.
//!
//! With DNS rebinding, a page of another site can reach this server under that site's name as if it were its own. A
//! form on any page can send requests without reading the responses.

use crate::access::csrf;
use crate::error::ApiError;
use axum::extract::Request;
use http::{StatusCode, header};

/// Refuses a request with a foreign host name, or from a page of another origin.
pub(super) fn check(request: &Request) -> Result<(), ApiError> {
    let host = request.uri().authority().map(http::uri::Authority::as_str);
    let host = host.or_else(|| request.headers().get(header::HOST)?.to_str().ok()).unwrap_or_default();
    csrf::check_local_name(host)?;
    let origin = request.headers().get(header::ORIGIN);
    let is_own_origin =
        |origin: &str| origin.split_once("://").is_some_and(|(_, origin_host)| origin_host == host);
    if origin.is_some_and(|origin| !origin.to_str().is_ok_and(is_own_origin)) {
        let message = "the request was sent by a page of another origin";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "wrong_origin", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn code(host: Option<&str>, origin: Option<&str>) -> Option<String> {
        let mut request = Request::builder().uri("/v1/info");
        for (name, value) in [("host", host), ("origin", origin)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        check(&request.body(Body::empty()).unwrap()).err().map(|fail| fail.problem().code.clone())
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
