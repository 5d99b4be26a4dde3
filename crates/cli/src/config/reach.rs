//! Configuration of `[reach]`: the lists of what projects may use outside the database.
//!
//! `[reach]` applies to every project, and `[reach.project.NAME]` to one. In an environment variable, the entries of a
//! list are separated by commas.

use crate::config::{Config, Key};
use std::fmt::Write as _;
use tidemill_core::ids::is_name;
use tidemill_core::limits::REACH_ENTRIES_MAX;
use tidemill_core::reach::{Reach, ReachKind, ReachList};

/// The key of the lists of single projects.
pub(crate) const PROJECTS: &str = "reach.project";

pub(crate) const KEYS: &[Key] = &[
    Key {
        path: "reach.environment",
        doc: "Environment variables that feeds of projects may use as secrets.",
        show: |config| show(config, ReachKind::Environment),
        set: |config, text| set(config, ReachKind::Environment, text),
    },
    Key {
        path: "reach.hosts",
        doc: "Hosts of feeds of projects: name, *.name, address or network, with an optional port.",
        show: |config| show(config, ReachKind::Hosts),
        set: |config, text| set(config, ReachKind::Hosts, text),
    },
    Key {
        path: "reach.tables",
        doc: "Tables that feeds of projects may write: SCHEMA.TABLE, or SCHEMA.* for all tables of a schema.",
        show: |config| show(config, ReachKind::Tables),
        set: |config, text| set(config, ReachKind::Tables, text),
    },
    Key {
        path: "reach.destinations",
        doc: "Destinations of watermark copies of projects: file:///directory/, s3://bucket/prefix/, az://container/.",
        show: |config| show(config, ReachKind::Destinations),
        set: |config, text| set(config, ReachKind::Destinations, text),
    },
    Key {
        path: "reach.hook-secrets",
        doc: "Environment variables that hooks of projects may use as secrets.",
        show: |config| show(config, ReachKind::HookSecrets),
        set: |config, text| set(config, ReachKind::HookSecrets, text),
    },
];

fn show(config: &Config, kind: ReachKind) -> String {
    format!("{:?}", config.reach.common.entries(kind))
}

fn set(config: &mut Config, kind: ReachKind, text: &str) -> Result<(), String> {
    config.reach.common.set(kind, text.split(',').map(str::trim).filter(|entry| !entry.is_empty()))
}

/// Returns the entries of a list as one text, as an environment variable contains them.
pub(crate) fn join(value: &toml::Value) -> Option<String> {
    let entries = value.as_array()?.iter().map(toml::Value::as_str).collect::<Option<Vec<&str>>>()?;
    let is_plain = |entry: &&str| !entry.is_empty() && !entry.contains(',');
    entries.iter().all(is_plain).then(|| entries.join(","))
}

/// Reads `[reach.project.NAME]` sections, and collects all errors.
pub(crate) fn read(value: &toml::Value, reach: &mut Reach, errors: &mut Vec<String>) {
    let Some(projects) = value.as_table().filter(|projects| projects.len() <= REACH_ENTRIES_MAX) else {
        errors.push(format!("{PROJECTS}: it must be at most {REACH_ENTRIES_MAX} sections [{PROJECTS}.NAME]"));
        return;
    };
    for (project, lists) in projects {
        let path = format!("{PROJECTS}.{project}");
        let Some(lists) = lists.as_table().filter(|_| is_name(project)) else {
            errors.push(format!("{path}: it must be a section [{PROJECTS}.NAME] with the name of a project"));
            continue;
        };
        let mut list = ReachList::default();
        for (name, entries) in lists {
            if let Err(problem) = read_list(&mut list, name, entries) {
                errors.push(format!("{path}.{name}: {problem}"));
            }
        }
        reach.projects.insert(project.clone(), list);
    }
}

fn read_list(list: &mut ReachList, name: &str, entries: &toml::Value) -> Result<(), String> {
    let kind: ReachKind = name.parse().map_err(|_| "it is not a configuration key".to_owned())?;
    let Some(text) = join(entries) else { return Err("it must be a list of strings".to_owned()) };
    list.set(kind, text.split(',').filter(|entry| !entry.is_empty()))
}

/// Describes the lists, one line for all projects and one for each.
pub(crate) fn describe(reach: &Reach) -> Vec<String> {
    let mut lines = vec![format!("every project: {}", describe_list(&reach.common))];
    lines.extend(
        reach.projects.iter().map(|(project, list)| format!("project {project}: {}", describe_list(list))),
    );
    lines
}

fn describe_list(list: &ReachList) -> String {
    let mut text = String::new();
    for kind in ReachKind::ALL {
        let entries = list.entries(*kind);
        if !entries.is_empty() {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{kind} {}", entries.join(", "));
        }
    }
    if text.is_empty() { "nothing".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Reach, Vec<String>) {
        let table: toml::Table = text.parse().unwrap();
        let (mut reach, mut errors) = (Reach::default(), Vec::new());
        read(&table["reach"]["project"], &mut reach, &mut errors);
        (reach, errors)
    }

    #[test]
    fn project_lists_are_read() {
        let (reach, errors) = parse(
            "[reach.project.shop]\nhosts = [\"127.0.0.1:8700\", \"*.example.com\"]\nhook-secrets = [\"SECRET\"]\n\
             [reach.project.bank]\nenvironment = []\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(
            describe(&reach),
            [
                "every project: nothing",
                "project bank: nothing",
                "project shop: hosts *.example.com, 127.0.0.1:8700; hook-secrets SECRET",
            ]
        );
    }

    #[test]
    fn all_errors_of_project_lists_are_reported() {
        let (_, errors) = parse(
            "[reach.project.shop]\nhost = [\"a\"]\nhosts = [\"https://a\"]\nenvironment = \"A\"\n\
             destinations = [\"a,b\"]\n[reach.project.Shop]\nhosts = []\n",
        );
        assert_eq!(errors.len(), 5, "{errors:?}");
        assert!(
            errors.iter().any(|error| error.contains("host: it is not a configuration key")),
            "{errors:?}"
        );
    }

    #[test]
    fn variable_contains_entries_separated_by_commas() {
        let mut config = Config::default();
        set(&mut config, ReachKind::Hosts, "a.example, b.example:443,").unwrap();
        assert_eq!(show(&config, ReachKind::Hosts), "[\"a.example\", \"b.example:443\"]");
        assert!(set(&mut config, ReachKind::Hosts, "*").is_err());
    }
}
