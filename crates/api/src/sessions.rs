//! Sign-in and sign-out of browsers.

use crate::access::{Access, AuthContext, Caller, SIGN_IN_PATH as PATH, SignInResult, sign_in, sign_out};
use crate::app::App;
use crate::endpoint::{Endpoint, Permission};
use crate::error::ApiError;
use crate::extract::Body;
use axum::Json;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{AppendHeaders, IntoResponse, Response};
use http::request::Parts;
use http::{Method, StatusCode, header};
use tidemill_engine::clock::host_now;
use tidemill_wire::access::{Session, SignIn, SignInLink};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, PATH, Permission::Anyone, open)
            .public()
            .describe("access", "Sign in with a token or a one-time link; the response sets a session cookie")
            .body::<SignIn>()
            .responds::<Session>(201, "The session, with the CSRF token that changes must include"),
        Endpoint::new(Method::GET, PATH, Permission::Anyone, show)
            .describe("access", "Show the current session")
            .responds::<Session>(200, "The session"),
        Endpoint::new(Method::DELETE, PATH, Permission::Anyone, close)
            .describe("access", "Sign out and end the session")
            .responds_empty(204, "The session has ended"),
        Endpoint::new(Method::POST, "/v1/session/links", Permission::Admin, create_link)
            .describe("access", "Create a one-time link that signs in to the console of a local server")
            .responds::<SignInLink>(201, "The link; only a caller with the local token gets one"),
    ]
}

fn session(caller: Caller, auth: &AuthContext) -> Session {
    let signed = auth.session.as_ref();
    Session {
        caller: caller.name,
        role: caller.role,
        projects: caller.projects,
        csrf: signed.map(|signed| signed.csrf.clone()),
        expires_at: signed.map(|signed| signed.expires_at),
    }
}

async fn open(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let Body(SignIn { token }) = Body::from_request(Request::from_parts(parts.clone(), body), &app).await?;
    let SignInResult { caller, auth, cookie } = sign_in(&app, &parts, &token).await?;
    let headers = AppendHeaders([(header::SET_COOKIE, cookie)]);
    Ok((StatusCode::CREATED, headers, Json(session(caller, &auth))).into_response())
}

async fn show(caller: Caller, auth: AuthContext) -> Json<Session> {
    Json(session(caller, &auth))
}

async fn close(State(app): State<App>, auth: AuthContext, parts: Parts) -> Result<Response, ApiError> {
    let headers = AppendHeaders([(header::SET_COOKIE, sign_out(&app, &auth, &parts).await?)]);
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}

/// A session must not create links: they would outlive its sign-out.
async fn create_link(State(app): State<App>, auth: AuthContext) -> Result<Response, ApiError> {
    let refuse = |message| Err(ApiError::new(StatusCode::CONFLICT, "no_links", message));
    match app.access() {
        Access::Local(local) if auth.session.is_none() => {
            let now = app.engine().clock().now().unwrap_or_else(host_now);
            Ok((StatusCode::CREATED, Json(local.create_link(now)?)).into_response())
        }
        Access::Local(_) => refuse("only the local token creates links; a browser session does not"),
        Access::Tokens => refuse("this server has no links; sign in to the console with a token"),
        Access::Open { .. } | Access::Fixed(_) => refuse("there is no console to sign in to"),
    }
}
