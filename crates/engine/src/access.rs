//! Tokens and sessions: made, judged, revoked; and the record of what people did.
//!
//! A secret is made of the operating system's randomness, is returned once, and is never kept. What a secret is worth
//! is remembered for a few seconds, so that a request does not cost a query; revocation bites at once in the process
//! that is asked, and everywhere within that time. Whoever stays longer than one request is watched: see [`Watched`].

mod watch;

pub use watch::Watched;

use crate::{Engine, patience::chain};
use chrono::TimeDelta;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_core::access::{NewAudit, NewToken, Role, Secret, Standing, Token, same, standing};
use tidemill_core::ids::uuid_v7;
use tidemill_core::limits::{SESSION_SECS, TOKEN_TRUST_SECS, TOKEN_USE_SECS, TOKENS_KNOWN_MAX};
use tidemill_core::{Timestamp, request};
use tidemill_store::{Class, Error, Known, RequestKey};
use tokio::time::Instant;
use uuid::Uuid;
use watch::Watch;

/// 256 bits from the operating system.
fn random() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::Open {
        what: "the system's source of randomness".to_owned(),
        problem: error.to_string(),
        hint: None,
        class: Class::Transient,
    })?;
    Ok(bytes)
}

impl Engine {
    /// Makes a token. This is the only time that its secret is seen.
    pub async fn create_token(&self, new: NewToken, by: &str) -> Result<(Token, Secret), Error> {
        new.check()?;
        let (token, secret) = self.new_token(new, by).await?;
        self.keep_token(&token, &secret, None).await?;
        Ok((token, secret))
    }

    /// Makes a token, or tells which one the same request made before. Its secret is not kept, so nobody can tell that.
    pub async fn create_token_once(
        &self,
        new: NewToken,
        by: &str,
        key: Option<RequestKey>,
    ) -> Result<TokenAsked, Error> {
        new.check()?;
        let (token, secret) = self.new_token(new, by).await?;
        let kept = self.keep_token(&token, &secret, key).await?;
        // An answer that was lost and asked again finds our own id, and the secret is still at hand.
        let is_ours = kept == token.token_id.to_string();
        Ok(if is_ours { TokenAsked::Made(Box::new(token), secret) } else { TokenAsked::Before(kept) })
    }

    async fn keep_token(
        &self,
        token: &Token,
        secret: &Secret,
        key: Option<RequestKey>,
    ) -> Result<String, Error> {
        let hash = secret.hash();
        let keep = || self.store.add_token(token.clone(), hash.clone(), key.clone());
        self.patience.settle("keep a token", keep).await
    }

    /// Makes a token for the first admin, where nobody may do everything yet.
    pub async fn first_admin(&self) -> Result<Option<(Token, Secret)>, Error> {
        let name = "first admin".to_owned();
        let new = NewToken { name, role: Role::Admin, project_id: None, expires_in_secs: None };
        let (token, secret) = self.new_token(new, "tidemill").await?;
        let hash = secret.hash();
        let made = self
            .patience
            .settle("keep a token", || self.store.add_first_admin(token.clone(), hash.clone()))
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
            project_id: new.project_id,
            created_at: now,
            created_by: by.to_owned(),
            expires_at: lasts.map(|lasts| now + lasts),
            revoked_at: None,
            revoked_by: None,
            last_used_at: None,
        };
        Ok((token, Secret::token(random()?)))
    }

    /// Revokes a token, of one project where one is named. A process that keeps a [`Keyring`] asks that instead.
    pub async fn revoke_token(&self, token: Uuid, project: Option<&str>, by: &str) -> Result<Token, Error> {
        let revoke =
            || self.store.revoke_token(token, project.map(str::to_owned), by.to_owned(), self.clock.now());
        self.patience.settle("revoke a token", revoke).await
    }

    /// Puts on record what somebody did.
    pub async fn record(&self, audit: NewAudit) -> Result<(), Error> {
        let add = || self.store.add_audit(audit.clone(), self.clock.now());
        self.patience.settle("put on record", add).await
    }
}

/// What became of a request for a token.
#[derive(Debug)]
pub enum TokenAsked {
    /// It was made, and this is its secret.
    Made(Box<Token>, Secret),
    /// The same request made this one before.
    Before(String),
}

/// What a secret is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It lets its holder in.
    Good(Box<Known>),
    /// The token's time is over.
    Expired,
    /// Somebody took the token back.
    Revoked,
    /// The session's time is over.
    SessionOver,
    /// Nobody knows it.
    Unknown,
}

/// The tokens and sessions that this process has seen lately.
pub struct Keyring {
    engine: Engine,
    memory: Mutex<Memory>,
    watch: Arc<Watch>,
}

#[derive(Default)]
struct Memory {
    known: HashMap<String, Remembered>,
    /// Raised by whatever makes memories wrong: what was read before is not remembered after.
    turn: u64,
}

struct Remembered {
    known: Known,
    /// The time at which the database told it, on its clock and on ours.
    read_at: Timestamp,
    since: Instant,
    /// When the use of it was last written down, as far as this process knows.
    noted_at: Option<Timestamp>,
}

impl Keyring {
    /// An empty one.
    pub fn new(engine: Engine) -> Self {
        let watch = Arc::new(Watch::new(engine.clone()));
        Self { engine, memory: Mutex::default(), watch }
    }

