//! The reach of the server: environment variables, hosts, tables, destinations and hook secrets that projects may use.
//!
//! Feeds and hooks make the server read its environment, connect to hosts, and write tables and files. The operator
//! lists in the configuration what the definitions of projects may use, for every project and for single ones. A
//! definition of the operator, who has direct access to the database, needs no list.

mod destination;
mod host;
mod list;
mod table;

pub use destination::DestinationRule;
pub use host::{HostRule, HostRules};
pub use list::ReachList;
pub use table::TableRule;

use crate::feed_definition::TableName;
use crate::label::labelled;
use std::collections::BTreeMap;
use std::fmt;

labelled! {
    /// The author of a definition.
    "author of a definition" DefinedBy {
        /// A person with direct access to the database. The lists do not apply.
        Operator = "operator",
        /// A caller of the HTTP API with a token. The lists apply at every use.
        Project = "project",
    }
}

labelled! {
    /// A list of the configuration, by its key.
    "list of the section reach" ReachKind {
        /// Variables that contain passwords and other secrets of feeds.
        Environment = "environment",
        /// Hosts and addresses of endpoints.
        Hosts = "hosts",
        /// Tables of the database that feeds write.
        Tables = "tables",
        /// Files and objects to which watermarks are copied.
        Destinations = "destinations",
        /// Variables that contain secrets of hooks.
        HookSecrets = "hook-secrets",
    }
}

/// Something outside the database that a definition uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use<'a> {
    /// Variable with a secret of a feed.
    Environment(&'a str),
    /// Endpoint of a feed.
    Host {
        /// Name or address, without brackets.
        host: &'a str,
        port: u16,
    },
    /// Table that a feed writes.
    Table(&'a TableName),
    /// URL of a watermark's copy.
    Destination(&'a str),
    /// Variable with the secret of a hook.
    HookSecret(&'a str),
}

impl Use<'_> {
    /// Returns the list that must contain it.
    const fn kind(&self) -> ReachKind {
        match self {
            Self::Environment(_) => ReachKind::Environment,
            Self::Host { .. } => ReachKind::Hosts,
            Self::Table(_) => ReachKind::Tables,
            Self::Destination(_) => ReachKind::Destinations,
            Self::HookSecret(_) => ReachKind::HookSecrets,
        }
    }
}

impl fmt::Display for Use<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(text) | Self::HookSecret(text) | Self::Destination(text) => f.write_str(text),
            Self::Table(name) => name.fmt(f),
            Self::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// The lists of all projects. The default lists nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reach {
    /// Entries for every project.
    #[serde(flatten)]
    pub common: ReachList,
    /// Entries for single projects.
    #[serde(rename = "project")]
    pub projects: BTreeMap<String, ReachList>,
}

impl Reach {
    /// Returns the lists that apply to a project.
    fn lists(&self, project: &str) -> impl Iterator<Item = &ReachList> {
        [Some(&self.common), self.projects.get(project)].into_iter().flatten()
    }

    /// Returns the hosts that a project may use.
    pub fn hosts(&self, project: &str) -> HostRules {
        HostRules(self.lists(project).flat_map(|list| &list.hosts).cloned().collect())
    }

    /// Checks that a project may use all of these, and reports every one that it may not.
    pub fn check<'a>(
        &self,
        project: &str,
        uses: impl IntoIterator<Item = Use<'a>>,
    ) -> Result<(), ReachError> {
        let is_listed = |used: &Use<'_>| self.lists(project).any(|list| list.contains(used));
        let refused: Vec<RefusedUse> = uses
            .into_iter()
            .filter(|used| !is_listed(used))
            .map(|used| RefusedUse { kind: used.kind(), value: used.to_string() })
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        Err(ReachError { project: project.to_owned(), refused })
    }
}

/// Something that a project may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedUse {
    /// List that does not contain it.
    pub kind: ReachKind,
    pub value: String,
}

/// A definition of a project that uses something outside its lists.
///
/// The message depends on the lists alone. It does not reveal whether a variable is set or a file exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachError {
    pub project: String,
    /// All uses that no list contains, at least one.
    pub refused: Vec<RefusedUse>,
}

impl ReachError {
    /// Returns the change of the configuration that would allow it.
    pub fn hint(&self) -> String {
        let project = &self.project;
        let keys = self.refused.iter().map(|used| {
            format!("`{}` to reach.{} or reach.project.{project}.{}", used.value, used.kind, used.kind)
        });
        let keys: Vec<String> = keys.collect();
        format!("the operator can add {} in the configuration of the server", keys.join(", "))
    }
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uses = self.refused.iter().map(|used| {
            let noun = match used.kind {
                ReachKind::Environment => "environment variable",
                ReachKind::Hosts => "host",
                ReachKind::Tables => "table",
                ReachKind::Destinations => "destination",
                ReachKind::HookSecrets => "hook secret",
            };
            format!("{noun} `{}`", used.value)
        });
        let uses: Vec<String> = uses.collect();
        write!(f, "project `{}` may not use {}", self.project, uses.join(", "))
    }
}

impl std::error::Error for ReachError {}

#[cfg(test)]
mod tests;
