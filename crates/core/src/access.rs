//! Roles, API tokens, browser sessions and audit records.
//!
//! A token is shown once, when it is created; the database stores only its hash. Callers pass in random bytes and the
//! time.

use crate::audit::{ActorRole, AuditOutcome};
use crate::digest::sha256_hex;
use crate::label::labelled;
use crate::limits::{NAME_BYTES_MAX, TOKEN_PROJECTS_MAX, TOKEN_SECS_MAX};
use crate::project_set::ProjectSet;
use crate::request::{FieldError, ValidationError};
use crate::{Json, Timestamp};
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

labelled! {
    /// The permissions of a token.
    "role" Role {
        Viewer = "viewer",
        /// Reads everything; queues, cancels, retries and pauses runs.
        Operator = "operator",
        /// Claims runs, reports on them and finishes them.
        Worker = "worker",
        /// Executes tasks of graphs.
        Agent = "agent",
        /// Does everything, including tokens and the audit log.
        Admin = "admin",
    }
}

impl Role {
    /// Returns whether the role belongs to programs that execute work, rather than to people.
    pub const fn is_machine(self) -> bool {
        match self {
            Self::Worker | Self::Agent => true,
            Self::Viewer | Self::Operator | Self::Admin => false,
        }
    }
}

/// Prefix of a token.
const TOKEN: &str = "tm_";
/// Prefix of a session cookie's value.
const SESSION: &str = "tms_";
/// Prefix of the code in a one-time link.
const LINK: &str = "tml_";
/// Length of 256 bits in hexadecimal digits.
const DIGITS: usize = 64;

/// The text of a token, the value of a session cookie, or the code of a one-time link.
///
/// It is never stored, and its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A text that is neither a token nor a session cookie. The message does not repeat the text, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not a token (`tm_` followed by 64 hexadecimal digits)")]
pub struct InvalidSecretError;

impl Secret {
    /// Makes a token from 256 random bits.
    pub fn token(random: [u8; 32]) -> Self {
        Self::of(TOKEN, random)
    }

    /// Makes the value of a session cookie from 256 random bits.
    pub fn session(random: [u8; 32]) -> Self {
        Self::of(SESSION, random)
    }

    /// Makes the code of a one-time link from 256 random bits.
    pub fn link(random: [u8; 32]) -> Self {
        Self::of(LINK, random)
    }

    fn of(prefix: &str, random: [u8; 32]) -> Self {
        use fmt::Write as _;
        let mut text = prefix.to_owned();
        for byte in random {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// Returns whether this is a token rather than a session cookie.
    pub fn is_token(&self) -> bool {
        self.0.starts_with(TOKEN)
    }

    /// Returns whether a text that a caller sent looks like the code of a one-time link.
    pub fn is_link(text: &str) -> bool {
        text.starts_with(LINK)
    }

    /// Returns the text, for the response to its owner.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the stored form: the SHA-256 of the text. A slow hash would only slow down every request: 256 random
    /// bits cannot be guessed.
    pub fn hash(&self) -> String {
        sha256_hex(self.0.as_bytes())
    }

    /// Returns the CSRF token of this session. It is derived from the cookie, which other sites cannot read, and does
    /// not reveal it.
    pub fn csrf(&self) -> String {
        sha256_hex(format!("csrf {}", self.0).as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = [TOKEN, SESSION, LINK].into_iter().find(|prefix| self.0.starts_with(prefix));
        write!(f, "{}…", prefix.unwrap_or_default())
    }
}

impl FromStr for Secret {
    type Err = InvalidSecretError;

    fn from_str(text: &str) -> Result<Self, InvalidSecretError> {
        let digits =
            text.strip_prefix(TOKEN).or_else(|| text.strip_prefix(SESSION)).ok_or(InvalidSecretError)?;
        let plain = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() == DIGITS && digits.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidSecretError)
        }
    }
}

/// Compares two texts in constant time, so that the duration does not reveal where they differ.
pub fn constant_time_eq(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Token {
    /// Id of the token.
    pub token_id: Uuid,
    /// Purpose of the token, as a free text.
    pub name: String,
    /// Permissions of the token.
    pub role: Role,
    /// Projects that the token is limited to; null for all projects.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub projects: ProjectSet,
    pub created_at: Timestamp,
    /// Name of the token that created it.
    pub created_by: String,
    /// Time of expiry; null if it never expires.
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// Name of the token that revoked it.
    pub revoked_by: Option<String>,
    /// Time of the last use, accurate to about a minute.
    pub last_used_at: Option<Timestamp>,
}

/// Validity of a token at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStatus {
    Valid,
    Expired,
    Revoked,
}

/// Returns the validity of a token at `now`. Revocation takes precedence over expiry, because it was a decision.
pub fn token_status(token: &Token, now: Timestamp) -> TokenStatus {
    if token.revoked_at.is_some() {
        return TokenStatus::Revoked;
    }
    if token.expires_at.is_some_and(|end| end <= now) { TokenStatus::Expired } else { TokenStatus::Valid }
}

/// A token that an administrator creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    pub name: String,
    pub role: Role,
    /// Projects that the token is limited to. Only tokens of machines may have several.
    pub projects: ProjectSet,
    /// Lifetime; `None` if it never expires.
    pub expires_in_secs: Option<u64>,
}

