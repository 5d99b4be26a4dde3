//! SQL that is read by somebody, in pairs that say why they differ, and migrations that keep step.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Finding;
use crate::workspace::{file_name, files, has_extension};

const DIALECTS: [&str; 2] = ["postgres", "sqlite"];
/// How a file opens that exists once for each database.
const DIFFERS: &str = "-- Differs:";

/// One finding for each `.sql` file of the store that breaks a rule.
pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let store = root.join("crates/store");
    if !store.exists() {
        return Ok(Vec::new());
    }
    let all = files(&store)?;
    let mut code = String::new();
    for path in all.iter().filter(|path| has_extension(path, "rs") && path.starts_with(store.join("src"))) {
        // A name in a comment does not read the file.
        for line in fs::read_to_string(path)?.lines().filter(|line| !line.trim_start().starts_with("//")) {
            code.push_str(line);
            code.push('\n');
        }
    }
    let migrations = store.join("migrations");
    let mut findings = Vec::new();
    for path in all.iter().filter(|path| has_extension(path, "sql")) {
        let finding = |message: String| Finding::below(root, path, 1, message);
        if path.starts_with(&migrations) {
            findings.extend(migration_fault(path, &all).map(finding));
            if !is_named(&code, path) && !names_directory(&code, path) {
                findings.push(finding("no code of crates/store/src runs this migration; name it there".into()));
            }
            continue;
        }
        if !is_named(&code, path) {
            findings.push(finding(
                "no code of crates/store/src includes this file; include it or delete it".into(),
            ));
        }
        findings.extend(pair_faults(path, &all)?.into_iter().map(finding));
    }
    Ok(findings)
}

/// Whether the code names this file, alone or at the end of a path.
fn is_named(code: &str, path: &Path) -> bool {
    let name = file_name(path);
    ["\"", "/"].iter().any(|before| code.contains(&format!("{before}{name}\"")))
}

/// Whether the code names the directory of this file, as `sqlx::migrate!` does.
fn names_directory(code: &str, path: &Path) -> bool {
    let directory = path.parent().map(file_name).unwrap_or_default();
    code.contains(&format!("migrations/{directory}"))
}

/// A file of the same name for the other database, where there is an other.
fn twin(path: &Path) -> Option<PathBuf> {
    let name = file_name(path);
    let [postgres, sqlite] = DIALECTS.map(|dialect| format!(".{dialect}.sql"));
    let twin = name
        .strip_suffix(&postgres)
        .map(|stem| format!("{stem}{sqlite}"))
        .or_else(|| name.strip_suffix(&sqlite).map(|stem| format!("{stem}{postgres}")))?;
    Some(path.with_file_name(twin))
}

fn pair_faults(path: &Path, all: &[PathBuf]) -> Result<Vec<String>> {
    let Some(twin) = twin(path) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    if !all.contains(&twin) {
        findings.push(format!("the other database has no {}; add it, or drop the ending", file_name(&twin)));
    }
    if !fs::read_to_string(path)?.lines().next().is_some_and(|line| line.starts_with(DIFFERS)) {
        findings.push(format!("the first line does not say why the databases differ; open with `{DIFFERS} …`"));
    }
    Ok(findings)
}

/// What is wrong with a migration, if its twin is missing.
fn migration_fault(path: &Path, all: &[PathBuf]) -> Option<String> {
    let own = path.parent().map(file_name)?;
    let directory = path.parent()?.parent()?;
    let absent: BTreeSet<&str> = DIALECTS
        .into_iter()
        .filter(|dialect| *dialect != own)
        .filter(|dialect| !all.contains(&directory.join(dialect).join(file_name(path))))
        .collect();
    let dialect = absent.first()?;
    Some(format!("migrations/{dialect} has no file of this name; both databases go through the same steps"))
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    const CATALOG: &str = "//! Statements.\npub const A: &str = include_str!(\"../sql/run_apply.sql\");\n\
                           catalog!(\"run_claim.postgres.sql\" | \"run_claim.sqlite.sql\");\n\
                           static M: Migrator = sqlx::migrate!(\"migrations/postgres\");\n\
                           static N: Migrator = sqlx::migrate!(\"migrations/sqlite\");\n\
                           // include_str!(\"../sql/gone.sql\")\n";

    #[test]
    fn included_files_pairs_and_twins_pass() {
        let root = tree(&[
            ("crates/store/src/catalog.rs", CATALOG),
            ("crates/store/sql/run_apply.sql", "UPDATE run"),
            ("crates/store/sql/run_claim.postgres.sql", "-- Differs: row locks.\nSELECT"),
            ("crates/store/sql/run_claim.sqlite.sql", "-- Differs: one writer.\nSELECT"),
            ("crates/store/migrations/postgres/0001_run.sql", "CREATE"),
            ("crates/store/migrations/sqlite/0001_run.sql", "CREATE"),
        ]);
        assert_eq!(shown(&findings(root.path()).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_only_a_comment_names_is_dead() {
        let root = tree(&[("crates/store/src/catalog.rs", CATALOG), ("crates/store/sql/gone.sql", "SELECT")]);
        assert_eq!(
            shown(&findings(root.path()).unwrap()),
            [
                "crates/store/sql/gone.sql:1: no code of crates/store/src includes this file; include it or delete it"
            ]
        );
    }

    #[test]
    fn a_name_is_not_found_inside_a_longer_one() {
        let code = "include_str!(\"../sql/rerun_apply.sql\")";
        assert!(!is_named(code, Path::new("sql/run_apply.sql")));
        assert!(is_named(code, Path::new("sql/rerun_apply.sql")));
    }

    #[test]
    fn a_pair_needs_its_twin_and_its_reason() {
        let root = tree(&[
            ("crates/store/src/catalog.rs", CATALOG),
            ("crates/store/sql/run_claim.postgres.sql", "SELECT 1"),
        ]);
        let findings = shown(&findings(root.path()).unwrap());
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("no run_claim.sqlite.sql"), "{findings:?}");
        assert!(findings[1].contains("`-- Differs: …`"), "{findings:?}");
    }

    #[test]
    fn migrations_keep_step() {
        let root = tree(&[
            ("crates/store/src/catalog.rs", CATALOG),
            ("crates/store/migrations/postgres/0001_run.sql", "CREATE"),
            ("crates/store/migrations/sqlite/0002_other.sql", "CREATE"),
        ]);
        let findings = shown(&findings(root.path()).unwrap());
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("0001_run.sql:1: migrations/sqlite has no file"), "{findings:?}");
        assert!(findings[1].contains("0002_other.sql:1: migrations/postgres has no file"), "{findings:?}");
    }
}
