//! Responses for unknown addresses: a page for browsers, a problem document for programs.

use crate::error_page::ErrorPage;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method, StatusCode, header};
use tidemill_wire::Problem;

/// Prefix of the API's paths, which never get a page.
const API_PREFIX: &str = "/v1/";

/// Response for an address without a route.
pub(crate) async fn not_found(request: Request) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    if !is_read || path.starts_with(API_PREFIX) || !prefers_html(request.headers()) {
        return tidemill_api::no_route().await.into_response();
    }
    ErrorPage::not_found(format!("no page has the address {path}")).into_response()
}

/// Response for a GET request to the address of a form.
pub(crate) async fn wrong_method() -> ErrorPage {
    let problem = Problem::new("wrong_method", "this address only accepts submitted forms");
    ErrorPage::Problem { status: StatusCode::METHOD_NOT_ALLOWED, problem: Box::new(problem) }
}

/// Whether a client prefers HTML to JSON, as browsers do. A client that accepts anything counts as a program.
fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(String, f32)> = accepted.flat_map(|value| value.split(',')).map(range).collect();
    let quality = |kind: &str| {
        let (main, _) = kind.split_once('/').unwrap_or((kind, ""));
        let own = [kind.to_owned(), format!("{main}/*"), "*/*".to_owned()];
        // The most specific range counts, even if a more general one has a higher quality.
        let exact =
            |name: &String| ranges.iter().find(|(range, _)| range == name).map(|(_, quality)| *quality);
        own.iter().find_map(exact).unwrap_or(0.0)
    };
    quality("text/html") > quality("application/json")
}

/// Parses a range of an `Accept` header with its quality.
fn range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let quality = quality.map_or(Some(1.0), |quality| quality.parse().ok()).unwrap_or(0.0);
    (name, quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefers(accept: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        prefers_html(&headers)
    }

    #[test]
    fn browsers_get_pages_and_programs_get_json() {
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
        assert!(!prefers_html(&HeaderMap::new()));
    }
}
