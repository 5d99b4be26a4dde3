//! The pages for sign-in and sign-out.

use crate::Console;
use crate::error_page::{ErrorPage, sentence};
use crate::forms::own_path;
use crate::layout;
use crate::text::safe;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{AppendHeaders, IntoResponse as _, Redirect, Response};
use http::{Method, StatusCode, Uri, header};
use maud::html;
use tidemill_wire::Problem;
use tidemill_wire::access::SignIn;

/// Maximum size of a form.
const FORM_BYTES_MAX: usize = 16 * 1024;

/// Renders the sign-in page.
pub(crate) async fn page(uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default().as_bytes();
    let next = form_urlencoded::parse(query).find(|(name, _)| name == "next");
    form(next.as_ref().map_or("/", |(_, next)| next), None).into_response()
}

fn form(next: &str, problem: Option<&Problem>) -> impl axum::response::IntoResponse + use<> {
    let body = html! {
        section.narrow {
            (layout::brand_link())
            h1 { "Sign in" }
            @if let Some(problem) = problem { p.note.bad role="alert" { (safe(&sentence(&problem.message))) }
                }
            form.form method="post" action="/sign-in" {
                input type="hidden" name="next" value=(own_path(next));
                label.field { "Token"
                    input type="password" name="token" required autofocus autocomplete="current-password"
                        placeholder="tm_…" aria-describedby="token-help"; }
                p #token-help.dim.small {
                    "Admins create tokens: " code { "tidemill token create NAME --role viewer" }
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
    let body = serde_json::to_vec(&SignIn { token }).unwrap_or_default();
    let response = console.inner.api.send(&parts, Method::POST, "/v1/session", body.into(), None).await?;
    if response.status().is_success() {
        let cookies = response.headers().get_all(header::SET_COOKIE).iter();
        let cookies: Vec<_> = cookies.map(|cookie| (header::SET_COOKIE, cookie.clone())).collect();
        return Ok((AppendHeaders(cookies), Redirect::to(own_path(&next))).into_response());
    }
    let status = response.status();
    let body = to_bytes(response.into_body(), FORM_BYTES_MAX).await.unwrap_or_default();
    let problem: Option<Problem> = serde_json::from_slice(&body).ok();
    let problem = problem.map(|problem| match problem.code.as_str() {
        "unauthenticated" => Problem::new("unauthenticated", "unknown token"),
        _ => problem,
    });
    if status == StatusCode::CONFLICT {
        // The server does not use tokens: there is no sign-in.
        return Ok(Redirect::to(own_path(&next)).into_response());
    }
    Ok((status, form(&next, problem.as_ref())).into_response())
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
