//! Builds the static release binary.
//!
//! glibc is linked statically. Procedural macros are shared libraries, so the target is named explicitly: then the
//! flags do not apply to them. An object file in C limits name look-ups to the linked code. Paths of the builder are
//! replaced, so that they do not change the bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::check::frozen::sha256;
use crate::{out, workspace};

/// Separates the flags in cargo's variable.
const SEPARATOR: &str = "\u{1f}";

/// Builds the binary, and returns its path.
pub(super) fn build(root: &Path, target: &str) -> Result<PathBuf> {
    build_in(root, target, &workspace::target()?.join("dist-build"))
}

/// Builds the binary again in another directory. Both must have the same bytes.
pub(super) fn build_twice(root: &Path, target: &str) -> Result<PathBuf> {
    let binary = build(root, target)?;
    let second = workspace::target()?.join("dist-build-2");
    super::recreate(&second)?;
    let other = build_in(root, target, &second)?;
    let (one, two) = (sha256(&fs::read(&binary)?), sha256(&fs::read(&other)?));
    ensure!(one == two, "two builds differ: {} and {}", binary.display(), other.display());
    out::line(format!("two builds have the same checksum: {one}"));
    Ok(binary)
}

/// Compiles the object file that limits name look-ups, and returns its path.
fn name_service(root: &Path, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    let object = folder.join("name_service.o");
    let mut compiler = Command::new("cc");
    compiler.args(["-c", "-O2", "-fPIE", "-o"]).arg(&object).arg(root.join("deploy/static/name_service.c"));
    super::run(&mut compiler)?;
    Ok(object)
}

fn build_in(root: &Path, target: &str, folder: &Path) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let home = home.context("CARGO_HOME is not set, and there is no home directory")?;
    // The last match wins, so the root stands before the directories that may be inside.
    let replaced = [(root, "/src"), (&home, "/cargo"), (folder, "/target")];
    let object = name_service(root, folder)?;
    let mut flags =
        vec!["-Ctarget-feature=+crt-static".to_owned(), format!("-Clink-arg={}", object.display())];
    flags
        .extend(replaced.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())));
    let c_flags: Vec<String> =
        replaced.iter().map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display())).collect();
    let mut cargo = workspace::cargo();
    cargo
        .args(["build", "--release", "--locked", "--package", "tidemill", "--target", target])
        .arg("--target-dir")
        .arg(folder)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR))
        .env("CFLAGS", c_flags.join(" "));
    let status = cargo.status().context("could not run cargo")?;
    ensure!(status.success(), "the release binary could not be built");
    Ok(folder.join(target).join("release/tidemill"))
}
