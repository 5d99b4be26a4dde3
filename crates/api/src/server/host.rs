//! Host of a request, which a client must name once.
//!
//! Proxies and servers that pick different ones of two hosts disagree about the site of a request.

use crate::error::ApiError;
use axum::extract::Request;
use http::{StatusCode, header};

/// Returns the host that a request names, with its port. Refuses several hosts, and a target that contradicts `Host`.
pub(super) fn of(request: &Request) -> Result<&str, ApiError> {
    let refuse = |message| Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_host", message));
    let mut named = request.headers().get_all(header::HOST).iter();
    let (first, second) = (named.next(), named.next());
    if second.is_some() {
        return refuse("the request has more than one Host header");
    }
    let named = first.map(|host| host.to_str().unwrap_or_default());
    let target = request.uri().authority().map(http::uri::Authority::as_str);
    match (target, named) {
        (Some(target), Some(named)) if !target.eq_ignore_ascii_case(named) => {
            refuse("the target of the request contradicts its Host header")
        }
        (target, named) => Ok(target.or(named).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn host(target: &str, hosts: &[&str]) -> Result<String, String> {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let request = request.body(Body::empty()).unwrap();
        of(&request).map(str::to_owned).map_err(|error| error.problem().code.clone())
    }

    #[test]
    fn one_host_is_accepted_and_contradicting_hosts_are_refused() {
        assert_eq!(host("/v1/info", &["a.example"]).as_deref(), Ok("a.example"));
        assert_eq!(host("http://a.example/v1/info", &["A.example"]).as_deref(), Ok("a.example"));
        assert_eq!(host("http://a.example/v1/info", &[]).as_deref(), Ok("a.example"));
        assert_eq!(host("/v1/info", &[]).as_deref(), Ok(""));
        for (target, hosts) in [
            ("/v1/info", &["a.example", "a.example"][..]),
            ("/v1/info", &["localhost", "evil.example"]),
            ("http://a.example/v1/info", &["b.example"]),
            ("http://a.example/v1/info", &["a.example:80"]),
        ] {
            assert_eq!(host(target, hosts).unwrap_err(), "bad_host", "{target} {hosts:?}");
        }
    }
}
