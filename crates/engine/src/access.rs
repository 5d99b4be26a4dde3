//! Tokens and sessions: creation, authentication and revocation; and the audit log.
//!
//! A secret consists of random bytes from the operating system. It is returned once and never stored. The result of an
//! authentication is cached for a few seconds, so that a request does not cost a query. A revocation takes effect at
//! once in the process that handles it, and in all others when their caches expire. Connections that outlast one
//! request are closed by [`SecretWatch`].

mod watch;

pub use watch::SecretWatch;

use crate::{Engine, retry_policy::chain};
use chrono::TimeDelta;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_core::access::{
    NewAuditRecord, NewToken, Role, Secret, Token, TokenStatus, constant_time_eq, token_status,
};
use tidemill_core::audit::ActorRole;
use tidemill_core::ids::uuid_v7;
use tidemill_core::limits::{SESSION_SECS, TOKEN_CACHE_MAX, TOKEN_CACHE_SECS, TOKEN_USE_SECS};
use tidemill_core::project_set::ProjectSet;
use tidemill_core::{Timestamp, request};
use tidemill_store::{AuditEntry, Class, Credential, Error, RequestKey};
use tokio::time::Instant;
use uuid::Uuid;
use watch::SecretWatcher;

/// Returns 256 random bits from the operating system.
pub fn random() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Open {
        what: "the operating system's random number generator".to_owned(),
        problem: error.to_string(),
        hint: None,
        class: Class::Transient,
    })?;
    Ok(bytes)
}

impl Engine {
    /// Creates a token. Its secret is returned only here.
    pub async fn create_token(&self, new: NewToken, by: &str) -> Result<(Token, Secret), Error> {
        new.check()?;
        let (token, secret) = self.new_token(new, by).await?;
        self.store_token(&token, &secret, None).await?;
        Ok((token, secret))
    }

    /// Creates a token, or returns the id of the token that the same request created before. In that case the secret is
    /// not available, because it is not stored.
    pub async fn create_token_once(
        &self,
        new: NewToken,
        by: &str,
        key: Option<RequestKey>,
    ) -> Result<TokenCreation, Error> {
        new.check()?;
        let (token, secret) = self.new_token(new, by).await?;
        let stored = self.store_token(&token, &secret, key).await?;
        // If the first answer was lost, the retry finds our own id, and the secret is still known here.
        let is_ours = stored == token.token_id.to_string();
        Ok(if is_ours {
            TokenCreation::Created(Box::new(token), secret)
        } else {
            TokenCreation::AlreadyCreated(stored)
        })
    }

    async fn store_token(
        &self,
        token: &Token,
        secret: &Secret,
        key: Option<RequestKey>,
    ) -> Result<String, Error> {
        let hash = secret.hash();
        let store = || self.store.add_token(token.clone(), hash.clone(), key.clone());
        self.retry_policy.retry("store a token", store).await
    }

    /// Creates a token for the first admin, unless an admin token exists.
    pub async fn first_admin(&self) -> Result<Option<(Token, Secret)>, Error> {
        let name = "first admin".to_owned();
        let new = NewToken { name, role: Role::Admin, projects: ProjectSet::All, expires_in_secs: None };
        let (token, secret) = self.new_token(new, "tidemill").await?;
        let hash = secret.hash();
        let mut audit = NewAuditRecord::of(Uuid::new_v4(), "tidemill", ActorRole::Admin, "tokens.create");
        audit.add_detail("name", token.name.as_str()).add_detail("role", Role::Admin.as_str());
        let store = self.store.for_call(AuditEntry::new(audit, self.clock.now()));
        let made = self
            .retry_policy
            .retry("store a token", || store.add_first_admin(token.clone(), hash.clone()))
            .await?;
        Ok(made.then_some((token, secret)))
    }

