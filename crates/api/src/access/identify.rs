//! Who a request comes from: by a token in a header, by the cookie of a session, or by nothing where the door is open.

use super::{Access, Caller, Signed, Visit, forgery, trail};
use crate::answer::Fail;
use crate::app::App;
use axum::extract::ConnectInfo;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use std::net::{IpAddr, SocketAddr};
use tidemill_core::access::{Role, Secret};
use tidemill_core::limits::SESSION_SECS;
use tidemill_core::{Timestamp, access::Token};
use tidemill_engine::access::Verdict;
use tidemill_engine::clock::host_now;
use tidemill_store::{Known, Record};

/// The name of the cookie of a session.
pub const SESSION_COOKIE: &str = "tidemill_session";

/// Where somebody signs in.
pub(crate) const SIGN_IN_PATH: &str = "/v1/session";

/// The other end of a connection. The server puts it into the extensions of every request.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

fn source(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>().map(|peer| peer.address);
    let address = peer.or_else(|| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
    address.map(|address| address.ip().to_canonical())
}

/// Whether the browser speaks TLS, to us or to a proxy in front of us. A caller who lies gains nothing: it is only
/// about a cookie of their own.
fn is_secure(parts: &Parts) -> bool {
    let forwarded = parts.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    forwarded || parts.extensions.get::<Peer>().is_some_and(|peer| peer.tls)
}

/// What a request shows to be let in.
enum Shown {
    Nothing,
    Bearer(Result<Secret, ()>),
    Cookie(Result<Secret, ()>),
}

fn shown(headers: &HeaderMap) -> Shown {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let token = match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
                token.trim().parse::<Secret>().ok()
            }
            Some(_) | None => None,
        };
        return Shown::Bearer(token.filter(Secret::is_token).ok_or(()));
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    match pairs.find(|(name, _)| *name == SESSION_COOKIE) {
        Some((_, value)) => {
            let secret = value.parse::<Secret>().ok();
            Shown::Cookie(secret.filter(|secret| !secret.is_token()).ok_or(()))
        }
        None => Shown::Nothing,
    }
}

fn unauthenticated() -> Fail {
    Fail::new(StatusCode::UNAUTHORIZED, "unauthenticated", "this needs a valid token")
        .hint("send one as `Authorization: Bearer tm_…`")
}

/// The time, to count failures by. It decides nothing else, so the host's clock will do.
fn now(app: &App) -> Timestamp {
    app.engine().clock().now().unwrap_or_else(host_now)
}

/// What a secret stands for. Whoever shows too many that nobody knows has to wait, unless they show one that was known
/// here before: its holder is no guesser, whoever else comes from the same address.
async fn judged(app: &App, secret: Result<Secret, ()>, source: Option<IpAddr>) -> Result<Known, Fail> {
    let remembered = secret.as_ref().is_ok_and(|secret| app.keyring().remembers(secret));
    if !remembered && let Some(secs) = app.throttle().wait(source, now(app)) {
        let message = "too many requests came with tokens that nobody knows; wait before the next one";
        return Err(Fail::new(StatusCode::TOO_MANY_REQUESTS, "throttled", message).retry_after(secs));
    }
    let verdict = match &secret {
        Ok(secret) => app.keyring().judge(secret).await?,
        Err(()) => Verdict::Unknown,
    };
    let over = |code: &str, message: &str| Err(Fail::new(StatusCode::UNAUTHORIZED, code, message));
    match verdict {
        Verdict::Good(known) => Ok(*known),
        Verdict::Expired => over("token_expired", "this token has expired"),
        Verdict::Revoked => over("token_revoked", "this token was revoked"),
        Verdict::SessionOver => over("session_over", "this session is over; sign in again"),
        Verdict::Unknown => {
            app.throttle().failed(source, now(app));
            tracing::warn!(source = ?source, "a request came with a token or session that nobody knows");
            Err(unauthenticated())
        }
    }
}

fn caller(token: &Token) -> Caller {
    Caller { name: token.name.clone(), role: token.role, project: token.project_id.clone() }
}