    /// Watches a secret for somebody who stays: the hash of the token or session that let them in.
    pub fn watch(&self, hash: &str, token: Uuid) -> Watched {
        self.watch.join(hash, token)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing in there can be half done.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process has seen the secret before, and it was one that is known. What it is worth now may take a
    /// look at the database all the same.
    pub fn remembers(&self, secret: &Secret) -> bool {
        self.memory().known.contains_key(&secret.hash())
    }

    /// The time, as the database would tell it.
    fn now(&self, found: &Remembered) -> Timestamp {
        let passed = TimeDelta::from_std(found.since.elapsed()).unwrap_or(TimeDelta::MAX);
        self.engine.clock.now().unwrap_or_else(|| found.read_at + passed)
    }

    fn is_fresh(&self, found: &Remembered) -> bool {
        self.now(found) - found.read_at < TimeDelta::seconds(TOKEN_TRUST_SECS.into())
    }

    /// What a secret is worth now. A good one counts as used.
    pub async fn judge(&self, secret: &Secret) -> Result<Verdict, Error> {
        let hash = secret.hash();
        let (known, now, noted_at) = match self.recall(&hash) {
            Some(found) => found,
            None => match self.look_up(secret, &hash).await? {
                Some(found) => found,
                None => return Ok(Verdict::Unknown),
            },
        };
        // The index found it by its hash; whether it is the one is decided in a time that tells nothing.
        if !same(&known.hash, &hash) {
            return Ok(Verdict::Unknown);
        }
        match standing(&known.token, now) {
            Standing::Revoked => return Ok(Verdict::Revoked),
            Standing::Expired => return Ok(Verdict::Expired),
            Standing::Good => {}
        }
        if known.session.is_some_and(|session| session.expires_at <= now) {
            return Ok(Verdict::SessionOver);
        }
        self.note_use(&known, now, noted_at).await;
        Ok(Verdict::Good(Box::new(known)))
    }

    fn recall(&self, hash: &str) -> Option<(Known, Timestamp, Option<Timestamp>)> {
        let memory = self.memory();
        let found = memory.known.get(hash).filter(|found| self.is_fresh(found))?;
        Some((found.known.clone(), self.now(found), found.noted_at))
    }

    async fn look_up(
        &self,
        secret: &Secret,
        hash: &str,
    ) -> Result<Option<(Known, Timestamp, Option<Timestamp>)>, Error> {
        let turn = self.memory().turn;
        let (store, clock) = (&self.engine.store, &self.engine.clock);
        let (found, read_at) = if secret.is_token() {
            store.find_token(hash.to_owned(), clock.now()).await?
        } else {
            store.find_session(hash.to_owned(), clock.now()).await?
        };
        let Some(known) = found else {
            self.memory().known.remove(hash);
            return Ok(None);
        };
        let noted_at = match known.session {
            Some(session) => session.last_used_at,
            None => known.token.last_used_at,
        };
        let remembered = Remembered { known: known.clone(), read_at, since: Instant::now(), noted_at };
        let mut memory = self.memory();
        if memory.turn == turn {
            if memory.known.len() >= TOKENS_KNOWN_MAX {
                memory.known.retain(|_, found| self.is_fresh(found));
            }
            if memory.known.len() < TOKENS_KNOWN_MAX {
                memory.known.insert(hash.to_owned(), remembered);
            }
        }
        Ok(Some((known, read_at, noted_at)))
    }

    /// Writes down that it was used, once in a while. A failure is no reason to turn its holder away.
    async fn note_use(&self, known: &Known, now: Timestamp, noted_at: Option<Timestamp>) {
        let since = now - TimeDelta::seconds(TOKEN_USE_SECS.into());
        if noted_at.is_some_and(|noted| noted > since) {
            return;
        }
        if let Some(found) = self.memory().known.get_mut(&known.hash) {
            found.noted_at = Some(now);
        }
        if let Err(error) = self.engine.store.note_use(known.clone(), now, since).await {
            tracing::warn!(token = %known.token.token_id, "could not note that a token was used: {}", chain(&error));
        }
    }

    /// Revokes a token; it is worth nothing in this process from now on.
    pub async fn revoke(&self, token: Uuid, project: Option<&str>, by: &str) -> Result<Token, Error> {
        let revoked = self.engine.revoke_token(token, project, by).await;
        self.forget(|known| known.token.token_id == token);
        if revoked.is_ok() {
            self.watch.end(|_, of| of == token);
        }
        revoked
    }

    /// Opens a session of a token; the value of its cookie, and until when it lasts.
    pub async fn open_session(&self, token: &Token) -> Result<(Secret, Timestamp), Error> {
        let secret = Secret::session(random()?);
        let (hash, id) = (secret.hash(), token.token_id);
        let engine = &self.engine;
        let add = || engine.store.add_session(hash.clone(), id, SESSION_SECS, engine.clock.now());
        let ends = engine.patience.settle("keep a session", add).await?;
        Ok((secret, ends))
    }

    /// Ends a session; it is worth nothing in this process from now on.
    pub async fn close_session(&self, secret: &Secret) -> Result<bool, Error> {
        let hash = secret.hash();
        let engine = &self.engine;
        let closed =
            engine.patience.settle("end a session", || engine.store.remove_session(hash.clone())).await;
        self.forget(|known| known.hash == hash);
        if closed.is_ok() {
            self.watch.end(|watched, _| watched == hash);
        }
        closed
    }

    fn forget(&self, wrong: impl Fn(&Known) -> bool) {
        let mut memory = self.memory();
        memory.turn += 1;
        memory.known.retain(|_, found| !wrong(&found.known));
    }
}
