//! The isolation of an agent's tasks: the mechanisms that hold on its machine.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Result of a check whether one mechanism works on a machine: `yes`, or the reason why it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mechanism {
    Holds,
    /// The reason why it does not hold, as a sentence part for people.
    Missing(String),
}

/// Text of a mechanism that holds.
const YES: &str = "yes";
/// Longer reasons are cut.
const REASON_CHARS_MAX: usize = 300;

impl Mechanism {
    /// A mechanism that does not hold, with a reason of limited length.
    pub fn missing(reason: impl fmt::Display) -> Self {
        Self::from(reason.to_string().as_str())
    }

    pub const fn holds(&self) -> bool {
        matches!(self, Self::Holds)
    }

    /// The reason why it does not hold.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Holds => None,
            Self::Missing(reason) => Some(reason),
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason().unwrap_or(YES))
    }
}

impl From<&str> for Mechanism {
    fn from(text: &str) -> Self {
        if text == YES {
            return Self::Holds;
        }
        Self::Missing(text.chars().filter(|symbol| !symbol.is_control()).take(REASON_CHARS_MAX).collect())
    }
}

impl Serialize for Mechanism {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mechanism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?.as_str()))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Mechanism {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Mechanism".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "`yes` if the mechanism holds, otherwise the reason why it does not.",
        })
    }
}

/// The mechanisms that separate the tasks of an agent from the agent and from each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IsolationReport {
    /// Each task has a user id of its own, which the agent and other tasks do not have.
    pub user_ids: Mechanism,
    /// A task sees and signals its own processes only, and none of them outlives it.
    pub pid_namespace: Mechanism,
    /// A task cannot see the files of the agent, its credentials and other tasks.
    pub mount_namespace: Mechanism,
    /// A control group holds all processes of a task, and its `cgroup.kill` ends them.
    pub cgroup_kill: Mechanism,
    /// The memory of all processes of a task together is limited.
    pub memory: Mechanism,
    /// The number of processes of a task is limited.
    pub processes: Mechanism,
    /// The CPU share of a task is limited.
    pub cpu: Mechanism,
}

impl IsolationReport {
    /// A report in which no mechanism holds, for one reason.
    pub fn none(reason: &str) -> Self {
        let missing = || Mechanism::missing(reason);
        Self {
            user_ids: missing(),
            pid_namespace: missing(),
            mount_namespace: missing(),
            cgroup_kill: missing(),
            memory: missing(),
            processes: missing(),
            cpu: missing(),
        }
    }

    /// The mechanisms with their names, in a fixed order.
    pub fn mechanisms(&self) -> [(&'static str, &Mechanism); 7] {
        [
            ("user ids", &self.user_ids),
            ("PID namespace", &self.pid_namespace),
            ("mount namespace", &self.mount_namespace),
            ("cgroup.kill", &self.cgroup_kill),
            ("memory limit", &self.memory),
            ("process limit", &self.processes),
            ("CPU limit", &self.cpu),
        ]
    }

    /// The mechanisms without which tasks of different people must not share an agent, if they do not hold.
    pub fn missing_boundaries(&self) -> Vec<(&'static str, &str)> {
        let boundaries = [
            ("user ids", &self.user_ids),
            ("PID namespace", &self.pid_namespace),
            ("mount namespace", &self.mount_namespace),
        ];
        boundaries
            .into_iter()
            .filter_map(|(name, mechanism)| mechanism.reason().map(|reason| (name, reason)))
            .collect()
    }
}

/// Lists the mechanisms that hold, then the others with their reasons.
impl fmt::Display for IsolationReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holding, missing): (Vec<_>, Vec<_>) =
            self.mechanisms().into_iter().partition(|(_, mechanism)| mechanism.holds());
        let names: Vec<&str> = holding.iter().map(|(name, _)| *name).collect();
        formatter.write_str(if names.is_empty() { "none" } else { "" })?;
        formatter.write_str(&names.join(", "))?;
        for (name, mechanism) in missing {
            write!(formatter, "; no {name}: {mechanism}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_an_object_of_yes_and_reasons() {
        let mut report = IsolationReport::none("not root");
        report.pid_namespace = Mechanism::Holds;
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["pid_namespace"], &json["cpu"]), (&"yes".into(), &"not root".into()));
        assert_eq!(serde_json::from_value::<IsolationReport>(json).unwrap(), report);
    }

    #[test]
    fn report_names_missing_boundaries_with_reasons() {
        let mut report = IsolationReport::none("not root");
        report.pid_namespace = Mechanism::Holds;
        assert_eq!(report.missing_boundaries(), [("user ids", "not root"), ("mount namespace", "not root")]);
        let shown = report.to_string();
        assert!(shown.starts_with("PID namespace; no user ids: not root; no mount namespace"), "{shown}");
    }

    #[test]
    fn reasons_are_cut_and_hold_no_control_characters() {
        let Mechanism::Missing(reason) = Mechanism::missing("\u{1b}[31m".repeat(200)) else { panic!() };
        assert!(reason.chars().count() == 300 && !reason.contains('\u{1b}'), "{reason:?}");
    }
}