impl NewToken {
    /// Checks all fields and reports every invalid one.
    pub fn check(&self) -> Result<(), ValidationError> {
        let mut errors = Vec::new();
        let mut add = |field, problem: String| errors.push(FieldError { field, problem });
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
        if let Some(problem) = self.projects_problem() {
            add("projects", problem);
        }
        if let Some(secs) = self.expires_in_secs
            && !(1..=TOKEN_SECS_MAX).contains(&secs)
        {
            add("expires_in_secs", format!("is {secs}; it must be between 1 and {TOKEN_SECS_MAX}"));
        }
        if errors.is_empty() { Ok(()) } else { Err(ValidationError(errors)) }
    }

    fn projects_problem(&self) -> Option<String> {
        let ProjectSet::Only(names) = &self.projects else { return None };
        match names.len() {
            0 => Some("must not be empty; leave it out for all projects".to_owned()),
            1 => None,
            count if !self.role.is_machine() => Some(format!(
                "has {count} names; a token of role {} names one project, or is for all projects",
                self.role
            )),
            count if count > TOKEN_PROJECTS_MAX => {
                Some(format!("has {count} names; at most {TOKEN_PROJECTS_MAX} are allowed"))
            }
            _ => None,
        }
    }
}

/// A stored entry of the audit log.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditRecord {
    /// Sequence number; later entries have larger numbers.
    pub audit_id: i64,
    /// Time of the call.
    pub at: Timestamp,
    /// Id of the call. A call that is retried after a lost response of the database has one entry.
    pub call_id: Uuid,
    /// Name of the caller's token, of the local user, of the database user, of the webhook or of the schedule.
    pub who: String,
    /// Id of the caller's token; null for the command line on the database, and for a local server.
    pub token_id: Option<Uuid>,
    /// Role of the caller.
    pub role: ActorRole,
    /// Action, such as `runs.cancel`.
    pub action: String,
    /// Object that was created or changed.
    pub subject: Option<String>,
    /// Project of the object, if it belongs to one.
    pub project_id: Option<String>,
    /// Whether the change was made.
    pub outcome: AuditOutcome,
    /// Details of the call, without secrets.
    pub detail: Json,
    /// Network address of the caller; `sql` for a call of an SQL function.
    pub source: Option<String>,
    /// Number of the seal that contains the entry; null until it is sealed.
    pub seal_no: Option<i64>,
}

/// An entry to append to the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAuditRecord {
    /// Unique per call: the log has at most one entry of a call.
    pub call_id: Uuid,
    /// Name of the caller's token, of the local user, of the database user, of the webhook or of the schedule.
    pub who: String,
    pub token_id: Option<Uuid>,
    pub role: ActorRole,
    /// See [`action`].
    pub action: String,
    pub subject: Option<String>,
    pub project_id: Option<String>,
    pub outcome: AuditOutcome,
    /// Details of the call. Must not contain secrets.
    pub detail: Json,
    /// Network address of the caller.
    pub source: Option<String>,
}

/// Length to which a subject is cut.
const SUBJECT_CHARS_MAX: usize = 256;

impl NewAuditRecord {
    /// Returns an entry of an actor that is not a caller of the HTTP API.
    pub fn of(call_id: Uuid, who: &str, role: ActorRole, action: &str) -> Self {
        Self {
            call_id,
            who: who.to_owned(),
            token_id: None,
            role,
            action: action.to_owned(),
            subject: None,
            project_id: None,
            outcome: AuditOutcome::Applied,
            detail: Json::Object(serde_json::Map::new()),
            source: None,
        }
    }

    /// Sets the object that was created or changed, unless the path of the call named it.
    pub fn set_subject(&mut self, subject: &str) -> &mut Self {
        self.subject.get_or_insert_with(|| subject.chars().take(SUBJECT_CHARS_MAX).collect());
        self
    }

