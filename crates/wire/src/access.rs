//! Tokens, browser sessions and the audit log.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;
use tidemill_core::access::{Role, Token};
use tidemill_core::project_set::ProjectSet;
use uuid::Uuid;

/// Request to create a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Purpose of the token, as a free text.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub name: String,
    /// Permissions of the token.
    pub role: Role,
    /// Projects that the token is limited to; by default all projects of the caller. Tokens of the roles `agent` and
    /// `worker` may name several, other tokens one.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub projects: Vec<String>,
    /// Whether the token is valid in all projects. A token of role `agent` names projects or sets this.
    #[serde(default)]
    pub all_projects: bool,
    /// Lifetime in seconds; without it the token never expires.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 315_360_000)))]
    pub expires_in_secs: Option<u64>,
}

/// A created token with its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NewTokenResponse {
    /// Token without its secret.
    pub token: Token,
    /// Secret of the token. It is shown only in this response.
    pub secret: String,
}

impl std::fmt::Debug for NewTokenResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewTokenResponse").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Filter of the list of tokens, newest first. A filter by project leaves out tokens of several projects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListTokens {
    /// Project to filter by.
    pub project: Option<String>,
    /// Cursor: `next` of the previous page.
    pub after: Option<Uuid>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Filter of the audit log, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAudit {
    /// Project to filter by.
    pub project: Option<String>,
    /// Cursor: `next` of the previous page.
    pub after: Option<i64>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Filter of the seals of the audit log, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListSeals {
    /// Cursor: `next` of the previous page.
    pub after: Option<i64>,
    /// Omits seals that were made before this time.
    pub since: Option<Timestamp>,
}

/// Filter of the audit entries that are not sealed yet, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListUnsealed {
    /// Cursor: `next` of the previous page.
    pub after: Option<i64>,
    /// Maximum number of entries.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// A request to sign in with a token or a one-time link.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// Secret of the token, or the code of a one-time link of a local server.
    pub token: String,
}

/// A link that signs in to the console once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SignInLink {
    /// Address to open in a browser.
    pub url: String,
    /// Time after which the link is refused.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for SignInLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignInLink").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

/// The session of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    /// Name of the caller.
    pub caller: String,
    /// Role of the caller.
    pub role: Role,
    /// Projects that the caller is limited to; null for all projects.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub projects: ProjectSet,
    /// CSRF token. Every request that changes something must send it as `x-csrf-token` or as the form field `csrf`.
    /// Null if the caller authenticated with a token instead of a cookie.
    pub csrf: Option<String>,
    /// End of the session, if there is one.
    pub expires_at: Option<Timestamp>,
}
