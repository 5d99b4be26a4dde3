//! Agents: processes that execute tasks of graphs and report on them.

use crate::Timestamp;
use crate::access::constant_time_eq;
use crate::isolation::IsolationReport;
use crate::label::labelled;
use crate::limits::AGENT_SILENT_SECS;
use crate::project_set::ProjectSet;
use chrono::TimeDelta;
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
    /// Projects whose jobs it executes; null for all projects.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<String>>"))]
    pub projects: ProjectSet,
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
    /// Projects whose jobs it executes.
    pub projects: ProjectSet,
    /// Token of the agent, if the server requires tokens. While it is valid, no other token may act for this agent.
    pub token_id: Option<Uuid>,
    /// Derived from the id of the process, which only that process knows.
    pub boot_id: Uuid,
    /// SHA-256 of the current secret of the agent's directory.
    pub secret_hash: String,
    /// SHA-256 of the secret that replaces it with this registration.
    pub next_secret_hash: String,
    /// Identifies the lock file of the agent's directory on its machine. Only one process at a time holds the lock.
    pub dir_lock: Option<String>,
    /// Mechanisms that isolate its tasks; `None` if the agent does not report them.
    pub isolation: Option<IsolationReport>,
}

/// State of a registered agent that decides about its next registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentBinding {
    /// Derived from the id of the current process.
    pub boot_id: Uuid,
    /// SHA-256 of the current secret of the agent's directory.
    pub secret_hash: String,
    /// Lock of the directory that the current process uses.
    pub dir_lock: Option<String>,
}

impl NewAgent {
    /// Returns whether this process knows the current secret of the agent's directory.
    ///
    /// A repeated registration proves it with the next secret, which its first attempt has made the current one. So a
    /// process that dies before it gets the response loses nothing: it stored both secrets before it sent them.
    pub fn is_proven(&self, secret_hash: &str) -> bool {
        let with_current = constant_time_eq(&self.secret_hash, secret_hash);
        let with_next = constant_time_eq(&self.next_secret_hash, secret_hash);
        with_current || with_next
    }

    /// Returns the seconds since the last heartbeat of another process that may still live, or `None` if this process
    /// may replace it.
    ///
    /// A process that holds the lock of the same directory replaces the former one at once: the kernel grants the lock
    /// to one process. A copy of the directory has another lock, and must wait until the agent is silent.
    pub fn blocked_by(&self, agent: &Agent, binding: &AgentBinding, now: Timestamp) -> Option<i64> {
        let silent_for = now - agent.seen_at;
        let is_alive = agent.left_at.is_none()
            && silent_for <= TimeDelta::seconds(i64::try_from(AGENT_SILENT_SECS).unwrap_or(i64::MAX));
        let is_successor = self.boot_id == binding.boot_id || self.dir_lock == binding.dir_lock;
        (is_alive && !is_successor).then(|| silent_for.num_seconds().max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::Mechanism;
    use chrono::{TimeZone as _, Utc};

    fn new_agent() -> NewAgent {
        NewAgent {
            agent_id: Uuid::nil(),
            name: "one".to_owned(),
            host: String::new(),
            labels: Vec::new(),
            capacity: 1,
            version: String::new(),
            projects: ProjectSet::All,
            token_id: None,
            boot_id: Uuid::from_u128(2),
            secret_hash: "a".repeat(64),
            next_secret_hash: "b".repeat(64),
            dir_lock: Some("here".to_owned()),
            isolation: None,
        }
    }

    #[test]
    fn registration_proves_the_current_secret_or_repeats_its_rotation() {
        let new = new_agent();
        assert!(new.is_proven(&"a".repeat(64)) && new.is_proven(&"b".repeat(64)));
        assert!(!new.is_proven(&"c".repeat(64)) && !new.is_proven(""));
    }

    #[test]
    fn copied_directory_waits_until_the_agent_is_silent() {
        let seen_at = Utc.timestamp_opt(1_000, 0).unwrap();
        let agent = Agent { registered_at: seen_at, seen_at, ..agent(None) };
        let binding = AgentBinding {
            boot_id: Uuid::from_u128(1),
            secret_hash: "a".repeat(64),
            dir_lock: Some("there".to_owned()),
        };
        let (copy, soon) = (new_agent(), seen_at + TimeDelta::seconds(20));
        assert_eq!(copy.blocked_by(&agent, &binding, soon), Some(20));
        assert_eq!(copy.blocked_by(&agent, &binding, soon + TimeDelta::seconds(1)), None);
        let left = Agent { left_at: Some(seen_at), ..agent.clone() };
        assert_eq!(copy.blocked_by(&left, &binding, soon), None);
        let unlocked = NewAgent { dir_lock: None, ..copy.clone() };
        assert_eq!(unlocked.blocked_by(&agent, &binding, soon), Some(20));
        for successor in [
            NewAgent { dir_lock: binding.dir_lock.clone(), ..copy.clone() },
            NewAgent { boot_id: binding.boot_id, ..copy },
        ] {
            assert_eq!(successor.blocked_by(&agent, &binding, soon), None);
        }
    }

    fn agent(isolation: Option<IsolationReport>) -> Agent {
        let now = Timestamp::from_timestamp(1_000_000, 0).unwrap();
        Agent {
            agent_id: Uuid::nil(),
            name: "one".to_owned(),
            host: "host".to_owned(),
            labels: Vec::new(),
            capacity: 1,
            version: "1".to_owned(),
            projects: ProjectSet::All,
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
