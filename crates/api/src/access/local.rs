//! Access to the server of one user of this machine.
//!
//! Programs of that user send the local token, which the server stored in a file that only the user can read. A browser
//! opens a one-time link and gets a session. Token, links and sessions belong to one server process: a token that was
//! sent to another program after this process ended opens nothing.

use super::identify::{cookie_values, is_secure, source};
use super::{AuthContext, BrowserSession, Caller, SIGN_IN_PATH, SignInResult, audit_trail};
use crate::app::App;
use crate::error::ApiError;
use chrono::TimeDelta;
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidemill_core::Timestamp;
use tidemill_core::access::{Role, Secret, constant_time_eq};
use tidemill_core::limits::{LOCAL_SESSION_SECS, SESSIONS_MAX, SIGN_IN_LINK_SECS, SIGN_IN_LINKS_MAX};
use tidemill_core::project_set::ProjectSet;
use tidemill_store::Error;
use tidemill_wire::access::SignInLink;

/// Credentials of a local server: its token, its unused links and its browser sessions.
#[derive(Debug)]
pub struct LocalAccess {
    caller: Caller,
    token_hash: String,
    /// Address of the console, without a slash at the end.
    url: String,
    /// Name of the session cookie. Browsers send a cookie to every port of a host, so it contains the port.
    cookie: String,
    state: Mutex<LocalState>,
}

#[derive(Debug, Default)]
struct LocalState {
    links: Vec<StoredSecret>,
    sessions: Vec<StoredSecret>,
}

/// Hash of a secret that this process accepts until a time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredSecret {
    hash: String,
    expires_at: Timestamp,
}

/// Adds a secret. Removes expired ones, and the oldest if there are too many.
fn store(secrets: &mut Vec<StoredSecret>, new: StoredSecret, max: u32, now: Timestamp) {
    secrets.retain(|secret| secret.expires_at > now);
    if secrets.len() >= max as usize {
        secrets.remove(0);
    }
    secrets.push(new);
}

/// Finds a valid secret. Compares with every one, so that the duration reveals nothing.
fn find(secrets: &[StoredSecret], hash: &str, now: Timestamp) -> Option<usize> {
    let mut found = None;
    for (place, secret) in secrets.iter().enumerate() {
        if constant_time_eq(&secret.hash, hash) && secret.expires_at > now {
            found = Some(place);
        }
    }
    found
}

fn after(now: Timestamp, secs: u32) -> Timestamp {
    now + TimeDelta::seconds(secs.into())
}

fn unauthenticated() -> ApiError {
    let message = "this server only answers to the user who started it";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", message).hint(
        "run the command as that user, or open the console with `tidemill console`; \
         to give access to other users, start the server with --auth",
    )
}

fn link_over() -> ApiError {
    let message = "this link was used before or is too old";
    ApiError::new(StatusCode::UNAUTHORIZED, "link_over", message).hint("tidemill console")
}

