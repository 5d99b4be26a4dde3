//! Who a door without tokens answers: callers that know it as this machine, and no page from elsewhere.
//!
//! A name that somebody else owns can be made to lead to this machine, and then a page of theirs could ask us as if
//! it were ours. So could a form on any page, as long as it need not read the answer.

use crate::access::forgery;
use crate::answer::Fail;
use axum::extract::Request;
use http::{StatusCode, header};

/// Refuses a request for another name, or from a page of another place.
pub(super) fn check(request: &Request) -> Result<(), Fail> {
    let asked = request.uri().authority().map(http::uri::Authority::as_str);
    let asked = asked.or_else(|| request.headers().get(header::HOST)?.to_str().ok()).unwrap_or_default();
    forgery::own_name(asked)?;
    let from = request.headers().get(header::ORIGIN);
    let is_ours = |origin: &str| origin.split_once("://").is_some_and(|(_, host)| host == asked);
    if from.is_some_and(|origin| !origin.to_str().is_ok_and(is_ours)) {
        let message = "a page of another place may not ask this server";
        return Err(Fail::new(StatusCode::FORBIDDEN, "wrong_origin", message));
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
    fn only_names_of_this_machine_are_answered() {
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
    fn a_page_of_another_place_is_refused_and_one_of_our_own_is_not() {
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
