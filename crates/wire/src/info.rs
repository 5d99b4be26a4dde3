//! What a server says of itself.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;

/// A server, and who it takes the caller for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Info {
    /// The version of its binary.
    pub version: String,
    /// The database's time.
    pub now: Timestamp,
    /// Who is asking.
    pub caller: String,
    /// What they may do.
    pub role: String,
    /// The only project that they see, if not all.
    pub project: Option<String>,
}

/// Whether a server lives, or can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// One word.
    pub status: String,
}
