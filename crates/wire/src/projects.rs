//! Projects with their environments, and the flags that hold them.

use serde::{Deserialize, Serialize};
use tidemill_core::Timestamp;
use tidemill_core::project::FlagName;

/// A project to make, or environments to add to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PutProject {
    /// The environments that it has at least.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), inner(regex(pattern = r"^[a-z0-9][a-z0-9-]{0,127}$")))
    )]
    pub environments: Vec<String>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProjectPut {
    /// The project.
    pub project_id: String,
    /// All of its environments.
    pub environments: Vec<String>,
    /// Whether anything of it was made by this call.
    pub created: bool,
}

/// A hold on a project or a feed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Why, for the others.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
    /// Until when, if it ends by itself.
    #[serde(default)]
    pub until_at: Option<Timestamp>,
}

/// What a resume did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resumed {
    /// Whether something was held until now.
    pub resumed: bool,
}

/// A flag to switch on, or to change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetFlag {
    /// What it does.
    pub flag: FlagName,
    /// What it holds: `project:ID`, `feed:NAME`, `lane:LANE` or `site`.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(
            pattern = r"^((project|feed):[a-z0-9][a-z0-9-]{0,127}|lane:(ops|graph|sync)|site)$"
        ))
    )]
    pub scope: String,
    /// Why, for the others.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub note: Option<String>,
    /// Until when, if it ends by itself.
    #[serde(default)]
    pub until_at: Option<Timestamp>,
}

/// A flag to switch off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClearFlag {
    /// What it does.
    pub flag: FlagName,
    /// What it holds.
    #[cfg_attr(
        feature = "schema",
        schemars(regex(
            pattern = r"^((project|feed):[a-z0-9][a-z0-9-]{0,127}|lane:(ops|graph|sync)|site)$"
        ))
    )]
    pub scope: String,
}