    async fn new_token(&self, new: NewToken, by: &str) -> Result<(Token, Secret), Error> {
        let now = request::micros(self.store.now(self.clock.now()).await?);
        let lasts = new.expires_in_secs.and_then(|secs| TimeDelta::try_seconds(i64::try_from(secs).ok()?));
        let token = Token {
            token_id: uuid_v7(now, Uuid::new_v4()),
            name: new.name,
            role: new.role,
            projects: new.projects,
            created_at: now,
            created_by: by.to_owned(),
            expires_at: lasts.map(|lasts| now + lasts),
            revoked_at: None,
            revoked_by: None,
            last_used_at: None,
        };
        Ok((token, Secret::token(random()?)))
    }

    /// Revokes a token, of one project if given. A process with a [`CredentialCache`] must use
    /// [`CredentialCache::revoke`] instead.
    pub async fn revoke_token(&self, token: Uuid, project: Option<&str>, by: &str) -> Result<Token, Error> {
        let revoke =
            || self.store.revoke_token(token, project.map(str::to_owned), by.to_owned(), self.clock.now());
        self.retry_policy.retry("revoke a token", revoke).await
    }

    /// Adds an entry to the audit log.
    pub async fn record(&self, audit: NewAuditRecord) -> Result<(), Error> {
        let add = || self.store.add_audit(audit.clone(), self.clock.now());
        self.retry_policy.retry("write an audit entry", add).await
    }
}

/// Outcome of a request for a token.
#[derive(Debug)]
pub enum TokenCreation {
    Created(Box<Token>, Secret),
    /// The same request created the token with this id before.
    AlreadyCreated(String),
}

/// Outcome of an authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthOutcome {
    Valid(Box<Credential>),
    Expired,
    Revoked,
    SessionExpired,
    Unknown,
}

/// Cache of the tokens and sessions that this process has authenticated recently.
pub struct CredentialCache {
    engine: Engine,
    state: Mutex<CacheState>,
    watch: Arc<SecretWatcher>,
}

#[derive(Default)]
struct CacheState {
    known: HashMap<String, CachedCredential>,
    /// Incremented by each invalidation: a result that was read before one is not cached after it.
    invalidations: u64,
}

struct CachedCredential {
    known: Credential,
    /// Time of the read by the database's clock; `since` is the same moment by ours.
    read_at: Timestamp,
    since: Instant,
    /// When its use was last recorded, as far as this process knows.
    recorded_at: Option<Timestamp>,
}

impl CredentialCache {
    /// Creates an empty cache.
    pub fn new(engine: Engine) -> Self {
        let watch = Arc::new(SecretWatcher::new(engine.clone()));
        Self { engine, state: Mutex::default(), watch }
    }

