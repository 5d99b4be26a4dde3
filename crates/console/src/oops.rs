//! What a browser is shown where there is no page: the problem, and the way on.

use crate::layout;
use crate::text::says;
use crate::way_back::WayBack;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use maud::html;
use tidemill_api::Fail;
use tidemill_client::Error;
use tidemill_wire::Problem;

/// Why there is no page.
#[derive(Debug)]
pub(crate) enum Oops {
    /// Nobody is signed in: they are asked to, and come back here.
    SignIn {
        /// What they wanted to see.
        next: String,
    },
    /// Something else.
    Problem {
        /// With this status.
        status: StatusCode,
        /// What to say.
        problem: Box<Problem>,
    },
}

impl Oops {
    /// What the guard said to somebody who wanted to see this.
    pub(crate) fn of_fail(fail: &Fail, uri: &Uri) -> Self {
        if fail.status() == StatusCode::UNAUTHORIZED {
            let next = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
            return Self::SignIn { next };
        }
        Self::Problem { status: fail.status(), problem: Box::new(fail.problem().clone()) }
    }

    /// Something that is not there.
    pub(crate) fn nothing(what: impl Into<String>) -> Self {
        Self::Problem { status: StatusCode::NOT_FOUND, problem: Box::new(Problem::new("nothing_here", what)) }
    }

    /// A form that cannot be understood.
    pub(crate) fn bad_form(what: impl Into<String>) -> Self {
        let problem = Box::new(Problem::new("bad_form", what));
        Self::Problem { status: StatusCode::UNPROCESSABLE_ENTITY, problem }
    }
}

impl From<Error> for Oops {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { status: StatusCode::UNAUTHORIZED, .. } => Self::SignIn { next: "/".to_owned() },
            Error::Refused { status, problem } => Self::Problem { status, problem },
            Error::Unreachable { .. } => {
                let problem = Problem::new("took_too_long", "this took longer than the server waits");
                Self::Problem { status: StatusCode::SERVICE_UNAVAILABLE, problem: Box::new(problem) }
            }
            Error::NotTidemill { .. } | Error::Unreadable(_) | Error::BadAddress(_) => {
                let problem = Fail::internal(&error.to_string()).problem().clone();
                Self::Problem { status: StatusCode::INTERNAL_SERVER_ERROR, problem: Box::new(problem) }
            }
        }
    }
}

/// The heading of a problem.
fn heading(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "There is nothing here",
        StatusCode::METHOD_NOT_ALLOWED => "There is no page here",
        StatusCode::FORBIDDEN => "You may not do this",
        StatusCode::CONFLICT => "It is not as it was",
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => "This is not understood",
        StatusCode::SERVICE_UNAVAILABLE => "The server has no answer just now",
        StatusCode::TOO_MANY_REQUESTS => "Wait a little",
        _ => "Something went wrong",
    }
}

impl IntoResponse for Oops {
    fn into_response(self) -> Response {
        match self {
            Self::SignIn { next } => {
                let query =
                    form_urlencoded::Serializer::new(String::new()).append_pair("next", &next).finish();
                Redirect::to(&format!("/sign-in?{query}")).into_response()
            }
            Self::Problem { status, problem } => {
                let mut response = told(status, &problem, None);
                response.extensions_mut().insert(Problematic(problem));
                response
            }
        }
    }
}

/// What a page tells of, for whoever knows the way back.
#[derive(Clone)]
struct Problematic(Box<Problem>);

/// The same answer; where it tells of a problem with a form, it leads back to the form.
pub(crate) fn with_way(mut response: Response, way: &WayBack) -> Response {
    match (way.address(), response.extensions_mut().remove::<Problematic>()) {
        (Some(back), Some(Problematic(problem))) => told(response.status(), &problem, Some(back)),
        (None, _) | (_, None) => response,
    }
}

/// The page of a problem.
fn told(status: StatusCode, problem: &Problem, back: Option<&str>) -> Response {
    let body = html! {
        section.narrow.oops {
            h1 { (heading(status)) }
            p { (says(&sentence(&problem.message))) }
            @if !problem.faults.is_empty() {
                ul { @for fault in &problem.faults { li { code { (says(&fault.field)) } " "
                    (says(&fault.problem)) } } }
            }
            @if let Some(hint) = &problem.hint { p.dim { (says(hint)) } }
            p { @if let Some(back) = back { a.button href=(back) { "Back to where it was" } " " }
                a.button href="/" { "Overview" } }
        }
    };
    (status, layout::bare(heading(status), &body)).into_response()
}

/// A message as a sentence: messages begin in lower case and have no full stop.
pub(crate) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let Some(first) = letters.next() else { return String::new() };
    let end = if message.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{}{end}", first.to_uppercase(), letters.as_str())
}
