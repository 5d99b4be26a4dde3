//! Signing in with a token, and out.

use crate::Console;
use crate::act::own_path;
use crate::layout;
use crate::oops::{Oops, sentence};
use crate::text::says;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{AppendHeaders, IntoResponse as _, Redirect, Response};
use http::{Method, StatusCode, Uri, header};
use maud::html;
use tidemill_wire::Problem;
use tidemill_wire::access::SignIn;

/// The largest form that is read.
const FORM_BYTES_MAX: usize = 16 * 1024;

/// The page that asks for a token.
pub(crate) async fn page(uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default().as_bytes();
    let next = form_urlencoded::parse(query).find(|(name, _)| name == "next");
    form(next.as_ref().map_or("/", |(_, next)| next), None).into_response()
}

fn form(next: &str, problem: Option<&Problem>) -> impl axum::response::IntoResponse + use<> {
    let body = html! {
        section.narrow {
            (layout::sign())
            h1 { "Sign in" }
            @if let Some(problem) = problem { p.note.bad role="alert" { (says(&sentence(&problem.message))) }
                }
            form.form method="post" action="/sign-in" {
                input type="hidden" name="next" value=(own_path(next));
                label.field { "Token"
                    input type="password" name="token" required autofocus autocomplete="current-password"
                        placeholder="tm_…" aria-describedby="token-help"; }
                p #token-help.dim.small {
                    "An admin makes tokens: " code { "tidemill token create NAME --role viewer" }
                }
                div { button.main type="submit" { "Sign in" } }
            }
        }
    };
    layout::bare("Sign in", &body)
}

/// Opens a session: the door does it, and says which cookie the browser is to get.
pub(crate) async fn sign_in(State(console): State<Console>, request: Request) -> Result<Response, Oops> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, FORM_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| Oops::bad_form("this form is larger than this server takes"))?;
    let field = |wanted: &str| {
        form_urlencoded::parse(&bytes).find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
    };
    let next = field("next").unwrap_or_else(|| "/".to_owned());
    let token = field("token").unwrap_or_default();
    let asked = serde_json::to_vec(&SignIn { token }).unwrap_or_default();
    let answer = console.inner.door.send(&parts, Method::POST, "/v1/session", asked.into(), None).await?;
    if answer.status().is_success() {
        let cookies = answer.headers().get_all(header::SET_COOKIE).iter();
        let cookies: Vec<_> = cookies.map(|cookie| (header::SET_COOKIE, cookie.clone())).collect();
        return Ok((AppendHeaders(cookies), Redirect::to(own_path(&next))).into_response());
    }
    let status = answer.status();
    let body = to_bytes(answer.into_body(), FORM_BYTES_MAX).await.unwrap_or_default();
    let problem: Option<Problem> = serde_json::from_slice(&body).ok();
    let problem = problem.map(|problem| match problem.code.as_str() {
        "unauthenticated" => Problem::new("unauthenticated", "nobody knows this token"),
        _ => problem,
    });
    if status == StatusCode::CONFLICT {
        // The server asks for no token: there is nothing to sign in to.
        return Ok(Redirect::to(own_path(&next)).into_response());
    }
    Ok((status, form(&next, problem.as_ref())).into_response())
}

/// Ends the session.
pub(crate) async fn sign_out(State(console): State<Console>, request: Request) -> Result<Response, Oops> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, FORM_BYTES_MAX).await;
    let bytes = bytes.map_err(|_| Oops::bad_form("this form is larger than this server takes"))?;
    let csrf =
        form_urlencoded::parse(&bytes).find(|(name, _)| name == "csrf").map(|(_, value)| value.into_owned());
    let door = &console.inner.door;
    let answer =
        door.send(&parts, Method::DELETE, "/v1/session", bytes::Bytes::new(), csrf.as_deref()).await?;
    if !answer.status().is_success() && answer.status() != StatusCode::UNAUTHORIZED {
        let status = answer.status();
        let body = to_bytes(answer.into_body(), FORM_BYTES_MAX).await.unwrap_or_default();
        let problem = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Problem::new("sign_out", "you are still signed in"));
        return Err(Oops::Problem { status, problem: Box::new(problem) });
    }
    let cookies = answer.headers().get_all(header::SET_COOKIE).iter();
    let cookies: Vec<_> = cookies.map(|cookie| (header::SET_COOKIE, cookie.clone())).collect();
    Ok((AppendHeaders(cookies), Redirect::to("/sign-in")).into_response())
}
