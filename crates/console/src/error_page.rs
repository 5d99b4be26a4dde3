//! Pages that show API errors.

use crate::form_return::ReturnAddress;
use crate::layout;
use crate::text::safe;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use maud::html;
use tidemill_api::ApiError;
use tidemill_client::Error;
use tidemill_wire::Problem;

/// Reason why a page cannot be shown.
#[derive(Debug)]
pub(crate) enum ErrorPage {
    /// The user is not signed in: redirects to the sign-in page, which returns to `next`.
    SignIn {
        next: String,
    },
    Problem {
        status: StatusCode,
        problem: Box<Problem>,
    },
}

impl ErrorPage {
    /// Converts an error of the access check for this address.
    pub(crate) fn from_api_error(error: &ApiError, uri: &Uri) -> Self {
        if error.status() == StatusCode::UNAUTHORIZED {
            let next = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
            return Self::SignIn { next };
        }
        Self::Problem { status: error.status(), problem: Box::new(error.problem().clone()) }
    }

    /// Error for an object that does not exist.
    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::Problem { status: StatusCode::NOT_FOUND, problem: Box::new(Problem::new("nothing_here", what)) }
    }

    /// Error for an invalid form.
    pub(crate) fn bad_form(what: impl Into<String>) -> Self {
        let problem = Box::new(Problem::new("bad_form", what));
        Self::Problem { status: StatusCode::UNPROCESSABLE_ENTITY, problem }
    }
}

impl From<Error> for ErrorPage {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { status: StatusCode::UNAUTHORIZED, .. } => Self::SignIn { next: "/".to_owned() },
            Error::Refused { status, problem } => Self::Problem { status, problem },
            Error::Unreachable { .. } => {
                let problem = Problem::new("took_too_long", "the request timed out");
                Self::Problem { status: StatusCode::SERVICE_UNAVAILABLE, problem: Box::new(problem) }
            }
            Error::NotTidemill { .. } | Error::InvalidResponse(_) | Error::InvalidConfig(_) => {
                let problem = ApiError::internal(&error.to_string()).problem().clone();
                Self::Problem { status: StatusCode::INTERNAL_SERVER_ERROR, problem: Box::new(problem) }
            }
        }
    }
}

fn heading(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::METHOD_NOT_ALLOWED => "No page here",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::CONFLICT => "Conflict with the current state",
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => "Invalid request",
        StatusCode::SERVICE_UNAVAILABLE => "Temporarily unavailable",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        _ => "Something went wrong",
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        match self {
            Self::SignIn { next } => {
                let query =
                    form_urlencoded::Serializer::new(String::new()).append_pair("next", &next).finish();
                Redirect::to(&format!("/sign-in?{query}")).into_response()
            }
            Self::Problem { status, problem } => {
                let mut response = render(status, &problem, None);
                response.extensions_mut().insert(PageProblem(problem));
                response
            }
        }
    }
}

/// Response extension with the problem of an error page, so that a link back can be added.
#[derive(Clone)]
struct PageProblem(Box<Problem>);

/// Adds a link back to the form if the response is an error page for a submitted form.
pub(crate) fn with_return_link(mut response: Response, address: &ReturnAddress) -> Response {
    match (address.get(), response.extensions_mut().remove::<PageProblem>()) {
        (Some(back), Some(PageProblem(problem))) => render(response.status(), &problem, Some(back)),
        (None, _) | (_, None) => response,
    }
}

/// Renders an error page.
fn render(status: StatusCode, problem: &Problem, back: Option<&str>) -> Response {
    let body = html! {
        section.narrow {
            h1 { (heading(status)) }
            p { (safe(&sentence(&problem.message))) }
            @if !problem.faults.is_empty() {
                ul { @for error in &problem.faults { li { code { (safe(&error.field)) } " "
                    (safe(&error.problem)) } } }
            }
            @if let Some(hint) = &problem.hint { p.dim { (safe(hint)) } }
            p { @if let Some(back) = back { a.button href=(back) { "Back to the form" } " " }
                a.button href="/" { "Overview" } }
        }
    };
    (status, layout::bare(heading(status), &body)).into_response()
}

/// Turns a message, which starts in lower case and has no full stop, into a sentence.
pub(crate) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let Some(first) = letters.next() else { return String::new() };
    let end = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{}{end}", first.to_uppercase(), letters.as_str())
}
