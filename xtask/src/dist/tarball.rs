//! A tarball whose bytes depend only on the packed files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Compression, Release, run};
use crate::workspace;

/// Packs a directory with its name. Owners, times and the order of the entries are fixed.
pub(super) fn pack(tree: &Path, tarball: &Path, release: &Release) -> Result<()> {
    let parent = tree.parent().context("the directory has no parent")?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        // The umask of the builder must not matter.
        .arg("--mode=u+rw,go=rX")
        .arg(match release.compression {
            Compression::Best => "--use-compress-program=gzip -9n",
            Compression::Fast => "--use-compress-program=gzip -1n",
        })
        .arg(format!("--mtime=@{}", release.epoch))
        .arg("--file")
        .arg(tarball)
        .arg("--directory")
        .arg(parent)
        .arg(workspace::file_name(tree));
    run(&mut tar).map(|_| ())
}
