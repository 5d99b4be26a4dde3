//! A process that carries out tasks of graphs, and only reports.

use crate::Timestamp;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// An agent as it is kept. It stays the same over restarts: its id lives in its directory.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Agent {
    /// Its id.
    pub agent_id: Uuid,
    /// A name for people.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// What it offers.
    pub labels: Vec<String>,
    /// How much it carries at once, counted in weights of jobs.
    pub capacity: i32,
    /// The version of its binary.
    pub version: String,
    /// The only project whose jobs it gets, if not those of all.
    pub project_id: Option<String>,
    /// The process that speaks for it now: an earlier one of the same id is refused.
    pub boot_id: Uuid,
    /// Whether it gets no new tasks.
    pub draining: bool,
    /// When it first registered.
    pub registered_at: Timestamp,
    /// When it last said that it lives.
    pub seen_at: Timestamp,
    /// When it said goodbye, and what it holds waits for it.
    pub left_at: Option<Timestamp>,
}

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgent {
    /// Its id.
    pub agent_id: Uuid,
    /// A name for people.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
    /// What it offers.
    pub labels: Vec<String>,
    /// How much it carries at once.
    pub capacity: i32,
    /// The version of its binary.
    pub version: String,
    /// The only project whose jobs it gets, if not those of all.
    pub project_id: Option<String>,
    /// The token that it comes with, where tokens are asked for: no other token may speak for it while this is good.
    pub token_id: Option<Uuid>,
    /// The process that speaks.
    pub boot_id: Uuid,
    /// SHA-256 of what only its directory knows, where it said that.
    pub secret_hash: Option<String>,
}

impl NewAgent {
    /// Whether it comes from the directory of the agent that is known, and works for the same projects.
    pub fn is_proven(&self, secret_hash: Option<&str>, project_id: Option<&str>) -> bool {
        let is_same = |(ours, known): (&String, &str)| ours.as_bytes().ct_eq(known.as_bytes()).into();
        self.project_id.as_deref() == project_id
            && self.secret_hash.as_ref().zip(secret_hash).is_some_and(is_same)
    }
}
