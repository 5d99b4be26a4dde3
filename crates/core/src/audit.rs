//! The hash chain of the audit log: canonical encoding, seals and their verification.
//!
//! Entries are sealed in batches after their commit. The hash of a seal covers the hash of the seal before it and the
//! hashes of its entries, so that no entry below the newest seal can be changed, removed or inserted unnoticed. The
//! newest seal is the head. A copy of the head, kept elsewhere, also shows that the newest seals were removed.
//!
//! Encoding: a fixed first line, then fields. A field is one byte, 0 for null and 1 otherwise; a value follows as its
//! length in 8 bytes, most significant first, and its UTF-8 bytes. Numbers are decimal, times are microseconds since
//! 1970, ids are in lower case, JSON has sorted keys and no spaces.

use crate::access::AuditRecord;
use crate::digest::sha256_hex;
use crate::label::labelled;
use crate::{Json, Timestamp};
use std::collections::BTreeMap;

labelled! {
    /// The role of an actor in the audit log: a token's role, or the part of Tidemill that acted.
    "actor role" ActorRole {
        Viewer = "viewer",
        Operator = "operator",
        Worker = "worker",
        Agent = "agent",
        Admin = "admin",
        /// A webhook that queued a run.
        Hook = "hook",
        /// A schedule that queued a run.
        Schedule = "schedule",
    }
}

impl From<crate::access::Role> for ActorRole {
    fn from(role: crate::access::Role) -> Self {
        use crate::access::Role;
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Worker => Self::Worker,
            Role::Agent => Self::Agent,
            Role::Admin => Self::Admin,
        }
    }
}

labelled! {
    /// The outcome of an audited call.
    "audit outcome" AuditOutcome {
        /// The change is committed together with this entry.
        Applied = "applied",
        /// The call changed nothing; `detail.status` is the HTTP status of the response.
        Refused = "refused",
    }
}

/// Hash before the first seal.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One entry of a seal: its id and the hash of its contents.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealedEntry {
    pub audit_id: i64,
    /// SHA-256 of the canonical encoding of the entry.
    pub hash: String,
}

/// A sealed batch of audit entries.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditSeal {
    /// Position in the chain, from 1.
    pub seal_no: i64,
    pub sealed_at: Timestamp,
    /// Hash of the seal before this one.
    pub previous: String,
    /// Entries in order of their ids; empty after retention removed them.
    pub entries: Vec<SealedEntry>,
    /// SHA-256 of the canonical encoding of this seal.
    pub hash: String,
    /// When retention removed the entries. The hash remains as the anchor of the seals after it.
    pub pruned_at: Option<Timestamp>,
}

/// A seal with the stored entries that name it.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealedBatch {
    pub seal: AuditSeal,
    pub entries: Vec<AuditRecord>,
}

/// The newest seal. A copy that is kept elsewhere proves later that no seal was removed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditHead {
    /// Number of the newest seal; 0 before the first.
    pub seal_no: i64,
    /// Hash of the newest seal.
    pub hash: String,
    pub sealed_at: Option<Timestamp>,
    /// Number of entries that are not sealed yet.
    #[serde(default)]
    pub unsealed: i64,
    /// Largest seal number that an entry names. It is larger than `seal_no` only if a seal was removed.
    #[serde(default)]
    pub named_seal_no: Option<i64>,
}

/// Builds a canonical encoding.
struct Encoder(Vec<u8>);

impl Encoder {
    fn new(first_line: &str) -> Self {
        Self(format!("{first_line}\n").into_bytes())
    }

    fn field(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            None => self.0.push(0),
            Some(value) => {
                self.0.push(1);
                self.0.extend((value.len() as u64).to_be_bytes());
                self.0.extend(value.as_bytes());
            }
        }
        self
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.field(Some(value))
    }

    fn number(&mut self, value: i64) -> &mut Self {
        self.text(&value.to_string())
    }
}

