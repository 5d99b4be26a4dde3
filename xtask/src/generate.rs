//! The files that are written by a program, and never by hand.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::check::Fault;
use crate::{out, workspace};

/// Every generated file: its path from the root, and what it holds.
fn generated() -> Vec<(&'static str, String)> {
    let mut files = tidemill_core::diagram::generated();
    files.push(("docs/reference/openapi.json", openapi()));
    files.push((
        "docs/reference/graph.schema.json",
        format!("{:#}\n", tidemill_core::graph::schema::schema()),
    ));
    files
}

/// The document of the API, for people who read it without a server, and for whoever reviews a change of it.
fn openapi() -> String {
    format!("{:#}\n", tidemill_api::document())
}

/// Writes the generated files that differ from what they should be.
pub(crate) fn generate() -> Result<ExitCode> {
    let root = workspace::root();
    for (path, contents) in generated() {
        if !is_up_to_date(&root.join(path), &contents) {
            write(&root.join(path), &contents)?;
            out::line(format!("wrote {path}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One fault for each generated file that is not as its program writes it.
pub(crate) fn faults(root: &Path) -> Vec<Fault> {
    generated()
        .iter()
        .filter(|(path, contents)| !is_up_to_date(&root.join(path), contents))
        .map(|(path, _)| Fault::new(*path, 1, "the file is not up to date; run `cargo xtask generate`"))
        .collect()
}

fn is_up_to_date(path: &Path, contents: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|existing| existing == contents)
}

fn write(path: &Path, contents: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("could not make {}", directory.display()))?;
    }
    fs::write(path, contents).with_context(|| format!("could not write {}", path.display()))
}
