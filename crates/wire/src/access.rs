//! Tokens, signing in, and the record of what people did.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;
use tidemill_core::access::{Role, Token};
use uuid::Uuid;

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it is for, in a person's words.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The only project that its holder sees; all that the caller sees, if it is not named.
    #[serde(default)]
    pub project: Option<String>,
    /// How long it is good, if not for ever.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 315_360_000)))]
    pub expires_in_secs: Option<u64>,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenMade {
    /// The token.
    pub token: Token,
    /// Its secret, which is shown this once.
    pub secret: String,
}

impl std::fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenMade").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Which tokens to list, the youngest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListTokens {
    /// Of this project alone.
    pub project: Option<String>,
    /// The cursor of the page before.
    pub after: Option<Uuid>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Which part of the record of what people did to read, the latest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAudit {
    /// Of this project alone.
    pub project: Option<String>,
    /// The cursor of the page before.
    pub after: Option<i64>,
    /// At most so many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub limit: Option<u16>,
}

/// Signing in with a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The secret of the token.
    pub token: String,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

/// Who is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Session {
    /// Who is asking.
    pub caller: String,
    /// What they may do.
    pub role: Role,
    /// The only project that they see, if not all.
    pub project: Option<String>,
    /// What every request that changes something must carry, as `x-csrf-token` or as the field `csrf` of a form;
    /// nothing where the caller came with a token and not with a cookie.
    pub csrf: Option<String>,
    /// Until when the session lasts, where there is one.
    pub expires_at: Option<Timestamp>,
}
