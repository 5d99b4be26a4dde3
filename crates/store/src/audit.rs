//! The audit log and its seals.
//!
//! Entries are committed with the changes that they describe, and are sealed afterwards: so no change waits for the
//! chain. A seal, its entries' seal numbers and its place in the chain are one transaction.

use crate::access::ListPage;
use crate::codec::{Columns, SqlJson, SqlTime, SqlUuid};
use crate::tx::{Conn, FromColumns, on};
use crate::{Error, Store, Tx, catalog};
use std::sync::atomic::Ordering;
use tidemill_core::Timestamp;
use tidemill_core::access::{AuditRecord, NewAuditRecord};
use tidemill_core::audit::{AuditHead, AuditSeal, GENESIS, SealedBatch, without_fractions};

const ACTION: &str = "seal the audit log";

impl FromColumns for AuditRecord {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            audit_id: row.long("audit_id")?,
            at: row.time("at")?,
            call_id: row.uuid("call_id")?,
            who: row.text("who")?,
            token_id: row.uuid_or_null("token_id")?,
            role: row.parsed("role")?,
            action: row.text("action")?,
            subject: row.text_or_null("subject")?,
            project_id: row.text_or_null("project_id")?,
            outcome: row.parsed("outcome")?,
            detail: row.json("detail")?,
            source: row.text_or_null("source")?,
            seal_no: row.long_or_null("seal_no")?,
        })
    }
}

impl FromColumns for AuditSeal {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self {
            seal_no: row.long("seal_no")?,
            sealed_at: row.time("sealed_at")?,
            previous: row.text("previous")?,
            // An unreadable list has no entries: then the hash of the seal does not match.
            entries: serde_json::from_value(row.json("entries")?).unwrap_or_default(),
            hash: row.text("hash")?,
            pruned_at: row.time_or_null("pruned_at")?,
        })
    }
}

/// Counts of the log beside its newest seal.
struct LogCounts {
    unsealed: i64,
    named: Option<i64>,
}

impl FromColumns for LogCounts {
    fn read(row: &impl Columns) -> sqlx::Result<Self> {
        Ok(Self { unsealed: row.long("unsealed")?, named: row.long_or_null("named")? })
    }
}

impl Tx<'_> {
    /// Whether this database role may write the audit log.
    async fn may_audit(&mut self) -> Result<bool, Error> {
        if self.context.may_audit.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let may: Option<bool> = on!(self, catalog::AUDIT_MAY, [], fetch_optional, "write the audit log")?
            .record("write the audit log")?;
        let may = may == Some(true);
        self.context.may_audit.store(may, Ordering::Relaxed);
        Ok(may)
    }

    /// Whether this transaction will write an audit entry. A role that may not write it may not read runs either.
    pub(crate) async fn writes_audit(&mut self) -> Result<bool, Error> {
        Ok(self.draft.is_some() && self.may_audit().await?)
    }

    /// Adds a row to the audit log, unless the same call added one. Database roles that may only call the SQL functions
    /// write no audit rows: the functions that change runs for operators write the entries of their callers.
    pub async fn add_audit(&mut self, audit: &NewAuditRecord, now: Option<Timestamp>) -> Result<(), Error> {
        if !self.may_audit().await? {
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
                now.map(SqlTime),
                SqlUuid(audit.call_id),
                audit.who.as_str(),
                audit.token_id.map(SqlUuid),
                audit.role.as_str(),
                audit.action.as_str(),
                audit.subject.as_deref(),
                audit.project_id.as_deref(),
                audit.outcome.as_str(),
                SqlJson(without_fractions(audit.detail.clone())),
                audit.source.as_deref(),
            ],
            execute,
            "write the audit log"
        )?;
        Ok(())
    }

    /// Seals up to `limit` entries; returns how many.
    async fn seal_audit(&mut self, limit: i64, now: Option<Timestamp>) -> Result<usize, Error> {
        on!(self, catalog::SEAL_LOCK, [], execute, "seal the audit log")?;
        let entries: Vec<AuditRecord> =
            on!(self, catalog::AUDIT_UNSEALED, [i64::MIN, limit], fetch_all, "seal the audit log")?
                .records(ACTION)?;
        let Some(newest_at) = entries.iter().map(|entry| entry.at).max() else { return Ok(0) };
        let sealed_at = tidemill_core::request::micros(self.database_now(now).await?);
        let last: Option<AuditSeal> =
            on!(self, catalog::SEAL_LAST, [], fetch_optional, "seal the audit log")?.record(ACTION)?;
        let seal = AuditSeal::of(last.as_ref(), &entries, sealed_at);
        let sealed_entries = serde_json::to_value(&seal.entries)
            .map_err(|source| Error::database(ACTION, sqlx::Error::Encode(Box::new(source))))?;
        on!(
            self,
            catalog::SEAL_ADD,
            [
                seal.seal_no,
                SqlTime(sealed_at),
                seal.previous.as_str(),
                SqlJson(sealed_entries.clone()),
                seal.hash.as_str(),
                SqlTime(newest_at),
            ],
            execute,
            "seal the audit log"
        )?;
        let (number, sealed_entries) = (seal.seal_no, SqlJson(sealed_entries));
        let sealed = on!(
            self,
            catalog::SEAL_ENTRIES,
            [number, sealed_entries.clone()],
            execute,
            "seal the audit log"
        )?
        .count();
        if sealed != entries.len() as u64 {
            // Rolled back: the seal would not match its entries.
            let problem = format!("{sealed} of {} entries could be sealed", entries.len());
            return Err(Error::refused(crate::RefusalCode::Stale, problem));
        }
        Ok(entries.len())
    }

    /// Removes the entries of the oldest seals whose entries are all older than `before`, at least `batch` entries if
    /// there are as many. The last emptied seal stays as the anchor of the chain.
    pub(crate) async fn prune_audit(
        &mut self,
        before: Timestamp,
        now: Timestamp,
        batch: usize,
    ) -> Result<u64, Error> {
        let (before, limit) = (SqlTime(before), i64::try_from(batch).unwrap_or(i64::MAX));
        let expired: Vec<i64> =
            on!(self, catalog::SEAL_EXPIRED, [before, limit], fetch_all, "prune the audit log")?
                .records("prune the audit log")?;
        if expired.is_empty() {
            return Ok(0);
        }
        on!(self, catalog::SEAL_LOCK, [], execute, "prune the audit log")?;
        let mut removed = 0;
        for seal_no in expired {
            on!(self, catalog::SEAL_PRUNE, [seal_no, SqlTime(now)], execute, "prune the audit log")?;
            let entries = on!(self, catalog::SEAL_PRUNE_ENTRIES, [seal_no], execute, "prune the audit log")?;
            on!(self, catalog::SEAL_PRUNE_OLDER, [seal_no], execute, "prune the audit log")?;
            removed += entries.count();
            if removed >= batch as u64 {
                break;
            }
        }
        Ok(removed)
    }
}

