//! Generated files: documents and schemas that are derived from the code, and the Helm chart.

mod chart;
mod routes;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::check::Finding;
use crate::{out, workspace};

/// Returns every generated file: its path from the root, and its contents.
fn generated(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut files = tidemill_core::diagram::generated();
    files.push(("docs/reference/openapi.json", openapi()));
    files.push(("docs/reference/routes.md", routes::page(tidemill_api::document())));
    files.push((
        "docs/reference/graph.schema.json",
        format!("{:#}\n", tidemill_core::graph::schema::schema()),
    ));
    files.push((
        "docs/reference/feed.schema.json",
        format!("{:#}\n", tidemill_core::feed_definition::schema::schema()),
    ));
    files.extend(chart::files(root)?);
    Ok(files)
}

/// Returns the OpenAPI document, for readers without a server and for reviews of API changes.
fn openapi() -> String {
    format!("{:#}\n", tidemill_api::document())
}

/// Writes the generated files that are not up to date.
pub(crate) fn generate() -> Result<ExitCode> {
    let root = workspace::root();
    for (path, contents) in generated(&root)? {
        if !is_up_to_date(&root.join(path), &contents) {
            write(&root.join(path), &contents)?;
            out::line(format!("wrote {path}"));
        }
    }
    generate_references()
}

/// Lets the tests of the command-line program write its reference pages, which they compare otherwise.
fn generate_references() -> Result<ExitCode> {
    // The features of the workspace, so that its build is reused.
    let status = workspace::cargo()
        .args(["test", "--quiet", "--workspace", "--bin", "tidemill", "reference_is_up_to_date"])
        .env("TIDEMILL_WRITE_REFERENCE", "1")
        .status()
        .context("could not run cargo")?;
    ensure!(status.success(), "the reference pages of the command line could not be written");
    Ok(ExitCode::SUCCESS)
}

/// Returns one finding for each generated file that is not up to date.
pub(crate) fn findings(root: &Path) -> Result<Vec<Finding>> {
    let files = generated(root)?;
    let stale = files.iter().filter(|(path, contents)| !is_up_to_date(&root.join(path), contents));
    let finding = |path| Finding::new(path, 1, "the file is not up to date; run `cargo xtask generate`");
    Ok(stale.map(|(path, _)| finding(*path)).collect())
}

fn is_up_to_date(path: &Path, contents: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|existing| existing == contents)
}

fn write(path: &Path, contents: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("could not create {}", directory.display()))?;
    }
    fs::write(path, contents).with_context(|| format!("could not write {}", path.display()))
}
