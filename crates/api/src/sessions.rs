//! Signing in with a browser, and out.

use crate::access::{Caller, SIGN_IN_PATH as PATH, SignedIn, Visit, sign_in};
use crate::answer::Fail;
use crate::app::App;
use crate::endpoint::{Allowed, Endpoint};
use crate::extract::Body;
use axum::Json;
use axum::extract::{FromRequest as _, Request, State};
use axum::response::{AppendHeaders, IntoResponse, Response};
use http::request::Parts;
use http::{Method, StatusCode, header};
use tidemill_wire::access::{Session, SignIn};

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::new(Method::POST, PATH, Allowed::Anyone, open)
            .open()
            .says("access", "Sign in with a token: the answer sets the cookie of a session")
            .body::<SignIn>()
            .answers::<Session>(201, "Who is signed in, and what their changes must carry"),
        Endpoint::new(Method::GET, PATH, Allowed::Anyone, show)
            .says("access", "Say who is signed in")
            .answers::<Session>(200, "Who is signed in"),
        Endpoint::new(Method::DELETE, PATH, Allowed::Anyone, close)
            .says("access", "Sign out: the session is worth nothing from now on")
            .empty(204, "Nobody is signed in"),
    ]
}

fn session(caller: Caller, visit: &Visit) -> Session {
    let signed = visit.session.as_ref();
    Session {
        caller: caller.name,
        role: caller.role,
        project: caller.project,
        csrf: signed.map(|signed| signed.csrf.clone()),
        expires_at: signed.map(|signed| signed.expires_at),
    }
}

async fn open(State(app): State<App>, request: Request) -> Result<Response, Fail> {
    let (parts, body) = request.into_parts();
    let Body(SignIn { token }) = Body::from_request(Request::from_parts(parts.clone(), body), &app).await?;
    let SignedIn { caller, visit, cookie } = sign_in(&app, &parts, &token).await?;
    let headers = AppendHeaders([(header::SET_COOKIE, cookie)]);
    Ok((StatusCode::CREATED, headers, Json(session(caller, &visit))).into_response())
}

async fn show(caller: Caller, visit: Visit) -> Json<Session> {
    Json(session(caller, &visit))
}

async fn close(State(app): State<App>, visit: Visit, parts: Parts) -> Result<Response, Fail> {
    if let Some(signed) = &visit.session {
        app.keyring().close_session(&signed.secret).await?;
    }
    let headers = AppendHeaders([(header::SET_COOKIE, crate::access::no_cookie(&parts)?)]);
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}
