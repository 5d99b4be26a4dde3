//! The packages that the binary contains, from cargo's metadata and lock file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::run;
use crate::workspace;

/// The package of the binary.
const BINARY: &str = "tidemill";

/// A package that is compiled into the binary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// SPDX expression of the manifest.
    pub(super) licence: Option<String>,
    pub(super) description: Option<String>,
    pub(super) repository: Option<String>,
    /// SHA-256 of the published file; crates of this workspace have none.
    pub(super) checksum: Option<String>,
    /// Directory of the sources.
    pub(super) directory: PathBuf,
    /// Names and versions of its direct dependencies.
    pub(super) dependencies: BTreeSet<(String, String)>,
}

impl Package {
    /// Whether the package comes from another project.
    pub(super) fn is_third_party(&self) -> bool {
        self.checksum.is_some()
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl MetadataPackage {
    /// Whether the package runs in the compiler and is not part of the binary.
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `dev` or `build`; null for a dependency of the code itself.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Returns the target triple of this machine.
pub(super) fn host_target() -> Result<String> {
    let text = run(Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` does not name its host")
}

/// Returns every package of the binary for a target, sorted by name.
pub(super) fn packages(target: &str) -> Result<Vec<Package>> {
    let mut cargo = workspace::cargo();
    let text =
        run(cargo.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", target]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo's metadata could not be read")?;
    let lock = fs::read_to_string(workspace::root().join("Cargo.lock"))?;
    let lock: Lock = toml::from_str(&lock).context("Cargo.lock could not be read")?;
    let checksums = lock.package.into_iter().filter_map(|package| {
        let checksum = package.checksum?;
        Some(((package.name, package.version), checksum))
    });
    linked(&metadata, &checksums.collect())
}

/// Returns the packages that can be reached from the binary without tests, build scripts and procedural macros.
fn linked(metadata: &Metadata, checksums: &BTreeMap<(String, String), String>) -> Result<Vec<Package>> {
    let by_id: BTreeMap<&str, &MetadataPackage> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let is_workspace = |package: &&MetadataPackage| {
        package.name == BINARY && package.manifest_path.starts_with(workspace::root())
    };
    let start = metadata.packages.iter().find(is_workspace).context("cargo does not list the binary")?;
    let (mut pending, mut seen) = (vec![start.id.as_str()], BTreeSet::new());
    let mut found = Vec::new();
    while let Some(id) = pending.pop() {
        if !seen.insert(id) {
            continue;
        }
        let (package, node) = (by_id[id], nodes[id]);
        let used = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind.is_none())
                && !by_id[dependency.pkg.as_str()].is_macro()
        });
        let used: Vec<&str> = used.map(|dependency| dependency.pkg.as_str()).collect();
        let named = |id: &&str| (by_id[id].name.clone(), by_id[id].version.clone());
        let key = (package.name.clone(), package.version.clone());
        found.push(Package {
            licence: package.license.clone(),
            description: package.description.clone(),
            repository: package.repository.clone(),
            checksum: checksums.get(&key).cloned(),
            directory: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
            dependencies: used.iter().map(named).collect(),
            name: key.0,
            version: key.1,
        });
        pending.extend(used);
    }
    found.sort();
    Ok(found)
}
