//! Agents: processes that execute tasks of graphs and report on them.

use crate::Timestamp;
use crate::isolation::IsolationReport;
use crate::label::labelled;
use crate::limits::AGENT_SILENT_SECS;
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
    /// Mechanisms that isolate its tasks; null if the agent does not report them.
    pub isolation: Option<IsolationReport>,
}

labelled! {
    /// The isolation of an agent's tasks in one word.
    "isolation level" IsolationLevel {
        Full = "full",
        Partial = "partial",
        None = "none",
        /// The agent does not report its isolation.
        Unknown = "unknown",
    }
}

impl Agent {
    /// Whether the agent has not signed off and sent a heartbeat recently.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        let silent = (now - self.seen_at).num_seconds();
        self.left_at.is_none() && silent < i64::try_from(AGENT_SILENT_SECS).unwrap_or(i64::MAX)
    }

    pub fn isolation_level(&self) -> IsolationLevel {
        let Some(report) = &self.isolation else { return IsolationLevel::Unknown };
        let mechanisms = report.mechanisms();
        let holding = mechanisms.iter().filter(|(_, mechanism)| mechanism.holds()).count();
        match holding {
            0 => IsolationLevel::None,
            count if count == mechanisms.len() => IsolationLevel::Full,
            _ => IsolationLevel::Partial,
        }
    }
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
    /// Mechanisms that isolate its tasks; `None` if the agent does not report them.
    pub isolation: Option<IsolationReport>,
}

impl NewAgent {
    /// Returns whether this process knows the secret of the registered agent and has the same project scope.
    pub fn is_proven(&self, secret_hash: Option<&str>, project_id: Option<&str>) -> bool {
        let is_equal = |(ours, known): (&String, &str)| ours.as_bytes().ct_eq(known.as_bytes()).into();
        self.project_id.as_deref() == project_id
            && self.secret_hash.as_ref().zip(secret_hash).is_some_and(is_equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::Mechanism;

    fn agent(isolation: Option<IsolationReport>) -> Agent {
        let now = Timestamp::from_timestamp(1_000_000, 0).unwrap();
        Agent {
            agent_id: Uuid::nil(),
            name: "one".to_owned(),
            host: "host".to_owned(),
            labels: Vec::new(),
            capacity: 1,
            version: "1".to_owned(),
            project_id: None,
            boot_id: Uuid::nil(),
            draining: false,
            registered_at: now,
            seen_at: now,
            left_at: None,
            isolation,
        }
    }

    #[test]
    fn isolation_level_counts_the_mechanisms_that_hold() {
        assert_eq!(agent(None).isolation_level(), IsolationLevel::Unknown);
        let mut report = IsolationReport::none("not root");
        assert_eq!(agent(Some(report.clone())).isolation_level(), IsolationLevel::None);
        report.cpu = Mechanism::Holds;
        assert_eq!(agent(Some(report.clone())).isolation_level(), IsolationLevel::Partial);
        for mechanism in [
            &mut report.user_ids,
            &mut report.pid_namespace,
            &mut report.mount_namespace,
            &mut report.cgroup_kill,
            &mut report.memory,
            &mut report.processes,
        ] {
            *mechanism = Mechanism::Holds;
        }
        assert_eq!(agent(Some(report)).isolation_level(), IsolationLevel::Full);
    }

    #[test]
    fn agent_is_alive_until_it_is_silent_or_signs_off() {
        let mut agent = agent(None);
        let silent = chrono::TimeDelta::seconds(i64::try_from(AGENT_SILENT_SECS).unwrap());
        assert!(agent.is_alive(agent.seen_at) && !agent.is_alive(agent.seen_at + silent));
        agent.left_at = Some(agent.seen_at);
        assert!(!agent.is_alive(agent.seen_at));
    }
}
