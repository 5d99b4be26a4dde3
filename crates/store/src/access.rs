//! Tokens and browser sessions. Secrets are stored as hashes.

use crate::codec::{Columns, SqlTextList, SqlTime, SqlUuid};
use crate::tx::{FromColumns, on};
use crate::{Error, KeyClaim, RefusalCode, RequestKey, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::access::Token;
use tidemill_core::limits::SESSIONS_MAX;
use uuid::Uuid;

impl FromColumns for Token {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            token_id: row.uuid("token_id")?,
            name: row.text("name")?,
            role: row.parsed("role")?,
            projects: row.project_set("projects")?,
            created_at: row.time("created_at")?,
            created_by: row.text("created_by")?,
            expires_at: row.time_or_null("expires_at")?,
            revoked_at: row.time_or_null("revoked_at")?,
            revoked_by: row.text_or_null("revoked_by")?,
            last_used_at: row.time_or_null("last_used_at")?,
        })
    }
}

/// The token, and the session if there is one, that a hash belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Hash that was looked up.
    pub hash: String,
    pub token: Token,
    /// Set if the hash is that of a session.
    pub session: Option<BrowserSession>,
}

/// A signed-in session of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrowserSession {
    pub expires_at: Timestamp,
    /// Accurate to about a minute.
    pub last_used_at: Option<Timestamp>,
}

/// A credential found by the hash of a token.
struct FoundToken(Credential);

impl FromColumns for FoundToken {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(Credential { hash: row.text("hash")?, token: Token::read(row)?, session: None }))
    }
}

/// A credential found by the hash of a session.
struct FoundSession(Credential);

impl FromColumns for FoundSession {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let session = BrowserSession {
            expires_at: row.time("session_ends_at")?,
            last_used_at: row.time_or_null("session_used_at")?,
        };
        Ok(Self(Credential { hash: row.text("hash")?, token: Token::read(row)?, session: Some(session) }))
    }
}

/// A page of a list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage<T> {
    /// Restricts the list to this project.
    pub project: Option<String>,
    /// Returns only items older than this one.
    pub before: Option<T>,
    pub limit: usize,
}

/// Numbers of deleted tokens, sessions and audit rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccessPruneCounts {
    pub sessions: u64,
    /// Tokens that were revoked or expired long ago.
    pub tokens: u64,
    pub audit: u64,
}

impl Tx<'_> {
    pub(crate) async fn token(&mut self, token: Uuid) -> Result<Option<Token>, Error> {
        let any = None::<SqlTextList>;
        on!(self, catalog::TOKEN_GET, [SqlUuid(token), any.clone()], fetch_optional, "read a token")?
            .record("read a token")
    }

    /// Reads a token and locks it until the transaction ends.
    pub(crate) async fn hold_token(&mut self, token: Uuid) -> Result<Option<Token>, Error> {
        on!(self, catalog::TOKEN_HOLD, [SqlUuid(token)], fetch_optional, "lock a token")?
            .record("lock a token")
    }

    async fn add_token(&mut self, token: &Token, hash: &str) -> Result<(), Error> {
        let projects = token.projects.names().map(SqlTextList);
        if let Some(names) = projects.clone() {
            let unknown: Option<String> =
                on!(self, catalog::TOKEN_UNKNOWN_PROJECT, [names.clone()], fetch_optional, "read projects")?
                    .record("read projects")?;
            if let Some(project) = unknown {
                return Err(Error::unknown_project(&project, None));
            }
        }
        on!(
            self,
            catalog::TOKEN_ADD,
            [
                SqlUuid(token.token_id),
                token.name.as_str(),
                hash,
                token.role.as_str(),
                projects.clone(),
                SqlTime(token.created_at),
                token.created_by.as_str(),
                token.expires_at.map(SqlTime),
            ],
            execute,
            "store a token"
        )?;
        self.annotate_audit(|line| {
            line.set_subject(&token.token_id.to_string()).set_project(token.projects.single());
        });
        Ok(())
    }
}

