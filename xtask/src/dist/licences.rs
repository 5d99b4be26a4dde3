//! The licence texts of the packages in the binary.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::packages::Package;
use crate::workspace;

/// Beginnings of the names of files with a licence or a notice, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Parts of a static binary that are no packages of cargo.
const OTHERS: &str = "\
Tidemill contains the packages below, the standard library of Rust (MIT OR Apache-2.0) and SQLite (public domain).

The released binary is linked statically with the GNU C Library, which is licensed under the GNU Lesser General Public
License, version 2.1 or later: https://www.gnu.org/licenses/old-licenses/lgpl-2.1.html. The sources of Tidemill and
`cargo xtask dist` link the binary with another version of the library.
";

/// Returns one document: each package with its licence, and each text with the packages that it belongs to.
pub(super) fn document(packages: &[Package]) -> Result<String> {
    let mut text = format!("{OTHERS}\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.iter().filter(|package| package.is_third_party()) {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.licence.as_deref().unwrap_or("see the text below");
        let _ = writeln!(text, "{name}: {licence}");
        for found in texts_of(&package.directory)? {
            texts.entry(found).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (mut names, licence) in texts {
        names.dedup();
        let _ = write!(text, "\n{}\n{}\n\n{licence}\n", "=".repeat(80), names.join(", "));
    }
    Ok(text)
}

/// Returns the texts in the top directory of a package, without differences in white space at the ends of lines.
fn texts_of(directory: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("could not read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = workspace::file_name(&path).to_lowercase();
        if path.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            let bytes = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
            texts.push(lines.join("\n").trim_matches('\n').to_owned());
        }
    }
    texts.sort();
    texts.dedup();
    Ok(texts)
}
