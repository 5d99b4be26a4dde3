//! Identification of the caller by a token, by a session cookie, or by neither within one process.

use super::lookup_queue::Lookup;
use super::{Access, AuthContext, BrowserSession, Caller, audit_trail, csrf};
use crate::app::App;
use crate::error::ApiError;
use crate::server::{Admission, Class, Holder, Source};
use axum::extract::ConnectInfo;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use std::net::{IpAddr, SocketAddr};
use tidemill_core::Timestamp;
use tidemill_core::access::{Role, Secret, Token};
use tidemill_core::limits::SESSION_SECS;
use tidemill_core::project_set::ProjectSet;
use tidemill_engine::access::AuthOutcome;
use tidemill_engine::clock::host_now;
use tidemill_store::{AuditEntry, Credential};
use uuid::Uuid;

/// Name of the session cookie.
pub const SESSION_COOKIE: &str = "tidemill_session";

/// Path of the sign-in endpoint.
pub(crate) const SIGN_IN_PATH: &str = "/v1/session";

/// Client side of a connection. The server adds it to the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub address: SocketAddr,
    pub tls: bool,
}

pub(crate) fn source(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>().map(|peer| peer.address);
    let address = peer.or_else(|| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
    address.map(|address| address.ip().to_canonical())
}

/// Whether the browser uses TLS, to this server or to a proxy in front of it. The header is not trusted for anything
/// but the `Secure` attribute of the client's own cookie.
pub(super) fn is_secure(parts: &Parts) -> bool {
    let forwarded = parts.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    forwarded || parts.extensions.get::<Peer>().is_some_and(|peer| peer.tls)
}

/// Credentials that a request contains; `Err` for malformed ones.
enum Credentials {
    None,
    Bearer(Result<Secret, ()>),
    Cookie(Result<Secret, ()>),
}

fn credentials(headers: &HeaderMap) -> Credentials {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let token = match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                token.trim().parse::<Secret>().ok()
            }
            Some(_) | None => None,
        };
        return Credentials::Bearer(token.filter(Secret::is_token).ok_or(()));
    }
    match cookie_values(headers, SESSION_COOKIE).next() {
        Some(value) => {
            let secret = value.parse::<Secret>().ok();
            Credentials::Cookie(secret.filter(|secret| !secret.is_token()).ok_or(()))
        }
        None => Credentials::None,
    }
}

/// Returns the values of the cookies with this name.
pub(super) fn cookie_values<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
}

fn unauthenticated() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", "a valid token is required")
        .hint("send the header `Authorization: Bearer tm_…`")
}

/// Verifies a secret. A secret that this process has not seen before is looked up in its source's turn, so that others
/// cannot delay it for long.
async fn verify(
    app: &App,
    secret: Result<Secret, ()>,
    source: Option<IpAddr>,
) -> Result<Credential, ApiError> {
    let outcome = match secret {
        Ok(secret) if app.keyring().contains(&secret) => app.keyring().authenticate(&secret).await?,
        Ok(secret) => look_up(app, secret, source).await?,
        Err(()) => AuthOutcome::Unknown,
    };
    let refuse = |code: &str, message: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, code, message));
    match outcome {
        AuthOutcome::Valid(known) => Ok(*known),
        AuthOutcome::Expired => refuse("token_expired", "this token has expired"),
        AuthOutcome::Revoked => refuse("token_revoked", "this token was revoked"),
        AuthOutcome::SessionExpired => refuse("session_over", "this session has ended; sign in again"),
        AuthOutcome::Unknown => {
            app.lookups().failed(Source::new(source));
            Err(unauthenticated())
        }
    }
}

async fn look_up(app: &App, secret: Secret, source: Option<IpAddr>) -> Result<AuthOutcome, ApiError> {
    let owned = app.clone();
    let lookup = async move {
        let outcome = owned.keyring().authenticate(&secret).await;
        let is_unknown = matches!(outcome, Ok(AuthOutcome::Unknown));
        (outcome, if is_unknown { Lookup::Unknown } else { Lookup::Found })
    };
    let outcome = app.lookups().run(Source::new(source), lookup).await;
    Ok(outcome.ok_or_else(|| ApiError::internal("the look-up of a token panicked"))??)
}

fn now(app: &App) -> Timestamp {
    app.engine().clock().now().unwrap_or_else(host_now)
}

/// Counts a request for its caller, within the limits of its class and its token.
fn admit(parts: &Parts, role: Role, token: Option<Uuid>) -> Result<(), ApiError> {
    let Some(admission) = parts.extensions.get::<Admission>() else { return Ok(()) };
    let (class, holder) = match (token, role) {
        // Without tokens, agents and workers cannot be told from people.
        (None, _) => (Class::Machine, Holder::Local),
        (Some(token), Role::Worker | Role::Agent) => (Class::Machine, Holder::Token(token)),
        (Some(token), Role::Viewer | Role::Operator | Role::Admin) => (Class::Person, Holder::Token(token)),
    };
    admission.authenticate(class, holder)
}

fn caller(token: &Token) -> Caller {
    Caller { name: token.name.clone(), role: token.role, projects: token.projects.clone() }
}

