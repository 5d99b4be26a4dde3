//! Checks the SQL files of the store: every file is used, differences between the databases have a reason, and both
//! databases have the same migrations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Finding;
use crate::workspace::{file_name, files, has_extension};

const DIALECTS: [&str; 2] = ["postgres", "sqlite"];
/// The comment of a section that exists once for each database.
const DIFFERS: &str = "-- Differs: ";
/// The comment of a kernel file that the other database does not have.
const ONLY: [&str; 2] = ["PostgreSQL only: ", "SQLite only: "];

/// Returns one finding for each rule that a `.sql` file of the store breaks.
pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let store = root.join("crates/store");
    if !store.exists() {
        return Ok(Vec::new());
    }
    let all = files(&store)?;
    let mut code = String::new();
    for path in all.iter().filter(|path| has_extension(path, "rs") && path.starts_with(store.join("src"))) {
        // A name in a comment does not include the file.
        for line in fs::read_to_string(path)?.lines().filter(|line| !line.trim_start().starts_with("//")) {
            code.push_str(line);
            code.push('\n');
        }
    }
    let mut findings = Vec::new();
    for path in all.iter().filter(|path| has_extension(path, "sql")) {
        let mut add = |line, message| findings.push(Finding::below(root, path, line, message));
        let below = path.strip_prefix(&store).unwrap_or(path);
        if !code.contains(&format!("{}\"", below.display())) {
            add(1, "no code of crates/store/src includes this file; include it or delete it".to_owned());
        }
        if path.starts_with(store.join("migrations")) {
            if let Some(dialect) = missing_twin(path, &all) {
                add(1, format!("migrations/{dialect} has no file of this name; add it"));
            }
            continue;
        }
        let text = fs::read_to_string(path)?;
        if path.starts_with(store.join("sql/kernel")) {
            let has_reason =
                text.replace("\n-- ", " ").lines().any(|line| ONLY.iter().any(|only| line.contains(only)));
            if let Some(dialect) = missing_twin(path, &all).filter(|_| !has_reason) {
                add(
                    1,
                    format!("kernel/{dialect} has no file of this name; add it, or a comment `{}…`", ONLY[0]),
                );
            }
            continue;
        }
        for (line, message) in section_findings(&text) {
            add(line, message);
        }
    }
    Ok(findings)
}

/// The database that has no file of this name, if there is one.
fn missing_twin(path: &Path, all: &[PathBuf]) -> Option<&'static str> {
    let own = path.parent().map(file_name)?;
    let directory = path.parent()?.parent()?;
    let mut others = DIALECTS.into_iter().filter(|dialect| *dialect != own);
    others.find(|dialect| !all.contains(&directory.join(dialect).join(file_name(path))))
}

