//! The projects of a token, of its caller and of an agent.
//!
//! In JSON it is null for all projects, or the list of their names. An empty list contains no project.

use std::collections::BTreeSet;
use std::fmt;

/// Either all projects, or the named ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "Option<BTreeSet<String>>", into = "Option<BTreeSet<String>>")]
pub enum ProjectSet {
    All,
    Only(BTreeSet<String>),
}

impl ProjectSet {
    /// Returns the set of the named projects.
    pub fn only<P: Into<String>>(projects: impl IntoIterator<Item = P>) -> Self {
        Self::Only(projects.into_iter().map(Into::into).collect())
    }

    /// Returns the set of one project; `None` means all projects.
    pub fn of(project: Option<&str>) -> Self {
        project.map_or(Self::All, |project| Self::only([project]))
    }

    pub fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    pub fn contains(&self, project: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(own) => own.contains(project),
        }
    }

    /// Returns whether every project of the other set is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Only(_), Self::All) => false,
            (Self::Only(own), Self::Only(other)) => other.is_subset(own),
        }
    }

    /// Returns the named projects in order; `None` for all projects.
    pub fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::All => None,
            Self::Only(own) => Some(own.iter().cloned().collect()),
        }
    }

    /// Returns the project of a set that has exactly one.
    pub fn single(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::Only(own) => own.first().filter(|_| own.len() == 1).map(String::as_str),
        }
    }

    /// Returns the names, separated by commas, or `all`.
    pub fn list(&self) -> String {
        self.names().map_or_else(|| "all".to_owned(), |names| names.join(", "))
    }
}

impl From<Option<BTreeSet<String>>> for ProjectSet {
    fn from(names: Option<BTreeSet<String>>) -> Self {
        names.map_or(Self::All, Self::Only)
    }
}

impl From<ProjectSet> for Option<BTreeSet<String>> {
    fn from(set: ProjectSet) -> Self {
        match set {
            ProjectSet::All => None,
            ProjectSet::Only(own) => Some(own),
        }
    }
}

impl fmt::Display for ProjectSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.single()) {
            (Self::All, _) => f.write_str("all projects"),
            (Self::Only(_), Some(project)) => write!(f, "project {project}"),
            (Self::Only(_), None) => write!(f, "projects {}", self.list()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_set_contains_and_covers_its_projects_only() {
        let (all, none) = (ProjectSet::All, ProjectSet::only(Vec::<String>::new()));
        let (one, two) = (ProjectSet::of(Some("a")), ProjectSet::only(["b", "a"]));
        assert!(all.contains("a") && one.contains("a") && two.contains("b"));
        assert!(!one.contains("b") && !two.contains("c") && !none.contains("a"));
        assert!(all.covers(&all) && all.covers(&two) && two.covers(&one) && two.covers(&two));
        assert!(!two.covers(&all) && !one.covers(&two) && !none.covers(&one) && !none.covers(&all));
        assert_eq!((one.single(), two.single(), all.single(), none.single()), (Some("a"), None, None, None));
    }

    #[test]
    fn project_set_is_null_or_a_sorted_list_in_json() {
        for (set, text, words) in [
            (ProjectSet::All, "null", "all projects"),
            (ProjectSet::of(Some("a")), r#"["a"]"#, "project a"),
            (ProjectSet::only(["b", "a", "b"]), r#"["a","b"]"#, "projects a, b"),
            (ProjectSet::only(Vec::<String>::new()), "[]", "projects "),
        ] {
            assert_eq!(serde_json::to_string(&set).unwrap(), text);
            assert_eq!(serde_json::from_str::<ProjectSet>(text).unwrap(), set);
            assert_eq!(set.to_string(), words);
        }
    }
}
