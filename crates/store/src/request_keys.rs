//! Idempotency keys of requests: a repeated request is executed once and gets the first answer.
//!
//! One transaction claims the key, does the work and saves the answer. A repeated request that arrives meanwhile waits
//! for that transaction.

use crate::codec::{Columns, SqlJson, SqlTime};
use crate::tx::{FromColumns, on};
use crate::{Error, RefusalCode, Store, Tx, catalog};
use tidemill_core::{Json, Timestamp, digest};

/// The idempotency key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// Owner of the key.
    pub scope: String,
    pub route: &'static str,
    pub key: String,
    /// SHA-256 of the body. A different body under the same key is refused.
    pub body_hash: String,
}

impl RequestKey {
    /// Returns the key of a request with this body.
    pub fn new(scope: impl Into<String>, route: &'static str, key: impl Into<String>, body: &[u8]) -> Self {
        let body_hash = digest::sha256_hex(body);
        Self { scope: scope.into(), route, key: key.into(), body_hash }
    }
}

/// Result of claiming an idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyClaim {
    /// The key is new. The caller saves its answer in the same transaction.
    New,
    /// The request was answered before.
    Answered(Json),
}

struct SavedAnswer {
    body_hash: String,
    answer: Json,
}

impl FromColumns for SavedAnswer {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { body_hash: row.text("body_hash")?, answer: row.json("answer")? })
    }
}

impl Tx<'_> {
    /// Claims the key of a request, or returns the saved answer. Refuses a different request under the same key.
    pub async fn claim_key(&mut self, key: &RequestKey, now: Option<Timestamp>) -> Result<KeyClaim, Error> {
        let at = self.time(now);
        let taken = on!(
            self,
            catalog::REQUEST_KEY_TAKE,
            [
                key.scope.as_str(),
                key.route,
                key.key.as_str(),
                key.body_hash.as_str(),
                SqlJson(Json::Null),
                at,
            ],
            execute,
            "claim an idempotency key"
        )?;
        if taken.count() > 0 {
            return Ok(KeyClaim::New);
        }
        let found: Option<SavedAnswer> = on!(
            self,
            catalog::REQUEST_KEY_GET,
            [key.scope.as_str(), key.route, key.key.as_str()],
            fetch_optional,
            "read an idempotency key"
        )?
        .record("read an idempotency key")?;
        match found {
            Some(saved) if saved.body_hash == key.body_hash => Ok(KeyClaim::Answered(saved.answer)),
            Some(_) | None => {
                let message = format!("idempotency key `{}` was used for another request", key.key);
                Err(Error::refused(RefusalCode::KeyConflict, message))
            }
        }
    }

    /// Saves the answer to a request whose key this transaction has claimed.
    pub async fn save_answer(&mut self, key: &RequestKey, answer: Json) -> Result<(), Error> {
        on!(
            self,
            catalog::REQUEST_KEY_ANSWER,
            [key.scope.as_str(), key.route, key.key.as_str(), SqlJson(answer.clone())],
            execute,
            "save the answer to a request"
        )?;
        Ok(())
    }
}

impl Store {
    /// Deletes keys that were claimed before a time; returns how many.
    pub async fn prune_request_keys(&self, before: Timestamp) -> Result<u64, Error> {
        self.write(move |mut tx| {
            Box::pin(async move {
                let removed = on!(
                    tx,
                    catalog::PRUNE_REQUEST_KEYS,
                    [SqlTime(before)],
                    execute,
                    "prune idempotency keys"
                )?;
                Ok(removed.count())
            })
        })
        .await
    }
}