/// Who a request comes from: for the guard of every route, and for pages that stand beside them.
pub async fn identify(app: &App, parts: &Parts) -> Result<(Caller, Visit), Fail> {
    let source = source(&parts.extensions);
    match app.access() {
        Access::Open { name } => {
            forgery::own_host(&parts.headers)?;
            if forgery::changes(&parts.method) {
                forgery::same_site(&parts.headers)?;
            }
            let caller = Caller { name: name.clone(), role: Role::Admin, project: None };
            Ok((caller, Visit { source, ..Visit::default() }))
        }
        Access::As(caller) => Ok((caller.clone(), Visit { source, ..Visit::default() })),
        Access::Tokens => {
            let secret = match shown(&parts.headers) {
                Shown::Nothing => return Err(unauthenticated()),
                Shown::Bearer(secret) | Shown::Cookie(secret) => secret,
            };
            let known = judged(app, secret.clone(), source).await?;
            let session = known.session.zip(secret.ok()).map(|(session, secret)| Signed {
                csrf: secret.csrf(),
                secret,
                expires_at: session.expires_at,
            });
            let (token_id, hash) = (Some(known.token.token_id), Some(known.hash));
            Ok((caller(&known.token), Visit { token_id, hash, session, source }))
        }
    }
}

/// Somebody who has just signed in.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// Who.
    pub caller: Caller,
    /// How they came.
    pub visit: Visit,
    /// The value of the `Set-Cookie` header that their browser is to get.
    pub cookie: HeaderValue,
}

/// Signs somebody in with the text of a token: opens a session, and says which cookie their browser is to get.
pub async fn sign_in(app: &App, parts: &Parts, token: &str) -> Result<SignedIn, Fail> {
    if !matches!(app.access(), Access::Tokens) {
        let message = "this server asks for no token, so there is nothing to sign in to";
        return Err(Fail::new(StatusCode::CONFLICT, "no_sign_in", message));
    }
    // A page of another site could otherwise sign its reader in as somebody else.
    forgery::same_site(&parts.headers)?;
    let source = source(&parts.extensions);
    let secret = token.trim().parse::<Secret>().ok().filter(Secret::is_token).ok_or(());
    let known = judged(app, secret, source).await?;
    let caller = caller(&known.token);
    sees_pages(caller.role)?;
    let before = Visit { token_id: Some(known.token.token_id), source, ..Visit::default() };
    // Whoever signs in has no guard before them, so this puts itself on record.
    let line = trail::line(&caller, &before, "POST", SIGN_IN_PATH, StatusCode::CREATED);
    let record = Record::new(line, app.engine().clock().now());
    let (secret, expires_at) = record.around(app.keyring().open_session(&known.token)).await?;
    let cookie = cookie(secret.reveal(), i64::from(SESSION_SECS), is_secure(parts))?;
    let hash = Some(secret.hash());
    let session = Some(Signed { csrf: secret.csrf(), secret, expires_at });
    let visit = Visit { hash, session, ..before };
    Ok(SignedIn { caller, visit, cookie })
}

/// Whether there is anything to see after signing in: machines would meet a refusal on every page.
fn sees_pages(role: Role) -> Result<(), Fail> {
    match role {
        Role::Viewer | Role::Operator | Role::Admin => Ok(()),
        Role::Worker | Role::Agent => {
            let message = format!(
                "a token of role {role} is for machines, and sees no page: sign in with that of a viewer, an \
                 operator or an admin"
            );
            Err(Fail::new(StatusCode::FORBIDDEN, "no_pages", message))
        }
    }
}

/// The cookie that takes the session's cookie away.
pub(crate) fn no_cookie(parts: &Parts) -> Result<HeaderValue, Fail> {
    cookie("", 0, is_secure(parts))
}

fn cookie(value: &str, secs: i64, secure: bool) -> Result<HeaderValue, Fail> {
    let end = if secure { "; Secure" } else { "" };
    let text = format!("{SESSION_COOKIE}={value}; Path=/; Max-Age={secs}; HttpOnly; SameSite=Lax{end}");
    let mut cookie =
        HeaderValue::from_str(&text).map_err(|_| Fail::internal("a cookie cannot be written"))?;
    cookie.set_sensitive(true);
    Ok(cookie)
}
