//! The copy of the repository that holds every fault.
//!
//! The copy is created in `target/faults/next`, and then brought to `target/faults/tree`. Only files whose content
//! differs are written there, so that cargo builds only the crates that have changed since the last time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::patch::{BASE, Patch};
use crate::workspace::{self, files};

/// Creates or updates the copy, and returns its root.
pub(super) fn create(directory: &Path, patches: &[Patch]) -> Result<PathBuf> {
    let (next, tree) = (directory.join("next"), directory.join("tree"));
    remove(&next)?;
    copy_tracked(&workspace::root(), &next)?;
    mark_version(&next.join("Cargo.toml"))?;
    let base = workspace::root().join("faults").join(format!("{BASE}.patch"));
    apply_all(&next, &base, patches)?;
    bring(&next, &tree)?;
    remove(&next)?;
    Ok(tree)
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("could not remove {}", directory.display()))?;
    }
    Ok(())
}

/// Copies the files that git tracks, as they are in the working tree.
fn copy_tracked(root: &Path, to: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("could not run git")?;
    ensure!(
        listed.status.success(),
        "`git ls-files` failed: {}",
        String::from_utf8_lossy(&listed.stderr).trim()
    );
    let names = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), to.join(name));
        // A file that was deleted and not yet committed, or a link.
        if !from.is_file() {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(&from, &to).with_context(|| format!("could not copy {name}"))?;
    }
    Ok(())
}

/// Gives the copy a version of its own. Cargo then builds its crates beside those of the repository, under other names.
fn mark_version(manifest: &Path) -> Result<()> {
    let text = fs::read_to_string(manifest).context("could not read Cargo.toml of the copy")?;
    fs::write(manifest, with_marked_version(&text)?).context("could not write Cargo.toml of the copy")
}

fn with_marked_version(text: &str) -> Result<String> {
    let missing = "Cargo.toml has no `version` under [workspace.package]";
    let section = text.find("[workspace.package]").context(missing)?;
    let version = section + text[section..].find("\nversion = \"").context(missing)? + "\nversion = \"".len();
    let end = version + text[version..].find('"').context(missing)?;
    Ok(format!("{}+faults{}", &text[..end], &text[end..]))
}

/// Applies the base patch and every fault, and names each patch that does not apply.
fn apply_all(tree: &Path, base: &Path, patches: &[Patch]) -> Result<()> {
    if let Some(reason) = apply(tree, base)? {
        bail!(
            "faults/{BASE}.patch does not apply: {reason}\nIt adds the module that selects the fault; correct it \
             first, as faults/README.md says"
        );
    }
    let mut stale = Vec::new();
    for patch in patches {
        if let Some(reason) = apply(tree, &patch.path)? {
            stale.push(format!(
                "faults/{}.patch does not apply: {reason}\nIt breaks this: {}",
                patch.name, patch.breaks
            ));
        }
    }
    ensure!(
        stale.is_empty(),
        "{}\nThe code has changed, or another patch changes the same lines; put the same faults into the new code, as \
         faults/README.md says",
        stale.join("\n")
    );
    Ok(())
}

/// Applies one patch. Returns git's message if it does not apply; then nothing of it is applied.
fn apply(tree: &Path, patch: &Path) -> Result<Option<String>> {
    let output = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .arg(patch)
        .current_dir(tree)
        // Inside of a repository, git would skip the files of an ignored folder.
        .env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree))
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .context("could not run git")?;
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Makes `to` equal to `from`, and writes only what differs.
fn bring(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let (wanted, present) = (every_file(from)?, every_file(to)?);
    for name in present.difference(&wanted) {
        fs::remove_file(to.join(name))?;
    }
    for name in &wanted {
        let (from, to) = (from.join(name), to.join(name));
        let content = fs::read(&from)?;
        if fs::read(&to).is_ok_and(|present| present == content) {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(&from, &to).with_context(|| format!("could not write {}", to.display()))?;
    }
    Ok(())
}

fn every_file(directory: &Path) -> Result<BTreeSet<PathBuf>> {
    let found = files(directory)?;
    Ok(found.iter().filter_map(|path| path.strip_prefix(directory).ok().map(Path::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn version_of_the_workspace_is_marked() {
        let text = "[workspace]\n\n[workspace.package]\nversion = \"1.2.3\"\nedition = \"2024\"\n";
        let marked = with_marked_version(text).unwrap();
        assert_eq!(marked, text.replace("1.2.3", "1.2.3+faults"));
        assert!(with_marked_version("[workspace]\n").is_err());
    }

    #[test]
    fn stale_patch_is_named_with_what_it_breaks() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        file("code.rs", "one\ntwo\n");
        file("base.rs", "one\ntwo\n");
        let diff = |name: &str, line: &str| {
            let file = format!("diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n");
            format!("Breaks: It.\n\n{file}@@ -1,2 +1,3 @@\n one\n {line}\n+more\n")
        };
        let base = file("base.patch", &diff("base.rs", "two"));
        let patch = |name: &str, path| Patch {
            name: name.into(),
            path,
            breaks: "The lease is forgotten.".into(),
            tests: BTreeMap::new(),
        };
        let patches = [
            patch("old", file("old.patch", &diff("code.rs", "gone"))),
            patch("good", file("good.patch", &diff("code.rs", "two"))),
        ];
        let error = apply_all(directory.path(), &base, &patches).unwrap_err().to_string();
        assert!(error.contains("faults/old.patch does not apply: error: patch failed: code.rs:1"), "{error}");
        assert!(error.contains("The lease is forgotten.") && error.contains("faults/README.md"), "{error}");
        assert!(!error.contains("good.patch"), "{error}");
        assert_eq!(fs::read_to_string(directory.path().join("code.rs")).unwrap(), "one\ntwo\nmore\n");
    }

    #[test]
    fn unchanged_files_are_not_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("a")).unwrap();
        fs::write(from.join("a/same"), "same").unwrap();
        fs::write(from.join("new"), "new").unwrap();
        bring(&from, &to).unwrap();
        let before = fs::metadata(to.join("a/same")).unwrap().modified().unwrap();
        fs::write(to.join("extra"), "extra").unwrap();
        fs::write(to.join("new"), "old").unwrap();
        bring(&from, &to).unwrap();
        assert_eq!(fs::metadata(to.join("a/same")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_to_string(to.join("new")).unwrap(), "new");
        assert!(!to.join("extra").exists());
    }
}
