//! Addresses that nobody knows: a browser is shown a page, and programs are told as the door tells them.

use crate::oops::Oops;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method, StatusCode, header};
use tidemill_wire::Problem;

/// What is under here is for programs, whatever they say that they read.
const FOR_PROGRAMS: &str = "/v1/";

/// What is said where there is no route.
pub(crate) async fn nowhere(request: Request) -> Response {
    let is_look = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    if !is_look || path.starts_with(FOR_PROGRAMS) || !prefers_pages(request.headers()) {
        return tidemill_api::nowhere().await.into_response();
    }
    Oops::nothing(format!("no page of this server has the address {path}")).into_response()
}

/// What is said where a form is sent to, and somebody looks.
pub(crate) async fn wrong_method() -> Oops {
    let problem = Problem::new("wrong_method", "this address is for a form, and shows no page");
    Oops::Problem { status: StatusCode::METHOD_NOT_ALLOWED, problem: Box::new(problem) }
}

/// Whether a caller would rather have a page than JSON, as browsers do. Who takes anything is a program.
fn prefers_pages(headers: &HeaderMap) -> bool {
    let said = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(String, f32)> = said.flat_map(|value| value.split(',')).map(range).collect();
    let worth = |kind: &str| {
        let (main, _) = kind.split_once('/').unwrap_or((kind, ""));
        let own = [kind.to_owned(), format!("{main}/*"), "*/*".to_owned()];
        // The most exact range counts, however much a vaguer one is worth.
        let exact = |name: &String| ranges.iter().find(|(range, _)| range == name).map(|(_, worth)| *worth);
        own.iter().find_map(exact).unwrap_or(0.0)
    };
    worth("text/html") > worth("application/json")
}

/// A range of an `Accept` header, and how much it is worth.
fn range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let worth = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let worth = worth.map_or(Some(1.0), |worth| worth.parse().ok()).unwrap_or(0.0);
    (name, worth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefers(accept: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        prefers_pages(&headers)
    }

    #[test]
    fn browsers_get_pages_and_programs_do_not() {
        let chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        assert!(prefers(chromium) && prefers("text/html") && prefers("TEXT/HTML ; Q=0.5"));
        assert!(prefers("text/*;q=0.3, application/json;q=0.2"));
        for program in [
            "*/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "text/html;q=0, */*",
            "text/html, application/json",
            "",
            ",;q=;,",
        ] {
            assert!(!prefers(program), "{program}");
        }
        assert!(!prefers_pages(&HeaderMap::new()));
    }
}
