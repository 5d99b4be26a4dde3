//! Projects, their environments, and flags such as `paused`.

use crate::Timestamp;
use crate::ids::is_name;
use crate::label::labelled;

/// A project with its environments.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Project {
    /// Id of the project, which is also its name.
    pub project_id: String,
    /// Names of its environments.
    pub environments: Vec<String>,
    /// Pause flag of the project; null if it is not paused.
    pub paused: Option<Flag>,
    pub created_at: Timestamp,
}

labelled! {
    /// The effect of a flag.
    "flag" FlagName {
        /// No run is claimed and no job starts.
        Paused = "paused",
        /// The database is under maintenance: jobs that use it are stopped and wait.
        Maintenance = "maintenance",
        /// The site is about to restart: jobs are stopped and wait.
        Reboot = "reboot",
        /// Results of probes are ignored.
        ProbeOff = "probe_off",
    }
}

labelled! {
    /// The origin of a flag.
    #[derive(Default)]
    "source of a flag" FlagSource {
        #[default]
        Manual = "manual",
        /// A probe of an agent set it. Probes never change flags of operators.
        Probe = "probe",
    }
}

/// Scope of flags for the whole site.
pub const SITE_SCOPE: &str = "site";
/// Scope of flags for all graphs.
pub const GRAPH_SCOPE: &str = "lane:graph";

/// A flag that is set.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flag {
    /// Name of the flag.
    pub flag: FlagName,
    /// Scope: `project:ID`, `lane:ops`, `lane:graph` or `site`.
    pub scope: String,
    /// Reason, for other operators.
    pub note: Option<String>,
    /// Time at which it was set.
    pub since: Timestamp,
    /// Time at which it ends by itself; null if it must be cleared.
    pub until_at: Option<Timestamp>,
    /// Name of the caller who set it.
    pub set_by: Option<String>,
    /// Origin: an operator or a probe.
    #[serde(default)]
    pub source: FlagSource,
}

impl Flag {
    /// Returns whether the flag is in effect at `now`.
    pub fn is_on(&self, now: Timestamp) -> bool {
        self.until_at.is_none_or(|until| until > now)
    }
}

/// Returns the scope of a project's flags.
pub fn project_scope(project: &str) -> String {
    format!("project:{project}")
}

/// The environment in a hint if the request does not name one.
const HINT_ENV: &str = "production";

/// Returns the hint for an unknown project: the command that creates it, or the command that lists all projects if the
/// name is invalid.
pub fn unknown_project_hint(project: &str, env: Option<&str>) -> String {
    if !is_name(project) {
        return LIST_PROJECTS.to_owned();
    }
    let env = env.filter(|env| is_name(env)).unwrap_or(HINT_ENV);
    format!("tidemill project create {project} --env {env}")
}

/// The command that lists the projects.
pub const LIST_PROJECTS: &str = "tidemill project list";

#[cfg(test)]
mod tests {
    use super::unknown_project_hint;

    #[test]
    fn unknown_project_hint_contains_only_valid_names() {
        for (project, env, hint) in [
            ("shop", Some("staging"), "tidemill project create shop --env staging"),
            ("shop", None, "tidemill project create shop --env production"),
            ("shop", Some("x; reboot"), "tidemill project create shop --env production"),
            ("shop", Some(""), "tidemill project create shop --env production"),
            ("no shop", Some("staging"), "tidemill project list"),
            ("--help", None, "tidemill project list"),
            ("", None, "tidemill project list"),
        ] {
            assert_eq!(unknown_project_hint(project, env), hint, "{project:?} {env:?}");
        }
    }
}
