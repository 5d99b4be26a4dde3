//! The lists of one project, or of all projects.

use super::{DestinationRule, HostRule, ReachKind, TableRule, Use};
use crate::limits::{NAME_BYTES_MAX, REACH_ENTRIES_MAX};
use std::collections::BTreeSet;

/// Entries of the lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReachList {
    pub environment: BTreeSet<String>,
    pub hosts: BTreeSet<HostRule>,
    pub tables: BTreeSet<TableRule>,
    pub destinations: BTreeSet<DestinationRule>,
    pub hook_secrets: BTreeSet<String>,
}

impl ReachList {
    /// Replaces the entries of one list. Reports the first invalid entry.
    pub fn set<'a>(
        &mut self,
        kind: ReachKind,
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), String> {
        let entries: Vec<&str> = entries.into_iter().collect();
        if entries.len() > REACH_ENTRIES_MAX {
            return Err(format!("it has {} entries; at most {REACH_ENTRIES_MAX} are allowed", entries.len()));
        }
        let entries = entries.into_iter();
        match kind {
            ReachKind::Environment => self.environment = entries.map(variable).collect::<Result<_, _>>()?,
            ReachKind::Hosts => self.hosts = entries.map(str::parse).collect::<Result<_, _>>()?,
            ReachKind::Tables => self.tables = entries.map(str::parse).collect::<Result<_, _>>()?,
            ReachKind::Destinations => {
                self.destinations = entries.map(str::parse).collect::<Result<_, _>>()?;
            }
            ReachKind::HookSecrets => self.hook_secrets = entries.map(variable).collect::<Result<_, _>>()?,
        }
        Ok(())
    }

    /// Returns the entries of one list as texts.
    pub fn entries(&self, kind: ReachKind) -> Vec<String> {
        match kind {
            ReachKind::Environment => self.environment.iter().cloned().collect(),
            ReachKind::Hosts => self.hosts.iter().map(ToString::to_string).collect(),
            ReachKind::Tables => self.tables.iter().map(ToString::to_string).collect(),
            ReachKind::Destinations => self.destinations.iter().map(ToString::to_string).collect(),
            ReachKind::HookSecrets => self.hook_secrets.iter().cloned().collect(),
        }
    }

    /// Returns whether the list of its kind contains a use.
    pub(super) fn contains(&self, used: &Use<'_>) -> bool {
        match used {
            Use::Environment(name) => self.environment.contains(*name),
            Use::Host { host, port } => self.hosts.iter().any(|rule| rule.allows(host, *port)),
            Use::Table(name) => self.tables.iter().any(|rule| rule.allows(name)),
            Use::Destination(url) => self.destinations.iter().any(|rule| rule.allows(url)),
            Use::HookSecret(name) => self.hook_secrets.contains(*name),
        }
    }
}

fn variable(name: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let shown: String = name.chars().take(64).collect();
        return Err(format!("`{shown}` is not the name of an environment variable"));
    }
    Ok(name.to_owned())
}