    /// Watches the secret of a long-lived connection, given the hash of its token or session.
    pub fn watch(&self, hash: &str, token: Uuid) -> SecretWatch {
        self.watch.join(hash, token)
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        // The map is valid after every statement, so a poisoned lock can be used.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process knows the secret from before. It may be invalid by now.
    pub fn contains(&self, secret: &Secret) -> bool {
        self.state().known.contains_key(&secret.hash())
    }

    /// Estimates the database's current time.
    fn now(&self, found: &CachedCredential) -> Timestamp {
        let passed = TimeDelta::from_std(found.since.elapsed()).unwrap_or(TimeDelta::MAX);
        self.engine.clock.now().unwrap_or_else(|| found.read_at + passed)
    }

    fn is_fresh(&self, found: &CachedCredential) -> bool {
        self.now(found) - found.read_at < TimeDelta::seconds(TOKEN_CACHE_SECS.into())
    }

    /// Authenticates a secret and records its use.
    pub async fn authenticate(&self, secret: &Secret) -> Result<AuthOutcome, Error> {
        let hash = secret.hash();
        let (known, now, recorded_at) = match self.cached(&hash) {
            Some(found) => found,
            None => match self.read(secret, &hash).await? {
                Some(found) => found,
                None => return Ok(AuthOutcome::Unknown),
            },
        };
        // The index lookup is not constant-time, so the hashes are compared again in constant time.
        if !constant_time_eq(&known.hash, &hash) {
            return Ok(AuthOutcome::Unknown);
        }
        match token_status(&known.token, now) {
            TokenStatus::Revoked => return Ok(AuthOutcome::Revoked),
            TokenStatus::Expired => return Ok(AuthOutcome::Expired),
            TokenStatus::Valid => {}
        }
        if known.session.is_some_and(|session| session.expires_at <= now) {
            return Ok(AuthOutcome::SessionExpired);
        }
        self.record_use(&known, now, recorded_at).await;
        Ok(AuthOutcome::Valid(Box::new(known)))
    }

    fn cached(&self, hash: &str) -> Option<(Credential, Timestamp, Option<Timestamp>)> {
        let state = self.state();
        let found = state.known.get(hash).filter(|found| self.is_fresh(found))?;
        Some((found.known.clone(), self.now(found), found.recorded_at))
    }

    async fn read(
        &self,
        secret: &Secret,
        hash: &str,
    ) -> Result<Option<(Credential, Timestamp, Option<Timestamp>)>, Error> {
        let invalidations = self.state().invalidations;
        let (store, clock) = (&self.engine.store, &self.engine.clock);
        let (found, read_at) = if secret.is_token() {
            store.find_token(hash.to_owned(), clock.now()).await?
        } else {
            store.find_session(hash.to_owned(), clock.now()).await?
        };
        let Some(known) = found else {
            self.state().known.remove(hash);
            return Ok(None);
        };
        let recorded_at = match known.session {
            Some(session) => session.last_used_at,
            None => known.token.last_used_at,
        };
        let cached = CachedCredential { known: known.clone(), read_at, since: Instant::now(), recorded_at };
        let mut state = self.state();
        if state.invalidations == invalidations {
            if state.known.len() >= TOKEN_CACHE_MAX {
                state.known.retain(|_, found| self.is_fresh(found));
            }
            if state.known.len() < TOKEN_CACHE_MAX {
                state.known.insert(hash.to_owned(), cached);
            }
        }
        Ok(Some((known, read_at, recorded_at)))
    }

    /// Records the use of a secret, at most once per interval. A failure does not reject the caller.
    async fn record_use(&self, known: &Credential, now: Timestamp, recorded_at: Option<Timestamp>) {
        let since = now - TimeDelta::seconds(TOKEN_USE_SECS.into());
        if recorded_at.is_some_and(|noted| noted > since) {
            return;
        }
        if let Some(found) = self.state().known.get_mut(&known.hash) {
            found.recorded_at = Some(now);
        }
        if let Err(error) = self.engine.store.record_use(known.clone(), now, since).await {
            tracing::warn!(token = %known.token.token_id, "could not record the use of a token: {}", chain(&error));
        }
    }

    /// Revokes a token with the engine of the call. This process rejects it from now on.
    pub async fn revoke(
        &self,
        engine: &Engine,
        token: Uuid,
        project: Option<&str>,
        by: &str,
    ) -> Result<Token, Error> {
        let revoked = engine.revoke_token(token, project, by).await;
        self.forget(|known| known.token.token_id == token);
        if revoked.is_ok() {
            self.watch.end(|_, of| of == token);
        }
        revoked
    }

    /// Opens a session of a token with the engine of the call. Returns the cookie's value and the expiry.
    pub async fn open_session(&self, engine: &Engine, token: &Token) -> Result<(Secret, Timestamp), Error> {
        let secret = Secret::session(random()?);
        let (hash, id) = (secret.hash(), token.token_id);
        let add = || engine.store.add_session(hash.clone(), id, SESSION_SECS, engine.clock.now());
        let ends = engine.retry_policy.retry("store a session", add).await?;
        Ok((secret, ends))
    }

    /// Ends a session with the engine of the call. This process rejects it from now on.
    pub async fn close_session(&self, engine: &Engine, secret: &Secret) -> Result<bool, Error> {
        let hash = secret.hash();
        let closed =
            engine.retry_policy.retry("end a session", || engine.store.remove_session(hash.clone())).await;
        self.forget(|known| known.hash == hash);
        if closed.is_ok() {
            self.watch.end(|watched, _| watched == hash);
        }
        closed
    }

    fn forget(&self, wrong: impl Fn(&Credential) -> bool) {
        let mut state = self.state();
        state.invalidations += 1;
        state.known.retain(|_, found| !wrong(&found.known));
    }
}