impl Store {
    /// Adds a row to the audit log in a transaction of its own.
    pub async fn add_audit(&self, audit: NewAuditRecord, now: Option<Timestamp>) -> Result<(), Error> {
        self.write(move |mut tx| Box::pin(async move { tx.add_audit(&audit, now).await })).await
    }

    /// Lists the audit log, latest first.
    pub async fn audit(&self, slice: ListPage<i64>) -> Result<Vec<AuditRecord>, Error> {
        let limit = i64::try_from(slice.limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(
                    tx,
                    catalog::AUDIT_LIST,
                    [slice.project.as_deref(), slice.before, limit],
                    fetch_all,
                    "read the audit log"
                )?
                .readable("audit", "audit_id"))
            })
        })
        .await
    }

    /// Lists entries that are not sealed yet, oldest first, after an id.
    pub async fn unsealed_audit(&self, after: i64, limit: usize) -> Result<Vec<AuditRecord>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                Ok(on!(tx, catalog::AUDIT_UNSEALED, [after, limit], fetch_all, "read the audit log")?
                    .readable("audit", "audit_id"))
            })
        })
        .await
    }

    /// Seals a batch of entries, in one transaction; returns how many. Several processes may call it at once: they
    /// extend the chain one after the other.
    pub async fn seal_audit(&self, limit: usize, now: Option<Timestamp>) -> Result<usize, Error> {
        // Without entries, no process takes the lock.
        if self.unsealed_audit(i64::MIN, 1).await?.is_empty() {
            return Ok(0);
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.write(move |mut tx| Box::pin(async move { tx.seal_audit(limit, now).await })).await
    }

    /// Returns the newest seal and the number of entries after it.
    pub async fn audit_head(&self) -> Result<AuditHead, Error> {
        self.read(move |mut tx| {
            Box::pin(async move {
                let last: Option<AuditSeal> =
                    on!(tx, catalog::SEAL_LAST, [], fetch_optional, "read the seals")?
                        .record("read the seals")?;
                let counts: Option<LogCounts> =
                    on!(tx, catalog::SEAL_HEAD, [], fetch_optional, "read the seals")?
                        .record("read the seals")?;
                let (seal_no, hash, sealed_at) = last.map_or((0, GENESIS.to_owned(), None), |last| {
                    (last.seal_no, last.hash, Some(last.sealed_at))
                });
                let unsealed = counts.as_ref().map_or(0, |counts| counts.unsealed);
                let named_seal_no = counts.and_then(|counts| counts.named);
                Ok(AuditHead { seal_no, hash, sealed_at, unsealed, named_seal_no })
            })
        })
        .await
    }

    /// Lists seals after a number, and not older than `since`, with their entries, oldest first.
    pub async fn audit_seals(
        &self,
        after: i64,
        since: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<SealedBatch>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(move |mut tx| {
            Box::pin(async move {
                let since = since.map(SqlTime);
                let seals: Vec<AuditSeal> =
                    on!(tx, catalog::SEAL_PAGE, [after, since, limit], fetch_all, "read the seals")?
                        .records("read the seals")?;
                let (Some(first), Some(last)) = (seals.first(), seals.last()) else { return Ok(Vec::new()) };
                let range = (first.seal_no, last.seal_no);
                // An unreadable entry is skipped here, and verification reports it as missing.
                let mut entries: Vec<AuditRecord> =
                    on!(tx, catalog::AUDIT_OF_SEALS, [range.0, range.1], fetch_all, "read the seals")?
                        .readable("audit", "audit_id");
                let mut batches = Vec::new();
                for seal in seals {
                    let (own, rest) =
                        entries.into_iter().partition(|entry| entry.seal_no == Some(seal.seal_no));
                    entries = rest;
                    batches.push(SealedBatch { seal, entries: own });
                }
                Ok(batches)
            })
        })
        .await
    }
}
