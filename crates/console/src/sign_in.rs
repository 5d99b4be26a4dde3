//! The pages for sign-in and sign-out.

use crate::Console;
use crate::error_page::{ErrorPage, sentence};
use crate::forms::own_path;
use crate::layout;
use crate::text::safe;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{AppendHeaders, IntoResponse as _, Redirect, Response};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use maud::{Markup, html};
use tidemill_api::access::identify;
use tidemill_wire::Problem;
use tidemill_wire::access::SignIn;

/// Maximum size of a form.
const FORM_BYTES_MAX: usize = 16 * 1024;

/// Renders the sign-in page, or signs in with the code of a one-time link.
pub(crate) async fn page(State(console): State<Console>, request: Request) -> Result<Response, ErrorPage> {
    let (parts, _) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let field =
        |name: &str| form_urlencoded::parse(query).find(|(key, _)| key == name).map(|(_, value)| value);
    let next = field("next").unwrap_or_else(|| "/".into());
    // Programs that check links send HEAD, which must not use the link up.
    let Some(code) = field("code").filter(|_| parts.method == Method::GET) else {
        return Ok(form(&console, &next, None).into_response());
    };
    if identify(&console.inner.app, &parts).await.is_ok() {
        return Ok(forward(Vec::new()));
    }
    match open_session(&console, &parts, code.into_owned()).await? {
        Ok(cookies) => Ok(forward(cookies)),
        Err((status, problem)) => Ok((status, form(&console, "/", problem.as_ref())).into_response()),
    }
}

/// Page that continues with the overview at once, without the code in its address.
///
/// It is not a redirect: browsers do not send a strict cookie along redirects that began on another site or in a file.
fn forward(cookies: Vec<(HeaderName, HeaderValue)>) -> Response {
    let body = html! {
        section.narrow {
            h1 { "Signed in" }
            p { a.button href="/" { "Overview" } }
        }
    };
    let headers = [(header::REFERRER_POLICY, "no-referrer"), (header::REFRESH, "0;url=/")];
    (headers, AppendHeaders(cookies), layout::bare("Signed in", &body)).into_response()
}

/// Cookies of a new session, or the status and the problem of a refused sign-in.
type SignInOutcome = Result<Vec<(HeaderName, HeaderValue)>, (StatusCode, Option<Problem>)>;

/// Signs in through the API.
async fn open_session(console: &Console, parts: &Parts, token: String) -> Result<SignInOutcome, ErrorPage> {
    let body = serde_json::to_vec(&SignIn { token }).unwrap_or_default();
    let response = console.inner.api.send(parts, Method::POST, "/v1/session", body.into(), None).await?;
    if response.status().is_success() {
        let cookies = response.headers().get_all(header::SET_COOKIE).iter();
        return Ok(Ok(cookies.map(|cookie| (header::SET_COOKIE, cookie.clone())).collect()));
    }
    let status = response.status();
    let body = to_bytes(response.into_body(), FORM_BYTES_MAX).await.unwrap_or_default();
    Ok(Err((status, serde_json::from_slice(&body).ok())))
}

/// Explains how the user of a local server signs in.
fn local_help(next: &str) -> Markup {
    html! {
        p { "This server only answers to the user who started it. That user signs in with a one-time link:" }
        ul {
            li { code { "tidemill up" } " prints a link when it starts" }
            li { "run " code { "tidemill console" } " to get a new link" }
        }
        p { a.button href=(own_path(next)) { "Continue if you are signed in" } }
        p.dim.small { "You can also paste the token from the token file of the server:" }
    }
}

fn form(
    console: &Console,
    next: &str,
    problem: Option<&Problem>,
) -> impl axum::response::IntoResponse + use<> {
    let is_local = console.inner.app.is_local();
    let body = html! {
        section.narrow {
            (layout::brand_link())
            h1 { "Sign in" }
            @if let Some(problem) = problem { p.note.bad role="alert" { (safe(&sentence(&problem.message))) }
                }
            @if is_local { (local_help(next)) }
            form.form method="post" action="/sign-in" {
                input type="hidden" name="next" value=(own_path(next));
                label.field { "Token"
                    input type="password" name="token" required autofocus autocomplete="current-password"
                        placeholder="tm_…" aria-describedby="token-help"; }
                p #token-help.dim.small {
                    @if is_local { "The name of the file is the address of the server." }
                    @else { "Admins create tokens: " code { "tidemill token create NAME --role viewer" } }
                }
                div { button.main type="submit" { "Sign in" } }
            }
        }
    };
    layout::bare("Sign in", &body)
}

/// Signs in through the API and passes its cookie to the browser.
pub(crate) async fn sign_in(State(console): State<Console>, request: Request) -> Result<Response, ErrorPage> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, FORM_BYTES_MAX).await;
    let bytes =
        bytes.map_err(|_| ErrorPage::bad_form(format!("the form is larger than {FORM_BYTES_MAX} bytes")))?;
    let field = |name: &str| {
        form_urlencoded::parse(&bytes).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let next = field("next").unwrap_or_else(|| "/".to_owned());
    let token = field("token").unwrap_or_default();
    let (status, problem) = match open_session(&console, &parts, token).await? {
        Ok(cookies) => return Ok((AppendHeaders(cookies), Redirect::to(own_path(&next))).into_response()),
        Err(refused) => refused,
    };
    let problem = problem.map(|problem| match problem.code.as_str() {
        "unauthenticated" => Problem::new("unauthenticated", "unknown token"),
        _ => problem,
    });
    if status == StatusCode::CONFLICT {
        // The server does not use tokens: there is no sign-in.
        return Ok(Redirect::to(own_path(&next)).into_response());
    }
    Ok((status, form(&console, &next, problem.as_ref())).into_response())
}

pub(crate) async fn sign_out(
    State(console): State<Console>,
    request: Request,
) -> Result<Response, ErrorPage> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, FORM_BYTES_MAX).await;
    let bytes =
        bytes.map_err(|_| ErrorPage::bad_form(format!("the form is larger than {FORM_BYTES_MAX} bytes")))?;
    let csrf =
        form_urlencoded::parse(&bytes).find(|(name, _)| name == "csrf").map(|(_, value)| value.into_owned());
    let api = &console.inner.api;
    let response =
        api.send(&parts, Method::DELETE, "/v1/session", bytes::Bytes::new(), csrf.as_deref()).await?;
    if !response.status().is_success() && response.status() != StatusCode::UNAUTHORIZED {
        let status = response.status();
        let body = to_bytes(response.into_body(), FORM_BYTES_MAX).await.unwrap_or_default();
        let problem = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Problem::new("sign_out", "the sign-out failed; you are still signed in"));
        return Err(ErrorPage::Problem { status, problem: Box::new(problem) });
    }
    let cookies = response.headers().get_all(header::SET_COOKIE).iter();
    let cookies: Vec<_> = cookies.map(|cookie| (header::SET_COOKIE, cookie.clone())).collect();
    Ok((AppendHeaders(cookies), Redirect::to("/sign-in")).into_response())
}
