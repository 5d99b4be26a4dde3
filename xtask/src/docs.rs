//! `docs`: builds the book from `docs/` with mdbook.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::check::links;
use crate::{out, workspace};

/// The version of mdbook. It is built once, in a folder below `target/`.
const MDBOOK: &str = "0.5.4";

/// Checks the links of the pages, and builds the book into `target/book`.
pub(crate) fn build() -> Result<ExitCode> {
    let root = workspace::root();
    let findings = links::findings(&root)?;
    for finding in &findings {
        out::line(finding);
    }
    ensure!(findings.is_empty(), "the documentation has {} broken links; fix them", findings.len());
    let mdbook = mdbook()?;
    let target = workspace::target()?.join("book");
    let source = workspace::target()?.join("book-source");
    copy(&root, &source)?;
    let status = Command::new(mdbook)
        .current_dir(&source)
        .args(["build", "--dest-dir"])
        .arg(&target)
        .status()
        .context("could not run mdbook")?;
    ensure!(status.success(), "mdbook failed; see its messages above");
    out::line(format!("wrote {}", target.join("index.html").display()));
    Ok(ExitCode::SUCCESS)
}

/// Copies the pages. Links to files outside of `docs/` become text, because the book does not contain these files.
fn copy(root: &Path, source: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(source);
    let mut files = workspace::files(&root.join("docs"))?;
    files.push(root.join("book.toml"));
    for file in files {
        let name = file.strip_prefix(root)?;
        let copied = source.join(name);
        fs::create_dir_all(copied.parent().unwrap_or(source))?;
        if workspace::has_extension(&file, "md") {
            let mut text = fs::read_to_string(&file)?;
            for target in links::leaving(name, &text) {
                text = text.replace(&format!("]({target})"), "]");
            }
            fs::write(&copied, text)?;
        } else {
            fs::copy(&file, &copied)?;
        }
    }
    Ok(())
}

/// Returns the program: an installed one of the right version, or our own.
fn mdbook() -> Result<PathBuf> {
    let is_right = |program: &PathBuf| {
        let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(MDBOOK))
    };
    let folder = workspace::target()?.join("mdbook");
    let own = folder.join("bin/mdbook");
    if let Some(found) = ["mdbook".into(), own.clone()].into_iter().find(is_right) {
        return Ok(found);
    }
    out::line(format!("installing mdbook {MDBOOK} in {}", folder.display()));
    let status = workspace::cargo()
        .args([
            "install",
            "mdbook",
            "--version",
            MDBOOK,
            "--locked",
            "--no-default-features",
            "--features",
            "search",
        ])
        .arg("--root")
        .arg(&folder)
        // A folder of its own: the features of its dependencies differ from ours.
        .env("CARGO_TARGET_DIR", folder.join("build"))
        .status()
        .context("could not run cargo")?;
    ensure!(
        status.success(),
        "mdbook could not be installed; run `cargo install mdbook --version {MDBOOK} --locked`"
    );
    Ok(own)
}
