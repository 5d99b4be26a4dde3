//! Projects, environments and flags.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;
use tidemill_core::project::FlagName;

/// A project to create, or environments to add to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutProject {
    /// Environments that the project must have; existing ones are not removed.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), inner(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$")))
    )]
    pub environments: Vec<String>,
}

/// The project after the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PutProjectResponse {
    /// Id of the project.
    pub project_id: String,
    /// Names of all its environments.
    pub environments: Vec<String>,
    /// Whether this call created the project or an environment.
    pub created: bool,
}

/// A request to pause a project or a feed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Reason, for other operators.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
    /// Time at which it ends by itself.
    #[serde(default)]
    pub until_at: Option<Timestamp>,
}

/// The outcome of a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResumeResponse {
    /// Whether it was paused until now.
    pub resumed: bool,
}

/// A flag to set or change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetFlag {
    /// Name of the flag.
    pub flag: FlagName,
    /// Scope of the flag: `project:ID`, `feed:NAME`, `lane:LANE` or `site`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(
            pattern = r"^((project|feed):[a-z0-9][a-z0-9-]{0,127}|lane:(ops|graph|sync)|site)$"
        ))
    )]
    pub scope: String,
    /// Reason, for other operators.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
    /// Time at which it ends by itself.
    #[serde(default)]
    pub until_at: Option<Timestamp>,
}

/// Request to clear a flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClearFlag {
    /// Name of the flag.
    pub flag: FlagName,
    /// Scope of the flag: `project:ID`, `feed:NAME`, `lane:LANE` or `site`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(
            pattern = r"^((project|feed):[a-z0-9][a-z0-9-]{0,127}|lane:(ops|graph|sync)|site)$"
        ))
    )]
    pub scope: String,
}
