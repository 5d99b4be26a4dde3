//! Checks the dependencies between the crates of the workspace, as declared in their manifests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use toml::{Spanned, Value};

use super::Finding;
use crate::workspace;

/// Each directory of `crates/`, and the directories it may depend on. The graph has no cycles.
const ALLOWED: [(&str, &[&str]); 14] = [
    ("core", &[]),
    ("store", &["core"]),
    ("feeds", &["core", "supplier"]),
    ("engine", &["core", "store", "feeds"]),
    ("wire", &["core"]),
    ("api", &["core", "store", "engine", "wire"]),
    ("client", &["core", "wire"]),
    ("console", &["core", "store", "engine", "wire", "api", "client"]),
    ("supervisor", &[]),
    ("agent", &["core", "wire", "client", "supervisor"]),
    ("supplier", &["core"]),
    (
        "cli",
        &[
            "core",
            "store",
            "engine",
            "feeds",
            "wire",
            "api",
            "client",
            "console",
            "supervisor",
            "supplier",
            "agent",
        ],
    ),
    ("testkit", &["core", "store", "engine", "wire", "api", "client", "feeds", "supplier"]),
    (
        "bench",
        &[
            "core",
            "store",
            "engine",
            "wire",
            "api",
            "client",
            "console",
            "feeds",
            "supplier",
            "supervisor",
            "agent",
            "testkit",
        ],
    ),
];
/// The crate that every other crate may use in its tests.
const FOR_TESTS: &str = "testkit";
/// More dependencies that are allowed in tests: the tests of graph pages use a real agent, those of migrations fill a
/// database through the engine, and syncs read from the simulated supplier.
const ALSO_FOR_TESTS: [(&str, &str); 7] = [
    ("console", "agent"),
    ("console", "supervisor"),
    ("console", "supplier"),
    ("store", "engine"),
    ("engine", "supplier"),
    ("api", "client"),
    ("api", "supplier"),
];

type Dependencies = BTreeMap<String, Spanned<Value>>;

/// The parts of a manifest that declare dependencies.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Manifest {
    package: Package,
    #[serde(default)]
    dependencies: Dependencies,
    #[serde(default)]
    dev_dependencies: Dependencies,
    #[serde(default)]
    build_dependencies: Dependencies,
    /// Dependencies of single platforms.
    #[serde(default)]
    target: BTreeMap<String, Platform>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Platform {
    #[serde(default)]
    dependencies: Dependencies,
    #[serde(default)]
    dev_dependencies: Dependencies,
    #[serde(default)]
    build_dependencies: Dependencies,
}

/// A crate of the workspace.
struct Member {
    directory: String,
    text: String,
    manifest: Manifest,
}

/// The code that a dependency is declared for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Product,
    Tests,
}

/// Returns one finding for each dependency that is not allowed.
pub(super) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let members = members(root)?;
    let mut findings = Vec::new();
    for member in &members {
        let path = format!("crates/{}/Cargo.toml", member.directory);
        let Some((_, allowed)) = ALLOWED.iter().find(|(directory, _)| *directory == member.directory) else {
            let message = "the crate is not listed; add it to xtask/src/check/dependencies.rs";
            findings.push(Finding::new(path, 1, message));
            continue;
        };
        for (purpose, name, value) in member.manifest.all_dependencies() {
            let package = value.get_ref().get("package").and_then(Value::as_str).unwrap_or(name);
            let Some(other) = members.iter().find(|other| other.manifest.package.name == package) else {
                continue;
            };
            let dependency = (member.directory.as_str(), other.directory.as_str());
            let for_tests = purpose == Use::Tests
                && (other.directory == FOR_TESTS || ALSO_FOR_TESTS.contains(&dependency));
            if for_tests || allowed.contains(&other.directory.as_str()) {
                continue;
            }
            let line = member.text[..value.span().start].lines().count();
            let message = format!(
                "`{}` may not depend on `{}`; move the shared code to a crate below both, or change the list in \
                 xtask/src/check/dependencies.rs",
                member.directory, other.directory
            );
            findings.push(Finding::new(path.clone(), line, message));
        }
    }
    Ok(findings)
}

impl Manifest {
    fn all_dependencies(&self) -> Vec<(Use, &str, &Spanned<Value>)> {
        let mut tables = vec![
            (Use::Product, &self.dependencies),
            (Use::Product, &self.build_dependencies),
            (Use::Tests, &self.dev_dependencies),
        ];
        for platform in self.target.values() {
            tables.push((Use::Product, &platform.dependencies));
            tables.push((Use::Product, &platform.build_dependencies));
            tables.push((Use::Tests, &platform.dev_dependencies));
        }
        tables
            .into_iter()
            .flat_map(|(purpose, table)| {
                table.iter().map(move |(name, value)| (purpose, name.as_str(), value))
            })
            .collect()
    }
}

fn members(root: &Path) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for entry in fs::read_dir(root.join("crates")).context("could not read crates/")? {
        let path = entry?.path();
        let Ok(text) = fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let directory = workspace::file_name(&path);
        let manifest = toml::from_str(&text)
            .with_context(|| format!("crates/{directory}/Cargo.toml is not a valid manifest; fix it"))?;
        members.push(Member { directory, text, manifest });
    }
    members.sort_by(|one, other| one.directory.cmp(&other.directory));
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    const CORE: (&str, &str) = ("crates/core/Cargo.toml", "[package]\nname = \"tidemill-core\"\n");
    const TESTKIT: (&str, &str) = ("crates/testkit/Cargo.toml", "[package]\nname = \"tidemill-testkit\"\n");

    #[test]
    fn listed_dependencies_pass() {
        let store = "[package]\nname = \"tidemill-store\"\n[dependencies]\ntidemill-core.workspace = true\n\
                     serde = \"1\"\n[dev-dependencies]\ntidemill-testkit.workspace = true\n";
        let root = tree(&[CORE, TESTKIT, ("crates/store/Cargo.toml", store)]);
        assert_eq!(findings(root.path()).unwrap(), []);
    }

    #[test]
    fn dependency_on_a_higher_crate_is_a_finding_with_its_line() {
        let core = "[package]\nname = \"tidemill-core\"\n[dependencies]\nserde = \"1\"\n\
                    tidemill-testkit = { path = \"../testkit\" }\n";
        let root = tree(&[("crates/core/Cargo.toml", core), TESTKIT]);
        let findings = shown(&findings(root.path()).unwrap());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(
            findings[0].starts_with("crates/core/Cargo.toml:5: `core` may not depend on `testkit`;"),
            "{findings:?}"
        );
    }

    #[test]
    fn renamed_and_platform_dependencies_are_checked() {
        let supervisor = "[package]\nname = \"tidemill-supervisor\"\n[target.'cfg(unix)'.dependencies]\n\
                          truth = { package = \"tidemill-core\", path = \"../core\" }\n";
        let root = tree(&[CORE, ("crates/supervisor/Cargo.toml", supervisor)]);
        assert_eq!(findings(root.path()).unwrap().len(), 1);
    }

    #[test]
    fn unlisted_crate_is_a_finding() {
        let root = tree(&[("crates/util/Cargo.toml", "[package]\nname = \"tidemill-util\"\n")]);
        let findings = shown(&findings(root.path()).unwrap());
        assert!(findings[0].starts_with("crates/util/Cargo.toml:1: the crate is not listed"), "{findings:?}");
    }
}
