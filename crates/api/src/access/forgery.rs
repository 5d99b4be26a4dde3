//! Requests that another site makes a browser send. A token in a header cannot be forged like this; a cookie, and an
//! open door on the reader's own machine, can.

use crate::access::Visit;
use crate::answer::Fail;
use axum::body::{Body, to_bytes};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use std::net::IpAddr;
use tidemill_core::access::same;

/// The header that carries what only a page of ours knows.
const CSRF_HEADER: &str = "x-csrf-token";
/// The field of a form that does.
const CSRF_FIELD: &str = "csrf";
/// The largest form that is read to find it.
const FORM_BYTES_MAX: usize = 1024 * 1024;

/// Whether a method may change something.
pub(crate) fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn refused(message: &str) -> Fail {
    Fail::new(StatusCode::FORBIDDEN, "csrf", message)
}

/// Refuses what a browser says comes from a page of another site.
pub(crate) fn same_site(headers: &HeaderMap) -> Result<(), Fail> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let from = origin.split_once("://").map_or("", |(_, place)| place);
    if !from.is_empty() && from.eq_ignore_ascii_case(host) {
        return Ok(());
    }
    Err(refused("this request comes from a page of another site"))
}

/// Refuses a name for this machine that others chose: a page could otherwise point its own name at an open door.
/// A request without any name comes from no browser.
pub(crate) fn own_host(headers: &HeaderMap) -> Result<(), Fail> {
    match headers.get(header::HOST) {
        Some(host) => own_name(host.to_str().unwrap_or_default()),
        None => Ok(()),
    }
}

/// Refuses a host that is none of the names of this machine, with or without a port.
pub(crate) fn own_name(host: &str) -> Result<(), Fail> {
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
    let message = "this server answers only under a name of this machine, such as localhost";
    Err(Fail::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message)
        .hint("listen on another address, with tokens, to be reached from elsewhere"))
}

/// Refuses a change by cookie that does not carry what only a page of ours knows. Gives the body back.
pub(crate) async fn check(parts: &Parts, body: Body, visit: &Visit) -> Result<Body, Fail> {
    let Some(session) = &visit.session else { return Ok(body) };
    same_site(&parts.headers)?;
    if let Some(sent) = parts.headers.get(CSRF_HEADER) {
        let sent = sent.to_str().unwrap_or_default();
        return if same(sent, &session.csrf) { Ok(body) } else { Err(forged()) };
    }
    let kind =
        parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(forged());
    }
    let too_large = |_| {
        Fail::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "this form is larger than this server takes")
    };
    let bytes = to_bytes(body, FORM_BYTES_MAX).await.map_err(too_large)?;
    let sent = form_urlencoded::parse(&bytes).find(|(name, _)| name == CSRF_FIELD);
    if sent.is_some_and(|(_, value)| same(&value, &session.csrf)) {
        Ok(Body::from(bytes))
    } else {
        Err(forged())
    }
}

fn forged() -> Fail {
    refused("a change by a signed-in browser must carry the csrf token of its session")
        .hint("send it as x-csrf-token, or as the field csrf of a form; GET /v1/session tells it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn another_site_is_told_by_its_origin() {
        let host = ("host", "mill.example:8080");
        assert!(same_site(&headers(&[host])).is_ok());
        assert!(same_site(&headers(&[host, ("origin", "https://mill.example:8080")])).is_ok());
        for origin in ["https://evil.example", "null", "https://mill.example", ""] {
            assert!(same_site(&headers(&[host, ("origin", origin)])).is_err(), "{origin}");
        }
    }

    #[test]
    fn an_open_door_has_only_the_names_of_its_own_machine() {
        for host in
            ["localhost", "LocalHost:7070", "127.0.0.1:7070", "[::1]:7070", "127.0.0.1", "127.0.0.2:7171"]
        {
            assert!(own_host(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "evil.example:7070", "10.0.0.1:7070", "", ":7070", "[::2]", "[127.0.0.1]"]
        {
            assert!(own_host(&headers(&[("host", host)])).is_err(), "{host}");
        }
        assert!(own_host(&HeaderMap::new()).is_ok());
    }
}
