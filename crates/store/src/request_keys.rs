//! Requests that carry a key: asked twice, they are done once, and answered the same.
//!
//! The key is taken, the work done and the answer kept in one step. A request that comes while the first is on its way
//! waits for it.

use crate::codec::{At, Columns, Doc};
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::{Json, Timestamp, digest};

/// A request that carries a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// Whose key it is.
    pub scope: String,
    /// What was asked for.
    pub route: &'static str,
    /// The key.
    pub key: String,
    /// What tells this request from another one.
    pub body_hash: String,
}

impl RequestKey {
    /// The key of a request with this body.
    pub fn new(scope: impl Into<String>, route: &'static str, key: impl Into<String>, body: &[u8]) -> Self {
        let body_hash = digest::sha256_hex(body);
        Self { scope: scope.into(), route, key: key.into(), body_hash }
    }
}

/// Whether a request was asked before.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// It was not: whoever asks has the key, and keeps the answer under it in the same step.
    New,
    /// It was, and this is what it was answered.
    Answered(Json),
}

/// A request that was asked before.
struct Kept {
    body_hash: String,
    answer: Json,
}

impl FromColumns for Kept {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { body_hash: row.text("body_hash")?, answer: row.json("answer")? })
    }
}

impl Tx<'_> {
    /// Takes the key of a request, or finds what it was answered before. Another request under the key is refused.
    pub async fn take_key(&mut self, key: &RequestKey, now: Option<Timestamp>) -> Result<Asked, Error> {
        let at = self.time(now);
        let taken = on!(
            self,
            catalog::REQUEST_KEY_TAKE,
            [key.scope.as_str(), key.route, key.key.as_str(), key.body_hash.as_str(), Doc(Json::Null), at,],
            execute,
            "take a key"
        )?;
        if taken.count() > 0 {
            return Ok(Asked::New);
        }
        let found: Option<Kept> = on!(
            self,
            catalog::REQUEST_KEY_GET,
            [key.scope.as_str(), key.route, key.key.as_str()],
            fetch_optional,
            "read a key"
        )?
        .record("read a key")?;
        match found {
            Some(kept) if kept.body_hash == key.body_hash => Ok(Asked::Answered(kept.answer)),
            Some(_) | None => {
                let message = format!("idempotency key `{}` was used for another request", key.key);
                Err(Error::refused(RefusalCode::KeyConflict, message))
            }
        }
    }

    /// Keeps the answer to a request whose key this step has taken.
    pub async fn keep_answer(&mut self, key: &RequestKey, answer: Json) -> Result<(), Error> {
        on!(
            self,
            catalog::REQUEST_KEY_ANSWER,
            [key.scope.as_str(), key.route, key.key.as_str(), Doc(answer.clone())],
            execute,
            "keep an answer"
        )?;
        Ok(())
    }
}

impl Store {
    /// Forgets keys that were taken before a time; how many.
    pub async fn prune_request_keys(&self, before: Timestamp) -> Result<u64, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let gone = on!(tx, catalog::PRUNE_REQUEST_KEYS, [At(before)], execute, "prune keys")?;
                Ok(gone.count())
            })
        })
        .await
    }
}
