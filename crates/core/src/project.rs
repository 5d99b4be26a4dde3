//! Projects, their environments, and the flags that hold them.

use crate::Timestamp;
use crate::ids::is_name;
use crate::label::labelled;

/// A project as it is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Project {
    /// Its id, which is also its name.
    pub project_id: String,
    /// The names of its environments.
    pub environments: Vec<String>,
    /// What holds it, if anything does.
    pub paused: Option<Flag>,
    /// When it was made.
    pub created_at: Timestamp,
}

labelled! {
    /// What a flag does.
    "flag" FlagName {
        /// No run is claimed, and no job begins.
        Paused = "paused",
        /// The database is under maintenance: jobs that use it are stopped, and wait.
        Maintenance = "maintenance",
        /// The site is about to restart: jobs are stopped, and wait.
        Reboot = "reboot",
        /// What probes find does not count.
        ProbeOff = "probe_off",
    }
}

labelled! {
    /// Who switched a flag on.
    #[derive(Default)]
    "source of a flag" FlagSource {
        /// A person.
        #[default]
        Manual = "manual",
        /// A probe of an agent: it never changes what a person set.
        Probe = "probe",
    }
}

/// The scope of flags that hold everything here.
pub const SITE_SCOPE: &str = "site";
/// The scope of flags that hold all graphs.
pub const GRAPH_SCOPE: &str = "lane:graph";

/// Something that a person switched on, with a note for the others.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flag {
    /// What it does.
    pub flag: FlagName,
    /// What it holds: `project:ID`, `lane:ops`, `lane:graph` or `site`.
    pub scope: String,
    /// Why, for the others.
    pub note: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Until when, if it ends by itself.
    pub until_at: Option<Timestamp>,
    /// Who switched it on.
    pub set_by: Option<String>,
    /// Whether that is a person or a probe.
    #[serde(default)]
    pub source: FlagSource,
}

impl Flag {
    /// Whether it holds anything at `now`.
    pub fn is_on(&self, now: Timestamp) -> bool {
        self.until_at.is_none_or(|until| until > now)
    }
}

/// The scope of a project's flags.
pub fn project_scope(project: &str) -> String {
    format!("project:{project}")
}

/// The environment that a hint creates where the request names none.
const HINT_ENV: &str = "production";

/// The command to paste after a project was not found: it creates the project, or lists those that exist where the
/// name is one that no project can have.
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
    fn unknown_project_hint_holds_only_names() {
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