/// The findings of sections such as `-- name: run_lock (postgres)`, with their lines.
fn section_findings(text: &str) -> Vec<(usize, String)> {
    let mut pairs: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    let mut reasons: BTreeMap<&str, bool> = BTreeMap::new();
    let mut current = None;
    for (number, line) in text.lines().enumerate() {
        let heading = line.strip_prefix("-- name: ").or_else(|| line.strip_prefix("-- fragment: "));
        if let Some(heading) = heading {
            current = heading.strip_suffix(')').and_then(|heading| heading.split_once(" ("));
            if let Some((name, dialect)) = current {
                pairs.entry(name).or_default().push((number + 1, dialect));
            }
        } else if let Some((name, _)) = current {
            *reasons.entry(name).or_default() |= line.starts_with(DIFFERS);
        }
    }
    let mut findings = Vec::new();
    for (name, sections) in pairs {
        let line = sections[0].0;
        let unknown = sections.iter().find(|(_, dialect)| !DIALECTS.contains(dialect));
        if let Some((line, dialect)) = unknown {
            findings.push((*line, format!("`{dialect}` is not a database; use postgres or sqlite")));
        } else if sections.len() == 2 && !reasons.get(name).is_some_and(|has_reason| *has_reason) {
            findings.push((
                line,
                format!("section `{name}` does not say why the databases differ; add `{DIFFERS}…`"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    const CODE: &str = "//! Statements.\nconst A: &str = include_str!(\"../sql/run.sql\");\n\
                        const B: &str = include_str!(\"../sql/kernel/postgres/claim.sql\");\n\
                        const C: &str = include_str!(\"../sql/kernel/sqlite/claim.sql\");\n\
                        const D: &str = include_str!(\"../migrations/postgres/0001_schema.sql\");\n\
                        const E: &str = include_str!(\"../migrations/sqlite/0001_schema.sql\");\n\
                        // include_str!(\"../sql/unused.sql\")\n";
    const PAIR: &str = "-- name: run_lock (postgres)\n-- Differs: row locks.\nSELECT 1 FOR UPDATE\n\
                        -- name: run_lock (sqlite)\nSELECT 1\n-- name: run_get\nSELECT 2\n";

    #[test]
    fn included_files_with_reasons_and_twins_pass() {
        let root = tree(&[
            ("crates/store/src/catalog.rs", CODE),
            ("crates/store/sql/run.sql", PAIR),
            ("crates/store/sql/kernel/postgres/claim.sql", "CREATE"),
            ("crates/store/sql/kernel/sqlite/claim.sql", "UPDATE"),
            ("crates/store/migrations/postgres/0001_schema.sql", "CREATE"),
            ("crates/store/migrations/sqlite/0001_schema.sql", "CREATE"),
        ]);
        assert_eq!(shown(&findings(root.path()).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn file_that_only_a_comment_names_is_unused() {
        let root = tree(&[("crates/store/src/catalog.rs", CODE), ("crates/store/sql/unused.sql", "SELECT")]);
        let message = "no code of crates/store/src includes this file; include it or delete it";
        assert_eq!(
            shown(&findings(root.path()).unwrap()),
            [format!("crates/store/sql/unused.sql:1: {message}")]
        );
    }

    #[test]
    fn file_is_not_found_by_the_end_of_a_longer_name() {
        let code = "const A: &str = include_str!(\"../sql/rerun.sql\");";
        let root = tree(&[("crates/store/src/a.rs", code), ("crates/store/sql/run.sql", "SELECT")]);
        assert_eq!(shown(&findings(root.path()).unwrap()).len(), 1);
    }

    #[test]
    fn section_of_each_database_needs_a_reason_and_a_known_database() {
        let without = PAIR.replace("-- Differs: row locks.\n", "");
        assert_eq!(section_findings(PAIR), []);
        assert_eq!(section_findings(&without)[0].0, 1);
        assert!(section_findings(&without)[0].1.contains("`run_lock`"));
        assert!(section_findings("-- name: a (mysql)\nSELECT 1\n")[0].1.contains("`mysql`"));
    }

    #[test]
    fn kernel_file_needs_a_twin_or_a_reason() {
        let file = "crates/store/sql/kernel/postgres/claim.sql";
        let root = tree(&[("crates/store/src/a.rs", CODE), (file, "CREATE")]);
        let faults_of = |root: &Path| shown(&findings(root).unwrap());
        assert!(faults_of(root.path())[0].contains("kernel/sqlite has no file of this name"));
        let root =
            tree(&[("crates/store/src/a.rs", CODE), (file, "-- Claims. PostgreSQL only: why.\nCREATE")]);
        assert_eq!(faults_of(root.path()), Vec::<String>::new());
    }

    #[test]
    fn migrations_exist_for_both_databases() {
        let code = CODE.replace("sqlite/0001_schema.sql", "sqlite/0002_other.sql");
        let root = tree(&[
            ("crates/store/src/catalog.rs", &code),
            ("crates/store/migrations/postgres/0001_schema.sql", "CREATE"),
            ("crates/store/migrations/sqlite/0002_other.sql", "CREATE"),
        ]);
        let findings = shown(&findings(root.path()).unwrap());
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("0001_schema.sql:1: migrations/sqlite has no file"), "{findings:?}");
        assert!(findings[1].contains("0002_other.sql:1: migrations/postgres has no file"), "{findings:?}");
    }
}
