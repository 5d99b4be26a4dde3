//! Tokens, sessions of browsers, and the record of what people did. What is secret is kept as its hash.

use crate::codec::{At, Bare, Columns, Doc, Words};
use crate::tx::{Conn, FromColumns, on};
use crate::{Asked, Error, RefusalCode, RequestKey, Store, Tx, catalog};
use tidemill_core::Timestamp;
use tidemill_core::access::{Audit, NewAudit, Token};
use tidemill_core::limits::SESSIONS_MAX;
use uuid::Uuid;

impl FromColumns for Token {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            token_id: row.uuid("token_id")?,
            name: row.text("name")?,
            role: row.parsed("role")?,
            project_id: row.text_or_null("project_id")?,
            created_at: row.time("created_at")?,
            created_by: row.text("created_by")?,
            expires_at: row.time_or_null("expires_at")?,
            revoked_at: row.time_or_null("revoked_at")?,
            revoked_by: row.text_or_null("revoked_by")?,
            last_used_at: row.time_or_null("last_used_at")?,
        })
    }
}

/// What a hash stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The hash under which it was found.
    pub hash: String,
    /// The token.
    pub token: Token,
    /// The session, where the hash is that of a session.
    pub session: Option<KnownSession>,
}

/// A session of a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSession {
    /// Until when it lasts.
    pub expires_at: Timestamp,
    /// When it was last used, give or take a minute.
    pub last_used_at: Option<Timestamp>,
}

/// A token that was found.
struct FoundToken(Known);

impl FromColumns for FoundToken {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self(Known { hash: row.text("hash")?, token: Token::read(row)?, session: None }))
    }
}

/// A session that was found.
struct FoundSession(Known);

impl FromColumns for FoundSession {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        let session = KnownSession {
            expires_at: row.time("session_ends_at")?,
            last_used_at: row.time_or_null("session_used_at")?,
        };
        Ok(Self(Known { hash: row.text("hash")?, token: Token::read(row)?, session: Some(session) }))
    }
}

impl FromColumns for Audit {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            audit_id: row.long("audit_id")?,
            at: row.time("at")?,
            who: row.text("who")?,
            token_id: row.uuid_or_null("token_id")?,
            role: row.parsed("role")?,
            action: row.text("action")?,
            subject: row.text_or_null("subject")?,
            project_id: row.text_or_null("project_id")?,
            detail: row.json("detail")?,
            source: row.text_or_null("source")?,
        })
    }
}

/// A part of a list that begins with the youngest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slice<T> {
    /// Of this project alone.
    pub project: Option<String>,
    /// Older than this one.
    pub before: Option<T>,
    /// At most so many.
    pub limit: usize,
}

/// What a prune of access removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedAccess {
    /// Sessions that had ended.
    pub sessions: u64,
    /// Tokens that were revoked or expired long ago.
    pub tokens: u64,
    /// Lines of the record.
    pub audit: u64,
}

impl Tx<'_> {
    /// Puts on record what somebody did. A role of the database that may only call verbs has no say in this record:
    /// what it does is told by the events of runs, which name it.
    pub(crate) async fn add_audit(&mut self, audit: &NewAudit, now: Option<Timestamp>) -> Result<(), Error> {
        let may: Option<bool> =
            on!(self, catalog::AUDIT_MAY, [], fetch_optional, "put on record")?.record("put on record")?;
        if may != Some(true) {
            return Ok(());
        }
        let now = match &self.conn {
            Conn::Postgres(_) => now,
            Conn::Sqlite(_) => Some(self.moment(now)),
        };
        on!(
            self,
            catalog::AUDIT_ADD,
            [
                now.map(At),
                audit.who.as_str(),
                audit.token_id.map(Bare),
                audit.role.as_str(),
                audit.action.as_str(),
                audit.subject.as_deref(),
                audit.project_id.as_deref(),
                Doc(audit.detail.clone()),
                audit.source.as_deref(),
            ],
            execute,
            "put on record"
        )?;
        Ok(())
    }

    /// A token.
    pub(crate) async fn token(&mut self, token: Uuid) -> Result<Option<Token>, Error> {
        let any = None::<&str>;
        on!(self, catalog::TOKEN_GET, [Bare(token), any], fetch_optional, "read a token")?
            .record("read a token")
    }

    async fn add_token(&mut self, token: &Token, hash: &str) -> Result<(), Error> {
        let added = on!(
            self,
            catalog::TOKEN_ADD,
            [
                Bare(token.token_id),
                token.name.as_str(),
                hash,
                token.role.as_str(),
                token.project_id.as_deref(),
                At(token.created_at),
                token.created_by.as_str(),
                token.expires_at.map(At),
            ],
            execute,
            "keep a token"
        )?;
        match &token.project_id {
            Some(project) if added.count() == 0 => Err(Error::unknown_project(project, None)),
            Some(_) | None => {
                self.note(|line| {
                    line.names(&token.token_id.to_string()).belongs_to(token.project_id.as_deref());
                });
                Ok(())
            }
        }
    }
}

