//! The Debian package, built with `dpkg-deb`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Compression, DOCUMENTS, Release, copy, run, set_mode, units_of};
use crate::workspace;

/// Administrator's files, which an upgrade does not overwrite.
const CONFIGURATION: &str = "/etc/tidemill/tidemill.toml";
const MAINTAINER_SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package from the contents of the tarball, and returns its path.
pub(super) fn package(release: &Release, tree: &Path, stage: &Path, folder: &Path) -> Result<PathBuf> {
    let architecture = architecture(&release.target)?;
    let root = stage.join("debian");
    fill(release, tree, &root)?;
    control(release, architecture, &root)?;
    let path = folder.join(format!("tidemill_{}_{architecture}.deb", release.version));
    let mut dpkg = Command::new("dpkg-deb");
    let compression: &[&str] = match release.compression {
        Compression::Best => &["-Zxz"],
        Compression::Fast => &["-Zgzip", "-z1"],
    };
    dpkg.args(["--root-owner-group", "--uniform-compression"])
        .args(compression)
        .arg("--build")
        .arg(&root)
        .arg(&path)
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    run(&mut dpkg)?;
    Ok(path)
}

/// Debian's name of the machine of a target triple.
fn architecture(target: &str) -> Result<&'static str> {
    let machines = [("x86_64-", "amd64"), ("aarch64-", "arm64")];
    let found = machines.iter().find(|(start, _)| target.starts_with(start));
    found.map(|(_, name)| *name).with_context(|| format!("`{target}` has no Debian architecture here"))
}

/// Copies the files to their places in the system.
fn fill(release: &Release, tree: &Path, root: &Path) -> Result<()> {
    let place = |from: &Path, to: &str, mode: u32| {
        let to = root.join(to);
        create_folders(root, &to)?;
        copy(from, &to, mode)
    };
    place(&release.binary, "usr/bin/tidemill", 0o755)?;
    place(&tree.join("tidemill.toml"), CONFIGURATION.trim_start_matches('/'), 0o640)?;
    place(&tree.join("completions/tidemill.bash"), "usr/share/bash-completion/completions/tidemill", 0o644)?;
    place(&tree.join("completions/_tidemill"), "usr/share/zsh/vendor-completions/_tidemill", 0o644)?;
    place(
        &tree.join("completions/tidemill.fish"),
        "usr/share/fish/vendor_completions.d/tidemill.fish",
        0o644,
    )?;
    for unit in units_of(&release.root)? {
        place(&unit, &format!("usr/lib/systemd/system/{}", workspace::file_name(&unit)), 0o644)?;
    }
    for name in ["README.md", "sbom.cdx.json", "THIRD-PARTY-LICENSES.txt"] {
        place(&tree.join(name), &format!("usr/share/doc/tidemill/{name}"), 0o644)?;
    }
    for file in
        DOCUMENTS.iter().map(|name| workspace::files(&tree.join(name))).collect::<Result<Vec<_>>>()?.concat()
    {
        let name = file.strip_prefix(tree)?.display();
        place(&file, &format!("usr/share/doc/tidemill/{name}"), 0o644)?;
    }
    place(&release.root.join("deploy/debian/copyright"), "usr/share/doc/tidemill/copyright", 0o644)?;
    place(&tree.join("CHANGELOG.md"), "usr/share/doc/tidemill/changelog", 0o644)?;
    for page in workspace::files(&tree.join("man/man1"))? {
        place(&page, &format!("usr/share/man/man1/{}", workspace::file_name(&page)), 0o644)?;
    }
    for folder in ["usr/share/doc/tidemill/changelog", "usr/share/man/man1"] {
        // Without a name and a time in the header, the bytes depend only on the text.
        run(Command::new("gzip").args(["-9n", "--recursive"]).arg(root.join(folder)))?;
    }
    Ok(())
}

/// Creates the directories above a file with the usual mode, which the umask would change.
fn create_folders(root: &Path, file: &Path) -> Result<()> {
    let folder = file.parent().context("the file has no directory")?;
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(root)) {
        set_mode(folder, 0o755)?;
    }
    Ok(())
}

/// Writes the control files: the description, the checksums and the maintainer scripts.
fn control(release: &Release, architecture: &str, root: &Path) -> Result<()> {
    let (mut sums, mut bytes) = (String::new(), 0);
    for path in workspace::files(root)? {
        bytes += fs::metadata(&path)?.len();
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        let sum = run(Command::new("md5sum").arg(&path))?;
        let sum = sum.split_whitespace().next().context("md5sum printed nothing")?.to_owned();
        if format!("/{name}") != CONFIGURATION {
            let _ = writeln!(sums, "{sum}  {name}");
        }
    }
    let folder = root.join("DEBIAN");
    create_folders(root, &folder.join("control"))?;
    let template = fs::read_to_string(release.root.join("deploy/debian/control"))?;
    let text = template
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@INSTALLED_SIZE@", &bytes.div_ceil(1024).to_string());
    let files = [("control", text), ("md5sums", sums), ("conffiles", format!("{CONFIGURATION}\n"))];
    for (name, text) in files {
        fs::write(folder.join(name), text)?;
        set_mode(&folder.join(name), 0o644)?;
    }
    for name in MAINTAINER_SCRIPTS {
        copy(&release.root.join("deploy/debian").join(name), &folder.join(name), 0o755)?;
    }
    Ok(())
}