impl Store {
    /// Stores a token under the hash of its secret. Returns its id, or the id of the token that the same request
    /// created before.
    pub async fn add_token(
        &self,
        token: Token,
        hash: String,
        key: Option<RequestKey>,
    ) -> Result<String, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let id = token.token_id.to_string();
                if let Some(key) = &key
                    && let KeyClaim::Answered(before) = tx.claim_key(key, Some(token.created_at)).await?
                {
                    tx.skip_audit();
                    return Ok(before.as_str().map_or(id, str::to_owned));
                }
                tx.add_token(&token, &hash).await?;
                if let Some(key) = &key {
                    tx.save_answer(key, id.as_str().into()).await?;
                }
                Ok(id)
            })
        })
        .await
    }

    /// Stores a token for the first admin. Returns false if an admin token exists. If several processes call this at
    /// once, one of them creates the token.
    pub async fn add_first_admin(&self, token: Token, hash: String) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                on!(tx, catalog::TOKEN_LOCK, [], execute, "lock the tokens")?;
                let (now, id) = (SqlTime(token.created_at), SqlUuid(token.token_id));
                let admins: Option<i64> =
                    on!(tx, catalog::TOKEN_ADMINS, [now, id], fetch_optional, "count admins")?
                        .record("count admins")?;
                if admins.unwrap_or(0) > 0 {
                    tx.skip_audit();
                    return Ok(false);
                }
                tx.add_token(&token, &hash).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Lists tokens, newest first. With a project, only tokens of this project alone are listed.
    pub async fn tokens(&self, slice: ListPage<Uuid>) -> Result<Vec<Token>, Error> {
        let limit = i64::try_from(slice.limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                let own = slice.project.map(|project| SqlTextList(vec![project]));
                Ok(on!(
                    tx,
                    catalog::TOKEN_LIST,
                    [own.clone(), slice.before.map(SqlUuid), limit],
                    fetch_all,
                    "list tokens"
                )?
                .readable("tokens", "token_id"))
            })
        })
        .await
    }

    /// Revokes a token and returns it. With a project, only a token of this project alone. Idempotent.
    pub async fn revoke_token(
        &self,
        token: Uuid,
        project: Option<String>,
        by: String,
        now: Option<Timestamp>,
    ) -> Result<Token, Error> {
        let action = "revoke a token";
        self.write(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let (id, own) = (SqlUuid(token), project.map(|project| SqlTextList(vec![project])));
                let changed = on!(
                    tx,
                    catalog::TOKEN_REVOKE,
                    [id, own.clone(), SqlTime(now), by.as_str()],
                    execute,
                    "revoke a token"
                )?;
                let found: Option<Token> =
                    on!(tx, catalog::TOKEN_GET, [id, own.clone()], fetch_optional, "read a token")?
                        .record(action)?;
                let revoked = found.ok_or_else(|| {
                    Error::refused(RefusalCode::UnknownToken, format!("token `{token}` does not exist"))
                })?;
                if changed.count() == 0 {
                    tx.skip_audit();
                }
                tx.annotate_audit(|line| {
                    line.set_project(revoked.projects.single()).add_detail("name", revoked.name.as_str());
                });
                Ok(revoked)
            })
        })
        .await
    }

    /// Finds the credential for the hash of a token; also returns the current time.
    pub async fn find_token(
        &self,
        hash: String,
        now: Option<Timestamp>,
    ) -> Result<(Option<Credential>, Timestamp), Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let found: Option<FoundToken> =
                    on!(tx, catalog::TOKEN_FIND, [hash.as_str()], fetch_optional, "find a token")?
                        .record("find a token")?;
                Ok((found.map(|found| found.0), tx.database_now(now).await?))
            })
        })
        .await
    }

    /// Finds the credential for the hash of a session; also returns the current time.
    pub async fn find_session(
        &self,
        hash: String,
        now: Option<Timestamp>,
    ) -> Result<(Option<Credential>, Timestamp), Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let found: Option<FoundSession> =
                    on!(tx, catalog::SESSION_FIND, [hash.as_str()], fetch_optional, "find a session")?
                        .record("find a session")?;
                Ok((found.map(|found| found.0), tx.database_now(now).await?))
            })
        })
        .await
    }

    /// Returns which of these hashes belong to valid tokens and sessions.
    pub async fn valid_secrets(
        &self,
        hashes: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = SqlTime(tx.database_now(now).await?);
                let hashes = SqlTextList(hashes);
                on!(tx, catalog::SECRET_GOOD, [hashes.clone(), now], fetch_all, "check tokens and sessions")?
                    .records("check tokens and sessions")
            })
        })
        .await
    }

    /// Records the use of a token and of its session, unless a use was recorded since `unless_since`.
    pub async fn record_use(
        &self,
        known: Credential,
        now: Timestamp,
        unless_since: Timestamp,
    ) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let (now, since) = (SqlTime(now), SqlTime(unless_since));
                let token = SqlUuid(known.token.token_id);
                on!(tx, catalog::TOKEN_USE, [token, now, since], execute, "record the use of a token")?;
                if known.session.is_some() {
                    let hash = known.hash.as_str();
                    on!(tx, catalog::SESSION_USE, [hash, now, since], execute, "record the use of a token")?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Stores a session of a token that lasts `secs` seconds; returns when it expires.
    pub async fn add_session(
        &self,
        hash: String,
        token: Uuid,
        secs: u32,
        now: Option<Timestamp>,
    ) -> Result<Timestamp, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let now = tx.database_now(now).await?;
                let ends = now + chrono::TimeDelta::seconds(secs.into());
                on!(
                    tx,
                    catalog::SESSION_ADD,
                    [hash.as_str(), SqlUuid(token), SqlTime(now), SqlTime(ends)],
                    execute,
                    "store a session"
                )?;
                let most = i64::from(SESSIONS_MAX);
                on!(tx, catalog::SESSION_TRIM, [SqlUuid(token), most], execute, "end old sessions")?;
                Ok(ends)
            })
        })
        .await
    }

    /// Deletes a session; returns whether it existed.
    pub async fn remove_session(&self, hash: String) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed = on!(tx, catalog::SESSION_REMOVE, [hash.as_str()], execute, "end a session")?;
                Ok(removed.count() > 0)
            })
        })
        .await
    }

    /// Deletes a batch of each: sessions that expired by `now`; tokens that were revoked or expired, and whole seals of
    /// the audit log, before `before`.
    pub async fn prune_access(
        &self,
        before: Timestamp,
        now: Timestamp,
        batch: usize,
    ) -> Result<AccessPruneCounts, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(batch).unwrap_or(i64::MAX);
                let (now, before) = (SqlTime(now), SqlTime(before));
                let sessions = on!(tx, catalog::PRUNE_SESSIONS, [now, limit], execute, "prune sessions")?;
                let tokens = on!(tx, catalog::PRUNE_TOKENS, [before, limit], execute, "prune tokens")?;
                let audit = tx.prune_audit(before.0, now.0, batch).await?;
                Ok(AccessPruneCounts { sessions: sessions.count(), tokens: tokens.count(), audit })
            })
        })
        .await
    }
}