/// Returns JSON text with sorted keys and without spaces.
pub fn canonical_json(value: &Json) -> String {
    match value {
        Json::Object(fields) => {
            let sorted: BTreeMap<&String, &Json> = fields.iter().collect();
            let fields: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Json::from(name.as_str()), canonical_json(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Json::Array(items) => {
            format!("[{}]", items.iter().map(canonical_json).collect::<Vec<_>>().join(","))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value.to_string(),
    }
}

/// Replaces fractional numbers by texts: the two databases store them differently, which would change the hash.
#[must_use]
pub fn without_fractions(value: Json) -> Json {
    match value {
        Json::Number(number) if number.is_f64() => Json::String(number.to_string()),
        Json::Array(items) => Json::Array(items.into_iter().map(without_fractions).collect()),
        Json::Object(fields) => {
            Json::Object(fields.into_iter().map(|(name, value)| (name, without_fractions(value))).collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => value,
    }
}

/// Returns the hash of an entry. Its seal number is not part of it, because sealing sets that.
pub fn entry_hash(entry: &AuditRecord) -> String {
    let token = entry.token_id.map(|token| token.to_string());
    let mut encoder = Encoder::new("tidemill audit entry 1");
    encoder
        .number(entry.audit_id)
        .number(entry.at.timestamp_micros())
        .text(&entry.call_id.to_string())
        .text(&entry.who)
        .field(token.as_deref())
        .text(entry.role.as_str())
        .text(&entry.action)
        .field(entry.subject.as_deref())
        .field(entry.project_id.as_deref())
        .text(entry.outcome.as_str())
        .text(&canonical_json(&entry.detail))
        .field(entry.source.as_deref());
    sha256_hex(&encoder.0)
}

/// Returns the hash of a seal from its other fields.
fn seal_hash(seal_no: i64, sealed_at: Timestamp, previous: &str, entries: &[SealedEntry]) -> String {
    let mut encoder = Encoder::new("tidemill audit seal 1");
    encoder.number(seal_no).number(sealed_at.timestamp_micros()).text(previous);
    encoder.text(&entries.len().to_string());
    for entry in entries {
        encoder.number(entry.audit_id).text(&entry.hash);
    }
    sha256_hex(&encoder.0)
}

impl AuditSeal {
    /// Seals entries after the seal `last`.
    pub fn of(last: Option<&Self>, entries: &[AuditRecord], sealed_at: Timestamp) -> Self {
        let (seal_no, previous) =
            last.map_or((1, GENESIS.to_owned()), |last| (last.seal_no + 1, last.hash.clone()));
        let entries: Vec<SealedEntry> = entries
            .iter()
            .map(|entry| SealedEntry { audit_id: entry.audit_id, hash: entry_hash(entry) })
            .collect();
        let hash = seal_hash(seal_no, sealed_at, &previous, &entries);
        Self { seal_no, sealed_at, previous, entries, hash, pruned_at: None }
    }
}

/// A contradiction in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditFault {
    #[error("the log begins with seal {found}; seal {expected} was removed")]
    MissingStart { expected: i64, found: i64 },
    #[error("seal {expected} is missing: seal {found} follows seal {}", expected - 1)]
    MissingSeal { expected: i64, found: i64 },
    #[error("seal {seal_no} does not continue seal {}: its previous hash is different", seal_no - 1)]
    BrokenChain { seal_no: i64 },
    #[error("seal {seal_no} was changed: its hash does not match its contents")]
    ChangedSeal { seal_no: i64 },
    #[error("entry {audit_id} was changed after seal {seal_no}")]
    ChangedEntry { seal_no: i64, audit_id: i64 },
    #[error("entry {audit_id} of seal {seal_no} is missing")]
    MissingEntry { seal_no: i64, audit_id: i64 },
    #[error("entry {audit_id} was inserted: it names seal {seal_no}, which does not contain it")]
    InsertedEntry { seal_no: i64, audit_id: i64 },
    #[error("the log ends with seal {last}, but an entry names seal {named}: the newest seals were removed")]
    OrphanedEntries { last: i64, named: i64 },
    #[error("the log ends with seal {last}, but the exported head is seal {head}: the tail was cut off")]
    CutOff { last: i64, head: i64 },
    #[error("seal {seal_no} does not have the hash of the exported head: the log was rewritten")]
    Rewritten { seal_no: i64 },
    #[error("the exported head is seal {head}, but retention removed everything before seal {oldest}")]
    HeadPruned { head: i64, oldest: i64 },
}

/// Checks seals in ascending order.
#[derive(Debug, Clone)]
pub struct Verifier {
    /// Number and hash of the seal before the next one.
    last: Option<(i64, String)>,
    head: Option<AuditHead>,
    first: Option<i64>,
    entries: u64,
}

/// Result of a verification without contradiction.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct VerifiedAudit {
    /// Number of the first checked seal; null if there is none.
    pub first_seal_no: Option<i64>,
    /// Number of the last seal; 0 if there is none.
    pub last_seal_no: i64,
    /// Hash of the last seal.
    pub hash: String,
    /// Number of checked entries.
    pub entries: u64,
}

impl Verifier {
    /// Starts at the beginning of the log. With a head, the log must contain that seal.
    pub fn new(head: Option<AuditHead>) -> Self {
        Self { last: None, head, first: None, entries: 0 }
    }

    /// Starts after a seal that is not part of the input, for an excerpt.
    #[must_use]
    pub fn after(mut self, seal_no: i64, hash: String) -> Self {
        self.last = Some((seal_no, hash));
        self
    }

    /// Checks the next seal.
    pub fn check(&mut self, batch: &SealedBatch) -> Result<(), AuditFault> {
        let seal = &batch.seal;
        let seal_no = seal.seal_no;
        match &self.last {
            // Retention keeps the last seal that it emptied: its hash is the anchor.
            None if seal.pruned_at.is_some() => {}
            None if seal_no != 1 => return Err(AuditFault::MissingStart { expected: 1, found: seal_no }),
            None if seal.previous != GENESIS => return Err(AuditFault::BrokenChain { seal_no }),
            Some((last, _)) if seal_no != last + 1 => {
                return Err(AuditFault::MissingSeal { expected: last + 1, found: seal_no });
            }
            Some((_, hash)) if seal.previous != *hash => return Err(AuditFault::BrokenChain { seal_no }),
            None | Some(_) => {}
        }
        if seal.pruned_at.is_none() || self.last.is_some() {
            check_contents(batch)?;
        }
        if let Some(head) = &self.head {
            if head.seal_no == seal_no && head.hash != seal.hash {
                return Err(AuditFault::Rewritten { seal_no });
            }
            if self.first.is_none() && self.last.is_none() && head.seal_no < seal_no && seal_no > 1 {
                return Err(AuditFault::HeadPruned { head: head.seal_no, oldest: seal_no });
            }
        }
        self.first.get_or_insert(seal_no);
        self.entries += batch.entries.len() as u64;
        self.last = Some((seal_no, seal.hash.clone()));
        Ok(())
    }

    /// Ends the verification. `named` is the largest seal number that an entry names.
    pub fn finish(self, named: Option<i64>) -> Result<VerifiedAudit, AuditFault> {
        let (last, hash) = self.last.unwrap_or_else(|| (0, GENESIS.to_owned()));
        if let Some(head) = self.head.filter(|head| head.seal_no > last) {
            return Err(AuditFault::CutOff { last, head: head.seal_no });
        }
        if let Some(named) = named.filter(|named| *named > last) {
            return Err(AuditFault::OrphanedEntries { last, named });
        }
        Ok(VerifiedAudit { first_seal_no: self.first, last_seal_no: last, hash, entries: self.entries })
    }
}

/// Checks the hash of a seal, and that exactly its entries are there, unchanged.
fn check_contents(batch: &SealedBatch) -> Result<(), AuditFault> {
    let SealedBatch { seal, entries } = batch;
    let seal_no = seal.seal_no;
    if seal_hash(seal_no, seal.sealed_at, &seal.previous, &seal.entries) != seal.hash {
        return Err(AuditFault::ChangedSeal { seal_no });
    }
    let mut found: BTreeMap<i64, &AuditRecord> =
        entries.iter().map(|entry| (entry.audit_id, entry)).collect();
    for sealed in &seal.entries {
        let audit_id = sealed.audit_id;
        match found.remove(&audit_id) {
            None => return Err(AuditFault::MissingEntry { seal_no, audit_id }),
            Some(entry) if entry_hash(entry) != sealed.hash => {
                return Err(AuditFault::ChangedEntry { seal_no, audit_id });
            }
            Some(_) => {}
        }
    }
    match found.into_keys().next() {
        Some(audit_id) => Err(AuditFault::InsertedEntry { seal_no, audit_id }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
