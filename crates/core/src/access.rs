//! Who may do what: roles, tokens and how long they hold, and what is kept of what people did.
//!
//! A token is a secret that is shown once; only its hash is kept. Randomness comes from the caller, and so does the
//! time.

use crate::digest::sha256_hex;
use crate::label::labelled;
use crate::limits::{NAME_BYTES_MAX, TOKEN_SECS_MAX};
use crate::request::{Fault, Invalid};
use crate::{Json, Timestamp};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

labelled! {
    /// What the holder of a token may do.
    "role" Role {
        /// Look at everything.
        Viewer = "viewer",
        /// Look, and queue, cancel, retry, pause and the like.
        Operator = "operator",
        /// Claim runs, report on them and finish them.
        Worker = "worker",
        /// Carry out tasks of graphs.
        Agent = "agent",
        /// Everything, tokens and audit included.
        Admin = "admin",
    }
}

/// What the text of a token begins with.
const TOKEN: &str = "tm_";
/// What the value of a session's cookie begins with.
const SESSION: &str = "tms_";
/// Hexadecimal digits of 256 bits.
const DIGITS: usize = 64;

/// A secret that somebody carries: the text of a token, or the value of a session's cookie.
///
/// It is never kept and never printed: what is shown for debugging does not tell it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A text that cannot be a secret of ours. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a token (`tm_` followed by 64 hexadecimal digits)")]
pub struct BadSecret;

impl Secret {
    /// A token made of 256 random bits.
    pub fn token(random: [u8; 32]) -> Self {
        Self::of(TOKEN, random)
    }

    /// The value of a session's cookie made of 256 random bits.
    pub fn session(random: [u8; 32]) -> Self {
        Self::of(SESSION, random)
    }

    fn of(prefix: &str, random: [u8; 32]) -> Self {
        use fmt::Write as _;
        let mut text = prefix.to_owned();
        for byte in random {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// Whether this is a token, and not a session.
    pub fn is_token(&self) -> bool {
        self.0.starts_with(TOKEN)
    }

    /// The text, for the one to whom it belongs.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it: SHA-256 of the whole text. With 256 random bits there is nothing to guess, so a slow hash
    /// would only make every request slow.
    pub fn hash(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }

    /// What a form must carry so that it counts as sent from a page of ours. It follows from the cookie, which another
    /// site cannot read, and does not tell it.
    pub fn csrf(&self) -> String {
        sha256_hex(format!("csrf {}", self.0).as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_token() { "tm_…" } else { "tms_…" })
    }
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let digits = text.strip_prefix(TOKEN).or_else(|| text.strip_prefix(SESSION)).ok_or(BadSecret)?;
        let plain = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() == DIGITS && digits.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadSecret)
        }
    }
}

/// Whether two texts are the same, in a time that does not tell where they differ.
pub fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Token {
    /// Its id.
    pub token_id: Uuid,
    /// What it is for, in a person's words.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The only project that its holder sees, if not all.
    pub project_id: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// Until when it is good, if not for ever.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Who revoked it.
    pub revoked_by: Option<String>,
    /// When it was last used, give or take a minute.
    pub last_used_at: Option<Timestamp>,
}

/// What a token is worth at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It lets its holder in.
    Good,
    /// Its time is over.
    Expired,
    /// Somebody took it back.
    Revoked,
}

/// What a token is worth at `now`. Revocation is told before expiry: it is what somebody decided.
pub fn standing(token: &Token, now: Timestamp) -> Standing {
    if token.revoked_at.is_some() {
        return Standing::Revoked;
    }
    if token.expires_at.is_some_and(|end| end <= now) { Standing::Expired } else { Standing::Good }
}

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// What it is for, in a person's words.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The only project that its holder sees, if not all.
    pub project_id: Option<String>,
    /// How long it is good, if not for ever.
    pub expires_in_secs: Option<u64>,
}

impl NewToken {
    /// Checks the whole request.
    pub fn check(&self) -> Result<(), Invalid> {
        let mut faults = Vec::new();
        let mut add = |field, problem: String| faults.push(Fault { field, problem });
        if self.name.trim().is_empty() {
            add("name", "must not be empty".to_owned());
        }
        if self.name.len() > NAME_BYTES_MAX {
            let length = self.name.len();
            add("name", format!("is {length} bytes long; at most {NAME_BYTES_MAX} are allowed"));
        }
        if self.name.chars().any(char::is_control) {
            add("name", "contains a control character".to_owned());
        }
        if let Some(secs) = self.expires_in_secs
            && !(1..=TOKEN_SECS_MAX).contains(&secs)
        {
            add("expires_in_secs", format!("is {secs}; it must be between 1 and {TOKEN_SECS_MAX}"));
        }
        if faults.is_empty() { Ok(()) } else { Err(Invalid(faults)) }
    }
}

/// Something that a person did.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Audit {
    /// Its place in the record; a later one is larger.
    pub audit_id: i64,
    /// When.
    pub at: Timestamp,
    /// Who: the name of their token.
    pub who: String,
    /// Their token, where they had to have one.
    pub token_id: Option<Uuid>,
    /// What they may do.
    pub role: Role,
    /// What they did: see [`action`].
    pub action: String,
    /// What they did it to.
    pub subject: Option<String>,
    /// The project that it belongs to, where it belongs to one.
    pub project_id: Option<String>,
    /// Details. Never a secret.
    pub detail: Json,
    /// The address that they called from.
    pub source: Option<String>,
}

