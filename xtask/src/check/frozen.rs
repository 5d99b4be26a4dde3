//! Checks that the inputs of the benchmarks are unchanged: floors, settings, scripts and row contents.
//!
//! Figures of two versions can only be compared if both were measured with the same inputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use super::Finding;
use crate::workspace::{file_name, files};

const FOLDER: &str = "crates/bench/frozen";
/// The list of hashes, in the format of `sha256sum`.
const LIST: &str = "SHA256SUMS";

/// Returns one finding for each file that was changed, added or removed.
pub(crate) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let folder = root.join(FOLDER);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let list_path = format!("{FOLDER}/{LIST}");
    let list =
        fs::read_to_string(folder.join(LIST)).with_context(|| format!("could not read {list_path}"))?;
    let mut listed: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (number, line) in (1..).zip(list.lines()) {
        let (hash, name) =
            line.split_once("  ").with_context(|| format!("{list_path}:{number} is malformed"))?;
        listed.insert(name, (number, hash));
    }
    let mut findings = Vec::new();
    let paths = files(&folder)?;
    for path in paths.iter().filter(|path| file_name(path) != LIST) {
        let name = file_name(path);
        let actual = sha256(&fs::read(path)?);
        let message = match listed.remove(name.as_str()) {
            Some((_, expected)) if expected == actual => continue,
            Some((_, expected)) => format!(
                "the file changed: its SHA-256 is {actual} instead of {expected}, so new figures cannot be compared \
                 with earlier ones; restore it, or measure both versions again and write the hash to {LIST}"
            ),
            None => format!("the file is not in {LIST}; add the line `{actual}  {name}`, or remove the file"),
        };
        findings.push(Finding::below(root, path, 1, message));
    }
    for (name, (number, _)) in listed {
        findings.push(Finding::new(&list_path, number, format!("the file {name} is missing; restore it")));
    }
    Ok(findings)
}

/// Returns the SHA-256 of the bytes in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::super::{shown, tree};
    use super::*;

    const HASH_OF_A: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";

    #[test]
    fn unchanged_file_has_no_finding() {
        let list = format!("{HASH_OF_A}  floor.sql\n");
        let root = tree(&[("crates/bench/frozen/floor.sql", "a"), ("crates/bench/frozen/SHA256SUMS", &list)]);
        assert_eq!(shown(&findings(root.path()).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn changed_added_and_removed_files_are_findings() {
        let list = format!("{HASH_OF_A}  floor.sql\n{HASH_OF_A}  gone.sql\n");
        let root = tree(&[
            ("crates/bench/frozen/floor.sql", "b"),
            ("crates/bench/frozen/new.sql", "a"),
            ("crates/bench/frozen/SHA256SUMS", &list),
        ]);
        let found = shown(&findings(root.path()).unwrap());
        let expected = [
            "crates/bench/frozen/floor.sql:1: the file changed: its SHA-256 is 3e23e816",
            "crates/bench/frozen/new.sql:1: the file is not in SHA256SUMS; add the line `ca978112",
            "crates/bench/frozen/SHA256SUMS:2: the file gone.sql is missing",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }

    #[test]
    fn committed_files_have_the_listed_hashes() {
        assert_eq!(shown(&findings(&crate::workspace::root()).unwrap()), Vec::<String>::new());
    }
}