/// Identifies the caller of a request. Used by the guard of every route and by the console's pages.
pub async fn identify(app: &App, parts: &Parts) -> Result<(Caller, AuthContext), ApiError> {
    let source = source(&parts.extensions);
    match app.access() {
        Access::Local(local) => {
            let (caller, auth) = local.identify(parts, now(app))?;
            admit(parts, caller.role, None)?;
            Ok((caller, auth))
        }
        Access::Open { name } => {
            let caller = Caller { name: name.clone(), role: Role::Admin, projects: ProjectSet::All };
            admit(parts, caller.role, None)?;
            Ok((caller, AuthContext { source, ..AuthContext::default() }))
        }
        Access::Fixed(caller) => Ok((caller.clone(), AuthContext { source, ..AuthContext::default() })),
        Access::Tokens => {
            let secret = match credentials(&parts.headers) {
                Credentials::None => return Err(unauthenticated()),
                Credentials::Bearer(secret) | Credentials::Cookie(secret) => secret,
            };
            let known = verify(app, secret.clone(), source).await?;
            let session = known.session.zip(secret.ok()).map(|(session, secret)| BrowserSession {
                csrf: secret.csrf(),
                secret,
                expires_at: session.expires_at,
            });
            let (token_id, hash) = (Some(known.token.token_id), Some(known.hash));
            admit(parts, known.token.role, token_id)?;
            Ok((caller(&known.token), AuthContext { token_id, hash, session, source }))
        }
    }
}

/// Result of a sign-in.
#[derive(Debug, Clone)]
pub struct SignInResult {
    pub caller: Caller,
    pub auth: AuthContext,
    /// Value of the `Set-Cookie` header for the browser.
    pub cookie: HeaderValue,
}

/// Signs in with a token or with the code of a one-time link: opens a session and returns its cookie.
pub async fn sign_in(app: &App, parts: &Parts, token: &str) -> Result<SignInResult, ApiError> {
    // Otherwise a page of another site could sign its visitor in under another identity.
    csrf::check_same_site(&parts.headers)?;
    match app.access() {
        Access::Tokens => {}
        Access::Local(local) => return local.sign_in(app, parts, token, now(app)).await,
        Access::Open { .. } | Access::Fixed(_) => {
            let message = "this server does not use tokens; there is no sign-in";
            return Err(ApiError::new(StatusCode::CONFLICT, "no_sign_in", message));
        }
    }
    let source = source(&parts.extensions);
    let secret = token.trim().parse::<Secret>().ok().filter(Secret::is_token).ok_or(());
    let known = verify(app, secret, source).await?;
    let caller = caller(&known.token);
    let before = AuthContext { token_id: Some(known.token.token_id), source, ..AuthContext::default() };
    if let Err(error) = check_console_role(caller.role) {
        audit_trail::record_refusal(app, &caller, &before, SIGN_IN_PATH, error.status()).await;
        return Err(error);
    }
    // The sign-in route has no guard, so the audit entry is written here.
    let entry = audit_trail::audit_entry(&caller, &before, "POST", SIGN_IN_PATH);
    let record = AuditEntry::new(entry, app.engine().clock().now());
    let engine = app.engine().for_call(record);
    let (secret, expires_at) = app.keyring().open_session(&engine, &known.token).await?;
    let cookie = cookie(secret.reveal(), i64::from(SESSION_SECS), is_secure(parts))?;
    let hash = Some(secret.hash());
    let session = Some(BrowserSession { csrf: secret.csrf(), secret, expires_at });
    let auth = AuthContext { hash, session, ..before };
    Ok(SignInResult { caller, auth, cookie })
}

/// Refuses roles of machines: every page would be refused to them.
fn check_console_role(role: Role) -> Result<(), ApiError> {
    match role {
        Role::Viewer | Role::Operator | Role::Admin => Ok(()),
        Role::Worker | Role::Agent => {
            let message = format!(
                "a token of role {role} cannot open pages; sign in with a token of role viewer, operator or admin"
            );
            Err(ApiError::new(StatusCode::FORBIDDEN, "no_pages", message))
        }
    }
}

/// Ends the caller's session and returns the cookie that deletes the browser's.
pub(crate) async fn sign_out(app: &App, auth: &AuthContext, parts: &Parts) -> Result<HeaderValue, ApiError> {
    match app.access() {
        Access::Local(local) => return local.sign_out(auth.session.as_ref(), parts),
        Access::Tokens | Access::Open { .. } | Access::Fixed(_) => {}
    }
    match &auth.session {
        Some(signed) => {
            app.keyring().close_session(app.engine(), &signed.secret).await?;
        }
        None => app.skip_audit(),
    }
    cookie("", 0, is_secure(parts))
}

fn cookie(value: &str, secs: i64, secure: bool) -> Result<HeaderValue, ApiError> {
    let end = if secure { "; Secure" } else { "" };
    let text = format!("{SESSION_COOKIE}={value}; Path=/; Max-Age={secs}; HttpOnly; SameSite=Lax{end}");
    let mut cookie =
        HeaderValue::from_str(&text).map_err(|_| ApiError::internal("invalid session cookie"))?;
    cookie.set_sensitive(true);
    Ok(cookie)
}