/// Something that a person has just done.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAudit {
    /// Who: the name of their token.
    pub who: String,
    /// Their token, where they had to have one.
    pub token_id: Option<Uuid>,
    /// What they may do.
    pub role: Role,
    /// What they did: see [`action`].
    pub action: String,
    /// What they did it to.
    pub subject: Option<String>,
    /// The project that it belongs to, where it belongs to one.
    pub project_id: Option<String>,
    /// Details. Never a secret.
    pub detail: Json,
    /// The address that they called from.
    pub source: Option<String>,
}

/// Longest subject that is kept.
const SUBJECT_CHARS_MAX: usize = 256;

impl NewAudit {
    /// Names what was made or changed, where the path of the call does not.
    pub fn names(&mut self, subject: &str) -> &mut Self {
        self.subject.get_or_insert_with(|| subject.chars().take(SUBJECT_CHARS_MAX).collect());
        self
    }

    /// Names the project that it belongs to, where it is not known yet.
    pub fn belongs_to(&mut self, project: Option<&str>) -> &mut Self {
        if self.project_id.is_none() {
            self.project_id = project.map(str::to_owned);
        }
        self
    }

    /// Adds a detail. Never a secret.
    pub fn tells(&mut self, name: &str, value: impl Into<Json>) -> &mut Self {
        if let Some(fields) = self.detail.as_object_mut() {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }
}

/// The word for what a call does: `runs.create`, `runs.cancel`, `tokens.delete`.
///
/// It is made of the fixed parts of the path, so that a new route has its word by itself.
pub fn action(method: &str, path: &str) -> String {
    let is_parameter = |part: &&str| part.starts_with('{');
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "v1").collect();
    let mut words: Vec<&str> = parts.iter().copied().filter(|part| !is_parameter(part)).collect();
    let names_a_verb = method == "POST"
        && parts.iter().any(is_parameter)
        && parts.last().is_some_and(|last| !is_parameter(last));
    if !names_a_verb {
        words.push(match method {
            "POST" => "create",
            "PUT" => "put",
            "PATCH" => "change",
            "DELETE" => "delete",
            _ => "call",
        });
    }
    words.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{Duration, TimeZone, Utc};

    fn token() -> Token {
        Token {
            token_id: Uuid::nil(),
            name: "ci".to_owned(),
            role: Role::Operator,
            project_id: None,
            created_at: Utc.timestamp_opt(0, 0).unwrap(),
            created_by: "ann".to_owned(),
            expires_at: Some(Utc.timestamp_opt(100, 0).unwrap()),
            revoked_at: None,
            revoked_by: None,
            last_used_at: None,
        }
    }

    #[test]
    fn a_secret_is_read_as_it_is_written_and_nothing_else_is() {
        let secret = Secret::token([0xab; 32]);
        assert_eq!(secret.reveal(), format!("tm_{}", "ab".repeat(32)));
        assert_eq!(secret.reveal().parse(), Ok(secret.clone()));
        let session = Secret::session([1; 32]);
        assert!(secret.is_token() && !session.is_token());
        assert_eq!(session.reveal().parse(), Ok(session));
        let long = format!("tm_{}", "a".repeat(65));
        let capital = format!("tm_{}", "A".repeat(64));
        for bad in ["", "tm_", "tm_abc", &long, &capital, &"a".repeat(67), &format!("xx_{}", "a".repeat(64))]
        {
            assert_eq!(bad.parse::<Secret>(), Err(BadSecret), "{bad}");
        }
    }

    #[test]
    fn a_secret_does_not_show_itself_and_its_derivatives_differ() {
        let secret = Secret::token([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "tm_…");
        assert_eq!(secret.hash(), sha256_hex(secret.reveal().as_bytes()));
        assert_ne!(secret.hash(), secret.csrf());
        assert!(!BadSecret.to_string().contains("ab"));
    }

    #[test]
    fn equal_texts_are_the_same_and_others_are_not() {
        assert!(same("abc", "abc") && same("", ""));
        assert!(!same("abc", "abd") && !same("abc", "ab") && !same("", "a"));
    }

    #[test]
    fn a_token_is_good_until_its_end_or_its_revocation() {
        let end = token().expires_at.unwrap();
        assert_eq!(standing(&token(), end - Duration::microseconds(1)), Standing::Good);
        assert_eq!(standing(&token(), end), Standing::Expired);
        let revoked = Token { revoked_at: Some(end), ..token() };
        assert_eq!(standing(&revoked, end), Standing::Revoked);
        assert_eq!(standing(&Token { expires_at: None, ..token() }, end), Standing::Good);
    }

    #[test]
    fn every_fault_of_a_token_is_told() {
        let bad = NewToken {
            name: "\n".to_owned(),
            role: Role::Viewer,
            project_id: None,
            expires_in_secs: Some(0),
        };
        let Invalid(faults) = bad.check().unwrap_err();
        assert_eq!(faults.len(), 3, "{faults:?}");
        let good = NewToken { name: "ci".to_owned(), expires_in_secs: Some(1), ..bad };
        assert_eq!(good.check(), Ok(()));
    }

    #[test]
    fn actions_are_made_of_the_fixed_parts_of_a_path() {
        for (method, path, word) in [
            ("POST", "/v1/runs", "runs.create"),
            ("POST", "/v1/runs/{run}/cancel", "runs.cancel"),
            ("DELETE", "/v1/tokens/{token}", "tokens.delete"),
            ("PUT", "/v1/projects/{project}/pause", "projects.pause.put"),
            ("PUT", "/v1/schedules/{schedule}", "schedules.put"),
            ("DELETE", "/v1/session", "session.delete"),
        ] {
            assert_eq!(action(method, path), word);
        }
    }
}
