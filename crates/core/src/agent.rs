//! Agents: processes that execute tasks of graphs and report on them.

use crate::Timestamp;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// A registered agent. Its id is stored in its directory, so it survives restarts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Agent {
    /// Id of the agent.
    pub agent_id: Uuid,
    pub name: String,
    /// Host name of the machine.
    pub host: String,
    /// Labels that jobs can require.
    pub labels: Vec<String>,
    /// Total weight of the jobs that it executes at the same time.
    pub capacity: i32,
    /// Version of its binary.
    pub version: String,
    /// Project whose jobs it executes; null for all projects.
    pub project_id: Option<String>,
    /// Id of the current process. Calls of earlier processes of the same agent are rejected.
    pub boot_id: Uuid,
    /// Whether it receives no new tasks.
    pub draining: bool,
    /// Time of the first registration.
    pub registered_at: Timestamp,
    /// Time of the last heartbeat.
    pub seen_at: Timestamp,
    /// Time at which it signed off; its unfinished tasks wait for its return.
    pub left_at: Option<Timestamp>,
}

/// The registration of an agent process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAgent {
    pub agent_id: Uuid,
    pub name: String,
    pub host: String,
    pub labels: Vec<String>,
    /// Total weight of the jobs that it executes at the same time.
    pub capacity: i32,
    /// Version of its binary.
    pub version: String,
    /// Project whose jobs it executes; `None` for all projects.
    pub project_id: Option<String>,
    /// Token of the agent, if the server requires tokens. While it is valid, no other token may act for this agent.
    pub token_id: Option<Uuid>,
    /// Id of the process.
    pub boot_id: Uuid,
    /// SHA-256 of the secret in the agent's directory, if the agent sent one.
    pub secret_hash: Option<String>,
}

impl NewAgent {
    /// Returns whether this process knows the secret of the registered agent and has the same project scope.
    pub fn is_proven(&self, secret_hash: Option<&str>, project_id: Option<&str>) -> bool {
        let is_equal = |(ours, known): (&String, &str)| ours.as_bytes().ct_eq(known.as_bytes()).into();
        self.project_id.as_deref() == project_id
            && self.secret_hash.as_ref().zip(secret_hash).is_some_and(is_equal)
    }
}