impl Store {
    /// Keeps a token under the hash of its secret; the id of the token, or of the one that the same request made
    /// before.
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
                    && let Asked::Answered(before) = tx.take_key(key, Some(token.created_at)).await?
                {
                    tx.unchanged();
                    return Ok(before.as_str().map_or(id, str::to_owned));
                }
                tx.add_token(&token, &hash).await?;
                if let Some(key) = &key {
                    tx.keep_answer(key, id.as_str().into()).await?;
                }
                Ok(id)
            })
        })
        .await
    }

    /// Keeps a token for the first admin; false where somebody may do everything already. Of several processes that
    /// ask at once, one makes it.
    pub async fn add_first_admin(&self, token: Token, hash: String) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                on!(tx, catalog::TOKEN_LOCK, [], execute, "lock the tokens")?;
                let (now, id) = (At(token.created_at), Bare(token.token_id));
                let admins: Option<i64> =
                    on!(tx, catalog::TOKEN_ADMINS, [now, id], fetch_optional, "count admins")?
                        .record("count admins")?;
                if admins.unwrap_or(0) > 0 {
                    return Ok(false);
                }
                tx.add_token(&token, &hash).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Tokens, the youngest first.
    pub async fn tokens(&self, slice: Slice<Uuid>) -> Result<Vec<Token>, Error> {
        let limit = i64::try_from(slice.limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(
                    tx,
                    catalog::TOKEN_LIST,
                    [slice.project.as_deref(), slice.before.map(Bare), limit],
                    fetch_all,
                    "list tokens"
                )?
                .readable("tokens", "token_id"))
            })
        })
        .await
    }

    /// Revokes a token, of one project where one is named; the token as it is then. Twice is the same as once.
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
                let (id, project) = (Bare(token), project.as_deref());
                on!(
                    tx,
                    catalog::TOKEN_REVOKE,
                    [id, project, At(now), by.as_str()],
                    execute,
                    "revoke a token"
                )?;
                let found: Option<Token> =
                    on!(tx, catalog::TOKEN_GET, [id, project], fetch_optional, "read a token")?
                        .record(action)?;
                let revoked = found.ok_or_else(|| {
                    Error::refused(RefusalCode::UnknownToken, format!("token `{token}` does not exist"))
                })?;
                tx.note(|line| {
                    line.belongs_to(revoked.project_id.as_deref()).tells("name", revoked.name.as_str());
                });
                Ok(revoked)
            })
        })
        .await
    }

    /// What the hash of a token stands for, and what time it is.
    pub async fn find_token(
        &self,
        hash: String,
        now: Option<Timestamp>,
    ) -> Result<(Option<Known>, Timestamp), Error> {
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

    /// What the hash of a session stands for, and what time it is.
    pub async fn find_session(
        &self,
        hash: String,
        now: Option<Timestamp>,
    ) -> Result<(Option<Known>, Timestamp), Error> {
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

    /// Which of these hashes of tokens and sessions let somebody in at this moment.
    pub async fn good_secrets(
        &self,
        hashes: Vec<String>,
        now: Option<Timestamp>,
    ) -> Result<Vec<String>, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let now = At(tx.database_now(now).await?);
                let hashes = Words(hashes);
                on!(tx, catalog::SECRET_GOOD, [hashes.clone(), now], fetch_all, "judge secrets")?
                    .records("judge secrets")
            })
        })
        .await
    }

    /// Records that a token was used, and the session where it was used through one, unless that was recorded since
    /// `unless_since`.
    pub async fn note_use(&self, known: Known, now: Timestamp, unless_since: Timestamp) -> Result<(), Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let (now, since) = (At(now), At(unless_since));
                let token = Bare(known.token.token_id);
                on!(tx, catalog::TOKEN_USE, [token, now, since], execute, "note a use")?;
                if known.session.is_some() {
                    let hash = known.hash.as_str();
                    on!(tx, catalog::SESSION_USE, [hash, now, since], execute, "note a use")?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Keeps a session of a token that lasts so long; until when.
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
                    [hash.as_str(), Bare(token), At(now), At(ends)],
                    execute,
                    "keep a session"
                )?;
                let most = i64::from(SESSIONS_MAX);
                on!(tx, catalog::SESSION_TRIM, [Bare(token), most], execute, "end old sessions")?;
                Ok(ends)
            })
        })
        .await
    }

    /// Ends a session; whether there was one.
    pub async fn remove_session(&self, hash: String) -> Result<bool, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed = on!(tx, catalog::SESSION_REMOVE, [hash.as_str()], execute, "end a session")?;
                Ok(removed.count() > 0)
            })
        })
        .await
    }

    /// Puts on record what somebody did, in a step of its own.
    pub async fn add_audit(&self, audit: NewAudit, now: Option<Timestamp>) -> Result<(), Error> {
        self.write(move |mut tx| Box::pin(async move { tx.add_audit(&audit, now).await })).await
    }

    /// What people did, the latest first.
    pub async fn audit(&self, slice: Slice<i64>) -> Result<Vec<Audit>, Error> {
        let limit = i64::try_from(slice.limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(
                    tx,
                    catalog::AUDIT_LIST,
                    [slice.project.as_deref(), slice.before, limit],
                    fetch_all,
                    "read the record"
                )?
                .readable("audit_log", "audit_id"))
            })
        })
        .await
    }

    /// Removes a batch of each: sessions that have ended by `now`; tokens that were revoked or expired, and lines of
    /// the record, before `before`.
    pub async fn prune_access(
        &self,
        before: Timestamp,
        now: Timestamp,
        batch: usize,
    ) -> Result<PrunedAccess, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let limit = i64::try_from(batch).unwrap_or(i64::MAX);
                let (now, before) = (At(now), At(before));
                let sessions = on!(tx, catalog::PRUNE_SESSIONS, [now, limit], execute, "prune sessions")?;
                let tokens = on!(tx, catalog::PRUNE_TOKENS, [before, limit], execute, "prune tokens")?;
                let audit = on!(tx, catalog::PRUNE_AUDIT, [before, limit], execute, "prune the record")?;
                Ok(PrunedAccess { sessions: sessions.count(), tokens: tokens.count(), audit: audit.count() })
            })
        })
        .await
    }
}