impl LocalAccess {
    /// Creates the credentials of a server. `name` is the user in events and in the audit log, and `url` is the address
    /// of the console.
    pub fn new(name: String, token: &Secret, url: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let port = url.rsplit_once(':').map_or("", |(_, port)| port);
        Self {
            caller: Caller { name, role: Role::Admin, projects: ProjectSet::All },
            token_hash: token.hash(),
            cookie: format!("{}_{port}", super::SESSION_COOKIE),
            url,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LocalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a link that signs in once.
    pub fn create_link(&self, now: Timestamp) -> Result<SignInLink, Error> {
        let code = Secret::link(tidemill_engine::access::random()?);
        let expires_at = after(now, SIGN_IN_LINK_SECS);
        let link = StoredSecret { hash: code.hash(), expires_at };
        store(&mut self.state().links, link, SIGN_IN_LINKS_MAX, now);
        Ok(SignInLink { url: format!("{}/sign-in?code={}", self.url, code.reveal()), expires_at })
    }

    /// Identifies the caller by the local token or by the session of a browser.
    pub(super) fn identify(&self, parts: &Parts, now: Timestamp) -> Result<(Caller, AuthContext), ApiError> {
        let source = source(&parts.extensions);
        if let Some(value) = parts.headers.get(header::AUTHORIZATION) {
            let text = value.to_str().unwrap_or_default();
            let token = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let is_ours = token.is_some_and(|(_, token)| self.is_token(token.trim()));
            let auth = AuthContext { source, ..AuthContext::default() };
            return if is_ours { Ok((self.caller.clone(), auth)) } else { Err(unauthenticated()) };
        }
        // A browser may hold several cookies of this name, set by other servers of this host.
        let mut sessions = cookie_values(&parts.headers, &self.cookie).filter_map(|text| text.parse().ok());
        let session = sessions.find_map(|secret| self.session(secret, now));
        let session = session.ok_or_else(unauthenticated)?;
        let auth = AuthContext { session: Some(session), source, ..AuthContext::default() };
        Ok((self.caller.clone(), auth))
    }

    fn is_token(&self, text: &str) -> bool {
        text.parse::<Secret>().is_ok_and(|secret| constant_time_eq(&secret.hash(), &self.token_hash))
    }

    /// Returns the valid session of a cookie.
    fn session(&self, secret: Secret, now: Timestamp) -> Option<BrowserSession> {
        let state = self.state();
        let place = find(&state.sessions, &secret.hash(), now)?;
        let expires_at = state.sessions.get(place)?.expires_at;
        Some(BrowserSession { csrf: secret.csrf(), secret, expires_at })
    }

    /// Takes an unused link, so that it works once.
    fn take_link(&self, code: &str, now: Timestamp) -> Option<StoredSecret> {
        let links = &mut self.state().links;
        let place = find(links, &tidemill_core::digest::sha256_hex(code.as_bytes()), now)?;
        Some(links.remove(place))
    }

    /// Opens a session for the code of a link or for the local token.
    pub(super) async fn sign_in(
        &self,
        app: &App,
        parts: &Parts,
        credential: &str,
        now: Timestamp,
    ) -> Result<SignInResult, ApiError> {
        let credential = credential.trim();
        let link = if Secret::is_link(credential) {
            Some(self.take_link(credential, now).ok_or_else(link_over)?)
        } else if self.is_token(credential) {
            None
        } else {
            return Err(unauthenticated());
        };
        let source = source(&parts.extensions);
        let before = AuthContext { source, ..AuthContext::default() };
        // The sign-in route has no guard, so the audit entry is written here.
        let entry = audit_trail::audit_entry(&self.caller, &before, "POST", SIGN_IN_PATH);
        if let Err(error) = app.engine().record(entry).await {
            // The sign-in failed, so the link stays usable.
            self.state().links.extend(link);
            return Err(error.into());
        }
        let secret = Secret::session(tidemill_engine::access::random()?);
        let expires_at = after(now, LOCAL_SESSION_SECS);
        let session = StoredSecret { hash: secret.hash(), expires_at };
        store(&mut self.state().sessions, session, SESSIONS_MAX, now);
        let cookie = self.cookie(secret.reveal(), LOCAL_SESSION_SECS, parts)?;
        let session = Some(BrowserSession { csrf: secret.csrf(), secret, expires_at });
        Ok(SignInResult { caller: self.caller.clone(), auth: AuthContext { session, ..before }, cookie })
    }

    /// Ends the session of a browser and returns the cookie that deletes its own.
    pub(super) fn sign_out(
        &self,
        session: Option<&BrowserSession>,
        parts: &Parts,
    ) -> Result<HeaderValue, ApiError> {
        if let Some(session) = session {
            let hash = session.secret.hash();
            self.state().sessions.retain(|known| !constant_time_eq(&known.hash, &hash));
        }
        self.cookie("", 0, parts)
    }

    fn cookie(&self, value: &str, secs: u32, parts: &Parts) -> Result<HeaderValue, ApiError> {
        let end = if is_secure(parts) { "; Secure" } else { "" };
        let name = &self.cookie;
        let text = format!("{name}={value}; Path=/; Max-Age={secs}; HttpOnly; SameSite=Strict{end}");
        let mut cookie =
            HeaderValue::from_str(&text).map_err(|_| ApiError::internal("invalid session cookie"))?;
        cookie.set_sensitive(true);
        Ok(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_timestamp(1_000_000 + secs, 0).unwrap()
    }

    fn local() -> LocalAccess {
        LocalAccess::new("ann".to_owned(), &Secret::token([7; 32]), "http://127.0.0.1:7171/")
    }

    fn code(link: &SignInLink) -> String {
        link.url.strip_prefix("http://127.0.0.1:7171/sign-in?code=").unwrap().to_owned()
    }

    fn identified(local: &LocalAccess, name: &str, value: &str) -> bool {
        let request = http::Request::builder().header(name, value).body(()).unwrap();
        local.identify(&request.into_parts().0, at(0)).is_ok()
    }

    #[test]
    fn only_the_local_token_identifies_a_program() {
        let local = local();
        let token = Secret::token([7; 32]);
        assert!(identified(&local, "authorization", &format!("Bearer {}", token.reveal())));
        assert!(identified(&local, "authorization", &format!("bearer  {}", token.reveal())));
        for wrong in [
            format!("Bearer {}", Secret::token([8; 32]).reveal()),
            format!("Basic {}", token.reveal()),
            token.reveal().to_owned(),
            "Bearer ".to_owned(),
        ] {
            assert!(!identified(&local, "authorization", &wrong), "{wrong}");
        }
        assert!(!identified(&local, "cookie", &format!("tidemill_session_7171={}", token.reveal())));
        assert!(!identified(&local, "accept", "*/*"));
    }

    #[test]
    fn link_works_once_and_until_it_expires() {
        let local = local();
        let first = local.create_link(at(0)).unwrap();
        assert!(local.take_link(&code(&first), at(1)).is_some());
        assert!(local.take_link(&code(&first), at(1)).is_none(), "it was used");
        let second = local.create_link(at(0)).unwrap();
        let end = i64::from(SIGN_IN_LINK_SECS);
        assert_eq!(second.expires_at, at(end));
        assert!(local.take_link(&code(&second), at(end)).is_none(), "it is too old");
        assert!(local.take_link("tml_", at(0)).is_none());
    }

    #[test]
    fn unused_links_and_sessions_are_bounded() {
        let local = local();
        let links: Vec<SignInLink> =
            (0..=SIGN_IN_LINKS_MAX).map(|_| local.create_link(at(0)).unwrap()).collect();
        assert!(local.take_link(&code(&links[0]), at(1)).is_none(), "the oldest made room");
        assert!(local.take_link(&code(&links[1]), at(1)).is_some());
        let mut secrets = Vec::new();
        for number in 0..5 {
            let hash = number.to_string();
            store(&mut secrets, StoredSecret { hash, expires_at: at(number) }, 3, at(number - 1));
        }
        assert_eq!(secrets.len(), 1, "expired ones are removed");
    }
}