    /// Sets the project, unless it is already known.
    pub fn set_project(&mut self, project: Option<&str>) -> &mut Self {
        if self.project_id.is_none() {
            self.project_id = project.map(str::to_owned);
        }
        self
    }

    /// Adds a detail. It must not be a secret.
    pub fn add_detail(&mut self, name: &str, value: impl Into<Json>) -> &mut Self {
        if let Some(fields) = self.detail.as_object_mut() {
            fields.insert(name.to_owned(), value.into());
        }
        self
    }
}

/// Returns the action of a call for the audit log: `runs.create`, `runs.cancel`, `tokens.delete`.
///
/// It is derived from the fixed parts of the path, so that a new route needs no entry in a table.
pub fn action(method: &str, path: &str) -> String {
    let is_parameter = |part: &&str| part.starts_with('{');
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "v1").collect();
    let mut words: Vec<&str> = parts.iter().copied().filter(|part| !is_parameter(part)).collect();
    let ends_with_verb = method == "POST"
        && parts.iter().any(is_parameter)
        && parts.last().is_some_and(|last| !is_parameter(last));
    if !ends_with_verb {
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
            projects: ProjectSet::All,
            created_at: Utc.timestamp_opt(0, 0).unwrap(),
            created_by: "ann".to_owned(),
            expires_at: Some(Utc.timestamp_opt(100, 0).unwrap()),
            revoked_at: None,
            revoked_by: None,
            last_used_at: None,
        }
    }

    #[test]
    fn secret_round_trips_and_rejects_malformed_text() {
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
            assert_eq!(bad.parse::<Secret>(), Err(InvalidSecretError), "{bad}");
        }
    }

    #[test]
    fn secret_debug_output_hides_it_and_hashes_differ() {
        let secret = Secret::token([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "tm_…");
        let link = Secret::link([1; 32]);
        assert_eq!(format!("{link:?}"), "tml_…");
        assert!(Secret::is_link(link.reveal()) && !Secret::is_link(secret.reveal()) && !link.is_token());
        assert!(link.reveal().parse::<Secret>().is_err(), "a link is not a credential of a request");
        assert_eq!(secret.hash(), sha256_hex(secret.reveal().as_bytes()));
        assert_ne!(secret.hash(), secret.csrf());
        assert!(!InvalidSecretError.to_string().contains("ab"));
    }

    #[test]
    fn constant_time_eq_compares_whole_texts() {
        assert!(constant_time_eq("abc", "abc") && constant_time_eq("", ""));
        assert!(
            !constant_time_eq("abc", "abd") && !constant_time_eq("abc", "ab") && !constant_time_eq("", "a")
        );
    }

    #[test]
    fn token_is_good_until_expiry_or_revocation() {
        let end = token().expires_at.unwrap();
        assert_eq!(token_status(&token(), end - Duration::microseconds(1)), TokenStatus::Valid);
        assert_eq!(token_status(&token(), end), TokenStatus::Expired);
        let revoked = Token { revoked_at: Some(end), ..token() };
        assert_eq!(token_status(&revoked, end), TokenStatus::Revoked);
        assert_eq!(token_status(&Token { expires_at: None, ..token() }, end), TokenStatus::Valid);
    }

    #[test]
    fn new_token_check_reports_every_error() {
        let bad = NewToken {
            name: "\n".to_owned(),
            role: Role::Viewer,
            projects: ProjectSet::All,
            expires_in_secs: Some(0),
        };
        let ValidationError(errors) = bad.check().unwrap_err();
        assert_eq!(errors.len(), 3, "{errors:?}");
        let good = NewToken { name: "ci".to_owned(), expires_in_secs: Some(1), ..bad };
        assert_eq!(good.check(), Ok(()));
    }

    #[test]
    fn only_tokens_of_machines_name_several_projects() {
        let new = |role, projects| {
            NewToken { name: "ci".to_owned(), role, projects, expires_in_secs: None }.check().is_ok()
        };
        let many = (0..=TOKEN_PROJECTS_MAX).map(|number| number.to_string());
        let (most, too_many) = (ProjectSet::only(many.clone().skip(1)), ProjectSet::only(many));
        for role in Role::ALL.iter().copied() {
            assert!(new(role, ProjectSet::All) && new(role, ProjectSet::of(Some("a"))));
            assert_eq!(new(role, ProjectSet::only(["a", "b"])), role.is_machine(), "{role}");
            assert_eq!(new(role, most.clone()), role.is_machine(), "{role}");
            assert!(!new(role, ProjectSet::only(Vec::<String>::new())) && !new(role, too_many.clone()));
        }
    }

    #[test]
    fn action_is_derived_from_the_fixed_path_parts() {
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
